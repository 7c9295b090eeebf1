//! A reference that may move to other threads but can be used only on its home thread, the one that
//! made it. One of the files meant for `unsafe`.
//!
//! A session lends its state to a transaction, and the transaction may move to another thread.
//! There it must not touch the session, which threads do not share. It keeps the reference and
//! checks on each use whether it is on its home thread; the check costs a load and a comparison.
//!
//! Invariant: [`HomeRef::get`] returns the reference only on the home thread. A thread number is
//! never used for a second thread, not even after the first one has ended.

use std::{
    cell::Cell,
    // Not from `crate::sync`: it counts threads of the operating system, also in models.
    sync::atomic::{AtomicU64, Ordering},
};

/// Number of a reference that has lost its home. No thread gets this number.
const NOWHERE: u64 = u64::MAX;

static NUMBERS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// 0 for a thread that has made no reference yet.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// Number of the calling thread.
#[inline]
fn here() -> u64 {
    match NUMBER.get() {
        0 => draw(),
        number => number,
    }
}

#[cold]
fn draw() -> u64 {
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    NUMBER.set(number);
    number
}

/// See the module documentation.
///
/// ```
/// use std::cell::Cell;
/// use wattle_buffer::HomeRef;
///
/// let counter = Cell::new(1); // not `Sync`
/// let reference = HomeRef::new(&counter);
/// std::thread::scope(|scope| {
///     let away = scope.spawn(move || {
///         assert!(reference.get().is_none());
///         reference
///     });
///     counter.set(2);
///     let back = away.join().unwrap();
///     assert_eq!(back.get().unwrap().get(), 2);
/// });
/// ```
pub struct HomeRef<'a, T> {
    value: &'a T,
    home: Cell<u64>,
}

// SAFETY: this replaces the bound `&T: Send`, which keeps two threads from using the value. A
// thread other than the home thread cannot use it: `get`, the only way to the value, compares
// thread numbers, which are never reused. The home thread had a `&'a T` of its own when it made the
// reference, so it may use the value until `'a` ends in any case. Dropping a reference does
// nothing.
unsafe impl<T> Send for HomeRef<'_, T> {}

impl<'a, T> HomeRef<'a, T> {
    /// A reference whose home is the calling thread.
    #[inline]
    pub fn new(value: &'a T) -> HomeRef<'a, T> {
        HomeRef { value, home: Cell::new(here()) }
    }

    /// The value; `None` on any other thread, and after [`HomeRef::leave`].
    #[inline(always)]
    pub fn get(&self) -> Option<&'a T> {
        (self.home.get() == NUMBER.get()).then_some(self.value)
    }

    /// Makes the value unreachable on every thread.
    pub fn leave(&self) {
        self.home.set(NOWHERE);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_had_on_the_thread_that_made_the_reference_and_on_no_other() {
        let value = Cell::new(7);
        let reference = HomeRef::new(&value);
        assert_eq!(reference.get().map(Cell::get), Some(7));
        let reference = std::thread::scope(|scope| {
            let look = move || {
                assert!(reference.get().is_none(), "a thread without a number");
                let other = Cell::new(8);
                assert_eq!(HomeRef::new(&other).get().map(Cell::get), Some(8));
                assert!(reference.get().is_none(), "a thread with a number of its own");
                reference
            };
            scope.spawn(look).join().expect("no panic")
        });
        assert_eq!(reference.get().map(Cell::get), Some(7), "it is at home again");
        reference.leave();
        assert!(reference.get().is_none());
    }

    #[test]
    fn a_thread_that_has_ended_leaves_its_number_to_none() {
        let value = Cell::new(0);
        let value = Box::leak(Box::new(value));
        // A `HomeRef` can outlive its home thread, because `Cell` is `Send`.
        let reference = std::thread::scope(|scope| {
            let value = &mut *value;
            scope.spawn(move || HomeRef::new(&*value)).join().expect("no panic")
        });
        for _ in 0..100 {
            let had = std::thread::scope(|scope| {
                let reference = &reference.home;
                let home = reference.get();
                scope.spawn(move || here() == home).join().expect("no panic")
            });
            assert!(!had);
        }
        assert!(reference.get().is_none());
    }
}
