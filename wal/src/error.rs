//! Errors of the log, with the place that they are about.

use std::path::PathBuf;
use wattle_buffer::Error;

/// Advice about a file that something else may have put into the directory of the log.
pub(crate) fn unless_ours(segment: u64) -> String {
    format!("which the log does not leave so: if {segment:016}.log is not its file, move it away")
}

/// An error of bytes in a segment.
pub(crate) fn damaged(segment: u64, offset: u64, what: impl Into<String>) -> Error {
    Error::LogCorruption { segment, offset, what: what.into() }
}

/// An error of a log that is not the store's.
pub(crate) fn wrong_log(why: String) -> Error {
    Error::WrongLog { path: PathBuf::from("this store"), why }
}
