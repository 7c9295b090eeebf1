//! Changes of values in place: the caller edits the bytes of a value and does not change its
//! length. See `leaf_edit` for the parts of a change.

use crate::{
    author::Author,
    descend::Seek,
    difference::difference,
    ghost::Special,
    journal::Context,
    large_value::LargeValue,
    leaf_edit::next_of,
    node::{NodeRef, NodeView},
    step::Step,
    tree::Tree,
};
use wattle_buffer::{For, Inside, ScopePart, scope};

/// How far [`Tree::modify_run_step`] has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Keys that are done: changed, or absent.
    pub done: usize,
    /// Keys that were changed.
    pub found: usize,
}

impl Tree {
    /// Changes the value of a record in place. `change` gets 0 and the bytes of an inline value in
    /// private memory (`buffer`), and cannot change their number. Gives false if the key is absent,
    /// and the descriptor if the value is large.
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

    /// As [`Tree::modify_step`] for `run[progress.done..]`, as far as the keys lie in one leaf,
    /// under one latch. `change` also gets the position of the key. Advances `progress` past every
    /// key that is done, even when the step stops early; by at least one key otherwise, unless the
    /// value of the first one is large: then it gives the descriptor. The author is at
    /// `run[progress.done]` before and after.
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
        let _scope = scope(ScopePart::Records);
        let mut key = run[progress.done];
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
            let keeps_patches = author.keeps_patches();
            author.check(leaf.header(), key, Some(before), !before.1 && !keeps_patches)?;
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
            let undo_on_panic = UndoOnPanic(&mut *author, key);
            let inside = Inside::Change.enter();
            change(progress.done, buffer);
            drop(inside);
            std::mem::forget(undo_on_panic);
            let before = NodeView::from(leaf.bytes()).value(search.position).0;
            let range = difference(before, buffer);
            if keeps_patches {
                author.check_patch(leaf.header(), key, before, range.0..range.1)?;
            }
            self.overwrite(cx, &mut leaf, search.position, key, buffer, range, author);
            author.done(&leaf, key);
            if traced {
                // The next record, or the next task's record, has another route.
                cx.route_recorded.set(false);
            }
            progress.found += 1;
            let next = next_of(run, &mut progress.done, |next| author.turn_to(next));
            let Some(next) = next else { break };
            // If the next key is absent, leave it to its own step, which checks visibility.
            let place = self.next_in_leaf(cx, &leaf, (key, search), next);
            let Some(place) = place.filter(|place| place.found) else { break };
            (key, search) = (next, place);
        }
        cx.note_leaf(self.id, &leaf);
        self.sample_contention(cx, leaf, key, search, restarts);
        Ok(Ok(()))
    }
}

/// Tells the author that the change did not happen if the caller's closure panics, while the leaf
/// is still latched.
struct UndoOnPanic<'a, A: Author>(&'a mut A, &'a [u8]);

impl<A: Author> Drop for UndoOnPanic<'_, A> {
    fn drop(&mut self) {
        self.0.undone(self.1);
    }
}
