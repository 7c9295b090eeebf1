//! Point look-ups: one key, or many keys interleaved level by level.
//!
//! A resident look-up mostly stores nothing to shared memory: the descent only reads, and the
//! tracker of the leaf is written once an epoch. Values are copied out of the leaf, then the leaf
//! is validated, and only then is the copy interpreted.

use crate::{
    descend::Seek,
    ghost::Special,
    large_value::LargeValue,
    node::NodeRef,
    read_ahead::most_reads,
    step::{Step, Stop},
    tree::Tree,
    view::{Seen, View},
};
use wattle_buffer::{Fault, For, Optimistic, PageId, ScopePart, Swip, Target, scope};

/// Where the value of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Copied out of the leaf.
    Inline,
    /// Outside of the leaf, where the descriptor says.
    Large(LargeValue),
}

/// Most keys of one [`Tree::multi_get_step`]: enough to hide the latency of memory.
pub const MULTI_GET: usize = 32;
impl Tree {
    /// Looks `key` up and appends its value, as `view` sees it, to `value`. A step that stops, or
    /// finds a large value, leaves `value` as it was.
    #[inline(always)]
    pub fn get_step<V: View>(
        &self,
        key: &[u8],
        view: &mut V,
        value: &mut Vec<u8>,
    ) -> Step<Option<Found>> {
        if self.pool.is_traced() {
            return self.get_traced(key, view, value);
        }
        let path = self.descend(key, 0)?;
        self.read_leaf(path.node, key, view, value)
    }

    /// As [`Tree::get_step`], with the trace of page accesses. Separate, to keep the untraced path
    /// short.
    #[cold]
    #[inline(never)]
    fn get_traced<V: View>(
        &self,
        key: &[u8],
        view: &mut V,
        value: &mut Vec<u8>,
    ) -> Step<Option<Found>> {
        let path = self.descend(key, 0)?;
        path.node.record(|way| self.lead(Seek::At(key), way));
        self.read_leaf(path.node, key, view, value)
    }

    #[inline(always)]
    fn read_leaf<V: View>(
        &self,
        leaf: Optimistic<'_>,
        key: &[u8],
        view: &mut V,
        value: &mut Vec<u8>,
    ) -> Step<Option<Found>> {
        let _scope = scope(ScopePart::Records);
        let node = NodeRef::from(leaf.page());
        let search = self.checked(&leaf, node.search(key))?;
        leaf.track();
        if !search.found {
            leaf.validate()?;
            view.missed()?;
            return Ok(None);
        }
        let start = value.len();
        let range = self.checked(&leaf, node.value_range(search.position))?;
        let (offset, len, special) = range;
        self.checked(&leaf, leaf.page().append_to(offset, len, value))?;
        let mut seen = Seen::Page;
        if !view.sees_all(leaf.header()) {
            seen = look(&leaf, key, view, value, start)?;
        }
        let special = match seen {
            Seen::Page => special,
            Seen::Value { special } => special,
            Seen::Absent => {
                value.truncate(start);
                leaf.validate()?;
                return Ok(None);
            }
        };
        if let Err(restart) = leaf.validate() {
            value.truncate(start);
            return Err(restart.into());
        }
        if !special {
            return Ok(Some(Found::Inline));
        }
        let found = Special::decode(&value[start..], leaf.header().page_id());
        value.truncate(start);
        Ok(match found? {
            Special::Large(large) => Some(Found::Large(large)),
            Special::Ghost => None,
        })
    }

    /// Looks up to [`MULTI_GET`] keys up at once. Calls `report(i, ..)` once for each key when its
    /// look-up ends, and sets its bit in `done`. After a fault or a restart, run the step again: it
    /// continues with the other keys.
    ///
    /// All look-ups take one level at a time. Each prefetches its next node before the others
    /// continue, so the cache misses of a batch overlap. The reads of pages that are not in memory
    /// overlap, too, up to sixteen of them.
    ///
    /// # Panics
    /// With more than [`MULTI_GET`] keys.
    pub fn multi_get_step<K: AsRef<[u8]>, V: View>(
        &self,
        keys: &[K],
        view: &mut V,
        done: &mut u32,
        value: &mut Vec<u8>,
        report: &mut impl FnMut(usize, Option<(Found, &[u8])>),
    ) -> Step<()> {
        let mut round = Round::new(keys.len(), *done);
        if round.active == 0 {
            return Ok(());
        }
        let mut wanted = [(self, &[][..]); MULTI_GET];
        wanted.iter_mut().zip(keys).for_each(|(wanted, key)| wanted.1 = key.as_ref());
        let nodes = descend_all(&wanted, &mut round)?;
        for i in bits(round.active) {
            value.clear();
            if self.pool.is_traced() {
                nodes[i].record(|way| self.lead(Seek::At(keys[i].as_ref()), way));
            }
            match self.read_leaf(nodes[i], keys[i].as_ref(), view, value) {
                Ok(found) => {
                    *done |= 1 << i;
                    report(i, found.map(|found| (found, value.as_slice())));
                }
                Err(why) => round.stop(i, why),
            }
        }
        round.end()
    }

    /// Prefetches up to [`MULTI_GET`] records of one tree or of several trees of a pool: reads
    /// their pages into memory, and prefetches the lines that a search touches into the processor's
    /// cache. `wanted` has tree and key of each record. Interleaved as [`Tree::multi_get_step`],
    /// with the same `done`. Does not count as an access: nothing is tracked.
    ///
    /// # Panics
    /// With more than [`MULTI_GET`] records.
    pub fn prefetch_step(wanted: &[(&Tree, &[u8])], done: &mut u32) -> Step<()> {
        let mut round = Round::new(wanted.len(), *done);
        if round.active == 0 {
            return Ok(());
        }
        descend_all(wanted, &mut round)?;
        *done |= round.active;
        round.end()
    }
}

