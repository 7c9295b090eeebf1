//! Removing files of segments, and room that they held.

use std::io;
use wattle_buffer::{Error, Result, io::LogStorage};

/// Gives room back that no segment needs; `all` of it, or slowly. Gives whether there was any.
pub(crate) fn give_back(storage: &dyn LogStorage, all: bool) -> bool {
    storage.give_back(all).unwrap_or_else(|error| {
        tracing::warn!(%error, "room that the log does not need stays taken");
        false
    })
}

/// Removes a segment that may be gone already.
pub(crate) fn remove(storage: &dyn LogStorage, number: u64) -> Result<()> {
    removed(number, storage.remove(number))
}

/// The result of removing a segment that may be gone already: creating or removing it can have
/// failed when only its directory was still to be synced, and another try must not fail for ever. A
/// power cut may bring an old segment back; it is retired once more.
pub(crate) fn removed(number: u64, result: io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format_args!("remove log segment {number}"), error))
        }
        _ => Ok(()),
    }
}
