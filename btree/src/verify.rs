//! Verification of all invariants of a tree, level by level along the fences: each node is checked
//! in full, fences of neighbours meet, the first and last fences are infinite, every child lies
//! between the separators around it, every leaf is at level 0, and no page is reached twice.
//!
//! A tree that others change meanwhile can be measured so: a merge may then give a node back that
//! begins before the fence it was sought at, which of a tree that nobody changes would be damage.

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

/// What [`Tree::verify`] found.
#[derive(Debug, Default, Clone)]
pub struct TreeReport {
    /// Nodes at each level, leaves first.
    pub nodes: Vec<u64>,
    /// Records.
    pub records: u64,
    /// Ghosts: deleted records that some snapshot may have needed.
    pub ghosts: u64,
    /// Bytes in use of all leaves: headers, arrays, keys and values.
    pub leaf_bytes: u64,
    /// What is wrong, one sentence each.
    pub problems: Vec<String>,
}

impl TreeReport {
    /// Pages of the tree.
    pub fn pages(&self) -> u64 {
        self.nodes.iter().sum()
    }
}

/// Whether others may change a tree while it is looked through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Wait,
    Change,
}

/// Where a node should be.
struct Place<'a> {
    level: u8,
    /// The upper fence of the node before it.
    fence: &'a [u8],
    /// The separators around it.
    bounds: (Option<Vec<u8>>, Option<Vec<u8>>),
    others: Others,
}

impl Tree {
    /// Checks every node of a tree that nobody changes meanwhile, and calls `leaf_entry` for each record (key,
    /// value, special) in key order and `page` for each page of the tree, until `stop` is set.
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
        self.look_through(cx, stop, Others::Wait, page, entry)
    }

    /// As [`Tree::verify`] for a tree that others may change meanwhile: merges hide no damage and
    /// look like none, no record is counted twice, and what is new behind the point reached is
    /// missing. A page whose left neighbour has taken it in after that was counted counts again.
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
        self.look_through(cx, stop, Others::Change, page, entry)
    }

    fn look_through(
        &self,
        cx: &Context,
        stop: &AtomicBool,
        others: Others,
        page: &mut dyn FnMut(PageId),
        entry: EntryVisitor<'_>,
    ) -> Result<TreeReport> {
        let levels = run(cx, |_| self.depth())?;
        let mut report = TreeReport { nodes: vec![0; levels], ..TreeReport::default() };
        page(self.root_page());
        for level in (0..levels).rev() {
            match self.verify_level(cx, stop, (level as u8, others), page, entry, &mut report) {
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
        (level, others): (u8, Others),
        page: &mut dyn FnMut(PageId),
        entry: EntryVisitor<'_>,
        report: &mut TreeReport,
    ) -> Result<()> {
        let mut image = PageImage::zeroed();
        let mut fence: Vec<u8> = Vec::new();
        // A damaged fence could lead in circles.
        let limit = self.pool.allocator().counts().0;
        let faults = || cx.worker.counters().faults.get();
        let mut known_faults = None;
        for _ in 0..=limit {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if known_faults != Some(faults()) {
                // Pages come from storage: the next ones together. Of one that cannot be read is told when
                // its turn comes.
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
                // Merges took the level away, which are allowed meanwhile. What was in it is below.
                return Ok(());
            };
            let place = Place { level, fence: &fence, bounds, others };
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
        // Fences ascend, so others have added nodes to the end as fast as this walk came near it. They
        // came after the walk began and need not be counted.
        if others == Others::Wait {
            report.problems.push(format!("tree {}: level {level} does not end", self.id));
        }
        Ok(())
    }

    fn verify_node(
        &self,
        image: &mut PageImage,
        place: Place<'_>,
        page: &mut dyn FnMut(PageId),
        entry: EntryVisitor<'_>,
        report: &mut TreeReport,
    ) -> Option<Vec<u8>> {
        let Place { level, fence, bounds: (low, high), others } = place;
        let mut children = Vec::new();
        let inner = NodeView::from(&*image).is_inner();
        if inner {
            // Hot swips become page ids, as they would on storage.
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
            |what: String| report.problems.push(format!("tree {}, page {id}: {what}", self.id));
        if let Err(what) = check_full(&image.0) {
            problem(what);
            return None;
        }
        if view.level() != level || inner != (level > 0) {
            problem(format!("level {} instead of {level}", view.level()));
        }
        let merged = others == Others::Change && view.lower() < fence;
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
