//! Devices with little room: stores are opened on them, used and recovered, and nothing is left
//! there by an attempt that failed.

use std::{collections::BTreeMap, path::Path, process::Command, sync::Arc, time::Duration};
use wattle::{
    Durability, Engine, Error, IoKind, LOG_DIRECTORY, Options, Session, Tree,
    io::{Cut, FaultPlan, LogStorage, SimStorage},
};
use wattle_tests::{
    harness::{Device, Watchdog, assert_verified, small_pool},
    mounted::Mounted,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// As the command line opens stores.
fn usual() -> Options {
    Options::default().io(IoKind::Threads).stall_timeout(Duration::from_secs(2))
}

fn count(engine: &Engine) -> u64 {
    let tree = engine.open_tree("t").expect("open").expect("the tree");
    let session = engine.session().expect("a session");
    let records = session.scan(&tree).expect("a scan");
    records.fold(0, |count, entry| count + entry.map(|_| 1).expect("a record"))
}

/// Names and sizes of what is in the log.
fn log_files(store: &Path) -> BTreeMap<String, u64> {
    let entries = std::fs::read_dir(store.join(LOG_DIRECTORY)).expect("the log");
    let name_and_size = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, entry.metadata().expect("a size").len())
    };
    entries.map(|entry| name_and_size(entry.expect("an entry"))).collect()
}

#[test]
fn a_device_of_48_mb_takes_a_store_of_less_than_one() {
    let Some(device) = Mounted::new(48 * MIB) else { return };
    let store = device.path().join("store");
    for life in 0..3 {
        let engine = Engine::open(&store, usual()).expect("opened");
        let (tree, session) = (engine.tree("t").expect("tree"), engine.session().expect("session"));
        for number in 0..8000 {
            drop(session.put_ticket(&tree, &key(number), &[life; 100]).expect("there is room"));
        }
        drop((tree, session));
        engine.sync().expect("durable");
        assert_eq!(count(&engine), 8000);
        assert_verified(&engine);
        engine.close().expect("closed");
    }
    let log: u64 = log_files(&store).values().sum();
    assert!(log <= 3 * MIB, "{log} bytes of log are left on a small device");
}

#[test]
fn a_store_that_was_closed_opens_with_little_room_and_leaves_nothing_behind() {
    let watch = Watchdog::start("little room", Duration::from_secs(60));
    let Some(device) = Mounted::new(64 * MIB) else { return };
    let store = device.path().join("store");
    let engine = Engine::open(&store, usual()).expect("a new store");
    let (tree, session) = (engine.tree("t").expect("tree"), engine.session().expect("session"));
    for number in 0..5000 {
        drop(session.put_ticket(&tree, &key(number), &[1; 100]).expect("put"));
    }
    drop((tree, session));
    engine.close().expect("closed");
    for free in [10 * MIB, 2 * MIB, 600 * KIB, 300 * KIB, 160 * KIB] {
        watch.step();
        device.leave(free);
        let before = log_files(&store);
        let engine = Engine::open(&store, usual()).unwrap_or_else(|e| panic!("{free} free: {e}"));
        assert_eq!(count(&engine), 5000);
        assert_verified(&engine);
        engine.close().unwrap_or_else(|e| panic!("{free} free: {e}"));
        assert_eq!(log_files(&store).len(), before.len(), "{free} free");
    }
    // Too little even for the least segment: the store opens, the first change is refused, and
    // nothing stays of the attempt.
    for free in [100 * KIB, 0] {
        watch.step();
        device.leave(free);
        let before = log_files(&store);
        let options = usual().stall_timeout(Duration::from_millis(500));
        let engine = Engine::open(&store, options).unwrap_or_else(|e| panic!("{free} free: {e}"));
        assert_eq!(count(&engine), 5000);
        let (tree, session) = (engine.tree("t").expect("tree"), engine.session().expect("session"));
        let refused = session.put(&tree, &key(0), &[2; 100]).err();
        assert!(matches!(refused, Some(Error::DiskFull { .. })), "{free} free: {refused:?}");
        drop((tree, session));
        engine.close().unwrap_or_else(|e| panic!("{free} free: {e}"));
        assert_eq!(log_files(&store), before, "{free} free");
        let reader = Engine::open(&store, usual().read_only(true)).expect("for reading");
        assert_eq!(count(&reader), 5000);
        assert_verified(&reader);
    }
    device.leave(8 * MIB);
    let engine = Engine::open(&store, usual()).expect("room again");
    assert_eq!(count(&engine), 5000);
}

