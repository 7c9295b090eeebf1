//! Range scans in both directions. A cursor copies a part of one leaf at a time, optimistically,
//! and lends values out of the copy. It continues after the last key of the copy, or at the fence
//! of the leaf, with a new descent. So splits and merges between two copies do no harm: fences of
//! neighbours always meet, so no entry is skipped or seen twice.
//!
//! Two descents are saved. The rest of a leaf needs none if the version of its latch is that of the
//! last copy. The next leaf needs none if its parent is unchanged since: then the sibling of the
//! last leaf begins at the fence where that one ended, because the version of the leaf was taken
//! before its parent was validated, and was valid after the copy. If a version differs, the cursor
//! descends from the root. A scan that has gone to the end of a leaf prefetches the next one during
//! each copy: the position in the parent is a guess then, which is checked when it is used.
//!
//! Each copy is consistent in itself. The view decides whether the scan as a whole is a snapshot:
//! it replaces the records of each copy by the versions that it sees. Ghosts are left out.

use crate::{
    descend::Direction,
    ghost::Special,
    large_value::LargeValue,
    node::NodeRef,
    read_ahead::ReadAhead,
    scan_place::{
        Neighbour, Next, Part, Rest, Turn, assign, far_bound, find, first, neighbour, next_of,
    },
    step::{Step, Stop},
    tree::Tree,
    view::{Seen, View},
};
use std::ops::Bound;
use wattle_buffer::{
    Error, Fault, For, Moment, Optimistic, PageId, PageImage, PageRef, Restart, Result, ScopePart,
    TreeId, scope,
};

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
    next_key: Vec<u8>,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    /// Key of the entry taken last. Unless the copy is fresh, it begins with the prefix of the
    /// copy.
    key: Vec<u8>,
    prefix_len: usize,
    /// No entry of the copy was taken yet.
    is_fresh: bool,
    /// Value of the entry taken last: a range of the copy, or of `bytes`.
    value: (usize, usize),
    is_older: bool,
    /// Entries of the copy that the view replaces, by ascending position.
    older: Vec<(usize, Older)>,
    /// Bytes of these older versions.
    bytes: Vec<u8>,
    /// How many entries the next copy has at most.
    batch: usize,
    /// The scan has copied a leaf to its end, or was said to take more: it will probably need the
    /// whole next leaf.
    goes_on: bool,
    /// The leaf whose other entries the next copy takes.
    rest: Option<Rest>,
    /// Parent of the next leaf, and the position there.
    beside: Option<(Moment, usize)>,
    ahead: ReadAhead,
    /// Tree of the last leaf, and its records. Another scan of that tree begins with this guess.
    leaf_records: (TreeId, usize),
    /// Key of the next copy before this one is valid.
    scratch: Vec<u8>,
    /// Key of an entry whose versions are looked at.
    key_looked_at: Vec<u8>,
}

