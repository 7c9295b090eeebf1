//! A power cut at any moment leaves every acknowledged transaction, no half of another one, and a
//! store that verifies: crash images are taken while workloads run, and each is opened and
//! compared.
//!
//! `WATTLE_ROUNDS` multiplies the length, `WATTLE_CRASH_SEED` runs one seed alone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use wattle::{
    Engine, MIN_LOG_BYTES, MIN_POOL_BYTES, Options,
    io::{Cut, Fault, FaultPlan, Op, SimStorage},
};
use wattle_tests::{
    crash::{
        backup,
        check::{self, Setting},
        crowd,
        device::{Camera, Capturing, Image},
        history::State,
    },
    harness::{Context, Watchdog, one_seed, rounds},
};

/// Images that a default run of the suite looks at, at least.
const LEAST_IMAGES: u64 = 10_000;
/// A device that writes pages whole.
const WHOLE_PAGES: Setting = Setting { whole_pages: true, log_room: None };
/// Threads that look at images.
const THREADS: u64 = 2;

/// After a failure there is nothing more to be done.
struct LastOne<'c>(&'c AtomicU64);

impl Drop for LastOne<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(u64::MAX / 2, Ordering::Relaxed);
        }
    }
}

/// Runs seeds, each a workload of its own, in two threads until enough images were looked at.
fn run_seeds(least: u64, watchdog: &Watchdog, run: impl Fn(u64) -> u64 + Sync) -> u64 {
    if let Some(seed) = one_seed() {
        return run(seed);
    }
    let (checked, next) = (AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while checked.load(Ordering::Relaxed) < least {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let _context = Context(("seed", seed));
                    let _last = LastOne(&checked);
                    checked.fetch_add(run(seed), Ordering::Relaxed);
                    watchdog.step();
                }
            });
        }
    });
    let checked = checked.into_inner();
    let seeds = next.into_inner();
    println!("{checked} images of {seeds} seeds in {:.1} s", begun.elapsed().as_secs_f64());
    checked
}

#[test]
fn a_power_cut_at_any_moment_leaves_what_was_acknowledged_and_nothing_half() {
    let watchdog = Watchdog::start("crash images", Duration::from_secs(120));
    let least = LEAST_IMAGES * rounds();
    let checked = run_seeds(least, &watchdog, |seed| check::run(seed, 300, 40, Setting::default()));
    assert!(one_seed().is_some() || checked >= least, "only {checked} images");
}

/// Few changes between openings and closings, with an image of each moment.
#[test]
fn a_power_cut_while_a_store_is_opened_or_closed_leaves_what_was_acknowledged() {
    let watchdog = Watchdog::start("crash images of closings", Duration::from_secs(120));
    let least = LEAST_IMAGES * rounds() / 5;
    let checked =
        run_seeds(least, &watchdog, |seed| check::run(5000 + seed, 8, 1, Setting::default()));
    assert!(one_seed().is_some() || checked >= least, "only {checked} images");
}

#[test]
fn of_several_threads_each_transaction_is_there_as_a_whole() {
    let watchdog = Watchdog::start("crash images of a crowd", Duration::from_secs(120));
    let least = LEAST_IMAGES * rounds() / 10;
    let checked = run_seeds(least, &watchdog, |seed| crowd::run(seed, 12, 24, Setting::default()));
    assert!(one_seed().is_some() || checked >= least, "only {checked} images");
}

#[test]
fn a_device_that_writes_pages_whole_needs_no_images_in_the_log() {
    let watchdog = Watchdog::start("crash images of whole pages", Duration::from_secs(120));
    let least = LEAST_IMAGES * rounds() / 10;
    let checked = run_seeds(least, &watchdog, |seed| check::run(1000 + seed, 150, 40, WHOLE_PAGES));
    assert!(one_seed().is_some() || checked >= least, "only {checked} images");
}

#[test]
fn a_backup_is_the_store_of_a_moment_and_an_unfinished_one_is_no_store() {
    let watchdog = Watchdog::start("crash images of backups", Duration::from_secs(120));
    let least = LEAST_IMAGES * rounds() / 20;
    let checked = run_seeds(least, &watchdog, |seed| {
        let setting = if seed % 2 == 1 { WHOLE_PAGES } else { Setting::default() };
        let (images, backups) = backup::run(seed, 3, setting);
        assert_eq!(backups, 3);
        images
    });
    assert!(one_seed().is_some() || checked >= least, "only {checked} images");
}

