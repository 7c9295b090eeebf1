//! Range scans in both directions. A cursor copies what it wants of one leaf at a time, optimistically,
//! and reads the copy in private; it goes on at the last key or the fence of the copy by a new descent.
//! Splits and merges between two copies are therefore invisible: fences of neighbours meet, whatever the
//! nodes are by then, and no entry is skipped or seen twice.
//!
//! Each leaf is consistent in itself. Whether the scan as a whole is a snapshot is up to its view,
//! which replaces the records of each leaf by the versions that it sees; ghosts are left out.

use crate::{
    descend::{Direction, Seek},
    ghost::Special,
    large_value::LargeValue,
    node::NodeRef,
    step::Step,
    tree::Tree,
    view::{Seen, View},
};
use std::ops::Bound;
use wattle_buffer::{Error, PageId, PageImage, PageRef, Restart, Result};

/// Where the cursor goes on.
#[derive(Debug)]
enum Next {
    /// Ascending from this key on; the flag leaves the key itself out.
    From(Vec<u8>, bool),
    /// Descending from below this key.
    Below(Vec<u8>),
    /// Descending from the last key.
    Last,
    /// Nowhere.
    End,
}

impl Next {
    fn seek(&self) -> Option<Seek<'_>> {
        Some(match self {
            Next::From(key, _) => Seek::At(key),
            Next::Below(key) => Seek::Before(key),
            Next::Last => Seek::Last,
            Next::End => return None,
        })
    }
}

/// Position of a scan. Holds no latch and no frame.
pub struct Cursor {
    /// Header, prefix, and the entries `from..to` of a leaf where they are in the leaf. What else is there
    /// is left from before.
    image: Box<PageImage>,
    /// Fences of that leaf; the upper one may be infinite.
    lower: Vec<u8>,
    upper: Vec<u8>,
    upper_is_finite: bool,
    direction: Direction,
    /// Entries of the copy still to give: `from..to`.
    from: usize,
    to: usize,
    next: Next,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    key: Vec<u8>,
    value: Vec<u8>,
    /// What the view sees instead of entries of the copy, by ascending position.
    older: Vec<(usize, Older)>,
    /// Bytes of the older versions.
    bytes: Vec<u8>,
    /// How many entries are taken from the next leaf.
    batch: usize,
    /// The leaf of which more entries are to be copied.
    unfinished: Option<PageId>,
    /// Leaves that were copied to their end.
    leaves: usize,
}

/// Entries that are copied first. A scan that wants one entry should not have to copy hundreds; one that
/// goes on takes ever more.
const FIRST_BATCH: usize = 16;
/// How much more the next time.
const BATCH_GROWTH: usize = 4;
/// A scan of so many leaves will want so many more that their pages can be read together, without reading
/// many in vain.
const LONG: usize = 32;
/// Where the versions of entries must be looked at, this part of them.
const LOOK_SHARE: usize = 2;

