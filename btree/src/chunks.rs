//! Reads and writes of a large value.
//!
//! **A write** appends: ids ascend, so the chunks go to the right end of their tree, those that
//! share a leaf under one latch.
//!
//! **A read** makes one descent for the first chunk, and then goes from leaf to leaf. All chunks
//! that lie in one leaf are copied before the leaf is validated. The next leaf needs no descent if
//! the parent is unchanged: as in a scan, it begins at the fence where the last one ended. It is
//! prefetched while this one is copied. When a leaf is not in memory, the reads of those after it
//! start together with its own, as far as the limit of the pool allows; the number of leaves is
//! known from the length.
//!
//! A chunk is written once, under an id that is never used again, and removed when no snapshot
//! needs it. So chunks that are all there are those of one version of the value.

use crate::{
    author::Author,
    descend::{Direction, Path, Seek},
    journal::Context,
    large_value::{CHUNK, CHUNK_KEY, LargeValue},
    node::{LEAF_LINES, NodeRef},
    read_ahead::ReadAhead,
    scan_place::{Neighbour, Turn, neighbour},
    step::{Step, Stop},
    tree::Tree,
    write::{Mode, Value},
};
use std::ops::Range;
use wattle_buffer::{Fault, For, Optimistic, PageRef, page::LINE};

/// Chunks that share a leaf, at least, but for those at the ends of a value.
pub(crate) const CHUNKS_IN_LEAF: u64 = 2;

/// Leaves that a step reads, at most: a megabyte. Then other tasks may run.
const LEAVES: usize = 256;

/// Chunks that a step writes, at most. A short last chunk shares its leaf with two others.
const RUN: usize = 4;

/// A read of some bytes of a large value, and how far it has come.
pub struct ChunkReader {
    large: LargeValue,
    /// The next byte.
    at: u64,
    /// The byte after the last.
    end: u64,
    ahead: ReadAhead,
}

/// The place of the next chunk, after the copy of a leaf.
enum Next {
    /// The read has ended.
    Done,
    /// It lies in a leaf after this one.
    After,
    /// It should be in this leaf, and is not, or it has another length.
    Missing,
}

impl ChunkReader {
    /// A read of these bytes of a value.
    ///
    /// # Panics
    /// If the range leaves the value.
    pub fn new(large: LargeValue, bytes: Range<u64>) -> ChunkReader {
        assert!(bytes.start <= bytes.end && bytes.end <= large.len, "{bytes:?} of {large:?}");
        ChunkReader { large, at: bytes.start, end: bytes.end, ahead: ReadAhead::default() }
    }

    /// Whether all bytes are read.
    pub fn is_done(&self) -> bool {
        self.at >= self.end
    }

    fn chunk(&self) -> u64 {
        self.at / CHUNK as u64
    }

    /// Reads to start, without waiting for them, when a [`Tree::chunks_step`] has stopped, before
    /// that stop is waited for: leaves after the one that it waits for.
    #[cold]
    pub fn reads_beside(&mut self, tree: &Tree, stop: &Stop) -> Vec<Fault> {
        if !matches!(stop, Stop::Fault(Fault::Read(_) | Fault::Wait(_))) || self.is_done() {
            return Vec::new();
        }
        let (chunk, last) = (self.chunk(), (self.end - 1) / CHUNK as u64);
        let leaves = (last - chunk).div_ceil(CHUNKS_IN_LEAF) + 1;
        self.ahead.cover(leaves as usize, tree.most_ahead());
        let (from, to) = (self.large.chunk_key(chunk), self.large.chunk_key(last));
        tree.leaves_ahead(Seek::At(&from), Direction::Forward, Some(&to), &mut self.ahead)
    }
}

impl Tree {
    /// Writes chunks of a large value whose bytes are `value`, from number `*done` on, as far as
    /// they share a leaf; advances `*done` past them, also when it stops. `restarts` is how often
    /// the step has restarted.
    ///
    /// # Panics
    /// If all chunks are done.
    pub fn write_chunks_step<A: Author>(
        &self,
        cx: &Context,
        large: LargeValue,
        value: &[u8],
        author: &mut A,
        restarts: u32,
        done: &mut u64,
    ) -> Step<()> {
        debug_assert_eq!(value.len() as u64, large.len, "the bytes of another value");
        let rest = &value[*done as usize * CHUNK..];
        let mut keys = [[0; CHUNK_KEY]; RUN];
        let mut records = [(&[][..], Value::Inline(&[])); RUN];
        let mut len = 0;
        for (key, chunk) in keys.iter_mut().zip(*done..large.chunks()) {
            *key = large.chunk_key(chunk);
            len += 1;
        }
        for ((record, key), bytes) in records.iter_mut().zip(&keys).zip(rest.chunks(CHUNK)) {
            *record = (&key[..], Value::Inline(bytes));
        }
        let mut written = 0;
        let step =
            self.write_run_step(cx, &records[..len], Mode::Insert, author, restarts, &mut written);
        *done += written as u64;
        step.map(drop)
    }

