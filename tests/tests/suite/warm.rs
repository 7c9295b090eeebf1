//! Warm start: the pages of the last run are read again, whatever happened to their list, and never
//! in place of others.

use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use wattle::{
    DATA_FILE, Durability, Engine, IoKind, LOG_DIRECTORY, Options, PAGE_SIZE, Session, Tree,
    WARM_FILE,
};
use wattle_tests::harness::{
    Random, Watchdog, assert_verified, eventually, rounds, seed, small_pool,
};

const FRAMES: u64 = 512;
/// Records of a few hundred bytes; together they fill half of the pool.
const RECORDS: u64 = 2000;

fn options(frames: u64) -> Options {
    small_pool(frames)
        .io(IoKind::Threads)
        .durability(Durability::None)
        .stall_timeout(Duration::from_secs(20))
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; 300]
}

fn fill(engine: &Engine, name: &str, numbers: std::ops::Range<u64>) {
    let (tree, session) = (engine.tree(name).expect("tree"), engine.session().expect("session"));
    for number in numbers {
        session.put_ticket(&tree, &key(number), &value(number)).map(drop).expect("put");
    }
}

fn assert_records(session: &Session, tree: &Tree, count: u64) {
    for number in 0..count {
        let found = session.get(tree, &key(number)).expect("get");
        assert_eq!(found, Some(value(number)), "record {number}");
    }
}

/// A store with one tree, closed.
fn a_store(at: &Path, name: &str, records: u64) -> PathBuf {
    let path = at.join(name);
    let engine = Engine::open(&path, options(FRAMES)).expect("open");
    fill(&engine, "tree", 0..records);
    engine.close().expect("close");
    path
}

fn wait(engine: &Engine) {
    eventually("the warm start ends", || !engine.stats().is_warming);
}

#[test]
fn the_pages_of_the_last_run_come_back_and_operations_find_them() {
    let place = tempfile::tempdir().expect("directory");
    let path = a_store(place.path(), "store", RECORDS);
    for read_only in [false, true, false] {
        let engine = Engine::open(&path, options(FRAMES).read_only(read_only)).expect("open");
        wait(&engine);
        let warm = engine.stats();
        assert!(warm.warm_pages_listed > 150, "{warm:?}");
        assert_eq!(warm.warm_pages_listed, warm.warm_pages_read, "{warm:?}");
        assert_eq!(warm.evictions, 0);
        let (tree, session) = (engine.tree("tree").expect("tree"), engine.session().expect("one"));
        assert_records(&session, &tree, RECORDS);
        let after = engine.stats();
        assert_eq!(after.pages_read, warm.pages_read, "an operation had to read a page");
        assert_verified(&engine);
        drop((tree, session));
        engine.close().expect("close");
    }
    // Off: the list is neither read nor written.
    fs::remove_file(path.join(WARM_FILE)).expect("a list");
    let engine = Engine::open(&path, options(FRAMES).warm_start(false)).expect("open");
    fill(&engine, "tree", RECORDS..RECORDS + 10);
    engine.close().expect("close");
    assert!(!path.join(WARM_FILE).exists());
}

#[test]
fn a_smaller_pool_gets_the_most_valuable_pages_and_evicts_none() {
    let place = tempfile::tempdir().expect("directory");
    let path = a_store(place.path(), "store", RECORDS);
    for frames in [100, 180] {
        let engine = Engine::open(&path, options(frames)).expect("open");
        wait(&engine);
        let stats = engine.stats();
        assert_eq!(stats.evictions, 0, "{stats:?}");
        assert!(stats.warm_pages_read > frames / 4 && stats.warm_pages_read < frames, "{stats:?}");
        assert!(stats.free_frames > 0, "{stats:?}");
        let (tree, session) = (engine.tree("tree").expect("tree"), engine.session().expect("one"));
        assert_records(&session, &tree, RECORDS);
        drop((tree, session));
        engine.close().expect("close");
    }
}

#[test]
fn a_short_run_with_a_much_smaller_pool_keeps_the_list() {
    let place = tempfile::tempdir().expect("directory");
    let path = a_store(place.path(), "store", RECORDS);
    let list = fs::read(path.join(WARM_FILE)).expect("a list");
    for (frames, kept) in [(100, true), (FRAMES, false)] {
        let engine = Engine::open(&path, options(frames)).expect("open");
        wait(&engine);
        fill(&engine, "other", 0..RECORDS / 2);
        engine.close().expect("close");
        let now = fs::read(path.join(WARM_FILE)).expect("a list");
        assert_eq!(now == list, kept, "{} and {} bytes", now.len(), list.len());
    }
}

