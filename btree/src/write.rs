//! Changes of one record: insert, put, update, delete, in-place modify, remove.
//!
//! The leaf is searched optimistically and latched only for the change itself; latching succeeds
//! only if nothing changed since the search. A leaf that has no room is split by a separate step,
//! a leaf that gets empty enough is merged by one, and then the operation runs again or has ended.
//!
//! Several records of a transaction (a *run*) are changed in as few leaves as they lie in, each under one
//! latch: every record is checked, changed and logged as it is alone, so that nothing but the searches,
//! latches and calls in between is saved. A run that stops half way has done the records before that.
//!
//! A *delete* by a transaction leaves a ghost, which readers take for nothing; a *remove* takes the
//! record away at once, for records that no snapshot can want.

use crate::{
    author::Author,
    descend::Seek,
    ghost::{GHOST, Special, is_ghost},
    journal::{Context, Journal},
    large_value::LargeValue,
    merge::is_underfull,
    node::{NodeMut, NodeRef, NodeView, Search},
    record::Op,
    split::RESERVE,
    step::{Step, Stop},
    tree::Tree,
    undo::{Before, Undo},
};
use wattle_buffer::{Error, Exclusive, For, Inside, Optimistic};

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
    /// None: the record is deleted and leaves a ghost.
    Ghost,
}

/// What a write found and left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The key was present before.
    pub existed: bool,
    /// The value before was large; whoever can no longer see it does not need it.
    pub orphan: Option<LargeValue>,
}

/// How far [`Tree::modify_run_step`] has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Keys that are done: changed, or absent.
    pub done: usize,
    /// Those of them that were changed.
    pub found: usize,
}

/// Shorter patches than this share of the value are logged instead of the value, percent.
const PATCH_PERCENT: usize = 80;

impl Tree {
    /// Writes one record. `restarts` is how often the step was run before, see contention split.
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

