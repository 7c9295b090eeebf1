//! Large values whose bytes go to the data file at once and not through the log: against a
//! `BTreeMap` from several threads in tiny pools, beside backups and compactions, after power cuts
//! at every step, and on devices that fail or are full. `WATTLE_ROUNDS` multiplies the length.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeMap,
    io::ErrorKind,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};
use wattle::{
    Durability, Engine, Error, MIN_LOG_BYTES, Options, Session, Storage, Tree,
    io::{Cut, Fault, FaultPlan, MemoryLog, MemoryStorage, Op, SimStorage},
};
use wattle_tests::{
    crash::{
        check::open,
        device::{Camera, Capturing},
    },
    harness::{
        Context, Device, Watchdog, assert_verified, eventually, rounds, seed, small_pool,
        value_of_version as value,
    },
};

/// From here on values are written directly.
const DIRECT: u64 = 20_000;
/// Bytes of a chunk.
const CHUNK: usize = 1904;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(frames: u64) -> Options {
    small_pool(frames)
        .durability(Durability::Group)
        .log_bytes(MIN_LOG_BYTES)
        .stall_timeout(Duration::from_secs(20))
        .direct_value_bytes(DIRECT)
}

/// A length at or beside a border: of what is written directly, of chunks, of leaves, of inner
/// nodes.
fn length(random: &mut SmallRng) -> usize {
    let border = match random.random_range(0..20) {
        0..2 => 100,
        2..8 => DIRECT as usize,
        8..16 => CHUNK * random.random_range(10..40),
        16..19 => CHUNK * random.random_range(200..400),
        _ => 2 << 20,
    };
    border + random.random_range(0..3) - 1
}

/// One thread, its keys, and what they should hold.
struct Client {
    random: SmallRng,
    number: u8,
    version: u64,
    model: Model,
}

impl Client {
    fn new(number: u8, seed: u64) -> Client {
        let random = SmallRng::seed_from_u64(seed ^ u64::from(number) << 40);
        Client { random, number, version: u64::from(number) << 20, model: Model::new() }
    }

    fn key(&mut self) -> Vec<u8> {
        vec![self.number, self.random.random_range(0..12)]
    }

    fn fresh(&mut self) -> Vec<u8> {
        self.version += 1;
        value(self.version, length(&mut self.random))
    }

    /// A transaction of a few changes, some of them rolled back to a savepoint, that ends either
    /// way.
    fn transaction(&mut self, session: &Session, tree: &Tree) {
        let (mut txn, mut model) = (session.begin().expect("begin"), self.model.clone());
        for _ in 0..self.random.random_range(1..4) {
            let (mark, before) = (txn.savepoint(), model.clone());
            for _ in 0..self.random.random_range(1..3) {
                let (key, value) = (self.key(), self.fresh());
                txn.put(tree, &key, &value).expect("put");
                assert!(txn.get(tree, &key).expect("get").as_ref() == Some(&value), "its own");
                model.insert(key, value);
            }
            if self.random.random_bool(0.3) {
                txn.rollback_to(&mark).expect("roll back to a savepoint");
                model = before;
            }
        }
        match self.random.random_range(0..4) {
            0 => txn.abort().expect("abort"),
            1 => drop(txn),
            _ => {
                txn.commit().expect("commit");
                self.model = model;
            }
        }
    }

    fn step(&mut self, session: &Session, tree: &Tree) {
        let key = self.key();
        match self.random.random_range(0..8) {
            0 => {
                let removed = session.remove(tree, &key).expect("remove");
                assert_eq!(removed, self.model.remove(&key).is_some());
            }
            1..3 => self.transaction(session, tree),
            3 => {
                let records = [(self.key(), self.fresh()), (key, self.fresh())];
                session.put_many(tree, &records).expect("put several");
                self.model.extend(records);
            }
            4 => {
                let (from, len) = (self.random.random_range(0..100_000), 5000);
                let found = session.get_range(tree, &key, from..from + len).expect("get a part");
                let cut = |value: &Vec<u8>| {
                    let end = value.len();
                    value[(from as usize).min(end)..((from + len) as usize).min(end)].to_vec()
                };
                assert!(found == self.model.get(&key).map(cut), "a part of {key:?}");
            }
            _ => {
                let value = self.fresh();
                session.put(tree, &key, &value).expect("put");
                self.model.insert(key, value);
            }
        }
    }

