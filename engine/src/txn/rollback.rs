//! Rolling back: the undo entries of a transaction from the newest on, each put back under the latch
//! of its leaf, where the version that older snapshots saw meanwhile vanishes with it.
//!
//! Putting back is logged as changes of the same transaction without undo, so that recovery finds
//! the pages as they are. A crash in the middle is no matter: recovery rolls the whole transaction
//! back, and putting a record back twice is the same as once (see [`wattle_btree::Undo`]). The end of
//! a complete roll-back is logged, because from then on others may change the records.

use super::Txn;
use crate::{
    engine::Core,
    mvcc::{Savepoint, TxnState, UndoEntry},
    ops::{self, Resolve},
};
use std::sync::Arc;
use wattle_btree::{Author, Before, Journal, Stop, Undo};
use wattle_buffer::{Error, Exclusive, FrameHeader, Gsn, Result, TreeId};
use wattle_wal::Kind;

/// Who puts records back.
pub(crate) struct UndoAuthor<'t> {
    pub core: &'t Core,
    pub tree: TreeId,
    /// Id of the transaction.
    pub txn: u64,
    /// The version of the record goes with the change.
    pub version_of: Option<Arc<TxnState>>,
    pub last_gsn: Gsn,
}

impl Author for UndoAuthor<'_> {
    fn check(&mut self, _: &FrameHeader, _: &[u8], _: Option<(&[u8], bool)>) -> Result<(), Stop> {
        Ok(())
    }

    fn txn(&self) -> u64 {
        self.txn
    }

    fn is_auto(&self) -> bool {
        false
    }

    fn done(&mut self, leaf: &Exclusive<'_>, key: &[u8]) {
        self.last_gsn = self.last_gsn.max(leaf.gsn());
        if let Some(state) = self.version_of.take() {
            self.core.versions.pop(self.tree, key, &state);
        }
    }
}

/// Takes back everything after `until`.
///
/// # Errors
/// Failed I/O. The transaction is not rolled back then, and nobody may rely on that: the engine is
/// poisoned, and recovery does it.
pub(crate) async fn rollback<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    until: Option<Savepoint>,
) -> Result<()> {
    let outcome = undo(session, txn, until).await;
    if let Err(error) = &outcome {
        session.core().poison(&format!("a transaction could not be rolled back: {error}"));
    }
    outcome
}

async fn undo<R: Resolve>(session: &R, txn: &mut Txn, until: Option<Savepoint>) -> Result<()> {
    let core = session.core();
    let Some(state) = txn.state.clone() else { return Ok(()) };
    let (mut key, mut value) = (Vec::new(), Vec::new());
    loop {
        let entry = txn.undo.pop(until.unwrap_or(Savepoint::START))?;
        let Some(UndoEntry::Change { tree, first, key: entry_key, before }) = entry else {
            break;
        };
        key.clear();
        key.extend_from_slice(entry_key);
        value.clear();
        let before = match before {
            Some((bytes, special)) => {
                value.extend_from_slice(bytes);
                Before::Value { bytes: &value, special }
            }
            None => Before::Absent,
        };
        let version_of = first.then(|| state.clone());
        let author = UndoAuthor { core, tree, txn: state.id(), version_of, last_gsn: Gsn(0) };
        let gsn = put_back(session, txn, &Undo { tree, key: &key, before }, author).await?;
        txn.last_gsn = txn.last_gsn.max(gsn);
    }
    if until.is_none() {
        log_end(session, state.id(), txn.last_gsn);
        let now = core.clock.now();
        txn.resolve_hints(core, state.id(), now);
        state.aborted();
        txn.end(core);
    }
    Ok(())
}

/// Puts one record back; gives the number of the change.
async fn put_back<R: Resolve>(
    session: &R,
    txn: &Txn,
    undo: &Undo<'_>,
    mut author: UndoAuthor<'_>,
) -> Result<Gsn> {
    let core = session.core();
    let lost = || {
        let what = format!("tree {} of a transaction is not open", undo.tree);
        Error::Limit(what)
    };
    let cx = session.cx();
    let open = txn.trees.iter().find_map(|open| open.tree_of(undo.tree));
    let tree = open.or_else(|| core.catalog.system_tree(undo.tree)).ok_or_else(lost)?;
    let underfull = ops::run(session, |_| {
        let outcome = tree.restore_step(cx, undo.key, undo.before, &mut author);
        // The step that ends calls the author once; one that is run again has not.
        outcome
    })
    .await?;
    if underfull {
        ops::merge(session, tree, undo.key).await;
    }
    Ok(author.last_gsn)
}

/// Logs that a transaction was rolled back completely.
fn log_end<R: Resolve>(session: &R, txn: u64, after: Gsn) {
    if let Journal::On(_, appender) = &session.cx().journal {
        appender.observe(after);
        let mut section = appender.begin();
        section.start(Kind::End, 0, txn, Gsn(0));
        section.finish();
    }
}
