//! Verification of all invariants of a tree, level by level along the fences: each node is checked
//! in full, fences of neighbours meet, the first and last fences are infinite, every child lies
//! between the separators around it, every leaf is at level 0, and no page is reached twice.
//!
//! [`Tree::measure`] does the same for a tree that changes meanwhile. A merge may then make a node
//! begin before the fence by which the walk reached it. That is no error then, but it is damage in
//! a tree that does not change.

use crate::{
    descend::Seek,
    ghost::is_ghost,
    journal::Context,
    node::{NodeRef, NodeView, check_full},
    run::run,
    tree::Tree,
};
use std::sync::atomic::{AtomicBool, Ordering};
use wattle_buffer::{Error, PageId, PageImage, PageOwner, Result, Swip, Target};

/// Called for each record: its key, its value, and whether the value is a descriptor.
pub type EntryVisitor<'v> = &'v mut dyn FnMut(&[u8], &[u8], bool);

/// The result of [`Tree::verify`].
#[derive(Debug, Default, Clone)]
pub struct TreeReport {
    /// Nodes at each level, leaves first.
    pub nodes: Vec<u64>,
    /// Records.
    pub records: u64,
    /// Ghosts: deleted records that a snapshot may still have needed.
    pub ghosts: u64,
    /// Bytes in use of all leaves: headers, arrays, keys and values.
    pub leaf_bytes: u64,
    /// The damage that was found, one sentence each.
    pub problems: Vec<String>,
}

impl TreeReport {
    /// Pages of the tree.
    pub fn pages(&self) -> u64 {
        self.nodes.iter().sum()
    }
}

/// Whether the tree may change during the walk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Concurrency {
    Quiescent,
    Live,
}

/// The expected place of a node.
struct ExpectedPlace<'a> {
    level: u8,
    /// The upper fence of its left neighbour.
    fence: &'a [u8],
    /// The separators around it.
    bounds: (Option<Vec<u8>>, Option<Vec<u8>>),
    concurrency: Concurrency,
}

impl Tree {
    /// Checks every node of a tree that does not change meanwhile. Calls `entry` for each record
    /// (key, value, special) in key order, and `page` for each page of the tree, until `stop` is
    /// set.
    ///
    /// # Errors
    /// A failed read, or [`Error::Interrupted`]. Damage is reported in the result instead.
    pub fn verify(
        &self,
        cx: &Context,
        stop: &AtomicBool,
        page: &mut dyn FnMut(PageId),
        entry: EntryVisitor<'_>,
    ) -> Result<TreeReport> {
        self.look_through(cx, stop, Concurrency::Quiescent, page, entry)
    }

    /// As [`Tree::verify`] for a tree that may change meanwhile. Merges do not hide damage or look
    /// like it. No record is counted twice; a record inserted before the current position is not
    /// counted. A page may be counted twice if its left neighbour takes over its records after it
    /// was counted.
    ///
    /// # Errors
    /// As [`Tree::verify`].
    pub fn measure(
        &self,
        cx: &Context,
        stop: &AtomicBool,
        page: &mut dyn FnMut(PageId),
        entry: EntryVisitor<'_>,
    ) -> Result<TreeReport> {
        self.look_through(cx, stop, Concurrency::Live, page, entry)
    }

    fn look_through(
        &self,
        cx: &Context,
        stop: &AtomicBool,
        concurrency: Concurrency,
        page: &mut dyn FnMut(PageId),
        entry: EntryVisitor<'_>,
    ) -> Result<TreeReport> {
        let levels = run(cx, |_| self.depth())?;
        let mut report = TreeReport { nodes: vec![0; levels], ..TreeReport::default() };
        page(self.root_page());
        for level in (0..levels).rev() {
            match self.verify_level(cx, stop, (level as u8, concurrency), page, entry, &mut report)
            {
                Ok(()) => {}
                Err(error @ Error::Corruption { .. }) => {
                    report.problems.push(format!("tree {}: {error}", self.id));
                }
                Err(error) => return Err(error),
            }
        }
        let levels = report.nodes.iter().rposition(|nodes| *nodes > 0).map_or(1, |top| top + 1);
        report.nodes.truncate(levels);
        Ok(report)
    }

