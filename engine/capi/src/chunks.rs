//! Ranges that borrow nothing: they read chunks of records into a buffer of their own.
//!
//! All chunks are read in one transaction, and so from one snapshot. Each chunk begins after the
//! last key of the chunk before, so no key comes twice and none is left out.

use std::ops::{Bound, ControlFlow};
use wattle::{Direction, Result, Transaction, Tree};

/// Records of the first chunk. Each further one has twice as many, up to [`MOST_RECORDS`].
const FIRST_RECORDS: usize = 16;
const MOST_RECORDS: usize = 1024;
/// A chunk ends with the record that takes it above so many bytes.
const CHUNK_BYTES: usize = 128 << 10;

/// The rest of a range, and its current record.
pub struct Chunks {
    tree: Tree,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    direction: Direction,
    /// Keys and values of the chunk.
    bytes: Vec<u8>,
    /// Of each record: where its value begins, and where it ends.
    records: Vec<(usize, usize)>,
    /// Records that [`Chunks::step`] has passed.
    passed: usize,
    most_records: usize,
    is_last: bool,
}

impl Chunks {
    pub fn new(
        tree: Tree,
        low: Bound<Vec<u8>>,
        high: Bound<Vec<u8>>,
        direction: Direction,
    ) -> Chunks {
        Chunks {
            tree,
            low,
            high,
            direction,
            bytes: Vec::new(),
            records: Vec::new(),
            passed: 0,
            most_records: FIRST_RECORDS,
            is_last: false,
        }
    }

    /// Goes to the next record of the chunk; false at its end.
    pub fn step(&mut self) -> bool {
        let more = self.passed < self.records.len();
        self.passed += usize::from(more);
        more
    }

    /// Key and value of the record that the last [`Chunks::step`] went to.
    pub fn record(&self) -> (&[u8], &[u8]) {
        let at = self.passed - 1;
        let start = if at == 0 { 0 } else { self.records[at - 1].1 };
        let (middle, end) = self.records[at];
        (&self.bytes[start..middle], &self.bytes[middle..end])
    }

    /// Reads the next chunk; false when there is none.
    pub fn fill(&mut self, txn: &Transaction<'_>) -> Result<bool> {
        if self.is_last {
            return Ok(false);
        }
        let (bytes, records) = (&mut self.bytes, &mut self.records);
        bytes.clear();
        records.clear();
        self.passed = 0;
        let (most, mut is_full, mut key_start) = (self.most_records, false, 0);
        let bounds = (self.low.as_ref().map(Vec::as_slice), self.high.as_ref().map(Vec::as_slice));
        let visited = txn.visit(&self.tree, bounds, self.direction, |key, value| {
            key_start = bytes.len();
            bytes.extend_from_slice(key);
            let middle = bytes.len();
            bytes.extend_from_slice(value);
            records.push((middle, bytes.len()));
            is_full = records.len() >= most || bytes.len() >= CHUNK_BYTES;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if visited.is_err() {
            // The next call reads this chunk again.
            bytes.clear();
            records.clear();
        }
        visited?;
        self.is_last = !is_full;
        self.most_records = (most * 2).min(MOST_RECORDS);
        let Some(&(middle, _)) = self.records.last() else { return Ok(false) };
        let after = Bound::Excluded(self.bytes[key_start..middle].to_vec());
        match self.direction {
            Direction::Forward => self.low = after,
            Direction::Backward => self.high = after,
        }
        Ok(true)
    }
}