    /// Writes the first of these records that is not done, and those behind it for which the same leaf is the
    /// place and has room, under one latch. `done` is how many are, also when the step stops; one more at
    /// least when it does not. The author is at the first one that is not done, before and after. Gives what
    /// became of the last one; one that replaces a large value is the last one.
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
        let traced = self.pool.is_traced();
        if traced && restarts == 0 {
            cx.way_recorded.set(false);
        }
        cx.check_room(false)?;
        let node = self.leaf_of(cx, key)?;
        if traced && !cx.way_recorded.replace(true) {
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
                        // Nobody wants to know what differs.
                        Journal::Off => (0, bytes.len()),
                        Journal::On(..) => difference(old, bytes),
                    };
                    self.overwrite(cx, &mut leaf, search.position, key, bytes, range, author);
                }
                Some(_) => {
                    let new = (bytes, special);
                    if !self.replace(cx, &mut leaf, search.position, key, new, author) {
                        return self.make_room(cx, leaf, key, author);
                    }
                }
                None => {
                    let mut page = leaf.page_mut();
                    let mut node = NodeMut::new(&mut page);
                    if node.insert_leaf(search.position, key, bytes, special).is_err() {
                        return self.make_room(cx, leaf, key, author);
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
                // Of another record it would be another way; and so it would of another task's.
                cx.way_recorded.set(false);
            }
            let next = next_of(run, done, |next| author.turn_to(next.0));
            let Some(next) = next.filter(|_| written.orphan.is_none()) else { break };
            // Of one that is absent a step of its own finds out whether that may be said.
            let place = self.next_in_leaf(cx, &leaf, (key, search), next.0);
            let place = place.filter(|place| place.found || mode != Mode::Update);
            let Some(place) = place else { break };
            ((key, value), search) = (next, place);
        }
        cx.note_leaf(self.id, &leaf);
        self.sample_contention(cx, leaf, key, search, restarts);
        Ok(written)
    }

    /// Where the record behind `last` in a run is or would be, if that is in the latched leaf. What may be in
    /// the way, its own step finds out.
    #[inline]
    fn next_in_leaf(
        &self,
        cx: &Context,
        leaf: &Exclusive<'_>,
        last: (&[u8], Search),
        key: &[u8],
    ) -> Option<Search> {
        cx.check_room(false).ok()?;
        let node = NodeRef::from(leaf.page());
        if last.0 < key {
            return node.search_behind(last.1.position, key, For::Write).ok()?;
        }
        match node.covers(key) {
            Ok(true) => node.search_for(key, For::Write).ok(),
            _ => None,
        }
    }

    /// The leaf for `key`, where a session that writes one leaf after the other need not descend.
    #[inline(always)]
    fn leaf_of<'p>(&'p self, cx: &Context, key: &[u8]) -> Step<Optimistic<'p>> {
        if let Some(node) = cx.last_leaf(&self.pool, self.id)
            && self.checked(&node, NodeRef::from(node.page()).covers(key))?
        {
            return Ok(node);
        }
        Ok(self.descend_to_change(key)?.node)
    }

    /// Replaces the value of a record, which may change its length. False: there is no room.
    fn replace<A: Author>(
        &self,
        cx: &Context,
        leaf: &mut Exclusive<'_>,
        position: usize,
        key: &[u8],
        value: (&[u8], bool),
        author: &mut A,
    ) -> bool {
        let mut old = cx.scratch.borrow_mut();
        old.clear();
        let (bytes, special) = NodeView::from(leaf.bytes()).value(position);
        if !author.is_auto() {
            old.extend_from_slice(bytes);
        }
        let mut page = leaf.page_mut();
        if NodeMut::new(&mut page).replace_value(position, value.0, value.1).is_err() {
            return false;
        }
        let undo = Undo { tree: self.id, key, before: Before::Value { bytes: &old, special } };
        let op = Op::Replace { key, value: value.0, special: value.1 };
        cx.log_change(leaf, op, Some(undo), author);
        true
    }

    /// Overwrites an inline value by one of the same length, which differs from it in no bytes outside of a
    /// range; logs only those when that is less.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "one flat call on the path of every write")]
    fn overwrite<A: Author>(
        &self,
        cx: &Context,
        leaf: &mut Exclusive<'_>,
        position: usize,
        key: &[u8],
        value: &[u8],
        (from, to): (usize, usize),
        author: &mut A,
    ) {
        if matches!(cx.journal, Journal::Off) {
            NodeMut::new(&mut leaf.page_mut()).write_value(position, from, &value[from..to]);
            return cx.log_change(leaf, Op::Replace { key, value, special: false }, None, author);
        }
        let mut old = cx.scratch.borrow_mut();
        old.clear();
        let (bytes, _) = NodeView::from(leaf.bytes()).value(position);
        let (from, to) = match (to - from) * 100 < value.len() * PATCH_PERCENT {
            true => (from, to),
            false => (0, value.len()),
        };
        let is_patch = to - from < value.len();
        if !author.is_auto() {
            old.extend_from_slice(&bytes[from..to]);
        }
        NodeMut::new(&mut leaf.page_mut()).write_value(position, from, &value[from..to]);
        let (op, before) = if is_patch {
            let bytes = &value[from..to];
            (Op::Patch { key, offset: from, bytes }, Before::Patch { offset: from, bytes: &old })
        } else {
            let before = Before::Value { bytes: &old, special: false };
            (Op::Replace { key, value, special: false }, before)
        };
        cx.log_change(leaf, op, Some(Undo { tree: self.id, key, before }), author);
    }

    /// A leaf without room loses the ghosts that nobody needs, or is split.
    #[cold]
    fn make_room<A: Author, T>(
        &self,
        cx: &Context,
        mut leaf: Exclusive<'_>,
        key: &[u8],
        author: &mut A,
    ) -> Step<T> {
        leaf.unchanged();
        author.undone(key);
        if !self.purge_leaf(cx, &mut leaf, author) {
            drop(leaf);
            self.split_step(cx, key, 0)?;
        }
        Err(Stop::Restart)
    }

    /// Removes all ghosts of a leaf that no snapshot needs; gives whether there were any.
    fn purge_leaf<A: Author>(
        &self,
        cx: &Context,
        leaf: &mut Exclusive<'_>,
        author: &mut A,
    ) -> bool {
        let view = NodeView::from(leaf.bytes());
        let mut key = Vec::new();
        let mut gone = Vec::new();
        for position in 0..view.count() {
            if is_ghost(view.value(position)) {
                key.clear();
                view.key_to(position, &mut key);
                if author.may_purge(&key) {
                    gone.push((position, key.clone()));
                }
            }
        }
        for (position, key) in gone.iter().rev() {
            NodeMut::new(&mut leaf.page_mut()).remove_leaf(*position);
            cx.log_group(&mut [(leaf, Op::Remove { key })]);
        }
        !gone.is_empty()
    }

    /// Removes the ghosts of the first of these keys, which ascend, and of those behind it that are in the
    /// same leaf: as far as there are any, and nobody needs them. Gives how many keys are done, one at
    /// least, and whether the leaf should be merged now ([`Tree::merge_step`]).
    pub fn purge_step<A: Author>(
        &self,
        cx: &Context,
        keys: &[&[u8]],
        author: &mut A,
    ) -> Step<(usize, bool)> {
        cx.check_room(false)?;
        let path = self.descend(keys[0], 0)?;
        let mut search = self.checked(&path.node, path.node_ref().search(keys[0]))?;
        if !search.found {
            path.node.validate()?;
            return Ok((1, false));
        }
        let mut leaf = path.node.upgrade()?;
        let (mut done, mut underfull, mut changed) = (0, false, false);
        loop {
            let key = keys[done];
            let is_ghost =
                search.found && is_ghost(NodeView::from(leaf.bytes()).value(search.position));
            if is_ghost && author.may_purge(key) {
                underfull = self.remove_at(cx, &mut leaf, search.position, key, author);
                changed = true;
            }
            done += 1;
            let Some(next) = keys.get(done) else { break };
            let node = NodeRef::from(leaf.page());
            // Whatever is wrong with the leaf, the next step finds out.
            let Ok(true) = node.covers(next) else { break };
            let Ok(found) = node.search(next) else { break };
            search = found;
        }
        if !changed {
            leaf.unchanged();
        }
        Ok((done, underfull))
    }

    /// Changes the value of a record in place through `change`, which gets 0 and the bytes of an inline
    /// value in private memory (`buffer`) and cannot change their number. False when the key is
    /// absent; the descriptor when its value is large.
    #[inline]
    pub fn modify_step<A: Author>(
        &self,
        cx: &Context,
        key: &[u8],
        buffer: &mut Vec<u8>,
        change: &mut dyn FnMut(usize, &mut [u8]),
        author: &mut A,
        restarts: u32,
    ) -> Step<Result<bool, LargeValue>> {
        let mut progress = Progress::default();
        let all =
            self.modify_run_step(cx, &[key], buffer, change, author, restarts, &mut progress)?;
        Ok(all.map(|()| progress.found > 0))
    }

    /// As [`Tree::modify_step`] for the first of these keys that is not done, and those behind it that are in
    /// the same leaf, under one latch; `change` gets the position of the key, too. What is done is noted in
    /// `progress`, also when the step stops; one key more at least when it does not, unless the value of the
    /// first one that is not done is large: then its descriptor is given. The author is at that key, before
    /// and after.
    #[expect(clippy::too_many_arguments, reason = "one flat call on the path of every change")]
    pub fn modify_run_step<A: Author>(
        &self,
        cx: &Context,
        run: &[&[u8]],
        buffer: &mut Vec<u8>,
        change: &mut dyn FnMut(usize, &mut [u8]),
        author: &mut A,
        restarts: u32,
        progress: &mut Progress,
    ) -> Step<Result<(), LargeValue>> {
        let mut key = run[progress.done];
        let traced = self.pool.is_traced();
        if traced && restarts == 0 {
            cx.way_recorded.set(false);
        }
        cx.check_room(false)?;
        let node = self.leaf_of(cx, key)?;
        if traced && !cx.way_recorded.replace(true) {
            self.pool.record_way(|way| self.lead(Seek::At(key), way));
        }
        let mut search =
            self.checked(&node, NodeRef::from(node.page()).search_for(key, For::Write))?;
        if !search.found {
            node.validate()?;
            self.track_absent(node);
            author.missed()?;
            next_of(run, &mut progress.done, |next| author.turn_to(next));
            return Ok(Ok(()));
        }
        let mut leaf = node.upgrade()?;
        loop {
            let view = NodeView::from(leaf.bytes());
            let before = view.value(search.position);
            let late = author.keeps_patches();
            author.check(leaf.header(), key, Some(before), !before.1 && !late)?;
            if before.1 {
                return Ok(match Special::decode(before.0, leaf.header().page_id())? {
                    Special::Ghost => {
                        next_of(run, &mut progress.done, |next| author.turn_to(next));
                        Ok(())
                    }
                    Special::Large(large) => Err(large),
                });
            }
            buffer.clear();
            buffer.extend_from_slice(before.0);
            let unless_done = Undone(&mut *author, key);
            let inside = Inside::Change.enter();
            change(progress.done, buffer);
            drop(inside);
            std::mem::forget(unless_done);
            let before = NodeView::from(leaf.bytes()).value(search.position).0;
            let range = difference(before, buffer);
            if late {
                author.check_patch(leaf.header(), key, before, range.0..range.1)?;
            }
            self.overwrite(cx, &mut leaf, search.position, key, buffer, range, author);
            author.done(&leaf, key);
            if traced {
                // Of another record it would be another way; and so it would of another task's.
                cx.way_recorded.set(false);
            }
            progress.found += 1;
            let next = next_of(run, &mut progress.done, |next| author.turn_to(next));
            let Some(next) = next else { break };
            // Of one that is absent a step of its own finds out whether that may be said.
            let place = self.next_in_leaf(cx, &leaf, (key, search), next);
            let Some(place) = place.filter(|place| place.found) else { break };
            (key, search) = (next, place);
        }
        cx.note_leaf(self.id, &leaf);
        self.sample_contention(cx, leaf, key, search, restarts);
        Ok(Ok(()))
    }

    /// Removes one record at once. Also tells whether its leaf is so empty now that
    /// [`Tree::merge_step`] should follow.
    pub fn remove_step<A: Author>(
        &self,
        cx: &Context,
        key: &[u8],
        author: &mut A,
    ) -> Step<(Written, bool)> {
        cx.check_room(false)?;
        let path = self.descend(key, 0)?;
        if self.pool.is_traced() {
            self.pool.record_way(|way| self.lead(Seek::At(key), way));
        }
        let search = self.checked(&path.node, path.node_ref().search(key))?;
        if !search.found {
            path.node.validate()?;
            self.track_absent(path.node);
            author.missed()?;
            return Ok((Written::default(), false));
        }
        let mut leaf = path.node.upgrade()?;
        let before = NodeView::from(leaf.bytes()).value(search.position);
        let mut orphan = None;
        if before.1 && !is_ghost(before) {
            orphan = Some(LargeValue::decode(before.0, leaf.header().page_id())?);
        }
        author.check(leaf.header(), key, Some(before), true)?;
        let existed = !is_ghost(before);
        let underfull = self.remove_at(cx, &mut leaf, search.position, key, author);
        author.done(&leaf, key);
        Ok((Written { existed, orphan }, underfull))
    }

    /// Removes the record at `position`; gives whether the leaf is underfull then.
    pub(crate) fn remove_at<A: Author>(
        &self,
        cx: &Context,
        leaf: &mut Exclusive<'_>,
        position: usize,
        key: &[u8],
        author: &mut A,
    ) -> bool {
        let mut old = cx.scratch.borrow_mut();
        old.clear();
        let (bytes, special) = NodeView::from(leaf.bytes()).value(position);
        if !author.is_auto() {
            old.extend_from_slice(bytes);
        }
        NodeMut::new(&mut leaf.page_mut()).remove_leaf(position);
        let before = Before::Value { bytes: &old, special };
        let undo = Undo { tree: self.id, key, before };
        cx.log_change(leaf, Op::Remove { key }, Some(undo), author);
        leaf.frame() != self.root && is_underfull(leaf.bytes().into())
    }

    /// A write found that the leaf does not have its record: it was a read.
    fn track_absent(&self, node: Optimistic<'_>) {
        node.track();
        if self.pool.is_traced() {
            // The way is recorded already.
            node.record(|_| ());
        }
    }

    /// Contention split, first half: notes one write in [`SAMPLE_EVERY`], and when enough of a
    /// period's writes met another writer at a different record, splits the leaf between the two.
    #[inline(always)]
    fn sample_contention(
        &self,
        cx: &Context,
        leaf: Exclusive<'_>,
        key: &[u8],
        search: Search,
        restarts: u32,
    ) {
        if cx.worker.random().is_multiple_of(SAMPLE_EVERY) {
            self.sampled_write(cx, leaf, key, search, restarts);
        }
    }

    #[cold]
    fn sampled_write(
        &self,
        cx: &Context,
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
        // The split is an improvement, not a need: whatever stops it, the write is done. Most
        // writers never had a reason to hold pages in reserve.
        if !cx.worker.try_reserve(RESERVE) {
            return;
        }
        let between = Search { position: last.max(search.position).min(count - 1), found: true };
        if self.contention_split_step(cx, key, between.position).is_ok() {
            cx.worker.counters().contention_splits.add(1);
        }
    }
}

