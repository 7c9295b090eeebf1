//! Statistics: everything that the benchmark prints, and sizes of trees.

use crate::core::Core;
use wattle_buffer::PAGE_SIZE;

/// Counters of an engine, cumulative since it was opened, and a few current values.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
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
    /// Pages written to storage.
    pub pages_written: u64,
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
    /// Times that an operation waited for a free frame.
    pub frame_waits: u64,
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

impl Stats {
    pub(crate) fn of(core: &Core) -> Stats {
        let (pool, file) = (&core.pool, &core.file);
        let log = core.log.as_ref().map(|log| log.stats()).unwrap_or_default();
        let sums = pool.counters();
        let (pages, used_pages) = pool.allocator().counts();
        Stats {
            frames: pool.frames() as u64,
            free_frames: pool.free_frames() as u64,
            hits: sums.hits,
            faults: sums.faults,
            pages_read: sums.pages_read,
            pages_written: sums.pages_written,
            evictions: sums.evictions,
            evictions_dirty: sums.evictions_dirty,
            evictor_cpu_seconds: sums.evictor_cpu_ns as f64 / 1e9,
            epochs: u64::from(pool.epochs()),
            restarts: sums.restarts,
            splits: sums.splits,
            merges: sums.merges,
            contention_splits: sums.contention_splits,
            x_merges: sums.x_merges,
            frame_waits: sums.frame_waits,
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
