//! A lock that is held for microseconds and rarely contended, and that is cheap to release.
//!
//! A mutex that can wake sleepers releases with an atomic read-modify-write, in order to look for
//! them. That instruction waits until all pending stores of the core have reached its cache. A
//! thread that fills a buffer whose lines another core owned, and then releases the lock, would
//! stall longer than it worked. Here the release is a plain store, so it wakes no other thread. A
//! waiter polls: it spins first, then sleeps, each time longer. It does not yield, because a yield
//! would give its core away for a whole time slice; a sleeper is woken by its timer and runs first.
//!
//! A holder must not wait for anything while it holds the lock.

use crate::{
    caller,
    sync::{AtomicBool, Ordering, sleep},
};
use lock_api::RawMutex;
use std::time::Duration;

/// Polls before a waiter sleeps.
const SPINS: u32 = 512;
/// First and longest sleep. The holder was preempted, perhaps by the waiter itself. The kernel adds
/// about 50 us.
const NAPS: [Duration; 2] = [Duration::from_micros(5), Duration::from_micros(320)];

/// Number of sleeps, about 10 s in all, after which a child of `fork` assumes that the holder does
/// not exist in it.
const HOPELESS: u32 = 30_000;
/// Number of sleeps after which a wait is long.
const LONG: u32 = 120;

/// One wait for a holder that wakes no other thread.
#[derive(Default)]
pub(crate) struct Backoff {
    looks: u32,
}

impl Backoff {
    /// The wait has taken about 40 ms.
    pub fn is_long(&self) -> bool {
        self.looks >= SPINS + LONG && cfg!(not(shuttle))
    }

    /// Waits before the next poll: spins at first, then sleeps, each time longer.
    #[cold]
    pub fn wait(&mut self) {
        self.looks += 1;
        if self.looks < SPINS && cfg!(not(shuttle)) {
            std::hint::spin_loop();
        } else {
            let doubled = NAPS[0] * (1 << self.looks.saturating_sub(SPINS).min(8));
            sleep(doubled.min(NAPS[1]));
        }
    }
}

/// See the module documentation.
pub type BriefMutex<T> = lock_api::Mutex<RawBrief, T>;
/// Guard of a [`BriefMutex`].
pub type BriefGuard<'a, T> = lock_api::MutexGuard<'a, RawBrief, T>;

/// The raw lock of a [`BriefMutex`].
pub struct RawBrief {
    held: AtomicBool,
}

impl RawBrief {
    #[cold]
    fn wait(&self) {
        let mut backoff = Backoff::default();
        while self.is_locked() {
            if backoff.looks > SPINS + HOPELESS && caller::is_child() {
                panic!(
                    "a thread of the parent process held this lock when this process was forked"
                );
            }
            backoff.wait();
        }
    }
}

// SAFETY: only the thread that swapped `held` from false to true, with acquire, is inside, until it
// stores false, with release.
unsafe impl lock_api::RawMutex for RawBrief {
    const INIT: RawBrief = RawBrief { held: AtomicBool::new(false) };
    type GuardMarker = lock_api::GuardSend;

    #[inline]
    fn lock(&self) {
        while !self.try_lock() {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Partner: the store in `unlock`.
        !self.held.swap(true, Ordering::Acquire)
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.held.store(false, Ordering::Release);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn holders_exclude_each_other_and_waiters_wait_for_holders_that_sleep() {
        let sum = BriefMutex::new((0u64, false));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let sum = &sum;
                scope.spawn(move || {
                    for i in 0..2000 {
                        let mut sum = sum.lock();
                        assert!(!std::mem::replace(&mut sum.1, true), "two holders");
                        if (i + thread) % 500 == 0 {
                            std::thread::sleep(Duration::from_millis(2));
                        }
                        sum.0 += 1;
                        sum.1 = false;
                    }
                });
            }
        });
        assert_eq!(*sum.lock(), (16_000, false));
    }

    #[test]
    fn a_lock_that_is_held_is_not_given_again_until_it_is_released() {
        let lock = BriefMutex::new(());
        let guard = lock.try_lock().expect("free");
        assert!(lock.is_locked() && lock.try_lock().is_none());
        drop(guard);
        assert!(!lock.is_locked() && lock.try_lock().is_some());
    }
}
