//! The catalog: a tree that maps names of trees to their roots. One lock serialises all changes;
//! opened trees stay open until the engine is closed or they are dropped.
//!
//! | key | value | what |
//! |---|---|---|
//! | `t` name | tree u32, tree of chunks u32, root u64, root of chunks u64, state u8 | a tree; state 1: it is being dropped |
//! | `g` tree of chunks u32, id u64 (big-endian) | length u64, and perhaps the key of a record | a large value to be cleared away, unless that record refers to it |
//!
//! A tree and its entry come into being by one record of the log. A drop begins by marking the entry
//! and ends by one record that takes the entry and the last page; in between the tree shrinks. So
//! whatever a crash leaves is finished when the store is opened again.

use crate::{engine::Core, txn::Garbage};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};
use wattle_btree::{
    self as btree, Attachment, Author, Context, Cursor, Direction, EntryVisitor, Forest, Found,
    LargeValue, Mode, Newest, Stop, System, Taken, TreeReport, Value, chunk_id, prefix_range, run,
};
use wattle_buffer::{Error, Exclusive, FrameHeader, Gsn, PageId, Pool, Result, TreeId};

/// Longest name of a tree, bytes.
pub const MAX_TREE_NAME: usize = 255;
/// Tree id of the catalog.
pub const CATALOG: TreeId = TreeId(1);
/// First id of a named tree.
pub const FIRST_TREE: TreeId = TreeId(2);

/// First byte of the key of a tree.
const TREE: u8 = b't';
/// First byte of the key of a large value to be cleared away.
const GARBAGE: u8 = b'g';
/// In the length of a large value on the list, where the key of the record that may refer to it is empty: without
/// it there is no such record. Others are told by their keys.
const EMPTY_KEY: u64 = 1 << 63;
/// The state of a tree that is being dropped.
const DROPPING: u8 = 1;

/// Record of a tree: its id and root, and those of the tree of its large values (id 0: none yet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tree: TreeId,
    root: PageId,
    chunks: TreeId,
    chunks_root: PageId,
    dropping: bool,
}

impl Entry {
    fn encode(self) -> [u8; 25] {
        let mut bytes = [0; 25];
        bytes[..4].copy_from_slice(&self.tree.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.chunks.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.root.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.chunks_root.0.to_le_bytes());
        bytes[24] = if self.dropping { DROPPING } else { 0 };
        bytes
    }

    fn decode(bytes: &[u8], catalog: PageId) -> Result<Entry> {
        let bytes: &[u8; 25] = bytes
            .try_into()
            .map_err(|_| Error::corruption(catalog, "an entry of the catalog has a wrong size"))?;
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8"));
        Ok(Entry {
            tree: TreeId(u32_at(0)),
            chunks: TreeId(u32_at(4)),
            root: PageId(u64_at(8)),
            chunks_root: PageId(u64_at(16)),
            dropping: bytes[24] == DROPPING,
        })
    }
}

fn tree_key(name: &str) -> Vec<u8> {
    [&[TREE], name.as_bytes()].concat()
}

fn garbage_key(chunks: TreeId, large: LargeValue) -> [u8; 13] {
    let mut key = [GARBAGE; 13];
    key[1..5].copy_from_slice(&chunks.0.to_be_bytes());
    key[5..].copy_from_slice(&large.id.to_be_bytes());
    key
}

/// What a record of the catalog attaches to itself.
type Attach<'a> = &'a mut dyn FnMut(&mut dyn Attachment);

/// A change of the catalog that happens together with something else.
struct Together<'a> {
    attach: Attach<'a>,
    above: Gsn,
}

impl Author for Together<'_> {
    fn txn(&self) -> u64 {
        0
    }

    fn is_auto(&self) -> bool {
        true
    }

    fn done(&mut self, _: &Exclusive<'_>, _: &[u8]) {}

    fn attached_gsn(&self, pool: &Pool) -> Gsn {
        self.above.max(pool.allocator().freed_gsn())
    }

    fn attach(&mut self, record: &mut dyn Attachment) {
        (self.attach)(record);
    }
}

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
    next_id: AtomicU64,
}

