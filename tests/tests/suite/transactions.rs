//! Transactions: what they see, what others see of them, how they end. Each rule without a log,
//! and with one that commits wait for or not.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use wattle::{
    Durability, Engine, Error, Isolation, MIN_LOG_BYTES, Options, Reads, Session, Transaction,
    Tree, TxnOptions,
    io::{Cut, Fault, FaultPlan, Op, SimStorage},
};
use wattle_tests::harness::{Device, Watchdog, assert_verified, eventually, rounds, small_pool};

/// Without a log, and with one that commits wait for or not.
fn modes() -> [Options; 3] {
    let logged = small_pool(128).log_bytes(MIN_LOG_BYTES).stall_timeout(Duration::from_secs(10));
    let logged = logged.conflict_wait(Duration::from_secs(1));
    [logged.clone().log(false), logged.clone(), logged.durability(Durability::None)]
}

/// Runs a test in each mode, on an empty tree.
fn each_mode(test: impl Fn(&Engine, &Tree)) {
    for options in modes() {
        println!("{options:?}");
        let engine = Device::memory().open(options).expect("open");
        let tree = engine.tree("tree").expect("tree");
        test(&engine, &tree);
        assert_verified(&engine);
        drop(tree);
        engine.close().expect("nothing holds the engine");
    }
}

fn session(engine: &Engine) -> Session {
    engine.session().expect("session")
}

fn get(session: &Session, tree: &Tree, key: &[u8]) -> Option<Vec<u8>> {
    session.get(tree, key).expect("get")
}

fn see(txn: &Transaction<'_>, tree: &Tree, key: &[u8]) -> Option<Vec<u8>> {
    txn.get(tree, key).expect("get in a transaction")
}

fn value(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(bytes.to_vec())
}

/// All records that a transaction sees, checked in both directions.
fn all(txn: &Transaction<'_>, tree: &Tree) -> Vec<(Vec<u8>, Vec<u8>)> {
    let read = |entry: wattle::Result<_>| entry.expect("entry");
    let forward: Vec<_> = txn.scan(tree).expect("scan").map(read).collect();
    let mut backward: Vec<_> = txn.scan(tree).expect("scan").rev().map(read).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    forward
}

#[track_caller]
fn assert_conflict<T: std::fmt::Debug>(outcome: wattle::Result<T>) {
    let error = outcome.expect_err("a conflict");
    assert!(matches!(error, Error::Conflict(_)), "{error:?}");
}

#[track_caller]
fn assert_must_abort<T: std::fmt::Debug>(outcome: wattle::Result<T>) {
    let error = outcome.expect_err("it can only be aborted");
    assert!(matches!(error, Error::MustAbort(_)), "{error:?}");
}

#[test]
fn changes_are_seen_by_their_transaction_at_once_and_by_others_after_the_commit() {
    each_mode(|engine, tree| {
        let (one, two) = (session(engine), session(engine));
        one.put(tree, b"changed", b"old").expect("put");
        one.put(tree, b"removed", b"old").expect("put");
        let mut txn = one.begin().expect("begin");
        txn.insert(tree, b"added", b"new").expect("insert");
        assert!(txn.update(tree, b"changed", b"newer and longer").expect("update"));
        assert!(txn.modify(tree, b"changed", |value| value[0] = b'N').expect("modify"));
        assert!(txn.remove(tree, b"removed").expect("remove"));
        assert!(!txn.remove(tree, b"removed").expect("remove"), "it is gone for its remover");
        assert!(!txn.update(tree, b"removed", b"x").expect("update"));
        assert!(!txn.modify(tree, b"removed", |_| ()).expect("modify"));
        assert!(!txn.contains(tree, b"removed").expect("contains"));
        let own = [
            (b"added".to_vec(), b"new".to_vec()),
            (b"changed".to_vec(), b"Newer and longer".to_vec()),
        ];
        assert_eq!(all(&txn, tree), own);
        // Nothing of it is visible to others: not to single reads, not to older or newer
        // transactions.
        let older = two.begin().expect("begin");
        let others =
            [(b"changed".to_vec(), b"old".to_vec()), (b"removed".to_vec(), b"old".to_vec())];
        assert_eq!(all(&older, tree), others);
        assert_eq!(get(&two, tree, b"added"), None);
        assert_eq!(get(&two, tree, b"changed"), value(b"old"));
        let mut found = [None, None, None];
        let keys = [&b"added"[..], b"changed", b"removed"];
        two.multi_get(tree, &keys, |i, value| found[i] = value.map(<[u8]>::to_vec)).expect("get");
        assert_eq!(found, [None, value(b"old"), value(b"old")]);
        txn.commit().expect("commit");
        // Everybody does from now on, except who began before.
        assert_eq!(all(&older, tree), others);
        assert_eq!(see(&older, tree, b"removed"), value(b"old"));
        assert_eq!(get(&two, tree, b"added"), value(b"new"));
        assert_eq!(get(&two, tree, b"removed"), None);
        assert_eq!(all(&two.begin().expect("begin"), tree), own);
        assert_eq!(all(&two.begin_read().expect("begin"), tree), own);
    });
}

