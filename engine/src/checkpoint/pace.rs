//! When the pages of a checkpoint are written.

use std::time::Duration;

/// How often the growth of the log is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// Of the time, or the log, until the next one begins: what passes before pages are written, and until all
/// of them are.
const FROM: f64 = 0.6;
const TO: f64 = 0.95;

/// When the pages of a checkpoint are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Until the next one begins, if that takes as long as last time.
    pub time: Duration,
    /// The log grows by so much until then.
    pub bytes: u64,
}

impl Pace {
    /// How long to wait when so many pages of all are dealt with, after some time in which the log has
    /// grown by some bytes.
    pub fn wait(self, (passed, total): (usize, usize), elapsed: Duration, grown: u64) -> Duration {
        let due = FROM + (TO - FROM) * passed as f64 / total.max(1) as f64;
        if grown as f64 >= self.bytes as f64 * due {
            return Duration::ZERO;
        }
        self.time.mul_f64(due).saturating_sub(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;
    use std::time::Duration;

    #[test]
    fn pages_are_written_evenly_but_before_the_log_has_no_room() {
        let pace = Pace { time: Duration::from_secs(100), bytes: 1000 };
        let wait = |pages, seconds, grown| {
            let wait = pace.wait(pages, Duration::from_secs(seconds), grown);
            (wait.as_secs_f64() * 10.0).round() / 10.0
        };
        // Nothing is written first.
        assert_eq!(wait((0, 100), 0, 0), 60.0);
        assert_eq!(wait((0, 0), 0, 0), 60.0);
        assert_eq!(wait((50, 100), 40, 100), 37.5);
        assert_eq!(wait((50, 100), 78, 100), 0.0);
        // The log grows faster than it did.
        assert_eq!(wait((50, 100), 40, 776), 0.0);
        assert_eq!(wait((100, 100), 40, 940), 55.0);
    }
}