impl LargeStore {
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens the tree; the next id is above all that are in it or are to be cleared away.
    fn open(cx: &Context, tree: btree::Tree, listed: u64) -> Result<LargeStore> {
        match last_id(cx, &tree) {
            Ok(last) => {
                let next = last.map_or(1, |id| id.saturating_add(1)).max(listed + 1);
                Ok(LargeStore { tree, next_id: AtomicU64::new(next) })
            }
            Err(error) => {
                // Otherwise its root would keep a frame, and the next attempt take another.
                tree.unload();
                Err(error)
            }
        }
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

/// An open tree.
pub(crate) struct OpenTree {
    pub name: String,
    pub tree: btree::Tree,
    pub large: OnceLock<LargeStore>,
    pub closed: Closed,
}

/// A tree that one transaction has for itself, because it changes more than versions can be kept of.
///
/// The transaction closes the tree before the first change without a version. From then on others
/// cannot change records of it, and those who would need to know what a record was before get an
/// error; pages that did not change since their snapshot are read as ever. After its commit this
/// still holds for older snapshots. Changes that others began before the tree was closed have
/// versions, so the transaction meets them as conflicts.
#[derive(Default)]
pub(crate) struct Closed {
    /// The transaction, 0 for none.
    owner: AtomicU64,
    /// Snapshots below this time cannot be told what they would see.
    until: AtomicU64,
}

impl Closed {
    /// Closes the tree for others; false when it is closed by another.
    pub fn close(&self, txn: u64) -> bool {
        let owner = self.owner.compare_exchange(0, txn, Ordering::SeqCst, Ordering::SeqCst);
        owner.is_ok() || owner == Err(txn)
    }

    /// Whether another transaction than `txn` has the tree for itself.
    #[inline]
    pub fn is_closed_to(&self, txn: u64) -> bool {
        let owner = self.owner.load(Ordering::Acquire);
        owner != 0 && owner != txn
    }

    /// Whether `txn` has the tree for itself.
    #[inline]
    pub fn is_owned_by(&self, txn: u64) -> bool {
        self.owner.load(Ordering::Relaxed) == txn
    }

    /// Whether a reader of this transaction (0: none) and snapshot cannot be told what it would see.
    pub fn hides_from(&self, txn: u64, snapshot: u64) -> bool {
        self.is_closed_to(txn) || snapshot < self.until.load(Ordering::Acquire)
    }

    /// The time of the last such transaction, if it is above `snapshot`: of records that have no
    /// versions, it is not known whether that changed them.
    pub fn hidden_since(&self, snapshot: u64) -> Option<u64> {
        Some(self.until.load(Ordering::Acquire)).filter(|until| *until > snapshot)
    }

    /// The time of the last such transaction, if it is within `snapshot`.
    pub fn last_within(&self, snapshot: u64) -> u64 {
        Some(self.until.load(Ordering::Acquire)).filter(|until| *until <= snapshot).unwrap_or(0)
    }

    /// Nobody has the tree for itself, and whoever had is within every snapshot at or above
    /// `horizon`.
    pub fn is_over(&self, horizon: u64) -> bool {
        !self.is_closed_to(0) && self.until.load(Ordering::Acquire) <= horizon
    }

    /// The transaction has ended: committed at `time`, or rolled back (0).
    pub fn open(&self, txn: u64, time: u64) {
        if self.is_owned_by(txn) {
            self.until.fetch_max(time, Ordering::SeqCst);
            self.owner.store(0, Ordering::SeqCst);
        }
    }
}

impl OpenTree {
    /// The tree itself, or that of its large values.
    pub fn tree_of(&self, id: TreeId) -> Option<&btree::Tree> {
        if self.tree.id() == id {
            return Some(&self.tree);
        }
        self.large.get().map(|large| &large.tree).filter(|tree| tree.id() == id)
    }
}

/// The catalog and the trees opened so far.
pub(crate) struct Catalog {
    state: Mutex<State>,
    tree: Arc<btree::Tree>,
    forest: Arc<Forest>,
    next_tree: Arc<AtomicU32>,
}

struct State {
    tree: Arc<btree::Tree>,
    next_tree: Arc<AtomicU32>,
    open: BTreeMap<String, Arc<OpenTree>>,
    /// What is left of trees of which the drop failed on the way, with their entries.
    half_dropped: BTreeMap<String, (Entry, OpenTree)>,
}

impl Catalog {
    pub fn new(forest: Arc<Forest>, tree: btree::Tree, next: TreeId) -> Catalog {
        let tree = Arc::new(tree);
        let next_tree = Arc::new(AtomicU32::new(next.0));
        let (open, half_dropped) = (BTreeMap::new(), BTreeMap::new());
        let state = State { tree: tree.clone(), next_tree: next_tree.clone(), open, half_dropped };
        Catalog { state: Mutex::new(state), tree, forest, next_tree }
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

    /// An open tree by its id, or by that of its large values.
    pub fn find(&self, id: TreeId) -> Option<Arc<OpenTree>> {
        let state = self.state.lock();
        state.open.values().find(|open| open.tree_of(id).is_some()).cloned()
    }

    /// Opens the tree `name`; `None` when there is none.
    pub fn open(&self, core: &Core, cx: &Context, name: &str) -> Result<Option<Arc<OpenTree>>> {
        self.state.lock().open(core, cx, &self.forest, name)
    }

    /// Creates the tree `name`; an error when it exists.
    pub fn create(&self, core: &Core, cx: &Context, name: &str) -> Result<Arc<OpenTree>> {
        let mut state = self.state.lock();
        if state.open(core, cx, &self.forest, name)?.is_some() {
            return Err(Error::TreeExists(name.to_string()));
        }
        state.create(core, cx, &self.forest, name)
    }

    /// Opens the tree `name`, creating it if need be.
    pub fn open_or_create(&self, core: &Core, cx: &Context, name: &str) -> Result<Arc<OpenTree>> {
        let mut state = self.state.lock();
        match state.open(core, cx, &self.forest, name)? {
            Some(tree) => Ok(tree),
            None => state.create(core, cx, &self.forest, name),
        }
    }

    /// Names of all trees, sorted.
    pub fn names(&self, cx: &Context) -> Result<Vec<String>> {
        self.state.lock().names(cx)
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
        let mut state = self.state.lock();
        if state.entry(cx, name)?.is_some() {
            return Err(Error::TreeExists(name.to_string()));
        }
        let old = tree.name.clone();
        state.open.remove(&old);
        let open = match Arc::try_unwrap(tree) {
            Ok(open) => open,
            Err(tree) => {
                state.open.insert(old.clone(), tree);
                return Err(Error::TreeInUse(old));
            }
        };
        let renamed = state.rename(core, cx, &old, name);
        let name = if renamed.is_ok() { name.to_string() } else { old };
        let open = Arc::new(OpenTree { name: name.clone(), ..open });
        state.open.insert(name, open.clone());
        renamed.map(|()| open)
    }

    /// Drops a tree to which `tree` is the last handle.
    pub fn drop_tree(&self, cx: &Context, tree: Arc<OpenTree>) -> Result<()> {
        let mut state = self.state.lock();
        let name = tree.name.clone();
        // Before anything is given up that a failed read would lose.
        let Some(entry) = state.entry(cx, &name)? else {
            unreachable!("an open tree is in the catalog");
        };
        state.open.remove(&name);
        let open = match Arc::try_unwrap(tree) {
            Ok(open) => open,
            Err(tree) => {
                state.open.insert(name.clone(), tree);
                return Err(Error::TreeInUse(name));
            }
        };
        let entry = Entry { dropping: true, ..entry };
        if let Err(error) = state.record(cx, &name, entry, Mode::Update) {
            state.open.insert(name, Arc::new(open));
            return Err(error);
        }
        tracing::info!(tree = name, "dropping");
        state.finish_drop(cx, &name, entry, open)
    }

    /// Ends drops that failed while the store was open.
    pub fn go_on_dropping(&self, cx: &Context) -> Result<()> {
        let mut state = self.state.lock();
        let names: Vec<String> = state.half_dropped.keys().cloned().collect();
        names.iter().try_for_each(|name| state.go_on_dropping(cx, name))
    }

    /// Ends drops that a crash interrupted.
    pub fn finish_drops(&self, core: &Core, cx: &Context) -> Result<()> {
        let mut state = self.state.lock();
        for (name, entry) in state.entries(cx)? {
            if entry.dropping {
                let open = state.load(core, cx, &self.forest, &name, entry)?;
                state.finish_drop(cx, &name, entry, open)?;
            }
        }
        Ok(())
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
        core.check_open_trees(1)?;
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
            state.record_as(cx, &tree.name, entry, Mode::Update, &mut author)
        })?;
        let large = LargeStore::open(cx, chunks, 0)?;
        Ok(tree.large.get_or_init(|| large))
    }

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

    /// All large values that are listed, of trees that are open or can be opened; those that a
    /// record refers to are taken off the list instead. For when nothing else runs.
    pub fn listed_garbage(&self, core: &Core, cx: &Context) -> Result<Vec<Garbage>> {
        let listed = self.state.lock().listed(cx, &self.tree)?;
        let mut garbage = Vec::new();
        for (chunks, large, owner) in listed {
            let Some(tree) = self.owner_of(core, cx, chunks)? else {
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
                _ => garbage.push(Garbage::Large(tree, large)),
            }
        }
        Ok(garbage)
    }

    /// Trees of chunks for which something is listed, but which no tree has.
    pub fn listed_without_owner(&self, cx: &Context) -> Result<Vec<TreeId>> {
        let state = self.state.lock();
        let entries = state.entries(cx)?;
        let listed = state.listed(cx, &self.tree)?.into_iter().map(|(chunks, ..)| chunks);
        let is_owned = |chunks: &TreeId| entries.iter().any(|(_, entry)| entry.chunks == *chunks);
        Ok(listed.filter(|chunks| !is_owned(chunks)).collect())
    }

    /// Ids of the large values that are listed, with the tree of their chunks.
    pub fn listed_ids(&self, cx: &Context) -> Result<Vec<(TreeId, u64)>> {
        let listed = self.state.lock().listed(cx, &self.tree)?;
        Ok(listed.into_iter().map(|(chunks, large, _)| (chunks, large.id)).collect())
    }

    fn owner_of(&self, core: &Core, cx: &Context, chunks: TreeId) -> Result<Option<Arc<OpenTree>>> {
        if let Some(open) = self.find(chunks) {
            return Ok(Some(open));
        }
        let mut state = self.state.lock();
        let entries = state.entries(cx)?;
        let owner = entries.into_iter().find(|(_, entry)| entry.chunks == chunks);
        match owner {
            Some((name, _)) => state.open(core, cx, &self.forest, &name),
            None => Ok(None),
        }
    }

    /// Opens the tree that has this id, or whose large values have.
    pub fn open_id(&self, core: &Core, cx: &Context, id: TreeId) -> Result<Option<Arc<OpenTree>>> {
        if let Some(open) = self.find(id) {
            return Ok(Some(open));
        }
        let mut state = self.state.lock();
        let entries = state.entries(cx)?;
        let owner = entries.into_iter().find(|(_, entry)| entry.tree == id || entry.chunks == id);
        match owner {
            // A drop that was begun frees the records anyway.
            Some((_, entry)) if entry.dropping => Ok(None),
            Some((name, _)) => state.open(core, cx, &self.forest, &name),
            None => Ok(None),
        }
    }
}

/// Called for records of the catalog with key and value.
type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// A large value on the list: the tree of its chunks, and the key of a record that may refer to it.
type Listed = (TreeId, LargeValue, Option<Vec<u8>>);

fn check_name(name: &str) -> Result<()> {
    if (1..=MAX_TREE_NAME).contains(&name.len()) {
        return Ok(());
    }
    Err(Error::InvalidTreeName { len: name.len(), max: MAX_TREE_NAME })
}

impl State {
    fn take_id(&mut self) -> Result<TreeId> {
        let id = TreeId(self.next_tree.load(Ordering::Relaxed));
        // The last id stands for pages without a tree.
        if id.0 >= u32::MAX - 1 {
            return Err(Error::Limit("the store has used up its 2^32 tree ids".to_string()));
        }
        self.next_tree.store(id.0 + 1, Ordering::Relaxed);
        Ok(id)
    }