    fn check(&self, session: &Session, tree: &Tree) {
        for (key, value) in &self.model {
            assert!(session.get(tree, key).expect("get").as_ref() == Some(value), "{key:?}");
        }
    }
}

/// Steps of clients in threads of their own; `beside` runs meanwhile, again and again.
fn run(engine: &Engine, clients: &mut [Client], steps: u32, beside: &(dyn Fn() + Sync)) {
    let running = AtomicU64::new(clients.len() as u64);
    struct Ends<'r>(&'r AtomicU64);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }
    std::thread::scope(|scope| {
        for client in clients {
            let running = &running;
            scope.spawn(move || {
                let _ends = Ends(running);
                let tree = engine.tree("tree").expect("tree");
                let session = engine.session().expect("session");
                (0..steps).for_each(|_| client.step(&session, &tree));
            });
        }
        while running.load(SeqCst) > 0 {
            beside();
        }
    });
}

fn check_all(engine: &Engine, clients: &[Client]) {
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    clients.iter().for_each(|client| client.check(&session, &tree));
    let all: usize = clients.iter().map(|client| client.model.len()).sum();
    assert_eq!(session.scan(&tree).expect("scan").count(), all);
}

#[test]
fn several_threads_find_what_they_wrote_also_after_a_reopening() {
    let watchdog = Watchdog::start("direct values", Duration::from_secs(120));
    let seed = seed();
    for round in 0..3 * rounds() {
        let _context = Context(("seed", seed, "round", round));
        let mut clients: Vec<_> = (0..4).map(|number| Client::new(number, seed + round)).collect();
        let device = Device::memory();
        let options = options([48, 64, 600][round as usize % 3]);
        let engine = device.open(options.clone()).expect("open");
        run(&engine, &mut clients, 25, &|| std::thread::sleep(Duration::from_millis(1)));
        check_all(&engine, &clients);
        assert_verified(&engine);
        engine.compact().expect("compact");
        check_all(&engine, &clients);
        assert_verified(&engine);
        engine.close().expect("close");
        let engine = device.open(options).expect("open again");
        check_all(&engine, &clients);
        assert_verified(&engine);
        watchdog.step();
    }
}

#[test]
fn the_bytes_of_a_value_do_not_go_through_the_log() {
    let logged = |direct: u64, len: usize| {
        let engine = Device::memory()
            .open(options(600).log_bytes(64 << 20).direct_value_bytes(direct))
            .expect("open");
        let tree = engine.tree("tree").expect("tree");
        let session = engine.session().expect("session");
        session.put(&tree, b"first", &value(1, len)).expect("put");
        let before = engine.stats().log_bytes;
        session.put(&tree, b"second", &value(2, len)).expect("put");
        let logged = engine.stats().log_bytes - before;
        assert!(session.get(&tree, b"second").expect("get") == Some(value(2, len)));
        logged
    };
    // The second has several pieces.
    for (len, most) in [(1 << 20, 60_000), (40 << 20, 1_500_000)] {
        assert!(logged(DIRECT, len) < most, "{} bytes of log", logged(DIRECT, len));
        assert!(logged(0, len) > len as u64);
        assert!(logged(len as u64 + 1, len) > len as u64, "it is shorter");
    }
}

