//! The catalog: a tree that maps names of trees to their roots. One lock serialises all changes, and
//! opens and closes trees (`opened`).
//!
//! | key | value | what |
//! |---|---|---|
//! | `t` name | tree u32, tree of chunks u32, root u64, root of chunks u64, state u8 | a tree; state 1: it is being dropped |
//! | `g` tree of chunks u32, id u64 (big-endian) | length u64, and perhaps the key of a record | a large value to be cleared away, unless that record refers to it |
//!
//! A tree and its entry come into being by one record of the log. A drop begins by marking the entry
//! and ends by one record that takes the entry and the last page; in between the tree shrinks. So
//! whatever a crash leaves is finished when the store is opened again.

mod closed;
mod entry;
mod large;
mod opened;
mod state;

use crate::{engine::Core, store::CATALOG};
use entry::{Entry, NewRoot, TREE, Together, check_name, tree_key};
use opened::Opened;
use parking_lot::Mutex;
use state::State;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};
use wattle_btree::{
    self as btree, Attachment, Context, Cursor, Direction, EntryVisitor, Forest, Mode, Newest,
    Taken, TreeReport, Value, prefix_range, run,
};
use wattle_buffer::{Error, Gsn, PageId, Result, TreeId};

pub(crate) use closed::Closed;
pub use entry::MAX_TREE_NAME;
pub(crate) use large::LargeStore;
pub(crate) use opened::{OpenTree, Room, TreeTag};

/// What a record of the catalog attaches to itself.
type Attach<'a> = &'a mut dyn FnMut(&mut dyn Attachment);

/// The catalog and the trees that are open.
pub(crate) struct Catalog {
    state: Mutex<State>,
    opened: Arc<Opened>,
    tree: Arc<btree::Tree>,
    forest: Arc<Forest>,
    next_tree: Arc<AtomicU32>,
}

impl Catalog {
    pub fn new(forest: Arc<Forest>, tree: btree::Tree, next: TreeId) -> Catalog {
        let (tree, opened) = (Arc::new(tree), Arc::<Opened>::default());
        let next_tree = Arc::new(AtomicU32::new(next.0));
        let state = State {
            tree: tree.clone(),
            next_tree: next_tree.clone(),
            opened: opened.clone(),
            large_ids: AtomicU64::new(0),
            half_dropped: BTreeSet::new(),
        };
        Catalog { state: Mutex::new(state), opened, tree, forest, next_tree }
    }

    /// Root page of the catalog tree.
    pub fn root_page(&self) -> PageId {
        self.tree.root_page()
    }

    /// The next unused tree id. Without the lock, which is held while pages are read and written: an
    /// id that is taken just now is in the log of the checkpoint that asks.
    pub fn next_tree(&self) -> TreeId {
        TreeId(self.next_tree.load(Ordering::Relaxed))
    }

    /// The tree of the catalog, if that is what the id says.
    pub fn system_tree(&self, id: TreeId) -> Option<&btree::Tree> {
        (id == CATALOG).then_some(&*self.tree)
    }

    /// Opens the tree `name`; `None` when there is none.
    pub fn open(
        &self,
        core: &Core,
        cx: &Context,
        name: &str,
        room: Room,
    ) -> Result<Option<Arc<OpenTree>>> {
        // One that is open is not waited for, although a large tree may be dropped just now.
        if let Some(open) = self.opened.get(name) {
            return Ok(Some(open));
        }
        self.state.lock().open(core, cx, &self.forest, name, room)
    }

    /// Creates the tree `name`; an error when it exists.
    pub fn create(&self, core: &Core, cx: &Context, name: &str) -> Result<Arc<OpenTree>> {
        let mut state = self.state.lock();
        if state.open(core, cx, &self.forest, name, Room::User)?.is_some() {
            return Err(Error::TreeExists(name.to_string()));
        }
        state.create(core, cx, &self.forest, name)
    }

    /// Opens the tree `name`, creating it if need be.
    pub fn open_or_create(&self, core: &Core, cx: &Context, name: &str) -> Result<Arc<OpenTree>> {
        let mut state = self.state.lock();
        match state.open(core, cx, &self.forest, name, Room::User)? {
            Some(tree) => Ok(tree),
            None => state.create(core, cx, &self.forest, name),
        }
    }

    /// Names of all trees, sorted.
    pub fn names(&self, cx: &Context) -> Result<Vec<String>> {
        let _unchanged = self.state.lock();
        let mut names = Vec::new();
        visit_entries(cx, &self.tree, &mut |name, entry| {
            if !entry.dropping {
                names.push(name.to_string());
            }
        })?;
        Ok(names)
    }

