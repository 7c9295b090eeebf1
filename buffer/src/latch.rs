//! The hybrid latch of a frame: optimistic, shared and exclusive, in one word. The file has no
//! `unsafe`, but every page access relies on it.
//!
//! Word of 64 bits:
//!
//! | bits | meaning |
//! |---|---|
//! | 0..=13 | shared holders |
//! | 14 | 0 |
//! | 15 | `EXCLUSIVE` |
//! | 16..=63 | version, incremented by every exclusive release that changed something |
//!
//! | shared | EXCLUSIVE | meaning |
//! |---|---|---|
//! | 0 | 0 | free: optimistic readers may start, any thread may latch |
//! | n > 0 | 0 | n shared holders: optimistic readers may start, exclusive holders must wait |
//! | 0 | 1 | one exclusive holder: all others wait or restart |
//! | n > 0 | 1 | impossible: both modes are entered by a compare-and-swap that expects a word without the other mode |
//!
//! While `EXCLUSIVE` is set, only its holder changes the word, so the release is a plain store. An
//! atomic read-modify-write would wait until all stores to the page have reached the cache. For the
//! same reason the release wakes no waiter; waiters poll ([`Backoff`]).
//!
//! The orderings form a sequence lock. An optimistic reader loads the word with acquire (partner:
//! the release in [`Latch::release`]), reads the page relaxed, and validates after an acquire
//! fence. A writer enters with acquire and a release fence, so that its relaxed page stores cannot
//! become visible before `EXCLUSIVE`; a reader that saw one of them also sees the changed word.

use crate::{
    brief::Backoff,
    caller::Inside,
    page::Restart,
    scope::{ScopePart, scope},
    sync::{AtomicU64, Ordering, fence},
};

const SHARED_ONE: u64 = 1;
const SHARED_MASK: u64 = (1 << 14) - 1;
const UNUSED: u64 = 1 << 14;
const EXCLUSIVE: u64 = 1 << 15;
const VERSION_ONE: u64 = 1 << 16;
const VERSION_MASK: u64 = !(VERSION_ONE - 1);
const _: () = assert!(SHARED_MASK | UNUSED | EXCLUSIVE | VERSION_MASK == u64::MAX);
const _: () = assert!(SHARED_MASK & UNUSED == 0 && UNUSED & EXCLUSIVE == 0);

/// Version of a latch at the start of an optimistic read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u64);

impl Version {
    /// A version that no latch ever has: bit 14 of the word is 0.
    const NEVER: Version = Version(UNUSED);

