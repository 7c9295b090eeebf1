//! Shared ownership with bulk counting, for a value whose one owner hands out many shares that
//! mostly come back together. One of the files meant for `unsafe`.
//!
//! Each clone and each drop of an `Arc` is an atomic read-modify-write. It waits until all pending
//! stores of the core have reached its cache; in the middle of a change of a cold record, that
//! takes as long as a cache miss. Here the owner counts many shares in one step and hands them out
//! from the remainder, and a thread that drops many shares gives them back in one step
//! ([`Returned`]).
//!
//! Invariant: the count of a value is the remainder of its owner, plus one for each share,
//! including those in a [`Returned`]. So the count is not 0 while there is an owner or a share, and
//! the thread that brings it to 0 is the last.

use crate::{
    sync::{AtomicUsize, Ordering},
    tuning,
};
use std::{cell::Cell, fmt, ops::Deref, ptr::NonNull};

/// Number of shares that an owner counts in one step.
const AT_ONCE: usize = if tuning::BULK_SHARES { 1 << 12 } else { 1 };

struct Counted<T> {
    count: AtomicUsize,
    value: T,
}

/// Takes `shares` off the count, and drops the value when none are left.
///
/// # Safety
/// The caller owns that many counts, and uses `counted` afterwards only if it owns more.
unsafe fn release<T>(counted: NonNull<Counted<T>>, shares: usize) {
    // SAFETY: the caller's counts keep the value alive until they are taken off.
    let before = unsafe { counted.as_ref() }.count.fetch_sub(shares, Ordering::Release);
    if before == shares {
        // Partner: the releases of all others, so that their uses of the value come before its end.
        // SAFETY: the count is 0, so no other thread drops the value.
        unsafe { counted.as_ref() }.count.load(Ordering::Acquire);
        // SAFETY: it came from a box, and this thread is the last that has it.
        drop(unsafe { Box::from_raw(counted.as_ptr()) });
    }
}

/// Hands out shares of a value. Used by one thread at a time.
pub struct Owner<T> {
    counted: NonNull<Counted<T>>,
    /// Counts not yet handed out; at least 1, which keeps the value alive for the owner.
    left: Cell<usize>,
}

/// A share of a value.
pub struct Share<T> {
    counted: NonNull<Counted<T>>,
}

// SAFETY: as for an `Arc`: any thread may get `&T`, and the last one drops the `T`.
unsafe impl<T: Send + Sync> Send for Owner<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Share<T> {}
// SAFETY: as above; a `&Share` only gives `&T`.
unsafe impl<T: Send + Sync> Sync for Share<T> {}

impl<T> Owner<T> {
    /// Creates a value with its owner and no shares.
    pub fn new(value: T) -> Owner<T> {
        let counted = Box::new(Counted { count: AtomicUsize::new(AT_ONCE), value });
        Owner { counted: NonNull::from(Box::leak(counted)), left: Cell::new(AT_ONCE) }
    }

    /// Creates a share.
    #[inline]
    pub fn share(&self) -> Share<T> {
        if self.left.get() == 1 {
            self.count_more();
        }
        self.left.set(self.left.get() - 1);
        Share { counted: self.counted }
    }

    #[cold]
    fn count_more(&self) {
        // No other thread can bring the count to 0 meanwhile: one count is left here.
        self.counted().count.fetch_add(AT_ONCE, Ordering::Relaxed);
        self.left.set(self.left.get() + AT_ONCE);
    }

    /// Number of live shares.
    pub fn shares(&self) -> usize {
        self.counted().count.load(Ordering::Relaxed) - self.left.get()
    }

    #[inline]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: the counts that are left keep it alive as long as the owner; there is no
        // exclusive reference.
        unsafe { self.counted.as_ref() }
    }
}

impl<T> Drop for Owner<T> {
    fn drop(&mut self) {
        // SAFETY: the owner has that many counts left, and is gone.
        unsafe { release(self.counted, self.left.get()) };
    }
}

