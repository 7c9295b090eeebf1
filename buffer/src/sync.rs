//! The only source of atomics, locks and threads, so that the shuttle model checker can replace
//! them (`RUSTFLAGS="--cfg shuttle"`).
//!
//! Page bytes are always real memory. Under shuttle each access to them passes [`interleave`],
//! where the scheduler may switch threads.

#[cfg(not(shuttle))]
mod imp {
    pub use parking_lot::{Condvar, Mutex, MutexGuard};
    pub use std::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub use std::thread::{Builder, JoinHandle, sleep, yield_now};

    /// Scheduling point of the model checker; nothing in a normal build.
    #[inline(always)]
    pub fn interleave() {}
}

#[cfg(shuttle)]
mod imp {
    pub use shuttle::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub use shuttle::thread::{Builder, JoinHandle, yield_now};
    use std::{
        ops::{Deref, DerefMut},
        time::Duration,
    };

    /// Scheduling point of the model checker. It is not a yield, which would tell the scheduler
    /// that the thread cannot go on.
    pub fn interleave() {
        shuttle::thread::sleep(Duration::ZERO);
    }

    /// The model has no time: other threads run first.
    pub fn sleep(_: Duration) {
        yield_now();
    }

    /// parking_lot's interface over shuttle's mutex.
    #[derive(Default, Debug)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);
    /// Guard of [`Mutex`].
    pub struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);
    /// parking_lot's interface over shuttle's condition variable.
    #[derive(Default, Debug)]
    pub struct Condvar(shuttle::sync::Condvar);

    impl<T> Mutex<T> {
        /// A free mutex.
        pub fn new(value: T) -> Self {
            Mutex(shuttle::sync::Mutex::new(value))
        }
        /// Waits for the mutex.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap()))
        }
        /// Returns the guarded value.
        pub fn into_inner(self) -> T {
            self.0.into_inner().unwrap()
        }
    }
    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }
    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }
    impl Condvar {
        /// A condition variable without waiters.
        pub fn new() -> Self {
            Condvar(shuttle::sync::Condvar::new())
        }
        /// Wakes one waiter.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }
        /// Wakes all waiters.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
        /// Releases the mutex, sleeps until woken and waits for the mutex.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            guard.0 = Some(self.0.wait(guard.0.take().unwrap()).unwrap());
        }
    }
}

pub use imp::*;
