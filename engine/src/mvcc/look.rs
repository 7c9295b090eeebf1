//! Questions to a chain: which version a reader sees, whether a writer may change the record, and
//! which value a rollback restores.

use super::{
    bytes::BeforeKind,
    chain::Chain,
    change::{ConflictWith, WriteCheck},
    patch::{apply, pieces},
    seen::Changed,
    state::{Status, TxnState},
    version::Writer,
};

/// The result of a walk along a chain.
pub(super) enum Look<'c> {
    /// The version in the page is visible.
    Page { ts: u64 },
    /// The value before these versions is visible.
    Before { older: Passed<'c>, ts: u64 },
    /// It depends on a transaction that is about to commit.
    Wait,
}

/// The invisible versions, from the newest on; at least one.
pub(super) struct Passed<'c> {
    chain: &'c Chain,
    count: usize,
}

impl Passed<'_> {
    /// Turns the value of the page, in `value[start..]`, into the value before all of these
    /// versions. Gives its special flag; `Some(None)` if there was no record. Gives `None` if the
    /// value cannot be the page's: it was read during a change. (Or a transaction that is too large
    /// for versions has changed it; then no snapshot may see the record.)
    #[expect(clippy::option_option, reason = "a value that cannot be, and no record")]
    pub fn restore(&self, value: &mut Vec<u8>, start: usize) -> Option<Option<bool>> {
        let Passed { chain, count } = *self;
        debug_assert!(0 < count && count <= chain.len(), "{count} versions of {}", chain.len());
        let whole =
            (0..count).rev().find(|at| chain.version(*at).bytes.kind() != BeforeKind::Patch);
        let mut special = false;
        if let Some(whole) = whole {
            value.truncate(start);
            match chain.version(whole).whole(chain.key_len) {
                None => return Some(None),
                Some((bytes, is_special)) => {
                    value.extend_from_slice(bytes);
                    special = is_special;
                }
            }
        }
        for at in whole.map_or(0, |whole| whole + 1)..count {
            if !apply(chain.version(at).payload(chain.key_len), &mut value[start..]) {
                return None;
            }
            special = false;
        }
        Some(Some(special))
    }
}

/// The state of a record that a rollback restores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restore<'c> {
    /// There was no record.
    Absent,
    /// A value, and its special flag.
    Whole(&'c [u8], bool),
    /// These bytes of the value at `at`.
    Patch { at: usize, bytes: &'c [u8] },
}

impl Chain {
    /// Whether `me` may change the record.
    pub fn check(&self, me: Option<&TxnState>, snapshot: u64) -> WriteCheck {
        let writer = &self.newest.writer;
        if me.is_some_and(|me| writer.is(me)) {
            return WriteCheck::Own;
        }
        match writer.status() {
            Status::Committed(ts) if ts <= snapshot => WriteCheck::Free,
            Status::Committed(ts) => WriteCheck::Conflict(ConflictWith::Committed { ts }),
            Status::Committing(ts) if ts > snapshot => WriteCheck::Conflict(ConflictWith::Active),
            Status::Committing(_) | Status::Drawing => {
                WriteCheck::Conflict(ConflictWith::Committing)
            }
            Status::Active | Status::Aborted => WriteCheck::Conflict(ConflictWith::Active),
        }
    }

    /// Id and session of the transaction that has changed the record and has not ended, if there is
    /// one.
    pub fn holder(&self) -> Option<(u64, u64)> {
        match &self.newest.writer {
            Writer::Txn(state) => match state.status() {
                Status::Active | Status::Drawing | Status::Committing(_) => {
                    Some((state.id(), state.session()))
                }
                Status::Committed(_) | Status::Aborted => None,
            },
            Writer::Done(_) => None,
        }
    }

    /// The state of the record before the newest change, if that is `writer`'s.
    pub fn before(&self, writer: &TxnState) -> Option<Restore<'_>> {
        let newest = Some(&self.newest).filter(|newest| newest.writer.is(writer))?;
        if newest.bytes.kind() != BeforeKind::Patch {
            return Some(match newest.whole(self.key_len) {
                None => Restore::Absent,
                Some((bytes, special)) => Restore::Whole(bytes, special),
            });
        }
        // The version of an uncommitted transaction is never joined with another, so it has one
        // piece.
        pieces(newest.payload(self.key_len)).next().map(|(at, bytes)| Restore::Patch { at, bytes })
    }

    /// Finds the version that `me` sees: all commits up to the time `snapshot`, and its own
    /// changes.
    pub fn look(&self, me: Option<&TxnState>, snapshot: u64) -> Look<'_> {
        let (mut count, mut found) = (0, 0);
        for version in std::iter::once(&self.newest).chain(self.older().iter().rev()) {
            if me.is_some_and(|me| version.writer.is(me)) {
                break;
            }
            match version.writer.status() {
                Status::Committed(ts) if ts <= snapshot => {
                    found = ts;
                    break;
                }
                Status::Drawing => return Look::Wait,
                Status::Committing(ts) if ts <= snapshot => return Look::Wait,
                _ => count += 1,
            }
        }
        match count {
            0 => Look::Page { ts: found },
            _ => Look::Before { older: Passed { chain: self, count }, ts: found },
        }
    }

    /// Whether another transaction has changed the record and has not begun to end.
    pub fn is_held_by_other(&self, me: &TxnState) -> bool {
        let writer = &self.newest.writer;
        !writer.is(me) && writer.status() == Status::Active
    }

    /// Whether other transactions changed the record at a time above `snapshot`.
    pub fn changed_since(&self, me: &TxnState, snapshot: u64) -> Changed {
        let mut answer = Changed::Unchanged;
        for version in std::iter::once(&self.newest).chain(self.older().iter().rev()) {
            if version.writer.is(me) {
                continue;
            }
            match version.writer.status() {
                Status::Committed(ts) if ts <= snapshot => break,
                Status::Committed(_) => return Changed::Changed,
                Status::Drawing | Status::Committing(_) => answer = Changed::Undecided,
                // An active one commits later: transactions validate and commit one at a time.
                Status::Active | Status::Aborted => {}
            }
        }
        answer
    }
}