    fn verify_level(
        &self,
        cx: &Context,
        stop: &AtomicBool,
        (level, concurrency): (u8, Concurrency),
        page: &mut dyn FnMut(PageId),
        entry: EntryVisitor<'_>,
        report: &mut TreeReport,
    ) -> Result<()> {
        let mut image = PageImage::zeroed();
        let mut fence: Vec<u8> = Vec::new();
        // A damaged fence could lead in circles, so the number of steps is bounded.
        let limit = self.pool.allocator().counts().0;
        let faults = || cx.worker.counters().faults.get();
        let mut known_faults = None;
        for _ in 0..=limit {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if known_faults != Some(faults()) {
                // The last pages were read from storage: read the next ones together. An error is
                // reported when the walk comes to its page.
                let _ahead = run(cx, |_| {
                    self.ahead_step(Seek::At(&fence), level, crate::Direction::Forward)
                });
                known_faults = Some(faults());
            }
            let bounds = run(cx, |_| {
                if self.depth()? <= usize::from(level) {
                    return Ok(None);
                }
                let path = self.seek(Seek::At(&fence), level)?;
                path.node.page().copy_image(&mut image);
                path.node.validate()?;
                let mut bounds = (None, None);
                if let Some((parent, position)) = path.parent {
                    let parent_node = NodeRef::from(parent.page());
                    let separator = |position| {
                        let mut key = Vec::new();
                        parent_node.key_to(position, &mut key).map(|()| key)
                    };
                    if position > 0 {
                        bounds.0 = Some(separator(position - 1)?);
                    }
                    if position < parent_node.count() {
                        bounds.1 = Some(separator(position)?);
                    }
                    parent.validate()?;
                }
                Ok(Some(bounds))
            })?;
            let Some(bounds) = bounds else {
                // Merges removed this level, as they may. Its records are below.
                return Ok(());
            };
            let place = ExpectedPlace { level, fence: &fence, bounds, concurrency };
            let upper = self.verify_node(&mut image, place, page, entry, report);
            match upper {
                Some(upper) if upper > fence => fence = upper,
                Some(_) => {
                    report
                        .problems
                        .push(format!("tree {}: fences of level {level} do not ascend", self.id));
                    return Ok(());
                }
                None => return Ok(()),
            }
        }
        // Fences ascend, so other threads have added nodes at the end as fast as this walk came
        // near it. These are newer than the walk and need not be counted.
        if concurrency == Concurrency::Quiescent {
            report.problems.push(format!("tree {}: level {level} does not end", self.id));
        }
        Ok(())
    }

    fn verify_node(
        &self,
        image: &mut PageImage,
        place: ExpectedPlace<'_>,
        page: &mut dyn FnMut(PageId),
        entry: EntryVisitor<'_>,
        report: &mut TreeReport,
    ) -> Option<Vec<u8>> {
        let ExpectedPlace { level, fence, bounds: (low, high), concurrency } = place;
        let mut children = Vec::new();
        let inner = NodeView::from(&*image).is_inner();
        if inner {
            // Replace hot swips by page ids, as on storage.
            let pool = &self.pool;
            let mut unswizzle = |raw| match Swip(raw).target() {
                Target::Hot(frame) => {
                    let page = pool.header(frame).page_id();
                    children.push(page);
                    Swip::evicted(page).0
                }
                Target::Evicted(page) => {
                    children.push(page);
                    raw
                }
            };
            self.forest.map_swips(image, &mut unswizzle);
        }
        let view = NodeView::from(&*image);
        let id = view.page_id();
        let mut problem =
            |text: String| report.problems.push(format!("tree {}, page {id}: {text}", self.id));
        if let Err(damage) = check_full(&image.0) {
            problem(damage);
            return None;
        }
        if view.level() != level || inner != (level > 0) {
            problem(format!("level {} instead of {level}", view.level()));
        }
        let merged = concurrency == Concurrency::Live && view.lower() < fence;
        if view.lower() != fence && !merged {
            problem("its lower fence is not the upper fence of its left neighbour".to_string());
        }
        if low.is_some_and(|low| low != view.lower()) {
            problem("its lower fence is not the separator left of it".to_string());
        }
        if high.is_some_and(|high| Some(high.as_slice()) != view.upper()) {
            problem("its upper fence is not the separator right of it".to_string());
        }
        children.into_iter().for_each(&mut *page);
        if !inner {
            let mut key = Vec::new();
            for position in 0..view.count() {
                key.clear();
                view.key_to(position, &mut key);
                if merged && key.as_slice() < fence {
                    continue;
                }
                let (value, special) = view.value(position);
                if is_ghost((value, special)) {
                    report.ghosts += 1;
                    continue;
                }
                report.records += 1;
                entry(&key, value, special);
            }
            report.leaf_bytes += view.used_bytes() as u64;
        }
        report.nodes[usize::from(level)] += 1;
        view.upper().map(<[u8]>::to_vec)
    }
}
