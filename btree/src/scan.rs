//! Range scans in both directions. A cursor copies a part of one leaf at a time, optimistically,
//! and reads the copy. It continues after the last key of the copy, or at the fence of the leaf,
//! with a new descent. So splits and merges between two copies do no harm: fences of neighbours
//! always meet, so no entry is skipped or seen twice.
//!
//! Each copy is consistent in itself. The view decides whether the scan as a whole is a snapshot:
//! it replaces the records of each copy by the versions that it sees. Ghosts are left out.

use crate::{
    descend::{Direction, Seek},
    ghost::Special,
    large_value::LargeValue,
    node::NodeRef,
    read_ahead::ReadAhead,
    step::Step,
    tree::Tree,
    view::{Seen, View},
};
use std::ops::Bound;
use wattle_buffer::{Error, Fault, PageId, PageImage, PageRef, Restart, Result};

/// Where the next copy begins.
#[derive(Debug)]
enum Next {
    /// Ascending from this key; the flag excludes the key itself.
    From(Vec<u8>, bool),
    /// Descending from below this key.
    Below(Vec<u8>),
    /// Descending from the last key.
    Last,
    /// The scan has ended.
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

/// A scan and its position. Holds no latch and no frame between two steps.
pub struct Cursor {
    /// Header, prefix, and the entries `from..to` of a leaf, at their offsets in the leaf. The
    /// other bytes are arbitrary.
    image: Box<PageImage>,
    /// Fences of that leaf; the upper one may be infinite.
    lower: Vec<u8>,
    upper: Vec<u8>,
    upper_is_finite: bool,
    direction: Direction,
    /// Entries of the copy that are not taken yet: `from..to`.
    from: usize,
    to: usize,
    next: Next,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    key: Vec<u8>,
    value: Vec<u8>,
    /// Entries of the copy that the view replaces, by ascending position.
    older: Vec<(usize, Older)>,
    /// Bytes of these older versions.
    bytes: Vec<u8>,
    /// How many entries the next copy has at most.
    batch: usize,
    /// The leaf whose other entries the next copy takes.
    unfinished: Option<PageId>,
    ahead: ReadAhead,
    /// Records of the last leaf.
    leaf_records: usize,
}

/// Entries of the first copy. A scan that wants one entry should not copy hundreds; later copies
/// are larger.
const FIRST_BATCH: usize = 16;
/// Each copy has this many times the entries of the previous one.
const BATCH_GROWTH: usize = 4;
/// A copy whose versions must be looked up has only this part of the entries.
const LOOK_SHARE: usize = 2;

/// The beginning of a scan.
fn first(direction: Direction, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Next {
    match (direction, low, high) {
        (Direction::Forward, Bound::Unbounded, _) => Next::From(Vec::new(), false),
        (Direction::Forward, Bound::Included(key), _) => Next::From(key.to_vec(), false),
        (Direction::Forward, Bound::Excluded(key), _) => Next::From(key.to_vec(), true),
        (Direction::Backward, _, Bound::Unbounded) => Next::Last,
        (Direction::Backward, _, Bound::Excluded(key)) => Next::Below(key.to_vec()),
        (Direction::Backward, _, Bound::Included(key)) => {
            // The smallest key above an included bound.
            Next::Below([key, &[0]].concat())
        }
    }
}

/// Sets a bound and keeps its memory.
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

/// A version that replaces an entry of the copy.
#[derive(Clone, Copy, Debug)]
enum Older {
    /// Range in the bytes of the cursor, and the special flag.
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
            ahead: ReadAhead::default(),
            leaf_records: 0,
        }
    }

