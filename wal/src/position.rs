//! Where a log begins and ends.

/// Where the log goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStart {
    /// Number of the store, in every block: a log is not taken for that of another store.
    pub store_id: u64,
    /// First segment to make; segments that were prepared under higher numbers are removed.
    pub segment: u64,
    /// Sequence of the next block.
    pub sequence: u64,
    /// Number of the next flush.
    pub flush: u64,
    /// Epoch of the first new records, at least 1 and above that of every existing record.
    pub epoch: u64,
    /// Epoch of the last checkpoint, see [`crate::Section::needs_image`].
    pub image_epoch: u64,
}

impl Default for LogStart {
    /// A new store.
    fn default() -> Self {
        LogStart { store_id: 0, segment: 1, sequence: 1, flush: 1, epoch: 1, image_epoch: 1 }
    }
}

impl LogStart {
    /// The start of a log that goes on after `end`: in a new segment, with the next epoch. The
    /// image epoch is that epoch too, so that the first change of every page logs the full page
    /// again.
    pub fn after(end: LogEnd) -> LogStart {
        LogStart {
            store_id: end.store_id,
            segment: end.segment + 1,
            sequence: end.sequence + 1,
            flush: end.flush + 1,
            epoch: end.epoch + 1,
            image_epoch: end.epoch + 1,
        }
    }
}

/// Where a log ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    /// Number of the store.
    pub store_id: u64,
    /// Last segment with a head; 0 if the log never flushed.
    pub segment: u64,
    /// Epoch of the last whole flush.
    pub epoch: u64,
    /// Its number.
    pub flush: u64,
    /// Sequence of its last block.
    pub sequence: u64,
}
