//! Bulk load: builds a tree from sorted input, level by level from the left, and writes its pages
//! straight to storage in batches, on a thread of its own. Only the root goes through the pool, so
//! a load of any size takes little memory; every other page starts out evicted.
//!
//! At the end, one step and one log record put the new nodes into the tree. The record says which
//! pages are in use now, and has the new root. The new nodes are durable by then, so their contents
//! are not logged. Until then nothing refers to them, and a load that fails frees its pages. A load
//! takes no page about which the log may still have older changes: recovery would redo these over
//! the new contents.

use crate::{
    bulk_writer::{Batch, BatchWriter},
    journal::Context,
    large_value::LargeValue,
    node::{NodeBuilder, NodeView, check_full, shortest_separator},
    step::Stop,
    tree::Tree,
};
use wattle_buffer::{Error, PageId, PageImage, Pool, Result, Swip, page::header};

/// Most ranges of pages of one load: they go into one log record.
const MAX_RANGES: usize = 3000;
/// A bulk load fills pages to this share, percent, which leaves room for a few inserts.
pub const FILL_PERCENT: usize = 95;

/// A value for a bulk load.
#[derive(Clone, Copy, Debug)]
pub enum BulkValue<'a> {
    /// The bytes themselves, which must fit into a leaf.
    Inline(&'a [u8]),
    /// Chunks that are stored already.
    Large(LargeValue),
}

/// A bulk load in progress.
pub struct BulkLoad<'t> {
    tree: &'t Tree,
    /// One unfinished node for each level, leaf first.
    levels: Vec<NodeBuilder>,
    pages: Pages<'t>,
    entries: u64,
    leaves: u64,
}

/// Images that wait to be written, and ranges of all page ids taken so far.
struct Pages<'t> {
    pool: &'t Pool,
    writer: BatchWriter,
    batch: Batch,
    taken: Vec<(u64, u64)>,
    /// Pages that were allocated but must not be used.
    passed: Vec<PageId>,
}

