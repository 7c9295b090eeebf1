//! Single outcomes.

use super::{options, pages_of_trees};
use std::sync::Arc;
use wattle::{
    Engine, Error, Isolation, TxnOptions,
    io::{FaultPlan, SimStorage},
};
use wattle_tests::harness::{Device, assert_verified, eventually, small_pool};

fn open() -> Engine {
    Device::memory().open(options(128)).expect("open")
}

#[test]
fn a_tree_that_is_not_committed_is_no_tree_for_others() {
    let engine = open();
    let session = engine.session().expect("session");
    let pages = pages_of_trees(&engine);
    let mut txn = session.begin().expect("begin");
    let tree = txn.create_tree("t").expect("create");
    for key in 0..500_u32 {
        txn.put(&tree, &key.to_be_bytes(), &[3; 300]).expect("put");
    }
    assert!(engine.trees().expect("names").is_empty());
    assert!(engine.open_tree("t").expect("open").is_none());
    let other = engine.session().expect("session");
    let refused = other.put(&tree, b"key", b"").expect_err("it is not committed");
    assert!(matches!(refused, Error::Conflict(_)), "{refused}");
    let refused = other.bulk_load(&tree, [(b"key", b"")]).expect_err("it is not committed");
    assert!(matches!(refused, Error::Conflict(_)), "{refused}");
    let refused = engine.drop_tree(tree.clone()).expect_err("it is not committed");
    assert!(matches!(refused, Error::TreeInUse(_)), "{refused}");
    // Its pages are known to a verification, and move in a compaction.
    assert_verified(&engine);
    engine.compact().expect("compact");
    assert_verified(&engine);
    txn.abort().expect("abort");
    let refused = session.put(&tree, b"key", b"").expect_err("it was never committed");
    assert!(matches!(refused, Error::NoSuchTree(_)), "{refused}");
    let refused = engine.drop_tree(tree.clone()).expect_err("it was never committed");
    assert!(matches!(refused, Error::NoSuchTree(_)), "{refused}");
    let refused = engine.rename_tree(tree.clone(), "u").expect_err("it was never committed");
    assert!(matches!(refused, Error::NoSuchTree(_)), "{refused}");
    assert!(pages_of_trees(&engine) > pages, "a handle is left");
    drop(tree);
    eventually("its pages are free", || pages_of_trees(&engine) <= pages);
}

#[test]
fn a_handle_of_a_dropped_tree_reads_it_until_it_is_dropped_itself() {
    let engine = open();
    let session = engine.session().expect("session");
    let pages = pages_of_trees(&engine);
    let tree = engine.tree("t").expect("tree");
    for key in 0..500_u32 {
        session.put(&tree, &key.to_be_bytes(), &[3; 300]).expect("put");
    }
    session.put(&tree, b"large", &[4; 100_000]).expect("put");
    let reader = session.begin().expect("begin");
    let mut txn = engine.begin().expect("begin");
    txn.drop_tree("t").expect("drop");
    assert_eq!(txn.get(&tree, b"large").expect("get").map(|value| value.len()), Some(100_000));
    txn.commit().expect("commit");
    for _ in 0..2 {
        assert_eq!(reader.scan(&tree).expect("scan").count(), 501);
        assert_eq!(session.get(&tree, b"large").expect("get"), Some(vec![4; 100_000]));
        for refused in [
            session.put(&tree, b"key", b"").expect_err("it was dropped"),
            session.put(&tree, b"key", &[1; 9000]).expect_err("it was dropped"),
            session.remove(&tree, b"large").expect_err("it was dropped"),
            session.bulk_load(&tree, [(b"key", b"")]).map(drop).expect_err("it was dropped"),
            engine.drop_tree(tree.clone()).expect_err("it was dropped"),
        ] {
            assert!(matches!(refused, Error::NoSuchTree(_)), "{refused}");
        }
        assert_verified(&engine);
        // Also when another tree has the name.
        drop(engine.tree("t").expect("tree"));
    }
    let newer = engine.tree("t").expect("tree");
    assert!(!session.contains(&newer, b"large").expect("contains"));
    engine.drop_tree(newer).expect("drop");
    drop((reader, tree));
    eventually("its pages are free", || pages_of_trees(&engine) <= pages);
}