    /// Appends bytes of a large value that `reader` has not read yet to `value`, a megabyte or so.
    /// Run it again until [`ChunkReader::is_done`], also after a stop: it goes on
    /// after the last leaf that it has copied. False: a chunk is missing or has another length.
    pub fn chunks_step(&self, reader: &mut ChunkReader, value: &mut Vec<u8>) -> Step<bool> {
        let mut beside: Option<(Optimistic<'_>, usize)> = None;
        let mut leaves = 0;
        while !reader.is_done() && leaves < LEAVES {
            let key = reader.large.chunk_key(reader.chunk());
            let path = match beside {
                Some((parent, position)) => self.leaf_beside(parent, position)?,
                None => self.descend(&key, 0)?,
            };
            let (start, at) = (value.len(), reader.at);
            let after = path.parent.and_then(|(parent, position)| {
                neighbour(parent, position, Turn::Upper).map(|after| (parent, after))
            });
            if leaves == 0 && reader.end - at >= CHUNK as u64 / 2 {
                NodeRef::from(path.node.page()).prefetch_rest();
            }
            let next = after.and_then(|(_, after)| self.chunks_after(reader, after));
            let copied = self.copy_chunks(path.node, &key, reader, value, next);
            let valid = match path.node.validate() {
                Ok(()) => copied,
                Err(restart) => Err(restart.into()),
            };
            let next = valid.inspect_err(|_| {
                value.truncate(start);
                reader.at = at;
            })?;
            match next {
                Next::Done => return Ok(true),
                // The sibling may be empty. A descent finds the right leaf, if there is one.
                Next::After if reader.at == at => match beside.take() {
                    Some(_) => continue,
                    None => return Ok(false),
                },
                Next::After => {}
                Next::Missing => return Ok(false),
            }
            reader.ahead.pass_leaf();
            leaves += 1;
            beside = after.map(|(parent, after)| (parent, after.position));
        }
        Ok(true)
    }

    /// The page of the next leaf, if it is in memory and the read probably goes on there. Its
    /// chunks lie where those of this leaf do.
    #[inline(always)]
    fn chunks_after(&self, reader: &ChunkReader, after: Neighbour) -> Option<PageRef<'_>> {
        let frame =
            after.frame.filter(|_| reader.end - reader.at > CHUNKS_IN_LEAF * CHUNK as u64)?;
        self.pool.prefetch_lines(frame, LEAF_LINES, For::Read);
        self.pool.any_page(frame)
    }

    #[inline(always)]
    fn leaf_beside<'p>(&'p self, parent: Optimistic<'p>, position: usize) -> Step<Path<'p>> {
        let path = self.child_at(parent, position, 0, For::Read)?;
        match path.node_ref().level() {
            0 => Ok(path),
            _ => Err(self.wrong_level(path.node, 0)),
        }
    }

    /// Copies the next chunks, the first of which has the key `key`, as far as they lie in a leaf,
    /// and prefetches those of the leaf `beside` meanwhile. The caller validates the leaf.
    fn copy_chunks(
        &self,
        leaf: Optimistic<'_>,
        key: &[u8],
        reader: &mut ChunkReader,
        value: &mut Vec<u8>,
        beside: Option<PageRef<'_>>,
    ) -> Step<Next> {
        let node = NodeRef::from(leaf.page());
        if !self.checked(&leaf, node.covers(key))? {
            return Ok(Next::After);
        }
        leaf.track();
        if self.pool.is_traced() {
            leaf.record(|way| self.lead(Seek::At(key), way));
        }
        let mut search = self.checked(&leaf, node.search(key))?;
        loop {
            let chunk = reader.chunk();
            let (offset, len, special) = match search.found {
                true => self.checked(&leaf, node.value_range(search.position))?,
                false => return Ok(Next::Missing),
            };
            if special || len != reader.large.chunk_len(chunk) {
                return Ok(Next::Missing);
            }
            let begin = chunk * CHUNK as u64;
            let skip = (reader.at - begin) as usize;
            let take = (reader.end - begin).min(len as u64) as usize - skip;
            if let Some(beside) = beside {
                (offset..offset + len).step_by(LINE).for_each(|at| beside.prefetch(at));
            }
            self.checked(&leaf, leaf.page().append_to(offset + skip, take, value))?;
            reader.at += take as u64;
            if reader.is_done() {
                return Ok(Next::Done);
            }
            let key = reader.large.chunk_key(reader.chunk());
            let after = node.search_after(search.position, &key, For::Read);
            match self.checked(&leaf, after)? {
                Some(found) => search = found,
                None => return Ok(Next::After),
            }
        }
    }
}
