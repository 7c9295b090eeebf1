//! [`View`]: the version that a reader sees. Pages hold the newest version of each record. A reader
//! with an older snapshot, or one that must not see uncommitted changes, asks its view for the
//! version that it sees.
//!
//! The version hint of a page tells whether that is necessary. If it is, the reader asks the view
//! for each record *before* it validates the leaf. So a reader never misses a version: it
//! disappears only after a rollback has changed the page, which then fails validation, or when no
//! snapshot needs it, not even that of this reader.

use crate::step::Stop;
use wattle_buffer::FrameHeader;

/// The version of a record that a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The one in the leaf.
    Page,
    /// An older version, which is in the caller's buffer now.
    Value {
        /// Its special flag.
        special: bool,
    },
    /// None: the record did not exist.
    Absent,
}

/// The visibility rules of one reader, see the module documentation.
pub trait View {
    /// True if the version hint of a page says that its newest versions are all visible.
    fn sees_all(&self, header: &FrameHeader) -> bool;

    /// Finds the visible version of the record `key`. Its version in the leaf is in
    /// `value[start..]`; an older version replaces it, and it is removed if there was no record.
    /// The leaf is not validated, so `value` can be any bytes.
    ///
    /// # Errors
    /// [`Stop::Restart`] to ask again; [`Stop::Error`] if the version was dropped.
    fn look(&mut self, key: &[u8], value: &mut Vec<u8>, start: usize) -> Result<Seen, Stop>;

    /// The validated leaf holds no version of a record, or may lack records that the view should
    /// see: ghosts are purged when no snapshot needs them. By default that is fine.
    ///
    /// # Errors
    /// [`Stop::Error`] if the snapshot of the view was cancelled, so that its ghosts may be purged.
    fn missed(&mut self) -> Result<(), Stop> {
        Ok(())
    }
}

/// Sees the newest version of each record, committed or not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Newest;

impl View for Newest {
    #[inline(always)]
    fn sees_all(&self, _: &FrameHeader) -> bool {
        true
    }

    fn look(&mut self, _: &[u8], _: &mut Vec<u8>, _: usize) -> Result<Seen, Stop> {
        Ok(Seen::Page)
    }
}