/// Descends with the keys of a round, at least one, from the roots of their trees to their leaves,
/// and prefetches their records. The leaves are not validated. A key that is stopped leaves the
/// round.
///
/// This is one function for all kinds of keys and uses, so that an operation that uses it for
/// several of them finds it in the instruction cache.
#[inline(never)]
fn descend_all<'p>(
    wanted: &[(&'p Tree, &[u8])],
    round: &mut Round,
) -> Step<[Optimistic<'p>; MULTI_GET]> {
    let root_of = |tree: &'p Tree| -> Step<(Optimistic<'p>, u8)> {
        let root = tree.pool.optimistic(tree.root)?;
        let height = NodeRef::from(root.page()).level();
        root.validate()?;
        Ok((root, height))
    };
    let (first, _) = wanted[round.active.trailing_zeros() as usize];
    let (root, mut highest) = root_of(first)?;
    let (mut nodes, mut levels) = ([root; MULTI_GET], [highest; MULTI_GET]);
    for i in bits(round.active) {
        let (tree, _) = wanted[i];
        if !std::ptr::eq(tree, first) {
            (nodes[i], levels[i]) = root_of(tree)?;
            highest = highest.max(levels[i]);
        }
    }
    // The frames that wait for this step to run again must be few compared to the pool.
    let most_reads = most_reads(first);
    for level in (0..highest).rev() {
        // A tree of less height joins at a lower level.
        let mut next = [Swip::evicted(PageId(0)); MULTI_GET];
        for i in bits(round.active) {
            if levels[i] <= level {
                continue;
            }
            let (tree, key) = wanted[i];
            let node = NodeRef::from(nodes[i].page());
            match tree.checked(&nodes[i], node.child_position(key)) {
                Ok(position) => {
                    next[i] = Swip(node.swip(position));
                    match next[i].target() {
                        Target::Hot(frame) => tree.prefetch_node(frame, level, For::Read),
                        Target::Evicted(_) if round.reads.len() >= most_reads => {
                            round.stop(i, Stop::Restart);
                        }
                        Target::Evicted(_) => match tree.child(nodes[i], position) {
                            // Continue at once: even if the page is evicted again soon, each read
                            // serves one key. The other keys below this parent run again.
                            Ok(path) if path.node_ref().level() == level => {
                                nodes[i] = path.node;
                            }
                            Ok(_) => round.stop(i, Stop::Restart),
                            Err(why) => round.stop(i, why),
                        },
                    }
                }
                Err(why) => round.stop(i, why),
            }
        }
        for i in bits(round.active) {
            let Target::Hot(frame) = next[i].target() else { continue };
            let child = first.pool.optimistic(frame);
            match child.and_then(|child| nodes[i].validate().map(|()| child)) {
                Ok(child) if NodeRef::from(child.page()).level() == level => {
                    nodes[i] = child;
                }
                _ => round.stop(i, Stop::Restart),
            }
        }
    }
    for i in bits(round.active) {
        NodeRef::from(nodes[i].page()).prefetch_record(wanted[i].1);
    }
    Ok(nodes)
}

/// The keys of a batch that are still active, and the reasons that stopped the others.
struct Round {
    /// Bit i: key i is active. A look-up that is stopped leaves the batch; the others continue.
    active: u32,
    reads: Vec<Fault>,
    stopped: Option<Stop>,
}

impl Round {
    /// # Panics
    /// With more than [`MULTI_GET`] keys.
    #[inline(always)]
    fn new(keys: usize, done: u32) -> Round {
        assert!(keys <= MULTI_GET);
        Round { active: !done & low_bits(keys), reads: Vec::new(), stopped: None }
    }

    #[cold]
    fn stop(&mut self, i: usize, why: Stop) {
        self.active &= !(1 << i);
        match why {
            Stop::Fault(fault @ Fault::Read(_)) => self.reads.push(fault),
            why if !matches!(self.stopped, Some(Stop::Error(_))) => self.stopped = Some(why),
            _ => {}
        }
    }

    /// Ends the round. A read goes before a restart: this step owns it.
    #[inline(always)]
    fn end(mut self) -> Step<()> {
        match (self.stopped, self.reads.len()) {
            (Some(Stop::Error(error)), _) => Err(Stop::Error(error)),
            (None, 0) => Ok(()),
            (Some(why), 0) => Err(why),
            (_, 1) => Err(Stop::Fault(self.reads.remove(0))),
            _ => Err(Stop::Faults(self.reads)),
        }
    }
}

/// The part of a look-up that most version hints make unnecessary.
#[cold]
fn look<V: View>(
    leaf: &Optimistic<'_>,
    key: &[u8],
    view: &mut V,
    value: &mut Vec<u8>,
    start: usize,
) -> Step<Seen> {
    let _scope = scope(ScopePart::Versions);
    view.look(key, value, start).inspect_err(|_| value.truncate(start)).or_else(|stop| {
        // The error may come from bytes that were changed while they were read.
        leaf.validate()?;
        Err(stop)
    })
}

fn low_bits(count: usize) -> u32 {
    if count >= 32 { u32::MAX } else { (1 << count) - 1 }
}

/// Positions of the set bits.
fn bits(mut word: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.wrapping_sub(1);
        (bit < 32).then_some(bit)
    })
}
