//! The state machine, and its snapshots.
//!
//! Each batch of entries is one transaction that changes `raft-data` and the id of the last applied
//! entry in `raft-machine`: after a crash both are from the same moment. The commit is not awaited,
//! because the entries are durable in the log; openraft applies those again that a crash takes
//! back. A commit that a client has a reply to is in the logs of a majority.
//!
//! # Why nothing that was acknowledged is lost
//!
//! Let A be the last applied entry, S the last entry of the snapshot file, P the mark up to which
//! the log is purged, each as a crash would leave it. Two invariants hold at any time:
//!
//! 1. P <= max(A, S): what the log lacks is in the trees or in a file.
//! 2. The entries after max(P, A, S) that were acknowledged are in the log without a gap.
//!
//! **Building.** One read transaction gives the records and their A. (1) The file is written under
//! a temporary name and synced. (2) It is renamed. (3) The directory is synced. (4) openraft is
//! told, and purges the log later. (5) The older file is removed, after step 3. S may be newer than
//! the A that a crash leaves, because commits of `apply` are not awaited: the next open installs
//! the file.
//!
//! **Installing.** openraft gives the snapshot to the state machine, and purges the log and appends
//! entries after the snapshot without waiting for it. The steps:
//!
//! | step | a crash after it leaves |
//! |---|---|
//! | 0. openraft writes the file under a temporary name | the old state and the old log; the next open removes the part |
//! | 1. all of the file is verified, and the file synced | the same |
//! | 2. the file is renamed | the same, or S is the new snapshot |
//! | 3. the directory is synced, then the older file is removed | S is the new snapshot; A is old; the next open goes on with step 5 |
//! | 4. the log is told (`Progress::cover`) and may purge up to S | the same, with P <= S |
//! | 5. one transaction replaces all records and A; its commit is durable | as after step 3, or A = S |
//!
//! **Purging** ([`crate::LogStore`]). A purge up to an entry that is not covered, which means above
//! both A and S, changes nothing on storage. The log hides the entries and keeps them. They are
//! purged with the next append or purge after they are covered. Before the mark P is written, all
//! commits so far are made durable: A may have counted commits that were not. So invariant 1 holds.
//!
//! **Appending.** When an uncovered purge has hidden the end of the log, the next entry does not
//! follow the last one that storage has. Such an append waits until the purge is covered (step 4),
//! purges, and writes then: a crash before that leaves the old log without a gap, and the new entry
//! was not acknowledged. An append that leaves no gap waits for nothing. So invariant 2 holds.
//! openraft answers an installation after step 5, so the leader counts nothing of it before.
//!
//! **A failure** in the steps above ends openraft's task of the state machine. The log then fails
//! the append that waits instead of waiting forever, and the node stops. The next open goes on as
//! after a crash.
//!
//! **Building beside installing.** A snapshot replaces another only if it is not older: both happen
//! under one lock. A builder whose file is older drops it and gives the newer one to openraft.

use crate::{
    codec::{
        DATA_TREE, Failure, Id, MACHINE_TREE, Meta, decode, encode, reading, refused, writing,
    },
    file::{Part, SnapshotFile},
    format::{Reader, Writer},
    progress::Progress,
    snapshots::{Snapshots, failed},
};
use openraft::{
    Entry, EntryPayload, OptionalSend, RaftSnapshotBuilder, RaftTypeConfig, Snapshot, SnapshotMeta,
    StoredMembership, storage::RaftStateMachine,
};
use std::{
    collections::hash_map::RandomState,
    fs::File,
    hash::{BuildHasher, Hasher},
    io,
    marker::PhantomData,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};
use wattle::{Durability, Engine, Error, Transaction, Tree, TxnOptions};

const APPLIED: &[u8] = b"applied";
/// How many times a snapshot is built, or loaded, when the engine cancels the transaction.
const ATTEMPTS: u32 = 5;
/// Pause after the first attempt. After the n-th it is n times this.
const PAUSE: Duration = Duration::from_millis(10);
/// Records that are loaded at a time: this many, or this many bytes.
const BATCH: (usize, usize) = (1024, 1 << 20);

