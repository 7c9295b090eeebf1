//! [`Forest`]: the roots of all trees in memory. It answers the questions of the pool about pages
//! ([`PageOwner`]): where the swip to a page is, and which page is its parent.
//!
//! # Open and closed trees
//!
//! No parent has a swip to a root, so the forest has one entry for each tree whose root has a
//! frame: that frame, and whether the tree is open. The root of an open tree is pinned. Closing a
//! tree marks the entry and unpins the root; it writes nothing. From then on the root is an
//! ordinary page: it cools down, the writers of the pool write it if it is dirty, and an evictor
//! takes its frame together with the entry. A closed tree whose root was evicted takes no memory.
//!
//! - **No change is lost.** Only [`Forest::release_root`] removes the entry of a closed tree. Its
//!   caller is an evictor that holds the latch of the root and has seen under it that the root is
//!   clean, is not being written and has no child in memory. So storage holds the newest contents
//!   of the root, and its children were evicted by the same rule. Until then, opening the tree
//!   again finds the frame with its newest contents. Checkpoints look at frames, not at trees: a
//!   dirty root holds the log as any dirty page does.
//! - **A root never has two frames.** Opening and evicting a root both take the lock of the
//!   entries. If opening comes first, it marks the entry as open, and the evictor leaves the page
//!   alone. If the evictor comes first, opening finds no entry, never uses the old frame, and reads
//!   the root from storage. The caller lets one thread at a time open or close a tree (the lock of
//!   the catalog), so a root is read once.
//! - **No operation uses the frame of a closed root.** Operations need an open [`crate::Tree`].
//!   [`Forest::find_parent`] may use a frame from which the root was just evicted; its result is
//!   only a hint, which the caller checks under the latch of the parent.
//!
//! Evictors take the lock of the entries while they hold the latch of a page. So no thread may wait
//! for a latch while it holds that lock.

use crate::{
    hint::Hint,
    journal::Context,
    node::{NodeMut, NodeRef, NodeView, check},
    x_merge::x_merge,
};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};
use wattle_buffer::{
    FrameId, PAGE_SIZE, PageId, PageImage, PageKind, PageMut, PageOwner, PageRef, Pool, Swip,
    Target, TreeId, page::header,
};

/// The roots of one pool that are in memory.
#[derive(Default)]
pub struct Forest {
    roots: RwLock<RootEntries>,
    /// The context in which the writers of the pool merge leaves. None: they do not merge.
    merges: Mutex<Option<Context>>,
    /// Numbers of transactions, for version hints.
    clock: OnceLock<TxnClock>,
    /// Full leaves are split without asking their neighbours.
    splits_only: AtomicBool,
}

#[derive(Default)]
struct RootEntries {
    by_tree: HashMap<TreeId, RootEntry>,
    /// Number of open trees.
    open: usize,
}

/// The entry of one tree, see the module documentation.
#[derive(Clone, Copy)]
struct RootEntry {
    frame: FrameId,
    is_open: bool,
}

/// Gives the newest transaction.
struct TxnClock {
    newest: Box<dyn Fn() -> u64 + Send + Sync>,
    draw: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Forest {
    /// No tree yet.
    pub fn new() -> Arc<Forest> {
        Arc::default()
    }

    /// Sets the functions that give the number of the newest transaction, and a number that no
    /// transaction has and that is larger than all before. May be called once.
    pub fn set_clock(
        &self,
        newest: impl Fn() -> u64 + Send + Sync + 'static,
        draw: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        let clock = TxnClock { newest: Box::new(newest), draw: Box::new(draw) };
        assert!(self.clock.set(clock).is_ok(), "the clock is set once");
    }

    /// Whether full leaves give records to their neighbours before they are split. Default true.
    pub fn set_redistribution(&self, on: bool) {
        // Orders nothing: both ways are right at any time.
        self.splits_only.store(!on, Ordering::Relaxed);
    }

    /// See [`Forest::set_redistribution`].
    pub(crate) fn redistributes(&self) -> bool {
        !self.splits_only.load(Ordering::Relaxed)
    }

    /// A number for the hint of a page that takes over records, see [`Hint::joined`]; 0 without
    /// transactions.
    pub(crate) fn draw(&self) -> u64 {
        self.clock.get().map_or(0, |clock| (clock.draw)())
    }

    /// Sets the context in which the writers of the pool merge leaves; `None` stops the merges.
    pub fn merge_in(&self, cx: Option<Context>) {
        *self.merges.lock() = cx;
    }

    /// Number of open trees.
    pub fn len(&self) -> usize {
        self.roots.read().open
    }

    /// No tree is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an open tree, whose root is pinned in the frame `root`.
    pub(crate) fn add_open(&self, tree: TreeId, root: FrameId) {
        let mut roots = self.roots.write();
        let old = roots.by_tree.insert(tree, RootEntry { frame: root, is_open: true });
        assert!(old.is_none(), "tree {tree} was opened twice");
        roots.open += 1;
    }

    /// Opens a closed tree whose root is still in memory, and gives its frame.
    pub(crate) fn reopen(&self, pool: &Pool, tree: TreeId) -> Option<FrameId> {
        let mut roots = self.roots.write();
        let root = roots.by_tree.get_mut(&tree)?;
        assert!(!root.is_open, "tree {tree} was opened twice");
        root.is_open = true;
        let frame = root.frame;
        pool.pin_root(frame, true);
        roots.open += 1;
        Some(frame)
    }

    /// Closes a tree, unless it was dropped.
    pub(crate) fn close(&self, pool: &Pool, tree: TreeId) {
        let mut roots = self.roots.write();
        let Some(root) = roots.by_tree.get_mut(&tree) else { return };
        assert!(root.is_open, "tree {tree} is closed twice");
        root.is_open = false;
        pool.pin_root(root.frame, false);
        roots.open -= 1;
    }

    /// Removes an open tree that is dropped and whose root is freed next.
    pub(crate) fn remove_dropped(&self, tree: TreeId) {
        let mut roots = self.roots.write();
        let root = roots.by_tree.remove(&tree);
        assert!(root.is_some_and(|root| root.is_open), "tree {tree} is dropped, but not open");
        roots.open -= 1;
    }
}

impl PageOwner for Forest {
    fn find_swip(&self, parent: PageRef<'_>, raw: u64, hint: usize) -> Option<(usize, usize)> {
        let node = NodeRef::from(parent);
        if node.is_leaf() {
            return None;
        }
        let position = node.find_swip(raw, hint)?;
        Some((node.swip_offset(position), position))
    }

