//! A node whose process is killed at random moments.
//!
//! The parent starts this test binary again as a child, which does what openraft does with the
//! stores, in a random order: it appends, applies, votes, builds snapshots beside that, purges, and
//! installs snapshots while the log is purged and goes on after them. The child prints what was
//! acknowledged. The parent kills it, opens the stores and checks the invariants of `machine.rs`;
//! then the next child goes on with the same files.
//!
//! `WATTLE_RAFT_CRASH_SEED` repeats the decisions of a run, not its timing, and
//! `WATTLE_RAFT_CRASH_ROUNDS` makes it longer.

use crate::{
    install::Node,
    types::{Machine, TypeConfig, id, set},
};
use openraft::{
    Entry, RaftLogReader, RaftSnapshotBuilder, Vote,
    storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine},
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DIRECTORY: &str = "WATTLE_RAFT_CRASH_DIRECTORY";
const SEED: &str = "WATTLE_RAFT_CRASH_SEED";
const ROUNDS: &str = "WATTLE_RAFT_CRASH_ROUNDS";
/// A child whose parent has died ends after this time.
const CHILD_LIFE: Duration = Duration::from_secs(60);

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// The entry of an index: the same in all processes.
fn entry(index: u64) -> Entry<TypeConfig> {
    set(index, index * 7919 % 300, format!("{index} {}", "x".repeat((index * 31 % 400) as usize)))
}

/// The records after the entries up to `last`.
fn model(last: u64) -> BTreeMap<String, String> {
    let entries = (1..=last).map(|index| match entry(index).payload {
        openraft::EntryPayload::Normal(set) => (set.key, set.value),
        _ => unreachable!("all entries set a key"),
    });
    entries.collect()
}

fn records(node: &Node) -> BTreeMap<String, String> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let txn = node.engine.begin().unwrap();
    let records = txn.scan(node.machine.tree()).unwrap();
    records.map(|record| record.map(|(key, value)| (text(key), text(value))).unwrap()).collect()
}

async fn applied(machine: &mut Machine) -> u64 {
    machine.applied_state().await.unwrap().0.map_or(0, |id| id.index)
}

async fn last(node: &mut Node) -> u64 {
    node.log.get_log_state().await.unwrap().last_log_id.map_or(0, |id| id.index)
}

/// Applies entries that are in the log.
async fn apply(node: &mut Node, to: u64) {
    let from = applied(&mut node.machine).await + 1;
    if from <= to {
        let entries = node.log.try_get_log_entries(from..=to).await.unwrap();
        assert_eq!(entries, (from..=to).map(entry).collect::<Vec<_>>());
        node.machine.apply(entries).await.unwrap();
    }
}

/// Gives a node a snapshot of the entries up to `to`, as its leader does, and goes on after it.
async fn install(node: &mut Node, leader: &mut Node, to: u64, more: u64) {
    let from = applied(&mut leader.machine).await + 1;
    leader.machine.apply((from..=to).map(entry)).await.unwrap();
    let mut snapshot = leader.machine.build_snapshot().await.unwrap();
    let mut received = node.machine.begin_receiving_snapshot().await.unwrap();
    let mut bytes = Vec::new();
    snapshot.snapshot.read_to_end(&mut bytes).await.unwrap();
    received.write_all(&bytes).await.unwrap();
    let installs = async {
        node.machine.install_snapshot(&snapshot.meta, received).await.unwrap();
        println!("snapshot {to}");
    };
    let log = async {
        node.log.purge(id(to)).await.unwrap();
        if more > 0 {
            node.log.blocking_append((to + 1..=to + more).map(entry)).await.unwrap();
            println!("log {}", to + more);
        }
    };
    // openraft sends the snapshot to a task, and purges before that task has begun.
    tokio::join!(log, installs);
}

async fn run(directory: &Path, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut node = Node::open(&directory.join("node"));
    let leader = tempfile::tempdir_in(directory).unwrap();
    let mut leader = Node::open(leader.path());
    let start = Instant::now();
    let (mut next, done) = (last(&mut node).await + 1, applied(&mut node.machine).await);
    if next <= done {
        // As openraft does when it starts.
        node.log.purge(id(done)).await.unwrap();
        next = done + 1;
    }
    let mut vote = node.log.read_vote().await.unwrap().map_or(0, |vote| vote.leader_id.term);
    println!("ready");
    while start.elapsed() < CHILD_LIFE {
        match random.random_range(0..20) {
            0..8 => {
                let end = next + random.random_range(1..30);
                node.log.blocking_append((next..end).map(entry)).await.unwrap();
                next = end;
                println!("log {}", next - 1);
            }
            8..13 => apply(&mut node, next - 1).await,
            13 => {
                vote += 1;
                node.log.save_vote(&Vote::new(vote, 0)).await.unwrap();
                println!("vote {vote}");
            }
            14..16 => {
                let mut builder = node.machine.get_snapshot_builder().await;
                let builds = tokio::spawn(async move {
                    let built = builder.build_snapshot().await.unwrap();
                    if let Some(id) = built.meta.last_log_id {
                        println!("snapshot {}", id.index);
                    }
                });
                apply(&mut node, next - 1).await;
                if random.random_ratio(1, 3) {
                    install(&mut node, &mut leader, next + 3, 2).await;
                    next += 6;
                }
                builds.await.unwrap();
            }
            16..18 => {
                let current = node.machine.get_current_snapshot().await.unwrap();
                if let Some(id) = current.and_then(|snapshot| snapshot.meta.last_log_id) {
                    let keep = random.random_range(0..10);
                    let to = crate::types::id(id.index.saturating_sub(keep));
                    if node.log.get_log_state().await.unwrap().last_purged_log_id < Some(to) {
                        node.log.purge(to).await.unwrap();
                    }
                }
            }
            _ => {
                let to = next + random.random_range(0..40);
                let more = random.random_range(0..5);
                install(&mut node, &mut leader, to, more).await;
                next = to + more + 1;
            }
        }
    }
}

