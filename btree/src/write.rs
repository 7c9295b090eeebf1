//! Changes of one record: insert, put, update, in-place modify, remove.
//!
//! The leaf is searched optimistically and latched only for the change itself; latching succeeds
//! only if nothing changed since the search. A leaf that has no room is split by a separate step,
//! a leaf that gets empty enough is merged by one, and then the operation runs again or has ended.

use crate::{
    large_value::LargeValue,
    merge::is_underfull,
    node::{NodeMut, NodeRef, Search},
    tree::{Step, Stop, Tree},
};
use wattle_buffer::{Error, Exclusive, Worker};

/// Which records a write may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The key must be absent.
    Insert,
    /// Whether or not the key is present.
    Put,
    /// Only if the key is present.
    Update,
}

/// The value of a write as it goes into the leaf.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// The bytes themselves.
    Inline(&'a [u8]),
    /// A descriptor of bytes elsewhere.
    Large(LargeValue),
}

/// What a write found and left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The key was present before.
    pub existed: bool,
    /// The value before was large and is now referenced by nothing.
    pub orphan: Option<LargeValue>,
}

impl Tree {
    /// Writes one record. `restarts` is how often the step was run before, see contention split.
    pub fn write_step(
        &self,
        worker: &Worker,
        key: &[u8],
        value: Value<'_>,
        mode: Mode,
        restarts: u32,
    ) -> Step<Written> {
        let path = self.descend(key, 0)?;
        let search = self.checked(&path.node, path.node_ref().search(key))?;
        match (search.found, mode) {
            (true, Mode::Insert) => {
                path.node.validate()?;
                return Err(Stop::Error(Error::KeyExists));
            }
            (false, Mode::Update) => {
                path.node.validate()?;
                path.node.track();
                return Ok(Written::default());
            }
            _ => {}
        }
        let mut leaf = path.node.upgrade()?;
        let orphan = if search.found { self.large_at(&leaf, search.position)? } else { None };
        let descriptor;
        let (bytes, special) = match value {
            Value::Inline(bytes) => (bytes, false),
            Value::Large(large) => {
                descriptor = large.encode();
                (&descriptor[..], true)
            }
        };
        let mut page = leaf.page_mut();
        let mut node = NodeMut::new(&mut page);
        let written = if search.found {
            node.replace_value(search.position, bytes, special)
        } else {
            node.insert_leaf(search.position, key, bytes, special)
        };
        if written.is_err() {
            drop(leaf);
            self.split_step(worker, key, 0)?;
            return Err(Stop::Restart);
        }
        self.sample_contention(worker, leaf, key, search, restarts);
        Ok(Written { existed: search.found, orphan })
    }

    /// Changes the value of a record in place through `change`, which gets the bytes of an inline
    /// value in private memory (`buffer`) and cannot change their number. False when the key is
    /// absent; the descriptor when its value is large.
    pub fn modify_step(
        &self,
        worker: &Worker,
        key: &[u8],
        buffer: &mut Vec<u8>,
        change: &mut impl FnMut(&mut [u8]),
        restarts: u32,
    ) -> Step<Result<bool, LargeValue>> {
        let path = self.descend(key, 0)?;
        let search = self.checked(&path.node, path.node_ref().search(key))?;
        if !search.found {
            path.node.validate()?;
            path.node.track();
            return Ok(Ok(false));
        }
        let mut leaf = path.node.upgrade()?;
        if let Some(large) = self.large_at(&leaf, search.position)? {
            return Ok(Err(large));
        }
        let (offset, len, _) = self.latched(&leaf, |node| node.value_range(search.position))?;
        buffer.clear();
        self.latched(&leaf, |_| leaf.page().append_to(offset, len, buffer))?;
        change(buffer);
        leaf.page_mut().write(offset, buffer);
        self.sample_contention(worker, leaf, key, search, restarts);
        Ok(Ok(true))
    }

    /// Removes one record. Also tells whether its leaf is so empty now that
    /// [`Tree::merge_step`] should follow.
    pub fn remove_step(&self, key: &[u8]) -> Step<(Written, bool)> {
        let path = self.descend(key, 0)?;
        let search = self.checked(&path.node, path.node_ref().search(key))?;
        if !search.found {
            path.node.validate()?;
            path.node.track();
            return Ok((Written::default(), false));
        }
        let mut leaf = path.node.upgrade()?;
        let orphan = self.large_at(&leaf, search.position)?;
        NodeMut::new(&mut leaf.page_mut()).remove_leaf(search.position);
        let underfull = leaf.frame() != self.root && is_underfull(leaf.bytes().into());
        Ok((Written { existed: true, orphan }, underfull))
    }

    /// The descriptor of the value at `position`, if it is large.
    fn large_at(&self, leaf: &Exclusive<'_>, position: usize) -> Step<Option<LargeValue>> {
        let (_, len, special) = self.latched(leaf, |node| node.value_range(position))?;
        if !special {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(len);
        self.latched(leaf, |node| node.value_to(position, &mut bytes))?;
        Ok(Some(LargeValue::decode(&bytes, leaf.header().page_id())?))
    }

    /// A read under the latch: a failed bounds check can only be corruption.
    pub(crate) fn latched<'p, T>(
        &self,
        guard: &Exclusive<'p>,
        read: impl FnOnce(NodeRef<'_>) -> Result<T, wattle_buffer::Restart>,
    ) -> Step<T> {
        read(NodeRef::from(guard.page())).map_err(|_| {
            let page = guard.header().page_id();
            Stop::Error(Error::corruption(page, "its contents lead outside of the page"))
        })
    }

    /// Contention split, first half: notes one write in [`SAMPLE_EVERY`], and when enough of a
    /// period's writes met another writer at a different record, splits the leaf between the two.
    #[inline(always)]
    fn sample_contention(
        &self,
        worker: &Worker,
        leaf: Exclusive<'_>,
        key: &[u8],
        search: Search,
        restarts: u32,
    ) {
        if worker.random().is_multiple_of(SAMPLE_EVERY) {
            self.sampled_write(worker, leaf, key, search, restarts);
        }
    }

    #[cold]
    fn sampled_write(
        &self,
        worker: &Worker,
        leaf: Exclusive<'_>,
        key: &[u8],
        search: Search,
        restarts: u32,
    ) {
        let header = leaf.header();
        let last = header.sample_write(search.position, restarts > 0);
        if header.write_samples() < PERIOD {
            return;
        }
        let (samples, contended) = header.take_write_samples();
        let count = NodeRef::from(leaf.page()).count();
        let share = u32::from(contended) * 100 / u32::from(samples.max(1));
        if share < CONTENDED_PERCENT || last == search.position || count < 3 {
            return;
        }
        drop(leaf);
        // The split is an improvement, not a need: whatever stops it, the write is done.
        let between = Search { position: last.max(search.position).min(count - 1), found: true };
        if self.contention_split_step(worker, key, between.position).is_ok() {
            worker.counters().contention_splits.add(1);
        }
    }
}

/// One write in this many is sampled for contention ("Contention and Space Management in
/// B-Trees", section 3: tracking must not become contention itself).
const SAMPLE_EVERY: u64 = 128;
/// Sampled writes after which a leaf is judged.
const PERIOD: u16 = 128;
/// A leaf is split when at least this share of the sampled writes was contended.
const CONTENDED_PERCENT: u32 = 1;