#[test]
fn an_abort_and_a_drop_take_every_change_back() {
    each_mode(|engine, tree| {
        let one = session(engine);
        for i in 0..500u32 {
            one.put(tree, &i.to_be_bytes(), &[i as u8; 50]).expect("put");
        }
        let before = all(&one.begin().expect("begin"), tree);
        for dropped in [false, true] {
            let mut txn = one.begin().expect("begin");
            for i in 0..1000u32 {
                match i % 4 {
                    0 => txn.put(tree, &i.to_be_bytes(), &[9; 200]).expect("put"),
                    1 => drop(txn.remove(tree, &i.to_be_bytes()).expect("remove")),
                    2 => drop(txn.modify(tree, &i.to_be_bytes(), |v| v.fill(1)).expect("modify")),
                    _ => {
                        // Twice, and there and back again.
                        txn.put(tree, &i.to_be_bytes(), b"").expect("put");
                        txn.remove(tree, &i.to_be_bytes()).expect("remove");
                        txn.insert(tree, &i.to_be_bytes(), b"again").expect("insert");
                    }
                }
            }
            let reader = engine.begin().expect("begin");
            assert_eq!(all(&reader, tree), before, "while it is open");
            if dropped {
                drop(txn);
            } else {
                txn.abort().expect("abort");
            }
            assert_eq!(all(&reader, tree), before, "after it was taken back");
            assert_eq!(all(&one.begin().expect("begin"), tree), before);
        }
        // The records are free again.
        one.put(tree, &4u32.to_be_bytes(), b"free").expect("put");
    });
}

