//! [`Tree`]: a B+-tree with a pinned root. Each kind of step has a file of its own.

use crate::{
    author::Attachment,
    journal::Context,
    leaf_records::LeafRecords,
    node::{NodeBuilder, NodeRef},
    owner::Forest,
    step::{Step, Stop},
};
use std::sync::Arc;
use wattle_buffer::{
    Error, Exclusive, Fault, FrameId, Gsn, Optimistic, PageId, PageImage, Pool, Restart, Result,
    TreeId,
};

/// A B+-tree over pages of a pool. While the tree is open, its root is pinned in a frame, so a
/// descent starts without a look-up. Only [`Tree::try_latch_root`] allows a change of the root's
/// page id. Dropping the value closes the tree, which writes nothing (see `owner`).
pub struct Tree {
    pub(crate) pool: Arc<Pool>,
    pub(crate) forest: Arc<Forest>,
    pub(crate) id: TreeId,
    pub(crate) root: FrameId,
    pub(crate) leaf_records: LeafRecords,
}

impl Tree {
    /// Creates an empty tree that only the caller knows.
    ///
    /// # Errors
    /// A full device, or a pool without a free frame.
    pub fn create(cx: &Context, forest: &Arc<Forest>, id: TreeId) -> Result<Tree> {
        Self::create_with(cx, forest, id, |_, attach| {
            cx.log_attachments(Gsn(0), attach);
            Ok(())
        })
    }

    /// Creates an empty tree together with the log record that names it. `record` gets the page of
    /// the root and a function that adds the attachments to that record
    /// ([`crate::Author::attach`]). The root is latched meanwhile; no other thread knows it.
    ///
    /// # Errors
    /// A full device, a pool without a free frame, or an error of `record`. Then no tree was
    /// created.
    pub fn create_with(
        cx: &Context,
        forest: &Arc<Forest>,
        id: TreeId,
        record: impl FnOnce(PageId, &mut dyn FnMut(&mut dyn Attachment)) -> Result<()>,
    ) -> Result<Tree> {
        cx.worker.begin_waiting();
        cx.worker.resolve(Fault::Pages(1))?;
        let pool = cx.worker.pool();
        let (mut guard, root_page) = pool.new_page(&cx.worker, id);
        let mut image = PageImage::zeroed();
        let node = NodeBuilder::leaf(root_page, id, &[], None);
        node.finish(&mut image).expect("an empty leaf fits");
        guard.write_image(&mut image);
        guard.header().set_pinned(true);
        let frame = guard.frame();
        let recorded = record(root_page, &mut |record| record.new_page(&mut guard));
        if let Err(error) = recorded {
            guard.unchanged();
            guard.header().set_pinned(false);
            pool.free_page(guard);
            return Err(error);
        }
        drop(guard);
        forest.add_open(id, frame);
        let (pool, forest) = (pool.clone(), forest.clone());
        Ok(Tree { pool, forest, id, root: frame, leaf_records: LeafRecords::default() })
    }

    /// Opens the tree with the root page `root_page`. There must be at most one [`Tree`] for each
    /// root, and only one thread at a time may open or close it.
    ///
    /// # Errors
    /// A failed read or a corrupt root.
    pub fn open(cx: &Context, forest: &Arc<Forest>, id: TreeId, root_page: PageId) -> Result<Tree> {
        let root = match forest.reopen(cx.worker.pool(), id) {
            Some(root) => root,
            None => {
                let root = cx.worker.load_root(root_page, id)?;
                forest.add_open(id, root);
                root
            }
        };
        let (pool, forest) = (cx.worker.pool().clone(), forest.clone());
        Ok(Tree { pool, forest, id, root, leaf_records: LeafRecords::default() })
    }

    /// The pool of its pages.
    #[inline(always)]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Id of the tree.
    pub fn id(&self) -> TreeId {
        self.id
    }

    /// Page of the root.
    pub fn root_page(&self) -> PageId {
        self.pool.header(self.root).page_id()
    }

    /// Latches the root for a change of its page id ([`Pool::renumber`]); the caller logs the new
    /// id in the record that names it. None: another thread holds the latch, or the root is being
    /// written. Never waits, but other threads may wait for the latch.
    pub fn try_latch_root(&self) -> Option<Exclusive<'_>> {
        let root = self.pool.try_exclusive(self.root)?;
        (!self.pool.is_being_written(&root)).then_some(root)
    }

    /// GSN of the last change of the root.
    pub fn root_gsn(&self) -> Gsn {
        self.pool.header(self.root).gsn()
    }

    /// Number of nodes from the root to a leaf, both included.
    pub fn depth(&self) -> Step<usize> {
        let guard = self.pool.optimistic(self.root)?;
        let level = NodeRef::from(guard.page()).level();
        guard.validate()?;
        Ok(usize::from(level) + 1)
    }

    /// Ends a read of a node whose bounds check may have failed. If the node changed meanwhile, the
    /// step restarts. If it did not, the bytes themselves are wrong: corruption.
    #[inline(always)]
    pub(crate) fn checked<T>(&self, guard: &Optimistic<'_>, read: Result<T, Restart>) -> Step<T> {
        match read {
            Ok(value) => Ok(value),
            // Copy the guard only here: a guard whose address is taken stays in memory on the whole
            // path.
            Err(Restart) => Err(self.failed(*guard)),
        }
    }

    #[cold]
    pub(crate) fn failed(&self, guard: Optimistic<'_>) -> Stop {
        let page = guard.header().page_id();
        if guard.validate().is_err() {
            return Stop::Restart;
        }
        tracing::error!(page = page.0, tree = self.id.0, "a node leads outside of its page");
        Stop::Error(Error::corruption(page, "its contents lead outside of the page"))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.forest.close(&self.pool, self.id);
    }
}
