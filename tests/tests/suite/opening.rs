//! Opening and closing a store without a change writes nothing, a store that was closed takes
//! little room, and its log begins with the first change.

use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};
use wattle::{
    Durability, Engine, Error, IoKind, LOG_DIRECTORY, Options, WARM_FILE,
    io::{Fault, FaultPlan, LogBuffer, LogStorage, Op, PageWrite, SimStorage, Storage},
};
use wattle_buffer::PageImage;
use wattle_tests::harness::{Device, Watchdog, assert_verified, eventually, small_pool};

fn options() -> Options {
    small_pool(256).io(IoKind::Threads)
}

/// All files of a store with their times and contents.
fn files(store: &Path) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
    let mut files = BTreeMap::new();
    for folder in [store.to_owned(), store.join(LOG_DIRECTORY)] {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            // The list of pages in memory is no part of the contents.
            if path.is_file() && !path.ends_with(WARM_FILE) {
                let time = path.metadata().expect("metadata").modified().expect("a time");
                let bytes = fs::read(&path).expect("a file");
                files.insert(path, (time, bytes));
            }
        }
    }
    files
}

fn log_bytes(store: &Path) -> u64 {
    let files = fs::read_dir(store.join(LOG_DIRECTORY)).expect("the log");
    files.map(|file| file.expect("an entry").metadata().expect("metadata").len()).sum()
}

fn put(engine: &Engine, keys: std::ops::Range<u32>) {
    let (tree, session) = (engine.tree("tree").expect("tree"), engine.session().expect("session"));
    for key in keys {
        session.put(&tree, &key.to_be_bytes(), &[key as u8; 500]).expect("put");
    }
}

fn assert_records(engine: &Engine, count: u32) {
    let (tree, session) = (engine.tree("tree").expect("tree"), engine.session().expect("session"));
    for key in 0..count {
        let found = session.get(&tree, &key.to_be_bytes()).expect("get");
        assert_eq!(found, Some(vec![key as u8; 500]), "record {key}");
    }
    assert_eq!(session.scan(&tree).expect("scan").count(), count as usize);
}

#[test]
fn a_store_that_is_opened_read_and_closed_is_not_written() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("store");
    for count in [0, 1, 5000] {
        let engine = Engine::open(&path, options()).expect("open");
        put(&engine, 0..count);
        engine.close().expect("close");
        let before = files(&path);
        for _ in 0..3 {
            let engine = Engine::open(&path, options()).expect("open again");
            assert_records(&engine, count);
            assert_verified(&engine);
            engine.close().expect("close");
        }
        let after = files(&path);
        assert!(before.keys().eq(after.keys()), "{:?}, {:?}", before.keys(), after.keys());
        for (name, file) in before {
            assert!(after[&name] == file, "{} was written", name.display());
        }
    }
}

#[test]
fn a_closed_store_takes_little_room() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("store");
    Engine::open(&path, options()).expect("open").close().expect("close");
    let all: usize = files(&path).values().map(|(_, bytes)| bytes.len()).sum();
    assert!(all <= 64 << 10, "an empty store has {all} bytes");
    let mut count = 0;
    // The second time more than a segment.
    for more in [10, 60_000, 1] {
        let engine = Engine::open(&path, options()).expect("open");
        put(&engine, count..count + more);
        count += more;
        engine.close().expect("close");
        let log = log_bytes(&path);
        assert!(log <= 8 << 10, "the log of a closed store has {log} bytes");
    }
    let engine = Engine::open(&path, options()).expect("open");
    assert_records(&engine, count);
    assert_verified(&engine);
    engine.close().expect("close");
}

#[test]
fn the_log_of_a_closed_store_begins_when_there_is_room_for_it() {
    for kind in [ErrorKind::StorageFull, ErrorKind::PermissionDenied] {
        let watchdog = Watchdog::start("a first segment without room", Duration::from_secs(20));
        let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
        let device = Device::sim(&sim);
        let open = || {
            let options = small_pool(256).durability(Durability::Group);
            device.open(options.stall_timeout(Duration::from_millis(200))).expect("open")
        };
        let engine = open();
        put(&engine, 0..100);
        engine.close().expect("close");
        sim.set_plan(FaultPlan::new(1).always(Op::LogCreate, Fault::Error(kind)));
        // Without a change nothing is missing.
        let engine = open();
        assert_records(&engine, 100);
        engine.close().expect("close");
        let engine = open();
        let tree = engine.tree("tree").expect("tree");
        let session = engine.session().expect("session");
        for _ in 0..3 {
            let refused = session.put(&tree, b"key", b"value").expect_err("there is no log");
            let full = matches!(refused, Error::DiskFull { .. });
            assert_eq!(full, kind == ErrorKind::StorageFull, "{refused:?}");
            assert!(refused.to_string().contains("make log segment"), "{refused}");
            watchdog.step();
        }
        assert_eq!(session.get(&tree, b"key").expect("get"), None);
        sim.heal();
        eventually("there is room again", || session.put(&tree, b"key", b"value").is_ok());
        assert_eq!(session.get(&tree, b"key").expect("get").as_deref(), Some(&b"value"[..]));
        session.remove(&tree, b"key").expect("remove");
        drop((session, tree));
        engine.close().expect("close");
        let engine = open();
        assert_records(&engine, 100);
        assert_verified(&engine);
        engine.close().expect("close");
    }
}

