//! The commit of a transaction that creates, drops or renames trees.
//!
//! Everything happens under the lock of the catalog, so no thread finds the entries of a
//! transaction that may still fail:
//!
//! 1. No name was changed after the snapshot: otherwise it is a conflict.
//! 2. Trees that are to be dropped are closed. A drop counts as a change of each record, so a
//!    change of a record that is not committed, or was committed after the snapshot, is a conflict.
//!    A writer looks at [`super::Closed`] after it has stored its version: either it finds the tree
//!    closed, or this search finds its version. (An auto-committed change that is under way, and
//!    has not stored its version, counts as before the drop: it is only visible with the tree.)
//! 3. The entries are changed, with undo entries in the log.
//! 4. A serializable transaction is validated.
//! 5. The transaction commits: one log record for its records and its trees.
//!    The names get the time of the commit before another transaction is validated.
//! 6. The list of open trees follows. Until then a thread that sees the records of the transaction
//!    may find the trees as they were before it.
//!
//! If a step before the commit fails, the entries are put back before the lock is released. If that
//! fails too, the engine takes no more changes, and the next opening puts them back.

use super::{
    Catalog, OpenTree,
    locked::LockedCatalog,
    record::{TreeRecord, nameless_key, tree_key},
};
use crate::{
    mvcc::{Changed, Savepoint},
    store::CATALOG,
    txn::{
        LogHandle, SystemAuthor, Ticket, TreeChanges, TreeOutcome, Txn, TxnSystem, UndoAuthor,
        validate,
    },
};
use std::sync::Arc;
use wattle_btree::{Before, Context, Journal, Mode, run};
use wattle_buffer::{Error, Gsn, Owner, Result};

impl Catalog {
    /// Commits a transaction that has changed trees. Gives the ticket and the commit time.
    ///
    /// # Errors
    /// [`Error::Conflict`]; failed I/O. The transaction can only be rolled back then.
    pub fn commit_trees(
        &self,
        system: &TxnSystem,
        cx: &Context,
        log: Option<&Arc<LogHandle>>,
        txn: &mut Txn,
    ) -> Result<(Ticket, u64)> {
        let catalog = &mut *self.locked.lock();
        let Some(changes) = txn.tree_changes.take() else {
            return Ok(txn.commit(system, cx, log));
        };
        let outcomes = changes.outcomes();
        let mark = txn.undo.mark();
        let prepared = prepare(catalog, system, cx, txn, &changes, &outcomes);
        let committed = prepared.and_then(|underfull| {
            let committed = validated(system, cx, txn, |txn| {
                created(&outcomes).for_each(|open| open.closed.keep());
                let (ticket, time) = txn.commit(system, cx, log);
                dropped(&outcomes).for_each(|open| open.closed.drop_for_good(time));
                // The next validation must find them.
                let names = changes.names().into_iter();
                system.names.note(names, time, system.versions.horizon());
                (ticket, time)
            })?;
            Ok((committed, underfull))
        });
        let ((ticket, time), underfull) = match committed {
            Ok(committed) => committed,
            Err(error) => {
                put_back(catalog, system, cx, txn, mark);
                dropped(&outcomes).for_each(|open| open.closed.stay());
                // They hold the trees until the rollback is over.
                txn.tree_changes = Some(changes);
                return Err(error);
            }
        };
        publish(catalog, outcomes);
        for key in underfull {
            // The transaction has committed; a merge that fails only leaves a leaf emptier.
            if let Err(error) = run(cx, |_| catalog.tree.merge_step(cx, &key, 0)) {
                tracing::warn!(%error, "a leaf of the catalog could not be merged");
            }
        }
        Ok((ticket, time))
    }
}

/// Trees that had a name and will have none.
fn dropped(outcomes: &[TreeOutcome]) -> impl Iterator<Item = &Arc<OpenTree>> {
    let gone = |outcome: &&TreeOutcome| outcome.before.is_some() && outcome.after.is_none();
    outcomes.iter().filter(gone).map(|outcome| &outcome.tree)
}

/// Trees that had no name and will have one.
fn created(outcomes: &[TreeOutcome]) -> impl Iterator<Item = &Arc<OpenTree>> {
    let new = |outcome: &&TreeOutcome| outcome.before.is_none() && outcome.after.is_some();
    outcomes.iter().filter(new).map(|outcome| &outcome.tree)
}

/// Steps 1 to 3. Gives keys of the catalog whose leaves are underfull now.
fn prepare(
    catalog: &LockedCatalog,
    system: &TxnSystem,
    cx: &Context,
    txn: &mut Txn,
    changes: &TreeChanges,
    outcomes: &[TreeOutcome],
) -> Result<Vec<Vec<u8>>> {
    changes.names().into_iter().try_for_each(|name| system.names.check(name, txn.snapshot))?;
    close_dropped(system, txn, outcomes)?;
    if txn.slot.is_cancelled() {
        // Times of names, and versions, may have been forgotten.
        return Err(system.too_old());
    }
    change_entries(catalog, system, cx, txn, outcomes)
}

