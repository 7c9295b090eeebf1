//! Dropping a whole tree: frees all its pages and frames. No operation may use the tree then.
//!
//! The tree shrinks by steps. Each step is one log record and leaves a valid tree, except that its
//! leaves may have different depths. So a drop that a crash interrupted continues with the
//! remaining tree. A step walks from the root along the last children, to
//! - a node above leaves: it frees these without reading them, and the node becomes an empty leaf;
//! - a node whose last child is such an empty leaf: it frees that child.
//!
//! Meanwhile only background threads latch pages of the tree, and they never wait for a latch.

use crate::{
    author::Attachment,
    journal::Context,
    node::{NodeBuilder, NodeMut, NodeView},
    record::Op,
    run::run,
    step::Step,
    tree::Tree,
};
use wattle_buffer::{Exclusive, Gsn, PageImage, Result, Swip, Target};

impl Tree {
    /// Frees every page of the tree, the root last. `record` writes the log record that ends the
    /// drop. It gets a lower bound for the number of that record, and a function that adds the
    /// attachment that frees the root page.
    ///
    /// # Errors
    /// A failed read, a corrupt inner node, or an error of `record`. The error also has the part of
    /// the tree that is left.
    pub fn drop_pages(
        self,
        cx: &Context,
        record: impl FnOnce(Gsn, &mut dyn FnMut(&mut dyn Attachment)) -> Result<()>,
    ) -> Result<(), (Tree, wattle_buffer::Error)> {
        loop {
            match run(cx, |_| self.shrink_step(cx)) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Err((self, error)),
            }
        }
        let page = self.root_page();
        let recorded = record(self.root_gsn(), &mut |record| record.free(&self.pool, &[page]));
        if let Err(error) = recorded {
            return Err((self, error));
        }
        self.forest.remove_dropped(self.id);
        let root = self.pool.exclusive(self.root);
        root.header().set_pinned(false);
        self.pool.free_page(root);
        Ok(())
    }

    /// Drops a tree that only the caller knows.
    ///
    /// # Errors
    /// As [`Tree::drop_pages`].
    pub fn discard(self, cx: &Context) -> Result<()> {
        let log = |above: Gsn, attach: &mut dyn FnMut(&mut dyn Attachment)| {
            cx.log_attachments(above, attach);
            Ok(())
        };
        self.drop_pages(cx, log).map_err(|(_, error)| error)
    }

    /// Frees some pages below the root; false if there are none.
    fn shrink_step(&self, cx: &Context) -> Step<bool> {
        cx.check_room(true)?;
        let mut parent = self.pool.optimistic(self.root)?;
        loop {
            let node = crate::node::NodeRef::from(parent.page());
            if node.is_leaf() {
                parent.validate()?;
                return Ok(false);
            }
            let last = node.count();
            if node.level() == 1 {
                self.free_leaves(cx, parent.upgrade()?);
                return Ok(true);
            }
            let child = self.child(parent, last)?;
            let (upper, _) = child.parent.expect("a child has a parent");
            if child.node_ref().is_leaf() {
                child.node.validate()?;
                let upper = upper.upgrade()?;
                let leaf = child.node.upgrade()?;
                self.free_last(cx, upper, leaf);
                return Ok(true);
            }
            parent = child.node;
        }
    }

    /// Frees all children of a node above leaves, and makes it an empty leaf.
    fn free_leaves<'p>(&'p self, cx: &Context, mut node: Exclusive<'p>) {
        let view = NodeView::from(node.bytes());
        let (mut hot, mut evicted) = (Vec::new(), Vec::new());
        for position in 0..=view.count() {
            match self.pool.locate(Swip(view.swip(position))) {
                Target::Hot(frame) => hot.push(self.pool.exclusive(frame)),
                Target::Evicted(page) => evicted.push(page),
            }
        }
        let mut pages = evicted.clone();
        pages.extend(hot.iter().map(|leaf| leaf.header().page_id()));
        self.become_leaf(&mut node);
        // The record that frees a page must have a higher number than all changes of the page.
        let above = hot.iter().map(|leaf| leaf.gsn()).max().unwrap_or(Gsn(0));
        cx.log_free(&mut node, &pages, above);
        node.header().set_hot_children(0);
        for leaf in hot {
            self.pool.free_page(leaf);
        }
        // No thread reads them: reading a page needs the latch of its parent.
        for page in evicted {
            self.pool.free_evicted_page(page);
        }
    }

    /// Frees the last child of a node, which is a leaf.
    fn free_last<'p>(&'p self, cx: &Context, mut node: Exclusive<'p>, mut leaf: Exclusive<'p>) {
        let pages = [leaf.header().page_id()];
        let count = NodeView::from(node.bytes()).count();
        let op = if count == 0 {
            self.become_leaf(&mut node);
            Op::Image
        } else {
            NodeMut::new(&mut node.page_mut()).remove_child(count - 1);
            Op::RemoveChild { position: count - 1 }
        };
        cx.log_group(&mut [(&mut node, op), (&mut leaf, Op::Free { pages: &pages })]);
        let hot = if count == 0 { 0 } else { node.header().hot_children() - 1 };
        node.header().set_hot_children(hot);
        self.pool.free_page(leaf);
    }

    /// Makes a latched node an empty leaf between the same fences.
    fn become_leaf(&self, node: &mut Exclusive<'_>) {
        let view = NodeView::from(node.bytes());
        let (page, lower) = (view.page_id(), view.lower());
        let mut image = PageImage::zeroed();
        let leaf = NodeBuilder::leaf(page, self.id, lower, view.upper());
        leaf.finish(&mut image).expect("two fences fit");
        node.write_image(&mut image);
    }
}
