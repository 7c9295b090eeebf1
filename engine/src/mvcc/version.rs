//! One change of a record: its writer, and the state of the record before it.

use super::{
    bytes::{BeforeKind, Bytes},
    state::{Status, TxnState},
};
use wattle_buffer::{Owner, Share};

/// The writer of a change.
#[derive(Debug)]
pub(super) enum Writer {
    /// A transaction; its state says whether it is committed.
    Txn(Share<TxnState>),
    /// A transaction that had committed at this time when the change was stored.
    Done(u64),
}

/// The writer of a change that is being stored.
#[derive(Debug, Clone, Copy)]
pub(super) enum WriterRef<'t> {
    /// A transaction.
    Txn(&'t Owner<TxnState>),
    /// A transaction that has committed at this time.
    Done(u64),
}

impl WriterRef<'_> {
    pub fn owned(self) -> Writer {
        match self {
            WriterRef::Txn(state) => Writer::Txn(state.share()),
            WriterRef::Done(ts) => Writer::Done(ts),
        }
    }

    /// Id of the transaction; 0 if it has committed.
    pub fn id(self) -> u64 {
        match self {
            WriterRef::Txn(state) => state.id(),
            WriterRef::Done(_) => 0,
        }
    }
}

impl Default for Writer {
    fn default() -> Writer {
        Writer::Done(0)
    }
}

impl Writer {
    pub fn status(&self) -> Status {
        match self {
            Writer::Txn(state) => state.status(),
            Writer::Done(ts) => Status::Committed(*ts),
        }
    }

    /// The commit time, once committed.
    pub fn committed_ts(&self) -> Option<u64> {
        match self {
            Writer::Txn(state) => state.committed_ts(),
            Writer::Done(ts) => Some(*ts),
        }
    }

    /// See [`WriterRef::id`].
    pub fn id(&self) -> u64 {
        match self {
            Writer::Txn(state) => state.id(),
            Writer::Done(_) => 0,
        }
    }

    /// True if the writer is this transaction.
    pub fn is(&self, txn: &TxnState) -> bool {
        matches!(self, Writer::Txn(state) if std::ptr::eq(&**state, txn))
    }
}

/// One change of the record.
#[derive(Debug, Default)]
pub(super) struct Version {
    pub writer: Writer,
    pub bytes: Bytes,
}

impl Version {
    /// The bytes after the key.
    pub fn payload(&self, key_len: u16) -> &[u8] {
        &self.bytes.as_slice()[usize::from(key_len)..]
    }

    /// The value before the change, for a version that is no patch; `None` if there was no record.
    pub fn whole(&self, key_len: u16) -> Option<(&[u8], bool)> {
        debug_assert_ne!(self.bytes.kind(), BeforeKind::Patch);
        let special = self.bytes.kind() == BeforeKind::Special;
        (self.bytes.kind() != BeforeKind::Absent).then(|| (self.payload(key_len), special))
    }

    /// Commit time of a version that is not the newest.
    pub fn old_ts(&self) -> u64 {
        self.writer.committed_ts().expect("a version under another one is committed")
    }
}
