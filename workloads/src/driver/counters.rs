//! Counters of a store.

use serde::Serialize;

/// Counters of a store since it was opened. All grow, except for the two frame counts, the epoch,
/// the threshold, the queued writes and the median.
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
    /// The evictors.
    pub evictor: EvictorCounters,
}

/// The work of the evictors of a buffer pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EvictorCounters {
    /// The current epoch of the replacement policy, counted from 0 when the store is opened.
    pub epoch: u64,
    /// Mean threshold of a round: pages of a higher value stay. In the unit of the policy.
    pub threshold: f64,
    /// Rounds that had a threshold.
    pub thresholds: u64,
    /// Sum of these thresholds.
    #[serde(skip)]
    pub threshold_sum: f64,
    /// Frames that were sampled as candidates. Each is evicted, queued or refused.
    pub candidates: u64,
    /// Candidates that were queued for a write.
    pub queued: u64,
    /// Pages that stayed, by reason.
    pub refused: Refused,
    /// Swips that became hot because an operation needed their page.
    pub swizzles: u64,
    /// Swips that evictions made cold.
    pub unswizzles: u64,
    /// Dirty pages that wait for a writer.
    pub queued_writes: u64,
}

/// Pages that evictors and writers did not evict, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Refused {
    /// The frame held no page of a tree.
    pub no_page: u64,
    /// The page is kept in memory.
    pub pinned: u64,
    /// A child of the page has a frame.
    pub hot_children: u64,
    /// A write of the page was in flight.
    pub being_written: u64,
    /// Its value was above the threshold.
    pub hotter: u64,
    /// A thread held the latch of the page.
    pub latched: u64,
    /// A thread held the latch of the parent.
    pub parent_latched: u64,
    /// The page changed after it was sampled or written.
    pub changed: u64,
    /// The page was dirty, and the write queue full.
    pub queue_full: u64,
}

/// The growth of the named counts since `$early`, and the rest of `$rest`.
macro_rules! grown {
    ($late:expr, $early:expr, $($count:ident),* $(; $rest:expr)?) => {
        Self { $($count: $late.$count.saturating_sub($early.$count),)* $(..$rest)? }
    };
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
    /// Writes of the log, each with the records of all sessions.
    pub flushes: u64,
}

impl Counters {
    /// The counts after `earlier`. Values that do not grow are the current ones; the threshold is
    /// the mean of the rounds after `earlier`.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters { buffer: self.buffer.since(&earlier.buffer), log: self.log.since(&earlier.log) }
    }
}

impl BufferCounters {
    fn since(&self, earlier: &Self) -> Self {
        let counts = grown!(
            self,
            earlier,
            hits,
            faults,
            pages_read,
            pages_written,
            evictions,
            evictions_dirty,
            epochs,
            restarts,
            frame_waits;
            *self
        );
        Self {
            evictor_cpu_seconds: (self.evictor_cpu_seconds - earlier.evictor_cpu_seconds).max(0.0),
            evictor: self.evictor.since(&earlier.evictor),
            ..counts
        }
    }
}

impl EvictorCounters {
    fn since(&self, earlier: &Self) -> Self {
        let counts =
            grown!(self, earlier, thresholds, candidates, queued, swizzles, unswizzles; *self);
        let threshold_sum = self.threshold_sum - earlier.threshold_sum;
        Self {
            threshold: mean(threshold_sum, counts.thresholds),
            threshold_sum,
            refused: self.refused.since(&earlier.refused),
            ..counts
        }
    }

    /// Candidates that were looked at for each page evicted.
    pub fn candidates_per_eviction(&self, evictions: u64) -> f64 {
        mean(self.candidates as f64, evictions)
    }
}

/// `sum` over `number`; 0 of nothing.
pub fn mean(sum: f64, number: u64) -> f64 {
    if number > 0 { sum / number as f64 } else { 0.0 }
}

impl Refused {
    /// The reasons, with the counts.
    pub fn reasons(&self) -> [(&'static str, u64); 9] {
        [
            ("no page", self.no_page),
            ("pinned", self.pinned),
            ("hot children", self.hot_children),
            ("being written", self.being_written),
            ("hotter", self.hotter),
            ("latched", self.latched),
            ("parent latched", self.parent_latched),
            ("changed", self.changed),
            ("queue full", self.queue_full),
        ]
    }

    fn since(&self, earlier: &Self) -> Self {
        grown!(
            self,
            earlier,
            no_page,
            pinned,
            hot_children,
            being_written,
            hotter,
            latched,
            parent_latched,
            changed,
            queue_full
        )
    }
}

impl LogCounters {
    fn since(&self, earlier: &Self) -> Self {
        grown!(self, earlier, bytes, syncs, commits, record_bytes, checkpoints, flushes; *self)
    }
}
