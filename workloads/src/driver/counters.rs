//! Counters of a store.

use serde::Serialize;

/// Counters of a store since it was opened. All grow, except for the two frame counts and the
/// median.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// The buffer pool.
    pub buffer: BufferCounters,
    /// The write-ahead log.
    pub log: LogCounters,
}

/// Counters of a buffer pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BufferCounters {
    /// Frames of the pool.
    pub frames: u64,
    /// Frames that hold no page.
    pub free_frames: u64,
    /// Page accesses that found the page in memory.
    pub hits: u64,
    /// Page accesses that did not.
    pub faults: u64,
    /// Pages read from storage.
    pub pages_read: u64,
    /// Pages written to storage.
    pub pages_written: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Evicted pages that had to be written first.
    pub evictions_dirty: u64,
    /// Processor time of the evictor threads.
    pub evictor_cpu_seconds: f64,
    /// Epochs of the replacement policy.
    pub epochs: u64,
    /// Operations that restarted because another thread changed a page they had read.
    pub restarts: u64,
    /// Times that an operation waited for a free frame.
    pub frame_waits: u64,
}

/// Counters of a write-ahead log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LogCounters {
    /// Bytes written.
    pub bytes: u64,
    /// Syncs of the device.
    pub syncs: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Bytes of records, without padding and page images.
    pub record_bytes: u64,
    /// Median of the most recent syncs, microseconds.
    pub sync_us: f64,
    /// Checkpoints.
    pub checkpoints: u64,
}

impl Counters {
    /// The counts after `earlier`. The frame counts and the median are the current ones.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters { buffer: self.buffer.since(&earlier.buffer), log: self.log.since(&earlier.log) }
    }
}

impl BufferCounters {
    fn since(&self, earlier: &Self) -> Self {
        Self {
            frames: self.frames,
            free_frames: self.free_frames,
            hits: self.hits.saturating_sub(earlier.hits),
            faults: self.faults.saturating_sub(earlier.faults),
            pages_read: self.pages_read.saturating_sub(earlier.pages_read),
            pages_written: self.pages_written.saturating_sub(earlier.pages_written),
            evictions: self.evictions.saturating_sub(earlier.evictions),
            evictions_dirty: self.evictions_dirty.saturating_sub(earlier.evictions_dirty),
            evictor_cpu_seconds: (self.evictor_cpu_seconds - earlier.evictor_cpu_seconds).max(0.0),
            epochs: self.epochs.saturating_sub(earlier.epochs),
            restarts: self.restarts.saturating_sub(earlier.restarts),
            frame_waits: self.frame_waits.saturating_sub(earlier.frame_waits),
        }
    }
}

impl LogCounters {
    fn since(&self, earlier: &Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            syncs: self.syncs.saturating_sub(earlier.syncs),
            commits: self.commits.saturating_sub(earlier.commits),
            record_bytes: self.record_bytes.saturating_sub(earlier.record_bytes),
            sync_us: self.sync_us,
            checkpoints: self.checkpoints.saturating_sub(earlier.checkpoints),
        }
    }
}
