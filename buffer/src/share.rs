//! Shared ownership that is counted in bulk: for a value of which one owner hands out many shares, which
//! mostly come back together. One of the files meant for `unsafe`.
//!
//! Each clone of an `Arc` is an atomic read-modify-write, and so is each drop. It waits until all that the
//! processor has still to write is in its cache, which in the middle of a change of a cold record takes as
//! long as a miss. Here the owner counts for many shares at once and hands them out from what it has left;
//! who lets go of many gives them back at once ([`Returned`]).
//!
//! Invariant: the count of a value is what its owner has left, and one for each share, those in
//! [`Returned`]s among them. So as long as there is an owner or a share it is not 0, and whoever brings it
//! to 0 is the last.

use crate::sync::{AtomicUsize, Ordering};
use std::{cell::Cell, fmt, ops::Deref, ptr::NonNull};

/// Shares that an owner counts at once.
const AT_ONCE: usize = 1 << 12;

struct Counted<T> {
    count: AtomicUsize,
    value: T,
}

/// Takes `shares` off the count, and drops the value when none are left.
///
/// # Safety
/// The caller owns that many of what is counted, and uses `counted` no more unless it owns further ones.
unsafe fn release<T>(counted: NonNull<Counted<T>>, shares: usize) {
    // SAFETY: what the caller owns keeps the value alive until it is taken off.
    let before = unsafe { counted.as_ref() }.count.fetch_sub(shares, Ordering::Release);
    if before == shares {
        // Partner: the releases of all others, whose uses of the value come before its end.
        // SAFETY: nothing is left of what was counted: nobody else drops it.
        unsafe { counted.as_ref() }.count.load(Ordering::Acquire);
        // SAFETY: it came from a box, and nobody else has it.
        drop(unsafe { Box::from_raw(counted.as_ptr()) });
    }
}

/// Who hands out shares of a value. It is of one thread at a time.
pub struct Owner<T> {
    counted: NonNull<Counted<T>>,
    /// Of what is counted: at least 1, so that the owner is one that the value lives for.
    left: Cell<usize>,
}

/// A share of a value.
pub struct Share<T> {
    counted: NonNull<Counted<T>>,
}

// SAFETY: as an `Arc`: it gives `&T` on whatever thread it is, and the last one drops the `T` there.
unsafe impl<T: Send + Sync> Send for Owner<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Share<T> {}
// SAFETY: as above; all that a `&Share` gives is `&T`.
unsafe impl<T: Send + Sync> Sync for Share<T> {}

impl<T> Owner<T> {
    /// The owner of a value that nobody shares yet.
    pub fn new(value: T) -> Owner<T> {
        let counted = Box::new(Counted { count: AtomicUsize::new(AT_ONCE), value });
        Owner { counted: NonNull::from(Box::leak(counted)), left: Cell::new(AT_ONCE) }
    }

    /// One more share.
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
        // Nobody can bring the count to 0 meanwhile: one is left here.
        self.counted().count.fetch_add(AT_ONCE, Ordering::Relaxed);
        self.left.set(self.left.get() + AT_ONCE);
    }

    /// Number of shares that somebody has.
    pub fn shares(&self) -> usize {
        self.counted().count.load(Ordering::Relaxed) - self.left.get()
    }

    #[inline]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: what is left keeps it alive as long as the owner, and nobody has it exclusively.
        unsafe { self.counted.as_ref() }
    }
}

impl<T> Drop for Owner<T> {
    fn drop(&mut self) {
        // SAFETY: that many are left of what is counted, and the owner is gone.
        unsafe { release(self.counted, self.left.get()) };
    }
}

impl<T> Drop for Share<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: one is the share's, which is gone.
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
        // SAFETY: the share keeps it alive, and nobody has it exclusively.
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

/// Shares of one value that are given back together.
#[derive(Debug)]
pub struct Returned<T> {
    /// One of them, and how many there are besides.
    shares: Option<(Share<T>, usize)>,
}

impl<T> Default for Returned<T> {
    fn default() -> Returned<T> {
        Returned { shares: None }
    }
}

impl<T> Returned<T> {
    /// Takes a share back, and lets go of those of another value.
    #[inline]
    pub fn take(&mut self, share: Share<T>) {
        match &mut self.shares {
            Some((first, others)) if first.counted == share.counted => {
                *others += 1;
                // Counted here from now on.
                std::mem::forget(share);
            }
            _ => {
                self.release();
                self.shares = Some((share, 0));
            }
        }
    }

    /// Lets go of all of them.
    #[inline]
    pub fn release(&mut self) {
        if let Some((first, others)) = self.shares.take() {
            if others > 0 {
                // SAFETY: so many shares were forgotten for it; the first one keeps the value alive.
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

    /// Counts how often it was dropped.
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
        assert_eq!(owner.shares(), 3 * AT_ONCE, "more than are counted at once");
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
    fn each_value_is_dropped_once_whoever_is_last() {
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
