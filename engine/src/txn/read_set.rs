//! The reads of a serializable transaction, which its commit validates.

use crate::catalog::OpenTree;
use std::{ops::Bound, sync::Arc};
use wattle_btree::Direction;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct ReadSet {
    pub(super) points: Vec<(Arc<OpenTree>, Vec<u8>)>,
    pub(super) ranges: Vec<KeyRange>,
    /// Names of trees that were looked up.
    pub(super) names: Vec<String>,
}

/// A range of keys of a tree.
pub(super) struct KeyRange {
    pub tree: Arc<OpenTree>,
    pub low: Bound<Vec<u8>>,
    pub high: Bound<Vec<u8>>,
}

impl ReadSet {
    /// A record was looked up, whether or not there was one.
    pub fn point(&mut self, tree: &Arc<OpenTree>, key: &[u8]) {
        self.points.push((tree.clone(), key.to_vec()));
    }

    /// The name of a tree was looked up, whether or not there was one.
    pub fn name(&mut self, name: &str) {
        self.names.push(name.to_string());
    }

    /// A range is about to be read. All of it counts until [`ReadSet::narrow`] says how much was
    /// read, which a leaked range or future never does. Gives its index.
    pub fn range(
        &mut self,
        tree: &Arc<OpenTree>,
        low: Bound<Vec<u8>>,
        high: Bound<Vec<u8>>,
    ) -> usize {
        self.ranges.push(KeyRange { tree: tree.clone(), low, high });
        self.ranges.len() - 1
    }

    /// Notes that nothing of the range with index `at` was read beyond `last`.
    pub fn narrow(&mut self, at: usize, direction: Direction, last: &[u8]) {
        let (range, last) = (&mut self.ranges[at], Bound::Included(last.to_vec()));
        match direction {
            Direction::Forward => range.high = last,
            Direction::Backward => range.low = last,
        }
    }
}
