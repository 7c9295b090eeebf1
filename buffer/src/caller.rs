//! From where the engine is called: what decides whether a call may wait.
//!
//! - From inside of a closure of the user that runs while the engine holds something ([`Inside`]). A call that
//!   would wait for what its own thread holds would wait for ever. A thread knows what it is inside of; only
//!   paths that wait, and operations on the engine as a whole, look.
//! - In a child of `fork` ([`Process`]). It has a copy of the memory, and none of the threads that write pages,
//!   flush the log and free frames; locks may be held by threads that do not exist. A handler that runs in
//!   each child counts; whatever was opened with another count is refused.

use crate::{
    error::{Error, Result},
    thread,
};
use std::{
    cell::Cell,
    marker::PhantomData,
    sync::{
        Once,
        atomic::{AtomicU32, Ordering},
    },
};

/// Code of the user that the engine calls while it holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Inside {
    /// The closure of a change in place: the leaf is latched exclusively.
    Change = 1,
    /// The progress closure of a verification: the janitor is held and merges are paused.
    Verify = 2,
    /// The entries of a bulk load: no backup can begin.
    Load = 4,
}

thread_local! {
    /// What this thread is inside of, bits of [`Inside`].
    static INSIDE: Cell<u8> = const { Cell::new(0) };
}

impl Inside {
    /// This thread calls such code until the result is dropped.
    #[inline(always)]
    pub fn enter(self) -> Entered {
        let before = INSIDE.get();
        INSIDE.set(before | self as u8);
        Entered { before, _of_this_thread: PhantomData }
    }

    /// This thread is in such code.
    #[inline]
    pub fn is_here(self) -> bool {
        INSIDE.get() & self as u8 != 0
    }

    /// Refuses a call from there.
    ///
    /// # Errors
    /// [`Error::Reentrant`].
    #[inline]
    pub fn refuse(self) -> Result<()> {
        if self.is_here() { Err(Error::Reentrant(self.what())) } else { Ok(()) }
    }

    #[cold]
    fn what(self) -> &'static str {
        match self {
            Inside::Change => "a closure that changes a value",
            Inside::Verify => "the progress closure of a verification",
            Inside::Load => "the entries of a bulk load",
        }
    }
}

/// See [`Inside::enter`].
pub struct Entered {
    before: u8,
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    #[inline(always)]
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}

/// Forks that lie between the first process that opened an engine and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// This process is a child, by `fork`, of one that had opened an engine. It may have opened others itself.
pub(crate) fn is_child() -> bool {
    FORKS.load(Ordering::Relaxed) > 0
}

/// The process that opened something.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    forks: u32,
}

impl Process {
    /// This one.
    pub fn current() -> Process {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            if let Err(error) = thread::on_fork(in_child) {
                tracing::warn!(%error, "a child of fork will not notice that it is one");
            }
        });
        Process { forks: FORKS.load(Ordering::Relaxed) }
    }

    /// This is a child of that process.
    #[inline(always)]
    pub fn is_other(self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.forks
    }

    /// Refuses a call in a child.
    ///
    /// # Errors
    /// [`Error::Forked`].
    #[inline]
    pub fn check(self) -> Result<()> {
        if self.is_other() { Err(Error::Forked) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_inside_of_what_it_entered_and_has_not_left() {
        let change = Inside::Change.enter();
        {
            let _load = Inside::Load.enter();
            let _again = Inside::Change.enter();
            assert!(Inside::Change.is_here() && Inside::Load.is_here());
            assert!(!std::thread::spawn(|| Inside::Change.is_here()).join().unwrap());
        }
        assert!(Inside::Change.refuse().is_err() && Inside::Load.refuse().is_ok());
        drop(change);
        assert!(Inside::Change.refuse().is_ok());
    }
}
