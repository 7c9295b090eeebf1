//! Counters of the log. The flusher adds to them under one lock, which readers take briefly.

use crate::slot::AppendCounts;
use parking_lot::Mutex;
use std::time::Duration;

/// Number of recent syncs over which the minimum and the median are taken.
pub const RECENT_SYNCS: usize = 63;

/// Counters of the log since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Bytes written to the device: blocks and heads of segments, padding included.
    pub bytes_written: u64,
    /// Bytes of records that flushes have taken.
    pub record_bytes: u64,
    /// Bytes of page images among them, see [`crate::Section::count_image`].
    pub image_bytes: u64,
    /// Flushes that wrote something.
    pub flushes: u64,
    /// Syncs, those of heads of segments included.
    pub syncs: u64,
    /// Time that these took in all, nanoseconds.
    pub sync_ns: u64,
    /// Commit records, and records that are a transaction of their own.
    pub commits: u64,
    /// Segments in use, the current one included; those made ahead are not counted.
    pub segments: u64,
    /// Shortest of the last [`RECENT_SYNCS`] syncs, nanoseconds; 0 before the first.
    pub sync_min_ns: u64,
    /// Their median, nanoseconds.
    pub sync_median_ns: u64,
}

/// The counters while the log runs.
#[derive(Default)]
pub(crate) struct LogCounters(Mutex<(LogStats, SyncTimes)>);

impl LogCounters {
    /// All counters, with this number of segments.
    pub(crate) fn stats(&self, segments: u64) -> LogStats {
        let counters = self.0.lock();
        let (stats, syncs) = &*counters;
        LogStats { segments, sync_min_ns: syncs.min, sync_median_ns: syncs.median, ..*stats }
    }

    pub(crate) fn bytes_written(&self) -> u64 {
        self.0.lock().0.bytes_written
    }

    /// Median time of recent syncs; zero before the first.
    pub(crate) fn sync_median(&self) -> Duration {
        Duration::from_nanos(self.0.lock().1.median)
    }

    /// A flush took so many bytes of records.
    pub(crate) fn took(&self, bytes: u64, counts: AppendCounts) {
        let stats = &mut self.0.lock().0;
        stats.record_bytes += bytes;
        stats.commits += counts.commits;
        stats.image_bytes += counts.image_bytes;
    }

    pub(crate) fn wrote(&self, bytes: u64) {
        self.0.lock().0.bytes_written += bytes;
    }

    pub(crate) fn synced(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut counters = self.0.lock();
        counters.0.syncs += 1;
        counters.0.sync_ns += ns;
        counters.1.add(ns);
    }

    pub(crate) fn flushed(&self) {
        self.0.lock().0.flushes += 1;
    }
}

/// The last sync times.
struct SyncTimes {
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
    fn add(&mut self, ns: u64) {
        self.recent[self.count % RECENT_SYNCS] = ns;
        self.count += 1;
        let mut sorted = self.recent;
        let sorted = &mut sorted[..self.count.min(RECENT_SYNCS)];
        sorted.sort_unstable();
        self.min = sorted[0];
        self.median = sorted[sorted.len() / 2];
    }
}
