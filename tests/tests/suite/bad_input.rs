//! Bad input: each mistake gives one clear sentence, and nothing on storage changes.

use std::{fs, path::Path, sync::Arc};
use wattle::{
    DATA_FILE, Engine, Error, IoKind, MAX_KEY, MAX_TREE_NAME, MAX_VALUE, MIN_POOL_BYTES, Options,
    PAGE_SIZE, STORE_VERSION,
    io::{FaultPlan, SimStorage},
};
use wattle_buffer::{PageId, PageImage};
use wattle_tests::harness::{Device, assert_verified, built, unlogged_pool};

/// Offset of the version of the store in a superblock.
const VERSION_AT: usize = 40;

fn options() -> Options {
    unlogged_pool(64).io(IoKind::Threads)
}

/// One sentence: no line breaks, no debug output, a beginning in lower case or a path.
fn assert_sentence(error: &Error) {
    let text = error.to_string();
    println!("{text}");
    assert!(text.len() > 15 && !text.contains('\n'), "{text:?} is no sentence");
    for debug in ["Some(", "Err(", " { ", "Os {"] {
        assert!(!text.contains(debug), "{text:?} is debug output");
    }
}

/// Opening fails as `expected` says, and leaves the data file alone.
fn assert_refused(path: &Path, options: Options, expected: impl FnOnce(&Error) -> bool) {
    let listing = |path: &Path| -> Option<Vec<_>> {
        let mut names: Vec<_> =
            fs::read_dir(path).ok()?.map(|entry| entry.expect("entry").file_name()).collect();
        names.sort();
        Some(names)
    };
    let content = || {
        let data = if path.is_dir() { path.join(DATA_FILE) } else { path.to_path_buf() };
        (listing(path), fs::read(data).ok())
    };
    let before = content();
    let error = Engine::open(path, options).expect_err("this must be refused");
    assert_sentence(&error);
    assert!(expected(&error), "another error: {error:?}");
    assert!(content() == before, "a refused opening changed {}", path.display());
}

fn new_store(path: &Path) {
    let engine = Engine::open(path, options()).expect("create");
    let session = engine.session().expect("session");
    let tree = engine.tree("tree").expect("tree");
    session.put(&tree, b"key", b"value").expect("put");
    drop((session, tree));
    engine.close().expect("close");
}

fn assert_intact(path: &Path) {
    let engine = Engine::open(path, options()).expect("reopen");
    let session = engine.session().expect("session");
    let tree = engine.open_tree("tree").expect("tree").expect("it exists");
    let value = session.get(&tree, b"key").expect("get");
    assert_eq!(value.as_deref(), Some(&b"value"[..]));
    drop((session, tree));
    assert_verified(&engine);
    engine.close().expect("close");
}

#[test]
fn paths_that_are_no_stores_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let not_a_store = |error: &Error| matches!(error, Error::NotAStore { .. });
    let file = directory.path().join("a file");
    fs::write(&file, b"text").expect("write");
    assert_refused(&file, options(), not_a_store);
    let other = directory.path().join("photos");
    fs::create_dir(&other).expect("directory");
    fs::write(other.join("summer.jpg"), b"jpeg").expect("write");
    assert_refused(&other, options(), not_a_store);
    assert_refused(&directory.path().join("missing"), options().create(false), not_a_store);
    assert!(!directory.path().join("missing").exists());
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).expect("directory");
    assert_refused(&empty, options().create(false), not_a_store);
    // More than a creation that was interrupted leaves.
    for (name, len) in [("zeroes", 300 * PAGE_SIZE), ("short", 100)] {
        let path = directory.path().join(name);
        fs::create_dir(&path).expect("directory");
        fs::write(path.join(DATA_FILE), vec![0; len]).expect("write");
        assert_refused(&path, options(), not_a_store);
    }
    let created = directory.path().join("interrupted");
    fs::create_dir(&created).expect("directory");
    fs::write(created.join(DATA_FILE), b"").expect("write");
    assert_refused(&created, options().create(false), not_a_store);
    new_store(&created);
    let below_a_file = file.join("store");
    assert_refused(&below_a_file, options(), |error| matches!(error, Error::Io { .. }));
}

