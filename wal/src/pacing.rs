//! When the next flush begins. Pure functions of the time and of [`Observed`]; [`crate::requests`]
//! sleeps and wakes as they say.

use std::time::{Duration, Instant};

/// Without any request, a flush starts within this time while anything is buffered.
pub const IDLE_FLUSH: Duration = Duration::from_millis(100);

/// How the threads of the log share the processors and the device with those that append. Every
/// figure here was chosen by measurement; `benches/results/2026-11-heuristics.md` has each of them
/// on and off, and `cargo bench -p wattle-benches --bench log_policy` measures them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushPolicy {
    /// Minimum group-commit delay, unless [`crate::LogOptions::group_delay`] is less. A flush costs
    /// about 25 us of processor time, also on a device whose sync takes no time. Default 150 us.
    pub least_delay: Duration,
    /// The same, divided by the number of processors, while at least as many workers append as
    /// there are processors: the flush then takes its time from theirs. Zero: no such minimum.
    /// Default 2 ms.
    pub busy_delay: Duration,
    /// [`FlushPolicy::busy_delay`] and the group delay are so many times as long while, in
    /// addition, no committer waited for the last flush: then only the cost of a flush counts. 1:
    /// no longer. Default 5.
    pub unwaited_factor: u32,
    /// A flush waits, at most so long and at most as long as a sync takes, until three quarters of
    /// the committers that the last flush let go wait again. Zero: it does not. Default 200 us.
    pub group_wait: Duration,
    /// It does not wait for fewer committers than this. Default 4.
    pub least_group: usize,
    /// The zeroes of the next segment are only reserved, not written, while all processors append
    /// and no committer waits for flushes. Writing them costs the device, and the thread that moves
    /// the bytes there, as much as the log itself; but syncs of space that was only reserved take
    /// longer. Default true.
    pub reserve_zeroes: bool,
}

impl Default for FlushPolicy {
    fn default() -> Self {
        FlushPolicy {
            least_delay: Duration::from_micros(150),
            busy_delay: Duration::from_millis(2),
            unwaited_factor: 5,
            group_wait: Duration::from_micros(200),
            least_group: 4,
            reserve_zeroes: true,
        }
    }
}

/// The state that the delay depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Observed {
    /// Median time of recent syncs; zero before the first.
    pub sync_median: Duration,
    /// Buffers that had records at the last cut.
    pub appending: usize,
    /// Processors of the machine, as far as the process may use them; at least 1.
    pub processors: usize,
    /// Committers that waited for a durable epoch when the last flush ended.
    pub waited: usize,
}

impl Observed {
    /// Whether the threads of the log take their time from those that append.
    pub(crate) fn is_busy(&self) -> bool {
        self.appending >= self.processors
    }

    /// The same, and no committer waited for the last flush: commits are pipelined.
    pub(crate) fn is_unwaited(&self) -> bool {
        self.is_busy() && self.waited == 0
    }
}

impl FlushPolicy {
    /// Time from the first request with `Urgency::Soon` to its flush. To wait longer than a sync
    /// takes gains nothing, but each flush costs processor time.
    pub(crate) fn delay(&self, group_delay: Duration, observed: &Observed) -> Duration {
        if observed.sync_median.is_zero() {
            return group_delay;
        }
        let busy = if observed.is_busy() { self.busy_delay } else { Duration::ZERO };
        let factor = if observed.is_unwaited() { self.unwaited_factor } else { 1 };
        let least = (factor * busy / observed.processors as u32).max(self.least_delay);
        (factor * group_delay).min(observed.sync_median.max(least))
    }

    /// Whether the zeroes of the next segment are only reserved.
    pub(crate) fn reserves_zeroes(&self, observed: &Observed) -> bool {
        self.reserve_zeroes && observed.is_unwaited()
    }

    /// How many committers a flush waits for, and how long at most, if `waiting` wait now and
    /// `before` waited for the last one. `None`: it begins at once.
    pub(crate) fn group(
        &self,
        waiting: usize,
        before: usize,
        sync_median: Duration,
    ) -> Option<(usize, Duration)> {
        let enough = before - before / 4;
        let longest = sync_median.min(self.group_wait);
        let waits = before >= self.least_group && waiting < enough && !longest.is_zero();
        waits.then_some((enough, longest))
    }
}

/// Reasons to flush that the flusher knows of.
pub(crate) struct Reasons {
    /// The log is being closed.
    pub closing: bool,
    /// A checkpoint waits for its cut, or a request with `Urgency::Now` for its flush.
    pub at_once: bool,
    /// When the first request with `Urgency::Soon` must have its flush.
    pub soon: Option<Instant>,
    /// When the buffers are to be looked at, in case no request comes.
    pub idle: Instant,
}

