//! Statistics: everything that the benchmark prints, and sizes of trees.

use crate::core::Core;
use wattle_buffer::{CounterSums, PAGE_SIZE};

/// Counters of an engine, cumulative since it was opened, and a few current values.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stats {
    /// Frames of the pool.
    pub frames: u64,
    /// Frames that hold no page now.
    pub free_frames: u64,
    /// Operations that found every page resident at the first try.
    pub hits: u64,
    /// Times that an operation had to wait for a page.
    pub faults: u64,
    /// Pages read from storage.
    pub pages_read: u64,
    /// Of these, pages that a scan asked for before it needed them.
    pub pages_read_ahead: u64,
    /// Pages that the warm start is to read, see [`crate::Options::warm_start`].
    pub warm_pages_listed: u64,
    /// Of these, pages that it has read. It does not read those that came into memory otherwise.
    pub warm_pages_read: u64,
    /// The warm start is under way.
    pub is_warming: bool,
    /// Pages written to storage.
    pub pages_written: u64,
    /// Random reads of pages per second that the device can do, if `wattle probe` measured them for
    /// this store before it was opened.
    pub device_reads_per_second: Option<u64>,
    /// The same for writes.
    pub device_writes_per_second: Option<u64>,
    /// Pages that may be on their way to storage at once.
    pub write_concurrency: u64,
    /// Pages that a scan reads ahead at most.
    pub read_ahead: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Of these, pages that had to be written first.
    pub evictions_dirty: u64,
    /// Processor time of evictor and writer threads, seconds.
    pub evictor_cpu_seconds: f64,
    /// Epochs of the replacement policy.
    pub epochs: u64,
    /// Operations begun again because an optimistic read did not validate.
    pub restarts: u64,
    /// Node splits.
    pub splits: u64,
    /// Node merges.
    pub merges: u64,
    /// Leaves split because writers met at them.
    pub contention_splits: u64,
    /// Pages saved by X-merge.
    pub x_merges: u64,
    /// Full leaves that gave records to a neighbour instead of being split.
    pub redistributions: u64,
    /// Times that an operation waited for a free frame.
    pub frame_waits: u64,
    /// Rounds of evictors that had a threshold: the lowest value of a page in a small sample.
    pub thresholds: u64,
    /// Sum of these thresholds, in the unit of the policy's values. With `thresholds`, the mean of
    /// any interval.
    pub threshold_sum: f64,
    /// Frames that evictors sampled as candidates. Each is evicted, queued for a write, or refused.
    pub candidates: u64,
    /// Candidates that were dirty and queued for a write, after which they may be evicted.
    pub queued: u64,
    /// Pages that evictors and writers did not evict, by reason.
    pub refused: Refused,
    /// Swips that became hot because an operation needed their page.
    pub swizzles: u64,
    /// Swips that evictions made cold.
    pub unswizzles: u64,
    /// Dirty pages that wait for a writer now.
    pub queued_writes: u64,
    /// Bytes of the data file.
    pub file_bytes: u64,
    /// Pages in use.
    pub used_pages: u64,
    /// Pages of the data file.
    pub pages: u64,
    /// Bytes of the data file that [`crate::Engine::compact`] would give back, about.
    pub compact_bytes: u64,
    /// Bytes written to the log, padding included.
    pub log_bytes: u64,
    /// Bytes of records in the log.
    pub log_record_bytes: u64,
    /// Of these, bytes of images of pages.
    pub log_image_bytes: u64,
    /// Times that the log was written.
    pub log_flushes: u64,
    /// Times that the log was synced.
    pub log_syncs: u64,
    /// Median time of the last syncs of the log, microseconds.
    pub log_sync_median_us: f64,
    /// Transactions in the log that committed, auto-committed operations included.
    pub commits: u64,
    /// Segments of the log that are kept.
    pub log_segments: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Memory of versions of records that snapshots may need, bytes.
    pub version_bytes: u64,
    /// Large values that were replaced or removed, and whose pages are not free yet, bytes.
    pub replaced_bytes: u64,
}

