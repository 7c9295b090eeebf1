//! Writes: insert, put, update, delete. See `leaf_edit` for the parts of a change.
//!
//! Several records of a transaction (a *run*) are written with one latch for each leaf. Each record
//! is checked, changed and logged as a single write is; a run only saves searches, latches and
//! calls. When a run stops, the records before that point are written.
//!
//! A *delete* by a transaction leaves a ghost, which readers treat as absent.

use crate::{
    author::Author,
    descend::Seek,
    difference::difference,
    ghost::{GHOST, is_ghost},
    journal::{Context, Journal},
    large_value::LargeValue,
    leaf_edit::next_of,
    node::{NodeMut, NodeRef, NodeView},
    record::Op,
    step::{Step, Stop},
    tree::Tree,
    undo::{Before, Undo},
};
use wattle_buffer::{Error, For, ScopePart, scope};

/// Which records a write accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The key must be absent.
    Insert,
    /// The key may be present or absent.
    Put,
    /// Only if the key is present.
    Update,
}

/// The value of a write as the leaf stores it.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// The bytes themselves.
    Inline(&'a [u8]),
    /// A descriptor of bytes stored elsewhere.
    Large(LargeValue),
    /// No value: the record is deleted and leaves a ghost.
    Ghost,
}

/// The effect of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The key was present before.
    pub existed: bool,
    /// The large value that the write replaced. Its chunks may be freed when no reader can see it.
    pub orphan: Option<LargeValue>,
}

impl Tree {
    /// Writes one record. `restarts` is how often the step has restarted (see `contention`).
    pub fn write_step<A: Author>(
        &self,
        cx: &Context,
        key: &[u8],
        value: Value<'_>,
        mode: Mode,
        author: &mut A,
        restarts: u32,
    ) -> Step<Written> {
        self.write_records(cx, &[(key, value)], mode, author, restarts, &mut 0)
    }

    /// Writes `run[*done..]` as far as the records belong to, and fit in, one leaf, under one
    /// latch. Advances `*done` past every record written, even when the step stops early; by at
    /// least one otherwise. The author is at `run[*done]` before and after. Gives the effect of the
    /// last write. A write that replaces a large value ends the step.
    pub fn write_run_step<A: Author>(
        &self,
        cx: &Context,
        run: &[(&[u8], Value<'_>)],
        mode: Mode,
        author: &mut A,
        restarts: u32,
        done: &mut usize,
    ) -> Step<Written> {
        self.write_records(cx, run, mode, author, restarts, done)
    }

    /// [`Tree::write_run_step`], compiled once for one record and once for several. One record
    /// takes 40 instructions less than as a run of length one.
    // Long because it is faster: with a function for each record, a write takes 28 to 112
    // instructions more (callgrind), since other parts are no longer inlined.
    #[inline(always)]
    fn write_records<A: Author>(
        &self,
        cx: &Context,
        run: &[(&[u8], Value<'_>)],
        mode: Mode,
        author: &mut A,
        restarts: u32,
        done: &mut usize,
    ) -> Step<Written> {
        let _scope = scope(ScopePart::Records);
        let (mut key, mut value) = run[*done];
        let traced = self.pool.is_traced();
        if traced && restarts == 0 {
            cx.route_recorded.set(false);
        }
        cx.check_room(false)?;
        let node = self.leaf_of(cx, key)?;
        if traced && !cx.route_recorded.replace(true) {
            self.pool.record_way(|way| self.lead(Seek::At(key), way));
        }
        let mut search =
            self.checked(&node, NodeRef::from(node.page()).search_for(key, For::Write))?;
        if !search.found && mode == Mode::Update {
            node.validate()?;
            self.track_absent(node);
            author.missed()?;
            next_of(run, done, |next| author.turn_to(next.0));
            return Ok(Written::default());
        }
        let mut leaf = node.upgrade()?;
        let mut written;
        loop {
            let view = NodeView::from(leaf.bytes());
            let before = search.found.then(|| view.value(search.position));
            let ghost = before.is_some_and(is_ghost);
            let existed = search.found && !ghost;
            written = Written { existed, orphan: None };
            if let (Some((bytes, true)), false) = (before, ghost) {
                written.orphan = Some(LargeValue::decode(bytes, leaf.header().page_id())?);
            }
            let refused = matches!((existed, mode), (true, Mode::Insert) | (false, Mode::Update));
            author.check(leaf.header(), key, before, !refused)?;
            if refused {
                if mode == Mode::Insert {
                    return Err(Stop::Error(Error::KeyExists));
                }
                next_of(run, done, |next| author.turn_to(next.0));
                return Ok(Written::default());
            }
            let descriptor;
            let (bytes, special) = match value {
                Value::Inline(bytes) => (bytes, false),
                Value::Large(large) => {
                    descriptor = large.encode();
                    (&descriptor[..], true)
                }
                Value::Ghost => (GHOST, true),
            };
            match before {
                Some((old, false)) if !special && old.len() == bytes.len() => {
                    let range = match cx.journal {
                        // Without a log the difference is not needed.
                        Journal::Off => (0, bytes.len()),
                        Journal::On(..) => difference(old, bytes),
                    };
                    self.overwrite(cx, &mut leaf, search.position, key, bytes, range, author);
                }
                Some(_) => {
                    let new = (bytes, special);
                    if !self.replace(cx, &mut leaf, search.position, key, new, author) {
                        return self.make_room(cx, leaf, key, bytes.len(), author);
                    }
                }
                None => {
                    let mut page = leaf.page_mut();
                    let mut node = NodeMut::new(&mut page);
                    if node.insert_leaf(search.position, key, bytes, special).is_err() {
                        return self.make_room(cx, leaf, key, bytes.len(), author);
                    }
                    leaf.header().note_insert(search.position);
                    let undo = Undo { tree: self.id, key, before: Before::Absent };
                    cx.log_change(
                        &mut leaf,
                        Op::Insert { key, value: bytes, special },
                        Some(undo),
                        author,
                    );
                }
            }
            author.done(&leaf, key);
            if traced {
                // The next record, or the next task's record, has another route.
                cx.route_recorded.set(false);
            }
            let next = next_of(run, done, |next| author.turn_to(next.0));
            let Some(next) = next.filter(|_| written.orphan.is_none()) else { break };
            // If an update finds no next key here, leave it to its own step, which checks
            // visibility.
            let place = self.next_in_leaf(cx, &leaf, (key, search), next.0);
            let place = place.filter(|place| place.found || mode != Mode::Update);
            let Some(place) = place else { break };
            ((key, value), search) = (next, place);
        }
        cx.note_leaf(self.id, &leaf);
        self.sample_contention(cx, leaf, key, search, restarts);
        Ok(written)
    }
}
