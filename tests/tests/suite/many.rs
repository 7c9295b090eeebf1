//! `put_many` and `remove_many` of sessions and transactions, blocking and asynchronous, against a
//! `BTreeMap`: keys that repeat, values of all sizes, batches that fail, conflicts, and a pool
//! smaller than the data. `WATTLE_ROUNDS` multiplies the length.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};
use wattle::{
    AsyncSession, Durability, Engine, Error, Isolation, MIN_LOG_BYTES, Options, Session, Tree,
    TxnOptions,
};
use wattle_tests::harness::{Device, assert_verified, rounds, seed, small_pool};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Records = Vec<(Vec<u8>, Vec<u8>)>;

const KEYS: u32 = 3_000;

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

/// Records of a batch. Some lie side by side, some keys come twice, and a few values are large.
fn records(random: &mut SmallRng) -> Records {
    let (first, is_run) = (random.random_range(0..KEYS), random.random_bool(0.3));
    let count = random.random_range(0..150);
    let number = |random: &mut SmallRng, at: u32| match is_run {
        true => (first + at) % KEYS,
        false => random.random_range(0..KEYS),
    };
    let record = |at| {
        let len = match random.random_range(0..60) {
            0 => random.random_range(2_000..9_000),
            n => n * 9,
        };
        (key(number(random, at)), vec![random.random::<u8>(); len])
    };
    (0..count).map(record).collect()
}

fn keys(records: &Records) -> Vec<&[u8]> {
    records.iter().map(|(key, _)| &key[..]).collect()
}

/// The effect of a loop.
fn put(model: &mut Map, records: &Records) {
    model.extend(records.iter().cloned());
}

fn remove(model: &mut Map, keys: &[&[u8]]) -> usize {
    keys.iter().filter(|key| model.remove(**key).is_some()).count()
}

/// The ways to change many records.
async fn change(
    session: &Session,
    tasks: &AsyncSession,
    tree: &Tree,
    model: &mut Map,
    random: &mut SmallRng,
) {
    let (new, old) = (records(random), records(random));
    let old = keys(&old);
    let isolation = match random.random_bool(0.2) {
        true => Isolation::Serializable,
        false => Isolation::Snapshot,
    };
    let options = TxnOptions { isolation, ..TxnOptions::default() };
    let removed = match random.random_range(0..5) {
        0 => {
            session.put_many(tree, &new).expect("put_many");
            session.remove_many(tree, &old).expect("remove_many")
        }
        1 => {
            tasks.put_many(tree, &new).await.expect("put_many");
            tasks.remove_many(tree, &old).await.expect("remove_many")
        }
        2 => {
            let mut txn = session.begin_with(options).expect("a transaction");
            txn.put_many(tree, &new).expect("put_many");
            let removed = txn.remove_many(tree, &old).expect("remove_many");
            txn.commit().expect("commit");
            removed
        }
        3 => {
            let mut txn = tasks.begin_with(options).expect("a transaction");
            txn.put_many(tree, &new).await.expect("put_many");
            let removed = txn.remove_many(tree, &old).await.expect("remove_many");
            txn.commit().await.expect("commit");
            removed
        }
        _ => {
            // One that fails in the middle, and one that is rolled back, change nothing.
            let mut bad = new.clone();
            bad.insert(new.len() / 2, (vec![1; 2_000], Vec::new()));
            let refused = session.put_many(tree, &bad);
            assert!(matches!(refused, Err(Error::KeyTooLong { .. })), "{refused:?}");
            let refused = session.remove_many(tree, &keys(&bad));
            assert!(matches!(refused, Err(Error::KeyTooLong { .. })), "{refused:?}");
            let mut txn = session.begin_with(options).expect("a transaction");
            txn.put_many(tree, &new).expect("put_many");
            txn.remove_many(tree, &old).expect("remove_many");
            return txn.abort().expect("abort");
        }
    };
    put(model, &new);
    assert_eq!(removed, remove(model, &old));
}

fn check(session: &Session, tree: &Tree, model: &Map) {
    let found: Map = session.scan(tree).expect("a scan").map(|entry| entry.unwrap()).collect();
    assert!(found == *model, "{} records, {} expected", found.len(), model.len());
}

fn options(frames: u64) -> Options {
    small_pool(frames).durability(Durability::None).log_bytes(MIN_LOG_BYTES)
}