/// A copy of a closed store that no sync has made durable.
fn unsynced_copy(of: &SimStorage) -> Arc<SimStorage> {
    let copy = Arc::new(SimStorage::new(FaultPlan::new(1)));
    Storage::reserve(&*copy, of.capacity_pages()).expect("room");
    for page in of.pages() {
        let mut image = PageImage::zeroed();
        image.0 = of.raw_page(page).expect("a page");
        let mut results = Vec::new();
        copy.write_pages(&[PageWrite { page, image: &image }], &mut results);
        results.into_iter().for_each(|result| result.expect("written"));
    }
    for (segment, bytes) in of.segments().expect("segments") {
        LogStorage::create(&*copy, segment, bytes).expect("a segment");
        let raw = of.raw_segment(segment).expect("a segment");
        let mut buffer = LogBuffer::new(raw.len());
        buffer.copy_from_slice(&raw);
        LogStorage::write(&*copy, segment, &[(0, &buffer)]).expect("written");
    }
    copy
}

#[test]
fn a_copy_that_was_never_synced_is_durable_from_the_first_change_on() {
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let engine = Device::sim(&sim).open(small_pool(256)).expect("open");
    put(&engine, 0..1000);
    engine.close().expect("close");
    for seed in 0..8 {
        let copy = unsynced_copy(&sim);
        let device = Device::sim(&copy);
        // Reading syncs nothing.
        let engine = device.open(small_pool(256)).expect("open the copy");
        assert_records(&engine, 1000);
        engine.close().expect("close");
        let counters = copy.counters();
        assert_eq!((counters.syncs, counters.log_syncs), (0, 0));
        assert!(!copy.unsynced_pages().is_empty() && !copy.unsynced_segments().is_empty());
        // A commit that is acknowledged stays, with all that was there before.
        let engine = device.open(small_pool(256)).expect("open the copy again");
        put(&engine, 1000..1001);
        let left = Arc::new(copy.crash(seed));
        engine.close().expect("close");
        let engine = Device::sim(&left).open(small_pool(256)).expect("open after the power cut");
        assert_records(&engine, 1001);
        assert_verified(&engine);
        engine.close().expect("close");
    }
}

#[test]
fn without_a_sync_of_the_store_before_it_no_change_is_acknowledged() {
    for op in [Op::Sync, Op::LogSync] {
        let _watchdog = Watchdog::start("a failing sync", Duration::from_secs(20));
        let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
        let device = Device::sim(&sim);
        let engine = device.open(small_pool(256)).expect("open");
        put(&engine, 0..100);
        engine.close().expect("close");
        sim.set_plan(FaultPlan::new(1).nth(op, 1, Fault::Error(ErrorKind::Other)));
        // Pages come into memory only where they are read.
        let options = small_pool(256).warm_start(false);
        let engine = device.open(options).expect("open: nothing is synced");
        let tree = engine.tree("tree").expect("tree");
        let session = engine.session().expect("session");
        let get = |key: u32| session.get(&tree, &key.to_be_bytes());
        assert_eq!(get(0).expect("get"), Some(vec![0; 500]));
        assert_eq!(session.get(&tree, b"key").expect("get"), None);
        for _ in 0..2 {
            // The second sync would succeed, and prove nothing.
            let refused = session.put(&tree, b"key", b"value").expect_err("not durable");
            assert!(refused.to_string().contains("sync"), "{op:?}: {refused}");
        }
        assert_eq!(session.get(&tree, b"key").expect("in memory"), None);
        assert_eq!(get(0).expect("in memory"), Some(vec![0; 500]));
        match op {
            // The device may give old pages from now on.
            Op::Sync => assert!(get(50).is_err(), "a page was read after a failed sync"),
            _ => assert_eq!(get(50).expect("get"), Some(vec![50; 500])),
        }
        drop((session, tree));
        engine.close().expect_err("it has failed");
        sim.heal();
        let engine = device.open(small_pool(256)).expect("open again");
        assert_records(&engine, 100);
        assert_verified(&engine);
        engine.close().expect("close");
    }
}

#[cfg(feature = "async")]
#[test]
fn threads_and_tasks_that_change_first_all_wait_for_the_log() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("store");
    Engine::open(&path, options()).expect("open").close().expect("close");
    let engine = Engine::open(&path, options()).expect("open");
    let tree = engine.tree("tree").expect("tree");
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (engine, tree) = (&engine, &tree);
            scope.spawn(move || {
                let key = thread.to_be_bytes();
                if thread % 2 == 0 {
                    let session = engine.session().expect("session");
                    session.put(tree, &key, &key).expect("put");
                    return;
                }
                wattle::run(4, async {
                    let session = engine.async_session().expect("session");
                    session.put(tree, &key, &key).await.expect("put");
                })
                .expect("run");
            });
        }
    });
    let session = engine.session().expect("session");
    assert_eq!(session.scan(&tree).expect("scan").count(), 4);
    drop((session, tree));
    engine.close().expect("close");
}
