//! Commits that have returned, as other sessions see them: at once, whatever their durability,
//! unless the engine was opened to show what is durable only.

use std::{ops::Bound, ops::ControlFlow, sync::Arc, time::Duration};
use wattle::{
    AsyncSession, Direction, Durability, Engine, Reads, Session, Tree, TxnOptions,
    io::{FaultPlan, SimStorage},
};
use wattle_tests::harness::{Device, Watchdog, assert_verified, small_pool};

const KEY: &[u8] = b"the key";

fn opened(durability: Durability) -> (Engine, Tree) {
    let engine = Device::memory().open(small_pool(256).durability(durability)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    (engine, tree)
}

/// Every way in which a session reads a record, without a transaction and in new ones.
fn assert_sees(session: &Session, tree: &Tree, expected: &[u8]) {
    let is = |found: Option<Vec<u8>>, how: &str| {
        assert_eq!(found.as_deref(), Some(expected), "{how} does not see a commit that returned");
    };
    is(session.get(tree, KEY).expect("get"), "get");
    let mut found = None;
    let one = |_: usize, value: Option<&[u8]>| found = value.map(<[u8]>::to_vec);
    session.multi_get(tree, &[KEY], one).expect("multi_get");
    is(found, "multi_get");
    let first = |mut range: wattle::Range<'_>| {
        range.next_entry().expect("entry").map(|(_, value)| value.to_vec())
    };
    is(first(session.scan(tree).expect("scan")), "scan");
    is(first(session.prefix(tree, b"the").expect("prefix")), "prefix");
    is(first(session.scan(tree).expect("scan").rev()), "a scan backwards");
    is(session.begin_read().expect("begin").get(tree, KEY).expect("get"), "begin_read");
    is(session.begin().expect("begin").get(tree, KEY).expect("get"), "begin");
}

async fn assert_task_sees(session: &AsyncSession, tree: &Tree, expected: &[u8]) {
    let is = |found: Option<Vec<u8>>, how: &str| {
        assert_eq!(found.as_deref(), Some(expected), "{how} does not see a commit that returned");
    };
    is(session.get(tree, KEY).await.expect("get"), "get");
    let mut found = None;
    let visit = |_: &[u8], value: &[u8]| {
        found = Some(value.to_vec());
        ControlFlow::Break(())
    };
    let all = (Bound::Unbounded, Bound::Unbounded);
    session.visit(tree, all, Direction::Forward, visit).await.expect("scan");
    is(found, "scan");
    is(session.begin_read().expect("begin").get(tree, KEY).await.expect("get"), "begin_read");
    is(session.begin().expect("begin").get(tree, KEY).await.expect("get"), "begin");
}

/// The ways in which a session commits without waiting for a flush.
const WAYS: u32 = 5;

fn commit(session: &Session, tree: &Tree, way: u32, value: &[u8]) {
    let unlogged = TxnOptions { durability: Some(Durability::None), ..TxnOptions::default() };
    match way {
        0 => drop(session.put_ticket(tree, KEY, value).expect("put")),
        1 => {
            let same = |bytes: &mut [u8]| bytes.copy_from_slice(value);
            drop(session.modify_ticket(tree, KEY, same).expect("modify"));
        }
        2 => {
            let mut txn = session.begin().expect("begin");
            txn.put(tree, KEY, value).expect("put");
            drop(txn.commit_ticket().expect("commit"));
        }
        3 => {
            let mut txn = session.begin_with(unlogged).expect("begin");
            txn.put(tree, KEY, value).expect("put");
            txn.commit().expect("commit");
        }
        _ => {
            drop(session.remove_ticket(tree, KEY).expect("remove"));
            drop(session.insert_ticket(tree, KEY, value).expect("insert"));
        }
    }
}

#[test]
fn every_session_sees_a_commit_that_has_returned_whatever_its_durability() {
    for durability in [Durability::Sync, Durability::Group, Durability::None] {
        let _watchdog = Watchdog::start("visible commits", Duration::from_secs(30));
        let (engine, tree) = opened(durability);
        let (writer, reader) =
            (engine.session().expect("session"), engine.session().expect("session"));
        writer.put(&tree, KEY, &[0; 8]).expect("put");
        for number in 1..200u64 {
            let value = number.to_be_bytes();
            commit(&writer, &tree, number as u32 % WAYS, &value);
            assert_sees(&reader, &tree, &value);
        }
        let (engine, tree) = (&engine, &tree);
        wattle::run(64, async move {
            let reader = engine.async_session().expect("session");
            let writer = engine.session().expect("session");
            for number in 1..200u64 {
                let value = number.to_be_bytes();
                commit(&writer, tree, number as u32 % WAYS, &value);
                assert_task_sees(&reader, tree, &value).await;
            }
        })
        .expect("runtime");
        assert_verified(engine);
    }
}

/// The other choice: what is not durable is seen by its own session only.
#[test]
fn with_reads_of_what_is_durable_others_see_a_commit_when_its_ticket_says_so() {
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let options = small_pool(256).reads(Reads::Durable);
    let engine = Device::sim(&device).open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let (writer, reader) = (engine.session().expect("session"), engine.session().expect("session"));
    for number in 0..50u64 {
        let value = number.to_be_bytes();
        let ticket = writer.put_ticket(&tree, KEY, &value).expect("put");
        assert_sees(&writer, &tree, &value);
        let early = reader.get(&tree, KEY).expect("get");
        if early.as_deref() == Some(&value) {
            assert!(ticket.is_durable(), "commit {number} was seen before it was durable");
        }
        ticket.wait().expect("durable");
        assert_sees(&reader, &tree, &value);
    }
    assert_verified(&engine);
}

/// A commit that depends on one that no flush has written is durable only together with it: after a
/// crash both are there.
#[test]
fn a_durable_commit_that_depends_on_another_one_brings_it_along() {
    for seed in 0..20 {
        let device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        let engine = Device::sim(&device).open(small_pool(256)).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let (first, second) =
            (engine.session().expect("session"), engine.session().expect("session"));
        commit(&first, &tree, [0, 2, 3][seed as usize % 3], b"12345678");
        let seen = second.get(&tree, KEY).expect("get").expect("a commit that returned");
        match seed % 4 {
            0 => second.put(&tree, b"copy", &seen).expect("put"),
            1 => {
                let mut txn = second.begin().expect("begin");
                let seen = txn.get(&tree, KEY).expect("get").expect("a commit that returned");
                txn.put(&tree, b"copy", &seen).expect("put");
                txn.commit().expect("commit");
            }
            2 => {
                // One that only reads relies on it when its commit returns.
                let txn = second.begin_read().expect("begin");
                assert_eq!(txn.get(&tree, KEY).expect("get"), Some(seen));
                txn.commit().expect("commit");
            }
            // That a key exists is said when that is durable.
            _ => {
                let exists = second.insert(&tree, KEY, b"other").expect_err("it exists");
                assert!(matches!(exists, wattle::Error::KeyExists), "{exists}");
            }
        }
        let left = Arc::new(device.crash_as(seed, wattle::io::Cut::Nothing));
        drop((first, second, tree, engine));
        let engine = Device::sim(&left).open(small_pool(256)).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let session = engine.session().expect("session");
        let found = session.get(&tree, KEY).expect("get");
        assert_eq!(found.as_deref(), Some(&b"12345678"[..]), "seed {seed}");
        if seed % 4 < 2 {
            assert_eq!(session.get(&tree, b"copy").expect("get"), found, "seed {seed}");
        }
    }
}
