//! The most worth that can be kept in the gaps between uses: a flow of least cost.
//!
//! Node `t` is the time before access `t`. The units of the flow are frames that may hold pages
//! other than the accessed one. A unit moves past an access idle, or past all accesses between two
//! uses of a page that it holds, which earns the worth of this gap once. Units are sent one after
//! the other along the path that earns the most (successive shortest paths, with potentials for
//! Dijkstra's algorithm), which may undo parts of earlier paths.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::simulate::trace::NEVER;

/// The gaps to keep.
pub struct Flow {
    /// Whether the page of an access is kept until its next use; false where there is none.
    pub kept: Vec<bool>,
    /// The worth of all kept gaps.
    pub worth: i64,
}

/// The last edge of the shortest path to a node.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    None,
    /// Idle, past an access.
    Idle,
    /// Back past an access, taking an idle unit from it.
    IdleBack,
    /// Past the gap that ends here.
    Gap,
    /// Back past the gap that begins here.
    GapBack,
}

struct Network<'a> {
    /// Position of the next use, by position.
    next_use: &'a [u32],
    /// Position of the previous use, by position.
    last_use: Vec<u32>,
    worth: Vec<i64>,
    kept: Vec<bool>,
    /// Units that are idle at an access.
    idle: Vec<u32>,
    potential: Vec<i64>,
    distance: Vec<i64>,
    came: Vec<Step>,
    heap: BinaryHeap<Reverse<(i64, u32)>>,
}

impl Flow {
    /// The best use of `frames` frames in addition to the frame of the accessed page, if a gap that
    /// begins at a position is worth `worth` of it, which is not negative.
    pub fn solve(next_use: &[u32], frames: usize, worth: impl Fn(usize) -> i64) -> Self {
        let accesses = next_use.len();
        let mut last_use = vec![NEVER; accesses + 1];
        let mut kept = vec![false; accesses];
        for (at, next) in next_use.iter().enumerate().filter(|(_, next)| **next != NEVER) {
            last_use[*next as usize] = at as u32;
            // No access lies in between, so the gap takes no frame.
            kept[at] = *next as usize == at + 1;
        }
        let mut network = Network {
            next_use,
            last_use,
            worth: (0..accesses).map(worth).collect(),
            kept,
            idle: vec![0; accesses],
            potential: vec![0; accesses + 1],
            distance: vec![0; accesses + 1],
            came: vec![Step::None; accesses + 1],
            heap: BinaryHeap::new(),
        };
        network.first_potentials();
        for _ in 0..frames {
            network.find_path();
            // The first node has potential 0, so this is the cost of the path.
            if network.potential[accesses] == 0 {
                break;
            }
            network.send();
        }
        let kept = network.kept;
        let worth = kept.iter().zip(&network.worth).filter(|(kept, _)| **kept);
        Self { worth: worth.map(|(_, worth)| worth).sum(), kept }
    }
}

impl Network<'_> {
    /// The gap that begins after access `at`: the node of its end, unless it takes no frame.
    fn gap(&self, at: usize) -> Option<usize> {
        let end = *self.next_use.get(at)?;
        (end != NEVER && end as usize > at + 1).then_some(end as usize)
    }

    /// Shortest distances while there is no flow and all edges lead forward.
    fn first_potentials(&mut self) {
        for node in 0..self.next_use.len() {
            let here = self.potential[node];
            self.potential[node + 1] = self.potential[node + 1].min(here);
            if let Some(at) = node.checked_sub(1)
                && let Some(end) = self.gap(at)
            {
                self.potential[end] = self.potential[end].min(here - self.worth[at]);
            }
        }
    }

    fn relax(&mut self, from: usize, to: usize, cost: i64, step: Step) {
        let reduced = cost + self.potential[from] - self.potential[to];
        let distance = self.distance[from] + reduced;
        if distance < self.distance[to] {
            self.distance[to] = distance;
            self.came[to] = step;
            self.heap.push(Reverse((distance, to as u32)));
        }
    }

    fn find_path(&mut self) {
        let last = self.next_use.len();
        self.distance.fill(i64::MAX);
        self.came.fill(Step::None);
        self.distance[0] = 0;
        self.heap.push(Reverse((0, 0)));
        while let Some(Reverse((distance, node))) = self.heap.pop() {
            let node = node as usize;
            if distance > self.distance[node] {
                continue;
            }
            if node < last {
                self.relax(node, node + 1, 0, Step::Idle);
                let begun = self.last_use[node];
                if begun != NEVER && begun as usize + 1 < node && self.kept[begun as usize] {
                    let worth = self.worth[begun as usize];
                    self.relax(node, begun as usize + 1, worth, Step::GapBack);
                }
            }
            if let Some(at) = node.checked_sub(1) {
                if self.idle[at] > 0 {
                    self.relax(node, at, 0, Step::IdleBack);
                }
                if let Some(end) = self.gap(at)
                    && !self.kept[at]
                {
                    self.relax(node, end, -self.worth[at], Step::Gap);
                }
            }
        }
        for (potential, distance) in self.potential.iter_mut().zip(&self.distance) {
            *potential += distance;
        }
    }

    /// Sends a unit along the path that was found.
    fn send(&mut self) {
        let mut node = self.next_use.len();
        while node > 0 {
            match self.came[node] {
                Step::None => unreachable!("every node can be reached idle"),
                Step::Idle => {
                    node -= 1;
                    self.idle[node] += 1;
                }
                Step::IdleBack => {
                    self.idle[node] -= 1;
                    node += 1;
                }
                Step::Gap => {
                    let at = self.last_use[node] as usize;
                    self.kept[at] = true;
                    node = at + 1;
                }
                Step::GapBack => {
                    self.kept[node - 1] = false;
                    node = self.next_use[node - 1] as usize;
                }
            }
        }
    }
}
