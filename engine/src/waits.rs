//! [`Waits`], how long operations and commits waited. An operation that does not wait is not
//! measured.

use std::time::{Duration, Instant};

#[cfg(any(test, feature = "metrics"))]
use {hdrhistogram::Histogram, parking_lot::Mutex};

/// The kind of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// An operation, for a page, for room, or for another operation.
    Operation = 0,
    /// A commit, for a flush of the log.
    Commit = 1,
}

/// Longest wait that is measured, nanoseconds: an hour. Longer ones count as this.
#[cfg(any(test, feature = "metrics"))]
const LONGEST: u64 = 3_600_000_000_000;

/// See the module documentation.
pub(crate) struct Waits {
    /// Longer waits are reported.
    slow: Option<Duration>,
    /// By [`Waited`], nanoseconds.
    #[cfg(any(test, feature = "metrics"))]
    histograms: [Mutex<Histogram<u64>>; 2],
}

impl Waits {
    /// Waits from `slow` on are reported as warnings.
    pub fn new(slow: Option<Duration>) -> Waits {
        Waits {
            slow,
            #[cfg(any(test, feature = "metrics"))]
            histograms: std::array::from_fn(|_| {
                // A histogram of fixed size: recording never allocates. It has about 260 KiB.
                let histogram = Histogram::new_with_bounds(1, LONGEST, 3);
                Mutex::new(histogram.expect("these bounds and three digits are accepted"))
            }),
        }
    }

    /// The beginning of a wait, if waits are measured at all.
    #[inline]
    pub fn begin(&self) -> Option<Instant> {
        (cfg!(any(test, feature = "metrics")) || self.slow.is_some()).then(Instant::now)
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
        #[cfg(any(test, feature = "metrics"))]
        self.histograms[what as usize].lock().saturating_record(nanoseconds(took));
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
    #[cfg(any(test, feature = "metrics"))]
    pub fn read<T>(&self, what: Waited, read: impl FnOnce(&Histogram<u64>) -> T) -> T {
        read(&self.histograms[what as usize].lock())
    }
}

#[cfg(any(test, feature = "metrics"))]
fn nanoseconds(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_measured_as_long_as_it_was() {
        let waits = Waits::new(None);
        let least = Duration::from_millis(20);
        let begun = waits.begin();
        std::thread::sleep(least);
        waits.end(Waited::Commit, begun);
        let (count, longest) = waits.read(Waited::Commit, |all| (all.len(), all.max()));
        assert_eq!(count, 1);
        assert!(longest >= least.as_nanos() as u64, "{longest} ns");
        assert_eq!(waits.read(Waited::Operation, |all| all.len()), 0);
    }

    #[test]
    fn waits_of_every_length_are_counted() {
        let waits = Waits::new(None);
        let lengths = [0, 2048, 1_000_000_000, LONGEST, u64::MAX].map(Duration::from_nanos);
        for took in lengths.into_iter().chain([Duration::MAX]) {
            waits.note(Waited::Operation, took);
        }
        waits.read(Waited::Operation, |all| {
            assert_eq!(all.len(), 6);
            assert!(all.max().abs_diff(LONGEST) <= LONGEST / 500, "{}", all.max());
            assert!(all.value_at_quantile(0.5).abs_diff(1_000_000_000) <= 2_000_000);
        });
    }
}