impl<'t> BulkLoad<'t> {
    /// Starts a load into `tree`, which must be empty.
    pub fn new(tree: &'t Tree) -> Result<BulkLoad<'t>> {
        let mut pages = Pages {
            pool: &tree.pool,
            writer: BatchWriter::start(&tree.pool)?,
            batch: Batch::default(),
            taken: Vec::new(),
            passed: Vec::new(),
        };
        let leaf = NodeBuilder::leaf(pages.take()?, tree.id, &[], None).fill(FILL_PERCENT);
        Ok(BulkLoad { tree, levels: vec![leaf], pages, entries: 0, leaves: 0 })
    }

    /// Adds the next entry, whose key must be above all previous keys.
    pub fn push(&mut self, key: &[u8], value: BulkValue<'_>) -> Result<()> {
        let descriptor;
        let (bytes, special) = match value {
            BulkValue::Inline(bytes) => (bytes, false),
            BulkValue::Large(large) => {
                descriptor = large.encode();
                (&descriptor[..], true)
            }
        };
        if self.levels[0].last_key().is_some_and(|last| last >= key) {
            return Err(Error::NotSorted { position: self.entries });
        }
        if !self.levels[0].push(key, bytes, special) {
            let last = self.levels[0].last_key().expect("a first entry always fits").to_vec();
            let separator = shortest_separator(&last, key);
            self.close(0, separator)?;
            let taken = self.levels[0].push(key, bytes, special);
            assert!(taken, "an empty leaf takes any record");
        }
        self.entries += 1;
        Ok(())
    }

    /// Ends the node of a level at `separator`, adds it to its parent and starts the next one.
    fn close(&mut self, level: usize, separator: &[u8]) -> Result<()> {
        let next = self.pages.take()?;
        let page = self.finish_node(level, Some(separator))?;
        if level + 1 == self.levels.len() {
            self.start_level(level + 1, page)?;
        }
        let swip = Swip::evicted(next).0;
        if self.levels[level + 1].push_child(separator, swip) {
            let fresh = self.new_node(level, next, separator, None);
            self.levels[level] = fresh;
            return Ok(());
        }
        // The parent is full: it ends at the same separator, and the next parent starts with the
        // next node.
        self.close_inner(level + 1, separator, swip)?;
        self.levels[level] = self.new_node(level, next, separator, None);
        Ok(())
    }

    /// Ends an inner node at `separator`; its successor starts with the child `first`.
    fn close_inner(&mut self, level: usize, separator: &[u8], first: u64) -> Result<()> {
        let next = self.pages.take()?;
        // A separator much longer than the others may not fit as a fence. Then the node gives its
        // last child to the next one.
        let last = match self.levels[level].has_room_for_upper(separator.len()) {
            true => None,
            false => Some(self.levels[level].pop_child()),
        };
        let (upper, child) = match &last {
            Some((upper, child)) => (&upper[..], *child),
            None => (separator, first),
        };
        let page = self.finish_node(level, Some(upper))?;
        if level + 1 == self.levels.len() {
            self.start_level(level + 1, page)?;
        }
        let swip = Swip::evicted(next).0;
        if !self.levels[level + 1].push_child(upper, swip) {
            self.close_inner(level + 1, upper, swip)?;
        }
        self.levels[level] = self.new_node(level, next, upper, Some(child));
        if last.is_some() {
            let taken = self.levels[level].push_child(separator, first);
            assert!(taken, "a node takes one separator of any length");
        }
        Ok(())
    }

    fn new_node(
        &self,
        level: usize,
        page: PageId,
        lower: &[u8],
        first: Option<u64>,
    ) -> NodeBuilder {
        match first {
            Some(first) => NodeBuilder::inner(level as u8, page, self.tree.id, lower, None, first),
            None => NodeBuilder::leaf(page, self.tree.id, lower, None),
        }
        .fill(FILL_PERCENT)
    }

    fn start_level(&mut self, level: usize, first: PageId) -> Result<()> {
        let page = self.pages.take()?;
        let node = self.new_node(level, page, &[], Some(Swip::evicted(first).0));
        self.levels.push(node);
        Ok(())
    }

    /// Finishes the node of a level with this upper fence and queues its image; gives its page.
    fn finish_node(&mut self, level: usize, upper: Option<&[u8]>) -> Result<PageId> {
        self.leaves += u64::from(level == 0);
        self.levels[level].set_upper(upper);
        let image = self.pages.next_image()?;
        self.levels[level].finish(image).expect("the builder kept room for the fence");
        debug_assert_eq!(check_full(&image.0), Ok(()), "a damaged node would be written");
        image.set_u64(header::GSN, 1);
        image.seal();
        Ok(NodeView::from(&*image).page_id())
    }

    /// Finishes the rightmost nodes, makes everything durable with `sync`, and puts the nodes into
    /// the tree. Gives the number of entries.
    pub fn finish(mut self, cx: &Context, sync: &dyn Fn() -> Result<()>) -> Result<u64> {
        let top = self.levels.len() - 1;
        for level in 0..top {
            self.finish_node(level, None)?;
        }
        // The topmost node becomes the root, in the frame and page of the root.
        let mut image = PageImage::zeroed();
        self.levels[top].set_upper(None);
        self.levels[top].finish(&mut image).expect("the builder kept room for the fence");
        let spare = NodeView::from(&*image).page_id();
        image.set_u64(header::PAGE_ID, self.tree.root_page().0);
        self.pages.write_all()?;
        sync()?;
        let adopted = self.pages.all_but(spare);
        crate::run::run(cx, |_| {
            cx.check_room(false)?;
            let root = self.tree.pool.optimistic(self.tree.root)?;
            let node = crate::node::NodeRef::from(root.page());
            let empty = node.is_leaf() && node.count() == 0;
            root.validate()?;
            if !empty {
                return Err(Stop::Error(Error::NotEmpty));
            }
            let mut root = root.upgrade()?;
            root.write_image(&mut image);
            cx.log_adopt(&mut root, &adopted);
            self.tree.adopt_children(&root);
            Ok(())
        })?;
        self.pages.keep_all_but(spare);
        if let Some(records) = self.entries.checked_div(self.leaves) {
            self.tree.leaf_records.note(records as usize);
        }
        Ok(self.entries)
    }
}

impl Pages<'_> {
    fn take(&mut self) -> Result<PageId> {
        let page = loop {
            let page = self.pool.allocate_page()?;
            if !self.pool.allocator().is_recently_freed(page) {
                break page;
            }
            self.passed.push(page);
        };
        if self.taken.len() > MAX_RANGES {
            let reason = format!("free space is in more than {MAX_RANGES} pieces");
            return Err(Error::Limit(format!("the bulk load is not possible: {reason}")));
        }
        match self.taken.last_mut() {
            Some((_, end)) if *end == page.0 => *end += 1,
            _ => self.taken.push((page.0, page.0 + 1)),
        }
        Ok(page)
    }

    fn next_image(&mut self) -> Result<&mut PageImage> {
        if self.batch.is_full() {
            self.batch = self.writer.write(std::mem::take(&mut self.batch))?;
        }
        Ok(self.batch.next_image())
    }

    /// Writes everything, and waits for it.
    fn write_all(&mut self) -> Result<()> {
        self.writer.write(std::mem::take(&mut self.batch))?;
        self.writer.wait()
    }

    /// First page and count of all ranges taken, without the unused page `spare`.
    fn all_but(&self, spare: PageId) -> Vec<(u64, u64)> {
        let mut ranges = Vec::with_capacity(self.taken.len() + 1);
        for &(start, end) in &self.taken {
            let parts = if (start..end).contains(&spare.0) {
                [(start, spare.0), (spare.0 + 1, end)]
            } else {
                [(start, end), (end, end)]
            };
            let parts = parts.into_iter().filter(|(start, end)| start < end);
            ranges.extend(parts.map(|(start, end)| (start, end - start)));
        }
        ranges
    }

    /// Keeps the pages, which belong to the tree now, and frees the unused page `spare`.
    fn keep_all_but(&mut self, spare: PageId) {
        self.taken.clear();
        self.pool.allocator().free(spare);
    }
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        // No page is written after it is free.
        self.writer.stop();
        self.passed.drain(..).for_each(|page| self.pool.allocator().free(page));
        for (start, end) in self.taken.drain(..) {
            (start..end).for_each(|page| self.pool.allocator().free(PageId(page)));
        }
    }
}
