//! What a reader may see. Pages hold the newest version of each record; a reader whose snapshot is
//! older, or that must not see what is not committed, is told the version it sees by its [`View`].
//!
//! A page's version hint says whether that is needed at all. Otherwise the view is asked for each
//! record, *before* the leaf is validated: a version that vanishes, because its writer was rolled
//! back or because nobody needs it any more, does so only after the page was changed or only when
//! this reader does not need it either.

use crate::step::Stop;
use wattle_buffer::FrameHeader;

/// What a reader sees of a record that a leaf holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// What the leaf holds.
    Page,
    /// An older version, which is in the caller's bytes now.
    Value {
        /// It is a special value.
        special: bool,
    },
    /// Nothing: the record did not exist.
    Absent,
}

/// See the module documentation.
pub trait View {
    /// Everything in the page with this header is visible as it is, by its version hint.
    fn sees_all(&self, header: &FrameHeader) -> bool;

    /// What is visible of the record `key`, which the leaf holds in some version: that is in `value` from
    /// `start` on, and is replaced by an older version, or goes if there was no record. What was read from a
    /// leaf that is not validated can be anything.
    ///
    /// # Errors
    /// [`Stop::Restart`] to ask again; [`Stop::Error`] when the version is gone.
    fn look(&mut self, key: &[u8], value: &mut Vec<u8>, start: usize) -> Result<Seen, Stop>;

    /// The leaf, which was validated, does not hold a record in any version, or may not hold all records
    /// that the view should see: ghosts that nobody needs are removed. By default that means nothing.
    ///
    /// # Errors
    /// [`Stop::Error`] when the view is one of those that nobody cares for any more.
    fn missed(&mut self) -> Result<(), Stop> {
        Ok(())
    }
}

/// Sees what the pages hold, committed or not.
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