#[test]
fn values_that_were_rolled_back_leave_no_pages() {
    let engine = Device::memory().open(options(600)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    session.put(&tree, b"key", &value(1, 100_000)).expect("put");
    let settled = || {
        // An empty leaf or two may stay.
        assert_verified(&engine);
        engine.stats().used_pages
    };
    let before = settled();
    for round in 0..6u64 {
        let mut txn = session.begin().expect("begin");
        txn.put(&tree, b"other", &value(10 + round, 300_000)).expect("put");
        txn.put(&tree, b"other", &value(20 + round, 300_000)).expect("put");
        let mark = txn.savepoint();
        txn.put(&tree, b"key", &value(30 + round, 300_000)).expect("put");
        txn.put(&tree, b"other", &value(40 + round, 300_000)).expect("put");
        txn.rollback_to(&mark).expect("roll back");
        assert!(txn.get(&tree, b"other").expect("get") == Some(value(20 + round, 300_000)));
        assert!(txn.get(&tree, b"key").expect("get") == Some(value(1, 100_000)));
        match round % 2 {
            0 => txn.abort().expect("abort"),
            _ => drop(txn),
        }
        eventually("its pages are free", || engine.stats().used_pages <= before + 8);
    }
    assert!(settled() <= before + 4);
    assert!(session.get(&tree, b"key").expect("get") == Some(value(1, 100_000)));
    assert_eq!(session.scan(&tree).expect("scan").count(), 1);
}

/// Values are replaced many times over; pages come back although the log hardly grows.
#[test]
fn replaced_values_do_not_make_the_file_grow_without_end() {
    const LEN: usize = 256 << 10;
    let _watchdog = Watchdog::start("replaced direct values", Duration::from_secs(120));
    let engine = Device::memory()
        .open(options(600).version_bytes(1 << 20).durability(Durability::None))
        .expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for version in 0..600u64 {
        session.put(&tree, b"key", &value(version, LEN)).expect("put");
    }
    assert!(session.get(&tree, b"key").expect("get") == Some(value(599, LEN)));
    let bytes = engine.stats().file_bytes;
    // Live data, replaced values, and pages that wait for a checkpoint: all within some MiB. 150
    // MiB were written.
    assert!(bytes < 40 << 20, "the file has {} KiB", bytes >> 10);
    assert_verified(&engine);
}

#[test]
fn backups_and_compactions_beside_writers_are_whole_and_not_kept_waiting() {
    let watchdog = Watchdog::start("backups beside direct values", Duration::from_secs(120));
    let seed = seed();
    let _context = Context(("seed", seed));
    for round in 0..2 * rounds() {
        let device = Device::memory();
        let options = options(200).log_bytes(16 << 20);
        let engine = device.open(options.clone()).expect("open");
        drop(engine.tree("tree").expect("tree"));
        let mut clients: Vec<_> = (0..3).map(|number| Client::new(number, seed + round)).collect();
        run(&engine, &mut clients, 25, &|| {
            let copy = Device {
                pages: Arc::new(MemoryStorage::new()),
                log: Arc::new(MemoryLog::default()),
            };
            engine.backup_on(copy.pages.clone(), copy.log.clone()).expect("back up");
            engine.compact().expect("compact");
            let copy = copy.open(options.clone()).expect("open the copy");
            let tree = copy.tree("tree").expect("tree");
            let session = copy.session().expect("session");
            // Each value is whole: it tells its version at its beginning.
            for entry in session.scan(&tree).expect("scan") {
                let (key, found) = entry.expect("an entry");
                let same = (0..1 << 12).map(|version| u64::from(key[0]) << 20 | version);
                let len = found.len();
                let whole = same.into_iter().any(|version| {
                    value(version, len.min(16)) == found[..len.min(16)]
                        && value(version, len) == found
                });
                assert!(whole, "{key:?} in a backup");
            }
            assert_verified(&copy);
            watchdog.step();
        });
        check_all(&engine, &clients);
        assert_verified(&engine);
    }
}

const CAMERA_OFF: Camera = Camera { one_in: 0, most: 0, whole_pages: false };

/// The bitmaps of the last checkpoint do not have the pages, and the log does not have their bytes.
#[test]
fn a_backup_of_a_store_that_is_only_read_after_a_crash_has_all_pages() {
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let options = || options(600).log_bytes(16 << 20);
    let engine = Device::sim(&sim).open(options()).expect("open");
    let session = engine.session().expect("session");
    let (tree, loaded) = (engine.tree("t").expect("tree"), engine.tree("l").expect("tree"));
    engine.checkpoint().expect("checkpoint");
    for key in 0..20u8 {
        session.put(&tree, &[key], &value(u64::from(key), 100_000)).expect("put");
    }
    let records = (0..5000u32).map(|key| (key.to_be_bytes(), [7; 100]));
    session.bulk_load(&loaded, records).expect("load");
    engine.sync().expect("sync");
    let crashed = Arc::new(sim.crash_as(1, Cut::Nothing));
    let engine = Device::sim(&crashed).open(options().read_only(true)).expect("open read-only");
    let copy = Arc::new(SimStorage::new(FaultPlan::new(2)));
    engine.backup_on(copy.clone(), copy.clone()).expect("back up");
    let engine = Device::sim(&copy).open(options()).expect("open the copy");
    assert_verified(&engine);
    let session = engine.session().expect("session");
    let (tree, loaded) = (engine.tree("t").expect("tree"), engine.tree("l").expect("tree"));
    for key in 0..20u8 {
        let found = session.get(&tree, &[key]).expect("get");
        assert!(found == Some(value(u64::from(key), 100_000)), "{key}");
    }
    assert_eq!(session.scan(&loaded).expect("scan").count(), 5000);
}

/// The power is cut at each step of some puts, while other threads make the log durable in
/// between. Each image has the old value or the new one, and verifies.
fn cut_at_each_step(seed: u64, whole_pages: bool) -> u64 {
    let sim = Arc::new(SimStorage::new(FaultPlan::new(seed)));
    let options = options([48, 300][seed as usize % 2])
        .durability(Durability::Sync)
        .atomic_page_writes(whole_pages);
    let device = Capturing::new(sim, 1, seed, CAMERA_OFF);
    let engine = open(&device, &options).expect("open");
    let (tree, other) = (engine.tree("t").expect("tree"), engine.tree("o").expect("tree"));
    let session = engine.session().expect("session");
    let mut random = SmallRng::seed_from_u64(seed);
    let len = |random: &mut SmallRng| random.random_range(DIRECT as usize..300_000);
    let lens: Vec<usize> = (0..4).map(|_| len(&mut random)).collect();
    session.put(&tree, b"key", &value(0, lens[0])).expect("put");
    session.put(&tree, b"another", &value(0, 30_000)).expect("put");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (engine, other, done) = (&engine, &other, &done);
        scope.spawn(move || {
            let session = engine.session().expect("session");
            for turn in 0u64.. {
                if done.load(SeqCst) {
                    break;
                }
                session.put(other, &[turn as u8 % 4], &value(turn, 25_000)).expect("put");
            }
        });
        device.aim(Camera { one_in: 3, most: 60, whole_pages });
        for (version, new_len) in (0u64..).zip(lens.iter().copied()).skip(1) {
            device.issue(0, version);
            match random.random_range(0..3) {
                0 => {
                    // The value of this key is never there.
                    let mut txn = session.begin().expect("begin");
                    txn.put(&tree, b"never", &value(9, len(&mut random))).expect("put");
                    txn.abort().expect("abort");
                    session.put(&tree, b"key", &value(version, new_len)).expect("put");
                }
                1 => {
                    let mut txn = session.begin().expect("begin");
                    txn.put(&tree, b"key", &value(77, len(&mut random))).expect("put");
                    let mark = txn.savepoint();
                    txn.put(&tree, b"key", &value(78, len(&mut random))).expect("put");
                    txn.rollback_to(&mark).expect("roll back");
                    txn.put(&tree, b"key", &value(version, new_len)).expect("put");
                    txn.commit().expect("commit");
                }
                _ => session.put(&tree, b"key", &value(version, new_len)).expect("put"),
            }
            device.ack(0, version);
            if random.random_bool(0.5) {
                engine.checkpoint().expect("checkpoint");
            }
        }
        device.aim(CAMERA_OFF);
        done.store(true, SeqCst);
    });
    drop((tree, other, session));
    let images = device.take();
    let count = images.len() as u64;
    for image in images {
        let what = format!("seed {seed}: {image:?}");
        let bounds = image.bounds[0];
        let device = Capturing::new(Arc::new(image.sim), 1, seed, CAMERA_OFF);
        let engine = open(&device, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
        let tree = engine.tree("t").expect("tree");
        let session = engine.session().expect("session");
        let found = session.get(&tree, b"key").unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = found.unwrap_or_else(|| panic!("{what}: no value"));
        let version = (bounds.acked..=bounds.issued)
            .find(|version| value(*version, lens[*version as usize]) == found);
        assert!(version.is_some(), "{what}: {} bytes of another version", found.len());
        assert!(session.get(&tree, b"another").expect("get") == Some(value(0, 30_000)), "{what}");
        assert!(session.get(&tree, b"never").expect("get").is_none(), "{what}");
        let report = engine.verify(&mut |_| {}).expect("verify");
        assert!(report.problems.is_empty(), "{what}: {:#?}", report.problems);
        // It goes on: ids and pages are used again.
        session.put(&tree, b"key", &value(50, 100_000)).expect("put");
        session.put(&tree, b"new", &value(51, 200_000)).expect("put");
        assert!(session.get(&tree, b"another").expect("get") == Some(value(0, 30_000)), "{what}");
        assert!(session.get(&tree, b"key").expect("get") == Some(value(50, 100_000)), "{what}");
        drop((tree, session));
        let report = engine.verify(&mut |_| {}).expect("verify");
        assert!(report.problems.is_empty(), "{what}, later: {:#?}", report.problems);
        engine.close().expect("close");
    }
    count
}

