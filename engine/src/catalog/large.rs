//! Large values: where they are, and the list in the catalog of those to be cleared away.

use super::{
    Catalog, OpenTree, Room, TreeTag,
    entry::{EMPTY_KEY, GARBAGE, garbage_key},
};
use crate::{engine::Core, txn::Garbage};
use std::{
    collections::BTreeSet,
    ops::Bound,
    sync::atomic::{AtomicU64, Ordering},
};
use wattle_btree::{
    self as btree, Author, Context, Cursor, Direction, Found, LargeValue, Mode, Newest, Stop,
    System, Value, chunk_id, run,
};
use wattle_buffer::{Error, Exclusive, FrameHeader, Result, TreeId};

/// Length of a large value on the list, and the key of the record that may refer to it, of the bytes of its entry.
fn listed_value(entry: &[u8]) -> Option<(u64, Option<&[u8]>)> {
    let (len, owner) = entry.split_first_chunk()?;
    let len = u64::from_le_bytes(*len);
    let has_owner = len & EMPTY_KEY != 0 || !owner.is_empty();
    Some((len & !EMPTY_KEY, has_owner.then_some(owner)))
}

/// Takes entries off the list that name a record, and no others.
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

/// Chunks of the large values of one tree.
pub(crate) struct LargeStore {
    pub tree: btree::Tree,
    pub(super) next_id: AtomicU64,
}

impl LargeStore {
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens the tree; the next id is above `used`, and above all that are in it.
    pub(super) fn open(cx: &Context, tree: btree::Tree, used: u64) -> Result<LargeStore> {
        let last = last_id(cx, &tree)?;
        let next = last.map_or(1, |id| id.saturating_add(1)).max(used + 1);
        Ok(LargeStore { tree, next_id: AtomicU64::new(next) })
    }
}

/// The largest id in a tree of large values.
fn last_id(cx: &Context, tree: &btree::Tree) -> Result<Option<u64>> {
    let mut cursor = Cursor::new(Bound::Unbounded, Bound::Unbounded, Direction::Backward);
    while cursor.is_loaded() || !cursor.is_at_end() {
        if !cursor.is_loaded() {
            run(cx, |_| cursor.load_step(tree, &mut Newest))?;
        } else if cursor.take()?.is_some() {
            return Ok(chunk_id(cursor.key()));
        }
    }
    Ok(None)
}

