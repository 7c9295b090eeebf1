//! Leaves of a large value that are written to storage as they are, and then join the chunk tree:
//! its bytes do not go through the log.
//!
//! [`Tree::write_leaves`] writes leaves of two chunks each to fresh pages. When these are durable,
//! [`Tree::adopt_step`] puts them into the tree, many at a time, from the left. Let F(c) be the
//! fence before chunk c: its key without the zeroes at the end.
//!
//! 1. A split makes the leaf that contains F(c) begin there, where c is the first chunk that is not
//!    in the tree. After a value that was adopted, it does.
//! 2. That leaf has no records below F(c + 2n), and gives up the range before: it begins at
//!    F(c + 2n) now. The parent gets n children before it, with evicted swips. One log record has
//!    the image of the leaf (its fences, as a rule), that of the parent, and the pages (`Adopt`).
//!
//! **Why other threads are not in the way.** They may merge, split and shift the leaves on both
//! sides between two steps. No fence ever lies between F(c) and the end of the value's range: a
//! fence is a prefix of a record's key, above the key of the record before it. Both these records
//! are at or below chunk c - 1, or above the value. A fence above (id, c - 1) that does not begin
//! with the id differs from it first in a byte that is larger, so it is at or above the fence of
//! the next id. And F(c) is the least string that is above the key of chunk c - 1 and does not
//! begin with it. So the leaf that contains F(c) always has the whole rest of the range, and
//! step 1 has to be done again at worst. From the right this would not hold: a fence between
//! two chunks that are there could cut the range of those that are not.
//!
//! **Crashes.** Fences meet after each record. A page is durable before a record names it, and no
//! record of the log that recovery reads is about its earlier contents ([`FreshPages`]).

use crate::{
    chunks::CHUNKS_IN_LEAF,
    journal::Context,
    large_value::{CHUNK, CHUNK_KEY, LargeValue, chunk_key},
    node::{NodeBuilder, NodeMut, NodeRef, NodeView, check_full},
    record::Op,
    step::{Step, Stop},
    tree::Tree,
};
use wattle_buffer::{
    Error, Exclusive, FreshPages, PageId, PageImage, PageMut, Pool, Result, ScopePart, Swip,
    io::PageWrite, page::header, scope,
};

/// Pages that are written at once: a megabyte.
const BATCH: usize = 256;
/// Fewest neighbours that are written with one call.
const LEAST_RUN: usize = 4;

/// Leaves of a large value on storage, those that are not in the tree yet.
pub struct ReadyLeaves {
    pages: FreshPages,
    large: LargeValue,
    /// The first chunk in them.
    next: u64,
    /// The chunk after the last.
    end: u64,
}

impl ReadyLeaves {
    /// The chunk after the last one in them.
    pub fn end(&self) -> u64 {
        self.end
    }

    fn left(&self) -> u64 {
        (self.end - self.next) / CHUNKS_IN_LEAF
    }
}

/// A fence before a chunk: its key without the zeroes at the end.
struct Fence {
    key: [u8; CHUNK_KEY],
    len: usize,
}

impl Fence {
    fn before(id: u64, chunk: u64) -> Fence {
        let key = chunk_key(id, chunk);
        let len = key.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        assert!(len > 0, "no large value has the id 0");
        Fence { key, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.key[..self.len]
    }
}

impl LargeValue {
    /// Leaves from the chunk `first` on that [`Tree::write_leaves`] may write. The last chunk is in
    /// none of them.
    pub fn whole_leaves(self, first: u64) -> u64 {
        self.chunks().saturating_sub(first + 1) / CHUNKS_IN_LEAF
    }
}

impl Tree {
    /// Writes leaves with the chunks of a large value from `first` on to storage. Durable they are
    /// only after a sync. `value` has all bytes of the value.
    ///
    /// # Errors
    /// A full device, where logged chunks may still find room, or a failed write. Nothing has
    /// changed then.
    ///
    /// # Panics
    /// For more than [`LargeValue::whole_leaves`].
    pub fn write_leaves(
        &self,
        large: LargeValue,
        value: &[u8],
        first: u64,
        leaves: usize,
    ) -> Result<ReadyLeaves> {
        assert!(leaves as u64 <= large.whole_leaves(first), "{leaves} leaves of {large:?}");
        debug_assert_eq!(value.len() as u64, large.len, "the bytes of another value");
        let pages = self.pool.fresh_pages(leaves)?;
        let mut images = Vec::with_capacity(leaves.min(BATCH));
        images.resize_with(leaves.min(BATCH), PageImage::zeroed);
        let (mut chunk, mut ids) = (first, pages.iter());
        loop {
            let batch: Vec<PageId> = ids.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                break;
            }
            for (page, image) in batch.iter().zip(&mut images) {
                self.build_leaf(*page, large, value, chunk, image);
                chunk += CHUNKS_IN_LEAF;
            }
            write_batch(&self.pool, &batch, &images)?;
        }
        drop(ids);
        Ok(ReadyLeaves { pages, large, next: first, end: chunk })
    }

