//! Codes of results, and failures with their message.

use wattle::Error;

/// The result of a call. After every code but `OK`, `NOT_FOUND` and `BUFFER_TOO_SMALL`,
/// `wattle_error_message` has a sentence that says what failed.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WattleCode {
    /// Done.
    Ok = 0,
    /// There is no such key or tree, or the range has no further record.
    NotFound = 1,
    /// The value is longer than the buffer. Its length was stored, and no byte of it.
    BufferTooSmall = 2,
    /// An argument is outside of its limits, or a pointer is null. Nothing was changed.
    InvalidArgument = 3,
    /// The handle was closed, or never was one of this kind.
    ClosedHandle = 4,
    /// A session, transaction or range was used on another thread than the one that opened it.
    WrongThread = 5,
    /// Another transaction changed the record first: roll back, then run the transaction again.
    Conflict = 6,
    /// The snapshot was cancelled: roll back, then run the transaction again.
    SnapshotTooOld = 7,
    /// The transaction can only be rolled back.
    MustAbort = 8,
    /// An insert found the key, or a tree of that name exists.
    Exists = 9,
    /// A change through a read-only transaction or store.
    ReadOnly = 10,
    /// Handles are alive that the call needs closed.
    InUse = 11,
    /// Too many sessions, trees or operations for the pool.
    Limit = 12,
    /// The device has no room.
    DiskFull = 13,
    /// The operating system refused an operation.
    Io = 14,
    /// The bytes on the device are not those that Wattle wrote.
    Corruption = 15,
    /// The path is no store, one of another version, or open already.
    CannotOpen = 16,
    /// Whether the transaction is durable is unknown until the store is opened again.
    CommitUnknown = 17,
    /// The engine stopped after an earlier error and must be opened again.
    Poisoned = 18,
    /// A signal handler called the library while its thread was inside of a call.
    Reentrant = 19,
    /// The library has a bug: it panicked, and the call did not end.
    Panic = 20,
    /// Another error.
    Other = 21,
}

/// Why a call failed.
#[derive(Debug)]
pub struct Failure {
    pub code: WattleCode,
    pub message: String,
}

/// The result of the inner part of a call.
pub type Outcome<T = WattleCode> = Result<T, Failure>;

impl Failure {
    pub fn new(code: WattleCode, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }

    pub fn argument(message: impl Into<String>) -> Failure {
        Failure::new(WattleCode::InvalidArgument, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::Io { .. } => WattleCode::Io,
            Error::DiskFull { .. } => WattleCode::DiskFull,
            Error::Corruption { .. } | Error::LogCorruption { .. } | Error::WrongLog { .. } => {
                WattleCode::Corruption
            }
            Error::FilesChanged { .. } => WattleCode::Corruption,
            Error::KeyTooLong { .. }
            | Error::ValueTooLong { .. }
            | Error::InvalidOption(_)
            | Error::InvalidTreeName { .. }
            | Error::NotSorted { .. }
            | Error::NotEmpty => WattleCode::InvalidArgument,
            Error::KeyExists | Error::TreeExists(_) => WattleCode::Exists,
            Error::NoSuchTree(_) => WattleCode::NotFound,
            Error::TreeInUse(_) | Error::StillInUse(_) => WattleCode::InUse,
            Error::ForeignTree(_) | Error::Closed => WattleCode::ClosedHandle,
            Error::NotAStore { .. }
            | Error::WrongVersion { .. }
            | Error::AlreadyOpen { .. }
            | Error::NotClosed { .. } => WattleCode::CannotOpen,
            Error::PoolExhausted { .. } | Error::Limit(_) => WattleCode::Limit,
            Error::Conflict(_) => WattleCode::Conflict,
            Error::MustAbort(_) => WattleCode::MustAbort,
            Error::SnapshotTooOld(_) => WattleCode::SnapshotTooOld,
            Error::ReadOnly => WattleCode::ReadOnly,
            Error::CommitUnknown(_) => WattleCode::CommitUnknown,
            Error::Poisoned(_) => WattleCode::Poisoned,
            Error::Reentrant(_) => WattleCode::Reentrant,
            _ => WattleCode::Other,
        };
        Failure { code, message: error.to_string() }
    }
}