/// The next step of the flusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// The last flush.
    Last,
    /// A flush.
    Flush,
    /// Looks whether anything is buffered.
    Look,
    /// Sleeps until then, or until it is woken.
    Sleep(Instant),
}

impl Reasons {
    /// The next step at `now`.
    pub(crate) fn next(&self, now: Instant) -> NextStep {
        if self.closing {
            NextStep::Last
        } else if self.at_once || self.soon.is_some_and(|soon| soon <= now) {
            NextStep::Flush
        } else if self.idle <= now {
            NextStep::Look
        } else {
            NextStep::Sleep(self.soon.map_or(self.idle, |soon| soon.min(self.idle)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FlushPolicy, NextStep, Observed, Reasons};
    use std::time::{Duration, Instant};

    const GROUP: Duration = Duration::from_millis(1);

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn delay(sync_us: u64, appending: usize, waited: usize) -> Duration {
        let observed = Observed { sync_median: us(sync_us), appending, processors: 4, waited };
        FlushPolicy::default().delay(GROUP, &observed)
    }

    #[test]
    fn a_request_waits_as_long_as_a_sync_takes_within_its_limits() {
        // No sync has been measured yet.
        assert_eq!(delay(0, 9, 0), GROUP);
        for (sync, expected) in [(1, 150), (150, 150), (151, 151), (700, 700), (5000, 1000)] {
            assert_eq!(delay(sync, 3, 1), us(expected), "a sync of {sync} us");
            assert_eq!(delay(sync, 3, 0), us(expected), "with a processor to spare");
        }
        let hasty = Observed { sync_median: us(700), processors: 4, ..Observed::default() };
        assert_eq!(FlushPolicy::default().delay(us(30), &hasty), us(30), "the option is a limit");
    }

    #[test]
    fn busy_processors_and_pipelined_commits_make_it_longer() {
        assert_eq!(delay(100, 4, 1), us(500));
        assert_eq!(delay(100, 4, 0), us(2500));
        assert_eq!(delay(9000, 4, 1), GROUP);
        assert_eq!(delay(9000, 4, 0), 5 * GROUP);
    }

    #[test]
    fn each_part_can_be_switched_off() {
        let observed = Observed { sync_median: us(100), appending: 4, processors: 4, waited: 0 };
        let policy = FlushPolicy { busy_delay: Duration::ZERO, ..FlushPolicy::default() };
        assert_eq!(policy.delay(GROUP, &observed), us(150));
        let policy = FlushPolicy { unwaited_factor: 1, ..FlushPolicy::default() };
        assert_eq!(policy.delay(GROUP, &observed), us(500));
        let policy = FlushPolicy { group_wait: Duration::ZERO, ..FlushPolicy::default() };
        assert_eq!(policy.group(0, 64, us(300)), None);
        assert!(FlushPolicy::default().reserves_zeroes(&observed));
        let policy = FlushPolicy { reserve_zeroes: false, ..FlushPolicy::default() };
        assert!(!policy.reserves_zeroes(&observed));
    }

    #[test]
    fn a_flush_waits_for_three_quarters_of_the_last_group() {
        let policy = FlushPolicy::default();
        assert_eq!(policy.group(0, 3, us(300)), None, "of a few it waits for none");
        assert_eq!(policy.group(0, 4, us(300)), Some((3, us(200))));
        assert_eq!(policy.group(2, 4, us(90)), Some((3, us(90))));
        assert_eq!(policy.group(3, 4, us(300)), None);
        assert_eq!(policy.group(47, 64, us(300)), Some((48, us(200))));
        assert_eq!(policy.group(48, 64, us(300)), None);
    }

    #[test]
    fn the_flusher_sleeps_until_the_first_reason() {
        let now = Instant::now();
        let later = |us: u64| now + Duration::from_micros(us);
        let reasons = |soon, at_once, closing| Reasons { closing, at_once, soon, idle: later(100) };
        assert_eq!(reasons(None, false, false).next(now), NextStep::Sleep(later(100)));
        assert_eq!(reasons(Some(later(9)), false, false).next(now), NextStep::Sleep(later(9)));
        assert_eq!(reasons(Some(later(900)), false, false).next(now), NextStep::Sleep(later(100)));
        assert_eq!(reasons(Some(later(900)), false, false).next(later(100)), NextStep::Look);
        assert_eq!(reasons(Some(later(9)), false, false).next(later(9)), NextStep::Flush);
        assert_eq!(reasons(None, true, false).next(now), NextStep::Flush);
        assert_eq!(reasons(None, true, true).next(now), NextStep::Last);
    }
}