#[test]
fn a_store_of_another_version_is_refused() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("store");
    new_store(&path);
    let data = path.join(DATA_FILE);
    let original = fs::read(&data).expect("read");
    for version in [0, STORE_VERSION + 1, u32::MAX] {
        let mut bytes = original.clone();
        for page in bytes.chunks_mut(PAGE_SIZE).take(2) {
            let mut image = PageImage::zeroed();
            image.0.copy_from_slice(page);
            assert_eq!(image.u32_at(VERSION_AT), STORE_VERSION, "the version is there");
            image.set_u32(VERSION_AT, version);
            image.seal();
            page.copy_from_slice(&image.0);
        }
        fs::write(&data, &bytes).expect("write");
        assert_refused(&path, options(), |error| {
            matches!(error, Error::WrongVersion { found, expected, .. }
                if *found == version && *expected == STORE_VERSION)
        });
    }
    fs::write(&data, &original).expect("write");
    assert_intact(&path);
}

#[test]
fn a_store_that_is_open_is_refused_and_can_be_opened_after_closing() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("store");
    new_store(&path);
    let engine = Engine::open(&path, options()).expect("open");
    for kind in built([IoKind::Threads, IoKind::Uring]) {
        let refused = Engine::open(&path, options().io(kind)).expect_err("it is open");
        assert_sentence(&refused);
        assert!(matches!(refused, Error::AlreadyOpen { .. }), "{refused:?}");
    }
    // The lock is that of the file, as another process would see it.
    let file = fs::File::open(path.join(DATA_FILE)).expect("open the file");
    assert!(file.try_lock().is_err(), "another process could open it");
    drop(file);
    let session = engine.session().expect("session");
    let refused = engine.clone().close().expect_err("a session and a clone are alive");
    assert_sentence(refused.error());
    assert!(matches!(refused.error(), Error::StillInUse(_)), "{refused:?}");
    drop((session, refused));
    engine.close().expect("close");
    assert_intact(&path);
}

#[test]
fn an_engine_serves_as_many_sessions_as_its_options_say() {
    for frames in [48, 100, 4096, 5000] {
        let options = unlogged_pool(frames);
        let most = options.max_sessions();
        assert!(options.check().is_ok() && most >= 10, "{most} sessions with {frames} frames");
        let storage = Arc::new(SimStorage::new(FaultPlan::new(0)));
        let engine = Device::sim(&storage).open(options).expect("open");
        let sessions: Vec<_> =
            (0..most).map(|_| engine.session().expect("one of those that it serves")).collect();
        let error = engine.session().err().expect("one more than it serves");
        assert_sentence(&error);
        assert!(matches!(error, Error::Limit(_)), "{error:?}");
        drop(sessions);
        engine.close().expect("close");
    }
}

#[test]
fn a_store_whose_process_was_killed_is_refused() {
    let storage = Arc::new(SimStorage::new(FaultPlan::new(7)));
    let engine = Device::sim(&storage).open(unlogged_pool(64)).expect("open");
    let session = engine.session().expect("session");
    let tree = engine.tree("tree").expect("tree");
    let assert_not_closed = |left: SimStorage, seed: u64| {
        let left = Arc::new(left);
        let pages = left.pages();
        let before: Vec<_> = pages.iter().map(|page| left.raw_page(*page)).collect();
        let error = Device::sim(&left).open(unlogged_pool(64)).err();
        let error = error.unwrap_or_else(|| panic!("seed {seed}: a killed store was opened"));
        assert_sentence(&error);
        assert!(matches!(error, Error::NotClosed { .. }), "seed {seed}: {error:?}");
        assert_eq!(left.pages(), pages);
        assert!(pages.iter().zip(&before).all(|(page, raw)| left.raw_page(*page) == *raw));
    };
    for seed in 0..40u32 {
        session.put(&tree, &seed.to_be_bytes(), &[seed as u8; 900]).expect("put");
        assert_not_closed(storage.clone_at_rest(), 0);
        assert_not_closed(storage.crash(seed.into()), seed.into());
    }
    drop((session, tree));
    // Dropping the last handle closes the store as well.
    drop(engine);
    let engine = Device::sim(&storage).open(unlogged_pool(64)).expect("it was closed");
    assert_eq!(engine.trees().expect("names"), ["tree"]);
    // A process that only reads leaves the store closed, however it ends.
    let read_only = Device::sim(&Arc::new(storage.clone_at_rest())).open(unlogged_pool(64));
    assert_eq!(read_only.expect("nothing was changed").trees().expect("names"), ["tree"]);
    // Once pages were overwritten, it is refused.
    let session = engine.session().expect("session");
    let tree = engine.tree("tree").expect("tree");
    for key in 0..400u32 {
        session.put(&tree, &key.to_be_bytes(), &[7; 900]).expect("put");
    }
    assert!(engine.stats().pages_written > 0, "the pool is too large for this test");
    assert_not_closed(storage.clone_at_rest(), 0);
}

