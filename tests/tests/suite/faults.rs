//! A device that fails: every operation succeeds or gives a clear error within bounded time,
//! nothing that was acknowledged is lost once the device works again, and an operation that failed
//! has changed nothing.
//!
//! Without a log the following cannot be detected: the device acknowledges a write and loses it,
//! and the older image of the same page is valid. The store is then a mixture of two states. A
//! misdirected write is also a lost one, and so is a torn one of which no changed sector arrives.
//! In these cases the suites expect an error or an older answer.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::ErrorKind,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use wattle::{
    Engine, Error, Session, Tree,
    io::{Fault, FaultPlan, MemoryStorage, Op, SimStorage, Storage, Unit},
};
use wattle_tests::harness::{
    Asked, Device, Watchdog, assert_verified, eventually, rounds, small_pool, unlogged_pool,
};

/// Frames of the pools: much less than the data.
const FRAMES: u64 = 48;

/// Performs operations that may fail, and knows what must be there whatever failed.
struct Client {
    number: u8,
    random: SmallRng,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    /// All values that a key ever had.
    history: HashMap<Vec<u8>, HashSet<Vec<u8>>>,
    failed: u64,
    done: u64,
    large: bool,
}

impl Client {
    fn new(number: u8, seed: u64, large: bool) -> Client {
        let random = SmallRng::seed_from_u64(seed ^ (u64::from(number) << 32));
        let (model, history) = (BTreeMap::new(), HashMap::new());
        Client { number, random, model, history, failed: 0, done: 0, large }
    }

    fn key(&mut self) -> Vec<u8> {
        let number: u32 = self.random.random_range(0..1500);
        let mut key = number.wrapping_mul(0x9e37_79b1).to_be_bytes().to_vec();
        key.push(self.number);
        key
    }

    fn value(&mut self) -> Vec<u8> {
        let large = self.large && self.random.random_range(0..40) == 0;
        let len = if large { self.random.random_range(2000..30_000) } else { 0 };
        let len = len.max(self.random.random_range(0..500));
        let start: u8 = self.random.random();
        (0..len).map(|i| start.wrapping_add((i * 7) as u8)).collect()
    }

    fn set(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.history.entry(key.clone()).or_default().insert(value.clone());
        self.model.insert(key, value);
    }