    /// The version after an exclusive hold that began at this one.
    pub(crate) fn next(self, changed: bool) -> Version {
        // Wraps after 2^48 changes of one frame; a reader would have to sleep through all of them.
        if changed { Version(self.0.wrapping_add(VERSION_ONE)) } else { self }
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Latch {
    word: AtomicU64,
}

impl Latch {
    /// Starts an optimistic read; waits while an exclusive holder is inside. If the wait is long,
    /// or if the holder is a caller of this thread, returns a version that never validates.
    #[inline(always)]
    pub fn optimistic(&self) -> Version {
        let word = self.word.load(Ordering::Acquire);
        if word & EXCLUSIVE == 0 {
            return Version(word & VERSION_MASK);
        }
        self.wait_optimistic()
    }

    /// Starts an optimistic read unless an exclusive holder is inside.
    #[inline]
    pub fn try_optimistic(&self) -> Option<Version> {
        let word = self.word.load(Ordering::Acquire);
        (word & EXCLUSIVE == 0).then_some(Version(word & VERSION_MASK))
    }

    #[cold]
    fn wait_optimistic(&self) -> Version {
        if Inside::Change.is_here() {
            return Version::NEVER;
        }
        let _scope = scope(ScopePart::LatchWait);
        let mut backoff = Backoff::default();
        loop {
            if let Some(version) = self.try_optimistic() {
                return version;
            }
            if backoff.is_long() {
                return Version::NEVER;
            }
            backoff.wait();
        }
    }

    /// Ends an optimistic read: on success all bytes read since `version` was taken are consistent.
    #[inline(always)]
    pub fn validate(&self, version: Version) -> Result<(), Restart> {
        fence(Ordering::Acquire);
        let word = self.word.load(Ordering::Relaxed);
        if word & (VERSION_MASK | EXCLUSIVE) == version.0 { Ok(()) } else { Err(Restart) }
    }

    /// Upgrades an optimistic read to an exclusive hold, if nothing changed since `version` and no
    /// shared holder is inside.
    #[inline(always)]
    pub fn upgrade(&self, version: Version) -> Result<(), Restart> {
        let entered = self.word.compare_exchange(
            version.0,
            version.0 | EXCLUSIVE,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        match entered {
            Ok(_) => {
                fence(Ordering::Release);
                Ok(())
            }
            Err(_) => Err(Restart),
        }
    }

    /// Enters exclusively if no holder is inside. Returns the version before.
    #[inline]
    pub fn try_exclusive(&self) -> Option<Version> {
        let word = self.word.load(Ordering::Relaxed);
        if word & (EXCLUSIVE | SHARED_MASK) != 0 {
            return None;
        }
        let version = Version(word);
        self.upgrade(version).ok().map(|()| version)
    }

    /// Enters exclusively, after waiting for all holders to leave. Returns the version before.
    pub fn exclusive(&self) -> Version {
        let mut backoff = Backoff::default();
        loop {
            if let Some(version) = self.try_exclusive() {
                return version;
            }
            backoff.wait();
        }
    }

    /// Leaves exclusive mode; `changed` says whether optimistic readers must notice.
    #[inline(always)]
    pub fn release(&self, version: Version, changed: bool) {
        debug_assert_eq!(self.word.load(Ordering::Relaxed), version.0 | EXCLUSIVE);
        self.word.store(version.next(changed).0, Ordering::Release);
    }

    /// Enters shared mode if no exclusive holder is inside.
    #[inline]
    pub fn try_shared(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & EXCLUSIVE != 0 || word & SHARED_MASK == SHARED_MASK {
                return false;
            }
            match self.word.compare_exchange_weak(
                word,
                word + SHARED_ONE,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Leaves shared mode.
    #[inline]
    pub fn release_shared(&self) {
        let old = self.word.fetch_sub(SHARED_ONE, Ordering::Release);
        debug_assert!(old & SHARED_MASK != 0);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_change_fails_optimistic_readers_and_an_unchanged_hold_does_not() {
        let latch = Latch::default();
        let before = latch.optimistic();
        let version = latch.try_exclusive().unwrap();
        assert_eq!(latch.validate(before), Err(Restart));
        latch.release(version, false);
        assert_eq!(latch.validate(before), Ok(()));
        let version = latch.try_exclusive().unwrap();
        latch.release(version, true);
        assert_eq!(latch.validate(before), Err(Restart));
        assert_eq!(latch.upgrade(before), Err(Restart));
    }

    #[test]
    fn a_version_that_was_not_waited_for_never_validates() {
        let latch = Latch::default();
        let version = latch.try_exclusive().unwrap();
        let inside = Inside::Change.enter();
        let never = latch.optimistic();
        drop(inside);
        // Another holder that stays for long.
        assert_eq!(latch.optimistic(), never);
        assert_eq!(latch.validate(never), Err(Restart));
        latch.release(version, false);
        assert_eq!(latch.validate(never), Err(Restart));
        assert_eq!(latch.upgrade(never), Err(Restart));
    }

    #[test]
    fn shared_holders_keep_writers_out_but_not_optimistic_readers() {
        let latch = Latch::default();
        assert!(latch.try_shared());
        assert!(latch.try_shared());
        let version = latch.optimistic();
        assert!(latch.try_exclusive().is_none());
        assert_eq!(latch.upgrade(version), Err(Restart));
        latch.release_shared();
        latch.release_shared();
        assert_eq!(latch.validate(version), Ok(()));
        let version = latch.exclusive();
        assert!(!latch.try_shared());
        latch.release(version, true);
    }

    #[test]
    fn holders_that_sleep_are_waited_for_and_no_increment_is_lost() {
        let latch = Latch::default();
        let sum = std::cell::UnsafeCell::new(0u64);
        struct Shared<'a>(&'a Latch, &'a std::cell::UnsafeCell<u64>);
        // SAFETY: the cell is only touched inside the exclusive latch.
        unsafe impl Sync for Shared<'_> {}
        let shared = Shared(&latch, &sum);
        let shared = &shared;
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(move || {
                    for i in 0..2000 {
                        let version = shared.0.exclusive();
                        // SAFETY: exclusive.
                        unsafe { *shared.1.get() += 1 };
                        if i % 500 == 0 {
                            std::thread::sleep(std::time::Duration::from_millis(1));
                        }
                        shared.0.release(version, true);
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 16_000);
    }
}
