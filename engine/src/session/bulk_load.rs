//! Bulk load: fills an empty tree from sorted entries.

use super::{
    resolve::{Environment, now},
    step::run,
};
use crate::{catalog::OpenTree, core::Core, internal::Internal, tree::Tree};
use std::sync::Arc;
use wattle_btree::{BulkLoad, BulkValue, Context, LargeValue, System, fits_inline};
use wattle_buffer::{Error, Inside, Result};

/// See [`crate::Session::bulk_load`]. It blocks the thread, also for an asynchronous session.
pub(crate) fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    core: &Core,
    cx: &Context,
    tree: &Tree,
    entries: impl IntoIterator<Item = (K, V)>,
) -> Result<u64> {
    core.check_tree(tree)?;
    core.check_alive()?;
    core.check_caller(&[Inside::Verify])?;
    let _no_backup = core.bulk_loads()?;
    // The engine may have been abandoned meanwhile.
    core.check_alive()?;
    check_open(tree)?;
    let mut load = BulkLoad::new(&tree.open.tree)?;
    let mut chunks = BulkChunks { core, open: &tree.open, values: Vec::new() };
    fill(&Internal::new(core, cx), tree, &mut load, &mut chunks, entries)?;
    check_open(tree)?;
    let count = load.finish(cx, &|| core.sync_pages())?;
    for large in std::mem::take(&mut chunks.values) {
        let Some(store) = tree.open.large.get() else { break };
        if let Err(error) = core.catalog.unlist_adopted(cx, store.tree.id(), large) {
            // The tree is loaded. The next opening of the store finds that the listed values are in
            // use.
            let what = "a large value of a bulk load stays listed until the next opening";
            tracing::warn!(%error, what);
        }
    }
    if let Some(log) = &core.log {
        log.flush_now()?;
    }
    Ok(count)
}

/// Fails if a transaction owns the tree, or has dropped it.
fn check_open(tree: &Tree) -> Result<()> {
    let name = tree.name();
    match tree.open.closed.is_dropped() {
        _ if !tree.open.closed.is_closed_to(0) => Ok(()),
        true => Err(Error::NoSuchTree(name.to_string())),
        false => Err(Error::Conflict(format!("it has created or changes the tree {name:?}"))),
    }
}

fn fill<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    session: &Internal<'_>,
    tree: &Tree,
    load: &mut BulkLoad<'_>,
    chunks: &mut BulkChunks<'_>,
    entries: impl IntoIterator<Item = (K, V)>,
) -> Result<()> {
    let _inside = Inside::Load.enter();
    for (key, value) in entries {
        let (key, value) = (key.as_ref(), value.as_ref());
        if fits_inline(key.len(), value.len()) {
            load.push(key, BulkValue::Inline(value))?;
            continue;
        }
        if key.len() > wattle_btree::MAX_KEY {
            return Err(Error::KeyTooLong { len: key.len(), max: wattle_btree::MAX_KEY });
        }
        if value.len() as u64 > wattle_btree::MAX_VALUE {
            let (len, max) = (value.len() as u64, wattle_btree::MAX_VALUE);
            return Err(Error::ValueTooLong { len, max });
        }
        let store = session.core.catalog.large(&session.core.txns, session.cx(), &tree.open)?;
        let large = LargeValue { id: store.next_id(), len: value.len() as u64 };
        // Listed before it exists, in case the load does not finish.
        session.core.catalog.list_garbage(session.cx(), &tree.open, key, large)?;
        chunks.values.push(large);
        let mut done = 0;
        while done < large.chunks() {
            now(run(session, |restarts| {
                let (cx, done) = (session.cx(), &mut done);
                store.tree.write_chunks_step(cx, large, value, &mut System, restarts, done)
            }))?;
        }
        load.push(key, BulkValue::Large(large))?;
    }
    Ok(())
}

/// Large values written by a bulk load. They become garbage if the load fails, or if its iterator
/// panics.
struct BulkChunks<'a> {
    core: &'a Core,
    open: &'a Arc<OpenTree>,
    values: Vec<LargeValue>,
}

impl Drop for BulkChunks<'_> {
    fn drop(&mut self) {
        if !self.values.is_empty() {
            self.core.txns.garbage.add_large(self.open, std::mem::take(&mut self.values));
        }
    }
}
