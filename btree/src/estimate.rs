//! Estimates of how much lies between two keys, from inner nodes alone.
//!
//! Two descents note, for each inner node, the position that they take and how many children there
//! are. Above the node where the ways part they are the same. There, all children between the two
//! positions lie in the range, and below it those to the right of the low way and to the left of
//! the high way. Up to [`SAMPLES`] further ways lead through the children between. The leaves that
//! those have under their child are the measure for each child between. For the nodes beside the
//! low and the high way it is the mean of all ways. So the estimate is exact where the ways part at
//! the lowest inner level, or one above it with no more than [`SAMPLES`] children between.

use crate::{
    node::NodeRef,
    step::{Step, Stop},
    tree::Tree,
};
use std::ops::Bound;
use wattle_buffer::For;

/// Through how many of the children between two ways a further way is taken, evenly spread. It
/// bounds the work of an estimate.
const SAMPLES: usize = 8;

/// A hop of a descent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hop {
    position: usize,
    children: usize,
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
    /// Estimates how many leaves have keys between two bounds. Reads inner nodes only.
    pub fn leaves_between_step(&self, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Step<u64> {
        let (low, high) = (self.hops(Route::Low(low))?, self.hops(Route::High(high))?);
        if low.len() != high.len() {
            // The root has a level more or less now.
            return Err(Stop::Restart);
        }
        let leaves = leaves_between(&low, &high, |depth, position| {
            let way = self.hops(Route::Sample { above: &low[..depth], position })?;
            if way.len() == low.len() { Ok(way) } else { Err(Stop::Restart) }
        })?;
        Ok(leaves as u64)
    }

    /// The hops of a way from the root down to the lowest inner node.
    fn hops(&self, route: Route<'_>) -> Step<Vec<Hop>> {
        let mut node = self.pool.optimistic(self.root)?;
        let mut height = NodeRef::from(node.page()).level();
        let mut hops = Vec::with_capacity(usize::from(height));
        loop {
            let view = NodeRef::from(node.page());
            if height == 0 {
                node.validate()?;
                return Ok(hops);
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
                node.validate()?;
                return Ok(hops);
            }
            height -= 1;
            node = self.child_at(node, position, height, For::Read)?.node;
            if NodeRef::from(node.page()).level() != height {
                return Err(self.wrong_level(node, height));
            }
        }
    }
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
    // The children of the lowest inner node are leaves.
    let samples = if parts + 1 == low.len() { 0..0 } else { 0..count }
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
        let mut fan_outs = fan_outs.iter();
        let found = leaves_between(&way(low), &way(high), |_, position| {
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
        assert_eq!(samples(&[(9, 99)], &[(90, 99)]), []);
    }
}
