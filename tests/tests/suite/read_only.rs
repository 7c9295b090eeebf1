//! Stores that are opened read-only: whatever state they were left in, what is read is what
//! recovery would leave, and not a byte of them changes.

use std::{
    collections::BTreeMap,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, SystemTime},
};
use wattle::{
    DATA_FILE, Engine, Error, IoKind, LOG_DIRECTORY, Options, TxnOptions,
    io::{Cut, FaultPlan, SimStorage},
};
use wattle_tests::{
    harness::{Device, Random, Watchdog, assert_verified, built, small_pool},
    mounted::Mounted,
};

type Records = BTreeMap<(String, Vec<u8>), Vec<u8>>;

fn read_all(engine: &Engine) -> Records {
    let mut records = Records::new();
    let session = engine.session().expect("a session");
    for name in engine.trees().expect("the trees") {
        let tree = engine.open_tree(&name).expect("open").expect("it is listed");
        for entry in session.scan(&tree).expect("a scan") {
            let (key, value) = entry.expect("a record");
            records.insert((name.clone(), key.to_vec()), value.to_vec());
        }
    }
    records
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

/// Some of everything: small and large values, removed records, a tree that was dropped, a
/// transaction that is open, and commits that are not durable.
fn fill(engine: &Engine, random: &mut Random) {
    let (tree, gone) = (engine.tree("t").expect("a tree"), engine.tree("gone").expect("a tree"));
    let session = engine.session().expect("a session");
    for _ in 0..1500 {
        let (number, len) = (random.below(1000), random.below(400) as usize);
        match random.below(8) {
            0 => drop(session.remove_ticket(&tree, &key(number)).expect("remove")),
            1 => session.put(&gone, &key(number), &vec![1; len]).expect("put"),
            2 if number < 20 => session.put(&tree, &key(number), &vec![2; 100 * len]).expect("put"),
            _ => drop(session.put_ticket(&tree, &key(number), &vec![3; len]).expect("put")),
        }
    }
    drop(session);
    engine.drop_tree(gone).expect("dropped");
}

fn change_much(txn: &mut wattle::Transaction<'_>, tree: &wattle::Tree, random: &mut Random) {
    for _ in 0..400 {
        let number = random.below(1000);
        txn.put(tree, &key(number), &vec![9; random.below(600) as usize]).expect("put");
    }
}

fn assert_read_only<T>(what: &str, result: Result<T, Error>) {
    let error = result.err().unwrap_or_else(|| panic!("{what} was accepted"));
    assert!(matches!(error, Error::ReadOnly), "{what}: {error}");
}

/// Every change is refused, and what reads works.
fn assert_refuses_changes(engine: &Engine) {
    let tree = engine.open_tree("t").expect("open").expect("it is there");
    let session = engine.session().expect("a session");
    assert_read_only("put", session.put(&tree, b"k", b"v"));
    assert_read_only("put_ticket", session.put_ticket(&tree, b"k", b"v"));
    assert_read_only("a large put", session.put(&tree, b"k", &vec![1; 50_000]));
    assert_read_only("insert", session.insert(&tree, b"k", b"v"));
    assert_read_only("update", session.update(&tree, b"k", b"v"));
    assert_read_only("remove", session.remove(&tree, b"k"));
    assert_read_only("modify", session.modify(&tree, &key(1), |_| ()));
    assert_read_only("bulk_load", session.bulk_load(&tree, [(b"k", b"v")]));
    let mut txn = engine.begin().expect("a transaction that reads");
    assert_read_only("put in a transaction", txn.put(&tree, b"k", b"v"));
    assert_read_only("remove in a transaction", txn.remove(&tree, &key(1)));
    txn.get(&tree, &key(1)).expect("get");
    txn.commit().expect("nothing to commit");
    let txn = engine.begin_with(TxnOptions::default()).expect("as well");
    drop(txn);
    assert_read_only("tree", engine.tree("new"));
    assert_read_only("create_tree", engine.create_tree("new"));
    assert_read_only("checkpoint", engine.checkpoint());
    assert_read_only("compact", engine.compact());
    engine.sync().expect("nothing to make durable");
    drop(session);
    assert_read_only("rename_tree", engine.rename_tree(tree, "other"));
    let tree = engine.open_tree("t").expect("open").expect("it has its name");
    assert_read_only("drop_tree", engine.drop_tree(tree));
}

/// How often a device was used for anything but reading.
fn writes(device: &SimStorage) -> [u64; 7] {
    let used = device.counters();
    let (made, removed) = (used.log_creations, used.log_removals);
    [used.writes, used.syncs, used.reservations, used.log_writes, used.log_syncs, made, removed]
}

#[test]
fn what_any_crash_left_is_read_as_recovery_would_leave_it() {
    let watch = Watchdog::start("read_only", Duration::from_secs(60));
    let cuts = [Cut::Process, Cut::Sectors, Cut::Prefix, Cut::Nothing, Cut::All];
    for seed in 0..15 {
        watch.step();
        let mut random = Random::new(seed);
        let device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        let options = || small_pool(if seed % 3 == 0 { 64 } else { 400 }).log_bytes(8 << 20);
        let engine = Device::sim(&device).open(options()).expect("a new store");
        fill(&engine, &mut random);
        if seed % 2 == 0 {
            engine.checkpoint().expect("a checkpoint");
        }
        fill(&engine, &mut random);
        let tree = engine.tree("t").expect("the tree");
        let mut open = engine.begin().expect("a transaction that does not end");
        change_much(&mut open, &tree, &mut random);
        engine.sync().expect("durable");
        let image = Arc::new(device.crash_as(seed, cuts[seed as usize % cuts.len()]));
        drop((open, tree));
        drop(engine);

        let before = writes(&image);
        // As much memory as the store may need, also for what a small pool evicts.
        let read_only = Device::sim(&image).open(options().read_only(true).pool_bytes(8 << 20));
        let engine = read_only.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let records = read_all(&engine);
        assert_refuses_changes(&engine);
        assert_verified(&engine);
        let copy = Arc::new(SimStorage::new(FaultPlan::new(0)));
        engine.backup_on(copy.clone(), copy.clone()).expect("a backup");
        assert_eq!(read_all(&engine), records);
        engine.close().expect("closed");
        assert_eq!(writes(&image), before, "seed {seed}");

        for device in [image, copy] {
            let engine = Device::sim(&device).open(options()).expect("recovered");
            assert_eq!(read_all(&engine), records, "seed {seed}");
            assert_verified(&engine);
        }
    }
}

#[test]
fn a_recovery_that_needs_more_memory_than_the_pool_says_so() {
    let device = Arc::new(SimStorage::new(FaultPlan::new(3)));
    let options = || small_pool(0).log_bytes(64 << 20);
    let engine = Device::sim(&device).open(options()).expect("a new store");
    let (tree, session) = (engine.tree("t").expect("tree"), engine.session().expect("session"));
    for number in 0..3000 {
        drop(session.put_ticket(&tree, &key(number), &[1; 300]).expect("put"));
    }
    engine.sync().expect("durable");
    let image = Arc::new(device.crash_as(1, Cut::Process));
    let open = |options: Options| Device::sim(&image).open(options.read_only(true));
    let error = open(options()).expect_err("48 pages are not enough").to_string();
    assert!(error.contains("open the store for writing once, or with a larger pool"), "{error}");
    let engine = open(options().pool_bytes(4 << 20)).expect("enough memory");
    assert_eq!(read_all(&engine).len(), 3000);
}

/// Names, bytes and times of everything in a directory, and of itself.
fn picture(path: &Path) -> BTreeMap<PathBuf, (SystemTime, u64, Vec<u8>)> {
    let mut picture = BTreeMap::new();
    let mut left = vec![path.to_path_buf()];
    while let Some(at) = left.pop() {
        let metadata = std::fs::metadata(&at).expect("it is there");
        let mut bytes = Vec::new();
        if metadata.is_dir() {
            let entries = std::fs::read_dir(&at).expect("list");
            left.extend(entries.map(|entry| entry.expect("an entry").path()));
        } else {
            bytes = std::fs::read(&at).expect("read");
        }
        let modified = metadata.modified().expect("a time");
        picture.insert(at, (modified, metadata.len(), bytes));
    }
    picture
}

fn copy_store(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join(LOG_DIRECTORY)).expect("a directory");
    for (path, (.., bytes)) in picture(from).into_iter().filter(|(path, _)| path.is_file()) {
        let name = path.strip_prefix(from).expect("inside");
        std::fs::write(to.join(name), bytes).expect("written");
    }
}

