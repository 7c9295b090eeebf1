//! Runs the steps of an operation: a step that stops is waited for and run again.

use super::resolve::Resolve;
use crate::waits::Waited;
use std::{sync::atomic::Ordering, time::Instant};
use wattle_btree::{self as btree, Step, Stop, Tree};
use wattle_buffer::{Error, Result};

/// Runs a step until it ends in a value or an error.
#[inline(always)]
pub(crate) async fn run<R: Resolve, T>(
    session: &R,
    mut step: impl FnMut(u32) -> Step<T>,
) -> Result<T> {
    match step(0) {
        Ok(value) => {
            session.cx().worker.counters().hits.add(1);
            Ok(value)
        }
        Err(stop) => run_again(session, stop, step).await,
    }
}

/// The part of [`run`] after a first step that did not end in a value.
#[cold]
pub(crate) async fn run_again<R: Resolve, T>(
    session: &R,
    mut stop: Stop,
    mut step: impl FnMut(u32) -> Step<T>,
) -> Result<T> {
    let (mut restarts, mut log_since, mut full_since) = (0u32, None, None);
    if !matches!(stop, Stop::Error(_)) {
        session.core().pool.check_may_wait()?;
    }
    session.cx().worker.begin_waiting();
    let waits = &session.system().waits;
    let mut begun = None;
    loop {
        // A step that runs again at once has not waited.
        if begun.is_none() && !matches!(stop, Stop::Restart) {
            begun = waits.begin();
        }
        let outcome = match stop {
            Stop::Restart => btree::restarted(&session.cx().worker, &mut restarts),
            Stop::Fault(fault) => session.resolve(fault).await,
            Stop::Faults(faults) => session.resolve_all(faults).await,
            Stop::Log => session.wait_log(&mut log_since).await,
            Stop::Error(error) => Err(error),
        };
        if let Err(error) = outcome {
            let full = matches!(error, Error::DiskFull { .. });
            if !full || !wait_for_room(session, &mut full_since).await {
                waits.end(Waited::Operation, begun);
                return Err(error);
            }
        }
        match step(restarts) {
            Ok(value) => {
                waits.end(Waited::Operation, begun);
                return Ok(value);
            }
            Err(next) => stop = next,
        }
    }
}

/// Called when the device has no room for pages, by an operation that has changed nothing. Waits
/// until the log has given room back, at most for the stall timeout `since` the first call. Gives
/// whether another attempt may succeed.
async fn wait_for_room<R: Resolve>(session: &R, since: &mut Option<Instant>) -> bool {
    let core = session.core();
    let (checkpoints, room) = (&core.checkpoints, &core.checkpoints.room);
    if core.log.as_ref().is_none_or(|log| log.refuses_changes()) {
        return false;
    }
    let since = *since.get_or_insert_with(Instant::now);
    // In this order, the opposite of that of a round: room that a round finds meanwhile counts as
    // found.
    let found = room.found.load(Ordering::Acquire);
    let rounds = room.rounds.load(Ordering::Acquire);
    core.barrier.room_wanted.store(true, Ordering::Relaxed);
    let mut turn = 0u32;
    while room.rounds.load(Ordering::Acquire) == rounds {
        let late = since.elapsed() > room.timeout;
        if late || core.txns.failure().is_some() || checkpoints.thread.is_stopping() {
            return false;
        }
        session.pause(turn).await;
        turn = turn.saturating_add(1);
    }
    room.found.load(Ordering::Relaxed) != found
}

/// Merges the leaf that a removal left underfull. The record is gone already: a merge that fails
/// only leaves a leaf emptier.
pub(crate) async fn merge<R: Resolve>(session: &R, tree: &Tree, key: &[u8]) {
    let cx = session.cx();
    if let Err(error) = run(session, |_| tree.merge_step(cx, key, 0)).await {
        tracing::warn!(%error, "a leaf could not be merged");
    }
}
