//! Other programs change the files of a store while it is open: a directory is renamed, replaced or
//! removed, files are truncated or removed, the working directory changes. No other store is
//! touched, closing reports the change, and everything that can be recovered is.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use wattle::{CloseError, Engine, Error, IoKind, MIN_LOG_BYTES, Options};
use wattle_tests::harness::{assert_verified, built, eventually, small_pool};

const CHILD: &str = "WATTLE_FILES_CHILD";
const KINDS: [IoKind; 3] = [IoKind::Threads, IoKind::Uring, IoKind::Buffered];

fn options(io: IoKind) -> Options {
    small_pool(64).io(io).log_bytes(MIN_LOG_BYTES)
}

/// Puts records; those that were acknowledged are counted also when one is refused.
fn fill(engine: &Engine, keys: std::ops::Range<u32>) -> (u32, Result<(), Error>) {
    let outcome = (|| {
        let tree = engine.tree("tree").map_err(|error| (0, error))?;
        let session = engine.session().map_err(|error| (0, error))?;
        for (count, key) in keys.enumerate() {
            let put = session.put(&tree, &key.to_be_bytes(), &[key as u8; 900]);
            put.map_err(|error| (count as u32, error))?;
        }
        Ok(())
    })();
    match outcome {
        Ok(()) => (u32::MAX, Ok(())),
        Err((count, error)) => (count, Err(error)),
    }
}

fn filled(path: &Path, io: IoKind, records: u32) -> Engine {
    let engine = Engine::open(path, options(io)).expect("open");
    fill(&engine, 0..records).1.expect("put");
    engine
}

/// The store opens, is sound, and has exactly these records.
fn assert_has(path: &Path, io: IoKind, records: u32) {
    let engine = Engine::open(path, options(io)).expect("open again");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let all = session.scan(&tree).expect("scan").count() as u32;
    assert_eq!(all, records, "records in {}", path.display());
    for key in 0..records {
        let found = session.get(&tree, &key.to_be_bytes()).expect("get");
        assert_eq!(found, Some(vec![key as u8; 900]), "record {key} of {records}");
    }
    drop((session, tree));
    assert_verified(&engine);
    engine.close().expect("close");
}

/// The files of a closed store.
fn contents(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => found.extend(contents(&path)),
            false => _ = found.insert(path.clone(), fs::read(&path).expect("a file")),
        }
    }
    found
}

/// The files of segments.
fn segments(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path.join("log")).expect("a directory");
    let files = entries.map(|entry| entry.expect("an entry").path());
    files.filter(|file| file.extension().is_some_and(|ending| ending == "log")).collect()
}

fn says(closed: Result<(), CloseError>, what: &[&str]) {
    let error = Error::from(closed.expect_err("it must be told"));
    assert!(matches!(error, Error::FilesChanged { .. }), "{error}");
    let text = error.to_string();
    println!("{text}");
    what.iter().for_each(|part| assert!(text.contains(part), "{text:?} lacks {part:?}"));
}

fn cut(path: &Path, bytes: u64) {
    let file = fs::OpenOptions::new().write(true).open(path).expect("a file");
    file.set_len(bytes).expect("cut");
}

#[test]
fn a_store_that_is_renamed_goes_on_and_the_one_in_its_place_is_not_touched() {
    for io in built(KINDS) {
        let root = tempfile::tempdir().expect("a directory");
        let path = |name: &str| root.path().join(name);
        filled(&path("next"), io, 500).close().expect("close");
        let engine = filled(&path("live"), io, 1000);
        fs::rename(path("live"), path("old")).expect("renamed");
        fs::rename(path("next"), path("live")).expect("renamed");
        let before = contents(&path("live"));
        fill(&engine, 1000..4000).1.expect("put");
        engine.checkpoint().expect("checkpoint");
        let live = path("live").display().to_string();
        let old = path("old").display().to_string();
        says(
            engine.close(),
            &[&format!("{live} was moved to {old}, where everything was written")],
        );
        assert!(contents(&path("live")) == before, "another store was changed");
        assert_has(&path("live"), io, 500);
        assert_has(&path("old"), io, 4000);
    }
}

