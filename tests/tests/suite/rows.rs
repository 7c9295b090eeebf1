//! Threads and tasks side by side on rows. The number of changes of a row determines all of its
//! bytes, so a reader can tell whether a row ever existed, and whether two rows that are changed
//! together belong together. Most changes are of a few bytes, some make a row longer, shorter or
//! large.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use wattle::{
    AsyncSession, AsyncTransaction, Error, Isolation, MIN_LOG_BYTES, Options, Session, Transaction,
    Tree, TxnOptions,
    io::{Fault, FaultPlan, Op, SimStorage},
};
use wattle_tests::harness::{
    Device, Watchdog, assert_verified, give_up_after, rounds, seed, small_pool,
};

/// Records of the filler, of 1500 bytes.
const FILLER: u32 = 200;

fn pool() -> Options {
    // No snapshot is cancelled, however long the janitor waits for a processor.
    let options = small_pool(48).log_bytes(MIN_LOG_BYTES).version_bytes(1 << 30);
    options.stall_timeout(Duration::from_secs(10))
}

/// Rows that are changed in pairs, and rows that are changed alone.
const PAIRS: u32 = 24;
const ALONE: u32 = 12;
/// Changes in place of a row before it is replaced.
const IN_PLACE: u64 = 12;

fn name(row: u32) -> [u8; 5] {
    let [a, b, c, d] = row.to_be_bytes();
    [a, b, c, d, 0]
}