/// The child. Without its directory it has nothing to do.
#[test]
fn child() {
    let Some(directory) = env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(run(&directory, number(SEED).unwrap()));
}

/// The newest log entry, vote and snapshot that a child has acknowledged.
#[derive(Debug, Default)]
struct Acknowledged {
    log: u64,
    vote: u64,
    snapshot: u64,
}

/// Runs a child, kills it after some time, and gives the number of lines it has printed.
fn kill_one(directory: &Path, seed: u64, life: Duration, acknowledged: &mut Acknowledged) -> usize {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["crash::child", "--exact", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let ready = lines.by_ref().any(|line| line.ends_with("ready"));
    let reader = thread::spawn(move || lines.collect::<Vec<_>>());
    thread::sleep(life);
    child.kill().unwrap();
    let status = child.wait().unwrap();
    let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    assert!(ready && killed, "the child failed before it was killed: {status}");
    let lines = reader.join().unwrap();
    for line in &lines {
        // The last line may be cut.
        let Some((what, count)) = line.split_once(' ') else { continue };
        let Ok(count) = count.parse::<u64>() else { continue };
        match what {
            "log" => acknowledged.log = acknowledged.log.max(count),
            "vote" => acknowledged.vote = acknowledged.vote.max(count),
            "snapshot" => acknowledged.snapshot = acknowledged.snapshot.max(count),
            _ => {}
        }
    }
    lines.len()
}

async fn check(directory: &Path, acknowledged: &Acknowledged) {
    let mut node = Node::open(&directory.join("node"));
    let state = node.log.get_log_state().await.unwrap();
    let purged = state.last_purged_log_id.map_or(0, |id| id.index);
    let last = state.last_log_id.map_or(0, |id| id.index);
    let applied = applied(&mut node.machine).await;
    let current = node.machine.get_current_snapshot().await.unwrap();
    let kept = current.as_ref().and_then(|current| current.meta.last_log_id);
    let kept = kept.map_or(0, |id| id.index);
    let now = format!("purged {purged}, last {last}, applied {applied}, snapshot {kept}");
    println!("{now}; {acknowledged:?}");

    assert!(purged <= applied, "the log lacks entries: {now}");
    assert!(kept <= applied, "the installation was not finished: {now}");
    assert!(last.max(applied) >= acknowledged.log, "an entry is lost: {now}");
    assert!(kept >= acknowledged.snapshot, "a snapshot is lost: {now}");
    let vote = node.log.read_vote().await.unwrap().map_or(0, |vote| vote.leader_id.term);
    assert!(vote >= acknowledged.vote, "a vote is lost: {vote}");
    let entries = node.log.try_get_log_entries(purged + 1..).await.unwrap();
    assert_eq!(entries, (purged + 1..=last).map(entry).collect::<Vec<_>>(), "{now}");
    assert_eq!(records(&node), model(applied), "{now}");
    assert!(node.files().len() <= 1, "{:?}", node.files());

    if let Some(current) = current {
        let other = tempfile::tempdir().unwrap();
        let mut other = Node::open(other.path());
        other.machine.install_snapshot(&current.meta, current.snapshot).await.unwrap();
        assert_eq!(records(&other), model(kept), "{now}");
    }
    node.crash();
}

#[tokio::test]
async fn stores_survive_kills_at_random_moments() {
    let seed = number(SEED).unwrap_or_else(|| rand::rng().random());
    let rounds = number(ROUNDS).unwrap_or(6);
    println!("{SEED}={seed} {ROUNDS}={rounds}");
    let mut random = StdRng::seed_from_u64(seed);
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("node")).unwrap();
    let (mut acknowledged, mut lines) = (Acknowledged::default(), 0);
    for _ in 0..rounds {
        let life = Duration::from_millis(random.random_range(0..500));
        lines += kill_one(directory.path(), random.random(), life, &mut acknowledged);
        check(directory.path(), &acknowledged).await;
    }
    assert!(lines > 0, "no child did anything before it was killed");
}
