//! Serializable isolation: at commit, everything that the transaction read must be as it was.
//!
//! Validation is serial (Kung and Robinson, "On Optimistic Methods for Concurrency Control", TODS
//! 1981): one transaction at a time checks and commits, so a transaction that passes could have run
//! as a whole at that moment. Reads are checked by looking again, ranges by scanning again, which
//! finds phantoms as well (Larson et al., VLDB 2011). What is looked at is who changed a record, not
//! what it holds: a record that was changed and changed back counts as changed.
//!
//! A transaction without changes needs no validation: it could have run at its snapshot.

use super::Txn;
use crate::{
    catalog::OpenTree,
    engine::Core,
    mvcc::{Changed, TxnState},
};
use std::{ops::Bound, sync::Arc};
use wattle_btree::{Cursor, Direction, Seen, Step, Stop, View};
use wattle_buffer::{Error, FrameHeader};

/// What a transaction read.
#[derive(Default)]
pub(crate) struct ReadSet {
    points: Vec<(Arc<OpenTree>, Vec<u8>)>,
    ranges: Vec<KeyRange>,
}

/// A range of keys of a tree.
struct KeyRange {
    tree: Arc<OpenTree>,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
}

impl ReadSet {
    /// A record was looked up, whether or not there was one.
    pub fn point(&mut self, tree: &Arc<OpenTree>, key: &[u8]) {
        self.points.push((tree.clone(), key.to_vec()));
    }

    /// A range was read.
    pub fn range(&mut self, tree: &Arc<OpenTree>, low: Bound<Vec<u8>>, high: Bound<Vec<u8>>) {
        self.ranges.push(KeyRange { tree: tree.clone(), low, high });
    }
}

/// Checks everything once.
///
/// # Errors
/// [`Error::Conflict`] when something changed; a restart or a fault to resolve, with no lock held,
/// before it is all checked again.
pub(crate) fn validate(core: &Core, txn: &Txn) -> Step<()> {
    let (Some(reads), Some(me)) = (&txn.reads, &txn.state) else { return Ok(()) };
    let reads = reads.borrow();
    for (tree, key) in &reads.points {
        check(core, tree, key, me, txn.snapshot)?;
    }
    for KeyRange { tree, low, high } in &reads.ranges {
        let mut view = Unchanged { core, tree, me, snapshot: txn.snapshot };
        let mut cursor = Cursor::new(low.clone(), high.clone(), Direction::Forward);
        while !cursor.is_at_end() {
            cursor.load_step(&tree.tree, &mut view)?;
        }
    }
    if txn.slot.is_cancelled() {
        return Err(Stop::Error(super::view::too_old(core)));
    }
    Ok(())
}

fn check(core: &Core, tree: &OpenTree, key: &[u8], me: &TxnState, snapshot: u64) -> Step<()> {
    match core.versions.changed_since(tree.tree.id(), key, me, snapshot) {
        // Where changes left no versions, nobody can say.
        Changed::Unchanged if tree.closed.hidden_since(snapshot).is_none() => Ok(()),
        Changed::Undecided => Err(Stop::Restart),
        Changed::Unchanged | Changed::Changed => {
            let what = "it changed what this transaction read, and committed first";
            Err(Stop::Error(Error::Conflict(what.to_string())))
        }
    }
}

/// A view that fails on records that others changed after the snapshot.
struct Unchanged<'v> {
    core: &'v Core,
    tree: &'v OpenTree,
    me: &'v TxnState,
    snapshot: u64,
}

impl View for Unchanged<'_> {
    fn sees_all(&self, header: &FrameHeader) -> bool {
        header.version_hint() <= self.snapshot
    }

    fn look(&mut self, key: &[u8], _: &mut Vec<u8>, _: usize) -> Result<Seen, Stop> {
        check(self.core, self.tree, key, self.me, self.snapshot).map(|()| Seen::Page)
    }
}
