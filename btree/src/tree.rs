//! A tree: its pinned root. The steps of its operations are in files of their own.

use crate::{
    author::Attachment,
    journal::Context,
    node::{NodeBuilder, NodeRef},
    owner::Forest,
    step::{Step, Stop},
};
use std::sync::Arc;
use wattle_buffer::{
    Error, Exclusive, Fault, FrameId, Gsn, Optimistic, PageId, PageImage, Pool, Restart, Result,
    TreeId,
};

/// A B+-tree over pages of a pool. The root is pinned in its frame while the tree is open, so a
/// descent starts without any look-up. Its page changes its id only by [`Tree::try_latch_root`]. Dropping the value closes the
/// tree, which writes nothing (see `owner`).
pub struct Tree {
    pub(crate) pool: Arc<Pool>,
    pub(crate) forest: Arc<Forest>,
    pub(crate) id: TreeId,
    pub(crate) root: FrameId,
}

impl Tree {
    /// Makes an empty tree that nothing but the caller knows.
    ///
    /// # Errors
    /// A full device, or a pool without a free frame.
    pub fn create(cx: &Context, forest: &Arc<Forest>, id: TreeId) -> Result<Tree> {
        Self::create_with(cx, forest, id, |_, attach| {
            cx.log_attachments(Gsn(0), attach);
            Ok(())
        })
    }

    /// Makes an empty tree together with the record that refers to it. `record` gets the page of
    /// the root, and what it must attach to that record ([`crate::Author::attach`]); the root is
    /// latched meanwhile, which nobody else can want.
    ///
    /// # Errors
    /// A full device, or a pool without a free frame; what `record` says. There is no tree then.
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
        forest.plant(id, frame);
        Ok(Tree { pool: pool.clone(), forest: forest.clone(), id, root: frame })
    }

    /// Opens the tree with the root page `root_page`. Only one [`Tree`] may exist for each root, and
    /// only one thread at a time may open or close it.
    ///
    /// # Errors
    /// A failed read or a corrupt root.
    pub fn open(cx: &Context, forest: &Arc<Forest>, id: TreeId, root_page: PageId) -> Result<Tree> {
        let root = match forest.reopen(cx.worker.pool(), id) {
            Some(root) => root,
            None => {
                let root = cx.worker.load_root(root_page, id)?;
                forest.plant(id, root);
                root
            }
        };
        let (pool, forest) = (cx.worker.pool().clone(), forest.clone());
        Ok(Tree { pool, forest, id, root })
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

    /// Latches the root for a change of its page id ([`Pool::renumber`]), which goes into the record that
    /// names the new one. None: somebody is inside, or a write of it is in flight. Never waits, but
    /// others may wait for the latch.
    pub fn try_latch_root(&self) -> Option<Exclusive<'_>> {
        let root = self.pool.try_exclusive(self.root)?;
        (!self.pool.is_being_written(&root)).then_some(root)
    }

    /// Number of the last change of the root.
    pub fn root_gsn(&self) -> Gsn {
        self.pool.header(self.root).gsn()
    }

    /// Nodes on the way from the root to a leaf, both counted.
    pub fn depth(&self) -> Step<usize> {
        let guard = self.pool.optimistic(self.root)?;
        let level = NodeRef::from(guard.page()).level();
        guard.validate()?;
        Ok(usize::from(level) + 1)
    }

    /// A failed bounds check means a restart if the node changed meanwhile, and corruption if it
    /// did not: then the bytes themselves are wrong.
    #[inline(always)]
    pub(crate) fn checked<T>(&self, guard: &Optimistic<'_>, read: Result<T, Restart>) -> Step<T> {
        match read {
            Ok(value) => Ok(value),
            // A copy, made here only: a guard whose address is taken stays in memory all the way.
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