#[test]
fn a_power_cut_at_any_step_leaves_the_old_value_or_the_new_one() {
    let watchdog = Watchdog::start("cuts of direct values", Duration::from_secs(120));
    let mut images = 0;
    for seed in 0..12 * rounds() {
        let _context = Context(("seed", seed));
        images += cut_at_each_step(seed, seed % 4 == 3);
        watchdog.step();
    }
    assert!(images > 100, "{images} images");
}

#[test]
fn a_write_that_fails_changes_nothing_and_frees_its_pages() {
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let engine = Device::sim(&sim).open(options(600)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    session.put(&tree, b"key", &value(1, 100_000)).expect("put");
    assert_verified(&engine);
    let before = engine.stats().used_pages;
    for nth in [1, 7, 26] {
        let fault = Fault::Error(ErrorKind::TimedOut);
        sim.set_plan(FaultPlan::new(1).from(Op::Write, nth, fault));
        let failed = session.put(&tree, b"key", &value(2, 100_000));
        assert!(matches!(failed, Err(Error::Io { .. })), "{failed:?}");
        sim.heal();
        assert!(session.get(&tree, b"key").expect("get") == Some(value(1, 100_000)));
    }
    assert_verified(&engine);
    assert!(engine.stats().used_pages <= before + 4);
    session.put(&tree, b"key", &value(3, 100_000)).expect("put");
    assert!(session.get(&tree, b"key").expect("get") == Some(value(3, 100_000)));
    assert_verified(&engine);
}

#[test]
fn a_sync_that_fails_stops_changes_and_loses_nothing_that_was_acknowledged() {
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let engine = Device::sim(&sim).open(options(600)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    session.put(&tree, b"key", &value(1, 100_000)).expect("put");
    let fault = Fault::Unsettled(ErrorKind::TimedOut);
    sim.set_plan(FaultPlan::new(1).nth(Op::Sync, 1, fault));
    session.put(&tree, b"key", &value(2, 100_000)).expect_err("its pages may be lost");
    sim.heal();
    let refused = session.put(&tree, b"key", &value(3, 100_000));
    assert!(matches!(refused, Err(Error::Poisoned(_))), "{refused:?}");
    for cut in [Cut::Nothing, Cut::All, Cut::Pages] {
        let image = Arc::new(sim.crash_as(3, cut));
        let again = Device::sim(&image).open(options(600)).expect("open again");
        let (tree, session) = (again.tree("tree").expect("tree"), again.session().expect("s"));
        assert!(session.get(&tree, b"key").expect("get") == Some(value(1, 100_000)), "{cut:?}");
        drop((tree, session));
        assert_verified(&again);
    }
}

#[test]
fn on_a_full_device_nothing_is_lost_and_there_is_room_again_later() {
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let options = options(600).stall_timeout(Duration::from_millis(200));
    let engine = Device::sim(&sim).open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let mut there = 0u32;
    sim.set_plan(FaultPlan::new(1).limit(sim.capacity_pages() + 300));
    loop {
        match session.put(&tree, &there.to_be_bytes(), &value(u64::from(there), 150_000)) {
            Ok(()) => there += 1,
            Err(Error::DiskFull { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        assert!(there < 100, "the device is full");
    }
    assert!(there > 3, "{there} values");
    for key in 0..there {
        let found = session.get(&tree, &key.to_be_bytes()).expect("get");
        assert!(found == Some(value(u64::from(key), 150_000)), "{key}");
    }
    assert!(session.remove(&tree, &0u32.to_be_bytes()).expect("remove"));
    eventually("there is room", || session.put(&tree, b"new", &value(7, 100_000)).is_ok());
    sim.heal();
    drop((session, tree));
    assert_verified(&engine);
    engine.close().expect("close");
}

/// MB/s of puts, and bytes of log for each byte, in files of the folder for temporary ones.
#[test]
#[ignore = "a measurement"]
fn how_long_puts_take_through_the_log_and_directly() {
    const TOTAL: usize = 64 << 20;
    for (durability, writers) in [(Durability::Group, 1), (Durability::Group, 4)]
        .into_iter()
        .chain([(Durability::None, 1), (Durability::None, 4)])
    {
        for len in [64 << 10, 256 << 10, 1 << 20, 16 << 20] {
            let mut all = [Vec::new(), Vec::new()];
            let mut logged = [0.0; 2];
            for round in 0..6 {
                let direct = round % 2 == 1;
                let dir = tempfile::tempdir().expect("a folder");
                let options = Options::default()
                    .pool_bytes(256 << 20)
                    .durability(durability)
                    .direct_value_bytes(if direct { 4096 } else { 0 });
                let engine = Engine::open(dir.path().join("store"), options).expect("open");
                let tree = engine.tree("tree").expect("tree");
                let (count, next) = (TOTAL / len, AtomicU64::new(0));
                let begun = std::time::Instant::now();
                std::thread::scope(|scope| {
                    for writer in 0..writers {
                        let (engine, tree, next) = (&engine, &tree, &next);
                        scope.spawn(move || {
                            let session = engine.session().expect("session");
                            let value = value(writer, len);
                            loop {
                                let number = next.fetch_add(1, SeqCst);
                                if number >= count as u64 {
                                    break;
                                }
                                session.put(tree, &number.to_be_bytes(), &value).expect("put");
                            }
                        });
                    }
                });
                engine.checkpoint().expect("checkpoint");
                let took = begun.elapsed().as_secs_f64();
                all[usize::from(direct)].push(TOTAL as f64 / took / 1e6);
                logged[usize::from(direct)] = engine.stats().log_bytes as f64 / TOTAL as f64;
            }
            let [log, direct] = all.map(|mut rates| {
                rates.sort_by(f64::total_cmp);
                rates[1]
            });
            println!(
                "{durability:?} {writers} writers {:>6} KiB: log {log:>6.1} MB/s ({:.3}), direct \
                 {direct:>6.1} MB/s ({:.3}), {:.2} times",
                len >> 10,
                logged[0],
                logged[1],
                direct / log
            );
        }
    }
}