    fn find_parent(&self, pool: &Pool, child: FrameId) -> Option<FrameId> {
        // The caller holds the latch of the child, so its bytes do not change.
        let node = NodeRef::from(pool.page_ref(child));
        let level = node.level();
        let mut key = Vec::new();
        node.lower_fence_to(&mut key).ok()?;
        let tree = pool.header(child).tree_id();
        let root = self.roots.read().by_tree.get(&tree)?.frame;
        // Never wait: the caller holds a latch.
        let mut guard = pool.try_optimistic(root).ok()?;
        // Bounded by the height of any tree. A concurrent change ends the search; the evictor has
        // other candidates.
        for _ in 0..u8::MAX {
            let node = NodeRef::from(guard.page());
            let node_level = node.level();
            if node_level <= level {
                return None;
            }
            let position = node.child_position(&key).ok()?;
            let Target::Hot(next) = pool.locate(Swip(node.swip(position))) else { return None };
            guard.validate().ok()?;
            if node_level == level + 1 {
                return (next == child).then_some(guard.frame());
            }
            let next = pool.try_optimistic(next).ok()?;
            guard.validate().ok()?;
            guard = next;
        }
        None
    }

    fn release_root(&self, tree: TreeId, frame: FrameId) -> bool {
        let is_closed = |root: &RootEntry| root.frame == frame && !root.is_open;
        // Most pages are no roots: look under the shared lock first.
        if !self.roots.read().by_tree.get(&tree).is_some_and(is_closed) {
            return false;
        }
        let mut roots = self.roots.write();
        let released = roots.by_tree.get(&tree).is_some_and(is_closed);
        if released {
            roots.by_tree.remove(&tree);
        }
        released
    }

    fn map_swips(&self, image: &mut PageImage, replace: &mut dyn FnMut(u64) -> u64) {
        let view = NodeView::from(&*image);
        if !view.is_inner() {
            return;
        }
        let count = view.count();
        let mut page = PageMut::of_image(image);
        let mut node = NodeMut::new(&mut page);
        for position in 0..=count {
            let raw = node.view().swip(position);
            let new = replace(raw);
            if new != raw {
                node.set_swip(position, new);
            }
        }
    }

    fn check(&self, page: &[u8; PAGE_SIZE], pages: u64) -> Result<(), String> {
        match PageKind::from_u8(page[header::KIND]) {
            Some(PageKind::Leaf | PageKind::Inner) => check(page, PageId(pages.saturating_sub(1))),
            _ => Err("it is not a node of a tree".to_string()),
        }
    }

    fn load_hint(&self) -> u64 {
        match self.clock.get() {
            Some(clock) => Hint::Unknown((clock.newest)()).word(),
            None => 0,
        }
    }

    fn before_write(&self, _: &Pool, frame: FrameId) -> bool {
        let merges = self.merges.try_lock();
        merges.is_some_and(|cx| cx.as_ref().is_some_and(|cx| x_merge(cx, frame, &|| self.draw())))
    }
}
