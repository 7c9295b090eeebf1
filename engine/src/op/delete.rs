//! Removes all records of a range of keys that a transaction sees: all of them, or none.
//!
//! The keys of one copy of a leaf, as the transaction sees them, are removed as one run, with one
//! latch. A record that another transaction changed after the snapshot is not as it was seen, so
//! its removal is a conflict, as that of a single record is. A record that was added after the
//! snapshot is not seen, and stays.

use super::{check::noted, many::write_run, range::KeyBounds, scan, whole::whole};
use crate::{
    session::{
        conflict_wait::{Waits, persist_at},
        resolve::Resolve,
    },
    tree::Tree,
    txn::{Begun, Ticket, Txn, TxnOptions},
};
use std::ops::Bound;
use wattle_btree::{Cursor, Direction, Mode, Value};
use wattle_buffer::Result;

/// Keys of one leaf.
#[derive(Default)]
struct LeafKeys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl LeafKeys {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(from, to)| &self.bytes[from..*to])
    }
}

/// Removes the records of a range in a transaction; gives how many there were.
pub(crate) async fn delete_range_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    bounds: KeyBounds<'_>,
) -> Result<u64> {
    delete_range_by(session, txn, tree, bounds, &mut Vec::new()).await
}

/// As [`delete_range_in`], as a transaction of its own.
pub(crate) async fn delete_range_auto<R: Resolve>(
    session: &R,
    tree: &Tree,
    bounds: KeyBounds<'_>,
) -> Result<(u64, Ticket)> {
    session.core().admit(session, tree).await?;
    persist_at(session, tree, async || {
        let mut held = Vec::new();
        let mut txn = match Begun::new(session, TxnOptions::default()) {
            Ok(txn) => txn,
            Err(error) => return Err((held, error)),
        };
        let outcome = match delete_range_by(session, txn.txn(), tree, bounds, &mut held).await {
            Ok(removed) => txn.commit().await.map(|ticket| (removed, ticket)),
            Err(error) => txn.abort().await.and(Err(error)),
        };
        outcome.map_err(|error| (held, error))
    })
    .await
}

/// `held`: after a conflict, the key of a record that another transaction holds, if there is one.
async fn delete_range_by<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    (low, high): KeyBounds<'_>,
    held: &mut Vec<u8>,
) -> Result<u64> {
    session.core().check_tree(tree)?;
    txn.check_write()?;
    let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
    if let Some(reads) = &txn.reads {
        // A record that is added to the range later would be a phantom.
        reads.borrow_mut().range(&tree.open, owned(low), owned(high));
    }
    let mut cursor = Box::new(Cursor::new(owned(low), owned(high), Direction::Forward));
    let mark = txn.savepoint();
    whole(session, txn, mark, async |txn: &mut Txn| {
        let (mut keys, mut removed) = (LeafKeys::default(), 0);
        while keys_of_leaf(session, txn, tree, &mut cursor, &mut keys).await? {
            let run: Vec<_> = keys.iter().map(|key| (key, Value::Ghost)).collect();
            if let Err(error) = write_run(session, txn, tree, &run, Mode::Update).await {
                Waits::find_held(session.system(), tree, keys.iter(), held);
                return Err(error);
            }
            keys.iter().for_each(|key| txn.add_ghost(&tree.open, key));
            removed += run.len() as u64;
            session.next_turn(run.len()).await;
        }
        Ok(removed)
    })
    .await
}

/// The next keys of a scan, those of one copy of a leaf; false: there are no more.
async fn keys_of_leaf<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    cursor: &mut Cursor,
    keys: &mut LeafKeys,
) -> Result<bool> {
    keys.clear();
    // Only its keys are of interest: a large value is not read.
    let first = scan::next_entry(session, txn, tree, cursor, &mut Vec::new(), None, false).await;
    let first = noted(txn, first)?;
    if first.is_none() {
        return Ok(false);
    }
    keys.push(cursor.key());
    while scan::next_loaded(cursor)?.is_some() {
        keys.push(cursor.key());
    }
    Ok(true)
}