/// Step 2.
fn close_dropped(system: &TxnSystem, txn: &Txn, outcomes: &[TreeOutcome]) -> Result<()> {
    let Some(me) = &txn.state else { unreachable!("a change of trees starts the transaction") };
    let conflict = |open: &OpenTree, what: &str| {
        Err(Error::Conflict(format!("it {what} the tree {:?}", open.name())))
    };
    for open in dropped(outcomes) {
        if !open.closed.begin_drop(me.id()) {
            return conflict(open, "changes many records of");
        }
    }
    for open in dropped(outcomes) {
        let id = open.tree.id();
        loop {
            match system.versions.tree_changed_since(id, me, txn.snapshot) {
                Changed::Unchanged => break,
                Changed::Undecided => std::thread::yield_now(),
                Changed::Changed => return conflict(open, "has changed records of"),
            }
        }
        if open.closed.hidden_since(txn.snapshot).is_some() {
            return conflict(open, "has changed many records of");
        }
    }
    Ok(())
}

/// Step 3. All removals come first: another tree may get the name of one that loses it.
fn change_entries(
    catalog: &LockedCatalog,
    system: &TxnSystem,
    cx: &Context,
    txn: &mut Txn,
    outcomes: &[TreeOutcome],
) -> Result<Vec<Vec<u8>>> {
    let mut moved: Vec<(Vec<u8>, TreeRecord)> = Vec::new();
    let mut underfull = Vec::new();
    for TreeOutcome { tree, before, after } in outcomes {
        if before == after {
            continue;
        }
        let key_of = |name: &Option<String>| match name {
            Some(name) => tree_key(name),
            None => nameless_key(tree.tag.id),
        };
        let (from, to) = (key_of(before), key_of(after));
        let entry = catalog.entry_at(cx, &from)?.filter(|entry| entry.tree == tree.tag.id);
        let Some(entry) = entry else {
            let what = format!("the tree {:?} of a transaction is not in it", tree.name());
            return Err(Error::corruption(catalog.tree.root_page(), what));
        };
        let mut author = SystemAuthor::new(system, CATALOG, Some(txn));
        let removed = run(cx, |_| catalog.tree.remove_step(cx, &from, &mut author))?;
        moved.push((to, entry));
        if removed.1 {
            underfull.push(from);
        }
    }
    for (key, entry) in moved {
        let mut author = SystemAuthor::new(system, CATALOG, Some(txn));
        catalog.record_as(cx, &key, entry, Mode::Insert, &mut author)?;
    }
    Ok(underfull)
}

/// Steps 4 and 5.
fn validated<T>(
    system: &TxnSystem,
    cx: &Context,
    txn: &mut Txn,
    commit: impl FnOnce(&mut Txn) -> T,
) -> Result<T> {
    if txn.reads.is_none() {
        return Ok(commit(txn));
    }
    loop {
        let stop = {
            let _one_at_a_time = system.validation.lock();
            match validate(system, txn) {
                Ok(()) => return Ok(commit(txn)),
                Err(stop) => stop,
            }
        };
        // A validation only waits for transactions that are about to have committed.
        let mut stop = Some(stop);
        run(cx, |_| stop.take().map_or(Ok(()), Err))?;
    }
}

/// Puts the entries back that step 3 has changed.
fn put_back(
    catalog: &LockedCatalog,
    system: &TxnSystem,
    cx: &Context,
    txn: &mut Txn,
    mark: Savepoint,
) {
    if let Err(error) = try_put_back(catalog, system, cx, txn, mark) {
        system.liveness.poison(&format!("the catalog could not be put back: {error}"));
    }
}

fn try_put_back(
    catalog: &LockedCatalog,
    system: &TxnSystem,
    cx: &Context,
    txn: &mut Txn,
    mark: Savepoint,
) -> Result<()> {
    if let Journal::On(_, appender) = &cx.journal {
        // As in a rollback: recovery takes off one entry for each of these records.
        appender.observe(txn.last_gsn);
    }
    txn.repair_undo()?;
    let id = txn.state.as_ref().map(Owner::share).map_or(0, |state| state.id());
    let (mut key, mut value) = (Vec::new(), Vec::new());
    while let Some(entry) = txn.undo.pop(mark)? {
        key.clear();
        key.extend_from_slice(entry.key);
        value.clear();
        let special = entry.before.map(|(bytes, special)| {
            value.extend_from_slice(bytes);
            special
        });
        let before = match special {
            Some(special) => Before::Value { bytes: &value, special },
            None => Before::Absent,
        };
        txn.taken_off = true;
        let last_gsn = Gsn(0);
        let mut author = UndoAuthor { system, tree: CATALOG, txn: id, version_of: None, last_gsn };
        run(cx, |_| catalog.tree.restore_step(cx, &key, before, &mut author))?;
        txn.taken_off = false;
        txn.last_gsn = txn.last_gsn.max(author.last_gsn);
    }
    Ok(())
}

/// Step 6.
fn publish(catalog: &mut LockedCatalog, outcomes: Vec<TreeOutcome>) {
    catalog.nameless.extend(dropped(&outcomes).cloned());
    for open in created(&outcomes) {
        catalog.nameless.retain(|other| !Arc::ptr_eq(other, open));
    }
    let changed = outcomes.into_iter().filter(|outcome| outcome.before != outcome.after);
    let changed: Vec<_> = changed.map(|one| (one.tree, one.before, one.after)).collect();
    for (tree, before, after) in &changed {
        tracing::info!(id = tree.tag.id.0, before, after, "a transaction changed a tree");
    }
    catalog.open_trees.rename_all(&changed);
}
