//! The signal that wakes evictors when frames run low, and on which evictors wait for writers.

use crate::{
    scope::{ScopePart, scope},
    sync::{AtomicUsize, Condvar, Mutex, Ordering, fence},
};
use std::time::Duration;
#[cfg(not(shuttle))]
use std::time::Instant;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct EvictSignal {
    state: Mutex<EvictSignalState>,
    condition: Condvar,
    sleepers: AtomicUsize,
}

#[derive(Default)]
struct EvictSignalState {
    calls: u64,
    batches: u64,
    stopping: bool,
}

impl EvictSignal {
    /// Wakes the evictors because frames run low. Cheap while every evictor is awake.
    #[inline]
    pub(crate) fn wake(&self) {
        // Partner: the fence in `sleep`. Either this thread sees the sleeper, or the sleeper sees
        // the new free count.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.state.lock().calls += 1;
            self.condition.notify_all();
        }
    }

    /// Reports the end of a batch of writes.
    pub(crate) fn progress(&self) {
        self.state.lock().batches += 1;
        self.condition.notify_all();
    }

    pub(crate) fn restart(&self) {
        self.state.lock().stopping = false;
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.condition.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.state.lock().stopping
    }

    /// Sleeps until woken, unless `needed` says that there is work already.
    pub(crate) fn sleep(&self, needed: impl Fn() -> bool) {
        let _scope = scope(ScopePart::Idle);
        let mut state = self.state.lock();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let calls = state.calls;
        while state.calls == calls && !state.stopping && !needed() {
            self.condition.wait(&mut state);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits for a batch of writes to end, or for at most `limit`.
    pub(crate) fn wait_progress(&self, limit: Duration) {
        #[cfg(shuttle)]
        {
            let _ = limit;
            crate::sync::yield_now();
        }
        #[cfg(not(shuttle))]
        {
            let _scope = scope(ScopePart::Idle);
            let mut state = self.state.lock();
            let batches = state.batches;
            let deadline = Instant::now() + limit;
            while state.batches == batches && !state.stopping {
                if self.condition.wait_until(&mut state, deadline).timed_out() {
                    break;
                }
            }
        }
    }
}