/// Changes wait for room again and again.
#[test]
fn a_device_with_little_room_for_the_log_loses_nothing_either() {
    let watchdog = Watchdog::start("crash images of full devices", Duration::from_secs(120));
    let least = LEAST_IMAGES * rounds() / 20;
    let setting = Setting { log_room: Some(MIN_LOG_BYTES / 4 * 3), ..Setting::default() };
    let checked = run_seeds(least, &watchdog, |seed| crowd::run(5000 + seed, 12, 24, setting));
    assert!(one_seed().is_some() || checked >= least, "only {checked} images");
}

/// The images of one opening and closing of a store with or without a log.
fn open_and_close(sim: &Arc<SimStorage>, options: &Options, seed: u64) -> Vec<Image> {
    let camera = Camera { one_in: 1, most: 1000, whole_pages: false };
    let device = Capturing::new(sim.clone(), 1, seed, camera);
    let engine = check::open(&device, options).expect("open");
    check::close(engine, "a store");
    device.take()
}

#[test]
fn a_power_cut_while_a_store_gets_a_log_or_gives_it_up_loses_nothing() {
    for seed in 0..10 * rounds() {
        let _context = Context(("seed", seed));
        let sim = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        let logged = check::options(seed, Setting::default());
        let unlogged = logged.clone().log(false);
        {
            let engine = Engine::open_on(sim.clone(), sim.clone(), unlogged.clone()).expect("new");
            let tree = engine.tree("t").expect("tree");
            let session = engine.session().expect("session");
            for key in 0..300u32 {
                session.put(&tree, &key.to_be_bytes(), &[7; 100]).expect("put");
            }
            drop((session, tree));
            check::close(engine, "a new store");
        }
        for options in [&logged, &unlogged, &unlogged, &logged, &logged] {
            for image in open_and_close(&sim, options, seed) {
                let what = format!("{image:?}");
                let left = Arc::new(image.sim);
                let engine = Engine::open_on(left.clone(), left.clone(), logged.clone());
                let engine = engine.unwrap_or_else(|error| panic!("{what}: {error}"));
                let found = State::read(&engine).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(found.records("t").len(), 300, "{what}");
                check::verify(&engine, &what);
                check::close(engine, &what);
            }
        }
    }
}

/// Trees of three levels, one of chunks and one of records with long keys, and what else is there.
fn deep_trees(engine: &Engine) {
    let session = engine.session().expect("session");
    let (deep, other) = (engine.tree("deep").expect("tree"), engine.tree("other").expect("tree"));
    session.put(&deep, b"large", &vec![3; 2_000_000]).expect("put");
    for key in 0..1500u32 {
        let digits = [key / 512, key / 64 % 8, key / 8 % 8, key % 8];
        let key: Vec<u8> = digits.into_iter().flat_map(|digit| [digit as u8; 120]).collect();
        session.put_ticket(&deep, &key, &[5; 200]).map(drop).expect("put");
    }
    session.put(&other, b"key", &vec![4; 5000]).expect("put");
    // Chunks that are still to be cleared away when the tree goes.
    session.put(&deep, b"large too", &vec![3; 30_000]).expect("put");
    session.remove(&deep, b"large too").expect("remove");
}

#[test]
fn a_power_cut_while_a_deep_tree_is_dropped_leaves_it_whole_or_not_at_all() {
    for seed in 0..rounds() {
        let _context = Context(("seed", seed));
        let sim = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        let options = check::options(seed, Setting::default()).pool_bytes(MIN_POOL_BYTES);
        let quiet = Camera { one_in: 0, most: 60, whole_pages: false };
        let device = Capturing::new(sim, 1, seed, quiet);
        let engine = check::open(&device, &options).expect("open");
        deep_trees(&engine);
        device.aim(Camera { one_in: 2, ..quiet });
        let tree = engine.open_tree("deep").expect("open").expect("it exists");
        // Each step of the drop takes longer than a flush of the log, so that the log ends in the
        // middle of it most often.
        let slow = Fault::Latency(Duration::from_micros(500));
        device.sim().set_plan(FaultPlan::new(seed).always(Op::Read, slow));
        device.issue(0, 1);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    engine.sync().expect("sync");
                }
            });
            engine.drop_tree(tree).expect("drop");
            done.store(true, Ordering::Relaxed);
        });
        device.ack(0, 1);
        check::close(engine, "after the drop");
        let images = device.take();
        assert!(images.len() > 10, "{} images", images.len());
        for image in images {
            let what = format!("{image:?}");
            let written_only = image.cut == Cut::Process;
            let again = Camera { one_in: 60, ..quiet };
            let again = Capturing::new(Arc::new(image.sim), 1, seed, again);
            let gone = check_drop(&again, &options, &what);
            assert!(gone || image.bounds[0].acked == 0, "{what}: the drop was acknowledged");
            assert!(!gone || image.bounds[0].issued == 1, "{what}: the drop had not begun");
            for image in again.take() {
                let what = format!("{what}, then {image:?}");
                // If the process ended, the record of the drop may be in the log without being
                // durable. Until recovery syncs the log, the drop is not acknowledged, and another
                // power cut may undo it.
                let open = written_only && gone && !image.log_synced;
                let left = Capturing::new(Arc::new(image.sim), 1, seed, quiet);
                let gone_now = check_drop(&left, &options, &what);
                assert!(gone_now == gone || open, "{what}: gone {gone}, then {gone_now}");
            }
        }
    }
}

