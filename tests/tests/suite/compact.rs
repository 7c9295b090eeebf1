//! The data file gets shorter while the store is in use, and nothing in it is lost, whatever
//! happens.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use wattle::{
    Durability, Engine, Error, IoKind, MIN_LOG_BYTES, MIN_POOL_BYTES, Options, PAGE_SIZE, Session,
    TxnOptions,
    io::{Fault, FaultPlan, LogStorage, Op, SimStorage, Storage},
};
use wattle_buffer::BITMAP_GROUP;
use wattle_tests::{
    crash::device::{Camera, Capturing},
    harness::{
        Context, Device, Random, Watchdog, assert_verified, built, rounds, seed, small_pool,
    },
};

type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn options(frames: u64) -> Options {
    small_pool(frames).log_bytes(2 * MIN_LOG_BYTES).stall_timeout(Duration::from_secs(20))
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Fills some trees, of several levels and with large values; then removes most of it. Returns the
/// rest.
fn fill_and_thin_out(engine: &Engine, records: u64) -> Contents {
    let session = engine.session().expect("session");
    let mut contents = Contents::new();
    let names: Vec<String> = (0..6).map(|number| format!("tree {number}")).collect();
    for number in 0..records {
        for name in &names {
            let tree = engine.tree(name).expect("tree");
            let value = vec![number as u8; 300];
            session.put_ticket(&tree, &key(number), &value).map(drop).expect("put");
        }
        if number % 200 == 3 {
            let tree = engine.tree("large").expect("tree");
            let value = vec![number as u8; 30_000];
            session.put_ticket(&tree, &key(number), &value).map(drop).expect("put");
        }
        if number % 400 == 5 {
            // Its root comes somewhere into the file.
            let name = format!("small {number}");
            let tree = engine.create_tree(&name).expect("create");
            session.put(&tree, b"key", name.as_bytes()).expect("put");
            contents.entry(name.clone()).or_default().insert(b"key".to_vec(), name.into_bytes());
        }
    }
    for name in names.iter().map(String::as_str).chain(["large"]) {
        let tree = engine.tree(name).expect("tree");
        let map = contents.entry(name.to_string()).or_default();
        for number in 0..records {
            if number % 10 != 3 {
                session.remove(&tree, &key(number)).expect("remove");
            } else if let Some(value) = session.get(&tree, &key(number)).expect("get") {
                map.insert(key(number).to_vec(), value);
            }
        }
    }
    engine.drop_tree(engine.tree("tree 0").expect("tree")).expect("drop");
    contents.remove("tree 0");
    contents
}

fn assert_holds(engine: &Engine, contents: &Contents, what: &str) {
    let session = engine.session().expect("session");
    for (name, map) in contents {
        let tree = engine.open_tree(name).expect("open");
        let tree = tree.unwrap_or_else(|| panic!("{what}: {name} is missing"));
        let mut records = session.scan(&tree).expect("scan");
        let mut expected = map.iter();
        while let Some((key, value)) = records.next_entry().expect("next") {
            assert_eq!(expected.next(), Some((&key.to_vec(), &value.to_vec())), "{what}: {name}");
        }
        assert_eq!(expected.next(), None, "{what}: {name}");
    }
}

/// The file is as long as its pages in use need, but for a few: leaves merge when they are written.
fn assert_compact(engine: &Engine, what: &str) {
    let stats = engine.stats();
    let most = (stats.used_pages * 33 / 32 + 16).max(256) * PAGE_SIZE as u64;
    assert!(stats.file_bytes <= most, "{what}: {stats:?}");
}

fn compact_and_reopen(device: &Device, frames: u64) {
    let engine = device.open(options(frames).durability(Durability::None)).expect("open");
    let contents = fill_and_thin_out(&engine, 3000);
    let promised = engine.stats().compact_bytes;
    let report = engine.compact().expect("compact");
    assert!(report.moved_pages > 0, "{report:?}");
    assert!(report.bytes_after < report.bytes_before / 2, "{report:?}");
    assert!(report.bytes_before - report.bytes_after >= promised, "{report:?}, not {promised}");
    assert_eq!(report.bytes_after, engine.stats().file_bytes);
    assert_compact(&engine, "compacted");
    assert_holds(&engine, &contents, "compacted");
    assert_verified(&engine);
    let again = engine.compact().expect("once more");
    assert!(again.bytes_after <= report.bytes_after, "{again:?} after {report:?}");
    // It grows again, and shrinks again.
    let session = engine.session().expect("session");
    let tree = engine.tree("more").expect("tree");
    (0..4000).for_each(|n| {
        session.put_ticket(&tree, &key(n), &[5; 700]).map(drop).expect("put");
    });
    assert!(engine.stats().file_bytes > 2 * again.bytes_after, "{:?}", engine.stats());
    drop(session);
    assert_verified(&engine);
    engine.drop_tree(tree).expect("drop");
    engine.compact().expect("compact");
    assert_compact(&engine, "compacted again");
    assert_holds(&engine, &contents, "compacted again");
    engine.close().expect("close");
    let engine = device.open(options(48)).expect("open");
    assert_holds(&engine, &contents, "opened");
    assert_compact(&engine, "opened");
    assert_verified(&engine);
    engine.close().expect("close");
}

#[test]
fn a_store_of_which_most_was_deleted_gives_its_room_back() {
    compact_and_reopen(&Device::memory(), 500);
    compact_and_reopen(&Device::memory(), 48);
    for kind in built([IoKind::Threads, IoKind::Uring]) {
        let directory = tempfile::tempdir().expect("a directory");
        let device = Device::files(kind, directory.path());
        compact_and_reopen(&device, 500);
        let len = std::fs::metadata(directory.path().join("data")).expect("data").len();
        assert_eq!(len, device.pages.capacity_pages() * PAGE_SIZE as u64);
    }
}

#[test]
fn readers_writers_and_snapshots_go_on_during_a_compaction() {
    const WRITERS: u64 = 3;
    let watchdog = Watchdog::start("compaction beside others", Duration::from_secs(60));
    let seed = seed();
    let _context = Context(("seed", seed));
    let device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
    let options = options(160).durability(Durability::None);
    let engine = Device::sim(&device).open(options.clone()).expect("open");
    let contents = fill_and_thin_out(&engine, 1500);
    let reader = engine.session().expect("session");
    let old = reader.begin_with(TxnOptions { read_only: true, ..TxnOptions::default() });
    let old = old.expect("begin");
    let done = AtomicBool::new(false);
    let shrunk = AtomicU64::new(0);
    let maps: Vec<BTreeMap<Vec<u8>, Vec<u8>>> = thread::scope(|scope| {
        let engine = &engine;
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let report = engine.compact().expect("compact");
                shrunk.fetch_add(report.moved_pages, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(2));
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_holds(engine, &contents, "meanwhile");
                engine.checkpoint().expect("checkpoint");
            }
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let watchdog = &watchdog;
                scope.spawn(move || {
                    let session = engine.session().expect("session");
                    let tree = engine.tree(&format!("writer {writer}")).expect("tree");
                    let mut random = Random::new(seed + writer);
                    write(&session, &tree, &mut random, 4000 * rounds(), watchdog)
                })
            })
            .collect();
        let maps = writers.into_iter().map(|writer| writer.join().expect("no panic")).collect();
        done.store(true, Ordering::Relaxed);
        maps
    });
    assert!(shrunk.load(Ordering::Relaxed) > 100, "{shrunk:?} pages were moved");
    for (name, map) in &contents {
        let tree = engine.open_tree(name).expect("open").expect("it exists");
        for (key, value) in map.iter().take(50) {
            match old.get(&tree, key) {
                Ok(found) => assert_eq!(found.as_ref(), Some(value), "{name} as of then"),
                Err(Error::SnapshotTooOld(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    old.commit().expect("end");
    drop(reader);
    let mut all = contents;
    for (writer, map) in maps.into_iter().enumerate() {
        all.insert(format!("writer {writer}"), map);
    }
    engine.compact().expect("compact");
    assert_holds(&engine, &all, "in the end");
    assert_verified(&engine);
    engine.sync().expect("sync");
    let left = Arc::new(device.crash(seed));
    let recovered = Device::sim(&left).open(options.clone()).expect("recover");
    assert_holds(&recovered, &all, "recovered");
    assert_verified(&recovered);
    drop(recovered);
    engine.close().expect("close");
    let engine = Device::sim(&device).open(options).expect("open");
    assert_holds(&engine, &all, "opened");
    assert_verified(&engine);
}

fn write(
    session: &Session,
    tree: &wattle::Tree,
    random: &mut Random,
    steps: u64,
    watchdog: &Watchdog,
) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut map = BTreeMap::new();
    for step in 0..steps {
        let key = key(random.below(1500)).to_vec();
        // More records for a while, then fewer.
        if random.below(100) < if step / 1000 % 2 == 0 { 75 } else { 25 } {
            let len = if random.below(100) == 0 { 9000 } else { 400 };
            let value = vec![random.below(256) as u8; len];
            session.put(tree, &key, &value).expect("put");
            map.insert(key, value);
        } else {
            let was = map.remove(&key).is_some();
            assert_eq!(session.remove(tree, &key).expect("remove"), was);
        }
        watchdog.step();
    }
    map
}

#[test]
fn a_power_cut_during_a_compaction_loses_nothing() {
    let watchdog = Watchdog::start("crash images of a compaction", Duration::from_secs(60));
    for turn in 0..3 * rounds() {
        let seed = seed() + turn;
        let _context = Context(("seed", seed));
        let sim = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        let quiet = Camera { one_in: 0, most: 60, whole_pages: false };
        let device = Capturing::new(sim, 1, seed, quiet);
        let on = Device { pages: device.clone(), log: device.clone() };
        let options = options(if turn % 2 == 0 { 48 } else { 300 });
        let engine = on.open(options.clone()).expect("open");
        let contents = fill_and_thin_out(&engine, 600);
        engine.sync().expect("sync");
        device.aim(Camera { one_in: 20, ..quiet });
        let report = engine.compact().expect("compact");
        assert!(report.bytes_after < report.bytes_before, "{report:?}");
        // And while it grows over what was cut off.
        device.aim(Camera { one_in: 20, most: 90, ..quiet });
        let session = engine.session().expect("session");
        let tree = engine.tree("more").expect("tree");
        for number in 0..1500 {
            session.put_ticket(&tree, &key(number), &[6; 500]).map(drop).expect("put");
        }
        engine.checkpoint().expect("checkpoint");
        drop((session, tree));
        drop(engine);
        let images = device.take();
        assert!(images.len() > 10, "{} images", images.len());
        for image in images {
            let what = format!("{image:?}");
            let left = Device::sim(&Arc::new(image.sim));
            let engine = left.open(options.clone().pool_bytes(MIN_POOL_BYTES));
            let engine = engine.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_holds(&engine, &contents, &what);
            assert_verified(&engine);
            // It goes on from there.
            engine.compact().unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_holds(&engine, &contents, &what);
            assert_verified(&engine);
            engine.close().unwrap_or_else(|error| panic!("{what}: {error}"));
            let engine = left.open(options.clone()).expect("open");
            assert_holds(&engine, &contents, &what);
            watchdog.step();
        }
    }
}

#[test]
fn a_file_that_cannot_be_cut_off_keeps_its_length_and_the_store_goes_on() {
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let engine = Device::sim(&sim).open(options(200)).expect("open");
    let contents = fill_and_thin_out(&engine, 500);
    sim.set_plan(FaultPlan::new(1).always(Op::Shrink, Fault::Error(std::io::ErrorKind::Other)));
    let error = engine.compact().expect_err("the cut fails");
    assert!(error.to_string().contains("cut off"), "{error}");
    assert_holds(&engine, &contents, "after the failure");
    assert_verified(&engine);
    engine.close().expect("close");
    // Longer than the superblock says.
    let engine = Device::sim(&sim).open(options(200)).expect("open");
    assert_holds(&engine, &contents, "opened");
    assert_verified(&engine);
    sim.heal();
    engine.compact().expect("compact");
    assert_compact(&engine, "in the end");
    assert_verified(&engine);
    engine.close().expect("close");
}

#[test]
fn a_compaction_ends_when_it_is_told_to_and_is_refused_without_a_log() {
    let engine = Device::memory().open(options(200)).expect("open");
    let contents = fill_and_thin_out(&engine, 500);
    let error = engine.compact_until(&AtomicBool::new(true)).expect_err("told to stop");
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert_holds(&engine, &contents, "interrupted");
    assert_verified(&engine);
    engine.close().expect("close");
    let engine = Device::memory().open(options(200).log(false)).expect("open");
    assert!(matches!(engine.compact(), Err(Error::Limit(_))));
}

#[test]
fn page_ids_that_an_idle_session_holds_do_not_keep_the_file_long() {
    let engine = Device::memory().open(options(500)).expect("open");
    let contents = fill_and_thin_out(&engine, 1500);
    // Its last split took ids from the end of the file.
    let idle = engine.session().expect("session");
    let tree = engine.tree("tail").expect("tree");
    (0..3000).for_each(|n| idle.put(&tree, &key(n), &[1; 400]).expect("put"));
    let other = engine.session().expect("session");
    (0..3000).for_each(|n| assert!(other.remove(&tree, &key(n)).expect("remove")));
    engine.compact().expect("compact");
    assert_compact(&engine, "beside an idle session");
    (0..500).for_each(|n| idle.put(&tree, &key(n), &[1; 400]).expect("put"));
    drop((idle, other, tree));
    assert_holds(&engine, &contents, "in the end");
    assert_verified(&engine);
}

/// More pages than one bitmap describes.
fn load_two_groups(engine: &Engine, name: &str) {
    let tree = engine.create_tree(name).expect("create");
    let session = engine.session().expect("session");
    let entries = (0..72_000u64).map(|number| (number.to_be_bytes(), [7; 1900]));
    session.bulk_load(&tree, entries).expect("load");
    assert!(engine.stats().used_pages > BITMAP_GROUP + 1000, "{:?}", engine.stats());
}

#[test]
fn bitmaps_behind_a_cut_that_was_lost_are_not_taken_for_valid_ones() {
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let open = || Device::sim(&sim).open(options(1000)).expect("open");
    let engine = open();
    load_two_groups(&engine, "first");
    // Twice: both copies are written.
    engine.checkpoint().expect("checkpoint");
    engine.drop_tree(engine.tree("first").expect("tree")).expect("drop");
    engine.checkpoint().expect("checkpoint");
    sim.set_plan(FaultPlan::new(1).always(Op::Shrink, Fault::Error(std::io::ErrorKind::Other)));
    engine.compact().expect_err("the cut fails");
    sim.heal();
    let capacity = engine.stats().pages;
    assert!(capacity < BITMAP_GROUP && sim.capacity_pages() > BITMAP_GROUP, "{capacity} pages");
    engine.close().expect("close");
    // The file is longer than the superblock says; it grows again over what was cut off.
    for name in ["second", "third"] {
        let engine = open();
        assert_verified(&engine);
        load_two_groups(&engine, name);
        engine.close().expect("close");
        let engine = open();
        assert_verified(&engine);
        engine.drop_tree(engine.tree(name).expect("tree")).expect("drop");
        // This time it works.
        engine.compact().expect("compact");
        assert!(sim.capacity_pages() < BITMAP_GROUP, "{} pages", sim.capacity_pages());
        // And once more while it is open.
        load_two_groups(&engine, "again");
        engine.checkpoint().expect("checkpoint");
        let left = Device::sim(&Arc::new(sim.crash(3))).open(options(1000)).expect("recover");
        assert_verified(&left);
        drop(left);
        engine.drop_tree(engine.tree("again").expect("tree")).expect("drop");
        engine.close().expect("close");
    }
}

#[test]
fn nor_are_they_by_a_recovery_that_gives_the_log_up() {
    let sim = Arc::new(SimStorage::new(FaultPlan::new(2)));
    // Segments of 256 KiB: some of them go when the pages are as they say.
    let options = || options(1000).log_bytes(4 << 20);
    let engine = Device::sim(&sim).open(options()).expect("open");
    load_two_groups(&engine, "first");
    engine.checkpoint().expect("checkpoint");
    engine.drop_tree(engine.tree("first").expect("tree")).expect("drop");
    engine.checkpoint().expect("checkpoint");
    sim.set_plan(FaultPlan::new(2).always(Op::Shrink, Fault::Error(std::io::ErrorKind::Other)));
    engine.compact().expect_err("the cut fails");
    sim.heal();
    let (tree, session) = (engine.tree("t").expect("tree"), engine.session().expect("session"));
    for number in 0..1200 {
        session.put_ticket(&tree, &key(number), &[5; 1000]).map(drop).expect("put");
    }
    engine.sync().expect("durable");
    let segments = sim.segments().expect("list").len();
    let left = Arc::new(sim.crash(5));
    assert!(segments > 3 && left.capacity_pages() > BITMAP_GROUP, "{segments} segments");
    for life in ["recovered", "opened again"] {
        let engine = Device::sim(&left).open(options()).expect(life);
        let tree = engine.tree("t").expect("tree");
        let session = engine.session().expect("session");
        assert_eq!(session.scan(&tree).expect("scan").count(), 1200, "{life}");
        assert_verified(&engine);
    }
}
