//! The file of a segment of the log, and its names.

use super::directory::{FileId, look_at};
use std::{ffi::OsStr, fs::File, io};

/// Ending of the file of a segment.
pub(super) const SEGMENT: &str = "log";
/// Ending of a file that is not a segment, or not yet: its bytes mean nothing.
pub(super) const UNFINISHED: &str = "new";
/// Digits of the number in a name.
const DIGITS: usize = 16;

/// An open file of a segment.
pub(super) struct SegmentFile {
    pub(super) file: File,
    pub(super) direct: bool,
    pub(super) bytes: u64,
    pub(super) id: FileId,
    /// Created by this log and to be written; other files existed before and are read.
    pub(super) made: bool,
}

impl SegmentFile {
    pub(super) fn new((file, direct): (File, bool), made: bool) -> io::Result<SegmentFile> {
        let found = look_at(&file)?;
        Ok(SegmentFile { file, direct, bytes: found.bytes, id: found.id, made })
    }
}

/// The name of the file of a segment with this ending.
pub(super) fn name(number: u64, ending: &str) -> String {
    format!("{number:016}.{ending}")
}

/// The number in a name with this ending.
pub(super) fn number(name: &OsStr, ending: &str) -> Option<u64> {
    let digits = name.to_str()?.strip_suffix(ending)?.strip_suffix('.')?;
    let is_number = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}
