//! One round of the janitor, of [`SLICE`] or a little more:
//! 1. roll abandoned transactions back;
//! 2. clear replaced large values away whose commit lies before the oldest snapshot; take those off
//!    the list in the catalog that were written directly and belong to a record now;
//! 3. remove ghosts of such commits. Ghosts of a tree that a large transaction owns, or owned, wait
//!    until no snapshot can be affected. Where there were too many to remember, the tree is
//!    searched for them, one part in each round;
//! 4. free trees that transactions have dropped, or have not created after all, when no handle of
//!    them is left.
//!
//! Versions in memory are the work of the keeper.

use crate::{
    catalog::OpenTree,
    core::Core,
    garbage::{Ghost, GhostSearch},
    internal::Internal,
    limits::limit,
    session::{
        large_room::Replaced,
        resolve::{Environment, now},
    },
    txn::{SystemAuthor, rollback},
};
use std::{
    ops::Bound,
    time::{Duration, Instant},
};
use wattle_btree::{Context, Cursor, Direction, Newest, run};
use wattle_buffer::Result;

/// Time between rounds while there is something to do. Ghosts of the same leaf are removed
/// together, because each removal takes the cache lines of the leaf away from the processor that
/// uses it.
const BUSY: Duration = Duration::from_millis(10);
/// Time between rounds otherwise.
const IDLE: Duration = Duration::from_millis(100);
/// Time after which a round begins nothing new.
const SLICE: Duration = Duration::from_millis(20);

/// Large values that a round takes off the list, at most.
const MOST_OFF_LIST: usize = limit(1 << 12, 8);

/// Ghosts that are removed under one latch at most.
const AT_ONCE: usize = limit(32, 5);

/// The time after which a round begins nothing new.
#[derive(Clone, Copy)]
struct Until(Option<Instant>);

impl Until {
    fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

/// The body of the thread.
pub(crate) fn work(core: &Core, cx: &Context) {
    let (janitor, garbage) = (&core.janitor, &core.txns.garbage);
    let mut is_done = true;
    let pause = |is_done: bool| {
        if !is_done || janitor.has_new() {
            return None;
        }
        let busy = janitor.is_stuck() || garbage.has_work();
        Some(if busy { BUSY } else { IDLE })
    };
    while janitor.thread.wait(|| pause(is_done)) {
        is_done = core.round(cx, Some(SLICE));
    }
}

impl Core {
    /// Drops all versions and clears away all garbage that no snapshot needs.
    pub fn janitor_round(&self, cx: &Context) {
        self.txns.tend();
        self.round(cx, None);
    }

    /// One round, see the module documentation; one at a time. False: its time was over before its
    /// work.
    fn round(&self, cx: &Context, time: Option<Duration>) -> bool {
        let _round = self.janitor.pause();
        let internal = Internal::new(self, cx);
        let begun = Instant::now();
        let until = |part: u32| Until(time.map(|time| begun + time / part));
        // 1. Transactions.
        for mut txn in self.janitor.take_abandoned() {
            match now(rollback(&internal, &mut txn, None)) {
                Ok(()) => internal.give_idle(txn),
                Err(error) => {
                    tracing::warn!(%error, "a transaction could not be rolled back yet");
                    self.janitor.put_back(txn);
                }
            }
        }
        let before = self.txns.raise_horizon();
        let garbage = &self.txns.garbage;
        garbage.release(|open| open.closed.is_over(before));
        // 2. Large values, for half of the time: ghosts must not wait for them.
        let mut is_done = true;
        while let Some((time, tag, large)) = garbage.take_replaced(before) {
            let replaced = Replaced::new(&self.txns, &self.catalog, time, tag, large);
            if let Err(error) = self.clear_replaced(&internal, replaced) {
                tracing::warn!(%error, "a replaced value stays for a while");
                break;
            }
            if until(2).is_over() {
                is_done = false;
                break;
            }
        }
        if let Err(error) = self.take_off_list(cx, before, MOST_OFF_LIST) {
            tracing::warn!(%error, "large values in use stay listed for a while");
        }
        // 3. Ghosts.
        let all = self.clear_ghosts(cx, before, until(1)).unwrap_or_else(|error| {
            tracing::warn!(%error, "ghosts stay for a while");
            true
        });
        // 4. Trees.
        if let Err(error) = self.catalog.free_nameless(&self.txns, cx) {
            tracing::warn!(%error, "a dropped tree stays for a while");
        }
        is_done && all
    }

    /// Takes some large values off the list in the catalog. The record of each one has committed.
    /// If it was replaced since, the entry says that the value is garbage, perhaps by a transaction
    /// that has not ended; then it stays until no snapshot is older than now.
    pub fn take_off_list(&self, cx: &Context, before: u64, most: usize) -> Result<()> {
        let garbage = &self.txns.garbage;
        let (mut refused, mut outcome) = (Vec::new(), Ok(()));
        for _ in 0..most {
            let Some((chunks, large)) = garbage.take_adopted(before) else { break };
            match self.catalog.unlist_adopted(cx, chunks, large) {
                Ok(true) => {}
                Ok(false) => refused.push((self.txns.clock.now(), (chunks, large))),
                Err(error) => {
                    refused.push((0, (chunks, large)));
                    outcome = Err(error);
                    break;
                }
            }
        }
        // Not before: no snapshot may be older than now, and the same call would take it again.
        refused.into_iter().for_each(|(time, value)| garbage.give_adopted_back(time, value));
        outcome
    }