#[test]
fn a_rename_changes_the_name_of_handles_and_what_is_to_be_cleared_away_follows() {
    let engine = open();
    let session = engine.session().expect("session");
    let tree = engine.tree("t").expect("tree");
    let snapshot = session.begin().expect("begin");
    for key in 0..200_u32 {
        session.put(&tree, &key.to_be_bytes(), &[3; 300]).expect("put");
        session.put(&tree, &key.to_be_bytes(), &[5; 9000]).expect("put");
        session.remove(&tree, &key.to_be_bytes()).expect("remove");
    }
    // The snapshot holds ghosts and replaced large values, under the old name.
    let held = pages_of_trees(&engine);
    for turn in 0..50 {
        let mut txn = engine.begin().expect("begin");
        let (from, to) = if turn % 2 == 0 { ("t", "u") } else { ("u", "t") };
        txn.rename_tree(from, to).expect("rename");
        assert_eq!(tree.name(), from);
        txn.commit().expect("commit");
        assert_eq!(tree.name(), to);
    }
    let tree = {
        drop(tree);
        drop(snapshot);
        let tree = engine.tree("t").expect("tree");
        engine.rename_tree(tree, "v").expect("rename")
    };
    eventually("all is cleared away", || pages_of_trees(&engine) < held / 10);
    assert_eq!(engine.trees().expect("names"), ["v"]);
    drop((session, tree));
    assert_verified(&engine);
}

#[test]
fn names_that_were_changed_after_the_snapshot_are_conflicts_also_for_readers() {
    let engine = open();
    engine.tree("t").map(drop).expect("tree");
    let serializable = TxnOptions { isolation: Isolation::Serializable, ..TxnOptions::default() };
    let reader =
        engine.begin_with(TxnOptions { read_only: true, ..TxnOptions::default() }).expect("begin");
    let old = engine.begin().expect("begin");
    let mut reads = engine.begin_with(serializable).expect("begin");
    let other = engine.tree("other").expect("tree");
    // It relies on there being no such tree.
    reads.tree("none").map(drop).expect_err("there is none");
    reads.put(&other, b"key", b"").expect("put");
    engine.create_tree("none").expect("create");
    let conflict = reads.commit().expect_err("the name is taken");
    assert!(matches!(conflict, Error::Conflict(_)), "{conflict}");
    let mut txn = engine.begin().expect("begin");
    txn.rename_tree("t", "u").expect("rename");
    txn.commit().expect("commit");
    for txn in [&reader, &old] {
        for name in ["t", "u", "other", "none"] {
            let conflict = txn.tree(name).map(drop).expect_err("it changed");
            assert!(matches!(conflict, Error::Conflict(_)), "{conflict}");
        }
    }
    drop((reader, old));
    let txn = engine.begin().expect("begin");
    txn.tree("u").expect("a newer snapshot");
}

#[test]
fn a_serializable_transaction_that_read_a_tree_which_was_dropped_since_is_in_conflict() {
    let engine = open();
    let session = engine.session().expect("session");
    let (tree, other) = (engine.tree("t").expect("tree"), engine.tree("other").expect("tree"));
    session.put(&tree, b"key", b"value").expect("put");
    for reads_range in [false, true] {
        let serializable =
            TxnOptions { isolation: Isolation::Serializable, ..TxnOptions::default() };
        let mut txn = engine.begin_with(serializable).expect("begin");
        match reads_range {
            true => assert_eq!(txn.scan(&tree).expect("scan").count(), 1),
            false => assert!(txn.contains(&tree, b"key").expect("contains")),
        }
        txn.put(&other, b"key", b"").expect("put");
        if !reads_range {
            let mut drops = engine.begin().expect("begin");
            drops.drop_tree("t").expect("drop");
            drops.commit().expect("commit");
        }
        let refused = txn.commit().expect_err("it was dropped");
        match reads_range {
            // It began after the drop: a repetition would not help.
            true => assert!(matches!(refused, Error::NoSuchTree(_)), "{refused}"),
            false => assert!(matches!(refused, Error::Conflict(_)), "{refused}"),
        }
    }
}

#[test]
fn a_serializable_transaction_commits_after_a_creation_that_was_rolled_back() {
    let engine = open();
    let other = engine.tree("other").expect("tree");
    let serializable = TxnOptions { isolation: Isolation::Serializable, ..TxnOptions::default() };
    let mut txn = engine.begin_with(serializable).expect("begin");
    let savepoint = txn.savepoint();
    let tree = txn.create_tree("t").expect("create");
    txn.put(&tree, b"key", b"value").expect("put");
    assert!(txn.contains(&tree, b"key").expect("contains"));
    txn.rollback_to(&savepoint).expect("roll back");
    txn.put(&other, b"key", b"value").expect("put");
    txn.commit().expect("nothing that it has read was changed");
    assert_eq!(engine.trees().expect("names"), ["other"]);
}

