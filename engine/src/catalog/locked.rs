//! Changes of the catalog, under its lock.

use super::{
    LargeStore, OpenFor, OpenTree, TreeTag,
    authors::JoinedChange,
    listed::listed,
    open_trees::OpenTrees,
    record::{
        TreeRecord, check_name, garbage_key, nameless_key, tree_key, visit_nameless, visit_trees,
    },
};
use crate::{options::FRAMES_PER_TREE, txn::TxnSystem};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};
use wattle_btree::{
    self as btree, Author, Context, Forest, Found, Mode, Newest, System, Value, run,
};
use wattle_buffer::{Error, Gsn, PageId, Result, TreeId};

/// The part of the catalog that its lock protects.
pub(super) struct LockedCatalog {
    pub tree: Arc<btree::Tree>,
    pub forest: Arc<Forest>,
    pub next_tree: Arc<AtomicU32>,
    pub open_trees: Arc<OpenTrees>,
    /// Above all ids of large values in trees that were closed. A tree that is opened again
    /// continues from here, so no id is used twice while the engine is open, and an old id stays
    /// unique.
    pub large_ids: AtomicU64,
    /// Open trees without a name, see the module `nameless`.
    pub nameless: Vec<Arc<OpenTree>>,
    /// The keys of trees of which the drop failed on the way.
    pub half_dropped: BTreeSet<Vec<u8>>,
}

impl LockedCatalog {
    /// The next unused tree id, which is used from now on.
    pub fn take_id(&mut self) -> Result<TreeId> {
        let id = TreeId(self.next_tree.load(Ordering::Relaxed));
        // The last id marks pages that belong to no tree.
        if id.0 >= u32::MAX - 1 {
            return Err(Error::Limit("the store has used up its 2^32 tree ids".to_string()));
        }
        self.next_tree.store(id.0 + 1, Ordering::Relaxed);
        Ok(id)
    }

    /// Writes the record of a tree under `key`.
    pub fn record(&self, cx: &Context, key: &[u8], entry: TreeRecord, mode: Mode) -> Result<()> {
        self.record_as(cx, key, entry, mode, &mut System)
    }

    /// Writes the record of a tree under `key` by `author`.
    pub fn record_as<A: Author>(
        &self,
        cx: &Context,
        key: &[u8],
        entry: TreeRecord,
        mode: Mode,
        author: &mut A,
    ) -> Result<()> {
        let bytes = entry.encode();
        run(cx, |restarts| {
            self.tree.write_step(cx, key, Value::Inline(&bytes), mode, author, restarts)
        })?;
        Ok(())
    }

    /// The record of the tree `name`, if there is one.
    pub fn entry(&self, cx: &Context, name: &str) -> Result<Option<TreeRecord>> {
        self.entry_at(cx, &tree_key(name))
    }

    /// The record of the tree under `key`, if there is one.
    pub fn entry_at(&self, cx: &Context, key: &[u8]) -> Result<Option<TreeRecord>> {
        let mut bytes = Vec::new();
        let found = run(cx, |_| {
            bytes.clear();
            self.tree.get_step(key, &mut Newest, &mut bytes)
        })?;
        match found {
            Some(Found::Inline) => TreeRecord::decode(&bytes, self.tree.root_page()).map(Some),
            _ => Ok(None),
        }
    }

    /// The entry of a tree that is not being dropped; a drop that failed is ended.
    fn entry_to_open(
        &mut self,
        system: &TxnSystem,
        cx: &Context,
        name: &str,
    ) -> Result<Option<TreeRecord>> {
        match self.entry(cx, name)? {
            Some(entry) if entry.dropping => {
                self.go_on_dropping(system, cx, &tree_key(name))?;
                Ok(None)
            }
            entry => Ok(entry),
        }
    }

