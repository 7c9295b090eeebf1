//! The log as text: one line for each flush and each record, to find out what happened. Works on a
//! store that is not open for writing, also after a crash, and changes nothing.

use crate::{
    recover::{Bytes, Escaped, Located, Shape, Source},
    store::{StoreFile, StoreState},
};
use std::{fmt::Write, ops::ControlFlow, path::Path};
use wattle_btree::{Before, Undo};
use wattle_buffer::{Gsn, Result, io::IoKind};
use wattle_wal::{GSN_COUNTER_BITS, Kind, epoch_of, record::Record};

/// Calls `visit` with a line for each flush of the log of the store in the directory `path` and
/// each record in it, in the order in which recovery would read them, from where it would begin,
/// until it breaks.
///
/// A flush: its number, epoch, and bytes of records. A record: worker, kind, transaction, number as
/// epoch and counter, its ops with page and tree, and its undo.
///
/// # Errors
/// A path that is not a store, [`crate::Error::AlreadyOpen`] while it is in use, a log that is
/// missing or damaged, after the lines of the part before the damage; failed I/O.
pub fn dump_log(
    path: impl AsRef<Path>,
    visit: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<()> {
    let file = StoreFile::open_read_only(path.as_ref(), IoKind::Threads, 0)?;
    let block = file.read_superblock()?;
    if block.state != StoreState::Logged {
        let _last = visit("the store was closed without a log: recovery would read nothing");
        return Ok(());
    }
    let log = file.open_log(true)?;
    let mut source = Source::open(&file, &log, &block)?;
    let mut text = String::new();
    let mut line = |parts: std::fmt::Arguments<'_>| {
        text.clear();
        text.write_fmt(parts).expect("a string takes everything");
        visit(&text)
    };
    let (redo, undo) = (block.redo_epoch, block.undo_epoch);
    let mut flow = line(format_args!("redo from epoch {redo}, undo from epoch {undo}"));
    while flow.is_continue()
        && let Some(flush) = source.next()?
    {
        let Located { number, epoch, .. } = flush;
        flow = line(format_args!("flush {number}: epoch {epoch}, {} bytes", flush.bytes()));
        for (chunk, record) in flush.records()? {
            if flow.is_break() {
                break;
            }
            let worker = flush.chunks[chunk].worker;
            flow = line(format_args!("  worker {worker} {}", InWords(&record)));
        }
    }
    Ok(())
}

struct InWords<'r>(&'r Record<'r>);

impl std::fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let record = self.0;
        let kind = match record.kind {
            Kind::Change if record.is_auto() => "auto-change",
            Kind::Change => "change",
            Kind::Commit => "commit",
            Kind::End => "end",
            Kind::Note => "note",
        };
        let Gsn(gsn) = record.gsn;
        let counter = gsn & ((1 << GSN_COUNTER_BITS) - 1);
        write!(f, "{kind} txn {} gsn {}.{counter}", record.txn, epoch_of(record.gsn))?;
        for op in record.ops() {
            write!(f, "; page {} tree {} ", op.page, op.tree)?;
            match Shape::parse(op.code, op.payload) {
                Ok(shape) => write!(f, "{shape}")?,
                Err(what) => write!(f, "op {} that makes no sense: {what}", op.code)?,
            }
        }
        match record.kind {
            _ if record.undo.is_empty() => Ok(()),
            Kind::Change => write_undo(f, record),
            _ => write!(f, "; {}", Bytes(record.undo.len())),
        }
    }
}

fn write_undo(f: &mut std::fmt::Formatter<'_>, record: &Record<'_>) -> std::fmt::Result {
    let Undo { tree, key, before } = match Undo::of(record) {
        Ok(undo) => undo,
        Err(what) => return write!(f, "; undo that makes no sense: {what}"),
    };
    write!(f, "; undo tree {tree} {} to ", Escaped(key))?;
    match before {
        Before::Absent => write!(f, "absent"),
        Before::Value { bytes, special: false } => write!(f, "value of {}", Bytes(bytes.len())),
        Before::Value { bytes, special: true } => {
            write!(f, "special value of {}", Bytes(bytes.len()))
        }
        Before::Patch { offset, bytes } => write!(f, "patch of {} at {offset}", Bytes(bytes.len())),
    }
}