fn options(io: IoKind) -> Options {
    Options::default().pool_bytes(8 << 20).log_bytes(8 << 20).io(io)
}

/// Stores in `path`: one that was closed, one as after a kill, one that was closed without a log;
/// and what is in each.
fn stores(path: &Path, io: IoKind) -> Vec<(PathBuf, Records)> {
    let mut random = Random::new(5);
    let (closed, killed, unlogged) =
        (path.join("closed"), path.join("killed"), path.join("unlogged"));
    let engine = Engine::open(&closed, options(io)).expect("a new store");
    fill(&engine, &mut random);
    engine.sync().expect("durable");
    copy_store(&closed, &killed);
    let mut stores = Vec::new();
    let records = read_all(&engine);
    engine.close().expect("closed");
    stores.push((closed, records.clone()));
    stores.push((killed, records));
    let engine = Engine::open(&unlogged, options(io).log(false)).expect("a new store");
    fill(&engine, &mut random);
    let records = read_all(&engine);
    engine.close().expect("closed");
    stores.push((unlogged, records));
    stores
}

/// Opens a store read-only, twice at once, reads all of it and copies it; it must be left as it is.
fn read_twice(store: &Path, records: &Records, io: IoKind, backup: &Path) {
    let before = picture(store);
    let read_only = || options(io).read_only(true);
    let engine = Engine::open(store, read_only()).expect("opened read-only");
    let second = Engine::open(store, read_only()).expect("beside the first");
    assert_eq!(read_all(&engine), *records);
    assert_eq!(read_all(&second), *records);
    assert_verified(&engine);
    assert_refuses_changes(&engine);
    second.close().expect("closed");
    engine.backup(backup).expect("a backup");
    let mut lines = 0;
    wattle::dump_log(store, &mut |_| {
        lines += 1;
        std::ops::ControlFlow::Continue(())
    })
    .expect("the log is read beside");
    assert!(lines > 0);
    drop(engine);
    assert!(before == picture(store), "{} was changed", store.display());
    let engine = Engine::open(backup, options(io)).expect("the backup");
    assert_eq!(read_all(&engine), *records);
    assert_verified(&engine);
}