#[test]
fn two_engines_may_have_the_same_path_one_after_the_other() {
    for io in built(KINDS) {
        let root = tempfile::tempdir().expect("a directory");
        let path = |name: &str| root.path().join(name);
        filled(&path("next"), io, 500).close().expect("close");
        let first = filled(&path("live"), io, 1000);
        fs::rename(path("live"), path("old")).expect("renamed");
        fs::rename(path("next"), path("live")).expect("renamed");
        let second = Engine::open(path("live"), options(io)).expect("open");
        for turn in 0..10 {
            fill(&second, 500 + turn * 100..600 + turn * 100).1.expect("put");
            fill(&first, 1000 + turn * 100..1100 + turn * 100).1.expect("put");
        }
        // Dropped and not closed: the error goes unreported, and nothing is lost.
        drop(first);
        fill(&second, 1500..4000).1.expect("put");
        second.close().expect("close");
        assert_has(&path("live"), io, 4000);
        assert_has(&path("old"), io, 2000);
    }
}

#[test]
fn a_directory_above_may_be_renamed_and_links_may_lead_elsewhere() {
    for io in built(KINDS) {
        let root = tempfile::tempdir().expect("a directory");
        let path = |name: &str| root.path().join(name);
        fs::create_dir(path("above")).expect("made");
        let engine = filled(&path("above/store"), io, 1000);
        fs::rename(path("above"), path("elsewhere")).expect("renamed");
        fill(&engine, 1000..3000).1.expect("put");
        says(engine.close(), &["above/store was moved to", "elsewhere/store"]);
        assert_has(&path("elsewhere/store"), io, 3000);

        // A store reached through a link, which later leads to another one.
        filled(&path("other"), io, 300).close().expect("close");
        let before = contents(&path("other"));
        std::os::unix::fs::symlink("elsewhere/store", path("link")).expect("made");
        let engine = Engine::open(path("link"), options(io)).expect("open");
        fs::remove_file(path("link")).expect("removed");
        std::os::unix::fs::symlink("other", path("link")).expect("made");
        fill(&engine, 3000..5000).1.expect("put");
        says(engine.close(), &["link was moved to", "elsewhere/store"]);
        assert!(contents(&path("other")) == before, "another store was changed");
        assert_has(&path("elsewhere/store"), io, 5000);
        assert_has(&path("link"), io, 300);

        // A log that lies elsewhere.
        fs::create_dir(path("apart")).expect("made");
        fs::create_dir(path("log-of-apart")).expect("made");
        std::os::unix::fs::symlink("../log-of-apart", path("apart/log")).expect("made");
        filled(&path("apart"), io, 1000).close().expect("close");
        assert!(fs::read_dir(path("log-of-apart")).expect("a directory").count() > 0);
        assert_has(&path("apart"), io, 1000);
        // It belongs to one store.
        let engine = Engine::open(path("apart"), options(io)).expect("open");
        fs::create_dir(path("thief")).expect("made");
        std::os::unix::fs::symlink("../log-of-apart", path("thief/log")).expect("made");
        fs::write(path("thief/data"), "").expect("written");
        let open = || Engine::open(path("thief"), options(io)).expect_err("it is another's log");
        assert!(matches!(open(), Error::AlreadyOpen { .. }), "{}", open());
        engine.close().expect("close");
        assert!(matches!(open(), Error::WrongLog { .. }), "{}", open());
        assert_has(&path("apart"), io, 1000);
    }
}