/// A large value on the list: the tree of its chunks, and the key of a record that may refer to it.
pub(super) type Listed = (TreeId, LargeValue, Option<Vec<u8>>);

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
    pub fn unlist_garbage(&self, cx: &Context, tree: &OpenTree, large: LargeValue) -> Result<()> {
        self.unlist_as(cx, tree, large, &mut System)
    }

    /// Takes a large value off the list that a bulk load has put there and whose record is adopted. Whoever has
    /// replaced or removed the record since has listed the value as garbage in the same place: that stays.
    pub fn unlist_adopted(&self, cx: &Context, tree: &OpenTree, large: LargeValue) -> Result<()> {
        match self.unlist_as(cx, tree, large, &mut Adopted) {
            Err(Error::KeyExists) => Ok(()),
            unlisted => unlisted,
        }
    }

    fn unlist_as<A: Author>(
        &self,
        cx: &Context,
        tree: &OpenTree,
        large: LargeValue,
        author: &mut A,
    ) -> Result<()> {
        let (catalog, key) = self.garbage_key(tree, large)?;
        let (_, underfull) = run(cx, |_| catalog.remove_step(cx, &key, author))?;
        if underfull {
            run(cx, |_| catalog.merge_step(cx, &key, 0))?;
        }
        Ok(())
    }

    /// All large values that are listed; those that a record refers to are taken off the list instead.
    /// For when nothing else runs. Opens one tree at a time.
    pub fn listed_garbage(&self, core: &Core, cx: &Context) -> Result<Vec<Garbage>> {
        let listed = self.listed(cx, None)?;
        let chunks = listed.iter().map(|(chunks, ..)| *chunks).collect();
        let owners = self.owners(cx, &chunks, false)?;
        let mut garbage = Vec::new();
        for (chunks, large, owner) in listed {
            let name = owners.get(&chunks);
            let tree = match name {
                Some(name) => self.open(core, cx, name, Room::Engine)?,
                None => None,
            };
            let Some(tree) = tree else {
                // Earlier versions dropped the chunks first, and could be interrupted before the list.
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
                    self.unlist_garbage(cx, &tree, large)?;
                }
                _ => garbage.push(Garbage::Large(tree.tag.clone(), large)),
            }
        }
        Ok(garbage)
    }

    /// Trees of chunks for which something is listed, but which no tree has.
    pub fn listed_without_owner(&self, cx: &Context) -> Result<Vec<TreeId>> {
        // No tree is created or dropped in between.
        let _unchanged = self.state.lock();
        let chunks: BTreeSet<TreeId> =
            self.listed(cx, None)?.into_iter().map(|(chunks, ..)| chunks).collect();
        let owners = self.owners(cx, &chunks, true)?;
        Ok(chunks.into_iter().filter(|chunks| !owners.contains_key(chunks)).collect())
    }

    /// Ids of the large values that are listed, with the tree of their chunks.
    pub fn listed_ids(&self, cx: &Context) -> Result<Vec<(TreeId, u64)>> {
        let listed = self.listed(cx, None)?;
        Ok(listed.into_iter().map(|(chunks, large, _)| (chunks, large.id)).collect())
    }

    /// The tree that what is to be cleared away belongs to; none if it was dropped. Does not wait for
    /// long: others may need the caller to go on.
    ///
    /// # Errors
    /// [`Error::Limit`] when the catalog is in use for long, as by the drop of a large tree, or when
    /// there is no room for one more open tree.
    pub fn reopen(
        &self,
        core: &Core,
        cx: &Context,
        tag: &TreeTag,
    ) -> Result<Option<std::sync::Arc<OpenTree>>> {
        let open = match self.opened.get(&tag.name) {
            Some(open) => Some(open),
            None => {
                let Some(mut state) = self.state.try_lock_for(MOST_WAIT) else {
                    return Err(Error::Limit("the catalog is being changed".to_string()));
                };
                state.open_to_clear(core, cx, &self.forest, &tag.name)?
            }
        };
        Ok(open.filter(|open| open.tag.id == tag.id))
    }

    /// The list, or what of it lies in one tree of chunks.
    pub(super) fn listed(&self, cx: &Context, chunks: Option<TreeId>) -> Result<Vec<Listed>> {
        listed(cx, &self.tree, chunks)
    }
}

/// Longest wait of the janitor for the catalog.
const MOST_WAIT: std::time::Duration = std::time::Duration::from_millis(50);

/// See [`Catalog::listed`].
pub(super) fn listed(
    cx: &Context,
    catalog: &btree::Tree,
    chunks: Option<TreeId>,
) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    let root = catalog.root_page();
    let mut prefix = vec![GARBAGE];
    prefix.extend(chunks.iter().flat_map(|chunks| chunks.0.to_be_bytes()));
    super::visit(cx, catalog, &prefix, &mut |key, value| {
        let wrong = || Error::corruption(root, "an entry of the catalog has a wrong size");
        let chunks = key.get(1..5).ok_or_else(wrong)?.try_into().map_err(|_| wrong())?;
        let id = key.get(5..13).ok_or_else(wrong)?.try_into().map_err(|_| wrong())?;
        let (len, owner) = listed_value(value).ok_or_else(wrong)?;
        let large = LargeValue { id: u64::from_be_bytes(id), len };
        listed.push((TreeId(u32::from_be_bytes(chunks)), large, owner.map(<[u8]>::to_vec)));
        Ok(())
    })?;
    Ok(listed)
}
