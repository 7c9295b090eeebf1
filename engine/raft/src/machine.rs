//! The state machine, and its snapshots.
//!
//! Each batch of entries is one transaction that changes `raft-data` and the id of the last applied
//! entry in `raft-machine`: after a crash both are from the same moment. The commit is not awaited,
//! because the entries are durable in the log; openraft applies those again that a crash takes
//! back. A commit that a client has a reply to is in the logs of a majority.

use crate::{
    codec::{DATA_TREE, MACHINE_TREE, decode, encode, reading, writing},
    remove::remove_some,
};
use openraft::{
    Entry, EntryPayload, LogId, OptionalSend, RaftSnapshotBuilder, RaftTypeConfig, Snapshot,
    SnapshotMeta, StorageError, StoredMembership, storage::RaftStateMachine,
};
use std::{io::Cursor, marker::PhantomData, ops::Bound};
use wattle::{Direction, Durability, Engine, Transaction, Tree, TxnOptions};

const APPLIED: &[u8] = b"applied";
const SNAPSHOT: &[u8] = b"snapshot";
const SNAPSHOTS: &[u8] = b"snapshots";

type Failure<C> = StorageError<<C as RaftTypeConfig>::NodeId>;
type Applied<C> = (
    Option<LogId<<C as RaftTypeConfig>::NodeId>>,
    StoredMembership<<C as RaftTypeConfig>::NodeId, <C as RaftTypeConfig>::Node>,
);
type Meta<C> = SnapshotMeta<<C as RaftTypeConfig>::NodeId, <C as RaftTypeConfig>::Node>;

/// The requests of an application. `apply` must depend on the tree and the request only: all nodes
/// run it.
pub trait Apply<C: RaftTypeConfig>: Send + Sync + 'static {
    /// Applies a request to the tree, in the transaction of its batch.
    ///
    /// # Errors
    /// Any of the engine. The node stops then.
    fn apply(txn: &mut Transaction<'_>, tree: &Tree, request: C::D) -> wattle::Result<C::R>;

    /// The reply to an entry that is none of the application.
    fn no_reply() -> C::R;
}

/// The state machine of a node: the tree `raft-data` of its engine, changed by `A`.
pub struct StateMachine<C, A> {
    engine: Engine,
    data: Tree,
    meta: Tree,
    types: PhantomData<fn() -> (C, A)>,
}

impl<C, A> Clone for StateMachine<C, A> {
    fn clone(&self) -> Self {
        StateMachine {
            engine: self.engine.clone(),
            data: self.data.clone(),
            meta: self.meta.clone(),
            types: PhantomData,
        }
    }
}

impl<C, A> StateMachine<C, A>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = Cursor<Vec<u8>>>,
    A: Apply<C>,
{
    /// The state machine of the node whose store this is.
    ///
    /// # Errors
    /// As [`Engine::tree`].
    pub fn new(engine: &Engine) -> wattle::Result<Self> {
        let (data, meta) = (engine.tree(DATA_TREE)?, engine.tree(MACHINE_TREE)?);
        Ok(StateMachine { engine: engine.clone(), data, meta, types: PhantomData })
    }

    /// The tree that requests change. Reads of it are as new as this node is.
    pub fn tree(&self) -> &Tree {
        &self.data
    }

    fn applied(&self, txn: &Transaction<'_>) -> Result<Applied<C>, Failure<C>> {
        let found = txn.get_with(&self.meta, APPLIED, decode::<Applied<C>, C::NodeId>);
        Ok(found.map_err(reading)?.transpose()?.unwrap_or_default())
    }

    fn begin(&self, durability: Durability) -> Result<Transaction<'static>, Failure<C>> {
        let options = TxnOptions { durability: Some(durability), ..TxnOptions::default() };
        self.engine.begin_with(options).map_err(writing)
    }
}

impl<C, A> RaftSnapshotBuilder<C> for StateMachine<C, A>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = Cursor<Vec<u8>>>,
    A: Apply<C>,
{
    async fn build_snapshot(&mut self) -> Result<Snapshot<C>, Failure<C>> {
        let txn = self.begin(Durability::Sync)?;
        let (last_log_id, last_membership) = self.applied(&txn)?;
        let records = txn.scan(&self.data).map_err(reading)?;
        let records = records.collect::<wattle::Result<Vec<_>>>().map_err(reading)?;
        let number = txn.get_with(&self.meta, SNAPSHOTS, decode::<u64, C::NodeId>);
        let number = number.map_err(reading)?.transpose()?.unwrap_or(0) + 1;
        txn.abort().map_err(reading)?;
        let at = last_log_id.as_ref().map_or(0, |id| id.index);
        let snapshot_id = format!("{at}-{number}");
        let meta = SnapshotMeta { last_log_id, last_membership, snapshot_id };
        let bytes = encode(&records)?;
        let kept = encode(&(&meta, &bytes))?;
        let mut txn = self.begin(Durability::Sync)?;
        txn.put(&self.meta, SNAPSHOTS, &encode(&number)?).map_err(writing)?;
        txn.put(&self.meta, SNAPSHOT, &kept).map_err(writing)?;
        txn.commit().map_err(writing)?;
        Ok(Snapshot { meta, snapshot: Box::new(Cursor::new(bytes)) })
    }
}

impl<C, A> RaftStateMachine<C> for StateMachine<C, A>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = Cursor<Vec<u8>>>,
    A: Apply<C>,
{
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<Applied<C>, Failure<C>> {
        let txn = self.engine.begin().map_err(reading)?;
        self.applied(&txn)
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<C::R>, Failure<C>>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut txn = self.begin(Durability::None)?;
        let (mut last, mut membership) = self.applied(&txn)?;
        let mut replies = Vec::new();
        for entry in entries {
            last = Some(entry.log_id.clone());
            replies.push(match entry.payload {
                EntryPayload::Blank => A::no_reply(),
                EntryPayload::Normal(request) => {
                    A::apply(&mut txn, &self.data, request).map_err(writing)?
                }
                EntryPayload::Membership(changed) => {
                    membership = StoredMembership::new(Some(entry.log_id), changed);
                    A::no_reply()
                }
            });
        }
        let applied: Applied<C> = (last, membership);
        txn.put(&self.meta, APPLIED, &encode(&applied)?).map_err(writing)?;
        txn.commit().map_err(writing)?;
        Ok(replies)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, Failure<C>> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &Meta<C>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), Failure<C>> {
        let bytes = snapshot.into_inner();
        let records: Vec<(Vec<u8>, Vec<u8>)> = decode(&bytes)?;
        let applied: Applied<C> = (meta.last_log_id.clone(), meta.last_membership.clone());
        let mut txn = self.begin(Durability::Sync)?;
        let all = (Bound::Unbounded, Bound::Unbounded);
        while remove_some(&mut txn, &self.data, all, Direction::Forward).map_err(writing)? {}
        txn.put_many(&self.data, &records).map_err(writing)?;
        txn.put(&self.meta, APPLIED, &encode(&applied)?).map_err(writing)?;
        txn.put(&self.meta, SNAPSHOT, &encode(&(meta, &bytes))?).map_err(writing)?;
        txn.commit().map_err(writing)
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<C>>, Failure<C>> {
        let txn = self.engine.begin().map_err(reading)?;
        let found = txn.get_with(&self.meta, SNAPSHOT, decode::<(Meta<C>, Vec<u8>), C::NodeId>);
        let found = found.map_err(reading)?.transpose()?;
        Ok(found.map(|(meta, bytes)| Snapshot { meta, snapshot: Box::new(Cursor::new(bytes)) }))
    }
}
