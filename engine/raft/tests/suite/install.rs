//! Snapshots: their installation beside a purge, what a crash leaves of one, and what `open`
//! refuses.

use crate::types::{Machine, TypeConfig, id, set};
use openraft::{
    RaftLogReader, RaftSnapshotBuilder, SnapshotMeta,
    storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine},
};
use std::{
    fs,
    io::SeekFrom,
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use wattle::{Engine, MIN_LOG_BYTES, Options};
use wattle_raft::LogStore;

pub fn options() -> Options {
    Options::default().pool_bytes(4 << 20).log_bytes(MIN_LOG_BYTES)
}

/// A node under a directory.
pub struct Node {
    pub engine: Engine,
    pub log: LogStore<TypeConfig>,
    pub machine: Machine,
    pub snapshots: PathBuf,
}

impl Node {
    pub fn open(directory: &Path) -> Node {
        let engine = Engine::open(directory.join("store"), options()).unwrap();
        let snapshots = directory.join("snapshots");
        let (log, machine) = wattle_raft::open(&engine, &snapshots).unwrap();
        Node { engine, log, machine, snapshots }
    }

    /// Ends it as a crash would.
    pub fn crash(self) {
        let Node { engine, log, machine, .. } = self;
        drop((log, machine));
        engine.abandon().unwrap();
    }

    /// Appends and applies entries that set a key of their own.
    pub async fn write(&mut self, indexes: std::ops::RangeInclusive<u64>) {
        let entries: Vec<_> = indexes.map(|index| set(index, index, index)).collect();
        self.log.blocking_append(entries.clone()).await.unwrap();
        self.machine.apply(entries).await.unwrap();
    }

    pub fn keys(&self) -> Vec<String> {
        let txn = self.engine.begin().unwrap();
        let records = txn.scan(self.machine.tree()).unwrap();
        records.map(|record| String::from_utf8(record.unwrap().0).unwrap()).collect()
    }

    /// Names in the directory of snapshots.
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.snapshots).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn numbers(range: std::ops::RangeInclusive<u64>) -> Vec<String> {
    let mut numbers: Vec<_> = range.map(|number| number.to_string()).collect();
    numbers.sort();
    numbers
}

/// A snapshot of the entries 1 to `last`: its meta data and its bytes.
async fn snapshot(last: u64) -> (SnapshotMeta<u64, openraft::BasicNode>, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let mut leader = Node::open(directory.path());
    leader.write(1..=last).await;
    let mut snapshot = leader.machine.build_snapshot().await.unwrap();
    let end = snapshot.snapshot.seek(SeekFrom::End(0)).await.unwrap();
    snapshot.snapshot.seek(SeekFrom::Start(0)).await.unwrap();
    let mut bytes = Vec::new();
    snapshot.snapshot.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(bytes.len() as u64, end);
    (snapshot.meta, bytes)
}

async fn install(node: &mut Node, meta: &SnapshotMeta<u64, openraft::BasicNode>, bytes: &[u8]) {
    let mut received = node.machine.begin_receiving_snapshot().await.unwrap();
    // In pieces, and one of them twice, as openraft does.
    let piece = bytes.len() / 3 + 1;
    for offset in [0, piece, piece, 2 * piece] {
        received.seek(SeekFrom::Start(offset as u64)).await.unwrap();
        let end = bytes.len().min(offset + piece);
        received.write_all(&bytes[offset..end]).await.unwrap();
    }
    received.shutdown().await.unwrap();
    node.machine.install_snapshot(meta, received).await.unwrap();
}

#[tokio::test]
async fn a_purge_before_its_snapshot_is_durable_changes_nothing_on_storage() {
    let (meta, bytes) = snapshot(20).await;
    let directory = tempfile::tempdir().unwrap();
    let mut node = Node::open(directory.path());
    node.write(1..=5).await;
    // openraft purges while the state machine has not yet begun to install.
    node.log.purge(id(20)).await.unwrap();
    let state = node.log.get_log_state().await.unwrap();
    assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(id(20)), Some(id(20))));
    assert_eq!(node.log.try_get_log_entries(0..100).await.unwrap(), []);
    node.crash();

    let mut node = Node::open(directory.path());
    let state = node.log.get_log_state().await.unwrap();
    assert_eq!((state.last_purged_log_id, state.last_log_id), (None, Some(id(5))));
    assert_eq!(node.log.try_get_log_entries(0..100).await.unwrap().len(), 5);
    assert_eq!(node.keys(), numbers(1..=5));

    // The next entry leaves a gap: it waits for the snapshot.
    node.log.purge(id(20)).await.unwrap();
    let mut log = node.log.clone();
    {
        let mut append = pin!(log.blocking_append([set(21, 21, 21)]));
        let waits = tokio::time::timeout(Duration::from_millis(50), &mut append).await;
        assert!(waits.is_err(), "the entry was acknowledged, although the log has a gap before it");
        install(&mut node, &meta, &bytes).await;
        append.await.unwrap();
    }
    drop(log);
    node.crash();

    let mut node = Node::open(directory.path());
    let state = node.log.get_log_state().await.unwrap();
    assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(id(20)), Some(id(21))));
    assert_eq!(node.machine.applied_state().await.unwrap().0, Some(id(20)));
    assert_eq!(node.keys(), numbers(1..=20));
}

