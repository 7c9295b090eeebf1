//! Range scans in both directions. A cursor copies one leaf at a time, optimistically, and reads
//! the copy in private; it goes on at the fence of the copy by a new descent. Splits and merges
//! between two leaves are therefore invisible: fences of neighbours meet, whatever the nodes are
//! by then, and no entry is skipped or seen twice.
//!
//! Each leaf is consistent in itself. Whether the scan as a whole is a snapshot is up to its view,
//! which replaces the records of each leaf by the versions that it sees; ghosts are left out.

use crate::{
    descend::Seek,
    ghost::Special,
    large_value::LargeValue,
    node::{NodeRef, NodeView},
    tree::{Step, Tree},
    view::{Seen, View},
};
use std::ops::Bound;
use wattle_buffer::{Error, PageImage, PageRef, Restart, Result};

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

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

/// Position of a scan. Holds no latch and no frame.
pub struct Cursor {
    image: Box<PageImage>,
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
    /// How many entries are taken from the next leaf that needs a second look.
    batch: usize,
}

/// Entries of the first leaf whose versions are looked at, when that is needed. A scan that wants one
/// entry should not have to ask for hundreds; one that goes on takes ever more.
const FIRST_BATCH: usize = 8;
/// How much more the next time.
const BATCH_GROWTH: usize = 4;

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

impl Cursor {
    /// A cursor over the keys between two bounds.
    pub fn new(low: Bound<Vec<u8>>, high: Bound<Vec<u8>>, direction: Direction) -> Cursor {
        let bounds = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        let next = first(direction, bounds.0, bounds.1);
        Cursor {
            image: PageImage::zeroed(),
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

    /// Copies the next leaf. It may hold no entry of the range; then load again, until
    /// [`Cursor::is_at_end`].
    pub fn load_step<V: View>(&mut self, tree: &Tree, view: &mut V) -> Step<()> {
        let seek = match &self.next {
            Next::From(key, _) => Seek::At(key),
            Next::Below(key) => Seek::Before(key),
            Next::Last => Seek::Last,
            Next::End => return Ok(()),
        };
        let path = tree.seek(seek, 0)?;
        path.node.page().copy_image(&mut self.image);
        let sees_all = view.sees_all(path.node.header());
        path.node.track();
        path.node.validate()?;
        if tree.pool.is_traced() {
            path.node.record(|way| tree.lead(seek, way));
        }
        let page = path.node.header().page_id();
        if !self.is_led_right() {
            let what = "its fences leave out the key that led to it";
            return Err(Error::corruption(page, what).into());
        }
        let lost = |_| Error::corruption(page, "its contents lead outside of the page");
        let mut selected = self.select().map_err(lost)?;
        self.older.clear();
        self.bytes.clear();
        if !sees_all {
            self.cut(&mut selected).map_err(lost)?;
            self.look_at_versions(selected.0, selected.1, view)?;
            // The versions belong to the copy only if the leaf is still what was copied.
            path.node.validate()?;
        }
        (self.from, self.to, self.next) = selected;
        Ok(())
    }

    /// Leaves all but the next few entries to a later copy of the leaf.
    fn cut(&mut self, (from, to, next): &mut (usize, usize, Next)) -> Result<(), Restart> {
        let batch = self.batch;
        self.batch = batch.saturating_mul(BATCH_GROWTH);
        if *to - (*from).min(*to) <= batch {
            return Ok(());
        }
        let node = NodeRef::from(PageRef::of_image(&self.image));
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
        Ok(())
    }

    /// Asks the view for each entry of the copy that belongs to the scan.
    fn look_at_versions<V: View>(&mut self, from: usize, to: usize, view: &mut V) -> Step<()> {
        let node = NodeRef::from(PageRef::of_image(&self.image));
        for position in from..to {
            self.key.clear();
            node.key_to(position, &mut self.key)?;
            let start = self.bytes.len();
            match view.look(&self.key, &mut self.bytes)? {
                Seen::Page => {}
                Seen::Absent => self.older.push((position, Older::Absent)),
                Seen::Value { special } => {
                    let version = Older::Value(start, self.bytes.len(), special);
                    self.older.push((position, version));
                }
            }
        }
        Ok(())
    }

    /// The copy contains the place where the scan goes on. In a damaged tree it may not, and the
    /// scan would go round for ever.
    fn is_led_right(&self) -> bool {
        let view = NodeView::from(&*self.image);
        let (lower, upper) = (view.lower(), view.upper());
        match &self.next {
            Next::From(key, _) => lower <= &key[..] && upper.is_none_or(|upper| &key[..] < upper),
            // Nothing is below the empty key.
            Next::Below(key) if key.is_empty() => true,
            Next::Below(key) => lower < &key[..] && upper.is_none_or(|upper| &key[..] <= upper),
            Next::Last => upper.is_none(),
            Next::End => true,
        }
    }

    /// Finds the part of the copy that belongs to the scan, and where it goes on after it.
    fn select(&self) -> Result<(usize, usize, Next), Restart> {
        let node = NodeRef::from(PageRef::of_image(&self.image));
        let count = node.count();
        // Only keys between the fences can be searched for.
        let view = NodeView::from(&*self.image);
        let position = |key: &[u8], after: bool| {
            if key < view.lower() {
                return Ok(0);
            }
            if view.upper().is_some_and(|upper| key >= upper) {
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
        let mut fence = Vec::new();
        let next = match self.direction {
            Direction::Forward if high < count || !node.upper_fence_to(&mut fence)? => Next::End,
            Direction::Forward => Next::From(fence, false),
            Direction::Backward => {
                node.lower_fence_to(&mut fence)?;
                if low > 0 || fence.is_empty() { Next::End } else { Next::Below(fence) }
            }
        };
        Ok((from, to, next))
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