    fn build_leaf(
        &self,
        page: PageId,
        large: LargeValue,
        value: &[u8],
        chunk: u64,
        image: &mut PageImage,
    ) {
        let end = chunk + CHUNKS_IN_LEAF;
        let (lower, upper) = (Fence::before(large.id, chunk), Fence::before(large.id, end));
        let mut leaf = NodeBuilder::leaf(page, self.id, lower.bytes(), Some(upper.bytes()));
        for chunk in chunk..end {
            let bytes = &value[chunk as usize * CHUNK..][..CHUNK];
            let taken = leaf.push(&large.chunk_key(chunk), bytes, false);
            assert!(taken, "chunks are so long that two fit");
        }
        leaf.finish(image).expect("chunks are so long that two fit");
        debug_assert_eq!(check_full(&image.0), Ok(()), "a damaged node would be written");
        image.set_u64(header::GSN, 1);
        image.seal();
    }

    /// Puts some of the leaves into the tree, which must be durable. Gives whether all are.
    ///
    /// # Errors
    /// See [`Stop`]. Leaves of earlier steps stay in the tree.
    pub fn adopt_step(&self, cx: &Context, ready: &mut ReadyLeaves) -> Step<bool> {
        if ready.left() == 0 {
            return Ok(true);
        }
        let _scope = scope(ScopePart::StructureChanges);
        cx.check_room(false)?;
        let id = ready.large.id;
        let fence = Fence::before(id, ready.next);
        let path = self.descend(fence.bytes(), 0)?;
        let Some((parent, position)) = path.parent else {
            self.begin_leaf_at(cx, &fence)?;
            return Ok(false);
        };
        let mut parent = parent.upgrade()?;
        let mut leaf = path.node.upgrade()?;
        if NodeView::from(leaf.bytes()).lower() != fence.bytes() {
            drop((leaf, parent));
            self.begin_leaf_at(cx, &fence)?;
            return Ok(false);
        }
        check_range(&leaf, ready)?;
        let (fits, mut above) = with_children(&parent, position, ready);
        if fits == 0 {
            drop((leaf, parent));
            self.split_inner_step(cx, fence.bytes(), 1)?;
            return Ok(false);
        }
        let end = ready.next + fits * CHUNKS_IN_LEAF;
        let Some(mut image) = without_range(&leaf, &Fence::before(id, end)) else {
            // A longer fence finds no room among the records of other values.
            drop((leaf, parent));
            self.halve_leaf_step(cx, fence.bytes())?;
            return Ok(false);
        };
        let rows = ready.pages.take(fits);
        parent.write_image(&mut above);
        leaf.write_image(&mut image);
        cx.log_group_adopting(&mut [(&mut leaf, Op::Image), (&mut parent, Op::Image)], &rows);
        leaf.header().set_parent_hint(parent.frame(), position + fits as usize);
        ready.next = end;
        Ok(ready.left() == 0)
    }

    /// Splits the leaf that contains a fence there, unless it begins there.
    fn begin_leaf_at(&self, cx: &Context, fence: &Fence) -> Step<()> {
        let fence = fence.bytes();
        self.split_with(cx, fence, 0, &|leaf| {
            let (node, view) = (NodeRef::from(leaf.page()), NodeView::from(leaf.bytes()));
            if view.lower() == fence {
                return None;
            }
            let split = node.search(fence).ok().and_then(|at| view.split_at(at.position, fence));
            // A longer fence may find no room beside all records.
            split.or_else(|| (view.count() >= 2).then(|| view.choose_balanced_split()))
        })
    }

    /// Splits the leaf that contains a fence in the middle.
    fn halve_leaf_step(&self, cx: &Context, fence: &[u8]) -> Step<()> {
        self.split_with(cx, fence, 0, &|leaf| {
            let view = NodeView::from(leaf.bytes());
            (view.count() >= 2).then(|| view.choose_balanced_split())
        })
    }
}

