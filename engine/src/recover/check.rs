//! Checks a log for verification: reads it as recovery would, and applies nothing.

use super::{
    shape::Shape,
    source::{Located, Source, wrong_end},
};
use crate::store::{StoreFile, Superblock};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use wattle_btree::Undo;
use wattle_buffer::{Error, Result, io::LogStorage};
use wattle_wal::{Kind, epoch_of, record::Record};

/// Limit of listed problems: where there is one, there are often thousands.
const MOST_PROBLEMS: usize = 100;

/// Checks the whole log from where recovery would begin; gives the bytes of its records. The engine
/// may be running, but no thread may append meanwhile.
///
/// # Errors
/// Failed I/O, or [`Error::Interrupted`] after `stop` was set. Damage is added to `problems`.
pub(crate) fn check_log(
    file: &StoreFile,
    log: &Arc<dyn LogStorage>,
    block: &Superblock,
    stop: &AtomicBool,
    problems: &mut Vec<String>,
) -> Result<u64> {
    let mut bytes = 0;
    let most = problems.len() + MOST_PROBLEMS;
    let outcome = (|| {
        let mut source = Source::open(file, log, block)?;
        while let Some(flush) = source.next()? {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            bytes += flush.bytes();
            check_flush(&flush, &mut |problem| {
                if problems.len() < most {
                    problems.push(problem);
                }
            });
        }
        let end = source.end()?;
        wrong_end(file, block, &end).map_or(Ok(()), Err)
    })();
    match outcome {
        Ok(()) => Ok(bytes),
        Err(
            error @ (Error::LogCorruption { .. }
            | Error::WrongLog { .. }
            | Error::WrongVersion { .. }),
        ) => {
            problems.push(error.to_string());
            Ok(bytes)
        }
        Err(error) => Err(error),
    }
}

fn check_flush(flush: &Located, problem: &mut dyn FnMut(String)) {
    let records = match flush.records() {
        Ok(records) => records,
        Err(error) => return problem(error.to_string()),
    };
    for (_, record) in records {
        if let Err(what) = check_record(&record, flush.epoch) {
            problem(flush.damage(&format!("record {}: {what}", record.gsn)).to_string());
        }
    }
}

fn check_record(record: &Record<'_>, epoch: u64) -> Result<(), String> {
    let own = epoch_of(record.gsn);
    if own > epoch {
        return Err(format!("it is of epoch {own} in a flush of epoch {epoch}"));
    }
    for op in record.ops() {
        Shape::parse(op.code, op.payload).map_err(|what| format!("page {}: {what}", op.page))?;
    }
    if record.kind == Kind::Change && !record.undo.is_empty() {
        Undo::of(record)?;
    }
    Ok(())
}
