//! Trees in a transaction: by name, created, dropped and renamed. The catalog blocks the thread,
//! also that of an asynchronous session.

use super::check::noted;
use crate::{
    catalog::{OpenTree, check_name},
    session::resolve::Environment,
    tree::Tree,
    txn::{Txn, TxnSystem},
};
use std::sync::Arc;
use wattle_buffer::{Error, Result};

/// The tree that a name leads to for the transaction.
fn find<R: Environment>(session: &R, txn: &Txn, name: &str) -> Result<Option<Arc<OpenTree>>> {
    session.core().check_caller(&[])?;
    txn.check()?;
    check_name(name)?;
    if let Some(reads) = &txn.reads {
        reads.borrow_mut().name(name);
    }
    if let Some(found) = txn.tree_changes.as_ref().and_then(|changes| changes.find(name)) {
        return Ok(found.cloned());
    }
    let system = session.system();
    let found = session.core().catalog.open_at(system, session.cx(), name, txn.snapshot)?;
    if txn.slot.is_cancelled() {
        // The time of a change of the name may have been forgotten.
        return Err(system.too_old());
    }
    Ok(found)
}

/// See [`crate::Transaction::tree`].
pub(crate) fn tree_in<R: Environment>(session: &R, txn: &Txn, name: &str) -> Result<Tree> {
    let found = find(session, txn, name);
    if let Err(Error::Conflict(_)) = &found {
        txn.hidden.set(true);
    }
    // A commit of a transaction without changes waits for this name, too.
    txn.seen.set(txn.seen.get().max(txn.snapshot));
    found?.map(|open| Tree { open }).ok_or_else(|| Error::NoSuchTree(name.to_string()))
}

/// Before a change: gives the system.
fn start<'s, R: Environment>(session: &'s R, txn: &mut Txn) -> Result<&'s TxnSystem> {
    txn.check_write()?;
    session.core().check_alive()?;
    let system = session.system();
    if txn.state.is_none() {
        txn.start_system(system);
    }
    Ok(system)
}

/// See [`crate::Transaction::create_tree`].
pub(crate) fn create_tree_in<R: Environment>(
    session: &R,
    txn: &mut Txn,
    name: &str,
) -> Result<Tree> {
    txn.check_write()?;
    let found = find(session, txn, name);
    if noted(txn, found)?.is_some() {
        return Err(Error::TreeExists(name.to_string()));
    }
    let system = start(session, txn)?;
    let Some(id) = txn.state.as_ref().map(|state| state.id()) else {
        unreachable!("it was just started")
    };
    let owner = (id, txn.session);
    let open = session.core().catalog.create_nameless(system, session.cx(), name, owner)?;
    // It owns the tree until it ends.
    txn.closes = true;
    txn.start_writing(system, &open);
    txn.tree_changes.get_or_insert_default().created(name, &open);
    Ok(Tree { open })
}

/// See [`crate::Transaction::drop_tree`].
pub(crate) fn drop_tree_in<R: Environment>(session: &R, txn: &mut Txn, name: &str) -> Result<()> {
    txn.check_write()?;
    let found = find(session, txn, name);
    let open = noted(txn, found)?.ok_or_else(|| Error::NoSuchTree(name.to_string()))?;
    start(session, txn)?;
    txn.tree_changes.get_or_insert_default().dropped(name, open);
    Ok(())
}

/// See [`crate::Transaction::rename_tree`].
pub(crate) fn rename_tree_in<R: Environment>(
    session: &R,
    txn: &mut Txn,
    from: &str,
    to: &str,
) -> Result<()> {
    txn.check_write()?;
    let found = find(session, txn, from);
    let open = noted(txn, found)?.ok_or_else(|| Error::NoSuchTree(from.to_string()))?;
    let found = find(session, txn, to);
    if noted(txn, found)?.is_some() {
        return Err(Error::TreeExists(to.to_string()));
    }
    start(session, txn)?;
    txn.tree_changes.get_or_insert_default().renamed(from, to, open);
    Ok(())
}
