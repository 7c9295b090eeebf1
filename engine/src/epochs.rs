//! The epochs that a page can have. A page with another epoch was written after the end of the log.
//!
//! A page goes to storage when the record of its last change is durable, so its epoch is at most
//! that of the last durable flush. Where the log ends at epoch E, a page of a later epoch proves
//! that data file and log do not belong together: one of them was copied, or lost its last writes.
//! But the log goes on, and would reach that epoch. So each time that a store is opened its log
//! leaves a gap: it goes on with the epoch of the clock, [`PER_SECOND`] a second since 1970, and at
//! least [`LEAST_GAP`] epochs after E. No page of this store ever has an epoch in a gap. A page
//! that was written after E by the original of a copied store has: its log was opened before this
//! one, and its epochs rise more slowly than the clock. Each read refuses such a page, also after
//! later openings of the store.
//!
//! The superblock lists the last [`KEPT`] gaps. One that a crash kept out of it is found by the
//! jump of the epochs in the log that recovery reads; if the log has no flush after the jump, no
//! page has.
//!
//! Not detected: pages written after more than [`PER_SECOND`] flushes a second, or while the clock
//! was ahead, once the log has reached that epoch; and pages that are not read before the store was
//! opened [`KEPT`] more times.
//!
//! Used without a log, a store numbers the changes of each page separately, from the number that
//! the page has. Then the largest number written so far takes the place of the durable epoch.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};
use wattle_buffer::Gsn;
use wattle_wal::{GSN_COUNTER_BITS, Log, LogEnd, LogStart, MAX_EPOCH, epoch_of};

/// Least number of epochs in a gap.
const LEAST_GAP: u64 = 1 << 20;
/// Epochs per second of the clock at which a log goes on: nearly always more than the flushes of a
/// log.
const PER_SECOND: u64 = 4096;
/// The clock is believed up to here: half of all epochs, in 2106.
const LATEST: u64 = 1 << (u64::BITS - GSN_COUNTER_BITS - 1);
/// Gaps that are remembered.
pub(crate) const KEPT: usize = 20;
/// A flush can have records of an epoch that is a little below its own.
const MARGIN: u64 = 8;

/// The gaps of the last times that the store was opened, newest first: the epoch that the log ended
/// with, and that with which it went on. Two zeroes: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Gaps(pub [(u64, u64); KEPT]);

impl Gaps {
    /// The log ended with the epoch `end`, and goes on with `start`.
    pub fn add(&mut self, end: u64, start: u64) {
        if start <= end.saturating_add(1) || self.0.iter().any(|gap| gap.0 == end && gap.1 != 0) {
            return;
        }
        self.0.rotate_right(1);
        self.0[0] = (end, start);
    }

    /// Adds the gap between two consecutive flushes, if the log was opened between them.
    pub fn add_jump(&mut self, before: u64, epoch: u64) {
        if epoch > before.saturating_add(LEAST_GAP) {
            self.add(before, epoch - MARGIN);
        }
    }

    /// Whether each entry is a gap, or empty.
    pub fn make_sense(&self) -> bool {
        self.0
            .iter()
            .all(|&(end, start)| (end, start) == (0, 0) || (end < start && start <= MAX_EPOCH))
    }

    /// Fails for a number that no page can have, with the reason.
    pub fn check(&self, gsn: Gsn) -> Result<(), String> {
        let epoch = epoch_of(gsn);
        let gap = self.0.iter().find(|(end, start)| epoch > *end && epoch < *start);
        gap.map_or(Ok(()), |(end, _)| Err(newer(epoch, *end)))
    }
}

/// Where a log goes on that ended with `end`.
pub(crate) fn start_after(end: LogEnd, image_epoch: u64) -> LogStart {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    after(end, image_epoch, since_1970.unwrap_or_default())
}

fn after(end: LogEnd, image_epoch: u64, since_1970: Duration) -> LogStart {
    let mut start = LogStart { image_epoch, ..LogStart::after(end) };
    // A new store has no earlier pages.
    if end.epoch != 0 {
        let ticks = since_1970.as_nanos() * u128::from(PER_SECOND) / 1_000_000_000;
        let now = u64::try_from(ticks).unwrap_or(u64::MAX).min(LATEST);
        start.epoch = now.max(start.epoch + LEAST_GAP);
    }
    start
}

