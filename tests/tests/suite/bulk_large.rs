//! Bulk loads of large values against crashes, against those who remove what was loaded, and input
//! that panics.

use std::{
    io::ErrorKind,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use wattle::{
    Durability, Error, MIN_LOG_BYTES,
    io::{Cut, Fault, FaultPlan, Op, SimStorage},
};
use wattle_tests::{
    crash::{
        check::open,
        device::{Camera, Capturing},
    },
    harness::{Device, assert_verified, small_pool},
};

/// The power is cut after a load of one record with this key and a large value, before the value is
/// taken off the list of possible garbage. The list must name the record.
fn survives_a_cut_behind_its_load(key: &[u8], attempts: u64) {
    let mut with_record = 0;
    for seed in 0..attempts {
        let sim = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        let options = small_pool(64)
            .log_bytes(MIN_LOG_BYTES)
            .durability(Durability::Sync)
            .stall_timeout(Duration::from_secs(20));
        let none = Camera { one_in: 0, most: 0, whole_pages: true };
        let device = Capturing::new(sim, 1, seed, none);
        let engine = open(&device, &options).expect("open");
        let tree = engine.tree("t").expect("tree");
        let other = engine.tree("other").expect("tree");
        let session = engine.session().expect("session");
        // The tree of large values is there.
        session.put(&tree, b"x", &[1; 3000]).expect("put");
        session.remove(&tree, b"x").expect("remove");
        std::thread::sleep(Duration::from_millis(30));
        let begun = Instant::now();
        // Others make the log durable in the middle of it.
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2u8 {
                let (engine, other, done) = (&engine, &other, &done);
                scope.spawn(move || {
                    let session = engine.session().expect("session");
                    while !done.load(SeqCst) {
                        session.put(other, &[thread], b"v").expect("put");
                    }
                });
            }
            let entries = || {
                std::iter::once_with(|| {
                    device.aim(Camera { one_in: 1, most: 60, whole_pages: true });
                    (key, vec![7u8; 2500])
                })
            };
            let mut loaded = session.bulk_load(&tree, entries());
            // The janitor may not have cleared removed values yet if other threads had the
            // processor.
            while matches!(loaded, Err(Error::NotEmpty))
                && begun.elapsed() < Duration::from_secs(20)
            {
                std::thread::sleep(Duration::from_millis(1));
                // Images of attempts that were refused leave no room for those of the load.
                device.aim(none);
                drop(device.take());
                loaded = session.bulk_load(&tree, entries());
            }
            device.aim(none);
            done.store(true, SeqCst);
            loaded.expect("load");
        });
        for image in device.take() {
            let point = format!("seed {seed} {image:?}");
            let device = Capturing::new(Arc::new(image.sim), 1, seed, none);
            let again = open(&device, &options).expect("open");
            let tree = again.tree("t").expect("tree");
            let session = again.session().expect("session");
            let found = session.get(&tree, key).unwrap_or_else(|error| panic!("{point}: {error}"));
            with_record += u64::from(found.is_some());
            assert!(found.is_none_or(|value| value.len() == 2500), "{point}");
            std::thread::sleep(Duration::from_millis(8));
            let report = again.verify(&mut |_| {}).expect("verify");
            assert!(report.problems.is_empty(), "{point}: {:#?}", report.problems);
        }
    }
    assert!(with_record > 0, "no image has the record");
}

#[test]
fn a_large_value_under_the_empty_key_survives_a_crash_behind_its_load() {
    survives_a_cut_behind_its_load(b"", 60);
}

#[test]
fn a_large_value_under_another_key_survives_a_crash_behind_its_load() {
    survives_a_cut_behind_its_load(b"\0", 10);
}