    fn record(&self, cx: &Context, name: &str, entry: Entry, mode: Mode) -> Result<()> {
        self.record_as(cx, name, entry, mode, &mut System)
    }

    fn record_as<A: Author>(
        &self,
        cx: &Context,
        name: &str,
        entry: Entry,
        mode: Mode,
        author: &mut A,
    ) -> Result<()> {
        let (key, bytes) = (tree_key(name), entry.encode());
        run(cx, |restarts| {
            self.tree.write_step(cx, &key, Value::Inline(&bytes), mode, author, restarts)
        })?;
        Ok(())
    }

    fn entry(&self, cx: &Context, name: &str) -> Result<Option<Entry>> {
        let (key, mut bytes) = (tree_key(name), Vec::new());
        let found = run(cx, |_| {
            bytes.clear();
            self.tree.get_step(&key, &mut Newest, &mut bytes)
        })?;
        match found {
            Some(Found::Inline) => Entry::decode(&bytes, self.tree.root_page()).map(Some),
            _ => Ok(None),
        }
    }

    /// Calls `visit` with all records whose keys begin with `prefix`.
    fn visit(&self, cx: &Context, prefix: u8, visit: Visit<'_>) -> Result<()> {
        let (low, high) = prefix_range(&[prefix]);
        let mut cursor = Cursor::new(low, high, Direction::Forward);
        while cursor.is_loaded() || !cursor.is_at_end() {
            if !cursor.is_loaded() {
                run(cx, |_| cursor.load_step(&self.tree, &mut Newest))?;
            } else if cursor.take()? == Some(Taken::Inline) {
                visit(cursor.key(), cursor.value())?;
            }
        }
        Ok(())
    }