#[test]
fn not_a_byte_of_the_files_changes_nor_a_time() {
    for io in built([IoKind::Threads, IoKind::Uring]) {
        let dir = tempfile::tempdir().expect("a directory");
        for (index, (store, records)) in stores(dir.path(), io).into_iter().enumerate() {
            read_twice(&store, &records, io, &dir.path().join(format!("backup{index}")));
            // One that writes keeps the others out, and they it.
            let reader = Engine::open(&store, options(io).read_only(true)).expect("read-only");
            let refused = |options: Options| match Engine::open(&store, options) {
                Err(Error::AlreadyOpen { .. }) => {}
                other => panic!("{:?}", other.err()),
            };
            refused(options(io));
            drop(reader);
            let writer = Engine::open(&store, options(io)).expect("for writing");
            assert_eq!(read_all(&writer), records);
            refused(options(io).read_only(true));
        }
    }
}

#[test]
fn what_is_no_store_is_refused_and_not_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = |path: &Path| Engine::open(path, options(IoKind::Threads).read_only(true));
    let refused = |path: &Path| match open(path) {
        Err(Error::NotAStore { why, .. }) => why,
        other => panic!("{:?}", other.err()),
    };
    let missing = dir.path().join("missing");
    assert!(refused(&missing).contains("no such directory") && !missing.exists());
    assert!(refused(dir.path()).contains("the directory is empty"));
    let data = dir.path().join(DATA_FILE);
    for len in [0, 100, 4096, 100_000] {
        std::fs::write(&data, vec![0; len]).expect("written");
        assert!(refused(dir.path()).contains("superblock"), "{len} bytes");
    }
    assert!(refused(&data).contains("not a directory"));
    std::fs::remove_file(&data).expect("removed");
    std::fs::create_dir(&data).expect("a directory");
    assert!(refused(dir.path()).contains("not a regular file"));
    let error = Engine::open("", Options::default().io(IoKind::Memory).read_only(true)).err();
    assert!(matches!(error, Some(Error::InvalidOption(_))), "{error:?}");
}

#[test]
fn a_store_is_read_on_media_that_cannot_be_written() {
    let Some(device) = Mounted::new(64 << 20) else { return };
    let backups = tempfile::tempdir().expect("a directory");
    let stores = stores(device.path(), IoKind::Threads);
    // Full, and then read-only.
    device.leave(0);
    for (full, read_only) in [(true, false), (false, true)] {
        device.set_read_only(read_only);
        for (index, (store, records)) in stores.iter().enumerate() {
            let backup = backups.path().join(format!("{full} {index}"));
            read_twice(store, records, IoKind::Threads, &backup);
        }
    }
    device.set_read_only(false);
}

const STORE: &str = "WATTLE_TEST_READ_ONLY";

#[test]
#[ignore = "is run by another test, as another user"]
fn child_that_reads() {
    let Some(store) = std::env::var_os(STORE) else { return };
    let engine = Engine::open(store, options(IoKind::Threads).read_only(true)).expect("read-only");
    assert_verified(&engine);
    println!("records {}", read_all(&engine).len());
}

#[test]
fn a_store_is_read_by_those_who_may_not_write_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let stores = stores(dir.path(), IoKind::Threads);
    let set_mode = |path: &Path, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, permissions).expect("chmod");
    };
    set_mode(dir.path(), 0o755);
    for (store, records) in stores {
        let before = picture(&store);
        for path in before.keys() {
            set_mode(path, if path.is_dir() { 0o555 } else { 0o444 });
        }
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        child.args(["read_only::child_that_reads", "--exact", "--ignored", "--nocapture"]);
        // Root may do everything, so not as root.
        if std::fs::metadata(&store)
            .is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0)
        {
            child.uid(65534);
        }
        let output = match child.env(STORE, &store).output() {
            Ok(output) => output,
            Err(error) => {
                return eprintln!("skipped: another user cannot run this program: {error}");
            }
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let read = format!("records {}", records.len());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains(&read), "{text}{errors}");
        assert!(before == picture(&store), "{} was changed", store.display());
        for path in before.keys() {
            set_mode(path, 0o755);
        }
    }
}