    /// The names of the trees with these ids, or with chunks in trees with these ids; with those that
    /// are being dropped, or without. Reads the whole catalog, once.
    pub fn owners(
        &self,
        cx: &Context,
        ids: &BTreeSet<TreeId>,
        dropping: bool,
    ) -> Result<HashMap<TreeId, String>> {
        let mut names = HashMap::new();
        if ids.is_empty() {
            return Ok(names);
        }
        visit_entries(cx, &self.tree, &mut |name, entry| {
            for id in [entry.tree, entry.chunks] {
                if ids.contains(&id) && (dropping || !entry.dropping) {
                    names.insert(id, name.to_string());
                }
            }
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
        let _unchanged = self.state.lock();
        self.tree.verify(cx, stop, page, entry)
    }

    /// Gives a tree to which `tree` is the last handle another name.
    pub fn rename(
        &self,
        core: &Core,
        cx: &Context,
        tree: Arc<OpenTree>,
        name: &str,
    ) -> Result<Arc<OpenTree>> {
        check_name(name)?;
        let state = self.state.lock();
        if state.entry(cx, name)?.is_some() {
            return Err(Error::TreeExists(name.to_string()));
        }
        let open = match self.opened.take(tree) {
            Ok(open) => open,
            Err(tree) => {
                let in_use = Error::TreeInUse(tree.name().to_string());
                self.opened.put_back(tree);
                return Err(in_use);
            }
        };
        if let Err(error) = state.rename(core, cx, open.name(), name) {
            self.opened.put_back(Arc::new(open));
            return Err(error);
        }
        let tag = TreeTag::new(open.tag.id, name);
        Ok(self.opened.add(OpenTree { tag, ..open }))
    }

    /// Drops a tree to which `tree` is the last handle.
    pub fn drop_tree(&self, cx: &Context, tree: Arc<OpenTree>) -> Result<()> {
        let mut state = self.state.lock();
        let name = tree.name().to_string();
        // Before anything is given up that a failed read would lose.
        let Some(entry) = state.entry(cx, &name)? else {
            unreachable!("an open tree is in the catalog");
        };
        let open = match self.opened.take(tree) {
            Ok(open) => open,
            Err(tree) => {
                self.opened.put_back(tree);
                return Err(Error::TreeInUse(name));
            }
        };
        let entry = Entry { dropping: true, ..entry };
        if let Err(error) = state.record(cx, &name, entry, Mode::Update) {
            self.opened.put_back(Arc::new(open));
            return Err(error);
        }
        tracing::info!(tree = name, "dropping");
        state.finish_drop(cx, &name, entry, open)
    }

    /// Ends drops that failed while the store was open.
    pub fn go_on_dropping(&self, core: &Core, cx: &Context) -> Result<()> {
        let mut state = self.state.lock();
        let names = state.half_dropped.clone();
        names.iter().try_for_each(|name| state.go_on_dropping(core, cx, &self.forest, name))
    }

    /// Ends drops that a crash interrupted.
    pub fn finish_drops(&self, core: &Core, cx: &Context) -> Result<()> {
        let mut state = self.state.lock();
        let names = state.dropping(cx)?;
        names.iter().try_for_each(|name| state.go_on_dropping(core, cx, &self.forest, name))
    }

    /// Gives the root of an open tree, or that of its large values, the page `to`, and gives the old one.
    /// The caller has a handle, so the tree has its entry.
    pub fn move_root(
        &self,
        cx: &Context,
        open: &OpenTree,
        tree: &btree::Tree,
        to: PageId,
    ) -> Result<PageId> {
        let state = self.state.lock();
        let entry = state.entry(cx, open.name())?.filter(|entry| entry.tree == open.tag.id);
        let Some(mut entry) = entry else {
            let what = format!("the open tree {:?} is not in it", open.name());
            return Err(Error::corruption(self.root_page(), what));
        };
        match tree.id() == entry.tree {
            true => entry.root = to,
            false => entry.chunks_root = to,
        }
        let from = tree.root_page();
        let mut author = NewRoot { tree, from, to, root: None };
        let (key, bytes) = (tree_key(open.name()), entry.encode());
        run(cx, |restarts| {
            let value = Value::Inline(&bytes);
            let step = self.tree.write_step(cx, &key, value, Mode::Update, &mut author, restarts);
            // Whatever is waited for now: not with the latch of the root.
            author.root = None;
            step
        })?;
        cx.worker.pool().free_page_id(from);
        Ok(from)
    }

    /// The store of large values of `tree`, created if need be.
    pub fn large<'t>(
        &self,
        core: &Core,
        cx: &Context,
        tree: &'t OpenTree,
    ) -> Result<&'t LargeStore> {
        if let Some(large) = tree.large.get() {
            return Ok(large);
        }
        let mut state = self.state.lock();
        if let Some(large) = tree.large.get() {
            return Ok(large);
        }
        state.make_room(core, 1, Room::User)?;
        let id = state.take_id()?;
        let chunks = btree::Tree::create_with(cx, &self.forest, id, |chunks_root, attach| {
            let entry = Entry {
                tree: tree.tree.id(),
                root: tree.tree.root_page(),
                chunks: id,
                chunks_root,
                dropping: false,
            };
            let mut author = Together { attach, above: Gsn(0) };
            state.record_as(cx, tree.name(), entry, Mode::Update, &mut author)
        })?;
        let large = LargeStore::open(cx, chunks, 0)?;
        Ok(tree.large.get_or_init(|| large))
    }
}

/// Called for records of the catalog with key and value.
type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// Calls `visit` with all records of the catalog whose keys begin with `prefix`.
fn visit(cx: &Context, catalog: &btree::Tree, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
    let (low, high) = prefix_range(prefix);
    let mut cursor = Cursor::new(low, high, Direction::Forward);
    while cursor.is_loaded() || !cursor.is_at_end() {
        if !cursor.is_loaded() {
            run(cx, |_| cursor.load_step(catalog, &mut Newest))?;
        } else if cursor.take()? == Some(Taken::Inline) {
            visit(cursor.key(), cursor.value())?;
        }
    }
    Ok(())
}

/// Calls `found` with the names and entries of all trees, by name.
fn visit_entries(
    cx: &Context,
    catalog: &btree::Tree,
    found: &mut dyn FnMut(&str, Entry),
) -> Result<()> {
    let root = catalog.root_page();
    visit(cx, catalog, &[TREE], &mut |key, value| {
        let name = std::str::from_utf8(&key[1..])
            .map_err(|_| Error::corruption(root, "the name of a tree is not UTF-8"))?;
        found(name, Entry::decode(value, root)?);
        Ok(())
    })
}