/// A row after this many changes: the number, and a byte for each change since it was replaced.
fn row(row: u32, changes: u64) -> Vec<u8> {
    let turn = changes / IN_PLACE;
    let mix = (turn + 7 * u64::from(row)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let len = match turn % 9 {
        5 => 2500 + mix as usize % 3000,
        2 => 1800 + mix as usize % 100,
        _ => 24 + mix as usize % 400,
    };
    let mut bytes = vec![mix as u8; len];
    bytes[..8].copy_from_slice(&changes.to_le_bytes());
    for change in turn * IN_PLACE + 1..=changes {
        bytes[8 + (change as usize * 7919 + mix as usize) % (len - 8)] = change as u8;
    }
    bytes
}

fn number(row: &[u8]) -> u64 {
    u64::from_le_bytes(row[..8].try_into().expect("8 bytes"))
}

/// How often a row was changed, if it is what it must be then.
fn assert_right(of: u32, found: &[u8]) -> u64 {
    let changes = number(found);
    let right = row(of, changes);
    assert!(found == right, "row {of} at {changes} is {found:02x?}, not {right:02x?}");
    changes
}

/// The next change of a row, which was changed `changes` times.
fn advance(
    txn: &mut Transaction<'_>,
    tree: &Tree,
    of: u32,
    changes: u64,
    random: &mut SmallRng,
) -> Result<(), Error> {
    let after = row(of, changes + 1);
    if !(changes + 1).is_multiple_of(IN_PLACE) && random.random_range(0..6) > 0 {
        let change = |value: &mut [u8]| value.copy_from_slice(&after);
        assert!(txn.modify(tree, &name(of), change)?);
        return Ok(());
    }
    if random.random_range(0..4) == 0 {
        assert!(txn.remove(tree, &name(of))?);
    }
    txn.put(tree, &name(of), &after)
}

/// Changes the two rows of a pair, more than once perhaps, and does or does not.
fn change_pair(session: &Session, tree: &Tree, random: &mut SmallRng) -> Result<bool, Error> {
    let isolation = match random.random_range(0..3) {
        0 => Isolation::Serializable,
        _ => Isolation::Snapshot,
    };
    let mut txn = session.begin_with(TxnOptions { isolation, ..TxnOptions::default() })?;
    for _ in 0..random.random_range(1..4) {
        let pair = random.random_range(0..PAIRS);
        let rows = [pair, pair + PAIRS];
        let changes = txn.get_with(tree, &name(pair), |row| assert_right(pair, row))?;
        let changes = changes.expect("a row");
        let mark = txn.savepoint();
        let times = random.random_range(1..4);
        for of in rows {
            (0..times).try_for_each(|i| advance(&mut txn, tree, of, changes + i, random))?;
        }
        if random.random_range(0..4) == 0 {
            txn.rollback_to(&mark)?;
            for of in rows {
                let found = txn.get_with(tree, &name(of), |row| assert_right(of, row))?;
                assert_eq!(found, Some(changes));
            }
        }
    }
    match random.random_range(0..5) {
        0 => txn.abort()?,
        1 => drop(txn),
        _ => {
            drop(txn.commit_ticket()?);
            return Ok(true);
        }
    }
    Ok(false)
}

/// How often each row was changed, as a transaction sees it.
fn all_rows(txn: &Transaction<'_>, tree: &Tree) -> Vec<u64> {
    let mut found = Vec::new();
    for entry in txn.scan(tree).expect("scan") {
        let (key, value) = entry.expect("entry");
        if key.len() == 5 && key[4] == 0 {
            let of = u32::from_be_bytes(key[..4].try_into().expect("4 bytes"));
            assert_eq!(of as usize, found.len());
            found.push(assert_right(of, &value));
        }
    }
    assert_eq!(found.len(), (2 * PAIRS + ALONE) as usize);
    let (left, right) = found[..2 * PAIRS as usize].split_at(PAIRS as usize);
    assert_eq!(left, right, "two rows of a pair");
    found
}

/// Snapshots of any age, and auto-committed look-ups, beside threads that change rows in place or
/// replace them, split and merge their leaves and evict their pages.
#[test]
fn rows_are_what_their_number_says_for_everybody() {
    for options in [pool(), pool().log(false)] {
        rows_beside(options);
    }
}

fn rows_beside(options: Options) {
    let seed = seed();
    println!("seed {seed}");
    let watchdog = Watchdog::start("rows", Duration::from_secs(60));
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("rows").expect("tree");
    let session = engine.session().expect("session");
    for of in 0..2 * PAIRS + ALONE {
        session.insert(&tree, &name(of), &row(of, 0)).expect("insert");
    }
    let stop = AtomicBool::new(false);
    let (commits, looks) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let (engine, tree, stop, commits, looks) = (&engine, &tree, &stop, &commits, &looks);
        let spawn = |number: u64, work: fn(&Session, &Tree, &mut SmallRng, &AtomicU64)| {
            scope.spawn(move || {
                let session = engine.session().expect("session");
                let mut random = SmallRng::seed_from_u64(seed ^ number << 32);
                // Also when a check fails.
                let _stop = Stop(stop);
                while !stop.load(Ordering::Relaxed) {
                    work(&session, tree, &mut random, commits);
                }
            });
        };
        for number in 0..2 {
            spawn(number, |session, tree, random, commits| {
                match change_pair(session, tree, random) {
                    Ok(true) => _ = commits.fetch_add(1, Ordering::Relaxed),
                    Ok(false) | Err(Error::Conflict(_)) => {}
                    Err(error) => panic!("a writer failed: {error}"),
                }
            });
        }
        spawn(2, |session, tree, random, _| {
            // The only one who changes these.
            let of = 2 * PAIRS + random.random_range(0..ALONE);
            let found = session.get_with(tree, &name(of), |row| assert_right(of, row));
            let after = row(of, found.expect("get").expect("a row") + 1);
            match number(&after) % IN_PLACE {
                0 => session.put_ticket(tree, &name(of), &after).map(drop).expect("put"),
                _ => {
                    let change = |value: &mut [u8]| value.copy_from_slice(&after);
                    let (found, _) =
                        session.modify_ticket(tree, &name(of), change).expect("modify");
                    assert!(found);
                }
            }
        });
        spawn(3, |session, tree, random, _| {
            // Records between the rows come and go.
            let of = random.random_range(0..2 * PAIRS + ALONE);
            let key = |number: u32| [&of.to_be_bytes()[..], &[1], &number.to_be_bytes()].concat();
            for number in 0..30 {
                session.put_ticket(tree, &key(number), &[3; 700]).map(drop).expect("put");
            }
            for number in 0..30 {
                session.remove_ticket(tree, &key(number)).map(drop).expect("remove");
            }
        });
        spawn(4, |session, tree, random, _| {
            // Newest commits that are durable: never back.
            let mut last = vec![0; (2 * PAIRS + ALONE) as usize];
            for _ in 0..200 {
                let rows: Vec<u32> =
                    (0..20).map(|_| random.random_range(0..2 * PAIRS + ALONE)).collect();
                let keys: Vec<_> = rows.iter().map(|of| name(*of)).collect();
                let mut look = |i: usize, found: Option<&[u8]>| {
                    let of = rows[i];
                    let changes = assert_right(of, found.expect("a row"));
                    let last = &mut last[of as usize];
                    assert!(changes >= *last, "row {of} was changed {last} times, now {changes}");
                    *last = changes;
                };
                match random.random() {
                    true => session.multi_get(tree, &keys, look).expect("get"),
                    false => (0..20).for_each(|i| {
                        let found = session.get(tree, &keys[i]).expect("get");
                        look(i, found.as_deref());
                    }),
                }
            }
        });
        let _stop = Stop(stop);
        let mut random = SmallRng::seed_from_u64(seed ^ 1 << 40);
        let mut held: Vec<(Transaction<'_>, Vec<u64>)> = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3 * rounds()) && !stop.load(Ordering::Relaxed) {
            if held.len() == 5 {
                held.swap_remove(random.random_range(0..5));
            }
            let txn = if random.random() { session.begin_read() } else { session.begin() };
            let txn = txn.expect("begin");
            let rows = all_rows(&txn, tree);
            held.push((txn, rows));
            let (txn, rows) = &held[random.random_range(0..held.len())];
            assert_eq!(all_rows(txn, tree), *rows);
            for _ in 0..20 {
                let of = random.random_range(0..2 * PAIRS + ALONE);
                let found = txn.get(tree, &name(of)).expect("get").expect("a row");
                assert_eq!(assert_right(of, &found), rows[of as usize], "row {of}");
            }
            looks.fetch_add(1, Ordering::Relaxed);
            watchdog.step();
        }
    });
    println!("{commits:?} commits, {looks:?} looks");
    assert_verified(&engine);
}

