//! [`Author`]: the decisions and actions of the transaction layer while a leaf is latched for a
//! change.
//!
//! A change of one record takes these steps under the exclusive latch of its leaf:
//! 1. [`Author::check`] decides whether this author may change the record now;
//! 2. the bytes are changed;
//! 3. the log record is written. [`Author::drawn`] is called inside of it: an auto-committed
//!    operation draws its commit time there, so that commit times and log records have the same
//!    order;
//! 4. [`Author::done`] makes the version before the change reachable for older snapshots.
//!
//! The latch keeps every other thread from the record between these steps.

use crate::step::Stop;
use std::ops::Range;
use wattle_buffer::{Exclusive, FrameHeader, Gsn, PageId, Pool};

/// Callbacks under the latch of a leaf, see the module documentation. They must be short, wait for
/// no latch and do no I/O.
pub trait Author {
    /// The next change concerns this record; the previous change is complete or abandoned. Only
    /// authors of whole transactions change more than one record.
    fn turn_to(&mut self, _key: &[u8]) {}

    /// May this author change the record? `before` is its value and special flag now. If `change`
    /// is set, the leaf stays latched until [`Author::done`] or [`Author::undone`]; otherwise the
    /// caller only asks. `header` is that of the leaf's frame. The default allows every change.
    ///
    /// # Errors
    /// [`Stop::Error`] with [`wattle_buffer::Error::Conflict`], or [`Stop::Restart`] to ask again.
    fn check(
        &mut self,
        _header: &FrameHeader,
        _key: &[u8],
        _before: Option<(&[u8], bool)>,
        _change: bool,
    ) -> Result<(), Stop> {
        Ok(())
    }

    /// The validated leaf does not hold the record that was to be changed; see
    /// [`crate::View::missed`].
    ///
    /// # Errors
    /// As [`crate::View::missed`].
    fn missed(&mut self) -> Result<(), Stop> {
        Ok(())
    }

    /// True if [`Author::check`] only asks about a change in place, and [`Author::check_patch`]
    /// follows once the changed bytes are known.
    fn keeps_patches(&self) -> bool {
        false
    }

    /// As [`Author::check`], for a change of only the bytes `range` of the value `before`; its
    /// length stays.
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

    /// Id of the transaction; 0 for an auto-committed change.
    fn txn(&self) -> u64;

    /// The log record of the change is a whole transaction: it commits when it is in the log, and
    /// has no undo.
    fn is_auto(&self) -> bool;

    /// The change is about to be logged and can no longer fail. Gives the commit time if it is
    /// drawn here.
    fn drawn(&mut self) -> Option<u64> {
        None
    }

    /// The record was changed.
    fn done(&mut self, _leaf: &Exclusive<'_>, _key: &[u8]) {}

    /// The record that was checked stays unchanged, and its leaf is released next.
    fn undone(&mut self, _key: &[u8]) {}

    /// True if no snapshot needs the ghost of `key`.
    fn may_purge(&self, _key: &[u8]) -> bool {
        false
    }

    /// A lower bound, besides the number of the page, for the number (GSN) of the log record,
    /// needed by its attachments. It is read before the section of the record begins: the section
    /// must not contain a number from a later epoch.
    fn attached_gsn(&self, _pool: &Pool) -> Gsn {
        Gsn(0)
    }

    /// Adds to the log record of the change everything that must happen atomically with it.
    fn attach(&mut self, _record: &mut dyn Attachment) {}
}

/// Further contents of the log record of a change.
pub trait Attachment {
    /// A page that joins a tree with this record, with its contents under the guard.
    fn new_page(&mut self, page: &mut Exclusive<'_>);

    /// Pages that leave their tree with this record.
    fn free(&mut self, pool: &Pool, pages: &[PageId]);

    /// Pages, as (first page, count), that are on storage already and join a tree with this record.
    fn adopt(&mut self, pool: &Pool, ranges: &[(u64, u64)]);
}

/// A change by the engine itself: it has no versions and is never undone.
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
