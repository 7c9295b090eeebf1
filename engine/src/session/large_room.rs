//! Replaced large values: their chunks stay in the file until no snapshot needs them, and are then
//! cleared away by the janitor. Writers that replace values faster than that help.
//!
//! The bytes of all of them are counted, from the commit that replaced them until the last chunk is
//! gone. While they exceed the limit of versions ([`crate::Options::version_bytes`]), a writer of a
//! large value first clears away ready values of the same tree. If none is ready, the keeper
//! cancels the snapshots that hold them ([`TxnSystem::tend_limit`]). An auto-committed write waits
//! for threads that are clearing, for the stall timeout at most; a transaction does not wait,
//! because other threads may wait for it. So replaced values take at most the limit, plus one value
//! for each writer, plus those of open transactions.
//!
//! A partly cleared value is cleared again by the next attempt. The last step takes it off the list
//! in the catalog. Its id is not reused before that, and it must not be cleared after that.

use crate::{
    catalog::Catalog,
    catalog::{OpenTree, TreeTag},
    core::Core,
    session::{resolve::Resolve, step::run},
    txn::TxnSystem,
};
use std::{sync::Arc, time::Instant};
use wattle_btree::{LargeValue, System};
use wattle_buffer::Result;

/// A replaced value that was taken from the garbage queue. Dropped before it is cleared, it goes
/// back.
pub(crate) struct Replaced<'c> {
    system: &'c TxnSystem,
    catalog: &'c Catalog,
    time: u64,
    pub tag: Arc<TreeTag>,
    large: LargeValue,
    is_cleared: bool,
}

impl<'c> Replaced<'c> {
    pub fn new(
        system: &'c TxnSystem,
        catalog: &'c Catalog,
        time: u64,
        tag: Arc<TreeTag>,
        large: LargeValue,
    ) -> Replaced<'c> {
        Replaced { system, catalog, time, tag, large, is_cleared: false }
    }

    /// Its tree was dropped, and its chunks with it.
    pub fn went_with_its_tree(mut self) {
        self.is_cleared = true;
    }

    /// Removes its chunks, and takes it off the list in the catalog. `tree` is its tree.
    pub async fn clear<R: Resolve>(mut self, session: &R, tree: &OpenTree) -> Result<()> {
        let (cx, large) = (session.cx(), self.large);
        if let Some(store) = tree.large.get() {
            let mut left = large.chunks();
            while left > 0 {
                let step = |_| store.tree.remove_chunks_step(cx, large.id, left);
                let removed = run(session, step).await?;
                let chunks = left - removed.left;
                left = removed.left;
                if removed.underfull {
                    let key = large.chunk_key(left);
                    run(session, |_| store.tree.merge_step(cx, &key, 0)).await?;
                }
                session.next_turn(chunks as usize).await;
            }
            let (catalog, key) = self.catalog.garbage_key(tree, large)?;
            let step = |_| catalog.remove_step(cx, &key, &mut System);
            let (_, underfull) = run(session, step).await?;
            self.is_cleared = true;
            if underfull {
                run(session, |_| catalog.merge_step(cx, &key, 0)).await?;
            }
        }
        self.is_cleared = true;
        Ok(())
    }
}

impl Drop for Replaced<'_> {
    fn drop(&mut self) {
        match self.is_cleared {
            true => self.system.garbage.note_cleared(self.large),
            false => self.system.garbage.put_back(self.time, self.tag.clone(), self.large),
        }
    }
}

impl Core {
    /// Before a large value is written to a tree, see the module documentation.
    #[inline]
    pub async fn make_room_for_large<R: Resolve>(
        &self,
        session: &R,
        tree: &Arc<OpenTree>,
        may_wait: bool,
    ) {
        if self.txns.garbage.replaced_bytes() > self.txns.version_bytes {
            self.help_to_clear(session, tree, may_wait).await;
        }
    }

    #[cold]
    async fn help_to_clear<R: Resolve>(&self, session: &R, tree: &Arc<OpenTree>, may_wait: bool) {
        let (begun, mut turn) = (Instant::now(), 0);
        while self.txns.garbage.replaced_bytes() > self.txns.version_bytes {
            if let Some((time, large)) =
                self.txns.garbage.take_replaced_of(tree, self.txns.raise_horizon())
            {
                let replaced =
                    Replaced::new(&self.txns, &self.catalog, time, tree.tag.clone(), large);
                if let Err(error) = replaced.clear(session, tree).await {
                    // The janitor will try again.
                    tracing::warn!(%error, "a replaced value stays for a while");
                    return;
                }
                continue;
            }
            self.txns.tend_limit();
            if !may_wait || begun.elapsed() >= self.stall_timeout || self.txns.failure().is_some() {
                return;
            }
            session.pause(turn).await;
            turn = turn.saturating_add(1);
        }
    }
}

#[cfg(all(test, feature = "async"))]
mod tests {
    use super::Replaced;
    use crate::{Engine, IoKind, Options, session::resolve::Environment};
    use std::{
        future::{Future, poll_fn},
        pin::pin,
    };
    use wattle_buffer::Error;

    #[test]
    fn a_task_that_clears_a_value_away_lets_the_others_run() {
        const LEN: usize = 8 << 20;
        let options = Options::default().io(IoKind::Memory).pool_bytes(64 << 20).log(false);
        let engine = Engine::open("cleared", options).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let session = engine.async_session().expect("session");
        let cleared = crate::run(8, async {
            session.put(&tree, b"key", &vec![1; LEN]).await?;
            // The janitor leaves the value to this task.
            let snapshot = engine.snapshot()?;
            session.put(&tree, b"key", b"").await?;
            let core = session.core();
            let (system, catalog) = (&core.txns, &core.catalog);
            let taken = system.garbage.take_replaced_of(&tree.open, u64::MAX);
            let (time, large) = taken.expect("it was replaced");
            let replaced = Replaced::new(system, catalog, time, tree.open.tag.clone(), large);
            let (mut clear, mut turns) = (pin!(replaced.clear(&session, &tree.open)), 0);
            let cleared = poll_fn(|context| {
                let polled = clear.as_mut().poll(context);
                turns += u32::from(polled.is_pending());
                polled
            });
            cleared.await?;
            drop(snapshot);
            Ok::<_, Error>(turns)
        });
        // For 4405 chunks.
        let turns = cleared.expect("a runtime").expect("no error");
        assert!(turns >= 6, "the other tasks could run {turns} times");
        assert_eq!(engine.stats().replaced_bytes, 0);
    }
}
