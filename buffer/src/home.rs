//! A reference that may travel to other threads but can be used only at home, the thread that made it.
//! One of the files meant for `unsafe`.
//!
//! A transaction that a session lends its state to may move to another thread, where it must not touch
//! the session: the session is not shared by threads. It takes the reference along and asks on each
//! use whether it is at home, which costs a load and a comparison.
//!
//! Invariant: [`HomeRef::get`] gives the reference only to code that runs on the home thread. A thread's
//! number is never given to another thread, also after the first one has ended.

use std::{
    cell::Cell,
    // Not of `crate::sync`: this counts threads of the operating system, also in models of them.
    sync::atomic::{AtomicU64, Ordering},
};

/// Number of a reference that has no home any longer. No thread gets that far.
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

// SAFETY: without this, `&T` would have to be `Send` so that no two threads use the value. Here another
// thread than the one that made the reference cannot: `get`, the only way to the value, compares
// numbers of threads, and these are never used twice. The home thread had a `&'a T` of its own when it
// made this one, so it may use the value until `'a` ends, with or without this reference. Dropping a
// reference does nothing.
unsafe impl<T> Send for HomeRef<'_, T> {}

impl<'a, T> HomeRef<'a, T> {
    /// A reference whose home is the calling thread.
    #[inline]
    pub fn new(value: &'a T) -> HomeRef<'a, T> {
        HomeRef { value, home: Cell::new(here()) }
    }

    /// The value; `None` on any thread but the home thread, and after [`HomeRef::leave`].
    #[inline(always)]
    pub fn get(&self) -> Option<&'a T> {
        (self.home.get() == NUMBER.get()).then_some(self.value)
    }

    /// From now on no thread gets the value.
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
        // `Cell` is `Send`, so the home of a reference to it may be a thread that ends.
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
