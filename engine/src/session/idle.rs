//! States of ended sessions, kept for new sessions.

use super::state::SessionState;

/// How many are kept.
const MAX_IDLE: usize = 16;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct IdleStates {
    #[expect(clippy::vec_box, reason = "sessions hold them in boxes")]
    states: Vec<Box<SessionState>>,
    /// The engine has ended: no more are kept.
    ended: bool,
}

impl IdleStates {
    pub fn pop(&mut self) -> Option<Box<SessionState>> {
        self.states.pop()
    }

    /// Keeps a state; gives it back when there are enough, or when the engine has ended.
    pub fn keep(&mut self, state: Box<SessionState>) -> Option<Box<SessionState>> {
        if self.ended || self.states.len() >= MAX_IDLE {
            return Some(state);
        }
        self.states.push(state);
        None
    }

    /// The engine has ended: gives all that were kept.
    #[expect(clippy::vec_box, reason = "sessions hold them in boxes")]
    pub fn end(&mut self) -> Vec<Box<SessionState>> {
        self.ended = true;
        std::mem::take(&mut self.states)
    }
}