#[test]
fn options_out_of_their_limits_are_refused_before_anything_is_created() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("store");
    new_store(&path);
    let before = fs::read(path.join(DATA_FILE)).expect("read");
    let bad = [
        options().pool_bytes(MIN_POOL_BYTES - 1),
        options().pool_bytes(0),
        options().pool_bytes(u64::MAX),
        options().policy(""),
        options().policy("astrology"),
        options().policy("watt:epochs=0"),
        options().policy("watt:epochs=-1"),
        options().policy("watt:epochs=nan"),
        options().policy("watt:epochs"),
        options().policy("watt:colour=4"),
        options().policy("random:epochs=four"),
        options().evictors(0),
        options().evictors(257),
        options().write_concurrency(0),
        options().write_concurrency(1025),
        options().io(IoKind::Buffered).atomic_page_writes(true),
    ];
    for options in bad {
        println!("{options:?}");
        let invalid = |error: &Error| matches!(error, Error::InvalidOption(_));
        assert!(options.check().is_err_and(|error| invalid(&error)));
        assert_refused(&path, options.clone(), invalid);
        let absent = directory.path().join("absent");
        assert_refused(&absent, options.clone(), invalid);
        assert!(!absent.exists(), "a store that was refused was created");
        let fresh = Arc::new(SimStorage::new(FaultPlan::new(0)));
        let error = Device::sim(&fresh).open(options).expect_err("refused");
        assert!(matches!(error, Error::InvalidOption(_)), "{error:?}");
        assert_eq!((fresh.pages(), fresh.counters().reservations), (vec![], 0), "untouched");
    }
    let small = Engine::open(&path, options().pool_bytes(MIN_POOL_BYTES - 1)).err();
    let text = small.expect("refused").to_string();
    assert!(text.contains(&MIN_POOL_BYTES.to_string()), "it names the minimum: {text}");
    assert!(fs::read(path.join(DATA_FILE)).expect("read") == before);
    assert_intact(&path);
}

