//! The log of Raft, and its vote.
//!
//! `raft-log` has an entry for each index (8 bytes, big-endian). `raft-meta` has the vote, the last
//! purged id and the committed id.
//!
//! **Order.** openraft counts on three things. A vote is durable before it is answered:
//! `save_vote` waits for its ticket. Entries are durable before they are acknowledged: `append`
//! gives the callback to a task that awaits the ticket, so that entries that arrive meanwhile share
//! the next flush. And an entry is purged only when it is applied or in a durable snapshot.
//! openraft does not wait for that when it installs a snapshot from the leader: such a purge is
//! hidden state in memory at first. The argument is in `machine.rs`.

use crate::{
    codec::{Failure, Id, LOG_TREE, META_TREE, decode, encode, reading, refused, writing},
    progress::Progress,
    remove::remove_some,
};
use openraft::{
    Entry, LogState, OptionalSend, RaftLogReader, RaftTypeConfig, Vote,
    storage::{LogFlushed, RaftLogStorage},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt::Debug,
    io,
    ops::{Bound, RangeBounds},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use wattle::{Direction, Durability, Engine, Ticket, Transaction, Tree, TxnOptions};

const VOTE: &[u8] = b"vote";
const PURGED: &[u8] = b"purged";
const COMMITTED: &[u8] = b"committed";

/// The log of a node, in trees of its engine.
pub struct LogStore<C: RaftTypeConfig> {
    engine: Engine,
    log: Tree,
    meta: Tree,
    progress: Arc<Progress<C>>,
    /// The last entry that openraft has purged, while storage still has the entries: see
    /// `machine.rs`.
    hidden: Arc<Mutex<Option<Id<C>>>>,
}

impl<C: RaftTypeConfig> Clone for LogStore<C> {
    fn clone(&self) -> Self {
        LogStore {
            engine: self.engine.clone(),
            log: self.log.clone(),
            meta: self.meta.clone(),
            progress: self.progress.clone(),
            hidden: self.hidden.clone(),
        }
    }
}

impl<C: RaftTypeConfig<Entry = Entry<C>>> LogStore<C> {
    pub(crate) fn open(engine: &Engine, progress: Arc<Progress<C>>) -> Result<Self, Failure<C>> {
        let log = engine.tree(LOG_TREE).map_err(writing)?;
        let meta = engine.tree(META_TREE).map_err(writing)?;
        let store =
            LogStore { engine: engine.clone(), log, meta, progress, hidden: Arc::default() };
        match store.meta::<Id<C>>(PURGED)? {
            Some(purged) if !store.progress.covers(&purged) => Err(refused(format!(
                "the log was purged up to {purged}, which neither the state machine nor a snapshot \
                 in the directory has"
            ))),
            _ => Ok(store),
        }
    }

    fn hidden(&self) -> MutexGuard<'_, Option<Id<C>>> {
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of the last entry on storage.
    fn last(&self) -> Result<Option<Id<C>>, Failure<C>> {
        let txn = self.reader()?;
        let mut newest = txn.scan(&self.log).map_err(reading)?.rev();
        let last = newest.next_entry().map_err(reading)?;
        let last = last.map(|(_, bytes)| decode::<Entry<C>, C::NodeId>(bytes)).transpose()?;
        Ok(last.map(|entry| entry.log_id))
    }

    /// Purges the hidden entries if they are covered.
    fn settle(&self) -> Result<(), Failure<C>> {
        let to = self.hidden().clone();
        let Some(to) = to.filter(|to| self.progress.covers(to)) else { return Ok(()) };
        // The state machine counts commits that may not be durable yet.
        self.engine.sync().map_err(writing)?;
        // The mark first: a crash leaves entries that the mark covers, and reads begin after it.
        let mut txn = self.writer()?;
        txn.put(&self.meta, PURGED, &encode(&to)?).map_err(writing)?;
        txn.commit().map_err(writing)?;
        let key = to.index.to_be_bytes();
        self.cut((Bound::Unbounded, Bound::Included(key)), Direction::Forward)?;
        // The log has one writer: nothing else was hidden meanwhile.
        *self.hidden() = None;
        Ok(())
    }

    /// Purges the hidden entries before an append, if they are covered. Waits for that if the
    /// append would leave a gap.
    async fn settle_before(&self, first: u64) -> Result<(), Failure<C>> {
        let hidden = self.hidden().clone();
        let Some(to) = hidden else { return Ok(()) };
        let next = self.last()?.map_or(0, |last| last.index + 1);
        if next < first && !self.progress.wait(&to).await {
            return Err(refused(format!(
                "the state machine has failed before it had a snapshot up to {to}: the log ends \
                 before {next}, and cannot go on with {first}"
            )));
        }
        self.settle()
    }

    /// A transaction to read with: it sees all commits, with [`wattle::Reads::Durable`] too.
    fn reader(&self) -> Result<Transaction<'static>, Failure<C>> {
        self.engine.begin().map_err(reading)
    }

    /// A transaction whose commit is durable when its ticket says so, whatever the durability of
    /// the engine: Raft counts on it.
    fn writer(&self) -> Result<Transaction<'static>, Failure<C>> {
        let options = TxnOptions { durability: Some(Durability::Sync), ..TxnOptions::default() };
        self.engine.begin_with(options).map_err(writing)
    }

    fn meta<T: DeserializeOwned>(&self, key: &[u8]) -> Result<Option<T>, Failure<C>> {
        let txn = self.reader()?;
        let found = txn.get_with(&self.meta, key, decode::<T, C::NodeId>);
        found.map_err(reading)?.transpose()
    }

    fn set_meta(&self, key: &[u8], value: &impl Serialize) -> Result<Ticket, Failure<C>> {
        let bytes = encode(value)?;
        let mut txn = self.writer()?;
        txn.put(&self.meta, key, &bytes).map_err(writing)?;
        txn.commit_ticket().map_err(writing)
    }

    /// Removes the entries of a range, in the direction in which the log stays without gaps if a
    /// crash comes in between.
    fn cut(
        &self,
        range: (Bound<[u8; 8]>, Bound<[u8; 8]>),
        direction: Direction,
    ) -> Result<(), Failure<C>> {
        let bounds = (range.0.as_ref().map(|key| &key[..]), range.1.as_ref().map(|key| &key[..]));
        loop {
            let mut txn = self.writer()?;
            let more = remove_some(&mut txn, &self.log, bounds, direction).map_err(writing)?;
            txn.commit().map_err(writing)?;
            if !more {
                return Ok(());
            }
        }
    }
}

