//! When the pages of a checkpoint are written.

use std::time::Duration;

/// How often the growth of the log is checked.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// Parts of the time, or of the log growth, until the next checkpoint begins: after `FROM` the
/// first page is written, at `TO` all of them are.
const FROM: f64 = 0.6;
const TO: f64 = 0.95;

/// When the pages of a checkpoint are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Expected time until the next checkpoint begins: the time since the previous one.
    pub time: Duration,
    /// Growth of the log until then, bytes.
    pub bytes: u64,
}

impl Pace {
    /// How long to wait before the next page, when `passed` of `total` pages are done, after
    /// `elapsed`, in which the log has grown by `grown` bytes.
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
