//! How a step of an operation ends.
//!
//! A step holds latches only while it runs, never waits for I/O, and ends in one of
//! - a value;
//! - [`Stop::Restart`]: an optimistic read did not validate; run it again;
//! - [`Stop::Fault`]: it needs a page or room; resolve the fault, run it again;
//! - [`Stop::Faults`]: it needs several pages at once; the same;
//! - [`Stop::Log`]: the log buffer of the session is full; wait for a flush, run it again;
//! - [`Stop::Error`]: it cannot be done, and nothing was changed.

use wattle_buffer::{Error, Fault, Restart, Result};

/// Why a step ended without a value.
#[derive(Debug)]
pub enum Stop {
    /// Run the step again.
    Restart,
    /// Resolve, then run the step again.
    Fault(Fault),
    /// Resolve all of them, all at once if that is possible, then run the step again. They are reads that
    /// this step owns: it waits for no other.
    Faults(Vec<Fault>),
    /// Wait until the log has taken what this session logged, then run the step again.
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