/// Stops the others.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// As [`change_pair`], by a task.
async fn change_pair_in_task(
    session: &AsyncSession,
    tree: &Tree,
    random: &mut SmallRng,
) -> Result<(), Error> {
    let mut txn = session.begin()?;
    for _ in 0..random.random_range(1..3) {
        let pair = random.random_range(0..PAIRS);
        let rows = [pair, pair + PAIRS];
        let changes = txn.get(tree, &name(pair)).await?.map(|row| assert_right(pair, &row));
        let changes = changes.expect("a row");
        let mark = txn.savepoint();
        let times = random.random_range(1..4);
        for of in rows {
            for number in changes + 1..=changes + times {
                let after = row(of, number);
                if !number.is_multiple_of(IN_PLACE) && random.random_range(0..6) > 0 {
                    let change = |value: &mut [u8]| value.copy_from_slice(&after);
                    assert!(txn.modify(tree, &name(of), change).await?);
                } else {
                    txn.put(tree, &name(of), &after).await?;
                }
            }
        }
        if random.random_range(0..4) == 0 {
            txn.rollback_to(&mark).await?;
            for of in rows {
                let found = txn.get(tree, &name(of)).await?.map(|row| assert_right(of, &row));
                assert_eq!(found, Some(changes));
            }
        }
    }
    match random.random_range(0..4) {
        0 => txn.abort().await,
        1 => txn.commit().await,
        _ => txn.commit_ticket().await.map(drop),
    }
}

