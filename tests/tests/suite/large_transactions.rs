//! Transactions larger than memory: the pool, the undo memory and the memory for versions.

use wattle::{Engine, Error, IoKind, Options};

const RECORDS: u64 = 24_000;

fn key(i: u64) -> [u8; 8] {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn options() -> Options {
    Options::default().pool_bytes(2 << 20).version_bytes(1 << 20).log_bytes(8 << 20)
}

#[test]
fn a_transaction_larger_than_everything_aborts_exactly_and_others_are_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    let engine = Engine::open(&path, options().io(IoKind::Threads)).expect("open");
    let tree = engine.tree("t").expect("tree");
    let session = engine.session().expect("session");
    session
        .bulk_load(&tree, {
            let mut keys: Vec<_> = (0..RECORDS).map(key).collect();
            keys.sort();
            keys.into_iter().map(|key| (key, [1u8; 100]))
        })
        .expect("load");
    let other = engine.session().expect("session");
    let reader = other.begin_read().expect("begin");
    for round in 0..2 {
        let mut txn = session.begin().expect("begin");
        for i in 0..RECORDS {
            match i % 3 {
                0 => assert!(txn.update(&tree, &key(i), &[2; 120]).expect("update")),
                1 => assert!(txn.remove(&tree, &key(i)).expect("remove")),
                _ => assert!(txn.modify(&tree, &key(i), |v| v[7] = 9).expect("modify")),
            }
        }
        // No other transaction may change the tree, and no read returns a wrong value.
        let third = engine.session().expect("session");
        let mut blocked = third.begin().expect("begin");
        assert!(matches!(blocked.put(&tree, &key(5), b"x"), Err(Error::Conflict(_))));
        drop(blocked);
        let mut hidden = 0;
        for i in (0..RECORDS).step_by(97) {
            match reader.get(&tree, &key(i)) {
                Ok(value) => assert_eq!(value.as_deref(), Some(&[1u8; 100][..])),
                Err(Error::SnapshotTooOld(_)) => hidden += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(hidden > 0, "a pool of 2 MiB cannot hold the old versions");
        if round == 0 {
            txn.abort().expect("abort");
            let mut count = 0;
            let mut range = session.scan(&tree).expect("scan");
            while let Some((_, value)) = range.next_entry().expect("entry") {
                assert_eq!(value, [1; 100]);
                count += 1;
            }
            assert_eq!(count, RECORDS);
        } else {
            txn.commit().expect("commit");
        }
    }
    // A snapshot from before the commit sees what it saw, or an error.
    for i in (0..RECORDS).step_by(97) {
        match reader.get(&tree, &key(i)) {
            Ok(value) => assert_eq!(value.as_deref(), Some(&[1u8; 100][..])),
            Err(Error::SnapshotTooOld(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    drop(reader);
    let check = |engine: &Engine| {
        let session = engine.session().expect("session");
        for i in 0..RECORDS {
            let value = session.get(&tree_of(engine), &key(i)).expect("get");
            match (i % 3, value) {
                (0, Some(value)) => assert_eq!(value, [2; 120]),
                (1, None) => {}
                (2, Some(value)) => assert!(value[7] == 9 && value[8] == 1),
                (_, value) => panic!("record {i} is {value:?}"),
            }
        }
        let report = engine.verify(&mut |_| {}).expect("verify");
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    };
    check(&engine);
    drop((session, other, tree));
    engine.close().expect("close");
    let engine = Engine::open(&path, options().io(IoKind::Threads)).expect("open");
    check(&engine);
    engine.close().expect("close");
}

/// Changes that were rolled back do not make a transaction large.
#[test]
fn a_transaction_that_tries_again_and_again_leaves_the_tree_to_others() {
    let options = Options::default().io(IoKind::Memory).version_bytes(1 << 20);
    let engine = Engine::open("m", options).expect("open");
    let tree = engine.tree("t").expect("tree");
    let [session, other] = [(); 2].map(|()| engine.session().expect("session"));
    for i in 0..200 {
        session.put(&tree, &key(i), &[1; 100]).expect("put");
    }
    let mut txn = session.begin().expect("begin");
    assert!(txn.modify(&tree, &key(0), |value| value[0] = 7).expect("modify"));
    let before = txn.savepoint();
    // Versions of 4 MB in all, of 20 KB at a time.
    for _ in 0..200 {
        for i in 1..100 {
            match i % 3 {
                0 => assert!(txn.update(&tree, &key(i), &[2; 150]).expect("update")),
                1 => assert!(txn.remove(&tree, &key(i)).expect("remove")),
                _ => assert!(txn.modify(&tree, &key(i), |value| value.fill(3)).expect("modify")),
            }
        }
        txn.rollback_to(&before).expect("roll back");
        other.put(&tree, &key(150), b"other").expect("the tree is open to all");
    }
    txn.commit().expect("commit");
    for i in 0..150 {
        let expected = [if i == 0 { 7 } else { 1 }, 1];
        assert_eq!(other.get(&tree, &key(i)).expect("get").expect("there")[..2], expected);
    }
}

fn tree_of(engine: &Engine) -> wattle::Tree {
    engine.open_tree("t").expect("open").expect("there")
}
