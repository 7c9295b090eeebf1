//! Counters of the log. Kept by the flusher under one lock, which readers take for a moment.

/// Sync times that the minimum and the median are taken of.
pub const RECENT_SYNCS: usize = 63;

/// What the log has done since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Bytes written to the device: blocks and heads of segments, padding included.
    pub bytes_written: u64,
    /// Bytes of records, as far as they were taken into a flush.
    pub record_bytes: u64,
    /// Bytes of page images among them, see `Section::count_image`.
    pub image_bytes: u64,
    /// Flushes that wrote something.
    pub flushes: u64,
    /// Syncs, those of heads of segments included.
    pub syncs: u64,
    /// Time that these took in all, nanoseconds.
    pub sync_ns: u64,
    /// Commit records and records that are a transaction of their own.
    pub commits: u64,
    /// Segments in which the log lies, the current one included, those prepared not.
    pub segments: u64,
    /// Shortest of the last [`RECENT_SYNCS`] syncs, nanoseconds; 0 before the first.
    pub sync_min_ns: u64,
    /// Their median, nanoseconds.
    pub sync_median_ns: u64,
}

/// The last sync times.
pub(crate) struct SyncTimes {
    recent: [u64; RECENT_SYNCS],
    count: usize,
    min: u64,
    median: u64,
}

impl Default for SyncTimes {
    fn default() -> Self {
        SyncTimes { recent: [0; RECENT_SYNCS], count: 0, min: 0, median: 0 }
    }
}

impl SyncTimes {
    pub(crate) fn add(&mut self, ns: u64) {
        self.recent[self.count % RECENT_SYNCS] = ns;
        self.count += 1;
        let mut sorted = self.recent;
        let sorted = &mut sorted[..self.count.min(RECENT_SYNCS)];
        sorted.sort_unstable();
        self.min = sorted[0];
        self.median = sorted[sorted.len() / 2];
    }

    pub(crate) fn min_ns(&self) -> u64 {
        self.min
    }

    pub(crate) fn median_ns(&self) -> u64 {
        self.median
    }
}