/// Entries of the first copy. A scan that wants one entry should not copy hundreds; later copies
/// are larger.
const FIRST_BATCH: usize = 16;
/// Each copy whose versions must be looked up has this many times the entries of the previous one.
const BATCH_GROWTH: usize = 4;
/// Such a copy has only this part of the entries.
const LOOK_SHARE: usize = 2;
/// Entries of the first copy of a scan that needs fewer.
const LEAST_BATCH: usize = 4;
/// Cache lines of the second leaf of a scan that are prefetched: the scan may not need them.
const NEXT_LINES: usize = 16;

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
        let mut next_key = Vec::new();
        let next = first(direction, bounds.0, bounds.1, &mut next_key);
        Cursor {
            image: PageImage::zeroed(),
            lower: Vec::new(),
            upper: Vec::new(),
            upper_is_finite: false,
            direction,
            from: 0,
            to: 0,
            next,
            next_key,
            low,
            high,
            key: Vec::new(),
            prefix_len: 0,
            is_fresh: true,
            value: (0, 0),
            is_older: false,
            older: Vec::new(),
            bytes: Vec::new(),
            batch: FIRST_BATCH,
            goes_on: false,
            rest: None,
            beside: None,
            ahead: ReadAhead::default(),
            leaf_records: (TreeId(0), 0),
            scratch: Vec::new(),
            key_looked_at: Vec::new(),
        }
    }

    /// Makes this a new cursor over the keys between two bounds, and keeps its memory.
    pub fn restart(&mut self, low: Bound<&[u8]>, high: Bound<&[u8]>, direction: Direction) {
        assign(&mut self.low, low);
        assign(&mut self.high, high);
        self.direction = direction;
        self.next = first(direction, low, high, &mut self.next_key);
        self.key.clear();
        self.drop_copy();
        self.batch = FIRST_BATCH;
        self.goes_on = false;
        self.ahead.restart(None);
    }

    /// Forgets the copy and its leaf.
    fn drop_copy(&mut self) {
        (self.from, self.to) = (0, 0);
        (self.rest, self.beside) = (None, None);
        self.older.clear();
        self.bytes.clear();
        (self.value, self.is_older, self.is_fresh) = ((0, 0), false, true);
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

    /// Copies the next entries of the next leaf of `tree`, the same one at each call until
    /// [`Cursor::restart`]. The copy may have no entry of the range; then load again, until
    /// [`Cursor::is_at_end`].
    pub fn load_step<V: View>(&mut self, tree: &Tree, view: &mut V) -> Step<()> {
        let _scope = scope(ScopePart::Records);
        let again = self.rest.and_then(|rest| {
            let parent = rest.parent.and_then(|(parent, position)| {
                Some((tree.pool.optimistic_since(parent)?, position))
            });
            Some((tree.pool.optimistic_since(rest.leaf)?, parent, rest.part))
        });
        let is_led = again.is_none();
        let (leaf, parent, part) = match again {
            Some(again) => again,
            None => {
                let Some(seek) = self.next.seek(&self.next_key) else { return Ok(()) };
                let path = find(tree, seek, self.beside)?;
                let node = path.node_ref();
                // Arbitrary until the leaf validates.
                let fences = fences_to(node, &mut self.lower, &mut self.upper);
                self.upper_is_finite = tree.checked(&path.node, fences)?;
                (path.node, path.parent, tree.checked(&path.node, self.select(node))?)
            }
        };
        let node = NodeRef::from(leaf.page());
        let sees_all = view.sees_all(leaf.header());
        let batch = match sees_all {
            // A copy of many entries takes the whole page anyway.
            true if self.batch > FIRST_BATCH => usize::MAX,
            true => self.batch,
            false => self.batch.div_ceil(LOOK_SHARE),
        };
        let (part, rest) = part.split(batch, self.direction);
        if let Some(rest) = rest {
            let last = match self.direction {
                Direction::Forward => rest.from - 1,
                Direction::Backward => rest.to,
            };
            self.scratch.clear();
            tree.checked(&leaf, node.key_to(last, &mut self.scratch))?;
        }
        let count = node.count();
        let neighbour = match rest {
            None => parent.and_then(|(parent, at)| neighbour(parent, at, part.turn)),
            Some(_) => None,
        };
        let beside = self.page_ahead(tree, neighbour);
        let copied = node.copy_entries(part.from, part.to, &mut self.image, beside);
        tree.checked(&leaf, copied)?;
        leaf.track();
        leaf.validate()?;
        let page = leaf.header().page_id();
        if is_led {
            self.led_to(tree, leaf, page)?;
        }
        self.older.clear();
        self.bytes.clear();
        (self.value, self.is_older, self.is_fresh) = ((0, 0), false, true);
        if !sees_all {
            self.look_at_versions(part.from, part.to, view)?;
            // The versions belong to the copy only if the leaf has not changed since.
            leaf.validate()?;
        }
        view.missed()?;
        self.leaf_records = (tree.id, count);
        (self.from, self.to) = (part.from, part.to);
        match rest {
            Some(rest) => {
                std::mem::swap(&mut self.next_key, &mut self.scratch);
                self.next = match self.direction {
                    Direction::Forward => Next::After,
                    Direction::Backward => Next::Below,
                };
                self.batch = self.batch.saturating_mul(BATCH_GROWTH);
                self.beside = None;
                let parent = parent.map(|(parent, position)| (parent.moment(), position));
                self.rest = Some(Rest { leaf: leaf.moment(), page, part: rest, parent });
            }
            None => self.turn(tree, part.turn, neighbour),
        }
        Ok(())
    }

    /// The page of the next leaf, if a copy should prefetch it.
    #[inline(always)]
    fn page_ahead<'t>(&self, tree: &'t Tree, next: Option<Neighbour>) -> Option<PageRef<'t>> {
        let frame = next.filter(|_| self.goes_on)?.frame?;
        tree.pool.prefetch_lines(frame, 1, For::Read);
        tree.pool.any_page(frame)
    }

    /// A valid copy was made of a leaf that a descent led to.
    #[inline(always)]
    fn led_to(&self, tree: &Tree, leaf: Optimistic<'_>, page: PageId) -> Step<()> {
        // A further copy of the same leaf does not count as another access.
        if tree.pool.is_traced()
            && self.rest.is_none_or(|rest| rest.page != page)
            && let Some(seek) = self.next.seek(&self.next_key)
        {
            leaf.record(|way| tree.lead(seek, way));
        }
        if self.is_led_right() {
            return Ok(());
        }
        let damage = "its fences leave out the key that led to it";
        Err(Error::corruption(page, damage).into())
    }

    /// The copy goes to the end of the leaf: sets the place of the next one, and prefetches that
    /// leaf if it is in memory, unless that was done during the copy.
    #[inline(always)]
    fn turn(&mut self, tree: &Tree, turn: Turn, neighbour: Option<Neighbour>) {
        self.rest = None;
        self.beside = None;
        self.next = next_of(turn);
        let fence = match turn {
            Turn::Upper => &self.upper,
            Turn::Lower => &self.lower,
            Turn::End => return,
        };
        self.next_key.clear();
        self.next_key.extend_from_slice(fence);
        let was_going = std::mem::replace(&mut self.goes_on, true);
        let Some(Neighbour { parent, position, frame }) = neighbour else { return };
        self.beside = Some((parent, position));
        if let (Some(frame), false) = (frame, was_going) {
            tree.pool.prefetch_lines(frame, NEXT_LINES, For::Read);
        }
    }

    /// Says that the scan will probably take so many records: it reads all leaves that it needs as
    /// soon as one is not in memory, as far as the limit of the pool allows, and none beyond them.
    /// The scan may take fewer records or more.
    pub fn expect(&mut self, records: usize) {
        self.ahead.restart(Some(records));
        self.batch = records.max(LEAST_BATCH);
        self.goes_on = records > FIRST_BATCH;
    }

    /// Reads to start, without waiting for them, when the first attempt of a [`Cursor::load_step`]
    /// has stopped, before that stop is waited for: the other leaves that the scan was said to
    /// need. How many they are is guessed from the last leaf of the same tree.
    #[cold]
    pub fn reads_beside(&mut self, tree: &Tree, stop: &Stop) -> Vec<Fault> {
        let (Stop::Fault(Fault::Read(_)), Some(seek)) = (stop, self.next.seek(&self.next_key))
        else {
            return Vec::new();
        };
        let (of, records) = self.leaf_records;
        if of != tree.id || !self.ahead.begin(records, tree.most_ahead()) {
            return Vec::new();
        }
        let bound = far_bound(self.direction, &self.low, &self.high);
        tree.leaves_ahead(seek, self.direction, bound, &mut self.ahead)
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
        let is_whole = self.rest.is_none();
        let records = (self.to.saturating_sub(self.from), self.leaf_records.1);
        self.ahead.note_leaf(records, is_whole, waited, tree.most_ahead());
        let Some(seek) = self.next.seek(&self.next_key).filter(|_| is_whole) else {
            return Vec::new();
        };
        let bound = far_bound(self.direction, &self.low, &self.high);
        tree.leaves_ahead(seek, self.direction, bound, &mut self.ahead)
    }

    /// Asks the view about each entry of the copy that belongs to the scan.
    fn look_at_versions<V: View>(&mut self, from: usize, to: usize, view: &mut V) -> Step<()> {
        let node = NodeRef::from(PageRef::of_image(&self.image));
        for position in from..to {
            self.key_looked_at.clear();
            node.key_to(position, &mut self.key_looked_at)?;
            let start = self.bytes.len();
            let (offset, len, _) = node.value_range(position)?;
            node.page().append_to(offset, len, &mut self.bytes)?;
            match view.look(&self.key_looked_at, &mut self.bytes, start)? {
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
        let (lower, upper, key) = (&self.lower[..], self.upper(), &self.next_key[..]);
        match self.next {
            Next::From | Next::After => lower <= key && upper.is_none_or(|upper| key < upper),
            // No key is below the empty key.
            Next::Below => key.is_empty() || lower < key && upper.is_none_or(|upper| key <= upper),
            Next::Last => upper.is_none(),
            Next::End => true,
        }
    }

    /// Finds the entries of a leaf, whose fences are known, that belong to the scan.
    fn select(&self, node: NodeRef<'_>) -> Result<Part, Restart> {
        let count = node.count();
        // A search accepts only keys between the fences.
        let position = |key: &[u8], after: bool| {
            if key < &self.lower[..] || !after && key == &self.lower[..] {
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
        let key = &self.next_key[..];
        let (from, to) = match self.next {
            Next::From | Next::After if self.is_at(&self.low) => (low, high),
            Next::From => (position(key, false)?.max(low), high),
            Next::After => (position(key, true)?.max(low), high),
            Next::Below => (low, position(key, false)?.min(high)),
            Next::Last => (low, high),
            Next::End => (0, 0),
        };
        let turn = match (self.direction, self.upper()) {
            (Direction::Forward, Some(_)) if high >= count => Turn::Upper,
            (Direction::Backward, _) if low == 0 && !self.lower.is_empty() => Turn::Lower,
            _ => Turn::End,
        };
        Ok(Part { from, to, turn })
    }

    /// Whether an ascending scan is still at its low bound.
    fn is_at(&self, low: &Bound<Vec<u8>>) -> bool {
        match (self.next, low) {
            (Next::From, Bound::Included(key)) | (Next::After, Bound::Excluded(key)) => {
                *key == self.next_key
            }
            _ => false,
        }
    }

    /// Moves the scan back before the entry taken last, and drops the rest of the copy. The entry
    /// is taken again as the view sees it then.
    pub fn take_again(&mut self) {
        self.next_key.clear();
        self.next_key.extend_from_slice(&self.key);
        self.next = match self.direction {
            Direction::Forward => Next::From,
            Direction::Backward => {
                // The smallest key above the entry.
                self.next_key.push(0);
                Next::Below
            }
        };
        self.drop_copy();
    }

    /// Direction of the scan.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Key of the entry taken last.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Value of the entry taken last, or the bytes of the descriptor; empty after a load.
    #[inline]
    pub fn value(&self) -> &[u8] {
        let (from, to) = self.value;
        match self.is_older {
            false => &self.image.0[from..to],
            true => &self.bytes[from..to],
        }
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
    #[inline]
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
        match self.read(position) {
            Ok(special) if !special && self.older.is_empty() => Ok(Some(Taken::Inline)),
            Ok(special) => self.interpret(position, special),
            Err(Restart) => Err(self.damaged()),
        }
    }

    /// Reads an entry of the copy; gives whether its value is special.
    #[inline]
    fn read(&mut self, position: usize) -> Result<bool, Restart> {
        let node = NodeRef::from(PageRef::of_image(&self.image));
        if self.is_fresh {
            self.key.clear();
            node.prefix_to(&mut self.key)?;
            self.prefix_len = self.key.len();
            // Not before: if the page is damaged, the next call must not use half a key.
            self.is_fresh = false;
        }
        self.key.truncate(self.prefix_len);
        node.suffix_to(position, &mut self.key)?;
        let (at, len, special) = node.value_range(position)?;
        (self.value, self.is_older) = ((at, at + len), false);
        Ok(special)
    }

    #[cold]
    fn damaged(&self) -> Error {
        let page = NodeRef::from(PageRef::of_image(&self.image)).page_id();
        Error::corruption(page, "its contents lead outside of the page")
    }

    /// The rest of [`Cursor::take`], of an entry that has an older version, or whose value is
    /// special.
    #[inline(never)]
    fn interpret(&mut self, position: usize, mut special: bool) -> Result<Option<Taken>> {
        if let Ok(at) = self.older.binary_search_by_key(&position, |(at, _)| *at) {
            match self.older[at].1 {
                Older::Absent => return Ok(None),
                Older::Value(from, to, is_special) => {
                    (self.value, self.is_older, special) = ((from, to), true, is_special);
                }
            }
        }
        if !special {
            return Ok(Some(Taken::Inline));
        }
        let page = NodeRef::from(PageRef::of_image(&self.image)).page_id();
        Ok(match Special::decode(self.value(), page)? {
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