/// A thread that removes a loaded record before the loader has taken its value off the list lists
/// it as garbage, in the same place.
#[test]
fn large_values_removed_right_behind_their_load_leave_no_chunks_after_a_crash() {
    const RECORDS: u32 = 4_000;
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let options = || {
        small_pool(8_000)
            .log_bytes(256 << 20)
            .durability(Durability::Sync)
            .version_bytes(1 << 30)
            .stall_timeout(Duration::from_secs(20))
    };
    let engine = Device::sim(&sim).open(options()).expect("open");
    let tree = engine.tree("t").expect("tree");
    let other = engine.tree("other").expect("tree");
    let (one, two) = (engine.session().expect("session"), engine.session().expect("session"));
    one.put(&other, b"k", b"v").expect("put");
    // Nothing is cleared away before the crash.
    let reader = engine.begin().expect("begin");
    assert!(reader.get(&other, b"k").expect("get").is_some());
    let last = (RECORDS - 1).to_be_bytes();
    std::thread::scope(|scope| {
        let (engine, tree) = (&engine, &tree);
        scope.spawn(move || {
            while !engine.begin().expect("begin").contains(tree, &last).expect("contains") {}
            let mut txn = two.begin().expect("begin");
            for i in (0..RECORDS).rev().take(20) {
                assert!(txn.remove(tree, &i.to_be_bytes()).expect("remove"));
            }
            txn.commit().expect("commit");
        });
        let entries = (0..RECORDS).map(|i| (i.to_be_bytes(), vec![i as u8; 2500]));
        one.bulk_load(tree, entries).expect("bulk load");
    });
    engine.sync().expect("sync");
    let crashed = Arc::new(sim.crash_as(7, Cut::Nothing));
    let again = Device::sim(&crashed).open(options()).expect("open");
    std::thread::sleep(Duration::from_millis(500));
    assert_verified(&again);
    let tree = again.tree("t").expect("tree");
    let session = again.session().expect("session");
    assert_eq!(session.scan(&tree).expect("scan").count() as u32, RECORDS - 20);
}

/// A load that has come to its end says so, also when its large values cannot be taken off the
/// list.
#[test]
fn a_load_says_that_it_failed_only_when_the_tree_is_empty() {
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let options = small_pool(48)
        .log_bytes(16 * MIN_LOG_BYTES)
        .durability(Durability::Sync)
        .stall_timeout(Duration::from_secs(5));
    let engine = Device::sim(&sim).open(options).expect("open");
    let tree = engine.tree("t").expect("tree");
    let filler = engine.tree("filler").expect("tree");
    let (session, other) = (engine.session().expect("session"), engine.session().expect("session"));
    for i in 0..600u32 {
        other.put(&filler, &i.to_be_bytes(), &[1; 1500]).expect("put");
    }
    let mut next = 0u32;
    let entries = std::iter::from_fn(|| {
        next += 1;
        if next <= 600 {
            return Some((next.to_be_bytes(), vec![1u8; 2000]));
        }
        // Nothing of the catalog stays in memory.
        for i in (0..4).flat_map(|_| 0..600u32) {
            other.get(&filler, &i.to_be_bytes()).expect("get");
        }
        sim.set_plan(FaultPlan::new(1).always(Op::Read, Fault::Error(ErrorKind::TimedOut)));
        None
    });
    let outcome = session.bulk_load(&tree, entries);
    sim.heal();
    let count = session.scan(&tree).expect("scan").count();
    assert_eq!(count, if outcome.is_ok() { 600 } else { 0 }, "{outcome:?}");
    std::thread::sleep(Duration::from_millis(300));
    assert_verified(&engine);
}

#[test]
fn a_load_whose_input_panics_leaves_no_pages_in_use() {
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let options = small_pool(100).log_bytes(MIN_LOG_BYTES).durability(Durability::Sync);
    let engine = Device::sim(&sim).open(options).expect("open");
    let tree = engine.tree("t").expect("tree");
    let session = engine.session().expect("session");
    let load = |until: u32| {
        let entries = (0..400u32).map(move |i| {
            assert!(i < until, "the input");
            (i.to_be_bytes(), vec![1u8; if i % 10 == 0 { 4000 } else { 500 }])
        });
        catch_unwind(AssertUnwindSafe(|| session.bulk_load(&tree, entries)))
    };
    let mut in_use = Vec::new();
    for _ in 0..4 {
        assert!(load(300).is_err());
        // The chunks are cleared away in the background.
        let begun = Instant::now();
        let most = in_use.first().map_or(12, |first| first + 4);
        while engine.stats().used_pages > most && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(20));
        }
        in_use.push(engine.stats().used_pages);
    }
    assert!(in_use.iter().all(|pages| *pages <= in_use[0] + 4), "{in_use:?}");
    assert_verified(&engine);
    assert_eq!(load(u32::MAX).expect("no panic").expect("load"), 400);
    assert_verified(&engine);
}