#[test]
fn keys_and_values_above_the_limit_are_refused_and_the_longest_are_not() {
    let storage = Arc::new(SimStorage::new(FaultPlan::new(0)));
    let engine = Device::sim(&storage).open(unlogged_pool(64)).expect("open");
    let session = engine.session().expect("session");
    let tree = engine.tree("tree").expect("tree");
    let long = vec![7; MAX_KEY + 1];
    let too_long = |outcome: Result<(), Error>| {
        let error = outcome.expect_err("the key is too long");
        assert_sentence(&error);
        assert!(
            matches!(error, Error::KeyTooLong { len: 1025, max: 1024 }),
            "another error: {error:?}"
        );
    };
    too_long(session.insert(&tree, &long, b""));
    too_long(session.put(&tree, &long, &[1; 5000]));
    too_long(session.update(&tree, &long, b"").map(|_| ()));
    too_long(session.modify(&tree, &long, |_| ()).map(|_| ()));
    too_long(session.remove(&tree, &long).map(|_| ()));
    too_long(session.get(&tree, &long).map(|_| ()));
    too_long(session.multi_get(&tree, &[&[][..], &long], |_, _| ()));
    too_long(session.prefetch(&[(&tree, &[][..]), (&tree, &long)]));
    too_long(session.bulk_load(&tree, [(&long, [1; 5000])]).map(|_| ()));
    too_long(session.bulk_load(&tree, [(&long, b"")]).map(|_| ()));
    // Zeroes that were never touched take no memory: 4 GiB of address space.
    let value = vec![0u8; MAX_VALUE as usize + 1];
    let attempts = [
        session.put(&tree, b"key", &value),
        session.insert(&tree, b"key", &value),
        session.bulk_load(&tree, [(b"key", &value)]).map(|_| ()),
    ];
    for attempt in attempts {
        let error = attempt.expect_err("the value is too long");
        assert_sentence(&error);
        assert!(matches!(error, Error::ValueTooLong { max: MAX_VALUE, .. }), "{error:?}");
    }
    drop(value);
    // A value of MAX_VALUE bytes is left to the reader's own machine: it takes 4 GiB twice.
    assert_eq!(session.scan(&tree).expect("scan").count(), 0, "nothing was changed");
    session.put(&tree, b"", b"empty key").expect("an empty key is a key");
    session.put(&tree, &long[..MAX_KEY], b"").expect("the longest key and the shortest value");
    assert_eq!(session.get(&tree, b"").expect("get").as_deref(), Some(&b"empty key"[..]));
    assert_eq!(session.get(&tree, &long[..MAX_KEY]).expect("get").as_deref(), Some(&b""[..]));
    assert!(session.range(&tree, long.as_slice()..).expect("range").next().is_none());
    let error = session.bulk_load(&tree, [(b"a", b"b")]).expect_err("not empty");
    assert_sentence(&error);
    assert!(matches!(error, Error::NotEmpty), "{error:?}");
    let empty = engine.tree("empty").expect("tree");
    for keys in [["b", "a"], ["a", "a"]] {
        let error = session.bulk_load(&empty, keys.map(|key| (key, ""))).expect_err("not sorted");
        assert_sentence(&error);
        assert!(matches!(error, Error::NotSorted { position: 1 }), "{error:?}");
    }
    assert_eq!(session.scan(&empty).expect("scan").count(), 0);
    drop(session);
    assert_verified(&engine);
}

#[test]
fn reversed_and_empty_ranges_give_nothing() {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let storage = Arc::new(SimStorage::new(FaultPlan::new(0)));
    let engine = Device::sim(&storage).open(unlogged_pool(64)).expect("open");
    let session = engine.session().expect("session");
    let tree = engine.tree("tree").expect("tree");
    for i in 0u16..600 {
        session.put(&tree, &i.to_be_bytes(), &[1; 100]).expect("put");
    }
    let key = |i: u16| i.to_be_bytes();
    let (a, b) = (key(200), key(400));
    type Bounds<'k> = (std::ops::Bound<&'k [u8]>, std::ops::Bound<&'k [u8]>);
    let empty: [Bounds<'_>; 6] = [
        (Included(&b), Included(&a)),
        (Included(&b), Excluded(&a)),
        (Excluded(&a), Excluded(&a)),
        (Included(&a), Excluded(&a)),
        (Excluded(&a), Included(&a)),
        (Unbounded, Excluded(&[])),
    ];
    for range in empty {
        let forward = session.range(&tree, range).expect("range");
        assert_eq!(forward.count(), 0, "{range:?}");
        let backward = session.range(&tree, range).expect("range").rev();
        assert_eq!(backward.count(), 0, "{range:?}");
        let announced = session.range(&tree, range).expect("range").expect_records(5);
        assert_eq!(announced.count(), 0, "{range:?}");
    }
}

