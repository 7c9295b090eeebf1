//! The catalog: a tree that maps names of trees to their roots. One lock serialises all changes;
//! opened trees stay open until the engine is closed or they are dropped.

use crate::engine::Core;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};
use wattle_btree::{
    self as btree, Cursor, Direction, Forest, Found, LargeValue, Mode, TreeReport, Value, Visit,
    chunk_id, run,
};
use wattle_buffer::{Error, PageId, Result, TreeId, Worker};

/// Longest name of a tree, bytes.
pub const MAX_TREE_NAME: usize = 255;
/// Tree id of the catalog.
pub const CATALOG: TreeId = TreeId(1);
/// First id of a named tree.
pub const FIRST_TREE: TreeId = TreeId(2);

/// Record of a tree: its id and root, and those of the tree of its large values (id 0: none yet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tree: TreeId,
    root: PageId,
    chunks: TreeId,
    chunks_root: PageId,
}

impl Entry {
    fn encode(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..4].copy_from_slice(&self.tree.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.chunks.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.root.0.to_le_bytes());
        bytes[16..].copy_from_slice(&self.chunks_root.0.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], catalog: PageId) -> Result<Entry> {
        let bytes: &[u8; 24] = bytes
            .try_into()
            .map_err(|_| Error::corruption(catalog, "an entry of the catalog has a wrong size"))?;
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8"));
        Ok(Entry {
            tree: TreeId(u32_at(0)),
            chunks: TreeId(u32_at(4)),
            root: PageId(u64_at(8)),
            chunks_root: PageId(u64_at(16)),
        })
    }
}

/// Chunks of the large values of one tree.
pub(crate) struct LargeStore {
    pub tree: btree::Tree,
    next_id: AtomicU64,
}

impl LargeStore {
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens the tree; the next id is above all that are in it.
    fn open(worker: &Worker, tree: btree::Tree) -> Result<LargeStore> {
        let unbounded = std::ops::Bound::Unbounded;
        let mut cursor = Cursor::new(unbounded.clone(), unbounded, Direction::Backward);
        while !cursor.is_loaded() && !cursor.is_at_end() {
            run(worker, |_| cursor.load_step(&tree))?;
        }
        let last = if cursor.is_loaded() { chunk_id(cursor.take()?.0) } else { None };
        Ok(LargeStore { tree, next_id: AtomicU64::new(last.map_or(1, |id| id + 1)) })
    }
}

/// An open tree.
pub(crate) struct OpenTree {
    pub name: String,
    pub tree: btree::Tree,
    pub large: OnceLock<LargeStore>,
}

/// The catalog and the trees opened so far.
pub(crate) struct Catalog {
    state: Mutex<State>,
    forest: Arc<Forest>,
}

struct State {
    worker: Worker,
    tree: btree::Tree,
    next_tree: TreeId,
    open: BTreeMap<String, Arc<OpenTree>>,
}

impl Catalog {
    pub fn new(worker: Worker, forest: Arc<Forest>, tree: btree::Tree, next: TreeId) -> Catalog {
        let state = State { worker, tree, next_tree: next, open: BTreeMap::new() };
        Catalog { state: Mutex::new(state), forest }
    }

    /// Root page of the catalog tree and the next unused tree id.
    pub fn roots(&self) -> (PageId, TreeId) {
        let state = self.state.lock();
        (state.tree.root_page(), state.next_tree)
    }

    /// Gives up what the worker of the catalog holds in reserve.
    pub fn release(&self) {
        self.state.lock().worker.release();
    }

    /// Opens the tree `name`; `None` when there is none.
    pub fn open(&self, core: &Core, name: &str) -> Result<Option<Arc<OpenTree>>> {
        self.state.lock().open(core, &self.forest, name)
    }

    /// Creates the tree `name`; an error when it exists.
    pub fn create(&self, core: &Core, name: &str) -> Result<Arc<OpenTree>> {
        let mut state = self.state.lock();
        if state.open(core, &self.forest, name)?.is_some() {
            return Err(Error::TreeExists(name.to_string()));
        }
        state.create(core, &self.forest, name)
    }

    /// Opens the tree `name`, creating it if need be.
    pub fn open_or_create(&self, core: &Core, name: &str) -> Result<Arc<OpenTree>> {
        let mut state = self.state.lock();
        match state.open(core, &self.forest, name)? {
            Some(tree) => Ok(tree),
            None => state.create(core, &self.forest, name),
        }
    }

    /// Names of all trees, sorted.
    pub fn names(&self) -> Result<Vec<String>> {
        self.state.lock().names()
    }

    /// Checks the tree of the catalog itself.
    pub fn verify_catalog(
        &self,
        page: &mut dyn FnMut(PageId),
        entry: &mut Visit<'_>,
    ) -> Result<TreeReport> {
        let state = self.state.lock();
        state.tree.verify(&state.worker, page, entry)
    }

