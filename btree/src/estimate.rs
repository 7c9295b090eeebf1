//! Estimates of how much lies between two keys, from inner nodes and leaves that are in memory. No
//! leaf is read.
//!
//! **Leaves.** Two descents note, for each inner node, the position that they take and how many
//! children there are. Above the node where the ways part they are the same. There, all children
//! between the two positions lie in the range, and below it those to the right of the low way and
//! to the left of the high way. Up to [`SAMPLES`] further ways lead through the children between.
//! The leaves that those have under their child are the measure for each child between. For the
//! nodes beside the low and the high way it is the mean of all ways. So the number is exact where
//! the ways part at the lowest inner level, or one above it with no more than [`SAMPLES`] children
//! between.
//!
//! **Ends.** The leaves at both ends lie in the range in part. In a leaf that is in memory the
//! bound is searched. Of one that is not in memory, half counts; if both bounds fall into it a
//! third, the mean distance of two places.
//!
//! **Records.** The leaves at the ends of all ways give the records of a leaf. One that is not in
//! memory counts as the mean of those that were met lately ([`crate::leaf_records`]). Ghosts count
//! as records.

use crate::{
    node::NodeRef,
    step::{Step, Stop},
    tree::Tree,
};
use std::ops::Bound;
use wattle_buffer::{For, Optimistic, Swip, Target};

/// Through how many of the children between two ways a further way is taken, evenly spread. It
/// bounds the work of an estimate.
const SAMPLES: usize = 8;

/// An estimate of a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangeExtent {
    /// Leaves; those at the ends count by their share.
    pub leaves: f64,
    /// Records; `None` if no leaf of the tree has been met since it was opened.
    pub records: Option<f64>,
}

/// A hop of a descent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hop {
    position: usize,
    children: usize,
}

/// A leaf in memory.
#[derive(Clone, Copy, Debug)]
struct SeenLeaf {
    records: usize,
    /// Records before the bound of the way.
    before: usize,
}

/// A descent to the lowest inner node, and the leaf under it if that is in memory.
struct Way {
    hops: Vec<Hop>,
    leaf: Option<SeenLeaf>,
}