    fn clear_replaced(&self, internal: &Internal<'_>, replaced: Replaced<'_>) -> Result<()> {
        match self.catalog.reopen(&self.txns, internal.cx, &replaced.tag)? {
            Some(tree) => now(replaced.clear(internal, &tree)),
            None => {
                replaced.went_with_its_tree();
                Ok(())
            }
        }
    }

    /// Removes ghosts; gives whether that was all.
    fn clear_ghosts(&self, cx: &Context, before: u64, until: Until) -> Result<bool> {
        loop {
            let mut ready = self.txns.garbage.take_ghosts(before);
            if ready.is_empty() {
                break;
            }
            let mut at = 0;
            let cleared = self.clear_batch(cx, &mut ready, &mut at, until);
            self.txns.garbage.give_ghosts_back(ready.drain(at..), cleared.is_ok());
            cleared?;
            if until.is_over() {
                return Ok(false);
            }
        }
        while let Some(mut search) = self.txns.garbage.take_search(before) {
            let searched = self.search(cx, &mut search, until);
            if searched.is_err() && search.from.is_none() {
                search.again = search.again.max(Some(search.time));
            }
            self.txns.garbage.give_search_back(search);
            searched?;
            if until.is_over() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes these ghosts, `at` of which are done, until the time is over.
    fn clear_batch(
        &self,
        cx: &Context,
        ready: &mut Vec<(u64, Ghost)>,
        at: &mut usize,
        until: Until,
    ) -> Result<()> {
        while *at < ready.len() && !until.is_over() {
            let tag = ready[*at].1.tree.clone();
            let same = ready[*at..].iter().take_while(|(_, ghost)| ghost.tree.id == tag.id);
            let Some(tree) = self.catalog.reopen(&self.txns, cx, &tag)? else {
                // It was dropped, with everything in it.
                *at += same.count();
                continue;
            };
            let keys: Vec<&[u8]> = same.map(|(_, ghost)| &*ghost.key).take(AT_ONCE).collect();
            let (pieces, refused) = self.purge(cx, &tree, &keys)?;
            if refused {
                let held = ready.drain(*at..*at + pieces).map(|(time, ghost)| (time, ghost.key));
                self.txns.garbage.hold(&tree, held);
            } else {
                *at += pieces;
            }
        }
        Ok(())
    }

    /// Removes the ghosts of the first of these keys, and of the keys after it in the same leaf, as
    /// far as no snapshot needs them. Gives how many keys are done, and whether an owner of the
    /// tree keeps some of them.
    fn purge(&self, cx: &Context, tree: &OpenTree, keys: &[&[u8]]) -> Result<(usize, bool)> {
        if !tree.closed.is_over(self.txns.versions.horizon()) {
            return Ok((keys.len(), true));
        }
        let mut author = SystemAuthor::purging(&self.txns, tree);
        let (done, underfull) = run(cx, |_| tree.tree.purge_step(cx, keys, &mut author))?;
        if underfull {
            run(cx, |_| tree.tree.merge_step(cx, keys[0], 0))?;
        }
        Ok((done, author.was_refused()))
    }

    /// Removes all ghosts of a tree that no snapshot needs, from where it was left, until the time
    /// is over.
    fn search(&self, cx: &Context, search: &mut GhostSearch, until: Until) -> Result<()> {
        let Some(tree) = self.catalog.reopen(&self.txns, cx, &search.tree)? else {
            // It was dropped, with everything in it.
            (search.from, search.again) = (None, None);
            return Ok(());
        };
        let low = search.from.clone().map_or(Bound::Unbounded, Bound::Included);
        let mut cursor = Cursor::new(low, Bound::Unbounded, Direction::Forward);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        while cursor.is_loaded() || !cursor.is_at_end() {
            if !cursor.is_loaded() {
                run(cx, |_| cursor.load_step(&tree.tree, &mut Newest))?;
                continue;
            }
            while cursor.is_loaded() && keys.len() < AT_ONCE {
                if cursor.take()?.is_none() {
                    keys.push(cursor.key().to_vec());
                }
            }
            while !keys.is_empty() {
                let refs: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let (done, refused) = self.purge(cx, &tree, &refs)?;
                if refused {
                    // Search again from the start, when the owner is within every snapshot.
                    let time = search.again.unwrap_or(0).max(search.time);
                    self.txns.garbage.hold_search(&tree, time);
                    (search.from, search.again) = (None, None);
                    return Ok(());
                }
                keys.drain(..done);
            }
            search.from = Some(cursor.key().to_vec());
            if until.is_over() {
                return Ok(());
            }
        }
        search.from = None;
        Ok(())
    }
}