/// One more record of a run is done: goes to the next one, if there is one, and gives it.
#[inline(always)]
fn next_of<T: Copy>(run: &[T], done: &mut usize, turn_to: impl FnOnce(T)) -> Option<T> {
    *done += 1;
    let next = run.get(*done).copied();
    next.inspect(|next| turn_to(*next))
}

/// A change that its caller gives up by a panic, while the leaf is still latched.
struct Undone<'a, A: Author>(&'a mut A, &'a [u8]);

impl<A: Author> Drop for Undone<'_, A> {
    fn drop(&mut self) {
        self.0.undone(self.1);
    }
}

/// Bytes that [`difference`] looks at together.
const AT_ONCE: usize = 32;

/// The range of bytes in which two values of the same length differ. Most of a row stays as it is, and where
/// it does not is hard to guess: a loop over whole blocks from either end, and no branch within a block.
fn difference(old: &[u8], new: &[u8]) -> (usize, usize) {
    let len = new.len();
    if len < AT_ONCE {
        let (mut short_old, mut short_new) = ([0; AT_ONCE], [0; AT_ONCE]);
        short_old[..len].copy_from_slice(old);
        short_new[..len].copy_from_slice(new);
        let (from, to) = in_block(&short_old, &short_new);
        return if to == 0 { (0, 0) } else { (from, to) };
    }
    let same = |pair: &(&[u8; AT_ONCE], &[u8; AT_ONCE])| pair.0 == pair.1;
    let blocks = old.as_chunks().0.iter().zip(new.as_chunks().0);
    // If all blocks are the same, the bytes behind them are left, which the last block ends with.
    let start = (AT_ONCE * blocks.take_while(same).count()).min(len - AT_ONCE);
    let from = start + in_block(block_at(old, start), block_at(new, start)).0;
    if from == start + AT_ONCE {
        return (0, 0);
    }
    let blocks = old.as_rchunks().1.iter().rev().zip(new.as_rchunks().1.iter().rev());
    let behind = AT_ONCE * blocks.take_while(same).count();
    // Likewise the bytes in front of them, which the first block begins with.
    let start = (len - behind).max(AT_ONCE) - AT_ONCE;
    (from, start + in_block(block_at(old, start), block_at(new, start)).1)
}