/// Opens a store in which a tree was being dropped; gives whether it is gone.
fn check_drop(device: &Arc<Capturing>, options: &Options, what: &str) -> bool {
    let engine = check::open(device, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    check::verify(&engine, what);
    let names = engine.trees().expect("names");
    assert!(names.contains(&"other".to_string()), "{what}: {names:?}");
    let tree = engine.open_tree("deep").unwrap_or_else(|error| panic!("{what}: {error}"));
    if let Some(tree) = &tree {
        let session = engine.session().expect("session");
        assert_eq!(session.scan(tree).expect("scan").count(), 1501, "{what}");
    }
    let gone = tree.is_none();
    drop(tree);
    check::close(engine, what);
    gone
}

#[test]
fn what_was_deleted_before_a_power_cut_takes_no_pages_after_it() {
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let options = check::options(1, Setting::default());
    let open = |sim: &Arc<SimStorage>| {
        Engine::open_on(sim.clone(), sim.clone(), options.clone()).expect("open")
    };
    let engine = open(&sim);
    let tree = engine.tree("t").expect("tree");
    let keys = || (0..1000u32).map(u32::to_be_bytes);
    let mut txn = engine.begin().expect("begin");
    keys().for_each(|key| txn.put(&tree, &key, &[1; 100]).expect("put"));
    txn.commit().expect("commit");
    // Versions that this transaction may still read stay when the records are deleted.
    let mut reader = engine.begin().expect("begin");
    assert!(reader.get(&tree, &[0; 4]).expect("get").is_some());
    let mut txn = engine.begin().expect("begin");
    keys().for_each(|key| assert!(txn.remove(&tree, &key).expect("remove")));
    txn.commit().expect("commit");
    let left = Arc::new(sim.crash_as(1, Cut::Nothing));
    reader.put(&tree, b"other", b"value").expect("put");
    reader.abort().expect("abort");

    let engine = open(&left);
    check::verify(&engine, "after the power cut");
    let stats = engine.tree_stats().expect("statistics");
    assert_eq!((stats[0].records, stats[0].leaf_pages), (0, 1));
    check::close(engine, "after the power cut");
}

#[test]
fn what_a_transaction_took_back_itself_is_not_taken_back_again_from_others() {
    for (whole, seed) in [(false, 1), (true, 2)] {
        let sim = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        let options = check::options(seed, Setting::default());
        let engine = Engine::open_on(sim.clone(), sim.clone(), options.clone()).expect("open");
        let (session, tree) = (engine.session().expect("session"), engine.tree("t").expect("tree"));
        session.put(&tree, b"taken back", b"first").expect("put");
        session.put(&tree, b"kept", b"first").expect("put");
        // It changes a record, takes that back, and is open when the power is cut.
        let mut open = engine.begin().expect("begin");
        open.put(&tree, b"kept", b"never committed").expect("put");
        let mark = open.savepoint();
        open.put(&tree, b"taken back", b"never committed, and longer").expect("put");
        open.rollback_to(&mark).expect("roll back");
        // Another one changes the record then.
        session.put(&tree, b"taken back", b"second").expect("put");
        if whole {
            engine.checkpoint().expect("checkpoint");
        }
        let left = Arc::new(sim.crash_as(seed, Cut::Nothing));

        let again = Engine::open_on(left.clone(), left.clone(), options.clone()).expect("open");
        let (reader, tree) = (again.session().expect("session"), again.tree("t").expect("tree"));
        let get = |key: &[u8]| reader.get(&tree, key).expect("get").expect("a record");
        assert_eq!(get(b"taken back"), b"second");
        assert_eq!(get(b"kept"), b"first");
        check::verify(&again, "after the power cut");
    }
}