#[test]
fn a_large_transaction_may_drop_a_tree_that_it_owns_and_others_may_not() {
    let options = options(256).version_bytes(1 << 20);
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("t").expect("tree");
    let mut large = engine.begin().expect("begin");
    for key in 0..5000_u32 {
        large.put(&tree, &key.to_be_bytes(), &[3; 300]).expect("put");
    }
    let mut other = engine.begin().expect("begin");
    other.drop_tree("t").expect("drop");
    let conflict = other.commit().expect_err("records of it are being changed");
    assert!(matches!(conflict, Error::Conflict(_)), "{conflict}");
    large.drop_tree("t").expect("drop");
    let savepoint = large.savepoint();
    large.create_tree("t").expect("create");
    large.rollback_to(&savepoint).expect("roll back");
    large.commit().expect("commit");
    let session = engine.session().expect("session");
    let refused = session.put(&tree, b"key", b"").expect_err("it was dropped");
    assert!(matches!(refused, Error::NoSuchTree(_)), "{refused}");
    drop((session, tree));
    assert!(engine.trees().expect("names").is_empty());
    assert_verified(&engine);
}

#[test]
fn creations_that_are_rolled_back_do_not_use_up_the_room_for_open_trees() {
    let engine = Device::memory().open(small_pool(48)).expect("open");
    let session = engine.session().expect("session");
    for turn in 0..200 {
        let mut txn = session.begin().expect("begin");
        for name in ["a", "b", "c"] {
            let tree = txn.create_tree(name).unwrap_or_else(|error| panic!("{turn}: {error}"));
            txn.put(&tree, b"key", &[1; 3000]).expect("put");
        }
        txn.abort().expect("abort");
    }
    let mut txn = session.begin().expect("begin");
    let error = (0..100).find_map(|number| txn.create_tree(&format!("{number}")).err());
    assert!(matches!(error, Some(Error::Limit(_))), "{error:?}");
    // It can go on with those that it has.
    txn.commit().expect("commit");
    assert_eq!(engine.trees().expect("names").len(), 11);
    drop(session);
    assert_verified(&engine);
}

#[test]
fn a_store_that_is_closed_or_copied_while_a_dropped_tree_has_handles_frees_it_when_opened() {
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let device = Device::sim(&sim);
    let engine = device.open(options(64)).expect("open");
    let pages = pages_of_trees(&engine);
    let session = engine.session().expect("session");
    let (dropped, kept) = (engine.tree("t").expect("tree"), engine.tree("kept").expect("tree"));
    for key in 0..500_u32 {
        session.put(&dropped, &key.to_be_bytes(), &[3; 300]).expect("put");
    }
    let mut txn = engine.begin().expect("begin");
    txn.drop_tree("t").expect("drop");
    txn.commit().expect("commit");
    let mut creates = engine.begin().expect("begin");
    let created = creates.create_tree("new").expect("create");
    creates.put(&created, b"key", &[5; 9000]).expect("put");
    let copy = Device::memory();
    engine.backup_on(copy.pages.clone(), copy.log.clone()).expect("backup");
    drop(creates);
    drop((session, kept));
    engine.close().expect("close");
    // The handles of both trees are still there, and only hold memory.
    assert_eq!(dropped.name(), "t");
    assert_eq!(created.name(), "new");
    for device in [device, copy] {
        let engine = device.open(options(64)).expect("open");
        assert_eq!(engine.trees().expect("names"), ["kept"]);
        // One for the tree.
        assert_eq!(pages_of_trees(&engine), pages + 1);
        assert_verified(&engine);
        engine.close().expect("close");
    }
}

#[cfg(feature = "async")]
#[test]
fn asynchronous_transactions_change_trees_as_others_do() {
    let engine = open();
    let ended = wattle::run(16, async {
        let session = engine.async_session()?;
        for commits in [false, true] {
            let mut txn = session.begin()?;
            let first = txn.create_tree("first").await?;
            txn.put(&first, b"key", b"value").await?;
            let savepoint = txn.savepoint();
            txn.create_tree("second").await.map(drop)?;
            txn.rename_tree("first", "third").await?;
            txn.rollback_to(&savepoint).await?;
            assert!(matches!(txn.tree("second").await, Err(Error::NoSuchTree(_))));
            assert_eq!(txn.tree("first").await?.name(), "first");
            match commits {
                true => txn.commit().await?,
                false => txn.abort().await?,
            }
        }
        let mut txn = session.begin()?;
        txn.rename_tree("first", "last").await?;
        txn.create_tree("gone").await.map(drop)?;
        txn.drop_tree("gone").await?;
        let other = engine.tree("last")?;
        let conflict = txn.commit().await.expect_err("another one took the name");
        assert!(matches!(conflict, Error::Conflict(_)), "{conflict}");
        assert!(session.scan(&other).await?.next_entry().await?.is_none());
        let first = engine.tree("first")?;
        assert_eq!(session.get(&first, b"key").await?.as_deref(), Some(&b"value"[..]));
        Ok::<(), Error>(())
    });
    ended.expect("a runtime").expect("no error");
    assert_eq!(engine.trees().expect("names"), ["first", "last"]);
    assert_verified(&engine);
}