fn block_at(bytes: &[u8], at: usize) -> &[u8; AT_ONCE] {
    bytes[at..].first_chunk().expect("a whole block")
}

/// The range of bytes in which two blocks differ; from the end to the beginning if they do not.
#[inline]
fn in_block(old: &[u8; AT_ONCE], new: &[u8; AT_ONCE]) -> (usize, usize) {
    let words = |block: &[u8; AT_ONCE]| -> [u64; AT_ONCE / 8] {
        std::array::from_fn(|i| u64::from_le_bytes(*block[8 * i..].first_chunk().expect("8 bytes")))
    };
    let (old, new) = (words(old), words(new));
    let (mut from, mut to) = (AT_ONCE, 0);
    for i in 0..AT_ONCE / 8 {
        let bits = old[i] ^ new[i];
        to = if bits == 0 { to } else { 8 * i + 8 - bits.leading_zeros() as usize / 8 };
    }
    for i in (0..AT_ONCE / 8).rev() {
        let bits = old[i] ^ new[i];
        from = if bits == 0 { from } else { 8 * i + bits.trailing_zeros() as usize / 8 };
    }
    (from, to)
}

/// One write in this many is sampled for contention ("Contention and Space Management in
/// B-Trees", section 3: tracking must not become contention itself).
const SAMPLE_EVERY: u64 = 128;
/// Sampled writes after which a leaf is judged.
const PERIOD: u16 = 128;
/// A leaf is split when at least this share of the sampled writes was contended.
const CONTENDED_PERCENT: u32 = 1;

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn the_difference_is_the_shortest_range_that_holds_all_bytes_that_differ() {
        for len in 0..72usize {
            let old = vec![7; len];
            assert_eq!(difference(&old, &old), (0, 0), "{len} equal bytes");
            for first in 0..len {
                for last in first..len {
                    let mut new = old.clone();
                    (new[first], new[last]) = (1, 2);
                    assert_eq!(difference(&old, &new), (first, last + 1), "of {len} bytes");
                }
            }
        }
    }
}