/// Fails if the leaf has records in the range of the leaves: the tree is damaged, because nothing
/// else has chunks of this value.
fn check_range(leaf: &Exclusive<'_>, ready: &ReadyLeaves) -> Step<()> {
    let (view, page) = (NodeView::from(leaf.bytes()), leaf.header().page_id());
    let end = Fence::before(ready.large.id, ready.end);
    let mut first = Vec::new();
    if view.count() > 0 {
        view.key_to(0, &mut first);
    }
    let is_inside = view.count() > 0 && first[..] < *end.bytes();
    if is_inside || view.upper().is_some_and(|upper| upper <= end.bytes()) {
        let what = format!("it has records or a fence of large value {}", ready.large.id);
        return Err(Stop::Error(Error::corruption(page, what)));
    }
    Ok(())
}

/// The parent with as many of the ready leaves as it has room for, before its child at `position`,
/// and their number.
fn with_children(parent: &Exclusive<'_>, position: usize, ready: &ReadyLeaves) -> (u64, PageImage) {
    let mut image = PageImage(*parent.bytes());
    let mut bytes = PageMut::of_image(&mut image);
    let mut node = NodeMut::new(&mut bytes);
    let (mut number, leaf) = (0, node.view().swip(position));
    for page in ready.pages.iter() {
        let chunk = ready.next + (number + 1) * CHUNKS_IN_LEAF;
        let (at, separator) = (position + number as usize, Fence::before(ready.large.id, chunk));
        if !node.room_for(separator.bytes()) {
            break;
        }
        let inserted = node.insert_child(at, separator.bytes(), leaf);
        inserted.expect("the parent has room, it was just asked");
        node.set_swip(at, Swip::evicted(page).0);
        number += 1;
    }
    (number, image)
}

/// The leaf, with a range that begins at a later fence.
fn without_range(leaf: &Exclusive<'_>, fence: &Fence) -> Option<Box<PageImage>> {
    NodeView::from(leaf.bytes()).right_part(0, fence.bytes())
}

