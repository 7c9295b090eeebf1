//! Who changes a record: what the transaction layer must decide and do while the leaf is latched.
//!
//! A change of one record goes, under the exclusive latch of its leaf, through
//! 1. [`Author::check`]: may this author change the record now? Nothing is changed yet;
//! 2. the change of the bytes;
//! 3. the log record, inside of which [`Author::drawn`] is called: an auto-committed operation draws
//!    its commit time there, so that the order of times and the order of the log agree;
//! 4. [`Author::done`]: the version before the change becomes reachable for older snapshots.
//!
//! Nobody else can see the record between these steps.

use crate::step::Stop;
use std::ops::Range;
use wattle_buffer::{Exclusive, FrameHeader, Gsn, PageId, Pool};

/// Calls under the latch of a leaf, see the module documentation. They must be short, wait for no latch
/// and do no I/O.
pub trait Author {
    /// The next change is of this record: the one before is made, or will not be. Only authors of whole
    /// transactions change more than one.
    fn turn_to(&mut self, _key: &[u8]) {}

    /// May the record, which is `before` now (value, special), be changed? The leaf is in a frame
    /// with this header, and stays latched until [`Author::done`] or [`Author::undone`], if it is to be
    /// changed (`change`). Otherwise somebody only wants to know. By default it may.
    ///
    /// # Errors
    /// [`Stop::Error`] with [`wattle_buffer::Error::Conflict`], or [`Stop::Restart`] to look again.
    fn check(
        &mut self,
        _header: &FrameHeader,
        _key: &[u8],
        _before: Option<(&[u8], bool)>,
        _change: bool,
    ) -> Result<(), Stop> {
        Ok(())
    }

    /// The leaf, which was validated, does not hold the record that was to be changed; see
    /// [`crate::View::missed`].
    ///
    /// # Errors
    /// As there.
    fn missed(&mut self) -> Result<(), Stop> {
        Ok(())
    }

    /// Whether [`Author::check`] only asks about a change in place, and [`Author::check_patch`] follows when
    /// it is known.
    fn keeps_patches(&self) -> bool {
        false
    }

    /// May the bytes `range` of the record, which is `before` now, be changed? The others stay as they are,
    /// and so does their number. As [`Author::check`] for a change.
    ///
    /// # Errors
    /// As [`Author::check`].
    fn check_patch(
        &mut self,
        header: &FrameHeader,
        key: &[u8],
        before: &[u8],
        _range: Range<usize>,
    ) -> Result<(), Stop> {
        self.check(header, key, Some((before, false)), true)
    }

    /// Id of the transaction, or 0 for a change that stands for itself.
    fn txn(&self) -> u64;

    /// The record of the change is a whole transaction: it is committed by being in the log, and has
    /// no undo.
    fn is_auto(&self) -> bool;

    /// The change is about to be logged and can no longer fail. The time of the commit, if it is drawn
    /// here.
    fn drawn(&mut self) -> Option<u64> {
        None
    }

    /// The record was changed.
    fn done(&mut self, _leaf: &Exclusive<'_>, _key: &[u8]) {}

    /// The record that was checked is not changed now, and its leaf is released next.
    fn undone(&mut self, _key: &[u8]) {}

    /// No snapshot needs the ghost of `key` any more.
    fn may_purge(&self, _key: &[u8]) -> bool {
        false
    }

    /// The number that the record must be above for what is attached to it, besides that of its own
    /// page. Asked before the section of the record begins: a number that a record of a later epoch
    /// has must not get into it.
    fn attached_gsn(&self, _pool: &Pool) -> Gsn {
        Gsn(0)
    }

    /// Adds to the record of the change what must happen with it or not at all.
    fn attach(&mut self, _record: &mut dyn Attachment) {}
}

/// What else an author may put into the record of a change.
pub trait Attachment {
    /// A page that is in a tree from here on, as it is under the guard.
    fn new_page(&mut self, page: &mut Exclusive<'_>);

    /// Pages that are in no tree from here on.
    fn free(&mut self, pool: &Pool, pages: &[PageId]);

    /// Pages, as first page and number, that were written already and are in a tree from here on.
    fn adopt(&mut self, pool: &Pool, ranges: &[(u64, u64)]);
}

/// A change by the engine itself, that no snapshot needs to see through and that is never undone.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Author for System {
    fn txn(&self) -> u64 {
        0
    }

    fn is_auto(&self) -> bool {
        true
    }
}