/// Pages that evictors and writers did not evict, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Refused {
    /// The frame held no page of a tree: it was free, being read, or just read.
    pub no_page: u64,
    /// The page is kept in memory, such as the root of an open tree.
    pub pinned: u64,
    /// A child of the page has a frame.
    pub hot_children: u64,
    /// A write of the page was in flight.
    pub being_written: u64,
    /// Its value was above the threshold.
    pub hotter: u64,
    /// A thread held the latch of the page.
    pub latched: u64,
    /// A thread held the latch of the parent, or the parent was not found.
    pub parent_latched: u64,
    /// The page changed after it was sampled or written.
    pub changed: u64,
    /// The page was dirty, and the write queue full.
    pub queue_full: u64,
}

impl Refused {
    fn of(sums: &CounterSums) -> Self {
        Refused {
            no_page: sums.refused_no_page,
            pinned: sums.refused_pinned,
            hot_children: sums.refused_hot_children,
            being_written: sums.refused_writing,
            hotter: sums.refused_hotter,
            latched: sums.refused_latched,
            parent_latched: sums.refused_parent_latched,
            changed: sums.refused_changed,
            queue_full: sums.refused_queue_full,
        }
    }
}

impl Stats {
    pub(crate) fn of(core: &Core) -> Stats {
        let (pool, file) = (&core.pool, &core.file);
        let log = core.log.as_ref().map(|log| log.stats()).unwrap_or_default();
        let sums = pool.counters();
        let (pages, used_pages) = pool.allocator().counts();
        let (warm_pages_listed, warm_pages_read) = core.warm.progress();
        Stats {
            frames: pool.frames() as u64,
            free_frames: pool.free_frames() as u64,
            hits: sums.hits,
            faults: sums.faults,
            pages_read: sums.pages_read,
            pages_read_ahead: sums.pages_read_ahead,
            warm_pages_listed,
            warm_pages_read,
            is_warming: !core.warm.is_over(),
            pages_written: sums.pages_written,
            device_reads_per_second: core.device_rates.map(|rates| rates.reads),
            device_writes_per_second: core.device_rates.map(|rates| rates.writes),
            write_concurrency: pool.write_concurrency() as u64,
            read_ahead: pool.read_ahead() as u64,
            evictions: sums.evictions,
            evictions_dirty: sums.evictions_dirty,
            evictor_cpu_seconds: sums.evictor_cpu_ns as f64 / 1e9,
            epochs: u64::from(pool.epochs()),
            restarts: sums.restarts,
            splits: sums.splits,
            merges: sums.merges,
            contention_splits: sums.contention_splits,
            x_merges: sums.x_merges,
            redistributions: sums.redistributions,
            frame_waits: sums.frame_waits,
            thresholds: sums.thresholds,
            threshold_sum: sums.threshold_sum,
            candidates: sums.candidates,
            queued: sums.queued,
            refused: Refused::of(&sums),
            swizzles: sums.swizzles,
            unswizzles: sums.unswizzles,
            queued_writes: pool.queued_writes() as u64,
            file_bytes: file.storage.capacity_pages() * PAGE_SIZE as u64,
            used_pages,
            pages,
            compact_bytes: pool.allocator().surplus() * PAGE_SIZE as u64,
            log_bytes: log.bytes_written,
            log_record_bytes: log.record_bytes,
            log_image_bytes: log.image_bytes,
            log_flushes: log.flushes,
            log_syncs: log.syncs,
            log_sync_median_us: log.sync_median_ns as f64 / 1e3,
            commits: log.commits,
            log_segments: log.segments,
            checkpoints: core.checkpoints.count(),
            version_bytes: core.txns.versions.bytes(),
            replaced_bytes: core.txns.garbage.replaced_bytes(),
        }
    }
}

/// Size and shape of one tree.
#[derive(Debug, Clone, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TreeStat {
    /// Its name.
    pub name: String,
    /// Records.
    pub records: u64,
    /// Nodes from root to leaf.
    pub depth: usize,
    /// Pages of leaves.
    pub leaf_pages: u64,
    /// Pages of inner nodes.
    pub inner_pages: u64,
    /// Pages that hold chunks of large values.
    pub large_pages: u64,
    /// Share of leaf bytes in use, 0 to 1.
    pub fill: f64,
}