    /// Makes this a new cursor over the keys between two bounds, and keeps its memory.
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
        self.ahead.restart(None);
    }

    /// The low and the high bound.
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.low.as_ref().map(Vec::as_slice), self.high.as_ref().map(Vec::as_slice))
    }

    /// Restarts the cursor in the other direction, at the other end of its range.
    pub fn reverse(&mut self) {
        let (low, high) = (self.low.clone(), self.high.clone());
        let (low, high) = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        let direction = match self.direction {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        };
        self.restart(low, high, direction);
    }

    /// True if the copy has another entry.
    #[inline]
    pub fn is_loaded(&self) -> bool {
        self.from < self.to
    }

    /// True if there is no further leaf to load.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        matches!(self.next, Next::End)
    }

    /// Copies the next entries of the next leaf. The copy may have no entry of the range; then load
    /// again, until [`Cursor::is_at_end`].
    pub fn load_step<V: View>(&mut self, tree: &Tree, view: &mut V) -> Step<()> {
        let Some(seek) = self.next.seek() else { return Ok(()) };
        let path = tree.seek(seek, 0)?;
        let (leaf, node) = (path.node, path.node_ref());
        let sees_all = view.sees_all(leaf.header());
        // Arbitrary until the leaf validates.
        let fences = fences_to(node, &mut self.lower, &mut self.upper);
        self.upper_is_finite = tree.checked(&leaf, fences)?;
        let mut selected = tree.checked(&leaf, self.select(node))?;
        let batch = if sees_all { self.batch } else { self.batch / LOOK_SHARE };
        let is_cut = tree.checked(&leaf, self.cut(node, &mut selected, batch))?;
        let leaf_records = node.count();
        let copied = node.copy_entries(selected.0, selected.1, &mut self.image);
        tree.checked(&leaf, copied)?;
        leaf.track();
        leaf.validate()?;
        let page = leaf.header().page_id();
        // A further copy of the same leaf does not count as another access.
        if tree.pool.is_traced() && self.unfinished != Some(page) {
            leaf.record(|way| tree.lead(seek, way));
        }
        if !self.is_led_right() {
            let damage = "its fences leave out the key that led to it";
            return Err(Error::corruption(page, damage).into());
        }
        self.older.clear();
        self.bytes.clear();
        if !sees_all {
            self.look_at_versions(selected.0, selected.1, view)?;
            // The versions belong to the copy only if the leaf has not changed since.
            leaf.validate()?;
        }
        view.missed()?;
        self.leaf_records = leaf_records;
        (self.from, self.to, self.next) = selected;
        self.unfinished = is_cut.then_some(page);
        if is_cut {
            self.batch = self.batch.saturating_mul(BATCH_GROWTH);
        }
        Ok(())
    }

    /// Says that the scan will probably take so many records: it reads ahead from its first wait
    /// on, and not beyond them. The scan may take fewer or more.
    pub fn expect(&mut self, records: usize) {
        self.ahead.restart(Some(records));
    }

    /// Reads to start, without waiting for them, after [`Cursor::load_step`], which has `waited`
    /// for a page or not: leaves that the scan will probably need.
    #[inline]
    pub fn reads_ahead(&mut self, tree: &Tree, waited: bool) -> Vec<Fault> {
        if !waited && self.ahead.is_idle() {
            return Vec::new();
        }
        self.leaves_ahead(tree, waited)
    }

    #[inline(never)]
    fn leaves_ahead(&mut self, tree: &Tree, waited: bool) -> Vec<Fault> {
        let is_whole = self.unfinished.is_none();
        let records = (self.to - self.from, self.leaf_records);
        self.ahead.note_leaf(records, is_whole, waited, tree.most_ahead());
        let Some(seek) = self.next.seek().filter(|_| is_whole) else { return Vec::new() };
        let bound = match (self.direction, &self.low, &self.high) {
            (Direction::Forward, _, Bound::Included(key) | Bound::Excluded(key)) => Some(&key[..]),
            (Direction::Backward, Bound::Included(key) | Bound::Excluded(key), _) => Some(&key[..]),
            _ => None,
        };
        tree.leaves_ahead(seek, self.direction, bound, &mut self.ahead)
    }

    /// Shortens the copy to the next `batch` entries; gives whether it left out any.
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

    /// Asks the view about each entry of the copy that belongs to the scan.
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

    /// True if the leaf contains the position of the scan. In a damaged tree it may not, and the
    /// scan would never end.
    fn is_led_right(&self) -> bool {
        let (lower, upper) = (&self.lower[..], self.upper());
        match &self.next {
            Next::From(key, _) => lower <= &key[..] && upper.is_none_or(|upper| &key[..] < upper),
            // No key is below the empty key.
            Next::Below(key) if key.is_empty() => true,
            Next::Below(key) => lower < &key[..] && upper.is_none_or(|upper| &key[..] <= upper),
            Next::Last => upper.is_none(),
            Next::End => true,
        }
    }

    /// Finds the entries of a leaf, whose fences are known, that belong to the scan, and the
    /// position after them.
    fn select(&self, node: NodeRef<'_>) -> Result<(usize, usize, Next), Restart> {
        let count = node.count();
        // A search accepts only keys between the fences.
        let position = |key: &[u8], after: bool| {
            if key < &self.lower[..] {
                return Ok(0);
            }
            if self.upper().is_some_and(|upper| key >= upper) {
                return Ok(count);
            }
            node.search(key).map(|found| found.position + usize::from(after && found.found))
        };
        // Between the two bounds of the range,
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
        // and not before the position.
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

    /// Moves the scan back before the entry taken last, and drops the rest of the copy. The entry
    /// is taken again as the view sees it then.
    pub fn take_again(&mut self) {
        self.next = match self.direction {
            Direction::Forward => Next::From(self.key.clone(), false),
            // The smallest key above the entry.
            Direction::Backward => Next::Below([&self.key[..], &[0]].concat()),
        };
        (self.from, self.to, self.unfinished) = (0, 0, None);
        self.older.clear();
        self.bytes.clear();
    }

    /// Direction of the scan.
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

    /// Takes the next entry of the copy; its key and value are then [`Cursor::key`] and
    /// [`Cursor::value`], and the descriptor if the value is large. `None` if the entry does not
    /// exist for this view.
    ///
    /// # Errors
    /// [`Error::Corruption`].
    ///
    /// # Panics
    /// If no entry is loaded.
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

/// The entry that a scan took.
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
