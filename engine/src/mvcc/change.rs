//! Changes of records: the calls of writers to the version index, and its answers.

use wattle_buffer::TreeId;

/// A record, and the hash of its key, under which its versions are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HashedRecord<'k> {
    pub hash: u64,
    pub tree: TreeId,
    pub key: &'k [u8],
}

/// A change that is about to be made: the state of the record before it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'b> {
    /// There is no record.
    Insert,
    /// Any byte may change.
    Whole {
        /// The value.
        before: &'b [u8],
        /// Its special flag.
        special: bool,
    },
    /// Only the bytes from `from` to `to` of a plain value change.
    Patch {
        /// The value.
        before: &'b [u8],
        from: usize,
        to: usize,
    },
}

impl<'b> Change<'b> {
    /// A change that may alter the whole record.
    #[inline]
    pub fn of(before: Option<(&'b [u8], bool)>) -> Change<'b> {
        match before {
            None => Change::Insert,
            Some((before, special)) => Change::Whole { before, special },
        }
    }
}

/// The bytes that [`super::Versions::before`] appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undone {
    /// None: there was no record.
    Absent,
    /// The whole value.
    Whole { special: bool },
    /// The bytes of the value at `at`; the others are unchanged.
    Patch { at: usize },
}

/// The result of [`super::Versions::store`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreOutcome {
    /// Whether the record may be changed; if it is [`WriteCheck::Free`], the version is stored.
    pub check: WriteCheck,
    /// Bytes by which the writer's own version has grown, if it is [`WriteCheck::Own`].
    pub grown: u64,
    /// Address of the chain of the stored version.
    pub chain: usize,
}

/// A version that its writer stored, owns, and will drop.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OwnedVersion {
    /// The hash of its record.
    pub hash: u64,
    /// Address of its chain when it was stored, to prefetch it. The chain may be gone meanwhile.
    pub chain: usize,
}

/// Whether a record may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteCheck {
    /// It may.
    Free,
    /// It may: the newest change is the asking transaction's own.
    Own,
    /// It may not.
    Conflict(ConflictWith),
}

/// The transaction that changed the record first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConflictWith {
    /// A transaction that is not committed, or will commit at a time above the snapshot.
    Active,
    /// A transaction that is committing and may turn out to be in the snapshot, so that there is no
    /// conflict. Look again, without the latch, or treat it as [`ConflictWith::Active`].
    Committing,
    /// A transaction that committed at a time above the snapshot.
    Committed {
        /// Its commit time.
        ts: u64,
    },
}