fn write_batch(pool: &Pool, pages: &[PageId], images: &[Box<PageImage>]) -> Result<()> {
    let (mut others, mut at) = (Vec::new(), 0);
    for run in pages.chunk_by(|page, next| next.0 == page.0 + 1) {
        let images = &images[at..at + run.len()];
        at += run.len();
        if run.len() < LEAST_RUN {
            let writes = run.iter().zip(images);
            others.extend(writes.map(|(page, image)| PageWrite { page: *page, image }));
            continue;
        }
        let images: Vec<&PageImage> = images.iter().map(|image| &**image).collect();
        pool.storage().write_neighbours(run[0], &images).map_err(|error| {
            let what = format_args!("write {} pages from {} on", run.len(), run[0]);
            Error::io(what, error)
        })?;
    }
    let mut results = Vec::with_capacity(others.len());
    if !others.is_empty() {
        pool.storage().write_pages(&others, &mut results);
    }
    for (write, result) in others.iter().zip(results) {
        result.map_err(|error| Error::io(format_args!("write page {}", write.page), error))?;
    }
    Ok(())
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::{ChunkReader, System, run, support::new_tree};
    use std::sync::atomic::AtomicBool;
    use wattle_buffer::random::SeededRandom;

    /// A value in the making, or one that is there.
    struct Making {
        large: LargeValue,
        value: Vec<u8>,
        done: u64,
        ready: Option<ReadyLeaves>,
        logged: bool,
    }

    impl Making {
        fn is_done(&self) -> bool {
            self.done == self.large.chunks()
        }

        /// One step.
        fn go_on(&mut self, cx: &Context, tree: &Tree, random: &mut SeededRandom) {
            let (large, value) = (self.large, &self.value[..]);
            if let Some(ready) = &mut self.ready {
                if run(cx, |_| tree.adopt_step(cx, ready)).expect("adopt") {
                    self.done = ready.end();
                    self.ready = None;
                }
                return;
            }
            let most = if self.logged { 0 } else { large.whole_leaves(self.done) };
            if most > 0 {
                let bound = 1 << random.below(8);
                let leaves = most.min(1 + random.below(bound)) as usize;
                let ready = tree.write_leaves(large, value, self.done, leaves);
                return self.ready = Some(ready.expect("write"));
            }
            run(cx, |restarts| {
                let done = &mut self.done;
                tree.write_chunks_step(cx, large, value, &mut System, restarts, done)
            })
            .expect("write a chunk");
        }

        fn remove(&self, cx: &Context, tree: &Tree) {
            let mut left = self.large.chunks();
            while left > 0 {
                let removed = run(cx, |_| tree.remove_chunks_step(cx, self.large.id, left));
                let removed = removed.expect("remove");
                left = removed.left;
                if removed.underfull {
                    let key = self.large.chunk_key(left);
                    run(cx, |_| tree.merge_step(cx, &key, 0)).expect("merge");
                }
            }
        }

        fn check(&self, tree: &Tree, cx: &Context) {
            let mut reader = ChunkReader::new(self.large, 0..self.large.len);
            let mut read = Vec::new();
            while !reader.is_done() {
                let there = run(cx, |_| tree.chunks_step(&mut reader, &mut read)).expect("read");
                assert!(there, "a chunk of {:?} is missing", self.large);
            }
            assert!(read == self.value, "{:?}", self.large);
        }
    }

    #[test]
    fn leaves_of_several_values_join_the_tree_beside_other_changes_of_it() {
        for seed in 0..10 {
            println!("seed {seed}");
            let mut random = SeededRandom::new(seed);
            let (cx, tree) = new_tree(16 << 20);
            let (mut making, mut there): (Vec<Making>, Vec<Making>) = (Vec::new(), Vec::new());
            // Keys with and without zeroes at the end.
            let mut next_id = [1, 250, 65_530][random.below(3) as usize];
            for _ in 0..400 {
                match random.below(10) {
                    0..3 if making.len() < 5 => {
                        let bound = [8, 40, 600][random.below(3) as usize];
                        let chunks = 3 + random.below(bound);
                        let len = chunks * CHUNK as u64 - random.below(CHUNK as u64);
                        let large = LargeValue { id: next_id, len };
                        let byte = |at: u64| (at.wrapping_mul(next_id + 7) >> 3) as u8;
                        let value = (0..len).map(byte).collect();
                        let logged = random.below(3) == 0;
                        making.push(Making { large, value, done: 0, ready: None, logged });
                        next_id += 1 + random.below(2);
                    }
                    3 if !there.is_empty() => {
                        let at = random.below(there.len() as u64) as usize;
                        there.swap_remove(at).remove(&cx, &tree);
                    }
                    4 if !making.is_empty() => {
                        // One that is abandoned half way.
                        let at = random.below(making.len() as u64) as usize;
                        let abandoned = making.swap_remove(at);
                        abandoned.remove(&cx, &tree);
                    }
                    5 => {
                        let key = chunk_key(random.below(next_id + 1), random.below(300));
                        run(&cx, |_| tree.merge_step(&cx, &key, 0)).expect("merge");
                    }
                    _ if !making.is_empty() => {
                        let at = random.below(making.len() as u64) as usize;
                        making[at].go_on(&cx, &tree, &mut random);
                        if making[at].is_done() {
                            there.push(making.swap_remove(at));
                        }
                    }
                    _ => {}
                }
            }
            for mut last in making {
                while !last.is_done() {
                    last.go_on(&cx, &tree, &mut random);
                }
                there.push(last);
            }
            let mut chunks = 0;
            let report =
                tree.verify(&cx, &AtomicBool::new(false), &mut |_| {}, &mut |_, _, _| chunks += 1);
            let problems = report.expect("verify").problems;
            assert!(problems.is_empty(), "seed {seed}: {problems:#?}");
            assert_eq!(chunks, there.iter().map(|value| value.large.chunks()).sum::<u64>());
            there.iter().for_each(|value| value.check(&tree, &cx));
            cx.worker.release();
            assert_eq!(tree.pool().reserved_pages(), 0, "pages are lost");
        }
    }

    #[test]
    fn a_fence_is_the_shortest_string_between_two_chunks() {
        for (id, chunk) in [(1, 0), (1, 1), (255, 7), (256, 0), (3, 256), (3, 65_536), (9, 255)] {
            let fence = Fence::before(id, chunk);
            let (before, at) = match chunk {
                0 => (chunk_key(id - 1, u64::from(u32::MAX)), chunk_key(id, 0)),
                _ => (chunk_key(id, chunk - 1), chunk_key(id, chunk)),
            };
            assert!(before[..] < *fence.bytes() && *fence.bytes() <= at[..], "{id} {chunk}");
            let shorter = &fence.bytes()[..fence.len - 1];
            assert!(*shorter <= before[..], "{id} {chunk}: a shorter one would do");
        }
    }
}