/// Where a scan begins.
fn first(direction: Direction, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Next {
    match (direction, low, high) {
        (Direction::Forward, Bound::Unbounded, _) => Next::From(Vec::new(), false),
        (Direction::Forward, Bound::Included(key), _) => Next::From(key.to_vec(), false),
        (Direction::Forward, Bound::Excluded(key), _) => Next::From(key.to_vec(), true),
        (Direction::Backward, _, Bound::Unbounded) => Next::Last,
        (Direction::Backward, _, Bound::Excluded(key)) => Next::Below(key.to_vec()),
        (Direction::Backward, _, Bound::Included(key)) => {
            // The smallest key above an included one.
            Next::Below([key, &[0]].concat())
        }
    }
}

/// Sets a bound in the memory that it has.
fn assign(bound: &mut Bound<Vec<u8>>, to: Bound<&[u8]>) {
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

/// A version that is not the one in the leaf.
#[derive(Clone, Copy, Debug)]
enum Older {
    /// From here to there in the bytes of the cursor; whether it is special.
    Value(usize, usize, bool),
    Absent,
}

/// Reads the fences of a node; gives whether the upper one is finite.
fn fences_to(node: NodeRef<'_>, lower: &mut Vec<u8>, upper: &mut Vec<u8>) -> Result<bool, Restart> {
    lower.clear();
    upper.clear();
    node.lower_fence_to(lower)?;
    node.upper_fence_to(upper)
}

impl Cursor {
    /// A cursor over the keys between two bounds.
    pub fn new(low: Bound<Vec<u8>>, high: Bound<Vec<u8>>, direction: Direction) -> Cursor {
        let bounds = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        let next = first(direction, bounds.0, bounds.1);
        Cursor {
            image: PageImage::zeroed(),
            lower: Vec::new(),
            upper: Vec::new(),
            upper_is_finite: false,
            direction,
            from: 0,
            to: 0,
            next,
            low,
            high,
            key: Vec::new(),
            value: Vec::new(),
            older: Vec::new(),
            bytes: Vec::new(),
            batch: FIRST_BATCH,
            unfinished: None,
            leaves: 0,
        }
    }

    /// Makes this a new cursor over the keys between two bounds, in the memory that it has.
    pub fn restart(&mut self, low: Bound<&[u8]>, high: Bound<&[u8]>, direction: Direction) {
        assign(&mut self.low, low);
        assign(&mut self.high, high);
        self.direction = direction;
        (self.from, self.to) = (0, 0);
        self.next = first(direction, low, high);
        self.key.clear();
        self.value.clear();
        self.older.clear();
        self.bytes.clear();
        self.batch = FIRST_BATCH;
        self.unfinished = None;
        self.leaves = 0;
    }

    /// The next entry is in the copy already.
    #[inline]
    pub fn is_loaded(&self) -> bool {
        self.from < self.to
    }

    /// There is no further leaf to load.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        matches!(self.next, Next::End)
    }

    /// Copies the next entries of the next leaf. It may hold none of the range; then load again, until
    /// [`Cursor::is_at_end`].
    pub fn load_step<V: View>(&mut self, tree: &Tree, view: &mut V) -> Step<()> {
        let Some(seek) = self.next.seek() else { return Ok(()) };
        let path = tree.seek(seek, 0)?;
        let (leaf, node) = (path.node, path.node_ref());
        let sees_all = view.sees_all(leaf.header());
        // Means something only when the leaf is validated.
        let fences = fences_to(node, &mut self.lower, &mut self.upper);
        self.upper_is_finite = tree.checked(&leaf, fences)?;
        let mut selected = tree.checked(&leaf, self.select(node))?;
        let batch = if sees_all { self.batch } else { self.batch / LOOK_SHARE };
        let is_cut = tree.checked(&leaf, self.cut(node, &mut selected, batch))?;
        let copied = node.copy_entries(selected.0, selected.1, &mut self.image);
        tree.checked(&leaf, copied)?;
        leaf.track();
        leaf.validate()?;
        let page = leaf.header().page_id();
        // To go on in a leaf is no other access.
        if tree.pool.is_traced() && self.unfinished != Some(page) {
            leaf.record(|way| tree.lead(seek, way));
        }
        if !self.is_led_right() {
            let what = "its fences leave out the key that led to it";
            return Err(Error::corruption(page, what).into());
        }
        self.older.clear();
        self.bytes.clear();
        if !sees_all {
            self.look_at_versions(selected.0, selected.1, view)?;
            // The versions belong to the copy only if the leaf is still what was copied.
            leaf.validate()?;
        }
        view.missed()?;
        (self.from, self.to, self.next) = selected;
        self.unfinished = is_cut.then_some(page);
        match is_cut {
            true => self.batch = self.batch.saturating_mul(BATCH_GROWTH),
            false => self.leaves += 1,
        }
        Ok(())
    }

    /// It has come so far that it will probably go on, and goes on with another leaf.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.leaves >= LONG && self.unfinished.is_none()
    }

    /// Brings the next leaves into memory, unless the next one is there, with their reads under way at once.
    /// A failure may be one of a leaf that the scan never comes to.
    pub fn ahead_step(&self, tree: &Tree) -> Step<()> {
        self.next.seek().map_or(Ok(()), |seek| tree.ahead_step(seek, 0, self.direction))
    }

    /// Leaves all but the next few entries to a later copy of the leaf; gives whether there are more.
    fn cut(
        &self,
        node: NodeRef<'_>,
        (from, to, next): &mut (usize, usize, Next),
        batch: usize,
    ) -> Result<bool, Restart> {
        if *to - (*from).min(*to) <= batch {
            return Ok(false);
        }
        let mut key = Vec::new();
        match self.direction {
            Direction::Forward => {
                *to = *from + batch;
                node.key_to(*to - 1, &mut key)?;
                *next = Next::From(key, true);
            }
            Direction::Backward => {
                *from = *to - batch;
                node.key_to(*from, &mut key)?;
                *next = Next::Below(key);
            }
        }
        Ok(true)
    }

    /// Asks the view for each entry of the copy that belongs to the scan.
    fn look_at_versions<V: View>(&mut self, from: usize, to: usize, view: &mut V) -> Step<()> {
        let node = NodeRef::from(PageRef::of_image(&self.image));
        for position in from..to {
            self.key.clear();
            node.key_to(position, &mut self.key)?;
            let start = self.bytes.len();
            let (offset, len, _) = node.value_range(position)?;
            node.page().append_to(offset, len, &mut self.bytes)?;
            match view.look(&self.key, &mut self.bytes, start)? {
                Seen::Page => self.bytes.truncate(start),
                Seen::Absent => {
                    self.bytes.truncate(start);
                    self.older.push((position, Older::Absent));
                }
                Seen::Value { special } => {
                    let version = Older::Value(start, self.bytes.len(), special);
                    self.older.push((position, version));
                }
            }
        }
        Ok(())
    }

    fn upper(&self) -> Option<&[u8]> {
        self.upper_is_finite.then_some(&self.upper)
    }

    /// The leaf contains the place where the scan goes on. In a damaged tree it may not, and the
    /// scan would go round for ever.
    fn is_led_right(&self) -> bool {
        let (lower, upper) = (&self.lower[..], self.upper());
        match &self.next {
            Next::From(key, _) => lower <= &key[..] && upper.is_none_or(|upper| &key[..] < upper),
            // Nothing is below the empty key.
            Next::Below(key) if key.is_empty() => true,
            Next::Below(key) => lower < &key[..] && upper.is_none_or(|upper| &key[..] <= upper),
            Next::Last => upper.is_none(),
            Next::End => true,
        }
    }

    /// Finds the part of a leaf, whose fences are known, that belongs to the scan, and where it goes on
    /// after it.
    fn select(&self, node: NodeRef<'_>) -> Result<(usize, usize, Next), Restart> {
        let count = node.count();
        // Only keys between the fences can be searched for.
        let position = |key: &[u8], after: bool| {
            if key < &self.lower[..] {
                return Ok(0);
            }
            if self.upper().is_some_and(|upper| key >= upper) {
                return Ok(count);
            }
            node.search(key).map(|found| found.position + usize::from(after && found.found))
        };
        // Inside of the two bounds of the range.
        let low = match &self.low {
            Bound::Unbounded => 0,
            Bound::Included(key) => position(key, false)?,
            Bound::Excluded(key) => position(key, true)?,
        };
        let high = match &self.high {
            Bound::Unbounded => count,
            Bound::Included(key) => position(key, true)?,
            Bound::Excluded(key) => position(key, false)?,
        };
        // And not before what was given already.
        let (from, to) = match &self.next {
            Next::From(key, after) => (position(key, *after)?.max(low), high),
            Next::Below(key) => (low, position(key, false)?.min(high)),
            Next::Last => (low, high),
            Next::End => (0, 0),
        };
        let next = match (self.direction, self.upper()) {
            (Direction::Forward, Some(upper)) if high >= count => Next::From(upper.to_vec(), false),
            (Direction::Backward, _) if low == 0 && !self.lower.is_empty() => {
                Next::Below(self.lower.clone())
            }
            _ => Next::End,
        };
        Ok((from, to, next))
    }

    /// The entry taken last is to be taken again, as the view sees it then; the rest of the copy is left to a
    /// later one.
    pub fn take_again(&mut self) {
        self.next = match self.direction {
            Direction::Forward => Next::From(self.key.clone(), false),
            // The smallest key above it.
            Direction::Backward => Next::Below([&self.key[..], &[0]].concat()),
        };
        (self.from, self.to, self.unfinished) = (0, 0, None);
        self.older.clear();
        self.bytes.clear();
    }

    /// Which way the scan goes.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Key of the entry taken last.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Value of the entry taken last.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// Takes the next entry of the copy, whose key and value are then [`Cursor::key`] and
    /// [`Cursor::value`]; the descriptor when the value is large. `None` when what was next does not
    /// exist for this scan.
    ///
    /// # Errors
    /// Corruption.
    ///
    /// # Panics
    /// If none is loaded.
    pub fn take(&mut self) -> Result<Option<Taken>> {
        assert!(self.is_loaded());
        let position = match self.direction {
            Direction::Forward => {
                self.from += 1;
                self.from - 1
            }
            Direction::Backward => {
                self.to -= 1;
                self.to
            }
        };
        let node = NodeRef::from(PageRef::of_image(&self.image));
        let page = node.page_id();
        let lost = |_| Error::corruption(page, "its contents lead outside of the page");
        self.key.clear();
        self.value.clear();
        node.key_to(position, &mut self.key).map_err(lost)?;
        let older = match self.older.is_empty() {
            true => None,
            false => self.older.binary_search_by_key(&position, |(at, _)| *at).ok(),
        };
        let special = match older.map(|at| self.older[at].1) {
            Some(Older::Absent) => return Ok(None),
            Some(Older::Value(from, to, special)) => {
                self.value.extend_from_slice(&self.bytes[from..to]);
                special
            }
            None => {
                node.value_to(position, &mut self.value).map_err(lost)?;
                node.value_range(position).map_err(lost)?.2
            }
        };
        if !special {
            return Ok(Some(Taken::Inline));
        }
        Ok(match Special::decode(&self.value, page)? {
            Special::Large(large) => Some(Taken::Large(large)),
            Special::Ghost => None,
        })
    }
}

/// What a scan took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Key and value.
    Inline,
    /// Key and descriptor of the value.
    Large(LargeValue),
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
