//! The catalog as the engine uses it: opens, creates and drops trees.

use super::{
    LargeStore, OpenFor, OpenTree, TreeTag,
    authors::{JoinedChange, RootMove},
    locked::LockedCatalog,
    open_trees::OpenTrees,
    record::{TreeRecord, is_key_of_tree, tree_key, visit_trees},
};
use crate::{store::CATALOG, txn::TxnSystem};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};
use wattle_btree::{self as btree, Context, EntryVisitor, Forest, Mode, TreeReport, Value, run};
use wattle_buffer::{Error, Gsn, PageId, Result, TreeId};

/// Longest wait for the lock of the catalog on behalf of garbage.
const MOST_WAIT: Duration = Duration::from_millis(50);

/// The catalog and the trees that are open.
pub(crate) struct Catalog {
    pub(super) locked: Mutex<LockedCatalog>,
    pub(super) open_trees: Arc<OpenTrees>,
    pub(super) tree: Arc<btree::Tree>,
    next_tree: Arc<AtomicU32>,
}

impl Catalog {
    pub fn new(forest: Arc<Forest>, tree: btree::Tree, next: TreeId) -> Catalog {
        let (tree, open_trees) = (Arc::new(tree), Arc::<OpenTrees>::default());
        let next_tree = Arc::new(AtomicU32::new(next.0));
        let locked = LockedCatalog {
            tree: tree.clone(),
            forest,
            next_tree: next_tree.clone(),
            open_trees: open_trees.clone(),
            large_ids: AtomicU64::new(0),
            nameless: Vec::new(),
            half_dropped: BTreeSet::new(),
        };
        Catalog { locked: Mutex::new(locked), open_trees, tree, next_tree }
    }

    /// Root page of the catalog tree.
    pub fn root_page(&self) -> PageId {
        self.tree.root_page()
    }

    /// The next unused tree id. Without the lock, which is held while pages are read and written:
    /// an id that is taken just now is in the log of the checkpoint that asks.
    pub fn next_tree(&self) -> TreeId {
        TreeId(self.next_tree.load(Ordering::Relaxed))
    }

    /// Whether a record of the catalog with this key is the entry of a tree.
    pub fn has_tree_under(key: &[u8]) -> bool {
        is_key_of_tree(key)
    }

    /// The tree of the catalog, if `id` is its id.
    pub fn system_tree(&self, id: TreeId) -> Option<&btree::Tree> {
        (id == CATALOG).then_some(&*self.tree)
    }

    /// Opens the tree `name`; `None` when there is none.
    pub fn open(
        &self,
        system: &TxnSystem,
        cx: &Context,
        name: &str,
        room: OpenFor,
    ) -> Result<Option<Arc<OpenTree>>> {
        // An open tree is found without the lock, which the drop of a large tree holds for long.
        if let Some(open) = self.open_trees.get(name) {
            return Ok(Some(open));
        }
        self.locked.lock().open(system, cx, name, room)
    }

    /// As [`Catalog::open`], for a transaction: the tree of that name in its snapshot. Under the
    /// lock, so that a transaction that is committing has changed all of its names, or none.
    ///
    /// # Errors
    /// [`Error::Conflict`] when another transaction has changed the name after the snapshot.
    pub fn open_at(
        &self,
        system: &TxnSystem,
        cx: &Context,
        name: &str,
        snapshot: u64,
    ) -> Result<Option<Arc<OpenTree>>> {
        let mut state = self.locked.lock();
        system.names.check(name, snapshot)?;
        state.open(system, cx, name, OpenFor::User)
    }

    /// Creates the tree `name`; an error when it exists.
    pub fn create(&self, system: &TxnSystem, cx: &Context, name: &str) -> Result<Arc<OpenTree>> {
        let mut state = self.locked.lock();
        if state.open(system, cx, name, OpenFor::User)?.is_some() {
            return Err(Error::TreeExists(name.to_string()));
        }
        state.create(system, cx, name)
    }

    /// Opens the tree `name`, creating it if need be.
    pub fn open_or_create(
        &self,
        system: &TxnSystem,
        cx: &Context,
        name: &str,
    ) -> Result<Arc<OpenTree>> {
        let mut state = self.locked.lock();
        match state.open(system, cx, name, OpenFor::User)? {
            Some(tree) => Ok(tree),
            None => state.create(system, cx, name),
        }
    }