/// Changes records until there is no more room, beside a transaction that is open and keeps the
/// log; gives how many commits are durable.
fn until_full(engine: &Engine, session: &Session, tree: &Tree) -> u64 {
    let mut open = engine.begin().expect("a transaction");
    for number in 0..200 {
        open.put(tree, &key(1_000_000 + number), &[7; 200]).expect("put");
    }
    let mut acked = 0;
    let error = loop {
        match session.put(tree, &key(acked), &[acked as u8; 500]) {
            Ok(()) => acked += 1,
            Err(error) => break error,
        }
        assert!(acked < 200_000, "the device does not get full");
    };
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    std::mem::forget(open);
    acked
}

fn logged_in_little() -> Options {
    small_pool(400)
        .log_bytes(4 * MIB)
        .durability(Durability::Group)
        .stall_timeout(Duration::from_millis(300))
}

const STORE: &str = "WATTLE_TEST_FULL_STORE";

#[test]
#[ignore = "is run by another test, as a process that ends in the middle"]
fn child_that_fills_the_device() {
    let Some(store) = std::env::var_os(STORE) else { return };
    let engine = Engine::open(store, logged_in_little().io(IoKind::Threads)).expect("a new store");
    let (tree, session) = (engine.tree("t").expect("tree"), engine.session().expect("session"));
    println!("acked {}", until_full(&engine, &session, &tree));
    std::process::abort();
}

#[test]
fn after_a_kill_on_a_full_device_the_store_opens() {
    let watch = Watchdog::start("full and killed", Duration::from_secs(60));
    let Some(device) = Mounted::new(24 * MIB) else { return };
    let store = device.path().join("store");
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["little_room::child_that_fills_the_device", "--exact", "--ignored", "--nocapture"]);
    let output = child.env(STORE, &store).output().expect("the child");
    let text = String::from_utf8_lossy(&output.stdout);
    let acked = text.lines().find_map(|line| line.split("acked ").nth(1)?.trim().parse().ok());
    let acked: u64 =
        acked.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    watch.step();
    let log: u64 = log_files(&store).values().sum();
    assert!(log > 8 * MIB, "the log is within its limit: {log}");
    device.leave(0);
    let engine = Engine::open(&store, logged_in_little().io(IoKind::Threads)).expect("recovered");
    assert_eq!(count(&engine), acked);
    assert_verified(&engine);
    // The room that the log gave back is free.
    let (tree, session) = (engine.tree("t").expect("tree"), engine.session().expect("session"));
    for number in 0..500 {
        session.put(&tree, &key(number), &[5; 500]).expect("put");
    }
    drop((tree, session));
    engine.close().expect("closed");
    assert!(device.free() > 4 * MIB, "{} bytes are free", device.free());
}

#[test]
fn recovery_needs_no_more_room_for_the_log_than_it_frees() {
    let watch = Watchdog::start("full log", Duration::from_secs(60));
    for (seed, cut) in [Cut::Process, Cut::All, Cut::Nothing, Cut::Sectors].into_iter().enumerate()
    {
        watch.step();
        let plan = || FaultPlan::new(seed as u64).log_limit(6 * MIB);
        let device = Arc::new(SimStorage::new(plan()));
        let engine = Device::sim(&device).open(logged_in_little()).expect("a new store");
        let (tree, session) = (engine.tree("t").expect("tree"), engine.session().expect("session"));
        let acked = until_full(&engine, &session, &tree);
        let image = Arc::new(device.crash_as(seed as u64, cut));
        // Others have taken what was free: all that the log has is what it has.
        let used: u64 = image.segments().expect("list").iter().map(|(_, bytes)| bytes).sum();
        image.set_plan(FaultPlan::new(seed as u64).log_limit(used));
        let engine = Device::sim(&image).open(logged_in_little()).expect("recovered");
        assert_eq!(count(&engine), acked, "{cut:?}");
        assert_verified(&engine);
        engine.close().expect("closed");
    }
}
