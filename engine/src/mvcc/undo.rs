//! The undo buffer of a transaction: the value before each of its changes, newest last, for an
//! exact rollback of all or to a savepoint, whatever its size. A change that stored the version of
//! its record needs no value here: the version has it, and stays until the change is undone.
//!
//! Entries are adjacent byte strings, each with its length at the end, so that they can be read
//! backwards. Only the newest part is in memory. When that exceeds a limit, its older half moves to
//! the end of an unnamed temporary file in the given directory. The file is read back in blocks
//! when the entries in memory are used up. The border between file and memory may lie inside an
//! entry.
//!
//! After an error of the file, a push has changed nothing; a pop may be tried again.

use crate::limits::limit;
use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    sync::Arc,
};
use wattle_buffer::{Error, Result, TreeId, io::Directory};

/// A buffer with more bytes in memory than this moves some to the file.
const MEMORY_LIMIT: usize = limit(1 << 20, 1 << 12);
/// A cleared buffer keeps at most so many bytes of memory.
const KEPT: usize = limit(64 << 10, 1 << 10);
/// Length of the length field at the end of an entry. It counts the bytes before it.
const LENGTH: usize = 4;

// The fields of an entry, in order:
//   before  bytes of the value, if there was one
//   key     bytes
//   2       length of the key, u16
//   4       tree, u32
//   1       flags, see below
// Integers are little-endian.
const FIRST: u8 = 1;
const PRESENT: u8 = 2;
const SPECIAL: u8 = 4;
const TAIL: usize = 2 + 4 + 1;

/// A position in the undo buffer. Rolling back to it undoes all later changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Savepoint(u64);

impl Savepoint {
    /// Before all changes.
    pub const START: Savepoint = Savepoint(0);
}

/// A change of a record to undo.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UndoEntry<'u> {
    /// Tree of the record.
    pub tree: TreeId,
    /// The change stored the version of the record. The version has the state before the change,
    /// and is removed when the change is undone.
    pub first: bool,
    /// Key of the record.
    pub key: &'u [u8],
    /// Value before the change and its special flag; `None` if there was none, or a version has it.
    pub before: Option<(&'u [u8], bool)>,
}

/// The undo entries of one transaction.
#[derive(Debug)]
pub(crate) struct UndoBuffer {
    /// The newest bytes. They follow the first `spilled` bytes of the file.
    tail: Vec<u8>,
    spilled: u64,
    file: Option<File>,
    /// Directory of the file; `None` for the system's directory for temporary files.
    dir: Option<Arc<Directory>>,
    limit: usize,
    /// The entry that was popped last.
    popped: Vec<u8>,
}

impl UndoBuffer {
    /// An empty buffer that makes its file, if it needs one, in `dir`.
    pub fn new(dir: Option<Arc<Directory>>) -> UndoBuffer {
        UndoBuffer::with_limit(dir, MEMORY_LIMIT)
    }

    /// A buffer that takes about `limit` bytes of memory.
    pub fn with_limit(dir: Option<Arc<Directory>>, limit: usize) -> UndoBuffer {
        let (tail, popped) = (Vec::new(), Vec::new());
        UndoBuffer { tail, spilled: 0, file: None, dir, limit: limit.max(2), popped }
    }

    /// Bytes of all entries, in memory and in the file.
    pub fn len(&self) -> u64 {
        self.spilled + self.tail.len() as u64
    }

    /// True if there is nothing to undo.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The position after the newest entry.
    pub fn mark(&self) -> Savepoint {
        Savepoint(self.len())
    }

    /// Adds a change. `first`: it stored the version of the record. The caller adds it before it
    /// changes the page, and removes it ([`UndoBuffer::pop`]) if the change fails.
    ///
    /// # Errors
    /// The file cannot be made or written. Nothing was added.
    pub fn push(
        &mut self,
        tree: TreeId,
        first: bool,
        key: &[u8],
        before: Option<(&[u8], bool)>,
    ) -> Result<()> {
        self.make_room()?;
        let start = self.tail.len();
        let mut flags = if first { FIRST } else { 0 };
        if let Some((value, special)) = before {
            flags |= PRESENT | if special { SPECIAL } else { 0 };
            self.tail.extend_from_slice(value);
        }
        self.tail.extend_from_slice(key);
        let key_len = u16::try_from(key.len()).expect("keys are shorter than 64 KiB");
        let mut end = [0; TAIL];
        end[..2].copy_from_slice(&key_len.to_le_bytes());
        end[2..6].copy_from_slice(&tree.0.to_le_bytes());
        end[6] = flags;
        self.tail.extend_from_slice(&end);
        self.end_entry(start);
        Ok(())
    }