fn bound(bound: Bound<&u64>) -> Bound<[u8; 8]> {
    bound.map(|index| index.to_be_bytes())
}

impl<C: RaftTypeConfig<Entry = Entry<C>>> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry<C>>, Failure<C>> {
        let txn = self.reader()?;
        let (mut low, high) = (bound(range.start_bound()), bound(range.end_bound()));
        if let Some(hidden) = &*self.hidden() {
            let hidden = hidden.index.to_be_bytes();
            low = match low {
                Bound::Included(low) if low > hidden => Bound::Included(low),
                Bound::Excluded(low) if low > hidden => Bound::Excluded(low),
                _ => Bound::Excluded(hidden),
            };
            if let Bound::Included(high) | Bound::Excluded(high) = high
                && high <= hidden
            {
                return Ok(Vec::new());
            }
        }
        let entries = txn.range(&self.log, (low.as_ref(), high.as_ref())).map_err(reading)?;
        entries.map(|entry| decode(&entry.map_err(reading)?.1)).collect()
    }
}

impl<C: RaftTypeConfig<Entry = Entry<C>>> RaftLogStorage<C> for LogStore<C> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<C>, Failure<C>> {
        let last_purged_log_id = self.meta::<Id<C>>(PURGED)?.max(self.hidden().clone());
        // A crash may leave entries that the mark covers.
        let last = self.last()?.max(last_purged_log_id.clone());
        Ok(LogState { last_purged_log_id, last_log_id: last })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Result<(), Failure<C>> {
        let ticket = self.set_meta(VOTE, vote)?;
        ticket.await.map_err(writing)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<C::NodeId>>, Failure<C>> {
        self.meta(VOTE)
    }

    /// Not awaited: after a crash an older committed id is as good, and entries are applied again.
    async fn save_committed(&mut self, committed: Option<Id<C>>) -> Result<(), Failure<C>> {
        self.set_meta(COMMITTED, &committed).map(|_ticket| ())
    }

    async fn read_committed(&mut self) -> Result<Option<Id<C>>, Failure<C>> {
        Ok(self.meta::<Option<Id<C>>>(COMMITTED)?.flatten())
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<C>) -> Result<(), Failure<C>>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<_> = entries.into_iter().collect();
        if let Some(first) = entries.first() {
            self.settle_before(first.log_id.index).await?;
        }
        let ticket = {
            let mut txn = self.writer()?;
            for entry in entries {
                let (key, bytes) = (entry.log_id.index.to_be_bytes(), encode(&entry)?);
                txn.put(&self.log, &key, &bytes).map_err(writing)?;
            }
            txn.commit_ticket().map_err(writing)?
        };
        tokio::spawn(async move {
            callback.log_io_completed(ticket.await.map_err(io::Error::other));
        });
        Ok(())
    }

    async fn truncate(&mut self, from: Id<C>) -> Result<(), Failure<C>> {
        // The newest first: a crash leaves a shorter log.
        self.cut((Bound::Included(from.index.to_be_bytes()), Bound::Unbounded), Direction::Backward)
    }

    async fn purge(&mut self, to: Id<C>) -> Result<(), Failure<C>> {
        {
            let mut hidden = self.hidden();
            *hidden = hidden.take().max(Some(to));
        }
        self.settle()
    }
}
