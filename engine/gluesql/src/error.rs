//! Errors of the engine as errors of GlueSQL.

use gluesql_core::error::Error;
use std::fmt::Display;

/// How the message of an error begins that another transaction has caused.
const CONFLICT: &str = "conflict, roll back and run the transaction again: ";

/// Whether the transaction, rolled back and run again as a whole, may succeed: another one was in
/// its way. Nothing of it is committed.
pub fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::StorageMsg(message) if message.starts_with(CONFLICT))
}

pub fn storage(error: wattle::Error) -> Error {
    let cause = if error.is_retryable() { CONFLICT } else { "" };
    Error::StorageMsg(format!("{cause}{error}"))
}

/// A value that has no encoding.
pub fn not_stored(error: postcard::Error) -> Error {
    message(format_args!("the value cannot be stored: {error}"))
}

/// A record that is none of this package, or of another version of it.
pub fn damaged(what: impl Display) -> Error {
    message(format_args!("a record of the store cannot be read: {what}"))
}

pub fn message(text: impl Display) -> Error {
    Error::StorageMsg(text.to_string())
}