    /// Drops a tree to which `tree` is the last handle.
    pub fn drop_tree(&self, tree: Arc<OpenTree>) -> Result<()> {
        let mut state = self.state.lock();
        let name = tree.name.clone();
        state.open.remove(&name);
        let open = match Arc::try_unwrap(tree) {
            Ok(open) => open,
            Err(tree) => {
                state.open.insert(name.clone(), tree);
                return Err(Error::TreeInUse(name));
            }
        };
        let (written, underfull) = run(&state.worker, |_| state.tree.remove_step(name.as_bytes()))?;
        assert!(written.existed, "an open tree is in the catalog");
        if underfull {
            run(&state.worker, |_| state.tree.merge_step(&state.worker, name.as_bytes(), 0))?;
        }
        tracing::info!(tree = name, "dropped");
        let large = open.large.into_inner();
        let outcome = open.tree.drop_pages(&state.worker);
        let large = large.map_or(Ok(()), |large| large.tree.drop_pages(&state.worker));
        outcome.and(large)
    }

    /// The store of large values of `tree`, created if need be.
    pub fn large<'t>(&self, core: &Core, tree: &'t OpenTree) -> Result<&'t LargeStore> {
        if let Some(large) = tree.large.get() {
            return Ok(large);
        }
        let mut state = self.state.lock();
        if let Some(large) = tree.large.get() {
            return Ok(large);
        }
        core.check_open_trees(1)?;
        let id = state.take_id()?;
        let chunks = btree::Tree::create(&state.worker, &self.forest, id)?;
        let entry = Entry {
            tree: tree.tree.id(),
            root: tree.tree.root_page(),
            chunks: id,
            chunks_root: chunks.root_page(),
        };
        if let Err(error) = state.record(&tree.name, entry, Mode::Update) {
            chunks.drop_pages(&state.worker)?;
            return Err(error);
        }
        let large = LargeStore::open(&state.worker, chunks)?;
        Ok(tree.large.get_or_init(|| large))
    }
}

impl State {
    fn take_id(&mut self) -> Result<TreeId> {
        let id = self.next_tree;
        // The last id stands for pages without a tree.
        if id.0 >= u32::MAX - 1 {
            return Err(Error::Limit("the store has used up its 2^32 tree ids".to_string()));
        }
        self.next_tree = TreeId(id.0 + 1);
        Ok(id)
    }

    fn record(&self, name: &str, entry: Entry, mode: Mode) -> Result<()> {
        let bytes = entry.encode();
        run(&self.worker, |restarts| {
            let value = Value::Inline(&bytes);
            self.tree.write_step(&self.worker, name.as_bytes(), value, mode, restarts)
        })?;
        Ok(())
    }

    fn open(
        &mut self,
        core: &Core,
        forest: &Arc<Forest>,
        name: &str,
    ) -> Result<Option<Arc<OpenTree>>> {
        if !(1..=MAX_TREE_NAME).contains(&name.len()) {
            return Err(Error::InvalidTreeName { len: name.len(), max: MAX_TREE_NAME });
        }
        if let Some(tree) = self.open.get(name) {
            return Ok(Some(tree.clone()));
        }
        let mut bytes = Vec::new();
        let found = run(&self.worker, |_| {
            bytes.clear();
            self.tree.get_step(name.as_bytes(), &mut bytes)
        })?;
        if found != Some(Found::Inline) {
            return Ok(None);
        }
        let entry = Entry::decode(&bytes, self.tree.root_page())?;
        core.check_open_trees(1 + usize::from(entry.chunks.0 != 0))?;
        let large = OnceLock::new();
        let tree = btree::Tree::open(&self.worker, forest, entry.tree, entry.root)?;
        if entry.chunks.0 != 0 {
            let chunks = btree::Tree::open(&self.worker, forest, entry.chunks, entry.chunks_root)?;
            let store = LargeStore::open(&self.worker, chunks)?;
            assert!(large.set(store).is_ok(), "just made");
        }
        Ok(Some(self.opened(name, tree, large)))
    }

    fn create(&mut self, core: &Core, forest: &Arc<Forest>, name: &str) -> Result<Arc<OpenTree>> {
        core.check_open_trees(1)?;
        let id = self.take_id()?;
        let tree = btree::Tree::create(&self.worker, forest, id)?;
        let entry =
            Entry { tree: id, root: tree.root_page(), chunks: TreeId(0), chunks_root: PageId(0) };
        if let Err(error) = self.record(name, entry, Mode::Insert) {
            tree.drop_pages(&self.worker)?;
            return Err(error);
        }
        tracing::info!(tree = name, id = id.0, "created");
        Ok(self.opened(name, tree, OnceLock::new()))
    }

    fn opened(
        &mut self,
        name: &str,
        tree: btree::Tree,
        large: OnceLock<LargeStore>,
    ) -> Arc<OpenTree> {
        let tree = Arc::new(OpenTree { name: name.to_string(), tree, large });
        self.open.insert(name.to_string(), tree.clone());
        tree
    }

    fn names(&self) -> Result<Vec<String>> {
        let unbounded = std::ops::Bound::Unbounded;
        let mut cursor = Cursor::new(unbounded.clone(), unbounded, Direction::Forward);
        let mut names = Vec::new();
        while cursor.is_loaded() || !cursor.is_at_end() {
            if !cursor.is_loaded() {
                run(&self.worker, |_| cursor.load_step(&self.tree))?;
                continue;
            }
            let (name, _, _): (_, _, Option<LargeValue>) = cursor.take()?;
            let name = String::from_utf8(name.to_vec()).map_err(|_| {
                Error::corruption(self.tree.root_page(), "the name of a tree is not UTF-8")
            })?;
            names.push(name);
        }
        Ok(names)
    }
}
