//! Dropping a whole tree: gives all its pages and frames back. No operation may use the tree any
//! more.
//!
//! Inner nodes are read, because they name the pages below them; leaves are freed without being
//! read. The latches of the path stay held, so background eviction, which only tries latches, keeps
//! away from what is being freed. Memory is one image for each level that is not resident.

use crate::{
    node::NodeView,
    tree::{Tree, run},
};
use wattle_buffer::{
    Error, Exclusive, PageId, PageImage, PageOwner, Pool, Result, Swip, Target, TreeId, Worker,
};

impl Tree {
    /// Frees every page of the tree, the root last.
    ///
    /// # Errors
    /// A failed read or a corrupt inner node. The pages below it stay allocated; everything else
    /// was freed.
    pub fn drop_pages(self, worker: &Worker) -> Result<()> {
        // Ends changes of the height, which an abandoned step could have left to do.
        run(worker, |_| self.depth())?;
        let root = self.pool.exclusive(self.root);
        root.header().set_pinned(false);
        let mut outcome = Ok(());
        self.drop_node(root, &mut outcome);
        outcome
    }

    /// Closes a tree that was opened and never changed: gives its frames back.
    ///
    /// # Panics
    /// If the tree was changed since it was opened.
    pub fn unload(self) {
        let root = self.pool.exclusive(self.root);
        root.header().set_pinned(false);
        self.unload_node(root);
    }

    /// Gives the frames of a latched node and of everything below it back.
    fn unload_node(&self, node: Exclusive<'_>) {
        let view = NodeView::from(node.bytes());
        if view.is_inner() {
            for position in 0..=view.count() {
                if let Target::Hot(frame) = Swip(view.swip(position)).target() {
                    self.unload_node(self.pool.exclusive(frame));
                }
            }
        }
        node.header().set_hot_children(0);
        self.pool.unload_page(node);
    }

    /// Frees a latched node and everything below it.
    fn drop_node(&self, node: Exclusive<'_>, outcome: &mut Result<()>) {
        let view = NodeView::from(node.bytes());
        if view.is_inner() {
            for position in 0..=view.count() {
                match Swip(view.swip(position)).target() {
                    Target::Hot(frame) => self.drop_node(self.pool.exclusive(frame), outcome),
                    Target::Evicted(page) => {
                        drop_evicted(self, page, view.level() - 1, outcome);
                    }
                }
            }
        }
        node.header().set_hot_children(0);
        self.pool.free_page(node);
    }
}

/// Frees a page that has no frame and everything below it.
fn drop_evicted(tree: &Tree, page: PageId, level: u8, outcome: &mut Result<()>) {
    if level > 0 {
        match read_node(&tree.pool, &*tree.forest, page, tree.id, level) {
            Ok(image) => {
                let view = NodeView::from(&*image);
                for position in 0..=view.count() {
                    // On storage every swip is evicted, the check of the node made sure.
                    if let Target::Evicted(child) = Swip(view.swip(position)).target() {
                        drop_evicted(tree, child, level - 1, outcome);
                    }
                }
            }
            Err(error) => {
                if outcome.is_ok() {
                    *outcome = Err(error);
                }
            }
        }
    }
    tree.pool.free_evicted_page(page);
}

fn read_node(
    pool: &Pool,
    owner: &dyn PageOwner,
    page: PageId,
    tree: TreeId,
    level: u8,
) -> Result<Box<PageImage>> {
    let mut image = PageImage::zeroed();
    pool.storage()
        .read_image(page, &mut image)
        .map_err(|error| Error::io(format_args!("read page {page}"), error))?;
    image.verify(page, tree)?;
    owner
        .check(&image.0, pool.allocator().counts().0)
        .map_err(|what| Error::corruption(page, what))?;
    let found = NodeView::from(&*image).level();
    if found != level {
        let what = format_args!("it is at level {found} of its tree, not at {level}");
        return Err(Error::corruption(page, what));
    }
    Ok(image)
}
