//! [`Waits`], how long operations and commits waited. An operation that does not wait is not
//! measured.

use std::time::{Duration, Instant};

#[cfg(feature = "metrics")]
use {hdrhistogram::Histogram, parking_lot::Mutex};

/// The kind of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// An operation, for a page, for room, or for another operation.
    Operation = 0,
    /// A commit, for a flush of the log.
    Commit = 1,
}

/// See the module documentation.
pub(crate) struct Waits {
    /// Longer waits are reported.
    slow: Option<Duration>,
    /// By [`Waited`], nanoseconds.
    #[cfg(feature = "metrics")]
    histograms: [Mutex<Histogram<u64>>; 2],
}

impl Waits {
    /// Waits from `slow` on are reported as warnings.
    pub fn new(slow: Option<Duration>) -> Waits {
        Waits {
            slow,
            #[cfg(feature = "metrics")]
            histograms: std::array::from_fn(|_| {
                Mutex::new(Histogram::new(3).expect("three digits are accepted"))
            }),
        }
    }

    /// The beginning of a wait, if waits are measured at all.
    #[inline]
    pub fn begin(&self) -> Option<Instant> {
        (cfg!(feature = "metrics") || self.slow.is_some()).then(Instant::now)
    }

    /// The end of a wait.
    #[inline]
    pub fn end(&self, what: Waited, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.note(what, begun.elapsed());
        }
    }

    #[cold]
    fn note(&self, what: Waited, took: Duration) {
        #[cfg(feature = "metrics")]
        self.histograms[what as usize].lock().saturating_record(took.as_nanos() as u64);
        if self.slow.is_some_and(|slow| took >= slow) {
            let took_ms = took.as_secs_f64() * 1e3;
            match what {
                Waited::Operation => {
                    tracing::warn!(target: "wattle::slow", took_ms, "an operation waited long");
                }
                Waited::Commit => {
                    tracing::warn!(target: "wattle::slow", took_ms, "a commit waited long");
                }
            }
        }
    }

    /// Calls `read` with the latencies of these waits so far, nanoseconds.
    #[cfg(feature = "metrics")]
    pub fn read<T>(&self, what: Waited, read: impl FnOnce(&Histogram<u64>) -> T) -> T {
        read(&self.histograms[what as usize].lock())
    }
}
