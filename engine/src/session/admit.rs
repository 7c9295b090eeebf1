//! Before a change that is a transaction of its own, and after a commit: changes wait while
//! versions take more memory than their limit.

use super::resolve::Resolve;
use crate::{
    core::Core,
    keeper::{DELAYS, HOLD},
    tree::Tree,
};
use std::time::Instant;
use wattle_buffer::Result;

impl Core {
    /// Before a change that is a transaction of its own: the tree belongs to this engine and may be
    /// changed. Waits while versions take more than their limit.
    #[inline(always)]
    pub async fn admit<R: Resolve>(&self, session: &R, tree: &Tree) -> Result<()> {
        self.check_tree(tree)?;
        if self.txns.liveness.is_free() {
            return Ok(());
        }
        self.admit_late(session).await
    }

    #[cold]
    async fn admit_late<R: Resolve>(&self, session: &R) -> Result<()> {
        self.wait_throttled(session).await;
        self.check_alive()
    }

    /// A change, or a commit that was just made, waits while versions take more than their limit.
    #[cold]
    pub async fn wait_throttled<R: Resolve>(&self, session: &R) {
        if self.pool.check_may_wait().is_err() {
            return;
        }
        let begun = Instant::now();
        loop {
            let throttle = self.txns.liveness.throttle();
            let Some(at) = throttle.checked_sub(1) else { return };
            session.sleep(DELAYS[usize::from(at).min(DELAYS.len() - 1)]).await;
            if throttle < HOLD
                || begun.elapsed() >= self.stall_timeout
                || self.txns.failure().is_some()
            {
                return;
            }
        }
    }
}
