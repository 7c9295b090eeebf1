//! The outcome of a step.
//!
//! A step holds latches only while it runs and never waits for I/O. It ends in
//! - a value;
//! - [`Stop::Restart`]: an optimistic read did not validate, or a latch was not free; run it again;
//! - [`Stop::Fault`]: it needs a page or new pages; resolve the fault, run it again;
//! - [`Stop::Faults`]: it needs several pages at once; the same;
//! - [`Stop::Log`]: the log buffer of the session is full; wait for a flush, run it again;
//! - [`Stop::Error`]: it failed, and changed nothing.

use wattle_buffer::{Error, Fault, Restart, Result};

/// Why a step ended without a value.
#[derive(Debug)]
pub enum Stop {
    /// Run the step again.
    Restart,
    /// Resolve the fault, then run the step again.
    Fault(Fault),
    /// Resolve all of them, at once if possible, then run the step again. All are reads that this
    /// step has started; none waits for a read of another step.
    Faults(Vec<Fault>),
    /// Wait until the log has flushed the records of this session, then run the step again.
    Log,
    /// The operation failed and changed nothing.
    Error(Error),
}

impl From<Restart> for Stop {
    #[inline(always)]
    fn from(_: Restart) -> Stop {
        Stop::Restart
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Error(error)
    }
}

/// Outcome of a step.
pub type Step<T> = Result<T, Stop>;
