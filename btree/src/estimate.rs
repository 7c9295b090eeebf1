//! Estimates of how much lies between two keys, from inner nodes alone.
//!
//! Two descents note, for each inner node, the position that they take and how many children there
//! are. Above the node where the ways part they are the same. There, all children between the two
//! positions lie in the range, and below it those to the right of the low way and to the left of
//! the high way. The leaves under a child are estimated by the mean fan-out at each level below it,
//! of both ways and of up to [`SAMPLES`] more through the children between them. So the estimate is
//! exact where the ways part at the lowest inner level.

use crate::{
    node::NodeRef,
    step::{Step, Stop},
    tree::Tree,
};
use std::ops::Bound;
use wattle_buffer::For;

/// Through how many of the children between two ways a further way is taken, evenly spread. Nodes
/// are half full to full, so one fan-out may be twice another; the mean of ten is within about a
/// tenth of that of all.
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
    /// Along a way, but at its last hop to the child at `position`, and below that in the middle.
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
        let Some(parting) = Parting::of(&low, &high) else { return Ok(1) };
        if parting.cross {
            return Ok(0);
        }
        let mut ways = vec![low, high];
        for position in parting.samples(ways[0].len()) {
            let above = &ways[0][..=parting.depth];
            let way = self.hops(Route::Sample { above, position })?;
            if way.len() != ways[0].len() {
                return Err(Stop::Restart);
            }
            ways.push(way);
        }
        Ok(parting.leaves(&ways) as u64)
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
                // A node may have fewer children than when the way was taken.
                Route::Sample { above, position } => match above.get(hops.len()) {
                    Some(_) if hops.len() + 1 == above.len() => position.min(children - 1),
                    Some(hop) => hop.position.min(children - 1),
                    None => children / 2,
                },
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

/// Where two ways part.
struct Parting {
    depth: usize,
    /// How many children of the node there lie between the two ways, and the first of them.
    between: usize,
    first: usize,
    /// The low way is right of the high one.
    cross: bool,
}

impl Parting {
    /// `None` if both ways lead to one leaf.
    fn of(low: &[Hop], high: &[Hop]) -> Option<Parting> {
        let depth = low.iter().zip(high).position(|(low, high)| low.position != high.position)?;
        let (low, high) = (low[depth].position, high[depth].position);
        let between = high.saturating_sub(low + 1);
        Some(Parting { depth, between, first: low + 1, cross: low > high })
    }

    /// The children between both ways through which a further way is taken, in a tree with so many
    /// inner levels: none where they are leaves.
    fn samples(&self, levels: usize) -> impl Iterator<Item = usize> + use<> {
        let (first, between) = (self.first, self.between);
        let samples = if self.depth + 1 == levels { 0 } else { between.min(SAMPLES) };
        (0..samples).map(move |sample| first + (2 * sample + 1) * between / (2 * samples))
    }

    /// Leaves from that of the low way to that of the high way, both included. The first two ways
    /// are the low and the high one.
    fn leaves(&self, ways: &[Vec<Hop>]) -> f64 {
        let [low, high] = [&ways[0], &ways[1]];
        // Leaves under a child of the node at each depth.
        let mut under = vec![1.0; low.len()];
        for depth in (self.depth..low.len() - 1).rev() {
            let children: usize = ways.iter().map(|way| way[depth + 1].children).sum();
            under[depth] = under[depth + 1] * children as f64 / ways.len() as f64;
        }
        let mut leaves = self.between as f64 * under[self.depth];
        for depth in self.depth + 1..low.len() {
            let right = low[depth].children - 1 - low[depth].position;
            leaves += (right + high[depth].position) as f64 * under[depth];
        }
        leaves + 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(hops: &[(usize, usize)]) -> Vec<Hop> {
        hops.iter().map(|&(position, children)| Hop { position, children }).collect()
    }

    fn leaves(ways: &[&[(usize, usize)]]) -> f64 {
        let ways: Vec<_> = ways.iter().map(|hops| way(hops)).collect();
        Parting::of(&ways[0], &ways[1]).expect("they part").leaves(&ways)
    }

    #[test]
    fn leaves_are_counted_where_the_ways_part() {
        // In one node, and in neighbours.
        assert_eq!(leaves(&[&[(3, 10), (4, 20)], &[(3, 10), (9, 20)]]), 6.0);
        assert_eq!(leaves(&[&[(3, 10), (4, 20)], &[(4, 10), (0, 20)]]), 17.0);
        // With two whole nodes between, of 20 leaves, or of 26 if the ways through them say so.
        let (low, high) = (&[(3, 10), (4, 20)][..], &[(6, 10), (0, 20)][..]);
        assert_eq!(leaves(&[low, high]), 57.0);
        assert_eq!(leaves(&[low, high, &[(4, 10), (16, 32)], &[(5, 10), (16, 32)]]), 69.0);
        // The bounds cross; one leaf; a tree of one leaf.
        assert!(Parting::of(&way(high), &way(low)).expect("they part").cross);
        assert!(Parting::of(&way(low), &way(low)).is_none());
        assert!(Parting::of(&[], &[]).is_none());
    }

    #[test]
    fn samples_are_spread_over_the_children_between() {
        let parting = |low, high| {
            Parting::of(&way(&[(low, 99), (0, 9)]), &way(&[(high, 99), (0, 9)])).expect("they part")
        };
        assert_eq!(parting(3, 4).samples(2).count(), 0);
        assert_eq!(parting(3, 6).samples(2).collect::<Vec<_>>(), [4, 5]);
        assert_eq!(parting(9, 90).samples(2).collect::<Vec<_>>(), [15, 25, 35, 45, 55, 65, 75, 85]);
        assert_eq!(parting(9, 90).samples(1).count(), 0);
    }
}
