//! The second half of opening a store: what redo cannot do because it takes trees. Transactions that
//! had not ended are rolled back, drops that were begun are finished, large values that nobody refers
//! to are found. Each of these is logged, so a crash in the middle is one more crash to recover from.

use crate::{
    catalog::OpenTree,
    engine::Core,
    internal::Internal,
    mvcc::Savepoint,
    ops,
    options::Options,
    recover::{FoundGhosts, Loser},
    session::now,
    store::StoreState,
    txn::{Garbage, UndoAuthor},
};
use std::sync::Arc;
use wattle_btree::{Context, Journal, Undo};
use wattle_buffer::{Error, Gsn, Result, TreeId};
use wattle_wal::Kind;

impl Core {
    /// See the module documentation. `new`: the store was just made; `redone`: the log said something
    /// that the pages did not hold.
    pub fn settle(
        &self,
        cx: &Context,
        options: &Options,
        new: bool,
        redone: bool,
        losers: Vec<Loser>,
    ) -> Result<()> {
        let was = self.checkpoints.block().state;
        // The log counts from here on, before anything is changed.
        if was != StoreState::Logged {
            self.checkpoint_now()?;
        }
        let rolled_back = losers.len();
        for loser in losers {
            self.roll_back(cx, options, loser)?;
        }
        // Numbers of transactions begin anew: those of the log so far must be behind them.
        self.sync_log()?;
        if !new {
            self.catalog.finish_drops(self, cx)?;
            let garbage = self.catalog.listed_garbage(self, cx)?;
            self.janitor.add(0, garbage);
        }
        if rolled_back > 0 {
            tracing::info!(transactions = rolled_back, "rolled back what had not ended");
        }
        // From here on a crash must find the log.
        if self.log.is_some() && (new || redone || rolled_back > 0) {
            self.checkpoint_now()?;
        }
        Ok(())
    }

    /// Ghosts that were in the pages of the log when the store was opened: no snapshot needs them, and
    /// the janitor of before is gone. Trees that cannot be opened keep theirs for now.
    pub fn adopt_ghosts(&self, cx: &Context, mut ghosts: FoundGhosts) -> Result<()> {
        ghosts.keys.retain(|(tree, _)| !ghosts.trees.contains(tree));
        ghosts.keys.sort_unstable();
        ghosts.keys.dedup();
        let whole = ghosts.trees.into_iter().map(|tree| (tree, None));
        let one_by_one = ghosts.keys.into_iter().map(|(tree, key)| (tree, Some(key)));
        let mut last: Option<(TreeId, Option<Arc<OpenTree>>)> = None;
        let mut garbage = Vec::new();
        for (id, key) in whole.chain(one_by_one) {
            if last.as_ref().is_none_or(|(of, _)| *of != id) {
                let open = match self.catalog.open_id(self, cx, id) {
                    Err(Error::Limit(_)) => None,
                    open => open?,
                };
                last = Some((id, open));
            }
            let Some((_, Some(open))) = &last else { continue };
            garbage.push(match key {
                Some(key) => Garbage::Ghost(open.clone(), key),
                None => Garbage::Ghosts(open.clone()),
            });
        }
        self.janitor.add(0, garbage);
        Ok(())
    }

    /// Rolls a transaction back that a crash ended.
    fn roll_back(&self, cx: &Context, options: &Options, mut loser: Loser) -> Result<()> {
        let session = Internal::new(self, cx);
        let mut last = Gsn(0);
        let mut bytes = Vec::new();
        // Kept open to the end, so that each is opened once.
        let mut trees: Vec<(TreeId, Option<Arc<OpenTree>>)> = Vec::new();
        while let Some(entry) = loser.undo.pop(Savepoint::START)? {
            options.check_interrupt()?;
            bytes.clear();
            bytes.extend_from_slice(entry.key);
            let undo = Undo::decode(&bytes).map_err(|what| {
                let what = format!("transaction {} cannot be rolled back: {what}", loser.txn);
                Error::LogCorruption { segment: 0, offset: 0, what }
            })?;
            if !trees.iter().any(|(id, _)| *id == undo.tree) {
                let open = match self.catalog.system_tree(undo.tree) {
                    Some(_) => None,
                    None => self.catalog.open_id(self, cx, undo.tree)?,
                };
                trees.push((undo.tree, open));
            }
            let open =
                trees.iter().find(|(id, _)| *id == undo.tree).and_then(|(_, open)| open.as_ref());
            let tree = open.and_then(|open| open.tree_of(undo.tree));
            // A tree that is not there was dropped, with everything in it.
            let Some(tree) = tree.or_else(|| self.catalog.system_tree(undo.tree)) else { continue };
            let mut author = UndoAuthor {
                core: self,
                tree: undo.tree,
                txn: loser.txn,
                version_of: None,
                last_gsn: Gsn(0),
            };
            let underfull = now(ops::run(&session, |_| {
                tree.restore_step(cx, undo.key, undo.before, &mut author)
            }))?;
            last = last.max(author.last_gsn);
            self.put_back_garbage(0, open, &undo);
            if underfull {
                now(ops::merge(&session, tree, undo.key));
            }
        }
        if let Journal::On(_, appender) = &cx.journal {
            appender.observe(last);
            let mut section = appender.begin();
            section.start(Kind::End, 0, loser.txn, Gsn(0));
            section.finish();
        }
        Ok(())
    }
}
