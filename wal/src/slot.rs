//! The buffer that an appender and the flusher share.
//!
//! Invariant: a buffer holds bytes of at most two epochs, because the flusher takes an epoch out of
//! all buffers before it begins the epoch after the next one.

use crate::record::Base;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use wattle_buffer::BriefMutex;

/// The part of an appender that the flusher shares.
pub(crate) struct AppendSlot {
    pub worker: u32,
    pub buffer: BriefMutex<AppendBuffer>,
    /// Bytes in the buffer, to be read without the lock.
    pub filled: AtomicUsize,
    /// The appender is gone: it appends no more records.
    pub closed: AtomicBool,
}

/// Records that no flush has taken yet.
#[derive(Default)]
pub(crate) struct AppendBuffer {
    pub bytes: Vec<u8>,
    /// Base of the first record; its epoch is that of the first byte.
    base: Base,
    /// Where the next epoch begins, if it has, and its base.
    newer: Option<(usize, Base)>,
    pub last_gsn: u64,
    pub counts: AppendCounts,
    /// The newest epoch in which a time was noted, and the first time that was.
    first_time: (u64, u64),
}

/// Counts that the flusher adds to the statistics when it takes a buffer.
#[derive(Clone, Copy, Default)]
pub(crate) struct AppendCounts {
    pub commits: u64,
    pub image_bytes: u64,
}

impl AppendBuffer {
    /// Notes that bytes of `epoch` follow.
    pub(crate) fn enter(&mut self, epoch: u64) {
        if self.bytes.is_empty() {
            self.base = Base { epoch, txn: 0 };
        } else if epoch > self.base.epoch && self.newer.is_none() {
            self.newer = Some((self.bytes.len(), Base { epoch, txn: 0 }));
        }
    }

    /// The base of a record of `txn`.
    #[inline(always)]
    pub(crate) fn base_for(&mut self, txn: u64) -> Base {
        let base = self.newer.as_mut().map_or(&mut self.base, |(_, base)| base);
        if base.txn == 0 {
            base.txn = txn;
        }
        *base
    }

    /// Notes a time that was drawn in a section of `epoch`.
    #[inline]
    pub(crate) fn note_time(&mut self, epoch: u64, time: u64) {
        if self.first_time.0 != epoch {
            self.first_time = (epoch, time);
        }
    }

    /// The first time that was noted in a section after `cut`.
    pub(crate) fn first_time_after(&self, cut: u64) -> Option<u64> {
        let (epoch, time) = self.first_time;
        (epoch > cut).then_some(time)
    }

    /// Takes all bytes of epochs up to `cut`, the epoch before the current one, in exchange for an
    /// empty vector. Younger bytes stay. All that is taken is of one epoch.
    pub(crate) fn take(&mut self, cut: u64, mut spare: Vec<u8>) -> (Base, Vec<u8>) {
        debug_assert!(spare.is_empty());
        let base = self.base;
        if self.bytes.is_empty() || base.epoch > cut {
            return (base, spare);
        }
        if let Some((from, newer)) = self.newer.take() {
            debug_assert!(newer.epoch > cut, "a cut empties all buffers");
            spare.extend_from_slice(&self.bytes[from..]);
            self.bytes.truncate(from);
            self.base = newer;
        }
        (base, std::mem::replace(&mut self.bytes, spare))
    }
}
