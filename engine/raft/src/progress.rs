//! The newest entry whose effect is kept without the log.

use openraft::{LogId, RaftTypeConfig};
use tokio::sync::watch;

type Id<C> = LogId<<C as RaftTypeConfig>::NodeId>;

struct State<C: RaftTypeConfig> {
    covered: Option<Id<C>>,
    failed: bool,
}

/// Shared by the log and the state machine of a node.
pub struct Progress<C: RaftTypeConfig>(watch::Sender<State<C>>);

impl<C: RaftTypeConfig> Progress<C> {
    pub fn new() -> Self {
        Progress(watch::Sender::new(State { covered: None, failed: false }))
    }

    /// Entries up to this one are applied or in a durable snapshot.
    pub fn cover(&self, id: Option<Id<C>>) {
        self.0.send_modify(|state| state.covered = state.covered.take().max(id));
    }

    /// Whether entries up to this one are applied or in a durable snapshot.
    pub fn covers(&self, id: &Id<C>) -> bool {
        self.0.borrow().covered.as_ref() >= Some(id)
    }

    /// Waits until entries up to this one are covered. False when the state machine has failed.
    pub async fn wait(&self, id: &Id<C>) -> bool {
        let mut changes = self.0.subscribe();
        let ended = changes.wait_for(|state| state.failed || state.covered.as_ref() >= Some(id));
        // The sender is `self`: it lives.
        ended.await.is_ok_and(|state| state.covered.as_ref() >= Some(id))
    }

    /// Marks the state machine as failed unless the guard is told that it has not.
    pub fn guard(&self) -> Guard<'_, C> {
        Guard { progress: self, done: false }
    }
}

/// An operation of the state machine. openraft ends the state machine when one fails or panics.
pub struct Guard<'p, C: RaftTypeConfig> {
    progress: &'p Progress<C>,
    done: bool,
}

impl<C: RaftTypeConfig> Guard<'_, C> {
    pub fn done(mut self) {
        self.done = true;
    }
}

impl<C: RaftTypeConfig> Drop for Guard<'_, C> {
    fn drop(&mut self) {
        if !self.done {
            self.progress.0.send_modify(|state| state.failed = true);
        }
    }
}