    fn entries(&self, cx: &Context) -> Result<Vec<(String, Entry)>> {
        let mut entries = Vec::new();
        let root = self.tree.root_page();
        self.visit(cx, TREE, &mut |key, value| {
            let name = String::from_utf8(key[1..].to_vec())
                .map_err(|_| Error::corruption(root, "the name of a tree is not UTF-8"))?;
            entries.push((name, Entry::decode(value, root)?));
            Ok(())
        })?;
        Ok(entries)
    }

    fn names(&self, cx: &Context) -> Result<Vec<String>> {
        let entries = self.entries(cx)?.into_iter();
        Ok(entries.filter(|(_, entry)| !entry.dropping).map(|(name, _)| name).collect())
    }

    fn listed(&self, cx: &Context, catalog: &btree::Tree) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        let root = catalog.root_page();
        self.visit(cx, GARBAGE, &mut |key, value| {
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

    fn open(
        &mut self,
        core: &Core,
        cx: &Context,
        forest: &Arc<Forest>,
        name: &str,
    ) -> Result<Option<Arc<OpenTree>>> {
        check_name(name)?;
        if let Some(tree) = self.open.get(name) {
            return Ok(Some(tree.clone()));
        }
        let Some(entry) = self.entry(cx, name)? else { return Ok(None) };
        if entry.dropping {
            self.go_on_dropping(cx, name)?;
            return Ok(None);
        }
        let open = self.load(core, cx, forest, name, entry)?;
        Ok(Some(self.opened(open)))
    }

    /// Opens a tree and that of its large values.
    fn load(
        &self,
        core: &Core,
        cx: &Context,
        forest: &Arc<Forest>,
        name: &str,
        entry: Entry,
    ) -> Result<OpenTree> {
        core.check_open_trees(1 + usize::from(entry.chunks.0 != 0))?;
        let large = OnceLock::new();
        let tree = btree::Tree::open(cx, forest, entry.tree, entry.root)?;
        if entry.chunks.0 != 0 {
            let (id, root) = (entry.chunks, entry.chunks_root);
            let store = if entry.dropping {
                // No value will be added, and what is left is no tree to be searched.
                let chunks = btree::Tree::open(cx, forest, id, root);
                chunks.map(|tree| LargeStore { tree, next_id: AtomicU64::new(u64::MAX) })
            } else {
                self.listed(cx, &self.tree).and_then(|listed| {
                    let ids = listed.iter().filter(|(chunks, ..)| *chunks == id);
                    let last = ids.map(|(_, large, _)| large.id).max().unwrap_or(0);
                    let chunks = btree::Tree::open(cx, forest, id, root)?;
                    LargeStore::open(cx, chunks, last)
                })
            };
            let store = match store {
                Ok(store) => store,
                Err(error) => {
                    // Otherwise its root would keep a frame, and the next attempt take another.
                    tree.unload();
                    return Err(error);
                }
            };
            assert!(large.set(store).is_ok(), "just made");
        }
        Ok(OpenTree { name: name.to_string(), tree, large, closed: Closed::default() })
    }

    fn create(
        &mut self,
        core: &Core,
        cx: &Context,
        forest: &Arc<Forest>,
        name: &str,
    ) -> Result<Arc<OpenTree>> {
        core.check_open_trees(1)?;
        let id = self.take_id()?;
        let tree = btree::Tree::create_with(cx, forest, id, |root, attach| {
            let none = (TreeId(0), PageId(0));
            let entry =
                Entry { tree: id, root, chunks: none.0, chunks_root: none.1, dropping: false };
            let mut author = Together { attach, above: Gsn(0) };
            self.record_as(cx, name, entry, Mode::Insert, &mut author)
        })?;
        tracing::info!(tree = name, id = id.0, "created");
        let (large, closed) = (OnceLock::new(), Closed::default());
        Ok(self.opened(OpenTree { name: name.to_string(), tree, large, closed }))
    }

    fn opened(&mut self, tree: OpenTree) -> Arc<OpenTree> {
        let tree = Arc::new(tree);
        self.open.insert(tree.name.clone(), tree.clone());
        tree
    }

    /// Frees the pages of a tree whose entry says that it is being dropped, and then the entry.
    fn finish_drop(
        &mut self,
        cx: &Context,
        name: &str,
        mut entry: Entry,
        open: OpenTree,
    ) -> Result<()> {
        let OpenTree { tree, large, closed, .. } = open;
        if let Some(LargeStore { tree: chunks, next_id }) = large.into_inner() {
            let without = Entry { chunks: TreeId(0), chunks_root: PageId(0), ..entry };
            // First, because nobody knows of them when the tree of the chunks is gone.
            let dropped = match self.unlist(cx, chunks.id()) {
                Ok(()) => chunks.drop_pages(cx, |above, attach| {
                    let mut author = Together { attach, above };
                    self.record_as(cx, name, without, Mode::Update, &mut author)
                }),
                Err(error) => Err((chunks, error)),
            };
            if let Err((chunks, error)) = dropped {
                let large = OnceLock::from(LargeStore { tree: chunks, next_id });
                let left = OpenTree { name: name.to_string(), tree, large, closed };
                self.half_dropped.insert(name.to_string(), (entry, left));
                return Err(error);
            }
            entry = without;
        }
        let key = tree_key(name);
        let dropped = tree.drop_pages(cx, |above, attach| {
            let mut author = Together { attach, above };
            let removed = run(cx, |_| self.tree.remove_step(cx, &key, &mut author))?;
            assert!(removed.0.existed, "a tree that is dropped is in the catalog");
            Ok(())
        });
        if let Err((tree, error)) = dropped {
            let left = OpenTree { name: name.to_string(), tree, large: OnceLock::new(), closed };
            self.half_dropped.insert(name.to_string(), (entry, left));
            return Err(error);
        }
        // The record is gone already; a merge that fails only leaves a leaf emptier.
        if let Err(error) = run(cx, |_| self.tree.merge_step(cx, &key, 0)) {
            tracing::warn!(%error, "a leaf of the catalog could not be merged");
        }
        tracing::info!(tree = name, "dropped");
        Ok(())
    }

    /// Ends the drop of a tree that has failed before.
    fn go_on_dropping(&mut self, cx: &Context, name: &str) -> Result<()> {
        let Some((entry, open)) = self.half_dropped.remove(name) else {
            let what = format!("the tree {name:?} is being dropped, but is not in memory");
            return Err(Error::corruption(self.tree.root_page(), what));
        };
        self.finish_drop(cx, name, entry, open)
    }

    /// Takes the large values of a tree off the list of those to be cleared away.
    fn unlist(&self, cx: &Context, chunks: TreeId) -> Result<()> {
        for (_, large, _) in self.listed(cx, &self.tree)?.into_iter().filter(|of| of.0 == chunks) {
            let key = garbage_key(chunks, large);
            run(cx, |_| self.tree.remove_step(cx, &key, &mut System))?;
        }
        Ok(())
    }

    /// Moves the entry of a tree to another name, in a transaction.
    fn rename(&self, core: &Core, cx: &Context, old: &str, new: &str) -> Result<()> {
        let Some(entry) = self.entry(cx, old)? else {
            return Err(Error::NoSuchTree(old.to_string()));
        };
        core.system_transaction(cx, |txn| {
            let (key, bytes) = (tree_key(new), entry.encode());
            let mut author = crate::txn::SystemOf::new(core, CATALOG, Some(txn));
            run(cx, |restarts| {
                let value = Value::Inline(&bytes);
                self.tree.write_step(cx, &key, value, Mode::Insert, &mut author, restarts)
            })?;
            run(cx, |_| self.tree.remove_step(cx, &tree_key(old), &mut author))?;
            Ok(())
        })
    }
}