    /// One operation, compared with the model when it succeeds.
    fn step(&mut self, session: &Session, tree: &Tree) {
        let key = self.key();
        let known = self.model.get(&key).cloned();
        let outcome = match self.random.random_range(0..10) {
            0..3 => {
                let value = self.value();
                session.put(tree, &key, &value).map(|()| self.set(key, value))
            }
            3 => {
                let value = self.value();
                match session.insert(tree, &key, &value) {
                    Ok(()) => {
                        assert!(known.is_none(), "{key:02x?} was inserted twice");
                        self.set(key, value);
                        Ok(())
                    }
                    Err(Error::KeyExists) => {
                        assert!(known.is_some(), "{key:02x?} should not exist");
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            4 => {
                let value = self.value();
                session.update(tree, &key, &value).map(|updated| {
                    assert_eq!(updated, known.is_some(), "update of {key:02x?}");
                    if updated {
                        self.set(key, value);
                    }
                })
            }
            5 => {
                let change = |value: &mut [u8]| value.iter_mut().for_each(|byte| *byte ^= 0x55);
                session.modify(tree, &key, change).map(|modified| {
                    assert_eq!(modified, known.is_some(), "modify of {key:02x?}");
                    if let Some(mut value) = known {
                        change(&mut value);
                        self.set(key, value);
                    }
                })
            }
            6 => session.remove(tree, &key).map(|removed| {
                assert_eq!(removed, known.is_some(), "remove of {key:02x?}");
                self.model.remove(&key);
            }),
            _ => session.get(tree, &key).map(|value| {
                assert!(value == known, "get of {key:02x?}");
            }),
        };
        match outcome {
            Ok(()) => self.done += 1,
            Err(error) => {
                self.failed += 1;
                assert_clear(&error);
            }
        }
    }

    fn check_all(&self, session: &Session, tree: &Tree) {
        let found = session.scan(tree).expect("scan").map(|entry| entry.expect("scan entry"));
        let mut found = found.filter(|(key, _)| key.last() == Some(&self.number));
        for (key, value) in &self.model {
            let (found_key, found_value) = found.next().expect("records are lost");
            assert_eq!(&found_key, key, "scan");
            assert!(&found_value == value, "scan of {key:02x?}");
            assert!(session.get(tree, key).expect("get").as_ref() == Some(value), "{key:02x?}");
        }
        assert_eq!(found.next(), None, "a record that should be gone");
    }
}

/// An error of the device, in words.
fn assert_clear(error: &Error) {
    assert!(
        matches!(error, Error::Io { .. } | Error::DiskFull { .. })
            || matches!(error, Error::Corruption { .. } | Error::PoolExhausted { .. }),
        "another error: {error:?}"
    );
    let text = error.to_string();
    assert!(text.len() > 20 && !text.contains('\n'), "{text:?} is no sentence");
}

/// Runs clients on a healthy store, then under `plan` (of a seed and of the pages that the device
/// has room for so far), then heals the device: everything that was acknowledged is there, and
/// nothing else. Gives how many operations failed.
fn run(
    name: &'static str,
    plan: &dyn Fn(u64, u64) -> FaultPlan,
    threads: u8,
    steps: u64,
    seed: u64,
) -> u64 {
    println!("{name}: seed {seed}, {threads} threads");
    let watchdog = Watchdog::start(name, Duration::from_secs(20));
    let storage = Arc::new(SimStorage::new(FaultPlan::new(seed)));
    let mut clients: Vec<_> =
        (0..threads).map(|number| Client::new(number, seed, threads == 1)).collect();
    let engine = Device::sim(&storage).open(unlogged_pool(FRAMES)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let work = |clients: &mut Vec<Client>, steps: u64| {
        std::thread::scope(|scope| {
            for client in clients {
                let (engine, tree, watchdog) = (&engine, &tree, &watchdog);
                scope.spawn(move || {
                    let session = engine.session().expect("session");
                    for _ in 0..steps {
                        client.step(&session, tree);
                        watchdog.step();
                    }
                });
            }
        });
    };
    work(&mut clients, 2000);
    assert_eq!(clients.iter().map(|client| client.failed).sum::<u64>(), 0, "nothing fails yet");
    for turn in 0..3 {
        storage.set_plan(plan(seed + turn, storage.capacity_pages()));
        work(&mut clients, steps);
        storage.heal();
        let session = engine.session().expect("session");
        clients.iter().for_each(|client| client.check_all(&session, &tree));
        drop(session);
        assert_verified(&engine);
    }
    work(&mut clients, 500);
    let failed = clients.iter().map(|client| client.failed).sum();
    let done: u64 = clients.iter().map(|client| client.done).sum();
    println!("{name}: {done} operations succeeded, {failed} failed; {storage:?}");
    drop(tree);
    engine.close().expect("close");
    let engine = Device::sim(&storage).open(unlogged_pool(FRAMES)).expect("reopen");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    clients.iter().for_each(|client| client.check_all(&session, &tree));
    assert_verified(&engine);
    failed
}

const IO: Fault = Fault::Error(ErrorKind::Other);

#[test]
fn failing_and_short_reads_lose_nothing() {
    for threads in [1, 4] {
        let errors = |seed, _| FaultPlan::new(seed).sometimes(Op::Read, 0.05, IO);
        assert!(run("read errors", &errors, threads, 2000 * rounds(), 1) > 0);
        let short =
            |seed, _| FaultPlan::new(seed).sometimes(Op::Read, 0.05, Fault::Short(Unit::Sector));
        assert!(run("short reads", &short, threads, 2000 * rounds(), 2) > 0);
    }
}

#[test]
fn flipped_bits_on_reading_are_errors_and_lose_nothing() {
    for threads in [1, 4] {
        let flips = |seed, _| FaultPlan::new(seed).sometimes(Op::Read, 0.05, Fault::BitFlip);
        assert!(run("bit flips", &flips, threads, 2000 * rounds(), 3) > 0);
    }
}

#[test]
fn failing_and_short_writes_lose_nothing() {
    for threads in [1, 4] {
        for share in [0.1, 0.6] {
            let errors = |seed, _| FaultPlan::new(seed).sometimes(Op::Write, share, IO);
            run("write errors", &errors, threads, 900 * rounds(), 4);
            let short = |seed, _| {
                let (sector, page) = (Fault::Short(Unit::Sector), Fault::Short(Unit::Page));
                FaultPlan::new(seed).sometimes(Op::Write, share / 2.0, sector).sometimes(
                    Op::Write,
                    share / 2.0,
                    page,
                )
            };
            run("short writes", &short, threads, 900 * rounds(), 5);
        }
    }
}

#[test]
fn a_device_without_room_and_with_failing_reservations_loses_nothing() {
    let full =
        |seed, capacity| FaultPlan::new(seed).sometimes(Op::Reserve, 0.5, IO).limit(capacity + 20);
    for threads in [1, 4] {
        run("reservations", &full, threads, 2000 * rounds(), 6);
    }
}

#[test]
fn slow_reads_and_writes_with_all_kinds_of_errors_lose_nothing() {
    let everything = |seed, _| {
        FaultPlan::new(seed)
            .sometimes(Op::Any, 0.02, Fault::Latency(Duration::from_millis(1)))
            .sometimes(Op::Any, 0.02, IO)
            .sometimes(Op::Read, 0.02, Fault::BitFlip)
            .sometimes(Op::Read, 0.02, Fault::Short(Unit::Sector))
            .sometimes(Op::Write, 0.05, Fault::Short(Unit::Sector))
    };
    for (threads, seed) in [(1, 7), (4, 8), (4, 9)] {
        assert!(run("everything", &everything, threads, 1500 * rounds(), seed) > 0);
    }
}

#[test]
fn a_device_that_stops_writing_fails_operations_in_time_and_goes_on_when_it_writes_again() {
    let storage = Arc::new(SimStorage::new(FaultPlan::new(10)));
    let (engine, mut client) = loaded(&storage);
    let tree = engine.tree("tree").expect("tree");
    for _ in 0..2 {
        storage.set_plan(FaultPlan::new(10).always(Op::Write, IO));
        let session = engine.session().expect("session");
        let failed = client.failed;
        let mut steps = 0;
        while client.failed < failed + 3 {
            let started = Instant::now();
            client.step(&session, &tree);
            // A large value may wait several times, once for each of its failing steps.
            assert!(started.elapsed() < Duration::from_secs(10), "it took {:?}", started.elapsed());
            steps += 1;
            assert!(steps < 5000, "nothing fails without writes");
        }
        storage.heal();
        client.check_all(&session, &tree);
        drop(session);
        assert_verified(&engine);
    }
    drop(tree);
    engine.close().expect("close");
    let engine = Device::sim(&storage).open(unlogged_pool(FRAMES)).expect("reopen");
    let tree = engine.tree("tree").expect("tree");
    client.check_all(&engine.session().expect("session"), &tree);
    assert_verified(&engine);
}

/// An operation that began to wait when another had almost reached its timeout does not fail
/// together with that one.
#[test]
fn who_comes_late_on_a_device_that_writes_again_in_time_does_not_fail() {
    let _watchdog = Watchdog::start("late", Duration::from_secs(60));
    let storage = Arc::new(SimStorage::new(FaultPlan::new(12)));
    let options = unlogged_pool(FRAMES).stall_timeout(Duration::from_secs(3));
    let engine = Device::sim(&storage).open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    storage.set_plan(FaultPlan::new(12).always(Op::Write, IO));
    let steps = AtomicU64::new(0);
    let healed = AtomicBool::new(false);
    let key = |client: u64, step: u64| [client.to_be_bytes(), step.to_be_bytes()].concat();
    std::thread::scope(|scope| {
        let early = scope.spawn(|| {
            let session = engine.session().expect("session");
            loop {
                let step = steps.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = session.put(&tree, &key(0, step), &[1; 1000]) {
                    healed.store(true, Ordering::Relaxed);
                    storage.heal();
                    return error;
                }
            }
        });
        let mut last = (u64::MAX, Instant::now());
        while last.1.elapsed() < Duration::from_secs(2) {
            let now = steps.load(Ordering::Relaxed);
            if now != last.0 {
                last = (now, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let session = engine.session().expect("session");
        for step in 0.. {
            session.put(&tree, &key(1, step), &[2; 1000]).expect("there was time to wait");
            if healed.load(Ordering::Relaxed) && step >= 100 {
                break;
            }
        }
        let error = early.join().expect("early");
        assert!(matches!(error, Error::PoolExhausted { .. }), "{error}");
    });
    assert_verified(&engine);
    drop(tree);
    engine.close().expect("close");
}

/// A device that holds writes for longer than the stall timeout is waited for. One that holds them
/// for several times as long is not, and the error names it.
#[test]
fn a_device_that_holds_writes_is_slow_before_it_is_given_up() {
    const LIMIT: Duration = Duration::from_secs(1);
    let _watchdog = Watchdog::start("held writes", Duration::from_secs(120));
    let (held, looks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let write = {
        let (held, looks) = (held.clone(), looks.clone());
        move || {
            while held.load(Ordering::Relaxed) {
                looks.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        }
    };
    let pages = Arc::new(Asked { write: Box::new(write), ..Asked::nothing() });
    let device = Device { pages, ..Device::memory() };
    let engine = device.open(unlogged_pool(FRAMES).stall_timeout(LIMIT)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let mut keys = 0u64..;
    let mut put = || {
        let key = keys.next().expect("a key");
        session.put(&tree, &key.to_be_bytes(), &[1; 1000])
    };
    held.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("a write is held", || looks.load(Ordering::Relaxed) > 0);
            std::thread::sleep(LIMIT * 3 / 2);
            held.store(false, Ordering::Relaxed);
        });
        let mut longest = Duration::ZERO;
        for _ in 0..20 * FRAMES {
            let began = Instant::now();
            put().expect("a slow device is waited for");
            longest = longest.max(began.elapsed());
        }
        assert!(longest > LIMIT, "no operation waited for the device: {longest:?}");
    });
    held.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let error = loop {
        if let Err(error) = put() {
            break error;
        }
    };
    assert!(matches!(error, Error::PoolExhausted { .. }), "{error}");
    assert!(error.to_string().contains("the device has not ended writes of pages"), "{error}");
    assert!(began.elapsed() > 3 * LIMIT, "failed after {:?}", began.elapsed());
    held.store(false, Ordering::Relaxed);
    for _ in 0..20 * FRAMES {
        put().expect("the device writes again");
    }
    drop(session);
    assert_verified(&engine);
}

#[test]
fn operations_that_take_each_other_the_last_frames_fail_in_time() {
    let watchdog = Watchdog::start("crowd", Duration::from_secs(60));
    let storage = Arc::new(SimStorage::new(FaultPlan::new(11)));
    let engine = Device::sim(&storage).open(unlogged_pool(FRAMES)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let mut clients: Vec<_> = (0..4).map(|number| Client::new(number, 11, false)).collect();
    let work = |clients: &mut Vec<Client>, steps: usize, until: Option<Instant>| {
        let longest = |client: &mut Client| {
            let session = engine.session().expect("session");
            let mut longest = Duration::ZERO;
            for _ in 0..steps {
                if until.is_some_and(|until| Instant::now() > until) {
                    break;
                }
                let started = Instant::now();
                client.step(&session, &tree);
                longest = longest.max(started.elapsed());
                watchdog.step();
            }
            longest
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                clients.iter_mut().map(|client| scope.spawn(|| longest(client))).collect();
            threads.into_iter().map(|thread| thread.join().expect("client")).max()
        })
    };
    work(&mut clients, 3000, None);
    // Some pages can still be written, so that frames come free now and then.
    storage.set_plan(FaultPlan::new(11).limit(400));
    let (mut longest, mut failed) = (Duration::ZERO, 0u64);
    // A few fail in each turn, seldom none.
    for turn in 0..12 {
        if failed > 0 && turn >= 3 {
            break;
        }
        let until = Instant::now() + Duration::from_secs(5);
        longest = longest.max(work(&mut clients, usize::MAX, Some(until)).expect("clients"));
        failed = clients.iter().map(|client| client.failed).sum();
    }
    println!("the longest operation took {longest:?}; {failed} failed");
    assert!(failed > 0, "every page finds a frame");
    assert!(longest < Duration::from_secs(4), "an operation took {longest:?}");
    storage.heal();
    let session = engine.session().expect("session");
    clients.iter().for_each(|client| client.check_all(&session, &tree));
    drop(session);
    assert_verified(&engine);
}

#[test]
fn a_drop_that_fails_on_the_way_goes_on_when_the_device_works_again() {
    let storage = Arc::new(SimStorage::new(FaultPlan::new(12)));
    let engine = Device::sim(&storage).open(unlogged_pool(FRAMES)).expect("open");
    let (session, other) =
        (engine.session().expect("session"), engine.tree("other").expect("tree"));
    let value = vec![7; 20_000];
    (0..20u32).for_each(|key| session.put(&other, &key.to_be_bytes(), &value).expect("put"));
    let (mut half, mut whole) = (0, 0);
    let mut read = 0;
    // The reads depend on the evicted pages.
    while whole < 8 {
        read += 1;
        let tree = engine.tree("tree").expect("tree");
        for key in 0..150u32 {
            let len = if key % 3 == 0 { 100 } else { 20_000 };
            session.put(&tree, &key.to_be_bytes(), &value[..len]).expect("put");
        }
        // No page of the tree is in memory now.
        (0..20u32).for_each(|key| drop(session.get(&other, &key.to_be_bytes()).expect("get")));
        storage.set_plan(FaultPlan::new(12).from(Op::Read, read, IO));
        let Err(error) = engine.drop_tree(tree) else {
            storage.heal();
            assert_verified(&engine);
            (read, whole) = (0, whole + 1);
            continue;
        };
        assert_clear(&error);
        match engine.open_tree("tree") {
            Ok(Some(tree)) => {
                // It had not begun.
                storage.heal();
                engine.drop_tree(tree).expect("drop");
            }
            Ok(None) => panic!("the drop has failed"),
            Err(error) => {
                assert_clear(&error);
                assert!(engine.verify(&mut |_| {}).is_err(), "pages cannot be read");
                storage.heal();
                half += 1;
                if half % 2 == 0 {
                    assert!(engine.open_tree("tree").expect("open").is_none(), "it is dropped");
                }
            }
        }
        assert_verified(&engine);
    }
    println!("{half} drops failed on the way");
    assert!(half >= 2, "no drop fails on the way");
}

/// A store with acknowledged records, some of which are only in the pool.
fn loaded(storage: &Arc<SimStorage>) -> (Engine, Client) {
    let engine = Device::sim(storage).open(unlogged_pool(64)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let mut client = Client::new(0, 20, true);
    (0..3000).for_each(|_| client.step(&session, &tree));
    drop(session);
    (engine, client)
}

#[test]
fn closing_on_a_device_that_fails_reports_it_and_the_store_counts_as_not_closed() {
    for (op, n) in [(Op::Write, 1), (Op::Write, 2), (Op::Write, 20), (Op::Sync, 1)] {
        let storage = Arc::new(SimStorage::new(FaultPlan::new(21)));
        let (engine, _) = loaded(&storage);
        let before = storage.counters();
        storage.set_plan(FaultPlan::new(21).from(op, n, IO));
        let error = engine.close().expect_err("the device fails");
        println!("{op:?} {n}: {error}");
        assert_clear(error.error());
        assert!(error.into_engine().is_none(), "it has ended");
        // The janitor may wait for frames before the end, and fail.
        let tries = storage.counters().writes - before.writes;
        assert!(tries <= 20_000, "it tries for ever: {tries} writes");
        storage.heal();
        let error = Device::sim(&storage).open(unlogged_pool(64)).expect_err("not closed");
        assert!(matches!(error, Error::NotClosed { .. }), "{error:?}");
    }
}

#[test]
fn closing_is_all_or_nothing_at_whatever_write_or_sync_it_fails() {
    let mut closed = 0;
    for n in 1..400 {
        let storage = Arc::new(SimStorage::new(FaultPlan::new(22)));
        let (engine, client) = loaded(&storage);
        storage.set_plan(FaultPlan::new(22).from(Op::Any, n, IO));
        let outcome = engine.close();
        storage.heal();
        match Device::sim(&storage).open(unlogged_pool(64)) {
            Ok(engine) => {
                let tree = engine.tree("tree").expect("tree");
                client.check_all(&engine.session().expect("session"), &tree);
                assert_verified(&engine);
            }
            Err(error) => {
                assert!(outcome.is_err(), "operation {n}: closed, but {error}");
                assert!(matches!(error, Error::NotClosed { .. }), "operation {n}: {error:?}");
            }
        }
        closed += u32::from(outcome.is_ok());
        if closed == 2 {
            println!("closing takes {} operations", n - 2);
            return;
        }
    }
    panic!("closing never succeeded");
}

/// More changed pages than one thread writes together, so that two threads write them at the end.
#[test]
fn closing_with_many_changed_pages_loses_nothing_at_whatever_write_it_fails() {
    const RECORDS: u32 = 3000;
    let pool = |is_logged: bool| if is_logged { small_pool(3000) } else { unlogged_pool(3000) };
    let mut failed = 0;
    for (is_logged, n) in [false, true].into_iter().flat_map(|is_logged| {
        [1, 2, 200, 256, 257, 300, 513, 700, 1_000_000].map(|n| (is_logged, n))
    }) {
        let what = format!("log {is_logged}, write {n}");
        let storage = Arc::new(SimStorage::new(FaultPlan::new(23)));
        let engine = Device::sim(&storage).open(pool(is_logged)).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let session = engine.session().expect("session");
        for record in 0..RECORDS {
            let key = record.wrapping_mul(0x9e37_79b9).to_be_bytes();
            session.put(&tree, &key, &[record as u8; 900]).expect("put");
        }
        drop((session, tree));
        let before = storage.counters();
        storage.set_plan(FaultPlan::new(23).from(Op::Write, n, IO));
        let outcome = engine.close();
        let writes = storage.counters().writes - before.writes;
        assert!(writes > 768, "{what}: {writes} writes are no test of two threads");
        storage.heal();
        match Device::sim(&storage).open(pool(is_logged)) {
            Ok(engine) => {
                let (tree, session) = (engine.tree("tree").expect("tree"), engine.session());
                let session = session.expect("session");
                for record in 0..RECORDS {
                    let key = record.wrapping_mul(0x9e37_79b9).to_be_bytes();
                    let found = session.get(&tree, &key).expect("get");
                    assert!(found == Some(vec![record as u8; 900]), "{what}: record {record}");
                }
                drop(session);
                assert_verified(&engine);
            }
            Err(error) => {
                assert!(!is_logged && outcome.is_err(), "{what}: {error}");
                assert!(matches!(error, Error::NotClosed { .. }), "{what}: {error:?}");
            }
        }
        failed += u32::from(outcome.is_err());
    }
    assert_eq!(failed, 16, "closings that fail");
}

#[test]
fn opening_on_a_device_that_fails_is_an_error_and_succeeds_later() {
    let storage = Arc::new(SimStorage::new(FaultPlan::new(23)));
    let (engine, client) = loaded(&storage);
    engine.close().expect("close");
    for n in 1..100 {
        // Reads only: a write that fails may leave half of the mark of a store in use.
        let copy = Arc::new(storage.clone_at_rest());
        copy.set_plan(FaultPlan::new(23).nth(Op::Read, n, IO));
        let reads = copy.counters().reads;
        match Device::sim(&copy).open(unlogged_pool(64)) {
            Ok(_) => {
                assert!(copy.counters().reads < reads + n, "read {n} failed without an error");
                assert!(n > 3, "opening reads superblocks, bitmap and catalog");
                return;
            }
            Err(error) => assert_clear(&error),
        }
        copy.heal();
        let engine = Device::sim(&copy).open(unlogged_pool(64)).expect("nothing was changed");
        let tree = engine.tree("tree").expect("tree");
        client.check_all(&engine.session().expect("session"), &tree);
    }
    panic!("opening never succeeded");
}

/// Removed records are cleared in the background.
fn insert_once_there_is_room(session: &Session, tree: &Tree, key: &[u8], value: &[u8]) {
    let started = Instant::now();
    loop {
        match session.insert(tree, key, value) {
            Ok(()) => return,
            Err(Error::DiskFull { .. }) if started.elapsed() < Duration::from_secs(10) => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("there is room again: {error}"),
        }
    }
}

/// Loads until the device is full; what was acknowledged stays, and the store closes and opens.
fn fill(device: &Device, value: usize) {
    let engine = device.open(unlogged_pool(64)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let mut model = BTreeMap::new();
    let mut failures = 0;
    for i in 0..u32::MAX {
        let key = i.wrapping_mul(0x9e37_79b1).to_be_bytes();
        let bytes = vec![i as u8; value];
        match session.insert(&tree, &key, &bytes) {
            Ok(()) => {
                assert!(model.insert(key.to_vec(), bytes).is_none(), "another key each time");
            }
            Err(error) => {
                assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
                println!("after {} records: {error}", model.len());
                failures += 1;
                if failures == 20 {
                    break;
                }
            }
        }
    }
    assert!(model.len() as u64 > 400_000 / (value as u64 + 20), "it was filled: {}", model.len());
    let check = |session: &Session, tree: &Tree, model: &BTreeMap<Vec<u8>, Vec<u8>>| {
        let found = session.scan(tree).expect("scan").map(|entry| entry.expect("entry"));
        assert!(found.eq(model.iter().map(|(k, v)| (k.clone(), v.clone()))), "records differ");
    };
    check(&session, &tree, &model);
    // Verification counts the page ids that a session holds in reserve as lost.
    drop((session, tree));
    assert_verified(&engine);
    engine.close().expect("a full device can be closed");
    let engine = device.open(unlogged_pool(64)).expect("reopen");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    check(&session, &tree, &model);
    assert_verified(&engine);
    // Removing makes room again.
    let keys: Vec<_> = model.keys().cloned().collect();
    for key in &keys[..keys.len() / 2] {
        assert!(session.remove(&tree, key).expect("remove"), "an acknowledged record");
        model.remove(key);
    }
    for key in &keys[..keys.len() / 4] {
        insert_once_there_is_room(&session, &tree, key, &vec![9; value]);
        model.insert(key.clone(), vec![9; value]);
    }
    check(&session, &tree, &model);
    drop((session, tree));
    engine.close().expect("close");
}

#[test]
fn a_full_device_keeps_what_was_acknowledged_and_opens_again() {
    for (limit, value) in [(300, 100), (400, 900), (600, 20_000)] {
        println!("limit {limit} pages, values of {value} bytes");
        fill(&Device::sim(&Arc::new(SimStorage::new(FaultPlan::new(30).limit(limit)))), value);
        let pages = Arc::new(MemoryStorage::with_limit(limit));
        fill(&Device { pages, ..Device::memory() }, value);
    }
}

#[test]
fn a_bulk_load_that_fills_the_device_leaves_the_tree_empty_and_gives_its_pages_back() {
    let storage = Arc::new(SimStorage::new(FaultPlan::new(31).limit(400)));
    let engine = Device::sim(&storage).open(unlogged_pool(64)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    for large in [false, true] {
        let session = engine.session().expect("session");
        // The tree of large values stays; it is empty again.
        let before = engine.stats().used_pages + 2 * u64::from(large);
        let entries = (0u32..100_000).map(|i| {
            let len = if large && i.is_multiple_of(50) { 9000 } else { 300 };
            (i.to_be_bytes(), vec![i as u8; len])
        });
        let error = session.bulk_load(&tree, entries).expect_err("the device is full");
        assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
        assert_eq!(session.scan(&tree).expect("scan").count(), 0, "the tree is empty");
        drop(session);
        assert_verified(&engine);
        let after = engine.stats().used_pages;
        assert!(after <= before + 8, "{before} pages in use before, {after} after");
    }
    let session = engine.session().expect("session");
    assert_eq!(session.bulk_load(&tree, [(b"a", b"b")]).expect("a small one"), 1);
    drop((session, tree));
    engine.close().expect("close");
}

/// Under faults that leave wrong bytes on the medium, answers are errors or right or of an older
/// moment, as the module documentation explains.
fn run_lying(name: &'static str, fault: Fault, seed: u64) {
    println!("{name}: seed {seed}");
    let watchdog = Watchdog::start(name, Duration::from_secs(20));
    let storage = Arc::new(SimStorage::new(FaultPlan::new(seed)));
    let engine = Device::sim(&storage).open(unlogged_pool(FRAMES)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let mut client = Client::new(0, seed, false);
    (0..4000).for_each(|_| client.step(&session, &tree));
    storage.set_plan(FaultPlan::new(seed).sometimes(Op::Write, 0.03, fault));
    // Only writes of whole values: their outcome does not depend on what was there.
    for _ in 0..2000 {
        let (key, value) = (client.key(), client.value());
        match session.put(&tree, &key, &value) {
            Ok(()) => client.set(key, value),
            Err(error) => assert_clear(&error),
        }
        watchdog.step();
    }
    storage.heal();
    let (mut right, mut old, mut errors) = (0, 0, 0);
    for (key, value) in &client.model {
        match session.get(&tree, key) {
            Ok(found) if found.as_ref() == Some(value) => right += 1,
            Ok(found) => {
                let known = found.is_none_or(|value| client.history[key].contains(&value));
                assert!(known, "a value of {key:02x?} that was never written");
                old += 1;
            }
            Err(error) => {
                assert_clear(&error);
                errors += 1;
            }
        }
        watchdog.step();
    }
    println!("{name}: {right} right, {old} of an older moment, {errors} errors");
    assert!(right > 0 && errors + old > 0, "the faults had an effect and not on everything");
    // Verification of such a store ends, whatever it finds.
    let _ = engine.verify(&mut |_| {});
    drop((session, tree));
    let _ = engine.close();
}

#[test]
fn torn_misdirected_and_lost_writes_never_give_values_from_nowhere() {
    for seed in 50..54 {
        run_lying("torn writes", Fault::Torn(Unit::Sector), seed);
        run_lying("misdirected writes", Fault::Misdirected, seed);
        run_lying("lost writes", Fault::Lost, seed);
    }
}
