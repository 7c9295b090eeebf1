//! Where a call to the engine comes from, which decides whether it may wait.
//!
//! - From a closure of the user that runs while the engine holds something ([`Inside`]). A call
//!   that waits for something its own thread holds would never return. Each thread records which
//!   closures it is in. Only paths that wait, and operations on the whole engine, look at that.
//! - In a child of `fork` ([`Process`]). The child has a copy of the memory, but none of the
//!   threads that write pages, flush the log and free frames, and a lock may be held by a thread
//!   that does not exist. A handler counts forks in each child; an object opened under another
//!   count is refused.

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

/// User code that the engine calls while it holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Inside {
    /// The closure of a change in place: the leaf is latched exclusively.
    Change = 1,
    /// The progress closure of a verification: the janitor is held and merges are paused.
    Verify = 2,
    /// The entries of a bulk load: no backup can begin.
    Load = 4,
    /// A closure that waited for a commit: the thread that flushes the log runs it.
    Durable = 8,
}

thread_local! {
    /// The user code that this thread is in, as bits of [`Inside`].
    static INSIDE: Cell<u8> = const { Cell::new(0) };
}

impl Inside {
    /// Marks this thread as being inside, until the result is dropped.
    #[inline(always)]
    pub fn enter(self) -> Entered {
        let before = INSIDE.get();
        INSIDE.set(before | self as u8);
        Entered { before, _of_this_thread: PhantomData }
    }

    /// Whether this thread is inside such code.
    #[inline]
    pub fn is_here(self) -> bool {
        INSIDE.get() & self as u8 != 0
    }

    /// Refuses the call if this thread is inside.
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
            Inside::Durable => "a closure that waited for a commit",
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

/// Forks between the first process that opened an engine and this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Whether this process is a forked child of one that had opened an engine. It may have opened
/// engines of its own.
pub(crate) fn is_child() -> bool {
    FORKS.load(Ordering::Relaxed) > 0
}

/// The process that opened an object.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    forks: u32,
}

impl Process {
    /// The current process.
    pub fn current() -> Process {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            if let Err(error) = thread::on_fork(in_child) {
                tracing::warn!(%error, "a child of fork will not notice that it is one");
            }
        });
        Process { forks: FORKS.load(Ordering::Relaxed) }
    }

    /// Whether the current process is a child of that process.
    #[inline(always)]
    pub fn is_other(self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.forks
    }

    /// Refuses the call in a child.
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
    fn a_thread_is_inside_until_it_leaves() {
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