/// The check of a page's epoch when it is read.
pub(crate) struct Epochs {
    gaps: Gaps,
    log: Option<Arc<Log>>,
    /// Without a log: the largest epoch of a page that may be on storage.
    written: AtomicU64,
}

impl Epochs {
    /// The checks of a store with these gaps, whose log had ended with the epoch `end`.
    pub fn new(gaps: Gaps, end: u64, log: Option<&Arc<Log>>) -> Epochs {
        Epochs { gaps, log: log.cloned(), written: AtomicU64::new(end) }
    }

    /// Pages up to this number are about to be written, by an engine without a log.
    pub fn written(&self, gsn: Gsn) {
        self.written.fetch_max(epoch_of(gsn), Ordering::AcqRel);
    }

    /// Fails for a number that no page can have, with the reason.
    pub fn check(&self, gsn: Gsn) -> Result<(), String> {
        let last = match &self.log {
            Some(log) => log.durable_epoch(),
            None => self.written.load(Ordering::Acquire),
        };
        self.gaps.check(gsn)?;
        let epoch = epoch_of(gsn);
        if epoch > last { Err(newer(epoch, last)) } else { Ok(()) }
    }
}

/// The message about a page of this epoch, where the log ended with `end`.
pub(crate) fn newer(epoch: u64, end: u64) -> String {
    format!(
        "it is newer than the log: it was changed in epoch {epoch}, and the log ended with epoch \
         {end}; data file and log are not of one time"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gsn(epoch: u64) -> Gsn {
        Gsn(epoch << GSN_COUNTER_BITS)
    }

    #[test]
    fn epochs_that_were_left_out_are_known_and_no_others() {
        let mut gaps = Gaps::default();
        assert!(gaps.check(gsn(0)).is_ok() && gaps.check(gsn(1)).is_ok());
        gaps.add(100, 101);
        assert_eq!(gaps, Gaps::default(), "nothing was left out");
        gaps.add(100, 5_000_000);
        gaps.add(100, 6_000_000);
        gaps.add_jump(5_000_010, 5_000_010 + LEAST_GAP);
        assert_eq!(gaps.0[..2], [(100, 5_000_000), (0, 0)]);
        gaps.add_jump(5_000_010, 9_000_000);
        assert_eq!(gaps.0[..2], [(5_000_010, 9_000_000 - MARGIN), (100, 5_000_000)]);
        let is_page = |epoch| gaps.check(gsn(epoch)).is_ok();
        assert!(is_page(100) && !is_page(101) && !is_page(4_999_999) && is_page(5_000_000));
        assert!(is_page(5_000_010) && !is_page(5_000_011) && is_page(9_000_000 - MARGIN));
        for gap in 1..KEPT as u64 {
            gaps.add(gap * 10_000_000, gap * 10_000_000 + 5);
        }
        assert!(gaps.check(gsn(101)).is_ok(), "the oldest is forgotten");
        assert!(gaps.check(gsn(5_000_011)).is_err());
    }

    #[test]
    fn the_log_goes_on_after_a_gap() {
        let year = Duration::from_secs(365 * 24 * 3600);
        let epoch = |epoch, since| after(LogEnd { epoch, ..LogEnd::default() }, 3, since).epoch;
        assert_eq!(epoch(0, 50 * year), 1, "not that of a new store");
        assert_eq!(epoch(7, Duration::ZERO), 8 + LEAST_GAP);
        assert_eq!(epoch(7, 50 * year), 50 * 365 * 24 * 3600 * PER_SECOND);
        assert_eq!(epoch(7, 5000 * year), LATEST);
        assert_eq!(epoch(LATEST, 5000 * year), LATEST + 1 + LEAST_GAP);
    }

    #[test]
    fn without_a_log_what_was_written_may_be_read() {
        let epochs = Epochs::new(Gaps::default(), 5, None);
        assert!(epochs.check(gsn(5)).is_ok() && epochs.check(gsn(6)).is_err());
        epochs.written(gsn(6));
        assert!(epochs.check(gsn(6)).is_ok() && epochs.check(gsn(7)).is_err());
    }
}