    /// Opens the tree `name`; none when there is none.
    pub fn open(
        &mut self,
        system: &TxnSystem,
        cx: &Context,
        name: &str,
        room: OpenFor,
    ) -> Result<Option<Arc<OpenTree>>> {
        check_name(name)?;
        if let Some(tree) = self.open_trees.get(name) {
            return Ok(Some(tree));
        }
        let Some(entry) = self.entry_to_open(system, cx, name)? else { return Ok(None) };
        let open = self.load(system, cx, name, entry, room)?;
        Ok(Some(self.open_trees.add(open)))
    }

    /// As [`LockedCatalog::open`], for the janitor: a tree that is being dropped is not there.
    pub fn open_to_clear(
        &mut self,
        system: &TxnSystem,
        cx: &Context,
        name: &str,
    ) -> Result<Option<Arc<OpenTree>>> {
        match self.entry(cx, name)? {
            Some(entry) if !entry.dropping => self.open(system, cx, name, OpenFor::Engine),
            _ => Ok(None),
        }
    }

    /// Makes room for `more` pinned roots, by freeing trees without a name and closing others that
    /// are not in use.
    pub fn make_room(
        &mut self,
        system: &TxnSystem,
        cx: &Context,
        more: usize,
        room: OpenFor,
    ) -> Result<()> {
        let limit = system.pool.frames() / FRAMES_PER_TREE;
        let forest = self.forest.clone();
        let missing = || (forest.len() + more).saturating_sub(limit + room.beyond());
        if missing() == 0 {
            return Ok(());
        }
        system.handles.release_all();
        self.free_nameless(system, cx)?;
        let idle = self.open_trees.take_idle(missing(), system.versions.horizon());
        tracing::debug!(trees = idle.len(), "closed, to make room for others");
        for large in idle.iter().filter_map(|open| open.large.get()) {
            self.large_ids.fetch_max(large.next_id(), Ordering::Relaxed);
        }
        drop(idle);
        match missing() {
            0 => Ok(()),
            _ => Err(Error::Limit(format!(
                "a pool of {} frames can keep at most {limit} trees open at a time, the catalog \
                 included, and handles or transactions hold all of them",
                system.pool.frames()
            ))),
        }
    }

    /// Opens a tree and that of its large values.
    pub fn load(
        &mut self,
        system: &TxnSystem,
        cx: &Context,
        name: &str,
        entry: TreeRecord,
        room: OpenFor,
    ) -> Result<OpenTree> {
        self.make_room(system, cx, 1 + usize::from(entry.chunks.0 != 0), room)?;
        let tree = btree::Tree::open(cx, &self.forest, entry.tree, entry.root)?;
        let open = OpenTree::new(TreeTag::new(entry.tree, name), tree);
        if entry.chunks.0 != 0 {
            let chunks = btree::Tree::open(cx, &self.forest, entry.chunks, entry.chunks_root)?;
            let store = if entry.dropping {
                // No value will be added, and the pages that are left may not form a tree.
                LargeStore { tree: chunks, next_id: AtomicU64::new(u64::MAX) }
            } else {
                let listed = listed(cx, &self.tree, Some(entry.chunks))?;
                let last = listed.iter().map(|(_, large, _)| large.id).max().unwrap_or(0);
                LargeStore::open(cx, chunks, last.max(self.large_ids.load(Ordering::Relaxed)))?
            };
            assert!(open.large.set(store).is_ok(), "just made");
        }
        Ok(open)
    }

    /// Creates the tree `name`, which has no record.
    pub fn create(
        &mut self,
        system: &TxnSystem,
        cx: &Context,
        name: &str,
    ) -> Result<Arc<OpenTree>> {
        let tree = self.create_at(system, cx, |_| tree_key(name))?;
        let id = tree.id();
        system.note_name(name);
        tracing::info!(tree = name, id = id.0, "created");
        Ok(self.open_trees.add(OpenTree::new(TreeTag::new(id, name), tree)))
    }