#[test]
fn a_store_that_is_removed_says_so_and_the_next_one_at_its_path_is_whole() {
    for io in built(KINDS) {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("store");
        let engine = filled(&path, io, 1000);
        // The engine makes files meanwhile.
        eventually("it is removed", || fs::remove_dir_all(&path).is_ok());
        let second = filled(&path, io, 500);
        let (_, refused) = fill(&engine, 1000..20_000);
        let refused = refused.expect_err("there is no place for a log").to_string();
        println!("{refused}");
        assert!(refused.contains("was removed while it was "), "{refused}");
        says(engine.close(), &["store was removed, and everything in it is lost"]);
        fill(&second, 500..1500).1.expect("put");
        second.close().expect("close");
        assert_has(&path, io, 1500);
    }
}

#[test]
fn a_data_file_that_is_cut_under_the_engine_is_told_and_the_log_brings_it_back() {
    for io in built(KINDS) {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("store");
        // All of it is in the log.
        let engine = Engine::open(&path, small_pool(64).io(io)).expect("open");
        fill(&engine, 0..4000).1.expect("put");
        let data = path.join("data");
        cut(&data, fs::metadata(&data).expect("there").len() / 3);
        says(engine.close(), &["data was cut to", "it had"]);
        assert_has(&path, io, 4000);
        // In between, by a checkpoint.
        let engine = Engine::open(&path, small_pool(64).io(io)).expect("open");
        fill(&engine, 4000..5000).1.expect("put");
        cut(&data, fs::metadata(&data).expect("there").len() / 3);
        let error = engine.checkpoint().expect_err("it has lost pages").to_string();
        assert!(error.contains("data was cut to"), "{error}");
        let (_, refused) = fill(&engine, 5000..5001);
        assert!(matches!(refused, Err(Error::Poisoned(_))), "{refused:?}");
        assert!(engine.close().is_err());
    }
}

#[test]
fn files_that_are_removed_or_replaced_under_the_engine_are_told() {
    for (name, replaced) in [("data", false), ("data", true), ("log", false), ("log", true)] {
        for log in [true, false] {
            let root = tempfile::tempdir().expect("a directory");
            let path = root.path().join("store");
            let engine = Engine::open(&path, options(IoKind::Threads).log(log)).expect("open");
            fill(&engine, 0..1000).1.expect("put");
            let files = match name {
                "data" => vec![path.join("data")],
                _ if !log => continue,
                _ => segments(&path),
            };
            for file in &files {
                // A checkpoint may give some up meanwhile, and never the last one.
                let Ok(bytes) = fs::read(file) else { continue };
                if fs::remove_file(file).is_ok() && replaced {
                    fs::write(file, bytes).expect("written");
                }
            }
            let what = if replaced { "was replaced by another file" } else { "was removed" };
            says(engine.close(), &[name, what]);
        }
    }
}

#[test]
fn a_store_whose_data_file_is_emptied_is_refused_and_its_log_stays() {
    let default = IoKind::default();
    for (io, closed) in [(IoKind::Threads, true), (default, false), (IoKind::Threads, false)] {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("store");
        for _ in 0..3 {
            let engine = filled(&path, io, 300);
            if closed {
                engine.close().expect("close");
            }
        }
        let data = fs::read(path.join("data")).expect("there");
        let mut zeroed = data[..data.len().min(256 * 4096)].to_vec();
        zeroed[..8192].fill(0);
        let backup = root.path().join("backup");
        let source = filled(&root.path().join("source"), io, 10);
        for bytes in [Vec::new(), vec![0; 4096], vec![0; 256 * 4096], zeroed] {
            fs::write(path.join("data"), &bytes).expect("written");
            let before = contents(&path);
            for log in [true, false] {
                let error = Engine::open(&path, options(io).log(log)).expect_err("refused");
                let text = error.to_string();
                assert!(matches!(error, Error::WrongLog { .. }), "{text}");
                assert!(
                    text.contains("the data file has no superblock, but there is a log"),
                    "{text}"
                );
            }
            // Nor is it a place for a backup.
            _ = fs::remove_dir_all(&backup);
            fs::create_dir(&backup).expect("made");
            fs::create_dir(backup.join("log")).expect("made");
            for (file, bytes) in &before {
                let name = file.strip_prefix(&path).expect("inside");
                fs::write(backup.join(name), bytes).expect("written");
            }
            source.backup(&backup).expect_err("something is there");
            let same = contents(&backup).into_values().eq(contents(&path).into_values());
            assert!(same && contents(&path) == before, "something was changed");
        }
        fs::write(path.join("data"), data).expect("written");
        assert_has(&path, io, 300);
    }
}

