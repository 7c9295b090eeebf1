//! Rollback: applies the undo entries of a transaction, newest first, each under the latch of its
//! leaf. The version from before the change, which other snapshots read until then, is removed
//! under the same latch.
//!
//! Each restored record is logged as a change of the same transaction without undo. So redo gives
//! the pages their restored state, and recovery knows which entries were applied and rolls back the
//! others. Other transactions can change a restored record at once. The end of a complete rollback
//! is logged too.

use super::{Txn, UndoAuthor, author::version_bytes};
use crate::{
    catalog::OpenTree,
    core::Core,
    mvcc::{Savepoint, UndoEntry, Undone},
    session::{
        resolve::Resolve,
        step::{merge, run},
    },
};
use std::sync::Arc;
use wattle_btree::{Before, Journal, Tree, Undo};
use wattle_buffer::{Error, Gsn, Owner, Result, TreeId};
use wattle_wal::Kind;

/// Undoes all changes after `until`, or all changes of the transaction.
///
/// # Errors
/// Failed I/O. Records that were restored stay restored, and the rest can be tried again; also when
/// the future is dropped or leaked half way.
pub(crate) async fn rollback<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    until: Option<Savepoint>,
) -> Result<()> {
    let (core, system) = (session.core(), session.system());
    let Some(state) = txn.state.as_ref().map(Owner::share) else { return Ok(()) };
    if let Journal::On(_, appender) = &session.cx().journal {
        // Recovery takes off one entry for each such record, so these records must come after the
        // changes, also when another session rolls back.
        appender.observe(txn.last_gsn);
    }
    txn.repair_undo()?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    loop {
        let entry = txn.undo.pop(until.unwrap_or(Savepoint::START))?;
        let Some(UndoEntry { tree, first, key: entry_key, before }) = entry else { break };
        key.clear();
        key.extend_from_slice(entry_key);
        value.clear();
        let undone = match before {
            _ if first => system.versions.before(tree, &key, &state, &mut value),
            None => Undone::Absent,
            Some((bytes, special)) => {
                value.extend_from_slice(bytes);
                Undone::Whole { special }
            }
        };
        let before = match undone {
            Undone::Absent => Before::Absent,
            Undone::Whole { special } => Before::Value { bytes: &value, special },
            Undone::Patch { at } => Before::Patch { offset: at, bytes: &value },
        };
        let version_of = txn.state.as_ref().filter(|_| first).map(Owner::share);
        let mut author = UndoAuthor { system, tree, txn: state.id(), version_of, last_gsn: Gsn(0) };
        let undo = Undo { tree, key: &key, before };
        // Until the record is restored: the next attempt begins with this entry, even if this one
        // is dropped.
        txn.taken_off = true;
        let open = txn.trees.iter().find(|open| open.tree_of(tree).is_some());
        let underfull = put_back(session, open, &undo, &mut author).await?;
        txn.taken_off = false;
        if first {
            let bytes = version_bytes(key.len() + value.len());
            txn.version_bytes = txn.version_bytes.saturating_sub(bytes);
        }
        txn.last_gsn = txn.last_gsn.max(author.last_gsn);
        system.garbage.add_put_back(system.clock.now(), open, &undo);
        if underfull && let Some(tree) = find_tree(core, open, tree) {
            merge(session, tree, &key).await;
        }
        session.next_turn(1).await;
    }
    if until.is_none() {
        // A transaction that has logged nothing has nothing to end: changes that a full log refuses
        // do not make it longer.
        if txn.last_gsn != Gsn(0) {
            log_end(session, state.id(), txn.last_gsn);
        }
        txn.forsake(system, 0);
        let now = system.clock.now();
        txn.resolve_hints(system, state.id(), now);
        txn.open_trees(state.id(), 0);
        txn.tree_changes = None;
        state.aborted();
        txn.end();
    }
    Ok(())
}

fn find_tree<'t>(
    core: &'t Core,
    open: Option<&'t Arc<OpenTree>>,
    tree: TreeId,
) -> Option<&'t Tree> {
    open.and_then(|open| open.tree_of(tree)).or_else(|| core.catalog.system_tree(tree))
}

/// Restores one record; gives whether its leaf should be merged.
async fn put_back<R: Resolve>(
    session: &R,
    open: Option<&Arc<OpenTree>>,
    undo: &Undo<'_>,
    author: &mut UndoAuthor<'_>,
) -> Result<bool> {
    let tree = find_tree(session.core(), open, undo.tree)
        .ok_or_else(|| Error::Limit(format!("tree {} of a transaction is not open", undo.tree)))?;
    let cx = session.cx();
    run(session, |_| tree.restore_step(cx, undo.key, undo.before, author)).await
}

/// Logs that a transaction was rolled back completely.
fn log_end<R: Resolve>(session: &R, txn: u64, after: Gsn) {
    if let Journal::On(_, appender) = &session.cx().journal {
        appender.observe(after);
        let mut section = appender.begin();
        section.start(Kind::End, 0, txn, Gsn(0));
        section.finish();
    }
}
