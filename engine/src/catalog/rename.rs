//! Rename of a tree: its record moves to another key, in a transaction.

use super::{
    OpenTree, TreeTag,
    locked::LockedCatalog,
    open_tree::NewNames,
    record::{check_name, tree_key},
    trees::check_named,
};
use crate::{core::Core, internal::system_transaction, store::CATALOG, txn::SystemAuthor};
use std::sync::Arc;
use wattle_btree::{Context, Mode, Value, run};
use wattle_buffer::{Error, Result};

/// Gives a tree to which `tree` is the last handle another name.
pub(crate) fn rename_tree(
    core: &Core,
    cx: &Context,
    tree: Arc<OpenTree>,
    name: &str,
) -> Result<Arc<OpenTree>> {
    check_name(name)?;
    let catalog = &core.catalog;
    let state = catalog.locked.lock();
    check_named(&tree)?;
    if state.entry(cx, name)?.is_some() {
        return Err(Error::TreeExists(name.to_string()));
    }
    let open = match catalog.open_trees.take(tree) {
        Ok(open) => open,
        Err(tree) => {
            let in_use = Error::TreeInUse(tree.name().to_string());
            catalog.open_trees.put_back(tree);
            return Err(in_use);
        }
    };
    if let Err(error) = rename_record(core, &state, cx, open.name(), name) {
        catalog.open_trees.put_back(Arc::new(open));
        return Err(error);
    }
    core.txns.note_name(open.name());
    core.txns.note_name(name);
    catalog.open_trees.note_name(open.tag.id, name);
    let tag = TreeTag::new(open.tag.id, name);
    Ok(catalog.open_trees.add(OpenTree { tag, names: NewNames::default(), ..open }))
}

/// Moves the entry of a tree to another name, in a transaction.
fn rename_record(
    core: &Core,
    catalog: &LockedCatalog,
    cx: &Context,
    old: &str,
    new: &str,
) -> Result<()> {
    let Some(entry) = catalog.entry(cx, old)? else {
        return Err(Error::NoSuchTree(old.to_string()));
    };
    system_transaction(core, cx, |txn| {
        let (key, bytes) = (tree_key(new), entry.encode());
        let mut author = SystemAuthor::new(&core.txns, CATALOG, Some(txn));
        run(cx, |restarts| {
            let value = Value::Inline(&bytes);
            catalog.tree.write_step(cx, &key, value, Mode::Insert, &mut author, restarts)
        })?;
        run(cx, |_| catalog.tree.remove_step(cx, &tree_key(old), &mut author))?;
        Ok(())
    })
}