#[test]
fn a_log_that_is_newer_than_a_store_closed_without_one_stays() {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("store");
    let io = IoKind::Threads;
    let engine = Engine::open(&path, options(io).log(false)).expect("open");
    fill(&engine, 0..100).1.expect("put");
    engine.close().expect("close");
    let old = fs::read(path.join("data")).expect("there");
    filled(&path, io, 300).close().expect("close");
    let new = fs::read(path.join("data")).expect("there");
    // Somebody restores the data file alone.
    fs::write(path.join("data"), old).expect("written");
    let before = contents(&path);
    let error = Engine::open(&path, options(io)).expect_err("refused");
    assert!(matches!(error, Error::WrongLog { .. }), "{error}");
    assert!(contents(&path) == before, "something was changed");
    fs::write(path.join("data"), new).expect("written");
    assert_has(&path, io, 300);
}

#[test]
fn strangers_in_the_directories_are_passed_over_or_named() {
    let io = IoKind::Threads;
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("store");
    // A fresh mount point.
    fs::create_dir_all(path.join("lost+found")).expect("made");
    filled(&path, io, 300).close().expect("close");
    fs::create_dir(path.join("log/lost+found")).expect("made");
    assert_has(&path, io, 300);
    let refused = |what: &[&str]| {
        let before = contents(&path);
        let text = Engine::open(&path, options(io)).expect_err("refused").to_string();
        println!("{text}");
        what.iter().for_each(|part| assert!(text.contains(part), "{text:?} lacks {part:?}"));
        assert!(contents(&path) == before, "something was changed");
    };
    // Something with the name of a segment.
    let stray = path.join("log/0000000000099999.log");
    for bytes in [Vec::new(), b"notes".to_vec(), vec![7; 128 << 10], vec![0; 128 << 10]] {
        fs::write(&stray, bytes).expect("written");
        refused(&["segment 99999", "0000000000099999.log", "move"]);
        fs::remove_file(&stray).expect("removed");
    }
    fs::create_dir(&stray).expect("made");
    refused(&["0000000000099999.log is a directory", "move it out of the directory"]);
    fs::remove_dir(&stray).expect("removed");
    assert_has(&path, io, 300);
    // The same while it is in use: the log does not do without it for long.
    let engine = filled(&path, io, 300);
    let number = |file: PathBuf| file.file_stem()?.to_str()?.parse::<u64>().ok();
    let last = segments(&path).into_iter().filter_map(number).max();
    let next = |more: u64| path.join(format!("log/{:016}.log", last.expect("a log") + more));
    (1..4).for_each(|more| fs::create_dir(next(more)).expect("made"));
    let (_, outcome) = fill(&engine, 300..20_000);
    let text = outcome.expect_err("no place for the log").to_string();
    println!("{text}");
    assert!(text.contains("is a directory where a file of the log has its place"), "{text}");
    assert!(!text.contains("the device is full"), "{text}");
    (1..4).for_each(|more| fs::remove_dir(next(more)).expect("removed"));
    std::thread::sleep(std::time::Duration::from_millis(500));
    fill(&engine, 0..300).1.expect("it goes on");
    engine.close().expect("close");
}

