//! A lock for what is held for a moment only and hardly ever contended for, and whose release costs
//! nothing.
//!
//! A mutex that wakes those who sleep on it must look for them when it is released, with an atomic
//! read-modify-write. That waits until all that the processor has still to write is in its cache. Who
//! fills a buffer whose lines another processor had last, and releases the lock behind it, stands still
//! for longer than it worked. Here the release is a plain store; so nobody is woken, and who waits looks
//! again and again: it spins, then sleeps, each time for longer. It does not yield, which would give its
//! core to others for as long as they may have it: a sleeper is woken by its timer, and goes first.
//!
//! To be held without waiting for anything, and for microseconds.

use crate::{
    caller,
    sync::{AtomicBool, Ordering, sleep},
};
use parking_lot::lock_api::{self, RawMutex};
use std::time::Duration;

/// Looks before who waits sleeps.
const SPINS: u32 = 512;
/// How long it sleeps: first, and at most. The holder was taken off its core, maybe by who waits. The
/// kernel adds some 50 us.
const NAPS: [Duration; 2] = [Duration::from_micros(5), Duration::from_micros(320)];

/// Sleeps, of some 10 s in all, after which nobody will release a lock in a child of `fork`.
const HOPELESS: u32 = 30_000;
/// Sleeps after which a wait is long.
const LONG: u32 = 120;

/// One wait for a holder who does not wake anybody.
#[derive(Default)]
pub(crate) struct Backoff {
    looks: u32,
}

impl Backoff {
    /// It has waited for some 40 ms.
    pub fn is_long(&self) -> bool {
        self.looks >= SPINS + LONG && cfg!(not(shuttle))
    }

    /// Before the next look: spins, then sleeps, each time for longer.
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

/// The lock itself.
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

// SAFETY: only who stored `held` over false, with acquire, is inside, until it stores false, with release.
unsafe impl lock_api::RawMutex for RawBrief {
    const INIT: RawBrief = RawBrief { held: AtomicBool::new(false) };
    type Guard = ();

    #[inline]
    fn lock(&self) {
        while self.try_lock().is_none() {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        // Partner: the store in `unlock`.
        (!self.held.swap(true, Ordering::Acquire)).then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
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
    fn nobody_is_inside_with_another_and_holders_that_sleep_are_waited_for() {
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