#[test]
fn changes_of_many_records_agree_with_a_map() {
    let seed = seed();
    println!("seed {seed}");
    let device = Device::memory();
    let mut random = SmallRng::seed_from_u64(seed);
    let mut model = Map::new();
    for _ in 0..2 {
        let engine = device.open(options(120)).expect("open");
        let tree = engine.tree("t").expect("a tree");
        let (session, tasks) = (engine.session().unwrap(), engine.async_session().unwrap());
        wattle::run(8, async {
            for _ in 0..40 * rounds() {
                change(&session, &tasks, &tree, &mut model, &mut random).await;
            }
        })
        .unwrap_or_else(|error| println!("asynchronous part skipped: {error}"));
        check(&session, &tree, &model);
        drop((session, tasks, tree));
        assert_verified(&engine);
        engine.close().expect("close");
    }
    let engine = device.open(options(120)).expect("open");
    check(&engine.session().unwrap(), &engine.tree("t").unwrap(), &model);
}

#[test]
fn threads_that_change_many_records_lose_no_update() {
    const THREADS: u32 = 3;
    let seed = seed();
    println!("seed {seed}");
    let engine = Device::memory().open(options(200)).expect("open");
    let tree = engine.tree("t").expect("a tree");
    let own = |thread: u32, records: Records| -> Records {
        let suffix = format!("-{thread}").into_bytes();
        records.into_iter().map(|(key, value)| ([key, suffix.clone()].concat(), value)).collect()
    };
    let models: Vec<Map> = thread::scope(|scope| {
        let worker = |thread: u32| {
            let (engine, tree) = (&engine, &tree);
            move || {
                let mut random = SmallRng::seed_from_u64(seed ^ u64::from(thread));
                let session = engine.session().expect("a session");
                let mut model = Map::new();
                for _ in 0..40 * rounds() {
                    let new = own(thread, records(&mut random));
                    session.put_many(tree, &new).expect("put_many");
                    put(&mut model, &new);
                    let old = own(thread, records(&mut random));
                    let removed = session.remove_many(tree, &keys(&old)).expect("remove_many");
                    assert_eq!(removed, remove(&mut model, &keys(&old)));
                }
                model
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(worker(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    });
    let model = models.into_iter().flatten().collect();
    check(&engine.session().unwrap(), &tree, &model);
    assert_verified(&engine);
}

/// Records of which another transaction holds the last one.
fn held(engine: &Engine, tree: &Tree) -> Vec<(String, &'static str)> {
    let session = engine.session().expect("a session");
    let records: Vec<_> = (0..100).map(|number| (format!("{number:03}"), "new")).collect();
    session.put(tree, b"099", b"old").expect("put");
    records
}

#[test]
fn a_session_waits_for_the_transaction_that_holds_one_of_many_records() {
    let engine =
        Device::memory().open(options(200).conflict_wait(Duration::from_secs(60))).expect("open");
    let tree = engine.tree("t").expect("a tree");
    let records = held(&engine, &tree);
    let mut holder = engine.begin().expect("a transaction");
    holder.put(&tree, b"099", b"held").expect("put");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let session = engine.session().expect("a session");
            let began = Instant::now();
            session.put_many(&tree, &records).expect("put_many");
            began.elapsed()
        });
        thread::sleep(Duration::from_millis(100));
        holder.commit().expect("commit");
        assert!(waiting.join().expect("a thread") >= Duration::from_millis(50));
    });
    let session = engine.session().expect("a session");
    assert!(session.scan(&tree).unwrap().all(|entry| entry.unwrap().1 == b"new"));
}

#[test]
fn a_session_does_not_wait_for_its_own_transaction() {
    let engine =
        Device::memory().open(options(200).conflict_wait(Duration::from_secs(60))).expect("open");
    let tree = engine.tree("t").expect("a tree");
    let records = held(&engine, &tree);
    let session = engine.session().expect("a session");
    let mut holder = session.begin().expect("a transaction");
    holder.put(&tree, b"099", b"held").expect("put");
    let began = Instant::now();
    let refused = session.put_many(&tree, &records);
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(30));
    holder.commit().expect("commit");
    assert_eq!(session.scan(&tree).expect("a scan").count(), 1);
}