#[test]
fn a_list_that_is_damaged_or_of_another_store_is_not_used_and_is_replaced() {
    let place = tempfile::tempdir().expect("directory");
    let path = a_store(place.path(), "store", RECORDS);
    let other = a_store(place.path(), "other", 4 * RECORDS);
    let list = path.join(WARM_FILE);
    let whole = fs::read(&list).expect("a list");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    let of_other = fs::read(other.join(WARM_FILE)).expect("a list");
    let none = Vec::new();
    for bytes in [&damaged, &whole[..whole.len() - 1].to_vec(), &of_other, &none] {
        fs::write(&list, bytes).expect("written");
        // A writing that was interrupted left this.
        fs::write(path.join("warm.new"), b"half").expect("written");
        let engine = Engine::open(&path, options(FRAMES)).expect("open");
        wait(&engine);
        assert_eq!(engine.stats().warm_pages_read, 0);
        fill(&engine, "tree", RECORDS..RECORDS + 1);
        let (tree, session) = (engine.tree("tree").expect("tree"), engine.session().expect("one"));
        assert_records(&session, &tree, RECORDS + 1);
        drop((tree, session));
        engine.close().expect("close");
        let engine = Engine::open(&path, options(FRAMES)).expect("open");
        wait(&engine);
        assert!(engine.stats().warm_pages_read > 150, "{:?}", engine.stats());
        engine.close().expect("close");
        assert!(!path.join("warm.new").exists());
    }
}

#[test]
fn pipes_and_links_in_place_of_the_list_neither_block_nor_lose_anything() {
    let watchdog = Watchdog::start("files that are no lists", Duration::from_secs(30));
    let place = tempfile::tempdir().expect("directory");
    let path = a_store(place.path(), "store", RECORDS);
    let precious = place.path().join("precious");
    let pipe = |name: &str| {
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, path.join(name), FileType::Fifo, mode, 0).expect("a pipe");
    };
    for is_pipe in [true, false] {
        for name in [WARM_FILE, "warm.new", "device"] {
            let _absent = fs::remove_file(path.join(name));
            match is_pipe || name == WARM_FILE {
                true => pipe(name),
                false => symlink(&precious, path.join(name)).expect("a link"),
            }
        }
        fs::write(&precious, b"a file of others").expect("written");
        let engine = Engine::open(&path, options(FRAMES)).expect("open");
        wait(&engine);
        assert_eq!(engine.stats().warm_pages_read, 0);
        fill(&engine, "tree", 0..RECORDS);
        engine.close().expect("close");
        watchdog.step();
        assert_eq!(fs::read(&precious).expect("read"), b"a file of others");
        let engine = Engine::open(&path, options(FRAMES)).expect("open");
        wait(&engine);
        assert!(engine.stats().warm_pages_read > 150, "{:?}", engine.stats());
        engine.close().expect("close");
        watchdog.step();
    }
    // A directory in its place: there is no list, and nothing else.
    fs::remove_file(path.join(WARM_FILE)).expect("a list");
    fs::create_dir(path.join(WARM_FILE)).expect("a directory");
    let engine = Engine::open(&path, options(FRAMES)).expect("open");
    wait(&engine);
    fill(&engine, "tree", 0..RECORDS);
    engine.close().expect("close");
    assert!(path.join(WARM_FILE).is_dir() && !path.join("warm.new").exists());
}

#[test]
fn a_warm_start_ends_when_its_reads_fail_and_keeps_the_list() {
    let place = tempfile::tempdir().expect("directory");
    let path = a_store(place.path(), "store", 2 * RECORDS);
    let list = fs::read(path.join(WARM_FILE)).expect("a list");
    let mut bytes = fs::read(path.join(DATA_FILE)).expect("pages");
    bytes[48 * PAGE_SIZE..].fill(0x5a);
    fs::write(path.join(DATA_FILE), bytes).expect("written");
    let engine = Engine::open(&path, options(FRAMES)).expect("open");
    wait(&engine);
    let stats = engine.stats();
    assert!(stats.warm_pages_listed > 300 && stats.pages_read < 150, "{stats:?}");
    engine.close().expect("close");
    assert!(fs::read(path.join(WARM_FILE)).expect("a list") == list);
}

#[test]
fn a_store_is_created_where_only_the_list_of_another_is_left() {
    let place = tempfile::tempdir().expect("directory");
    let path = a_store(place.path(), "store", RECORDS);
    fs::remove_file(path.join(DATA_FILE)).expect("pages");
    fs::remove_dir_all(path.join(LOG_DIRECTORY)).expect("a log");
    fs::write(path.join("warm.new"), b"half").expect("written");
    assert!(Engine::open(&path, options(FRAMES).create(false)).is_err());
    let engine = Engine::open(&path, options(FRAMES)).expect("open");
    wait(&engine);
    assert_eq!(engine.stats().warm_pages_read, 0);
    engine.close().expect("close");
}