    fn end_entry(&mut self, start: usize) {
        let len = u32::try_from(self.tail.len() - start).expect("entries are shorter than 4 GiB");
        self.tail.extend_from_slice(&len.to_le_bytes());
    }

    /// Removes the newest entry and gives it, if it lies after `until`.
    ///
    /// # Errors
    /// The file cannot be read. Nothing was removed.
    pub fn pop(&mut self, until: Savepoint) -> Result<Option<UndoEntry<'_>>> {
        assert!(until.0 <= self.len(), "the savepoint lies after the end: it was rolled back");
        if until == self.mark() {
            return Ok(None);
        }
        self.bring_back(LENGTH)?;
        let end = self.tail.len() - LENGTH;
        let len = u32::from_le_bytes(self.tail[end..].try_into().expect("4 bytes")) as usize;
        self.bring_back(len + LENGTH)?;
        let end = self.tail.len() - LENGTH;
        self.popped.clear();
        self.popped.extend_from_slice(&self.tail[end - len..end]);
        self.tail.truncate(end - len);
        assert!(until.0 <= self.len(), "the savepoint does not lie between entries");
        Ok(Some(decode(&self.popped)))
    }

    /// Puts back the entry that was popped last. Nothing may have been pushed since.
    pub fn unpop(&mut self) {
        let start = self.tail.len();
        self.tail.extend_from_slice(&self.popped);
        self.end_entry(start);
    }

    /// From now on moves nothing to the file, whatever memory that takes.
    pub fn stay_in_memory(&mut self) {
        self.limit = usize::MAX;
    }

    /// Removes all entries at the end of the transaction. Keeps a little memory for the next one.
    pub fn clear(&mut self) {
        self.tail.clear();
        self.tail.shrink_to(KEPT);
        self.popped.clear();
        self.popped.shrink_to(KEPT);
        self.spilled = 0;
        self.file = None;
    }

    /// Moves the older half of the memory to the file, if it exceeds the limit.
    fn make_room(&mut self) -> Result<()> {
        if self.tail.len() <= self.limit {
            return Ok(());
        }
        let out = self.tail.len() - self.limit / 2;
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let made = match &self.dir {
                    Some(dir) => dir.unnamed_file(),
                    None => tempfile::tempfile(),
                };
                self.file.insert(made.map_err(|error| self.failed("make", error))?)
            }
        };
        // Overwrite any rest of an earlier write that failed.
        let written = file
            .seek(SeekFrom::Start(self.spilled))
            .and_then(|_| file.write_all(&self.tail[..out]));
        written.map_err(|error| self.failed("write", error))?;
        self.spilled += out as u64;
        self.tail.drain(..out);
        Ok(())
    }

    /// Reads blocks from the end of the file until `needed` bytes are in memory.
    fn bring_back(&mut self, needed: usize) -> Result<()> {
        if self.tail.len() >= needed {
            return Ok(());
        }
        let missing = (needed - self.tail.len()).max(self.limit / 2) as u64;
        let block = missing.min(self.spilled) as usize;
        let mut bytes = Vec::with_capacity(block + self.limit / 2);
        bytes.resize(block, 0);
        let start = self.spilled - block as u64;
        let file = self.file.as_mut().expect("what is not in memory is in the file");
        let read = file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(&mut bytes));
        read.map_err(|error| self.failed("read", error))?;
        bytes.extend_from_slice(&self.tail);
        self.tail = bytes;
        self.spilled = start;
        assert!(self.tail.len() >= needed, "an entry is longer than all of the undo buffer");
        Ok(())
    }

    fn failed(&self, what: &str, error: io::Error) -> Error {
        let dir = self.dir.as_ref().map(|dir| dir.path().to_path_buf());
        let dir = dir.unwrap_or_else(std::env::temp_dir);
        let action = format!(
            "{what} the temporary file in {} with the undo entries of a transaction \
             ({} bytes there, {} in memory)",
            dir.display(),
            self.spilled,
            self.tail.len()
        );
        Error::io(action, error)
    }
}

fn decode(bytes: &[u8]) -> UndoEntry<'_> {
    let key_end = bytes.len() - TAIL;
    let key_len = u16::from_le_bytes(bytes[key_end..key_end + 2].try_into().expect("2 bytes"));
    let tree = u32::from_le_bytes(bytes[key_end + 2..key_end + 6].try_into().expect("4 bytes"));
    let flags = bytes[key_end + 6];
    let (value, key) = bytes[..key_end].split_at(key_end - usize::from(key_len));
    UndoEntry {
        tree: TreeId(tree),
        first: flags & FIRST != 0,
        key,
        before: (flags & PRESENT != 0).then_some((value, flags & SPECIAL != 0)),
    }
}

#[cfg(test)]
#[path = "undo_tests.rs"]
mod tests;