/// Which child a descent takes.
#[derive(Clone, Copy)]
enum Route<'a> {
    Low(Bound<&'a [u8]>),
    High(Bound<&'a [u8]>),
    /// Along a way, then to the child at `position`, and below that in the middle.
    Sample {
        above: &'a [Hop],
        position: usize,
    },
}

impl Tree {
    /// Estimates the records between two bounds, and their leaves. Reads inner nodes only.
    pub fn extent_step(&self, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Step<RangeExtent> {
        if is_empty(low, high) {
            return Ok(RangeExtent { leaves: 0.0, records: Some(0.0) });
        }
        let (first, last) = (self.way(Route::Low(low))?, self.way(Route::High(high))?);
        if first.hops.len() != last.hops.len() {
            // The root has a level more or less now.
            return Err(Stop::Restart);
        }
        let mut ways = vec![first.leaf, last.leaf];
        let leaves = leaves_between(&first.hops, &last.hops, |depth, position| {
            let way = self.way(Route::Sample { above: &first.hops[..depth], position })?;
            if way.hops.len() != first.hops.len() {
                return Err(Stop::Restart);
            }
            ways.push(way.leaf);
            Ok(way.hops)
        })?;
        if leaves < 1.0 {
            // The bounds do not cross: nodes were split or merged between the descents.
            return Err(Stop::Restart);
        }
        let mean = mean_records(&ways, self.leaf_records.mean());
        let (low, high) = (End::low(low, first.leaf), End::high(high, last.leaf));
        Ok(extent(leaves, low, high, mean))
    }

    /// A descent from the root down to the lowest inner node.
    fn way(&self, route: Route<'_>) -> Step<Way> {
        let mut node = self.pool.optimistic(self.root)?;
        let mut height = NodeRef::from(node.page()).level();
        let mut hops = Vec::with_capacity(usize::from(height));
        loop {
            let view = NodeRef::from(node.page());
            if height == 0 {
                return Ok(Way { hops, leaf: Some(self.look_at(node, route)?) });
            }
            let children = view.count() + 1;
            let position = match route {
                Route::Low(Bound::Included(key) | Bound::Excluded(key))
                | Route::High(Bound::Included(key) | Bound::Excluded(key)) => {
                    self.checked(&node, view.child_position(key))?
                }
                Route::Low(Bound::Unbounded) => 0,
                Route::High(Bound::Unbounded) => children - 1,
                Route::Sample { above, position } => {
                    let position = match above.get(hops.len()) {
                        Some(hop) => hop.position,
                        None if hops.len() == above.len() => position,
                        None => children / 2,
                    };
                    // A node may have fewer children than when the way was taken.
                    position.min(children - 1)
                }
            };
            hops.push(Hop { position, children });
            if height == 1 {
                return Ok(Way { hops, leaf: self.leaf_under(node, position, route)? });
            }
            height -= 1;
            node = self.child_at(node, position, height, For::Read)?.node;
            if NodeRef::from(node.page()).level() != height {
                return Err(self.wrong_level(node, height));
            }
        }
    }

    /// Looks at the leaf at a position of a lowest inner node, if it is in memory. One that is
    /// being changed is left out: an estimate of a tree with many writers would rarely end.
    fn leaf_under(
        &self,
        parent: Optimistic<'_>,
        position: usize,
        route: Route<'_>,
    ) -> Step<Option<SeenLeaf>> {
        let swip = Swip(NodeRef::from(parent.page()).swip(position));
        let leaf = match self.pool.locate(swip) {
            Target::Hot(frame) => self.pool.optimistic(frame).ok(),
            Target::Evicted(_) => None,
        };
        parent.validate()?;
        match leaf.map(|leaf| self.look_at(leaf, route)) {
            None | Some(Err(Stop::Restart)) => Ok(None),
            Some(seen) => seen.map(Some),
        }
    }

    fn look_at(&self, leaf: Optimistic<'_>, route: Route<'_>) -> Step<SeenLeaf> {
        let view = NodeRef::from(leaf.page());
        if view.level() != 0 {
            return Err(self.wrong_level(leaf, 0));
        }
        let records = view.count();
        let before = match route {
            Route::Sample { .. } | Route::Low(Bound::Unbounded) => 0,
            Route::High(Bound::Unbounded) => records,
            Route::Low(Bound::Included(key)) | Route::High(Bound::Excluded(key)) => {
                self.checked(&leaf, view.search(key))?.position
            }
            Route::Low(Bound::Excluded(key)) | Route::High(Bound::Included(key)) => {
                let search = self.checked(&leaf, view.search(key))?;
                search.position + usize::from(search.found)
            }
        };
        leaf.validate()?;
        Ok(SeenLeaf { records, before })
    }
}

/// Mean records of the leaves at the ends of ways. Those that are not in memory count as the leaves
/// that were met lately: leaves that are in memory because they are changed may be unlike the
/// others.
fn mean_records(ways: &[Option<SeenLeaf>], met: Option<f64>) -> Option<f64> {
    let seen = || ways.iter().flatten().map(|leaf| leaf.records as f64);
    let (sum, count) = (seen().sum::<f64>(), seen().count());
    match met {
        Some(met) => Some((sum + met * (ways.len() - count) as f64) / ways.len() as f64),
        None => (count > 0).then(|| sum / count as f64),
    }
}

/// Whether no key lies between two bounds, whatever the tree has.
fn is_empty(low: Bound<&[u8]>, high: Bound<&[u8]>) -> bool {
    match (low, high) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (
            Bound::Included(low) | Bound::Excluded(low),
            Bound::Included(high) | Bound::Excluded(high),
        ) => low >= high,
    }
}

/// An end of a range, in its leaf.
#[derive(Clone, Copy, Debug)]
struct End {
    /// Share of the leaf that lies before the bound, if it is known.
    before: Option<f64>,
    leaf: Option<SeenLeaf>,
}

impl End {
    fn low(bound: Bound<&[u8]>, leaf: Option<SeenLeaf>) -> End {
        End::new((bound == Bound::Unbounded).then_some(0.0), leaf)
    }

    fn high(bound: Bound<&[u8]>, leaf: Option<SeenLeaf>) -> End {
        End::new((bound == Bound::Unbounded).then_some(1.0), leaf)
    }

    fn new(unbounded: Option<f64>, leaf: Option<SeenLeaf>) -> End {
        let share = |leaf: SeenLeaf| leaf.before as f64 / leaf.records.max(1) as f64;
        End { before: leaf.map(share).or(unbounded), leaf }
    }
}

/// The extent of so many leaves, at least one, those of both ends included. `mean`: records of a
/// leaf.
fn extent(leaves: f64, low: End, high: End, mean: Option<f64>) -> RangeExtent {
    if leaves < 2.0 {
        let share = match (low.before, high.before) {
            (Some(low), Some(high)) => (high - low).max(0.0),
            (Some(low), None) => (1.0 - low) / 2.0,
            (None, Some(high)) => high / 2.0,
            (None, None) => 1.0 / 3.0,
        };
        let records = match (low.leaf, high.leaf) {
            (Some(low), Some(high)) => Some(high.before.saturating_sub(low.before) as f64),
            _ => mean.map(|mean| share * mean),
        };
        return RangeExtent { leaves: share, records };
    }
    let (first, last) = (1.0 - low.before.unwrap_or(0.5), high.before.unwrap_or(0.5));
    let between = leaves - 2.0;
    let records = mean.map(|mean| {
        let first = low.leaf.map_or(first * mean, |leaf| (leaf.records - leaf.before) as f64);
        let last = high.leaf.map_or(last * mean, |leaf| leaf.before as f64);
        first + between * mean + last
    });
    RangeExtent { leaves: first + between + last, records }
}

/// Leaves from that of the low way to that of the high way, both included. `sample` takes a way
/// through the child at a depth and position.
fn leaves_between(
    low: &[Hop],
    high: &[Hop],
    mut sample: impl FnMut(usize, usize) -> Step<Vec<Hop>>,
) -> Step<f64> {
    let parts = low.iter().zip(high).position(|(low, high)| low.position != high.position);
    let Some(parts) = parts else { return Ok(1.0) };
    if low[parts].position > high[parts].position {
        // The bounds cross.
        return Ok(0.0);
    }
    let first = low[parts].position + 1;
    let between = high[parts].position - first;
    let count = between.min(SAMPLES);
    let samples = (0..count)
        .map(|number| sample(parts, first + (2 * number + 1) * between / (2 * count)))
        .collect::<Step<Vec<_>>>()?;
    let samples: Vec<&[Hop]> = samples.iter().map(Vec::as_slice).collect();
    let ways = [&[low, high], &samples[..]].concat();

    let mut leaves = between as f64 * leaves_under(&samples, parts);
    for depth in parts + 1..low.len() {
        let right = low[depth].children - 1 - low[depth].position;
        leaves += (right + high[depth].position) as f64 * leaves_under(&ways, depth);
    }
    Ok(leaves + 2.0)
}

/// Leaves under a child of the node at a depth, by the mean of what ways meet below it; one if no
/// way is given.
fn leaves_under(ways: &[&[Hop]], depth: usize) -> f64 {
    if ways.is_empty() {
        return 1.0;
    }
    let leaves = |way: &&[Hop]| way[depth + 1..].iter().map(|hop| hop.children).product::<usize>();
    ways.iter().map(leaves).sum::<usize>() as f64 / ways.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(hops: &[(usize, usize)]) -> Vec<Hop> {
        hops.iter().map(|&(position, children)| Hop { position, children }).collect()
    }

    /// With so many children in each node between both ways.
    fn leaves(low: &[(usize, usize)], high: &[(usize, usize)], fan_outs: &[usize]) -> f64 {
        let (mut fan_outs, levels) = (fan_outs.iter(), low.len());
        let found = leaves_between(&way(low), &way(high), |depth, position| {
            // Children of the lowest inner nodes are leaves.
            if depth + 1 == levels {
                return Ok(way(&[&low[..depth], &[(position, 10)]].concat()));
            }
            let children = *fan_outs.next().expect("no more ways than nodes");
            Ok(way(&[(position, 10), (children / 2, children)]))
        });
        assert_eq!(fan_outs.next(), None, "a node is left out");
        found.expect("an estimate")
    }

    #[test]
    fn leaves_are_counted_where_the_ways_part() {
        // In one leaf, in one node, and in neighbours.
        let low = &[(3, 10), (4, 20)];
        assert_eq!(leaves(low, low, &[]), 1.0);
        assert_eq!(leaves(low, &[(3, 10), (9, 20)], &[]), 6.0);
        assert_eq!(leaves(low, &[(4, 10), (0, 20)], &[]), 17.0);
        // With two whole nodes between, of 20 leaves, and with two that are nearly empty.
        assert_eq!(leaves(low, &[(6, 10), (0, 20)], &[20, 20]), 57.0);
        assert_eq!(leaves(low, &[(6, 10), (0, 20)], &[2, 3]), 22.0);
        // The bounds cross; a tree of one leaf.
        assert_eq!(leaves(&[(6, 10), (0, 20)], low, &[]), 0.0);
        assert_eq!(leaves(&[], &[], &[]), 1.0);
    }

    #[test]
    fn samples_are_spread_over_the_children_between() {
        let samples = |low, high| {
            let mut positions = Vec::new();
            let found = leaves_between(&way(low), &way(high), |depth, position| {
                positions.push((depth, position));
                Ok(way(&[(position, 99), (4, 9)]))
            });
            found.expect("an estimate");
            positions
        };
        assert_eq!(samples(&[(3, 99), (0, 9)], &[(4, 99), (0, 9)]), []);
        assert_eq!(samples(&[(3, 99), (0, 9)], &[(6, 99), (0, 9)]), [(0, 4), (0, 5)]);
        let spread = [15, 25, 35, 45, 55, 65, 75, 85].map(|position| (0, position));
        assert_eq!(samples(&[(9, 99), (0, 9)], &[(90, 99), (0, 9)]), spread);
        assert_eq!(samples(&[(9, 99)], &[(90, 99)]), spread);
        assert_eq!(samples(&[(9, 99)], &[(10, 99)]), []);
    }

    fn seen(records: usize, before: usize) -> Option<SeenLeaf> {
        Some(SeenLeaf { records, before })
    }

    #[test]
    fn leaves_at_the_ends_count_by_their_share() {
        let (from, to): (Bound<&[u8]>, Bound<&[u8]>) =
            (Bound::Included(b"a"), Bound::Excluded(b"b"));
        let all = Bound::Unbounded;
        let of = |leaves, low, high, mean| {
            let RangeExtent { leaves, records } = extent(leaves, low, high, mean);
            (leaves, records)
        };
        // Both ends are in memory: exact, but for the leaves between.
        let (low, high) = (End::low(from, seen(40, 30)), End::high(to, seen(20, 5)));
        assert_eq!(of(2.0, low, high, Some(30.0)), (0.5, Some(15.0)));
        assert_eq!(of(12.0, low, high, Some(30.0)), (10.5, Some(315.0)));
        // Both in one leaf, in which a change between the two looks may let them cross.
        let (low, high) = (End::low(from, seen(40, 10)), End::high(to, seen(40, 30)));
        assert_eq!(of(1.0, low, high, Some(40.0)), (0.5, Some(20.0)));
        let crossed = End::high(to, seen(8, 2));
        assert_eq!(of(1.0, low, crossed, Some(40.0)), (0.0, Some(0.0)));
        // None is in memory.
        let (low, high) = (End::low(from, None), End::high(to, None));
        assert_eq!(of(2.0, low, high, Some(30.0)), (1.0, Some(30.0)));
        assert_eq!(of(2.0, low, high, None), (1.0, None));
        assert_eq!(of(1.0, low, high, Some(30.0)), (1.0 / 3.0, Some(10.0)));
        assert_eq!(of(1.0, low, End::high(all, None), Some(30.0)), (0.5, Some(15.0)));
        assert_eq!(of(1.0, End::low(all, None), high, Some(30.0)), (0.5, Some(15.0)));
        let whole = (End::low(all, None), End::high(all, None));
        assert_eq!(of(3.0, whole.0, whole.1, Some(30.0)), (3.0, Some(90.0)));
        // An empty tree.
        let (low, high) = (End::low(all, seen(0, 0)), End::high(all, seen(0, 0)));
        assert_eq!(of(1.0, low, high, Some(0.0)), (0.0, Some(0.0)));
    }

    #[test]
    fn leaves_that_are_not_in_memory_count_as_those_that_were_met() {
        let ways = [seen(40, 0), seen(20, 3), None, None];
        assert_eq!(mean_records(&ways, Some(10.0)), Some(20.0));
        assert_eq!(mean_records(&ways, None), Some(30.0));
        assert_eq!(mean_records(&[None, None], Some(10.0)), Some(10.0));
        assert_eq!(mean_records(&[None, None], None), None);
    }

    #[test]
    fn ranges_without_a_key_are_empty() {
        let (a, b) = (b"a".as_slice(), b"b".as_slice());
        use Bound::{Excluded, Included, Unbounded};
        assert!(is_empty(Included(b), Included(a)) && is_empty(Included(a), Excluded(a)));
        assert!(is_empty(Excluded(a), Included(a)) && is_empty(Excluded(a), Excluded(a)));
        assert!(!is_empty(Included(a), Included(a)) && !is_empty(Excluded(a), Excluded(b)));
        assert!(!is_empty(Unbounded, Excluded(a)) && !is_empty(Excluded(a), Unbounded));
    }
}
