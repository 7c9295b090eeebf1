//! Large values to be cleared away, as the catalog lists them.

use super::{
    OpenFor, OpenTree,
    listed::{listed, listed_value},
    record::{EMPTY_KEY, garbage_key, visit_nameless},
    trees::Catalog,
};
use crate::{garbage::Garbage, txn::TxnSystem};
use std::collections::BTreeSet;
use wattle_btree::{
    self as btree, Author, Context, Found, LargeValue, Mode, Newest, Stop, System, Value, run,
};
use wattle_buffer::{Error, Exclusive, FrameHeader, Result, TreeId};

/// Removes only entries of the list that name a record.
struct Adopted;

impl Author for Adopted {
    fn check(
        &mut self,
        _: &FrameHeader,
        _: &[u8],
        before: Option<(&[u8], bool)>,
        _: bool,
    ) -> Result<(), Stop> {
        match before {
            Some((entry, _)) if !matches!(listed_value(entry), Some((_, Some(_)))) => {
                Err(Error::KeyExists.into())
            }
            _ => Ok(()),
        }
    }

    fn txn(&self) -> u64 {
        0
    }

    fn is_auto(&self) -> bool {
        true
    }

    fn done(&mut self, _: &Exclusive<'_>, _: &[u8]) {}
}

impl Catalog {
    /// The tree and key under which a large value of `tree` is listed to be cleared away.
    pub fn garbage_key(
        &self,
        tree: &OpenTree,
        large: LargeValue,
    ) -> Result<(&btree::Tree, [u8; 13])> {
        let chunks = tree.large.get().ok_or_else(|| {
            let what = "a record of its tree has a large value, but the tree has no large values";
            Error::corruption(tree.tree.root_page(), what)
        })?;
        Ok((&self.tree, garbage_key(chunks.tree.id(), large)))
    }

    /// Lists a large value to be cleared away unless the record `key` refers to it.
    pub fn list_garbage(
        &self,
        cx: &Context,
        tree: &OpenTree,
        key: &[u8],
        large: LargeValue,
    ) -> Result<()> {
        let (catalog, listed) = self.garbage_key(tree, large)?;
        let flag = if key.is_empty() { EMPTY_KEY } else { 0 };
        let value = [&(large.len | flag).to_le_bytes()[..], key].concat();
        let value = Value::Inline(&value);
        run(cx, |restarts| {
            catalog.write_step(cx, &listed, value, Mode::Put, &mut System, restarts)
        })?;
        Ok(())
    }

    /// Takes a large value off the list.
    pub fn unlist_garbage(&self, cx: &Context, chunks: TreeId, large: LargeValue) -> Result<()> {
        self.unlist_as(cx, chunks, large, &mut System)
    }

    /// Takes a large value off the list that was listed before the record referred to it, once that
    /// record is there. If another transaction has replaced or removed the record since, it has
    /// listed the value as garbage under the same key; that entry stays, and this gives false.
    pub fn unlist_adopted(&self, cx: &Context, chunks: TreeId, large: LargeValue) -> Result<bool> {
        match self.unlist_as(cx, chunks, large, &mut Adopted) {
            Err(Error::KeyExists) => Ok(false),
            unlisted => unlisted.map(|()| true),
        }
    }

    fn unlist_as<A: Author>(
        &self,
        cx: &Context,
        chunks: TreeId,
        large: LargeValue,
        author: &mut A,
    ) -> Result<()> {
        let (catalog, key) = (&self.tree, garbage_key(chunks, large));
        let (_, underfull) = run(cx, |_| catalog.remove_step(cx, &key, author))?;
        if underfull {
            run(cx, |_| catalog.merge_step(cx, &key, 0))?;
        }
        Ok(())
    }

    /// All large values that are listed; those that a record refers to are taken off the list
    /// instead. Called while nothing else runs. Opens one tree at a time.
    pub fn listed_garbage(&self, system: &TxnSystem, cx: &Context) -> Result<Vec<Garbage>> {
        let all = listed(cx, &self.tree, None)?;
        let chunks = all.iter().map(|(chunks, ..)| *chunks).collect();
        let owners = self.owners(cx, &chunks, false)?;
        let mut garbage = Vec::new();
        for (chunks, large, owner) in all {
            let name = owners.get(&chunks);
            let tree = match name {
                Some(name) => self.open(system, cx, name, OpenFor::Engine)?,
                None => None,
            };
            let Some(tree) = tree else {
                // Earlier versions dropped the chunks first, and could be interrupted before the
                // list.
                let key = garbage_key(chunks, large);
                run(cx, |_| self.tree.remove_step(cx, &key, &mut System))?;
                continue;
            };
            let mut bytes = Vec::new();
            let found = match &owner {
                Some(key) => run(cx, |_| {
                    bytes.clear();
                    tree.tree.get_step(key, &mut Newest, &mut bytes)
                })?,
                None => None,
            };
            match found {
                Some(Found::Large(found)) if found == large => {
                    self.unlist_garbage(cx, chunks, large)?;
                }
                _ => garbage.push(Garbage::Large(tree.tag.clone(), large)),
            }
        }
        Ok(garbage)
    }

    /// Trees of chunks for which something is listed, but which no tree has.
    pub fn listed_without_owner(&self, cx: &Context) -> Result<Vec<TreeId>> {
        // No tree is created or dropped in between.
        let _unchanged = self.locked.lock();
        let chunks: BTreeSet<TreeId> =
            listed(cx, &self.tree, None)?.into_iter().map(|(chunks, ..)| chunks).collect();
        let owners = self.owners(cx, &chunks, true)?;
        let mut without = chunks;
        without.retain(|chunks| !owners.contains_key(chunks));
        visit_nameless(cx, &self.tree, &mut |entry| {
            without.remove(&entry.chunks);
            Ok(())
        })?;
        Ok(without.into_iter().collect())
    }

    /// Ids of the large values that are listed, with the tree of their chunks.
    pub fn listed_ids(&self, cx: &Context) -> Result<Vec<(TreeId, u64)>> {
        let all = listed(cx, &self.tree, None)?;
        Ok(all.into_iter().map(|(chunks, large, _)| (chunks, large.id)).collect())
    }
}
