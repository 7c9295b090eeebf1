//! The log of Raft, and its vote.
//!
//! `raft-log` has an entry for each index (8 bytes, big-endian). `raft-meta` has the vote, the last
//! purged id and the committed id.
//!
//! **Order.** openraft counts on three things. A vote is durable before it is answered:
//! `save_vote` waits for its ticket. Entries are durable before they are acknowledged: `append`
//! gives the callback to a task that awaits the ticket, so that entries that arrive meanwhile share
//! the next flush. And an entry may be purged only when the state machine that has it is durable:
//! both are commits of one engine, which become durable in their order. **Not so for the purge
//! after a snapshot from the leader:** openraft begins it beside the installation (README,
//! *Limits*).

use crate::{
    codec::{LOG_TREE, META_TREE, decode, encode, reading, writing},
    remove::remove_some,
};
use openraft::{
    Entry, LogId, LogState, OptionalSend, RaftLogReader, RaftTypeConfig, StorageError, Vote,
    storage::{LogFlushed, RaftLogStorage},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt::Debug,
    io,
    marker::PhantomData,
    ops::{Bound, RangeBounds},
};
use wattle::{Direction, Durability, Engine, Ticket, Transaction, Tree, TxnOptions};

const VOTE: &[u8] = b"vote";
const PURGED: &[u8] = b"purged";
const COMMITTED: &[u8] = b"committed";

type Failure<C> = StorageError<<C as RaftTypeConfig>::NodeId>;
type Id<C> = LogId<<C as RaftTypeConfig>::NodeId>;

/// The log of a node, in trees of its engine.
pub struct LogStore<C> {
    engine: Engine,
    log: Tree,
    meta: Tree,
    config: PhantomData<fn() -> C>,
}

impl<C> Clone for LogStore<C> {
    fn clone(&self) -> Self {
        LogStore {
            engine: self.engine.clone(),
            log: self.log.clone(),
            meta: self.meta.clone(),
            config: PhantomData,
        }
    }
}

impl<C: RaftTypeConfig<Entry = Entry<C>>> LogStore<C> {
    /// The log of the node whose store this is.
    ///
    /// # Errors
    /// As [`Engine::tree`].
    pub fn new(engine: &Engine) -> wattle::Result<Self> {
        let (log, meta) = (engine.tree(LOG_TREE)?, engine.tree(META_TREE)?);
        Ok(LogStore { engine: engine.clone(), log, meta, config: PhantomData })
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
        let (low, high) = (bound(range.start_bound()), bound(range.end_bound()));
        let entries = txn.range(&self.log, (low.as_ref(), high.as_ref())).map_err(reading)?;
        entries.map(|entry| decode(&entry.map_err(reading)?.1)).collect()
    }
}

impl<C: RaftTypeConfig<Entry = Entry<C>>> RaftLogStorage<C> for LogStore<C> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<C>, Failure<C>> {
        let last_purged_log_id: Option<Id<C>> = self.meta(PURGED)?;
        let txn = self.reader()?;
        let mut newest = txn.scan(&self.log).map_err(reading)?.rev();
        let last = newest.next_entry().map_err(reading)?;
        let last = last.map(|(_, bytes)| decode::<Entry<C>, C::NodeId>(bytes)).transpose()?;
        let last_log_id = last.map(|entry| entry.log_id).or(last_purged_log_id.clone());
        Ok(LogState { last_purged_log_id, last_log_id })
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
        // The mark first: a crash leaves entries that the mark covers, and reads begin after it.
        let mut txn = self.writer()?;
        txn.put(&self.meta, PURGED, &encode(&to)?).map_err(writing)?;
        txn.commit().map_err(writing)?;
        self.cut((Bound::Unbounded, Bound::Included(to.index.to_be_bytes())), Direction::Forward)
    }
}