#[tokio::test]
async fn entries_without_a_gap_do_not_wait_for_the_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = Node::open(directory.path());
    node.log.blocking_append((1..=9).map(|index| set(index, index, index))).await.unwrap();
    node.log.purge(id(6)).await.unwrap();
    node.log.blocking_append([set(10, 10, 10)]).await.unwrap();
    let indexes = |entries: Vec<openraft::Entry<TypeConfig>>| -> Vec<u64> {
        entries.iter().map(|entry| entry.log_id.index).collect()
    };
    let entries = node.log.try_get_log_entries(2..).await.unwrap();
    assert_eq!(indexes(entries), [7, 8, 9, 10]);
    node.crash();
    let mut node = Node::open(directory.path());
    let entries = node.log.try_get_log_entries(2..).await.unwrap();
    assert_eq!(indexes(entries), (2..=10).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_append_that_waits_ends_when_the_state_machine_fails() {
    let (meta, mut bytes) = snapshot(20).await;
    let directory = tempfile::tempdir().unwrap();
    let mut node = Node::open(directory.path());
    node.log.purge(id(20)).await.unwrap();
    let mut log = node.log.clone();
    let append = tokio::spawn(async move { log.blocking_append([set(21, 21, 21)]).await });
    let mut received = node.machine.begin_receiving_snapshot().await.unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    received.write_all(&bytes).await.unwrap();
    node.machine.install_snapshot(&meta, received).await.unwrap_err();
    let error = append.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("cannot go on with 21"), "{error}");
    assert_eq!(node.files(), [""; 0]);
    assert_eq!(node.keys(), [""; 0]);
}

#[tokio::test]
async fn an_interrupted_installation_is_finished_and_parts_are_removed() {
    let (_, bytes) = snapshot(20).await;
    let directory = tempfile::tempdir().unwrap();
    let mut node = Node::open(directory.path());
    node.write(1..=5).await;
    let snapshots = node.snapshots.clone();
    node.crash();
    // As a crash leaves it after the directory was synced, with the part of a later one.
    fs::write(snapshots.join(format!("{:020}.snapshot", 7)), &bytes).unwrap();
    fs::write(snapshots.join(format!("{:020}.part", 8)), &bytes[..100]).unwrap();

    let mut node = Node::open(directory.path());
    assert_eq!(node.files(), [format!("{:020}.snapshot", 7)]);
    assert_eq!(node.machine.applied_state().await.unwrap().0, Some(id(20)));
    assert_eq!(node.keys(), numbers(1..=20));
    let current = node.machine.get_current_snapshot().await.unwrap().unwrap();
    assert_eq!(current.meta.last_log_id, Some(id(20)));
}

#[tokio::test]
async fn a_snapshot_of_another_node_is_copied() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("other")).unwrap();
    let mut leader = Node::open(&directory.path().join("other"));
    leader.write(1..=3).await;
    let snapshot = leader.machine.build_snapshot().await.unwrap();
    let mut node = Node::open(directory.path());
    node.machine.install_snapshot(&snapshot.meta, snapshot.snapshot).await.unwrap();
    assert_eq!(node.keys(), numbers(1..=3));
    assert_eq!((node.files().len(), leader.files().len()), (1, 1));
    // An older one does not replace it.
    node.write(4..=4).await;
    node.machine.build_snapshot().await.unwrap();
    let old = leader.machine.get_current_snapshot().await.unwrap().unwrap();
    node.machine.install_snapshot(&old.meta, old.snapshot).await.unwrap_err();
    assert_eq!(node.keys(), numbers(1..=4));
}

#[test]
fn an_engine_without_a_log_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::open(directory.path().join("store"), options().log(false)).unwrap();
    let snapshots = directory.path().join("snapshots");
    let opened = wattle_raft::open::<TypeConfig, crate::types::KeyValue>(&engine, &snapshots);
    let error = opened.err().expect("it has no log").to_string();
    assert!(error.contains("has no log"), "{error}");
    assert!(!snapshots.exists());
}

#[tokio::test]
async fn a_log_that_is_purged_beyond_all_else_is_refused() {
    let (meta, bytes) = snapshot(20).await;
    let directory = tempfile::tempdir().unwrap();
    let mut node = Node::open(directory.path());
    install(&mut node, &meta, &bytes).await;
    node.log.purge(id(20)).await.unwrap();
    // The state machine goes back, and the snapshot is not there: as with another directory.
    let tree = node.engine.open_tree("raft-machine").unwrap().unwrap();
    let mut txn = node.engine.begin().unwrap();
    txn.clear(&tree).unwrap();
    txn.commit().unwrap();
    drop((node.log, node.machine));
    let opened = wattle_raft::open::<TypeConfig, crate::types::KeyValue>(
        &node.engine,
        directory.path().join("empty"),
    );
    let error = opened.err().expect("the log is purged").to_string();
    assert!(error.contains("was purged up to"), "{error}");
}
