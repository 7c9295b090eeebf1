//! Writes: insert, put, update, delete. See `leaf_edit` for the parts of a change.
//!
//! Several records of a transaction (a *run*) are written under as few latches as they lie in
//! leaves. Each record is checked, changed and logged as it is alone; only searches, latches and
//! calls are saved. When a run stops, the records before that point are written.
//!
//! A *delete* by a transaction leaves a ghost, which readers treat as absent.

use crate::{
    author::Author,
    difference::difference,
    ghost::{GHOST, is_ghost},
    journal::{Context, Journal},
    large_value::LargeValue,
    leaf_edit::next_of,
    node::{NodeView, Search},
    step::{Step, Stop},
    trace::WriteTrace,
    tree::Tree,
};
use wattle_buffer::{Error, Exclusive};

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

/// How a write of one record under the latch ended.
enum Outcome {
    Written(Written),
    /// An update found a ghost: the record is absent.
    Absent,
    /// The leaf has no room; nothing changed.
    Full,
}

impl Tree {
    /// Writes one record. `restarts` is how often the step has restarted (see `contention`).
    #[inline]
    pub fn write_step<A: Author>(
        &self,
        cx: &Context,
        key: &[u8],
        value: Value<'_>,
        mode: Mode,
        author: &mut A,
        restarts: u32,
    ) -> Step<Written> {
        self.write_run_step(cx, &[(key, value)], mode, author, restarts, &mut 0)
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
        let (mut key, mut value) = run[*done];
        let trace = WriteTrace::begin(self, cx, restarts);
        let (node, mut search) = self.find_to_change(cx, key, trace)?;
        if !search.found && mode == Mode::Update {
            self.nothing_to_change(node, author)?;
            next_of(run, done, |next| author.turn_to(next.0));
            return Ok(Written::default());
        }
        let mut leaf = node.upgrade()?;
        let mut written;
        loop {
            match self.write_record(cx, &mut leaf, (key, value), mode, search, author)? {
                Outcome::Written(effect) => written = effect,
                Outcome::Absent => {
                    next_of(run, done, |next| author.turn_to(next.0));
                    return Ok(Written::default());
                }
                Outcome::Full => return self.make_room(cx, leaf, key, author),
            }
            trace.done();
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

    /// Checks, changes and logs one record in its latched leaf.
    #[inline(always)]
    fn write_record<A: Author>(
        &self,
        cx: &Context,
        leaf: &mut Exclusive<'_>,
        (key, value): (&[u8], Value<'_>),
        mode: Mode,
        search: Search,
        author: &mut A,
    ) -> Step<Outcome> {
        let view = NodeView::from(leaf.bytes());
        let before = search.found.then(|| view.value(search.position));
        let ghost = before.is_some_and(is_ghost);
        let existed = search.found && !ghost;
        let mut written = Written { existed, orphan: None };
        if let (Some((bytes, true)), false) = (before, ghost) {
            written.orphan = Some(LargeValue::decode(bytes, leaf.header().page_id())?);
        }
        let refused = matches!((existed, mode), (true, Mode::Insert) | (false, Mode::Update));
        author.check(leaf.header(), key, before, !refused)?;
        if refused {
            return match mode {
                Mode::Insert => Err(Stop::Error(Error::KeyExists)),
                _ => Ok(Outcome::Absent),
            };
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
        let fits = match before {
            Some((old, false)) if !special && old.len() == bytes.len() => {
                let range = match cx.journal {
                    // Without a log the difference is not needed.
                    Journal::Off => (0, bytes.len()),
                    Journal::On(..) => difference(old, bytes),
                };
                self.overwrite(cx, leaf, search.position, key, bytes, range, author);
                true
            }
            Some(_) => self.replace(cx, leaf, search.position, key, (bytes, special), author),
            None => self.insert(cx, leaf, search.position, key, (bytes, special), author),
        };
        if !fits {
            return Ok(Outcome::Full);
        }
        author.done(leaf, key);
        Ok(Outcome::Written(written))
    }
}