type Applied<C> =
    (Option<Id<C>>, StoredMembership<<C as RaftTypeConfig>::NodeId, <C as RaftTypeConfig>::Node>);

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
pub struct StateMachine<C: RaftTypeConfig, A> {
    engine: Engine,
    data: Tree,
    meta: Tree,
    progress: Arc<Progress<C>>,
    snapshots: Arc<Snapshots<C>>,
    /// Why the last snapshot was not built.
    not_built: Arc<Mutex<Option<String>>>,
    types: PhantomData<fn() -> A>,
}

impl<C: RaftTypeConfig, A> Clone for StateMachine<C, A> {
    fn clone(&self) -> Self {
        StateMachine {
            engine: self.engine.clone(),
            data: self.data.clone(),
            meta: self.meta.clone(),
            progress: self.progress.clone(),
            snapshots: self.snapshots.clone(),
            not_built: self.not_built.clone(),
            types: PhantomData,
        }
    }
}

/// Why an attempt ended.
enum Stop<C: RaftTypeConfig> {
    /// The engine has cancelled its transaction: another attempt may succeed.
    Cancelled(Error),
    Failed(Failure<C>),
}

impl<C: RaftTypeConfig> From<Error> for Stop<C> {
    fn from(error: Error) -> Self {
        match error {
            Error::SnapshotTooOld(_) => Stop::Cancelled(error),
            error => Stop::Failed(writing(error)),
        }
    }
}

impl<C: RaftTypeConfig> From<io::Error> for Stop<C> {
    fn from(error: io::Error) -> Self {
        Stop::Failed(failed::<C>(error))
    }
}

/// Runs attempts until one is not cancelled. The last cancelled one gives the engine's error.
fn attempts<C: RaftTypeConfig, T>(
    mut attempt: impl FnMut() -> Result<T, Stop<C>>,
) -> Result<Result<T, Error>, Failure<C>> {
    let mut done = 0;
    loop {
        done += 1;
        match attempt() {
            Ok(value) => return Ok(Ok(value)),
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Cancelled(error)) if done == ATTEMPTS => return Ok(Err(error)),
            Err(Stop::Cancelled(_)) => thread::sleep(PAUSE * done),
        }
    }
}

