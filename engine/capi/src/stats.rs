//! Counters, as C has them.

use wattle::Stats;

/// Counters of an engine since it was opened, and a few current values.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct WattleStats {
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
    /// Bytes of the data file.
    pub file_bytes: u64,
    /// Pages in use.
    pub used_pages: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// Times that the log was written.
    pub log_flushes: u64,
    /// Times that the log was synced.
    pub log_syncs: u64,
    /// Transactions that committed, auto-committed operations included.
    pub commits: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Memory of versions that snapshots may need, bytes.
    pub version_bytes: u64,
    /// Bytes of the data file that `wattle_compact` would give back, about.
    pub compact_bytes: u64,
}

impl From<Stats> for WattleStats {
    fn from(stats: Stats) -> WattleStats {
        WattleStats {
            frames: stats.frames,
            free_frames: stats.free_frames,
            hits: stats.hits,
            faults: stats.faults,
            pages_read: stats.pages_read,
            pages_written: stats.pages_written,
            evictions: stats.evictions,
            file_bytes: stats.file_bytes,
            used_pages: stats.used_pages,
            log_bytes: stats.log_bytes,
            log_flushes: stats.log_flushes,
            log_syncs: stats.log_syncs,
            commits: stats.commits,
            checkpoints: stats.checkpoints,
            version_bytes: stats.version_bytes,
            compact_bytes: stats.compact_bytes,
        }
    }
}
