//! What the pool asks of the tree: where swips are ([`PageOwner`]). [`Forest`] knows the roots of
//! all open trees, from which a lost parent is found by descent.

use crate::{
    hint::Hint,
    journal::Context,
    merge,
    node::{NodeMut, NodeRef, NodeView, check},
};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};
use wattle_buffer::{
    FrameId, PAGE_SIZE, PageId, PageImage, PageKind, PageMut, PageOwner, PageRef, Pool, Swip,
    Target, TreeId, page::header,
};

/// The roots of all open trees of one pool.
#[derive(Default)]
pub struct Forest {
    roots: RwLock<HashMap<TreeId, FrameId>>,
    /// For merges by the writers of the pool. Without it there are none.
    merges: Mutex<Option<Context>>,
    /// Tells the newest transaction, for version hints.
    clock: OnceLock<Clock>,
}

/// Tells the newest transaction.
type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

impl Forest {
    /// No tree yet.
    pub fn new() -> Arc<Forest> {
        Arc::default()
    }

    /// Sets what tells the newest transaction, once.
    pub fn set_clock(&self, clock: impl Fn() -> u64 + Send + Sync + 'static) {
        assert!(self.clock.set(Box::new(clock)).is_ok(), "the clock is set once");
    }

    /// The newest transaction; 0 when there are none.
    pub(crate) fn now(&self) -> u64 {
        self.clock.get().map_or(0, |clock| clock())
    }

    /// Lets the writers of the pool merge leaves, in this context; none: no longer.
    pub fn merge_in(&self, cx: Option<Context>) {
        *self.merges.lock() = cx;
    }

    /// Number of open trees.
    pub fn len(&self) -> usize {
        self.roots.read().len()
    }

    /// No tree is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn plant(&self, tree: TreeId, root: FrameId) {
        let old = self.roots.write().insert(tree, root);
        assert!(old.is_none(), "tree {tree} was opened twice");
    }

    pub(crate) fn fell(&self, tree: TreeId) {
        self.roots.write().remove(&tree);
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
        // The caller holds the latch of the child, so its bytes stand still.
        let node = NodeRef::from(pool.page_ref(child));
        let level = node.level();
        let mut key = Vec::new();
        node.lower_fence_to(&mut key).ok()?;
        let tree = pool.header(child).tree_id();
        let root = *self.roots.read().get(&tree)?;
        // Never waits: the caller holds a latch that others may wait for.
        let mut guard = pool.try_optimistic(root).ok()?;
        // Bounded by the height of any tree; a racing change ends the search, the evictor has
        // other candidates.
        for _ in 0..u8::MAX {
            let node = NodeRef::from(guard.page());
            let node_level = node.level();
            if node_level <= level {
                return None;
            }
            let position = node.child_position(&key).ok()?;
            let Target::Hot(next) = Swip(node.swip(position)).target() else { return None };
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
            Some(clock) => Hint::Unknown(clock()).word(),
            None => 0,
        }
    }

    fn before_write(&self, _: &Pool, frame: FrameId) -> bool {
        let merges = self.merges.try_lock();
        merges.is_some_and(|cx| cx.as_ref().is_some_and(|cx| merge::x_merge(self, cx, frame)))
    }
}
