//! The one public error of Wattle. It is in the lowest crate so that every crate can return it; the
//! engine re-exports it.

use crate::ids::PageId;
use std::{fmt, io, path::PathBuf, sync::Arc};

/// Result with Wattle's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of Wattle. Each message is one sentence that says which object failed and how.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An I/O operation failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// The action that failed, with page id or path.
        action: String,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// The device has no room for the pages that an operation needs.
    #[error("the device is full: {action} failed ({source}); nothing was changed")]
    DiskFull {
        /// The action that failed, with sizes.
        action: String,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// The bytes on disk are not those that Wattle wrote.
    #[error("page {page} is corrupt: {what}")]
    Corruption {
        /// The damaged page.
        page: PageId,
        /// Which check failed, with the numbers.
        what: String,
    },
    /// A key is longer than the limit.
    #[error("a key of {len} bytes is above the limit of {max} bytes")]
    KeyTooLong {
        /// Bytes of the key.
        len: usize,
        /// Limit in bytes.
        max: usize,
    },
    /// A value is longer than the limit.
    #[error("a value of {len} bytes is above the limit of {max} bytes")]
    ValueTooLong {
        /// Bytes of the value.
        len: u64,
        /// Limit in bytes.
        max: u64,
    },
    /// `insert` found the key present.
    #[error("the key exists already")]
    KeyExists,
    /// Bulk load was given keys out of order.
    #[error(
        "bulk load needs strictly ascending keys, and entry {position} is not above the \
         previous one"
    )]
    NotSorted {
        /// Zero-based number of the offending entry.
        position: u64,
    },
    /// Bulk load was asked to fill a tree that holds entries.
    #[error("bulk load needs an empty tree")]
    NotEmpty,
    /// An option has a value outside its limits.
    #[error("{0}")]
    InvalidOption(String),
    /// A tree name is unusable.
    #[error("a tree name must have 1 to {max} bytes, this one has {len}")]
    InvalidTreeName {
        /// Bytes of the name.
        len: usize,
        /// Limit in bytes.
        max: usize,
    },
    /// A tree of that name exists.
    #[error("a tree named {0:?} exists already")]
    TreeExists(String),
    /// No tree has that name.
    #[error("there is no tree named {0:?}")]
    NoSuchTree(String),
    /// A tree cannot be dropped while handles to it are alive.
    #[error("the tree {0:?} is in use: drop its other handles first")]
    TreeInUse(String),
    /// The tree of this handle was dropped, or belongs to another engine.
    #[error("the tree {0:?} does not belong to this engine or was dropped")]
    ForeignTree(String),
    /// The path holds something that is not a Wattle store.
    #[error("{path} is not a Wattle store: {why}")]
    NotAStore {
        /// The path.
        path: PathBuf,
        /// The reason, with the contents that were found.
        why: String,
    },
    /// The store was written by another format version.
    #[error("{path} has format version {found}, this build reads version {expected}")]
    WrongVersion {
        /// The path.
        path: PathBuf,
        /// Version in the store.
        found: u32,
        /// Version of this build.
        expected: u32,
    },
    /// The store is open in this or another process.
    #[error("{path} is open already, in this or another process")]
    AlreadyOpen {
        /// The path.
        path: PathBuf,
    },
    /// The engine cannot be closed while something of it is alive.
    #[error("the store stays open because {0} of it is alive: drop that and close it again")]
    StillInUse(String),
    /// The store was in use without a log when its process ended.
    #[error(
        "{path} was in use without a log when its process ended; its contents cannot be trusted"
    )]
    NotClosed {
        /// The path.
        path: PathBuf,
    },
    /// No frame could be freed.
    #[error("no frame of the pool of {frames} could be freed within {waited_ms} ms: {why}")]
    PoolExhausted {
        /// Frames of the pool.
        frames: usize,
        /// How long the caller waited, milliseconds, or the limit for a pool that frees none.
        waited_ms: u64,
        /// The reason why no frame came free.
        why: String,
    },
    /// Too many sessions or open trees for the pool.
    #[error("{0}")]
    Limit(String),
    /// The log is damaged before records that were durable.
    #[error("segment {segment} of the log is damaged at byte {offset}: {what}")]
    LogCorruption {
        /// Number of the segment.
        segment: u64,
        /// Byte offset in the segment.
        offset: u64,
        /// Which check failed, with the numbers.
        what: String,
    },
    /// The log of the store is missing, or belongs to another store.
    #[error("the log of {path} cannot be used: {why}")]
    WrongLog {
        /// The store.
        path: PathBuf,
        /// The reason: the missing or foreign part.
        why: String,
    },
    /// Another program removed, replaced, cut or moved files of the store while it was open.
    #[error("somebody else changed the files of {path} while it was open: {what}")]
    FilesChanged {
        /// The path that the store was opened with.
        path: PathBuf,
        /// The file or directory, and its change.
        what: String,
    },
    /// Another transaction changed the same record first.
    #[error("another transaction changed the record first: {0}; abort and retry")]
    Conflict(String),
    /// A transaction was used after an operation ended it or told it to abort.
    #[error("the transaction can only be aborted: {0}")]
    MustAbort(String),
    /// The versions that the snapshot would have to read were dropped, see
    /// `Options::version_bytes`.
    #[error("the snapshot is too old: {0}")]
    SnapshotTooOld(String),
    /// A change through a read-only transaction, or in a store that was opened read-only.
    #[error("nothing can be changed: the transaction, or the whole store, was opened read-only")]
    ReadOnly,
    /// It is not known whether the transaction is durable, because the log failed during the
    /// commit. Reopening the store decides: all of its changes are there, or none.
    #[error("whether the transaction is durable is unknown until the store is reopened: {0}")]
    CommitUnknown(String),
    /// User code that the engine calls has called the engine, and the call would have to wait for
    /// that code to end. Nothing was changed.
    #[error("the engine was called from inside of {0}, which the call would have to wait for")]
    Reentrant(&'static str),
    /// This process is a forked child of the one that opened the engine. It has none of the
    /// engine's threads. The parent is not affected.
    #[error(
        "the engine was opened by a parent of this process, before a fork: only the parent can use \
         it"
    )]
    Forked,
    /// A key or a value of a typed tree has no encoding, or its bytes are not one.
    #[error("a record of a typed tree cannot be encoded or decoded: {0}")]
    Decode(String),
    /// The caller ended the work before it was done.
    #[error("interrupted before it was done")]
    Interrupted,
    /// The engine was closed.
    #[error("the engine is closed")]
    Closed,
    /// The engine stopped accepting changes after an error it cannot undo.
    #[error("the engine stopped after an earlier error and must be reopened: {0}")]
    Poisoned(String),
}

impl Error {
    /// Wraps an I/O error. `ENOSPC` and similar codes become [`Error::DiskFull`].
    pub fn io(action: impl fmt::Display, source: io::Error) -> Error {
        let full = matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        let (action, source) = (action.to_string(), Arc::new(source));
        if full { Error::DiskFull { action, source } } else { Error::Io { action, source } }
    }

    /// Whether the transaction, rolled back and run again as a whole, may succeed: another one was
    /// in its way ([`Error::Conflict`]), or needed so much memory that its snapshot was cancelled
    /// ([`Error::SnapshotTooOld`]). Nothing of it is committed. After [`Error::CommitUnknown`] it
    /// may be, so that is not retryable. [`Error::MustAbort`] has an earlier error as its reason,
    /// and does not say which.
    ///
    /// ```
    /// use wattle_buffer::Error;
    /// assert!(Error::Conflict("of two writers".to_string()).is_retryable());
    /// assert!(!Error::CommitUnknown("the log failed".to_string()).is_retryable());
    /// ```
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Conflict(_) | Error::SnapshotTooOld(_))
    }

    /// A corruption of `page`.
    pub fn corruption(page: PageId, what: impl fmt::Display) -> Error {
        Error::Corruption { page, what: what.to_string() }
    }
}