    /// Names of all trees, sorted.
    pub fn names(&self, cx: &Context) -> Result<Vec<String>> {
        let _unchanged = self.locked.lock();
        let mut names = Vec::new();
        visit_trees(cx, &self.tree, &mut |name, entry| {
            if !entry.dropping {
                names.push(name.to_string());
            }
            Ok(())
        })?;
        Ok(names)
    }

    /// The names of the trees with these ids, or with chunks in trees with these ids; with those
    /// that are being dropped, or without. Reads the whole catalog, once.
    pub fn owners(
        &self,
        cx: &Context,
        ids: &BTreeSet<TreeId>,
        dropping: bool,
    ) -> Result<HashMap<TreeId, String>> {
        self.owners_until(cx, ids, dropping, &|| false)
    }

    /// As [`Catalog::owners`].
    ///
    /// # Errors
    /// [`Error::Interrupted`] when `is_stopped` at the next tree.
    pub fn owners_until(
        &self,
        cx: &Context,
        ids: &BTreeSet<TreeId>,
        dropping: bool,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<HashMap<TreeId, String>> {
        let mut names = HashMap::new();
        if ids.is_empty() {
            return Ok(names);
        }
        visit_trees(cx, &self.tree, &mut |name, entry| {
            for id in [entry.tree, entry.chunks] {
                if ids.contains(&id) && (dropping || !entry.dropping) {
                    names.insert(id, name.to_string());
                }
            }
            if is_stopped() { Err(Error::Interrupted) } else { Ok(()) }
        })?;
        Ok(names)
    }

    /// Checks the tree of the catalog itself.
    pub fn verify_catalog(
        &self,
        cx: &Context,
        stop: &AtomicBool,
        page: &mut dyn FnMut(PageId),
        entry: EntryVisitor<'_>,
    ) -> Result<TreeReport> {
        let _unchanged = self.locked.lock();
        self.tree.verify(cx, stop, page, entry)
    }

    /// Drops a tree to which `tree` is the last handle.
    pub fn drop_tree(&self, system: &TxnSystem, cx: &Context, tree: Arc<OpenTree>) -> Result<()> {
        let mut state = self.locked.lock();
        check_named(&tree)?;
        let name = tree.name().to_string();
        // First, because this read may fail and the handles are still in place.
        let Some(entry) = state.entry(cx, &name)? else {
            unreachable!("an open tree is in the catalog");
        };
        let open = match self.open_trees.take(tree) {
            Ok(open) => open,
            Err(tree) => {
                self.open_trees.put_back(tree);
                return Err(Error::TreeInUse(name));
            }
        };
        let entry = TreeRecord { dropping: true, ..entry };
        let key = tree_key(&name);
        if let Err(error) = state.record(cx, &key, entry, Mode::Update) {
            self.open_trees.put_back(Arc::new(open));
            return Err(error);
        }
        system.note_name(&name);
        tracing::info!(tree = name, "dropping");
        state.finish_drop(cx, &key, entry, open)
    }

    /// Ends drops that failed while the store was open.
    pub fn go_on_dropping(&self, system: &TxnSystem, cx: &Context) -> Result<()> {
        let mut state = self.locked.lock();
        let keys = state.half_dropped.clone();
        keys.iter().try_for_each(|key| state.end_drop(system, cx, key))
    }

    /// Ends drops that a crash interrupted, and drops the trees that have no name. Called while
    /// nothing else runs.
    pub fn finish_drops(&self, system: &TxnSystem, cx: &Context) -> Result<()> {
        let mut state = self.locked.lock();
        let keys = state.dropping(cx)?;
        keys.iter().try_for_each(|key| state.end_drop(system, cx, key))
    }

    /// Gives the root of an open tree, or that of its large values, the page `to`, and gives the
    /// old one. The caller has a handle, so the tree has its entry.
    pub fn move_root(
        &self,
        cx: &Context,
        open: &OpenTree,
        tree: &btree::Tree,
        to: PageId,
    ) -> Result<PageId> {
        let state = self.locked.lock();
        let key = open.entry_key();
        let entry = state.entry_at(cx, &key)?.filter(|entry| entry.tree == open.tag.id);
        let Some(mut entry) = entry else {
            let what = format!("the open tree {:?} is not in it", open.name());
            return Err(Error::corruption(self.root_page(), what));
        };
        match tree.id() == entry.tree {
            true => entry.root = to,
            false => entry.chunks_root = to,
        }
        let from = tree.root_page();
        let mut author = RootMove { tree, from, to, root: None };
        let bytes = entry.encode();
        run(cx, |restarts| {
            let value = Value::Inline(&bytes);
            let step = self.tree.write_step(cx, &key, value, Mode::Update, &mut author, restarts);
            // The step may wait now, and must not hold the latch of the root.
            author.root = None;
            step
        })?;
        cx.worker.pool().free_page_id(from);
        Ok(from)
    }

    /// The store of large values of `tree`, created if need be.
    pub fn large<'t>(
        &self,
        system: &TxnSystem,
        cx: &Context,
        tree: &'t OpenTree,
    ) -> Result<&'t LargeStore> {
        if let Some(large) = tree.large.get() {
            return Ok(large);
        }
        let mut state = self.locked.lock();
        if let Some(large) = tree.large.get() {
            return Ok(large);
        }
        state.make_room(system, cx, 1, OpenFor::User)?;
        let (id, key) = (state.take_id()?, tree.entry_key());
        let chunks = btree::Tree::create_with(cx, &state.forest, id, |chunks_root, attach| {
            let entry = TreeRecord {
                tree: tree.tree.id(),
                root: tree.tree.root_page(),
                chunks: id,
                chunks_root,
                dropping: false,
            };
            let mut author = JoinedChange { attach, above: Gsn(0) };
            state.record_as(cx, &key, entry, Mode::Update, &mut author)
        })?;
        let large = LargeStore::open(cx, chunks, 0)?;
        Ok(tree.large.get_or_init(|| large))
    }

    /// Opens the tree of some garbage; none if it was dropped. Waits for a short time only: other
    /// threads may need the caller to go on.
    ///
    /// # Errors
    /// [`Error::Limit`] when the catalog is in use for long, as by the drop of a large tree, or
    /// when there is no room for one more open tree.
    pub fn reopen(
        &self,
        system: &TxnSystem,
        cx: &Context,
        tag: &TreeTag,
    ) -> Result<Option<Arc<OpenTree>>> {
        if let Some(open) = self.open_trees.get_tagged(tag) {
            return Ok(Some(open));
        }
        let mut state = self.lock_for_garbage()?;
        // Under the lock, so that it has this name until it is open.
        let name = self.open_trees.name_of(tag);
        let open = state.open_to_clear(system, cx, &name)?;
        Ok(open.filter(|open| open.tag.id == tag.id))
    }

    /// As [`Catalog::reopen`], for the tree `id` or that of its large values.
    ///
    /// # Errors
    /// As [`Catalog::reopen`].
    pub fn reopen_owner(
        &self,
        system: &TxnSystem,
        cx: &Context,
        name: &str,
        id: TreeId,
    ) -> Result<Option<Arc<OpenTree>>> {
        let open = match self.open_trees.get(name) {
            Some(open) => Some(open),
            None => self.lock_for_garbage()?.open_to_clear(system, cx, name)?,
        };
        Ok(open.filter(|open| open.tree_of(id).is_some()))
    }

    /// The lock, for a caller that other threads may be waiting for.
    pub(super) fn lock_for_garbage(&self) -> Result<MutexGuard<'_, LockedCatalog>> {
        let changed = || Error::Limit("the catalog is being changed".to_string());
        self.locked.try_lock_for(MOST_WAIT).ok_or_else(changed)
    }
}

/// Fails for the handle of a tree that has no name: a transaction is creating it, or it is gone.
pub(super) fn check_named(tree: &OpenTree) -> Result<()> {
    let name = tree.name().to_string();
    match tree.closed.is_dropped() {
        _ if !tree.is_nameless() => Ok(()),
        true => Err(Error::NoSuchTree(name)),
        false => Err(Error::TreeInUse(name)),
    }
}