#[test]
fn the_later_writer_of_a_record_gets_a_conflict_and_can_only_abort_and_try_again() {
    each_mode(|engine, tree| {
        let (one, two) = (session(engine), session(engine));
        one.put(tree, b"k", b"0").expect("put");
        one.put(tree, b"other", b"0").expect("put");
        type Write = fn(&mut Transaction<'_>, &Tree) -> wattle::Result<()>;
        let writes: [Write; 6] = [
            |txn, tree| txn.put(tree, b"k", b"second"),
            |txn, tree| txn.insert(tree, b"k", b"second"),
            |txn, tree| txn.update(tree, b"k", b"second").map(|_| ()),
            |txn, tree| txn.modify(tree, b"k", |value| value.fill(2)).map(|_| ()),
            |txn, tree| txn.remove(tree, b"k").map(|_| ()),
            |txn, tree| txn.put(tree, b"k", &[2; 5000]),
        ];
        for (i, write) in writes.into_iter().enumerate() {
            for committed in [false, true] {
                let mut first = one.begin().expect("begin");
                let mut second = two.begin().expect("begin");
                second.put(tree, b"other", b"of the second").expect("put");
                first.put(tree, b"k", b"first").expect("put");
                if committed {
                    first.commit().expect("commit");
                    assert_conflict(write(&mut second, tree));
                } else {
                    assert_conflict(write(&mut second, tree));
                    first.abort().expect("abort");
                }
                // Whatever became of the first, the second has lost.
                assert_must_abort(second.get(tree, b"other"));
                assert_must_abort(second.put(tree, b"else", b""));
                assert_must_abort(second.remove(tree, b"else"));
                assert_must_abort(second.scan(tree).map(|_| ()));
                assert_must_abort(second.multi_get(tree, &[b"k"], |_, _| ()));
                if committed {
                    assert_must_abort(second.commit());
                } else {
                    second.abort().expect("abort");
                }
                assert_eq!(get(&two, tree, b"other"), value(b"0"), "write {i} left something");
                let mut again = two.begin().expect("begin");
                match write(&mut again, tree) {
                    Ok(()) | Err(Error::KeyExists) => {}
                    Err(error) => panic!("write {i} again: {error}"),
                }
                again.commit().expect("commit");
                one.put(tree, b"k", b"0").expect("put");
            }
        }
    });
}

#[test]
fn a_record_added_or_removed_after_the_snapshot_is_a_conflict_and_not_a_wrong_answer() {
    each_mode(|engine, tree| {
        let one = session(engine);
        let two = session(engine);
        for large in [false, true] {
            let new = if large { vec![3; 9000] } else { vec![3; 9] };
            one.put(tree, b"removed", &new).expect("put");
            let snapshot = || two.begin().expect("begin");
            let (mut a, mut b, mut c, mut d) = (snapshot(), snapshot(), snapshot(), snapshot());
            assert!(one.remove(tree, b"removed").expect("remove"));
            one.insert(tree, b"added", &new).expect("insert");
            // Each sees the record that it cannot change, or does not see it.
            assert_eq!(see(&a, tree, b"removed").as_ref(), Some(&new));
            assert_conflict(a.update(tree, b"removed", &new));
            assert_conflict(b.insert(tree, b"added", &new));
            assert_conflict(c.remove(tree, b"removed"));
            assert_eq!(see(&d, tree, b"added"), None);
            assert_conflict(d.update(tree, b"added", &new));
            drop((a, b, c, d));
            assert!(one.remove(tree, b"added").expect("remove"));
        }
    });
}

#[test]
fn inserts_of_a_key_that_exists_fail_without_an_end_to_the_transaction() {
    each_mode(|engine, tree| {
        let one = session(engine);
        one.put(tree, b"small", b"0").expect("put");
        one.put(tree, b"large", &[7; 9000]).expect("put");
        let mut txn = one.begin().expect("begin");
        for key in [&b"small"[..], b"large"] {
            for new in [&b"1"[..], &[1; 7000]] {
                let error = txn.insert(tree, key, new).expect_err("it exists");
                assert!(matches!(error, Error::KeyExists), "{error:?}");
                assert!(!txn.update(tree, b"absent", new).expect("update"));
            }
        }
        assert!(txn.remove(tree, b"small").expect("remove"));
        txn.insert(tree, b"small", &[1; 7000]).expect("its own removal made room");
        txn.commit().expect("commit");
        assert_eq!(get(&one, tree, b"small"), Some(vec![1; 7000]));
        assert_eq!(get(&one, tree, b"large"), Some(vec![7; 9000]));
    });
}

#[test]
fn a_large_value_that_takes_long_to_write_gets_its_turn_among_small_ones() {
    let _watchdog = Watchdog::start("a large value among small ones", Duration::from_secs(120));
    each_mode(|engine, tree| {
        let (done, changes) = (AtomicBool::new(false), AtomicU64::new(0));
        let (one, large) = (session(engine), vec![8; 8 << 20]);
        thread::scope(|scope| {
            scope.spawn(|| {
                let session = session(engine);
                while !done.load(Ordering::Relaxed) {
                    let turn = changes.fetch_add(1, Ordering::Relaxed);
                    drop(session.put_ticket(tree, b"key", &turn.to_le_bytes()).expect("put"));
                }
            });
            while changes.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            // Until the other one has changed the record meanwhile.
            let (mut put, mut changed) = (Ok(()), 0);
            while put.is_ok() && changed < 2 {
                let before = changes.load(Ordering::Relaxed);
                put = one.put(tree, b"key", &large);
                changed = changes.load(Ordering::Relaxed) - before;
            }
            let updated = one.update(tree, b"key", &large);
            let inserted = one.insert(tree, b"key", &large);
            done.store(true, Ordering::Relaxed);
            put.expect("put");
            assert!(updated.expect("update"));
            assert!(matches!(inserted, Err(Error::KeyExists)), "{inserted:?}");
        });
        one.put(tree, b"key", &large).expect("put");
        assert_eq!(get(&one, tree, b"key"), Some(large));
    });
}

#[test]
fn auto_committed_changes_wait_for_a_transaction_in_their_way_for_as_long_as_they_may() {
    each_mode(|engine, tree| {
        let one = session(engine);
        one.put(tree, b"k", b"0").expect("put");
        for large in [false, true] {
            let new = if large { vec![4; 6000] } else { vec![4; 6] };
            let mut txn = one.begin().expect("begin");
            txn.put(tree, b"k", b"1").expect("put");
            let (held, began) = (Duration::from_millis(200), Instant::now());
            thread::scope(|scope| {
                let waiting = scope.spawn(|| session(engine).put(tree, b"k", &new));
                thread::sleep(held);
                txn.commit().expect("commit");
                waiting.join().expect("thread").expect("it waited and then succeeded");
            });
            assert!(began.elapsed() >= held);
            assert_eq!(get(&one, tree, b"k").as_ref(), Some(&new));
            let mut txn = one.begin().expect("begin");
            txn.put(tree, b"k", b"2").expect("put");
            let began = Instant::now();
            let in_time = || {
                let waited = began.elapsed();
                let limits = Duration::from_millis(950)..Duration::from_secs(9);
                assert!(limits.contains(&waited), "it gave up after {waited:?}");
            };
            thread::scope(|scope| {
                scope.spawn(|| {
                    assert_conflict(session(engine).put(tree, b"k", &new));
                    in_time();
                });
                assert_conflict(session(engine).remove(tree, b"k"));
                in_time();
            });
            // Reads never wait.
            assert_eq!(get(&session(engine), tree, b"k").as_ref(), Some(&new));
            txn.abort().expect("abort");
            one.put(tree, b"k", b"0").expect("put");
        }
    });
}

#[test]
fn a_transaction_that_only_reads_refuses_changes_and_sees_one_moment() {
    each_mode(|engine, tree| {
        let one = session(engine);
        one.put(tree, b"k", b"0").expect("put");
        let mut reader = one.begin_read().expect("begin");
        let refused = |outcome: wattle::Result<()>| {
            assert!(matches!(outcome, Err(Error::ReadOnly)), "{outcome:?}");
        };
        refused(reader.put(tree, b"k", b"1"));
        refused(reader.insert(tree, b"l", &[1; 9000]));
        refused(reader.update(tree, b"k", b"1").map(|_| ()));
        refused(reader.modify(tree, b"k", |_| ()).map(|_| ()));
        refused(reader.remove(tree, b"k").map(|_| ()));
        session(engine).put(tree, b"k", b"1").expect("put");
        assert_eq!(see(&reader, tree, b"k"), value(b"0"));
        reader.commit().expect("commit");
        assert_eq!(see(&one.begin_read().expect("begin"), tree, b"k"), value(b"1"));
    });
}

#[test]
fn a_transaction_with_a_session_of_its_own_moves_with_its_owner() {
    fn both_ends(engine: &Engine, tree: &Tree) -> wattle::Result<()> {
        let mut txn: Transaction<'static> = engine.begin()?;
        txn.put(tree, b"k", b"1")?;
        let kept = vec![txn, engine.begin_with(TxnOptions::default())?];
        for (i, txn) in kept.into_iter().enumerate() {
            assert_eq!(txn.get(tree, b"k")?.is_some(), i == 0);
            txn.commit()?;
        }
        Ok(())
    }
    each_mode(|engine, tree| {
        both_ends(engine, tree).expect("transactions");
        assert_eq!(get(&session(engine), tree, b"k"), value(b"1"));
    });
}

#[test]
fn a_tree_cannot_be_dropped_while_a_transaction_holds_changes_of_it() {
    each_mode(|engine, tree| {
        let one = session(engine);
        for isolation in [Isolation::Snapshot, Isolation::Serializable] {
            let doomed = engine.create_tree("doomed").expect("create");
            let options = TxnOptions { isolation, ..TxnOptions::default() };
            let mut txn = one.begin_with(options).expect("begin");
            txn.put(&doomed, b"k", b"1").expect("put");
            txn.put(tree, b"k", b"1").expect("put");
            let error = engine.drop_tree(doomed).expect_err("it is in use");
            assert!(matches!(error, Error::TreeInUse(_)), "{error:?}");
            let doomed = engine.open_tree("doomed").expect("open").expect("it is still there");
            let error = engine.rename_tree(doomed, "new name").expect_err("it is in use");
            assert!(matches!(error, Error::TreeInUse(_)), "{error:?}");
            txn.commit().expect("commit");
            let doomed = engine.open_tree("doomed").expect("open").expect("it is still there");
            assert_eq!(get(&one, &doomed, b"k"), value(b"1"));
            // Garbage that waits for the janitor does not keep it, even while a snapshot is old.
            let old = engine.begin().expect("begin");
            one.put(&doomed, b"large", &[1; 9000]).expect("put");
            assert!(one.remove(&doomed, b"large").expect("remove"));
            assert!(one.remove(&doomed, b"k").expect("remove"));
            // Nor are transactions of other trees, whatever their session changed before.
            let mut elsewhere = one.begin().expect("begin");
            elsewhere.put(tree, b"elsewhere", b"1").expect("put");
            let renamed = engine.rename_tree(doomed, "renamed").expect("rename");
            assert_eq!(see(&old, &renamed, b"k"), value(b"1"));
            engine.drop_tree(renamed).expect("drop");
            elsewhere.commit().expect("commit");
            drop(old);
            assert_eq!(engine.trees().expect("names"), ["tree"]);
        }
    });
}

#[test]
fn a_transaction_spans_trees_and_leaves_both_or_neither() {
    each_mode(|engine, tree| {
        let one = session(engine);
        let other = engine.tree("other").expect("tree");
        for commits in [false, true] {
            let mut txn = one.begin().expect("begin");
            txn.put(tree, b"k", b"1").expect("put");
            txn.put(&other, b"k", &[1; 5000]).expect("put");
            if commits { txn.commit() } else { txn.abort() }.expect("end");
            assert_eq!(get(&one, tree, b"k").is_some(), commits);
            assert_eq!(get(&one, &other, b"k").is_some(), commits);
        }
        let foreign = Device::memory().open(small_pool(64).log(false)).expect("open");
        let foreign = foreign.tree("foreign").expect("tree");
        let mut txn = one.begin().expect("begin");
        let error = txn.put(&foreign, b"k", b"1").expect_err("a tree of another engine");
        assert!(matches!(error, Error::ForeignTree(_)), "{error:?}");
    });
}

#[test]
fn tickets_come_at_once_and_tell_when_thousands_of_commits_are_durable() {
    each_mode(|engine, tree| {
        let one = session(engine);
        let mut tickets = Vec::new();
        for i in 0..3000u32 {
            let mut txn = one.begin().expect("begin");
            txn.put(tree, &i.to_be_bytes(), b"of a transaction").expect("put");
            tickets.push(txn.commit_ticket().expect("commit"));
            let auto = one.put_ticket(tree, &(i + 10_000).to_be_bytes(), b"alone");
            tickets.push(auto.expect("put"));
            // The session sees its own commits, durable or not.
            assert!(get(&one, tree, &i.to_be_bytes()).is_some());
        }
        for ticket in tickets {
            let copy = ticket.clone();
            ticket.wait().expect("durable");
            assert!(copy.is_durable());
        }
        assert_eq!(one.scan(tree).expect("scan").count(), 6000);
    });
}

#[test]
fn a_commit_that_was_acknowledged_is_seen_by_every_session() {
    for options in modes() {
        println!("{options:?}");
        let engine = Device::memory().open(options).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let watchdog = Watchdog::start("acknowledged commits", Duration::from_secs(30));
        let acknowledged: Arc<[AtomicU64; 3]> = Arc::default();
        let started = Barrier::new(5);
        thread::scope(|scope| {
            for writer in 0..3u8 {
                let (engine, tree, acknowledged) = (&engine, &tree, acknowledged.clone());
                let (started, watchdog) = (&started, &watchdog);
                scope.spawn(move || {
                    let session = session(engine);
                    started.wait();
                    for i in 1..=4000 * rounds() {
                        let number = i.to_be_bytes();
                        if i % 2 == 0 {
                            session.put(tree, &[writer], &number).expect("put");
                        } else {
                            let mut txn = session.begin().expect("begin");
                            txn.put(tree, &[writer], &number).expect("put");
                            txn.commit().expect("commit");
                        }
                        acknowledged[usize::from(writer)].store(i, Ordering::SeqCst);
                        watchdog.step();
                    }
                });
            }
            for reader in 0..2 {
                let (engine, tree, acknowledged) = (&engine, &tree, acknowledged.clone());
                let started = &started;
                scope.spawn(move || {
                    let session = session(engine);
                    let number = |value: Option<Vec<u8>>| {
                        value.map_or(0, |value| u64::from_be_bytes(value.try_into().expect("8")))
                    };
                    started.wait();
                    for turn in 0usize.. {
                        let writer = turn % 3;
                        let known = acknowledged[writer].load(Ordering::SeqCst);
                        let found = match (turn + reader) % 3 {
                            0 => session.get(tree, &[writer as u8]).expect("get"),
                            1 => see(&session.begin_read().expect("begin"), tree, &[writer as u8]),
                            _ => see(&session.begin().expect("begin"), tree, &[writer as u8]),
                        };
                        let found = number(found);
                        let how = (turn + reader) % 3;
                        assert!(found >= known, "read {how}: {found} after {known} was durable");
                        if known == 4000 * rounds() {
                            break;
                        }
                    }
                });
            }
        });
        assert_verified(&engine);
    }
}

#[test]
fn sessions_read_their_own_commits_before_they_are_durable_and_others_do_not() {
    let device = Device::memory();
    let options = small_pool(128).log_bytes(MIN_LOG_BYTES).reads(Reads::Durable);
    let engine = device.open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let (one, two) = (session(&engine), session(&engine));
    for i in 0..2000u32 {
        let key = i.to_be_bytes();
        let ticket = one.put_ticket(&tree, &key, b"v").expect("put");
        assert!(get(&one, &tree, &key).is_some(), "its own commit");
        let seen = get(&two, &tree, &key).is_some();
        assert!(!seen || ticket.is_durable(), "a commit that is not durable was seen");
        let seen = see(&two.begin_read().expect("begin"), &tree, &key).is_some();
        assert!(!seen || ticket.is_durable(), "a commit that is not durable was seen");
        // A transaction that is begun sees it, and its own end waits for it.
        let txn = two.begin().expect("begin");
        assert!(see(&txn, &tree, &key).is_some());
        txn.commit().expect("commit");
        assert!(ticket.is_durable(), "what was read is durable when a commit returns");
    }
}

/// Where reads see the newest commits they do so at once, also of records whose versions are gone
/// and in pages that carry the mark of somebody else; and a transaction that only reads is done
/// when these are durable.
#[test]
fn newest_commits_are_seen_at_once_and_read_only_transactions_wait_for_them() {
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let options = small_pool(128).log_bytes(MIN_LOG_BYTES).durability(Durability::Group);
    let engine = Device::sim(&device).open(options.reads(Reads::Newest)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let (one, two, other) = (session(&engine), session(&engine), session(&engine));
    for key in [b"changed", b"removed", b"written"] {
        one.put(&tree, key, b"old").expect("put");
    }
    let late = Fault::Latency(Duration::from_millis(400));
    device.set_plan(FaultPlan::new(1).always(Op::LogSync, late));
    for marked in [false, true] {
        let value = format!("new {marked}").into_bytes();
        let changed = one.put_ticket(&tree, b"changed", &value).expect("put");
        let (found, removed) = one.remove_ticket(&tree, b"removed").expect("remove");
        // Only the page has the time of a commit without a version.
        eventually("no version is left", || engine.stats().version_bytes == 0);
        let mut writer = other.begin().expect("begin");
        if marked {
            writer.put(&tree, b"written", b"mark").expect("put");
        }
        assert!(found && get(&two, &tree, b"removed").is_none());
        assert_eq!(get(&two, &tree, b"changed").as_ref(), Some(&value));
        let tickets = [b"changed", b"removed"].map(|key| {
            let read = two.begin_read().expect("begin");
            assert_eq!(see(&read, &tree, key), (key == b"changed").then(|| value.clone()));
            read.commit_ticket().expect("commit")
        });
        let waits = tickets.each_ref().map(|ticket| !ticket.is_durable());
        assert!(waits == [true; 2] || removed.is_durable(), "{waits:?}, {marked}");
        for (ticket, of) in tickets.into_iter().zip([&changed, &removed]) {
            ticket.wait().expect("durable");
            assert!(of.is_durable(), "what was read could still be lost: {marked}");
        }
        drop(writer);
        one.put(&tree, b"removed", b"again").expect("put");
    }
}

#[test]
fn transactions_without_changes_wait_for_commits_that_they_scanned_or_saw_removed() {
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let options = || small_pool(128).log_bytes(MIN_LOG_BYTES).durability(Durability::Group);
    let engine = Device::sim(&device).open(options()).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let (one, two) = (session(&engine), session(&engine));
    for i in 0..200u32 {
        one.put(&tree, &i.to_be_bytes(), &[1; 100]).expect("put");
    }
    let before = all(&two.begin().expect("begin"), &tree);
    // Durable, and nothing newer: there is nothing to wait for.
    let txn = two.begin().expect("begin");
    assert_eq!(all(&txn, &tree), before);
    assert!(txn.commit_ticket().expect("commit").is_durable());
    let late = Fault::Latency(Duration::from_millis(300));
    device.set_plan(FaultPlan::new(1).always(Op::LogSync, late));
    let (found, removed) = one.remove_ticket(&tree, &7u32.to_be_bytes()).expect("remove");
    let changed = one.put_ticket(&tree, &190u32.to_be_bytes(), b"new").expect("put");
    let (scan, miss) = (two.begin().expect("begin"), session(&engine));
    let miss = miss.begin().expect("begin");
    assert!(found && see(&miss, &tree, &7u32.to_be_bytes()).is_none());
    assert_eq!(all(&scan, &tree).len(), before.len() - 1);
    let tickets =
        [miss.commit_ticket(), scan.commit_ticket()].map(|ticket| ticket.expect("commit"));
    let waits = tickets.each_ref().map(|ticket| !ticket.is_durable());
    assert!(waits == [true; 2] || removed.is_durable(), "{waits:?}");
    for (ticket, of) in tickets.into_iter().zip([&removed, &changed]) {
        ticket.wait().expect("durable");
        assert!(of.is_durable(), "what was read could still be lost");
    }
    // Now it is what readers of what is durable see, and they wait for nothing.
    let read = two.begin_read().expect("begin");
    assert_eq!(all(&read, &tree).len(), before.len() - 1);
    assert!(read.commit_ticket().expect("commit").is_durable());
}

/// That a record is there, or is not, is said because of a commit.
/// Nor does one that needs a transaction, because its value or that of the other is large.
#[test]
fn an_insert_with_a_large_value_says_nothing_that_a_crash_takes_back() {
    for (first, second) in [(10, 10_000), (10_000, 10), (10_000, 10_000)] {
        let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
        let options = || small_pool(128).log_bytes(MIN_LOG_BYTES).durability(Durability::Sync);
        let engine = Device::sim(&device).open(options()).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let (one, two) = (session(&engine), session(&engine));
        one.insert(&tree, b"other", &[1; 3000]).expect("insert");
        let late = Fault::Latency(Duration::from_millis(300));
        device.set_plan(FaultPlan::new(1).always(Op::LogSync, late));
        let ticket = one.insert_ticket(&tree, b"key", &vec![1; first]).expect("insert");
        let outcome = two.insert(&tree, b"key", &vec![2; second]);
        assert!(matches!(outcome, Err(Error::KeyExists)), "{outcome:?}");
        let crashed = Arc::new(device.crash_as(7, Cut::Nothing));
        let again = Device::sim(&crashed).open(options()).expect("open");
        let tree = again.open_tree("tree").expect("open").expect("it is there");
        let found = session(&again).get(&tree, b"key").expect("get");
        assert_eq!(found, Some(vec![1; first]), "{first} and {second} bytes");
        ticket.wait().expect("commit");
    }
}

#[test]
fn operations_that_change_nothing_say_nothing_that_a_crash_takes_back() {
    for (durability, reads) in [
        (Durability::Sync, Reads::Durable),
        (Durability::Sync, Reads::Newest),
        (Durability::Group, Reads::Durable),
        (Durability::Group, Reads::Newest),
    ] {
        let device = Arc::new(SimStorage::new(FaultPlan::new(3)));
        let options =
            || small_pool(128).log_bytes(MIN_LOG_BYTES).durability(durability).reads(reads);
        let open = |device| Device::sim(device).open(options()).expect("open");
        let engine = open(&device);
        let tree = engine.tree("tree").expect("tree");
        let (one, two) = (session(&engine), session(&engine));
        let keys: [&[u8]; 3] = [b"update", b"modify", b"remove"];
        for key in keys {
            two.put(&tree, key, b"v").expect("put");
        }
        let tickets = [one.insert_ticket(&tree, b"insert", b"v").expect("insert")]
            .into_iter()
            .chain(keys.map(|key| one.remove_ticket(&tree, key).expect("remove").1));
        let tickets: Vec<_> = tickets.collect();
        // A ticket of what was not changed is one of the commit that it is said of.
        let (found, ticket) = two.update_ticket(&tree, b"update", b"w").expect("update");
        assert!(!found && (!ticket.is_durable() || tickets[1].is_durable()));
        let outcome = two.insert(&tree, b"insert", b"w");
        assert!(matches!(outcome, Err(Error::KeyExists)), "{outcome:?}");
        assert!(tickets[0].is_durable(), "the key exists, and could vanish");
        assert!(!two.update(&tree, b"update", b"w").expect("update"));
        assert!(!two.modify(&tree, b"modify", |_| {}).expect("modify"));
        assert!(!two.remove(&tree, b"remove").expect("remove"));
        let again = open(&Arc::new(device.crash_as(1, Cut::Nothing)));
        let tree = again.tree("tree").expect("tree");
        let (session, all) =
            (again.begin().expect("begin"), vec![(b"insert".to_vec(), b"v".to_vec())]);
        assert_eq!(self::all(&session, &tree), all);
    }
}

#[test]
fn a_change_that_panics_leaves_the_record_to_others() {
    each_mode(|engine, tree| {
        let (one, other) = (engine.session().expect("session"), engine.session().expect("session"));
        for key in [b"a", b"b"] {
            one.put(tree, key, b"before").expect("put");
        }
        let mut txn = one.begin().expect("begin");
        assert!(txn.modify(tree, b"a", |value| value[0] = b'B').expect("modify"));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            txn.modify(tree, b"b", |_| panic!("on purpose"))
        }));
        assert!(panicked.is_err());
        // Not changed, so an auto-committed operation meets no conflict.
        other.put(tree, b"b", b"after").expect("put");
        txn.abort().expect("abort");
        for (key, value) in [(b"a", b"before".as_slice()), (b"b", b"after")] {
            assert_eq!(other.get(tree, key).expect("get").as_deref(), Some(value));
        }
    });
}

#[test]
fn of_a_change_the_log_has_the_key_once_and_two_words_beside_the_values() {
    const CHANGES: u64 = 200;
    let (key_len, value_len) = (120, 60);
    let options = small_pool(128).log_bytes(16 << 20);
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = session(&engine);
    let record =
        |number: u64, byte: u8| (format!("{number:0key_len$}").into_bytes(), vec![byte; value_len]);
    for number in 0..CHANGES {
        let (key, value) = record(number, 1);
        session.put(&tree, &key, &value).expect("put");
    }
    let logged = || {
        engine.sync().expect("sync");
        let stats = engine.stats();
        stats.log_record_bytes - stats.log_image_bytes
    };
    let before = logged();
    let mut txn = session.begin().expect("begin");
    for number in 0..CHANGES {
        let (key, value) = record(number, 2);
        txn.put(&tree, &key, &value).expect("put");
    }
    txn.commit().expect("commit");
    let bytes = (logged() - before) / CHANGES;
    let (least, most) = (key_len + 2 * value_len, key_len + 2 * value_len + 16 + 8);
    assert!((least as u64..=most as u64).contains(&bytes), "{bytes} bytes for each change");
}