    /// Creates a tree, with its entry under the key that `key` makes of its id.
    pub fn create_at(
        &mut self,
        system: &TxnSystem,
        cx: &Context,
        key: impl FnOnce(TreeId) -> Vec<u8>,
    ) -> Result<btree::Tree> {
        self.make_room(system, cx, 1, OpenFor::User)?;
        let id = self.take_id()?;
        let key = key(id);
        btree::Tree::create_with(cx, &self.forest, id, |root, attach| {
            let none = (TreeId(0), PageId(0));
            let entry =
                TreeRecord { tree: id, root, chunks: none.0, chunks_root: none.1, dropping: false };
            let mut author = JoinedChange { attach, above: Gsn(0) };
            self.record_as(cx, &key, entry, Mode::Insert, &mut author)
        })
    }

    /// Frees the pages of a tree that is being dropped, and then its entry, which is under `key`.
    pub fn finish_drop(
        &mut self,
        cx: &Context,
        key: &[u8],
        entry: TreeRecord,
        open: OpenTree,
    ) -> Result<()> {
        let OpenTree { tag, tree, large, .. } = open;
        if let Some(LargeStore { tree: chunks, .. }) = large.into_inner() {
            let without = TreeRecord { chunks: TreeId(0), chunks_root: PageId(0), ..entry };
            // First: without the tree of the chunks nothing leads to these entries.
            let dropped = match self.unlist(cx, chunks.id()) {
                Ok(()) => chunks.drop_pages(cx, |above, attach| {
                    let mut author = JoinedChange { attach, above };
                    self.record_as(cx, key, without, Mode::Update, &mut author)
                }),
                Err(error) => Err((chunks, error)),
            };
            if let Err((_closed, error)) = dropped {
                self.half_dropped.insert(key.to_vec());
                return Err(error);
            }
        }
        let dropped = tree.drop_pages(cx, |above, attach| {
            let mut author = JoinedChange { attach, above };
            let removed = run(cx, |_| self.tree.remove_step(cx, key, &mut author))?;
            assert!(removed.0.existed, "a tree that is dropped is in the catalog");
            Ok(())
        });
        if let Err((_closed, error)) = dropped {
            self.half_dropped.insert(key.to_vec());
            return Err(error);
        }
        self.half_dropped.remove(key);
        // The record is gone already; a merge that fails only leaves a leaf emptier.
        if let Err(error) = run(cx, |_| self.tree.merge_step(cx, key, 0)) {
            tracing::warn!(%error, "a leaf of the catalog could not be merged");
        }
        self.open_trees.forget_name(tag.id);
        tracing::info!(tree = tag.name, id = tag.id.0, "dropped");
        Ok(())
    }

    /// Ends the drop of a tree that has failed before.
    pub fn go_on_dropping(&mut self, system: &TxnSystem, cx: &Context, key: &[u8]) -> Result<()> {
        let Some(entry) = self.entry_at(cx, key)?.filter(|entry| entry.dropping) else {
            self.half_dropped.remove(key);
            return Ok(());
        };
        let name = String::from_utf8_lossy(key).into_owned();
        let open = self.load(system, cx, &name, entry, OpenFor::Engine)?;
        self.finish_drop(cx, key, entry, open)
    }

    /// Keys of trees that are being dropped, and of those without a name.
    pub fn dropping(&self, cx: &Context) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        visit_trees(cx, &self.tree, &mut |name, entry| {
            if entry.dropping {
                keys.push(tree_key(name));
            }
            Ok(())
        })?;
        visit_nameless(cx, &self.tree, &mut |entry| {
            keys.push(nameless_key(entry.tree));
            Ok(())
        })?;
        Ok(keys)
    }

    /// Takes the large values of a tree off the list of those to be cleared away.
    pub fn unlist(&self, cx: &Context, chunks: TreeId) -> Result<()> {
        for (_, large, _) in listed(cx, &self.tree, Some(chunks))? {
            let key = garbage_key(chunks, large);
            run(cx, |_| self.tree.remove_step(cx, &key, &mut System))?;
        }
        Ok(())
    }
}