#[test]
fn a_backup_whose_directory_is_renamed_meanwhile_says_so_and_is_whole() {
    let root = tempfile::tempdir().expect("a directory");
    let path = |name: &str| root.path().join(name);
    let io = IoKind::default();
    let source = filled(&path("source"), io, 5000);
    fs::create_dir(path("backup")).expect("made");
    let renaming = std::thread::spawn({
        let (data, from, to) = (path("backup/data"), path("backup"), path("moved"));
        move || {
            eventually("the backup begins", || data.exists());
            fs::rename(from, to).expect("renamed");
        }
    });
    let outcome = source.backup(path("backup"));
    renaming.join().expect("no panic");
    let error = outcome.expect_err("it is not there");
    assert!(matches!(error, Error::FilesChanged { .. }), "{error}");
    assert!(error.to_string().contains("moved, where everything was written"), "{error}");
    assert!(!path("backup").exists(), "nothing is made there again");
    assert_has(&path("moved"), io, 5000);
}

#[test]
fn only_the_last_directory_of_a_path_is_created() {
    let root = tempfile::tempdir().expect("a directory");
    let mistyped = root.path().join("stroes/orders");
    let error = Engine::open(&mistyped, options(IoKind::Threads)).expect_err("refused");
    assert!(matches!(error, Error::NotAStore { .. }), "{error}");
    assert!(error.to_string().contains("there is no directory"), "{error}");
    assert_eq!(fs::read_dir(root.path()).expect("a directory").count(), 0);
    let source = filled(&root.path().join("source"), IoKind::Threads, 10);
    let error = source.backup(&mistyped).expect_err("refused");
    assert!(matches!(error, Error::NotAStore { .. }), "{error}");
    assert_eq!(fs::read_dir(root.path()).expect("a directory").count(), 1);
}

#[test]
fn a_store_can_be_opened_again_at_once_while_other_threads_start_processes() {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("store");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let spawn = || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                Command::new("true").status().expect("a process");
            }
        };
        scope.spawn(spawn);
        scope.spawn(spawn);
        let outcome = std::panic::catch_unwind(|| {
            for turn in 0..60 {
                let engine = Engine::open(&path, options(IoKind::Threads)).expect("open");
                match turn % 3 {
                    0 => engine.close().expect("close"),
                    1 => drop(engine),
                    _ => {
                        // An opening that fails does not keep it either.
                        engine.close().expect("close");
                        let options = options(IoKind::Threads).policy("none such");
                        assert!(Engine::open(&path, options).is_err());
                    }
                }
            }
        });
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        outcome.expect("no AlreadyOpen");
    });
}

#[test]
#[ignore = "the child process of another test"]
fn child_that_changes_its_directory() {
    let Ok(root) = std::env::var(CHILD) else { return };
    let root = Path::new(&root);
    std::env::set_current_dir(root.join("x")).expect("changed");
    let engine = filled(Path::new("store"), IoKind::default(), 1000);
    std::env::set_current_dir(root.join("y")).expect("changed");
    fill(&engine, 1000..4000).1.expect("put");
    // A backup goes where the process is now.
    engine.backup("backup").expect("backup");
    let unclosed = filled(Path::new("unclosed"), IoKind::Threads, 100);
    std::env::set_current_dir(root).expect("changed");
    engine.close().expect("close");
    std::mem::forget(unclosed);
    std::process::exit(0);
}

#[test]
fn a_process_may_change_its_directory() {
    let root = tempfile::tempdir().expect("a directory");
    ["x", "y"].iter().for_each(|name| fs::create_dir(root.path().join(name)).expect("made"));
    let other = root.path().join("y/store");
    filled(&other, IoKind::Threads, 500).close().expect("close");
    let before = contents(&other);
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["files::child_that_changes_its_directory", "--exact", "--ignored", "--nocapture"])
        .env(CHILD, root.path())
        .output()
        .expect("a process");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(contents(&other) == before, "another store was changed");
    assert_has(&root.path().join("x/store"), IoKind::Threads, 4000);
    assert_has(&root.path().join("y/backup"), IoKind::Threads, 4000);
    assert_has(&root.path().join("y/unclosed"), IoKind::Threads, 100);
    assert_has(&other, IoKind::Threads, 500);
}
