//! When the pages of a checkpoint are written.

use std::time::Duration;
use wattle_wal::CLASSES;

/// How often the growth of the log is checked.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// Parts of the time, or of the log growth, until the next checkpoint begins: after `FROM` the
/// first page is written, at `TO` all of them are.
const FROM: f64 = 0.6;
const TO: f64 = 0.95;
/// The same for the classes of pages whose images become due: at once for the first one, and at
/// `DUE` for the last one.
const DUE: f64 = 0.55;

/// When the pages of a checkpoint are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Expected time until the next checkpoint begins: the time since the previous one.
    pub time: Duration,
    /// Growth of the log until then, bytes.
    pub bytes: u64,
}

impl Pace {
    /// How long to wait before images of the pages of `class` become due, see [`Pace::wait`], and
    /// how many classes are due by then.
    pub fn due(self, class: usize, elapsed: Duration, grown: u64) -> (Duration, usize) {
        let step = DUE / (CLASSES - 1) as f64;
        let part = |done: f64, all: f64| if all > 0.0 { done / all } else { f64::INFINITY };
        let done = part(grown as f64, self.bytes as f64)
            .max(part(elapsed.as_secs_f64(), self.time.as_secs_f64()));
        let classes = ((done / step) as usize).saturating_add(1).min(CLASSES);
        (self.time.mul_f64(step * class as f64).saturating_sub(elapsed), classes)
    }

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

    #[test]
    fn images_become_due_one_class_after_the_other() {
        let pace = Pace { time: Duration::from_secs(150), bytes: 1500 };
        let due = |class, seconds, grown| {
            let (wait, classes) = pace.due(class, Duration::from_secs(seconds), grown);
            ((wait.as_secs_f64() * 10.0).round() / 10.0, classes)
        };
        assert_eq!(due(1, 0, 0), (5.5, 1));
        assert_eq!(due(1, 6, 0), (0.0, 2));
        assert_eq!(due(2, 6, 0), (5.0, 2));
        // The log grows faster than it did.
        assert_eq!(due(2, 6, 111), (5.0, 3));
        assert_eq!(due(15, 6, 900), (76.5, 16));
        assert_eq!(due(15, 900, 0).1, 16);
        let first = Pace { time: Duration::ZERO, bytes: 0 };
        assert_eq!(first.due(1, Duration::ZERO, 0), (Duration::ZERO, 16));
    }
}
