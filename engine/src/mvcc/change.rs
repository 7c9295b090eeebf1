//! What writers say to the version index about a change, and what it answers.

use wattle_buffer::TreeId;

/// A record, and under which hash its versions are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'k> {
    pub hash: u64,
    pub tree: TreeId,
    pub key: &'k [u8],
}

/// A change that is about to be made: what the record is before it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'b> {
    /// There is no record.
    Insert,
    /// All of it may change.
    Whole {
        /// The value.
        before: &'b [u8],
        /// Its flag.
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
    /// Any change of a record.
    #[inline]
    pub fn of(before: Option<(&'b [u8], bool)>) -> Change<'b> {
        match before {
            None => Change::Insert,
            Some((before, special)) => Change::Whole { before, special },
        }
    }
}

/// What [`Versions::before`] appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undone {
    /// Nothing: there was no record.
    Absent,
    /// The value.
    Whole { special: bool },
    /// Bytes of the value from `at` on; the others are what they are.
    Patch { at: usize },
}

/// What [`Versions::store`] did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreOutcome {
    /// Whether the record may be changed; if it is [`WriteCheck::Free`], the version is stored.
    pub check: WriteCheck,
    /// How many bytes the writer's own version has grown by if it is [`WriteCheck::Own`].
    pub grown: u64,
    /// Where the chain lies of a version that is stored.
    pub chain: usize,
}

/// A version that its writer stored and will drop.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Kept {
    /// The hash of its record.
    pub hash: u64,
    /// Where its chain lay then, so that it can be brought near before it is looked for. Somebody may have
    /// dropped it meanwhile.
    pub chain: usize,
}

/// Whether a record may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteCheck {
    /// Nobody is in the way.
    Free,
    /// The newest change is the asking transaction's own.
    Own,
    /// Somebody is.
    Conflict(ConflictWith),
}

/// Who changed the record first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConflictWith {
    /// A transaction that is not committed, or not soon enough to be in the snapshot.
    Active,
    /// One that is just committing and may turn out to be in the snapshot: the conflict may vanish
    /// in a moment. Look again, without the latch, or treat it as [`ConflictWith::Active`].
    Committing,
    /// One that committed at a time above the snapshot.
    Committed {
        /// Its commit time.
        ts: u64,
    },
}
