//! Flushes as a reader of the log gives them out, and the records in them.

use crate::record::{self, Base, Record};

/// One flush: a consistent cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    /// All its records have this epoch or a smaller one.
    pub epoch: u64,
    /// Ascending by 1.
    pub flush_number: u64,
    /// Whole records by worker and block; the records of one worker are in order.
    pub chunks: Vec<Chunk>,
}

/// Records of one worker, side by side in one block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The worker.
    pub worker: u32,
    /// The numbers of the records are relative to this.
    pub base: Base,
    /// The records.
    pub bytes: Vec<u8>,
}

impl Chunk {
    /// The records in order. If one is invalid, the last item is an error that says where it begins
    /// and what does not fit.
    pub fn records(&self) -> impl Iterator<Item = Result<Record<'_>, String>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = self.bytes.get(at..).filter(|rest| !rest.is_empty())?;
            Some(match record::parse(rest, self.base) {
                Ok((record, len)) => {
                    at += len;
                    Ok(record)
                }
                Err(what) => {
                    let worker = self.worker;
                    let what = format!("at byte {at} of the records of worker {worker}: {what}");
                    at = self.bytes.len();
                    Err(what)
                }
            })
        })
    }
}