/// Compares the pairs as several snapshots see them, each twice.
async fn look_at_pairs(session: &AsyncSession, tree: &Tree) -> Result<(), Error> {
    let mut held: Vec<(AsyncTransaction, Vec<u64>)> = Vec::new();
    for _ in 0..4 {
        let txn = session.begin()?;
        let mut found = Vec::new();
        for of in 0..2 * PAIRS {
            let row = txn.get(tree, &name(of)).await?.expect("a row");
            found.push(assert_right(of, &row));
        }
        let (left, right) = found.split_at(PAIRS as usize);
        assert_eq!(left, right, "two rows of a pair");
        held.push((txn, found));
        tokio::task::yield_now().await;
    }
    for (txn, found) in &held {
        let keys: Vec<_> = (0..2 * PAIRS).map(name).collect();
        let look = |i: usize, row: Option<&[u8]>| {
            assert_eq!(assert_right(i as u32, row.expect("a row")), found[i], "row {i}");
        };
        txn.multi_get(tree, &keys, look).await?;
    }
    Ok(())
}

/// The same by tasks that are cancelled anywhere, on a device with slow reads.
#[test]
fn rows_are_what_their_number_says_where_transactions_are_dropped_half_way() {
    let seed = seed();
    println!("seed {seed}");
    let watchdog = Arc::new(Watchdog::start("rows of tasks", Duration::from_secs(60)));
    let latency = Fault::Latency(Duration::from_micros(100));
    let plan = FaultPlan::new(seed).sometimes(Op::Read, 0.3, latency);
    let device = Device::sim(&Arc::new(SimStorage::new(plan)));
    let engine = device.open(pool()).expect("open");
    let tree = engine.tree("rows").expect("tree");
    let session = engine.session().expect("session");
    for of in 0..2 * PAIRS {
        session.insert(&tree, &name(of), &row(of, 0)).expect("insert");
    }
    // Of which few are in memory.
    let filler = engine.tree("filler").expect("tree");
    let rows: Vec<_> = (0..FILLER).map(|i| (i.to_be_bytes(), [i as u8; 1500])).collect();
    session.bulk_load(&filler, rows).expect("load");
    // Done, and dropped.
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let threads: Vec<_> = (0..2u64)
        .map(|thread| {
            let (engine, tree, filler) = (engine.clone(), tree.clone(), filler.clone());
            let (watchdog, counts) = (watchdog.clone(), counts.clone());
            thread::spawn(move || {
                let work = async move {
                    let session = engine.async_session().expect("session");
                    let tasks: Vec<_> = (0..8u64)
                        .map(|task| {
                            let (session, tree) = (session.clone(), tree.clone());
                            let (filler, watchdog) = (filler.clone(), watchdog.clone());
                            let counts = counts.clone();
                            tokio::task::spawn_local(async move {
                                let number = 8 * thread + task;
                                let mut random = SmallRng::seed_from_u64(seed ^ number << 32);
                                let begun = Instant::now();
                                while begun.elapsed() < Duration::from_secs(3 * rounds()) {
                                    let polls = random.random_range(0..12);
                                    let mut choice = SmallRng::from_rng(&mut random);
                                    let outcome = match task {
                                        0 => look_at_pairs(&session, &tree).await.map(Some),
                                        1 => {
                                            let i = random.random_range(0..FILLER).to_be_bytes();
                                            session.get(&filler, &i).await.map(|_| Some(()))
                                        }
                                        _ => {
                                            let work =
                                                change_pair_in_task(&session, &tree, &mut choice);
                                            give_up_after(polls, work).await.transpose()
                                        }
                                    };
                                    match outcome {
                                        Ok(Some(())) => {
                                            _ = counts[0].fetch_add(1, Ordering::Relaxed)
                                        }
                                        Ok(None) => _ = counts[1].fetch_add(1, Ordering::Relaxed),
                                        Err(Error::Conflict(_)) => tokio::task::yield_now().await,
                                        Err(error) => panic!("a task failed: {error}"),
                                    }
                                    watchdog.step();
                                }
                            })
                        })
                        .collect();
                    for task in tasks {
                        task.await.expect("a task panicked");
                    }
                };
                wattle::run(64, work).expect("runtime");
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread panicked"));
    println!("done, and dropped: {counts:?}");
    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) > 0));
    assert_verified(&engine);
}
