//! The place of a scan: where its next copy begins, and which entries of a leaf belong to it.

use crate::{
    descend::{Direction, Path, Seek},
    node::NodeRef,
    step::Step,
    tree::Tree,
};
use std::ops::Bound;
use wattle_buffer::{For, FrameId, Moment, Optimistic, PageId, Swip, Target};

/// Where the next copy begins; the key is `Cursor::next_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ascending from the key.
    From,
    /// Ascending from after the key.
    After,
    /// Descending from below the key.
    Below,
    /// Descending from the last key.
    Last,
    /// The scan has ended.
    End,
}

impl Next {
    pub(crate) fn seek(self, key: &[u8]) -> Option<Seek<'_>> {
        Some(match self {
            Next::From | Next::After => Seek::At(key),
            Next::Below => Seek::Before(key),
            Next::Last => Seek::Last,
            Next::End => return None,
        })
    }
}

/// The place after the entries of a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn {
    /// The leaf that begins at the upper fence.
    Upper,
    /// The leaf that ends at the lower fence.
    Lower,
    /// Nothing.
    End,
}

/// Entries `from..to` of a leaf that belong to the scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) turn: Turn,
}

impl Part {
    /// Splits off all but the first `batch` entries in the direction of the scan.
    pub(crate) fn split(self, batch: usize, direction: Direction) -> (Part, Option<Part>) {
        let Part { from, to, turn } = self;
        if to.saturating_sub(from) <= batch {
            return (self, None);
        }
        match direction {
            Direction::Forward => {
                let middle = from + batch;
                (Part { from, to: middle, turn }, Some(Part { from: middle, to, turn }))
            }
            Direction::Backward => {
                let middle = to - batch;
                (Part { from: middle, to, turn }, Some(Part { from, to: middle, turn }))
            }
        }
    }
}

/// The entries of a leaf that the next copy takes, as long as the leaf does not change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    pub(crate) leaf: Moment,
    pub(crate) page: PageId,
    pub(crate) part: Part,
    /// Its parent, and its position there.
    pub(crate) parent: Option<(Moment, usize)>,
}

/// A leaf beside another one, below the same parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbour {
    /// The parent. The rest means something only if it is unchanged when that is used.
    pub(crate) parent: Moment,
    /// Position in the parent.
    pub(crate) position: usize,
    /// Its frame, if it is in memory, to prefetch it.
    pub(crate) frame: Option<FrameId>,
}

/// The leaf beside the one at `position`, where a scan goes on. None: it has another parent, or the
/// scan ends.
#[inline(always)]
pub(crate) fn neighbour(parent: Optimistic<'_>, position: usize, turn: Turn) -> Option<Neighbour> {
    let node = NodeRef::from(parent.page());
    let position = match turn {
        Turn::Upper => (position < node.count()).then_some(position + 1),
        Turn::Lower => position.checked_sub(1),
        Turn::End => None,
    }?;
    let frame = match Swip(node.swip(position)).target() {
        Target::Hot(frame) => Some(frame),
        Target::Evicted(_) => None,
    };
    Some(Neighbour { parent: parent.moment(), position, frame })
}

/// The beginning of a scan, and its key.
pub(crate) fn first<'k>(
    direction: Direction,
    low: Bound<&'k [u8]>,
    high: Bound<&'k [u8]>,
    key: &mut Vec<u8>,
) -> Next {
    key.clear();
    let (next, from) = match (direction, low, high) {
        (Direction::Forward, Bound::Unbounded, _) => (Next::From, &[][..]),
        (Direction::Forward, Bound::Included(key), _) => (Next::From, key),
        (Direction::Forward, Bound::Excluded(key), _) => (Next::After, key),
        (Direction::Backward, _, Bound::Unbounded) => (Next::Last, &[][..]),
        (Direction::Backward, _, Bound::Excluded(key) | Bound::Included(key)) => (Next::Below, key),
    };
    key.extend_from_slice(from);
    if let (Direction::Backward, Bound::Included(_)) = (direction, high) {
        // The smallest key above an included bound.
        key.push(0);
    }
    next
}

/// Sets a bound and keeps its memory.
pub(crate) fn assign(bound: &mut Bound<Vec<u8>>, to: Bound<&[u8]>) {
    let mut bytes = match std::mem::replace(bound, Bound::Unbounded) {
        Bound::Included(bytes) | Bound::Excluded(bytes) => bytes,
        Bound::Unbounded => Vec::new(),
    };
    *bound = to.map(|key| {
        bytes.clear();
        bytes.extend_from_slice(key);
        bytes
    });
}

/// The leaf for the next copy: `beside` the last one, if their parent is unchanged.
#[inline(always)]
pub(crate) fn find<'p>(
    tree: &'p Tree,
    seek: Seek<'_>,
    beside: Option<(Moment, usize)>,
) -> Step<Path<'p>> {
    let beside = beside.and_then(|(parent, at)| Some((tree.pool.optimistic_since(parent)?, at)));
    let Some((parent, position)) = beside else { return tree.seek(seek, 0) };
    let path = tree.child_at(parent, position, 0, For::Read)?;
    match path.node_ref().level() {
        0 => Ok(path),
        _ => Err(tree.wrong_level(path.node, 0)),
    }
}

/// Where a scan goes on after a whole leaf.
pub(crate) fn next_of(turn: Turn) -> Next {
    match turn {
        Turn::Upper => Next::From,
        Turn::Lower => Next::Below,
        Turn::End => Next::End,
    }
}

/// The bound at which a scan ends.
pub(crate) fn far_bound<'b>(
    direction: Direction,
    low: &'b Bound<Vec<u8>>,
    high: &'b Bound<Vec<u8>>,
) -> Option<&'b [u8]> {
    let bound = match direction {
        Direction::Forward => high,
        Direction::Backward => low,
    };
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// The range of all keys that begin with `prefix`.
pub fn prefix_range(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut end = prefix.to_vec();
    while end.last() == Some(&u8::MAX) {
        end.pop();
    }
    let high = match end.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(end)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(prefix.to_vec()), high)
}