impl<C, A> StateMachine<C, A>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = SnapshotFile>,
    A: Apply<C>,
{
    pub(crate) fn open(
        engine: &Engine,
        snapshots: &Path,
        progress: Arc<Progress<C>>,
    ) -> Result<Self, Failure<C>> {
        let data = engine.tree(DATA_TREE).map_err(writing)?;
        let meta = engine.tree(MACHINE_TREE).map_err(writing)?;
        let machine = StateMachine {
            engine: engine.clone(),
            data,
            meta,
            progress,
            snapshots: Arc::new(Snapshots::open(snapshots)?),
            not_built: Arc::default(),
            types: PhantomData,
        };
        let (applied, _) = machine.applied(&engine.begin().map_err(reading)?)?;
        if machine.snapshots.last() > applied {
            machine.load()?;
        }
        machine.progress.cover(applied.max(machine.snapshots.last()));
        Ok(machine)
    }

    /// The tree that requests change. Reads of it are as new as this node is.
    pub fn tree(&self) -> &Tree {
        &self.data
    }

    /// The last entry that a transaction of the engine sees the effect of: how old a read of this
    /// node is. None if it sees none.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn last_applied(&self, txn: &Transaction<'_>) -> Result<Option<Id<C>>, Failure<C>> {
        self.applied(txn).map(|(last, _)| last)
    }

    /// Why the last snapshot could not be built. None if it was built, or none was asked for. The
    /// node goes on with the snapshot from before and with its whole log since then, and openraft
    /// asks again.
    pub fn snapshot_error(&self) -> Option<String> {
        self.not_built.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_snapshot_error(&self, error: Option<String>) {
        *self.not_built.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    fn applied(&self, txn: &Transaction<'_>) -> Result<Applied<C>, Failure<C>> {
        match self.read_applied(txn) {
            Ok(applied) => Ok(applied),
            Err(Stop::Cancelled(error)) => Err(reading(error)),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    fn read_applied(&self, txn: &Transaction<'_>) -> Result<Applied<C>, Stop<C>> {
        let found = txn.get_with(&self.meta, APPLIED, decode::<Applied<C>, C::NodeId>)?;
        Ok(found.transpose().map_err(Stop::Failed)?.unwrap_or_default())
    }

    fn begin(&self, durability: Durability) -> Result<Transaction<'static>, Failure<C>> {
        let options = TxnOptions { durability: Some(durability), ..TxnOptions::default() };
        self.engine.begin_with(options).map_err(writing)
    }

    /// Builds a snapshot and publishes it, unless a newer one is there. `each` is called before
    /// each record.
    fn build(&self, each: &mut dyn FnMut()) -> Result<Snapshot<C>, Failure<C>> {
        let built = attempts(|| self.try_build(each))?;
        let error = built.err().map(|error| {
            format!("no snapshot was built: the engine has cancelled {ATTEMPTS} attempts: {error}")
        });
        if let Some(error) = &error {
            tracing::error!("{error}");
        }
        self.set_snapshot_error(error);
        match self.current()? {
            Some(snapshot) => Ok(snapshot),
            // openraft takes a snapshot of no entry as none, and goes on.
            None => {
                let (file, part) = self.snapshots.part().map_err(failed::<C>)?;
                let meta = SnapshotMeta::default();
                Ok(Snapshot { meta, snapshot: Box::new(SnapshotFile::new(file, Some(part))) })
            }
        }
    }

    fn try_build(&self, each: &mut dyn FnMut()) -> Result<(), Stop<C>> {
        let txn = self.engine.begin()?;
        let (last_log_id, last_membership) = self.read_applied(&txn)?;
        let at = last_log_id.as_ref().map_or(0, |id| id.index);
        // Random: nodes must not give one id to different files.
        let random = RandomState::new().build_hasher().finish();
        let snapshot_id = format!("{at}-{random:016x}");
        let meta = SnapshotMeta { last_log_id, last_membership, snapshot_id };
        let (file, part) = self.snapshots.part()?;
        let mut writer = Writer::new(file, &encode(&meta).map_err(Stop::Failed)?)?;
        let mut records = txn.scan(&self.data)?;
        loop {
            each();
            let Some((key, value)) = records.next_entry()? else { break };
            writer.record(key, value)?;
        }
        drop(records);
        txn.abort()?;
        writer.finish()?;
        let last = meta.last_log_id.clone();
        if self.snapshots.publish(part, meta)? {
            self.progress.cover(last);
        }
        Ok(())
    }

    fn current(&self) -> Result<Option<Snapshot<C>>, Failure<C>> {
        let current = self.snapshots.current().map_err(failed::<C>)?;
        Ok(current.map(|(meta, file)| Snapshot {
            meta,
            snapshot: Box::new(SnapshotFile::new(file, None)),
        }))
    }

    /// Installs a snapshot that was received: the steps above.
    fn install(&self, meta: Meta<C>, file: File, part: Option<Part>) -> Result<(), Failure<C>> {
        let part = self.receive(&meta, file, part)?;
        let last = meta.last_log_id.clone();
        if !self.snapshots.publish(part, meta).map_err(failed::<C>)? {
            return Err(refused("the snapshot to install is older than the one that is there"));
        }
        self.progress.cover(last);
        self.load()
    }

    /// A verified, synced part with the contents of the file.
    fn receive(
        &self,
        meta: &Meta<C>,
        mut file: File,
        part: Option<Part>,
    ) -> Result<Part, Failure<C>> {
        let part = match part {
            Some(part) if self.snapshots.owns(&part) => part,
            // Of another node in this process: not ours to rename.
            _ => {
                let (mut copy, part) = self.snapshots.part().map_err(failed::<C>)?;
                io::Seek::rewind(&mut file).map_err(failed::<C>)?;
                io::copy(&mut file, &mut copy).map_err(failed::<C>)?;
                file = copy;
                part
            }
        };
        let again = file.try_clone().map_err(failed::<C>)?;
        let (bytes, mut reader) = Reader::new(again).map_err(failed::<C>)?;
        if decode::<Meta<C>, C::NodeId>(&bytes)? != *meta {
            return Err(refused("the snapshot to install is not the one that was announced"));
        }
        reader.verify().map_err(failed::<C>)?;
        file.sync_all().map_err(failed::<C>)?;
        Ok(part)
    }

    /// Replaces all records by those of the current snapshot.
    fn load(&self) -> Result<(), Failure<C>> {
        attempts(|| self.try_load())?.map_err(writing)
    }

    fn try_load(&self) -> Result<(), Stop<C>> {
        let Some((meta, file)) = self.snapshots.current()? else { return Ok(()) };
        let (_, mut reader) = Reader::new(file)?;
        let mut txn = self.begin(Durability::Sync).map_err(Stop::Failed)?;
        txn.clear(&self.data)?;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while reader.next(&mut key, &mut value)? {
            bytes += key.len() + value.len();
            batch.push((std::mem::take(&mut key), std::mem::take(&mut value)));
            if batch.len() >= BATCH.0 || bytes >= BATCH.1 {
                txn.put_many(&self.data, &batch)?;
                batch.clear();
                bytes = 0;
            }
        }
        txn.put_many(&self.data, &batch)?;
        let applied: Applied<C> = (meta.last_log_id, meta.last_membership);
        txn.put(&self.meta, APPLIED, &encode(&applied).map_err(Stop::Failed)?)?;
        txn.commit()?;
        Ok(())
    }
}

/// Runs blocking work outside of the tasks of the runtime.
async fn blocking<C: RaftTypeConfig, T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure<C>> + Send + 'static,
) -> Result<T, Failure<C>> {
    tokio::task::spawn_blocking(work).await.map_err(writing)?
}

impl<C, A> RaftSnapshotBuilder<C> for StateMachine<C, A>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = SnapshotFile>,
    A: Apply<C>,
{
    async fn build_snapshot(&mut self) -> Result<Snapshot<C>, Failure<C>> {
        let machine = self.clone();
        blocking::<C, _>(move || machine.build(&mut || ())).await
    }
}

impl<C, A> RaftStateMachine<C> for StateMachine<C, A>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = SnapshotFile>,
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
        let guard = self.progress.guard();
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
        self.progress.cover(applied.0);
        guard.done();
        Ok(replies)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotFile>, Failure<C>> {
        let guard = self.progress.guard();
        let (file, part) = self.snapshots.part().map_err(failed::<C>)?;
        guard.done();
        Ok(Box::new(SnapshotFile::new(file, Some(part))))
    }

    async fn install_snapshot(
        &mut self,
        meta: &Meta<C>,
        snapshot: Box<SnapshotFile>,
    ) -> Result<(), Failure<C>> {
        let guard = self.progress.guard();
        let (file, part) = snapshot.into_file().await.map_err(failed::<C>)?;
        let (machine, meta) = (self.clone(), meta.clone());
        blocking::<C, _>(move || machine.install(meta, file, part)).await?;
        guard.done();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<C>>, Failure<C>> {
        let guard = self.progress.guard();
        let current = self.current()?;
        guard.done();
        Ok(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{KeyValue, Machine, TypeConfig, id, set};
    use wattle::{MIN_LOG_BYTES, Options};

    fn open(directory: &Path) -> (Engine, Machine) {
        let options = Options::default().pool_bytes(16 << 20).log_bytes(16 * MIN_LOG_BYTES);
        let options = options.version_bytes(1 << 20).durability(Durability::None);
        let engine = Engine::open(directory.join("store"), options).unwrap();
        let opened = crate::open::<TypeConfig, KeyValue>(&engine, directory.join("snapshots"));
        (engine, opened.unwrap().1)
    }

    async fn write(machine: &mut Machine, indexes: std::ops::RangeInclusive<u64>) {
        let value = "v".repeat(1000);
        machine.apply(indexes.map(|index| set(index, index, &value))).await.unwrap();
    }

    #[tokio::test]
    async fn a_transaction_says_which_entry_it_sees() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, mut machine) = open(directory.path());
        let empty = engine.begin().unwrap();
        write(&mut machine, 1..=3).await;
        let before = engine.begin().unwrap();
        write(&mut machine, 4..=5).await;
        assert_eq!(machine.last_applied(&empty).unwrap(), None);
        assert_eq!(machine.last_applied(&before).unwrap(), Some(id(3)));
        assert_eq!(machine.last_applied(&engine.begin().unwrap()).unwrap(), Some(id(5)));
    }

    #[tokio::test]
    async fn a_slow_snapshot_does_not_replace_a_newer_one() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("leader")).unwrap();
        let (_leader_engine, mut leader) = open(&directory.path().join("leader"));
        write(&mut leader, 1..=20).await;
        leader.build(&mut || ()).unwrap();
        let (_engine, mut machine) = open(directory.path());
        write(&mut machine, 1..=10).await;

        let mut newer = leader.snapshots.current().unwrap();
        let installs = machine.clone();
        let built = machine.build(&mut || {
            if let Some((meta, file)) = newer.take() {
                installs.install(meta, file, None).unwrap();
            }
        });
        assert_eq!(built.unwrap().meta.last_log_id, Some(id(20)));
        let current = machine.get_current_snapshot().await.unwrap().unwrap();
        assert_eq!(current.meta.last_log_id, Some(id(20)));
        let (_, file) = machine.snapshots.current().unwrap().unwrap();
        Reader::new(file).unwrap().1.verify().unwrap();
        // The older one is not left as a file.
        assert_eq!(std::fs::read_dir(directory.path().join("snapshots")).unwrap().count(), 1);
    }

    /// Builds while the engine cancels this many attempts.
    async fn build_cancelled(
        engine: &Engine,
        machine: &Machine,
        mut times: u32,
    ) -> Result<Snapshot<TypeConfig>, Failure<TypeConfig>> {
        let (engine, machine) = (engine.clone(), machine.clone());
        blocking::<TypeConfig, _>(move || {
            let other = engine.tree("other").unwrap();
            let session = engine.session().unwrap();
            let put = |number: u32| {
                session.put(&other, &number.to_be_bytes(), &[7; 500]).unwrap();
            };
            // More than the limit of versions, once the snapshots need the values before.
            (0..4000).for_each(put);
            machine.clone().build(&mut || {
                // One hook per record: only the first of an attempt finds the counter set.
                if times == 0 {
                    return;
                }
                times -= 1;
                let probe = engine.begin().unwrap();
                probe.get(&other, b"key").unwrap();
                for round in 0..1000 {
                    (0..500).map(|number| number + round % 8 * 500).for_each(put);
                    match probe.get(&other, b"key") {
                        Err(Error::SnapshotTooOld(_)) => return,
                        found => assert_eq!(found.unwrap(), None),
                    }
                }
                panic!("the engine cancels no snapshot");
            })
        })
        .await
    }

    #[tokio::test]
    async fn a_cancelled_snapshot_is_built_again_and_the_node_goes_on_without_one() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, mut machine) = open(directory.path());
        write(&mut machine, 1..=50).await;

        // None yet: a snapshot of no entry, which openraft takes as none.
        let built = build_cancelled(&engine, &machine, ATTEMPTS).await.unwrap();
        assert_eq!(built.meta, SnapshotMeta::default());
        drop(built);
        let error = machine.snapshot_error().unwrap();
        assert!(error.contains("no snapshot was built"), "{error}");
        assert!(machine.get_current_snapshot().await.unwrap().is_none());

        let built = build_cancelled(&engine, &machine, ATTEMPTS - 1).await.unwrap();
        assert_eq!(built.meta.last_log_id, Some(id(50)));
        assert_eq!(machine.snapshot_error(), None);

        // The one from before stays.
        write(&mut machine, 51..=60).await;
        let built = build_cancelled(&engine, &machine, ATTEMPTS).await.unwrap();
        assert_eq!(built.meta.last_log_id, Some(id(50)));
        assert!(machine.snapshot_error().is_some());
        assert_eq!(std::fs::read_dir(directory.path().join("snapshots")).unwrap().count(), 1);
    }
}