#[test]
fn tree_names_that_are_bad_taken_or_in_use_are_refused() {
    let storage = Arc::new(SimStorage::new(FaultPlan::new(0)));
    let engine = Device::sim(&storage).open(unlogged_pool(64)).expect("open");
    let check = |error: Error, expected: fn(&Error) -> bool| {
        assert_sentence(&error);
        assert!(expected(&error), "another error: {error:?}");
    };
    for name in ["", &"n".repeat(MAX_TREE_NAME + 1)] {
        let invalid = |error: &Error| matches!(error, Error::InvalidTreeName { max: 255, .. });
        check(engine.tree(name).expect_err("bad name"), invalid);
        check(engine.open_tree(name).expect_err("bad name"), invalid);
        check(engine.create_tree(name).expect_err("bad name"), invalid);
    }
    let longest = "n".repeat(MAX_TREE_NAME);
    let tree = engine.create_tree(&longest).expect("the longest name");
    check(engine.create_tree(&longest).expect_err("it exists"), |error| {
        matches!(error, Error::TreeExists(_))
    });
    assert!(engine.open_tree("nothing").expect("look").is_none());
    let second = tree.clone();
    check(engine.drop_tree(tree).expect_err("in use"), |error| {
        matches!(error, Error::TreeInUse(_))
    });
    assert!(engine.trees().expect("names").iter().eq([&longest]));
    engine.drop_tree(second).expect("the last handle");
    assert_eq!(engine.trees().expect("names"), Vec::<String>::new());

    let other = Arc::new(SimStorage::new(FaultPlan::new(0)));
    let other = Device::sim(&other).open(unlogged_pool(64)).expect("open");
    let foreign = other.tree("foreign").expect("tree");
    let session = engine.session().expect("session");
    let foreign_tree = |error: &Error| matches!(error, Error::ForeignTree(_));
    check(session.get(&foreign, b"k").expect_err("foreign"), foreign_tree);
    check(session.put(&foreign, b"k", b"v").expect_err("foreign"), foreign_tree);
    check(session.put(&foreign, b"k", &[0; 9000]).expect_err("foreign"), foreign_tree);
    check(session.remove(&foreign, b"k").expect_err("foreign"), foreign_tree);
    check(session.modify(&foreign, b"k", |_| ()).expect_err("foreign"), foreign_tree);
    check(session.multi_get(&foreign, &[b"k"], |_, _| ()).expect_err("foreign"), foreign_tree);
    check(session.prefetch(&[(&foreign, b"k")]).expect_err("foreign"), foreign_tree);
    check(session.scan(&foreign).err().expect("foreign"), foreign_tree);
    check(session.bulk_load(&foreign, [(b"k", b"v")]).expect_err("foreign"), foreign_tree);
    check(engine.drop_tree(foreign).expect_err("foreign"), foreign_tree);
    assert_eq!(other.trees().expect("names"), ["foreign"]);
}

#[test]
fn too_many_open_trees_are_refused_and_those_that_are_open_work_on() {
    let storage = Arc::new(SimStorage::new(FaultPlan::new(0)));
    let engine = Device::sim(&storage).open(unlogged_pool(48)).expect("open");
    let session = engine.session().expect("session");
    let mut trees = Vec::new();
    let error = loop {
        match engine.create_tree(&format!("tree {:03}", trees.len())) {
            Ok(tree) => trees.push(tree),
            Err(error) => break error,
        }
        assert!(trees.len() < 48, "more trees than frames");
    };
    assert_sentence(&error);
    assert!(matches!(error, Error::Limit(_)), "{error:?}");
    let names = engine.trees().expect("names");
    assert_eq!(names.len(), trees.len(), "the refused tree was not created");
    let large = session.put(&trees[0], b"large", &[1; 9000]).expect_err("it needs one more tree");
    assert!(matches!(large, Error::Limit(_)), "{large:?}");
    for (i, tree) in trees.iter().enumerate() {
        for key in 0u32..200 {
            session.put(tree, &key.to_be_bytes(), &[i as u8; 120]).expect("put");
        }
    }
    for (i, tree) in trees.iter().enumerate() {
        let records = session.scan(tree).expect("scan").map(|entry| entry.expect("entry"));
        assert!(records.map(|(_, value)| value).eq((0..200).map(|_| vec![i as u8; 120])));
    }
    // A dropped tree makes room for another one.
    engine.drop_tree(trees.pop().expect("a tree")).expect("drop");
    engine.create_tree("one more").expect("there is room");
    drop((session, trees));
    assert_verified(&engine);
    engine.close().expect("close");
    assert!(storage.raw_page(PageId(0)).is_some());
}