impl<T> Drop for Share<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: one count is that of the share, which is gone.
        unsafe { release(self.counted, 1) };
    }
}

impl<T> Deref for Owner<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T> Deref for Share<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the share keeps it alive; there is no exclusive reference.
        &unsafe { self.counted.as_ref() }.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Owner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for Share<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Collects shares of one value and gives them back together.
#[derive(Debug)]
pub struct Returned<T> {
    /// One share, and the number of further ones.
    shares: Option<(Share<T>, usize)>,
}

impl<T> Default for Returned<T> {
    fn default() -> Returned<T> {
        Returned { shares: None }
    }
}

impl<T> Returned<T> {
    /// Takes a share back; first releases those of another value, if there are any.
    #[inline]
    pub fn take(&mut self, share: Share<T>) {
        if !tuning::BULK_SHARES {
            return drop(share);
        }
        match &mut self.shares {
            Some((first, others)) if first.counted == share.counted => {
                *others += 1;
                // From now on it is counted here.
                std::mem::forget(share);
            }
            _ => {
                self.release();
                self.shares = Some((share, 0));
            }
        }
    }

    /// Releases all shares.
    #[inline]
    pub fn release(&mut self) {
        if let Some((first, others)) = self.shares.take() {
            if others > 0 {
                // SAFETY: that many shares were forgotten for this count; the first share keeps the
                // value alive.
                unsafe { release(first.counted, others) };
            }
            drop(first);
        }
    }
}

impl<T> Drop for Returned<T> {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    /// Counts its drops.
    struct Value(Arc<AtomicUsize>);

    impl Drop for Value {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_value_lives_as_long_as_its_owner_and_all_shares() {
        let drops = Arc::new(AtomicUsize::new(0));
        let dropped = || drops.load(Ordering::Relaxed);
        let owner = Owner::new(Value(drops.clone()));
        let shares: Vec<_> = (0..3 * AT_ONCE).map(|_| owner.share()).collect();
        assert_eq!(owner.shares(), 3 * AT_ONCE, "more than one step counts");
        let mut returned = Returned::default();
        let mut shares = shares.into_iter();
        (0..AT_ONCE).for_each(|_| returned.take(shares.next().expect("there are")));
        assert_eq!(owner.shares(), 3 * AT_ONCE, "not yet");
        returned.release();
        assert_eq!(owner.shares(), 2 * AT_ONCE);
        drop(owner);
        let last = shares.next().expect("there are");
        shares.for_each(|share| returned.take(share));
        let other = Owner::new(Value(drops.clone()));
        returned.take(other.share());
        assert_eq!((other.shares(), dropped()), (1, 0), "the last share of the first is left");
        drop(last);
        assert_eq!(dropped(), 1);
        drop(other);
        assert_eq!(dropped(), 1);
        drop(returned);
        assert_eq!(dropped(), 2);
        drop(Owner::new(Value(drops.clone())));
        assert_eq!(dropped(), 3);
    }

    #[test]
    fn each_value_is_dropped_once_by_any_thread_that_is_last() {
        let drops = Arc::new(AtomicUsize::new(0));
        let rounds = 2000;
        std::thread::scope(|scope| {
            let (to_one, one) = mpsc::channel::<Share<Value>>();
            let (to_other, other) = mpsc::channel::<Share<Value>>();
            scope.spawn(move || {
                let mut returned = Returned::default();
                one.into_iter().for_each(|share| returned.take(share));
            });
            scope.spawn(move || other.into_iter().for_each(drop));
            for round in 0..rounds {
                let owner = Owner::new(Value(drops.clone()));
                for i in 0..1 + round % 7 {
                    let to = if i % 2 == 0 { &to_one } else { &to_other };
                    to.send(owner.share()).expect("it listens");
                }
            }
        });
        assert_eq!(drops.load(Ordering::Relaxed), rounds);
    }
}
