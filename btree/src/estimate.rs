//! Estimates of how much lies between two keys, from inner nodes alone.
//!
//! Two descents note, for each inner node, the position that they take and how many children there
//! are. Above the node where the ways part they are the same. There, all children between the two
//! positions lie in the range, and below it those to the right of the low way and to the left of
//! the high way. The leaves under a child are estimated by the fan-outs that both ways have met at
//! the levels below it. So the estimate is exact where the ways part at the lowest inner level.

use crate::{
    node::NodeRef,
    step::{Step, Stop},
    tree::Tree,
};
use std::ops::Bound;
use wattle_buffer::For;

/// A hop of a descent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hop {
    position: usize,
    children: usize,
}

impl Tree {
    /// Estimates how many leaves have keys between two bounds. Reads inner nodes only.
    pub fn leaves_between_step(&self, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Step<u64> {
        let (low, high) = (self.hops(low, false)?, self.hops(high, true)?);
        if low.len() != high.len() {
            // The root has a level more or less now.
            return Err(Stop::Restart);
        }
        Ok(leaves_between(&low, &high) as u64)
    }

    /// The hops to the leaf of a bound, from the root down to the lowest inner node.
    fn hops(&self, bound: Bound<&[u8]>, is_high: bool) -> Step<Vec<Hop>> {
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
            let position = match bound {
                Bound::Included(key) | Bound::Excluded(key) => {
                    self.checked(&node, view.child_position(key))?
                }
                Bound::Unbounded if is_high => children - 1,
                Bound::Unbounded => 0,
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

/// Leaves from that of the low way to that of the high way, both included.
fn leaves_between(low: &[Hop], high: &[Hop]) -> f64 {
    let parts = low.iter().zip(high).position(|(low, high)| low.position != high.position);
    let Some(parts) = parts else { return 1.0 };
    if low[parts].position > high[parts].position {
        // The bounds cross.
        return 0.0;
    }
    // Leaves under a child of the node at each depth.
    let mut under = vec![1.0; low.len()];
    for depth in (0..low.len() - 1).rev() {
        let fan_out = (low[depth + 1].children + high[depth + 1].children) as f64 / 2.0;
        under[depth] = under[depth + 1] * fan_out;
    }
    let between = high[parts].position - low[parts].position - 1;
    let mut leaves = between as f64 * under[parts];
    for depth in parts + 1..low.len() {
        let right = low[depth].children - 1 - low[depth].position;
        leaves += (right + high[depth].position) as f64 * under[depth];
    }
    leaves + 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(hops: &[(usize, usize)]) -> Vec<Hop> {
        hops.iter().map(|&(position, children)| Hop { position, children }).collect()
    }

    #[test]
    fn leaves_are_counted_where_the_ways_part() {
        // In one leaf, in one node, and in neighbours.
        let low = way(&[(3, 10), (4, 20)]);
        assert_eq!(leaves_between(&low, &low), 1.0);
        assert_eq!(leaves_between(&low, &way(&[(3, 10), (9, 20)])), 6.0);
        assert_eq!(leaves_between(&low, &way(&[(4, 10), (0, 20)])), 17.0);
        // With two whole nodes of 20 leaves between.
        assert_eq!(leaves_between(&low, &way(&[(6, 10), (0, 20)])), 57.0);
        // The bounds cross; a tree of one leaf.
        assert_eq!(leaves_between(&way(&[(6, 10), (0, 20)]), &low), 0.0);
        assert_eq!(leaves_between(&[], &[]), 1.0);
    }
}