#[test]
fn trees_are_dropped_renamed_and_moved_while_and_before_their_pages_are_read() {
    let place = tempfile::tempdir().expect("directory");
    let path = place.path().join("store");
    let engine = Engine::open(&path, options(FRAMES)).expect("open");
    for name in ["stays", "dropped", "renamed", "later"] {
        fill(&engine, name, 0..500);
    }
    let (tree, session) = (engine.tree("stays").expect("tree"), engine.session().expect("one"));
    session.put(&tree, b"large", &vec![7; 200_000]).expect("put");
    drop((tree, session));
    engine.close().expect("close");
    let list = fs::read(path.join(WARM_FILE)).expect("a list");
    // At once, and some time after the thread has begun.
    for pause in [0, 5, 11] {
        fs::write(path.join(WARM_FILE), &list).expect("written");
        let engine = Engine::open(&path, options(FRAMES)).expect("open");
        thread::sleep(Duration::from_millis(pause));
        if let Some(tree) = engine.open_tree("dropped").expect("open") {
            engine.drop_tree(tree).expect("the only handle");
        }
        let tree = engine.tree("renamed").expect("open");
        let tree = engine.rename_tree(tree, "other").expect("the only handle");
        let tree = engine.rename_tree(tree, "renamed").expect("the only handle");
        engine.compact().map(drop).expect("compact");
        let session = engine.session().expect("session");
        assert_records(&session, &tree, 500);
        drop((session, tree));
        assert_verified(&engine);
        engine.close().expect("close");
    }
    // The list is from before: its pages lie elsewhere, one tree is gone, others have new names.
    fs::write(path.join(WARM_FILE), &list).expect("written");
    let engine = Engine::open(&path, options(FRAMES)).expect("open");
    wait(&engine);
    assert!(engine.stats().warm_pages_read > 0);
    let session = engine.session().expect("session");
    for name in ["stays", "renamed", "later"] {
        assert_records(&session, &engine.tree(name).expect("tree"), 500);
    }
    let tree = engine.tree("stays").expect("tree");
    assert_eq!(session.get(&tree, b"large").expect("get"), Some(vec![7; 200_000]));
    assert!(engine.open_tree("dropped").expect("open").is_none());
    drop((session, tree));
    assert_verified(&engine);
    // A copy of the store begins without a list.
    let copy = place.path().join("copy");
    engine.backup(&copy).expect("backup");
    assert!(copy.join(DATA_FILE).exists() && !copy.join(WARM_FILE).exists());
    engine.close().expect("close");
}

#[test]
fn a_store_that_is_closed_before_all_is_read_keeps_its_list() {
    let watchdog = Watchdog::start("closing during a warm start", Duration::from_secs(30));
    let place = tempfile::tempdir().expect("directory");
    let path = a_store(place.path(), "store", RECORDS);
    let list = fs::read(path.join(WARM_FILE)).expect("a list");
    let mut interrupted = 0;
    for pause in 0..24 {
        let engine = Engine::open(&path, options(FRAMES)).expect("open");
        thread::sleep(Duration::from_millis(pause));
        interrupted += u64::from(engine.stats().is_warming);
        fill(&engine, "tree", 0..1);
        match pause % 4 {
            0 => engine.abandon().expect("abandoned"),
            _ => engine.close().expect("close"),
        }
        let now = fs::read(path.join(WARM_FILE)).expect("a list");
        assert!(now.len() * 2 > list.len(), "{} of {} bytes", now.len(), list.len());
        watchdog.step();
    }
    assert!(interrupted > 0, "none was interrupted");
}

/// Random work, with closings, crashes, and pools of any size: with a warm start a store holds what
/// it holds without.
#[test]
fn contents_are_the_same_with_and_without_a_warm_start() {
    let seed = seed();
    println!("WATTLE_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let place = tempfile::tempdir().expect("directory");
    let path = place.path().join("store");
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    let watchdog = Watchdog::start("warm starts", Duration::from_secs(60));
    for round in 0..12 * rounds() {
        let frames = 150 + random.below(400);
        let warm = random.below(4) > 0;
        let engine = Engine::open(&path, options(frames).warm_start(warm)).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            // Others read all the time.
            scope.spawn(|| {
                let (session, mut random) = (engine.session().expect("one"), Random::new(round));
                while !stop.load(Ordering::Relaxed) {
                    let number = random.below(4000);
                    if let Some(found) = session.get(&tree, &key(number)).expect("get") {
                        assert_eq!(found.len(), 300);
                    }
                }
            });
            let session = engine.session().expect("session");
            for _ in 0..random.below(3000) {
                let number = random.below(4000);
                match random.below(4) {
                    0 => {
                        let removed = session.remove(&tree, &key(number)).expect("remove");
                        assert_eq!(removed, model.remove(&number).is_some(), "seed {seed}");
                    }
                    1 => {
                        let found = session.get(&tree, &key(number)).expect("get");
                        let expected = model.get(&number).map(|version| value(*version));
                        assert_eq!(found, expected, "record {number}, seed {seed}");
                    }
                    _ => {
                        let version = random.next_u64();
                        let put = session.put_ticket(&tree, &key(number), &value(version));
                        put.map(drop).expect("put");
                        model.insert(number, version);
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        let session = engine.session().expect("session");
        for number in 0..4000 {
            let found = session.get(&tree, &key(number)).expect("get");
            let expected = model.get(&number).map(|version| value(*version));
            assert_eq!(found, expected, "record {number}, round {round}, seed {seed}");
        }
        drop((session, tree));
        assert_verified(&engine);
        match random.below(3) {
            0 => engine.abandon().expect("abandoned"),
            _ => engine.close().expect("close"),
        }
        watchdog.step();
    }
}
