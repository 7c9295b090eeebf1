//! A directory stays the one that was opened, whatever happens to its path, and so do its data file
//! and log.

use super::{
    tests::{FILE_KINDS, image},
    *,
};
use crate::{ids::PageId, page::PAGE_SIZE};
use std::{fs, io, io::ErrorKind, path::Path, path::PathBuf, sync::Arc};

const BYTES: u64 = 16 * PAGE_SIZE as u64;

/// Names and contents of all files below a directory.
fn contents(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => found.extend(contents(&path)),
            false => found.push((path.clone(), fs::read(&path).expect("a file"))),
        }
    }
    found.sort();
    found
}

#[test]
fn everything_happens_in_the_directory_that_was_opened() {
    for kind in FILE_KINDS.into_iter().filter(|kind| kind.check().is_ok()) {
        let root = tempfile::tempdir().expect("a directory");
        let (live, old) = (root.path().join("live"), root.path().join("old"));
        let store = Arc::new(Directory::open_or_create(&live).expect("made"));
        let pages = open_in(kind, &store, Path::new("data")).expect("a file");
        let log = Arc::new(store.subdirectory("log", true).expect("made"));
        let log = open_log_in(kind, log).expect("a log");
        (1..=3).for_each(|number| log.create(number, BYTES).expect("room"));
        assert_eq!(store.place().expect("seen"), Place::Here);
        // Another directory takes its place, with files of the same names.
        fs::rename(&live, &old).expect("renamed");
        fs::create_dir_all(live.join("log")).expect("made");
        for name in ["data", "log/0000000000000001.log", "log/0000000000000004.new"] {
            fs::write(live.join(name), name).expect("written");
        }
        let before = contents(&live);
        assert_eq!(store.place().expect("seen"), Place::Moved(old.clone()));
        log.remove(1).expect("removed");
        log.pass_on(2).expect("passed on");
        log.create(4, BYTES).expect("made of the other");
        log.create(5, BYTES).expect("made");
        let one = image(7, 7);
        let mut results = Vec::new();
        pages.write_pages(&[PageWrite { page: PageId(7), image: &one }], &mut results);
        results.into_iter().for_each(|result| result.expect("written"));
        store.unnamed_file().expect("made");
        pages.check().expect("whole");
        log.check(&[3, 4, 5]).expect("whole");
        assert_eq!(log.segments().expect("a list"), [(3, BYTES), (4, BYTES), (5, BYTES)]);
        assert_eq!(contents(&live), before, "nothing of the other changed");
        let names = |path: &Path| fs::read_dir(path).expect("a directory").count();
        assert_eq!((names(&old), names(&old.join("log"))), (2, 3));
    }
}

#[test]
fn a_directory_that_is_gone_says_so() {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("log");
    let directory = Arc::new(Directory::open_or_create(&path).expect("made"));
    let log = open_log_in(IoKind::Threads, directory.clone()).expect("a log");
    log.create(1, BYTES).expect("room");
    fs::remove_dir_all(&path).expect("removed");
    assert_eq!(directory.place().expect("seen"), Place::Removed);
    let said = log.create(2, BYTES).expect_err("no place").to_string();
    assert!(said.ends_with("log was removed while it was open"), "{said}");
    // Even if another directory has its name.
    fs::create_dir(&path).expect("made");
    assert_eq!(directory.place().expect("seen"), Place::Removed);
    let said = directory.unnamed_file().expect_err("no place").to_string();
    assert!(said.ends_with("log was removed while it was open"), "{said}");
}

#[test]
fn only_the_last_directory_of_a_path_is_made() {
    let root = tempfile::tempdir().expect("a directory");
    let kind = |path: &Path| Directory::open_or_create(path).err().map(|error| error.kind());
    assert_eq!(kind(&root.path().join("a/b")), Some(ErrorKind::NotFound));
    assert_eq!(fs::read_dir(root.path()).expect("a directory").count(), 0);
    assert_eq!(kind(&root.path().join("a")), None);
    assert_eq!(kind(&root.path().join("a/b")), None);
    fs::write(root.path().join("file"), "").expect("written");
    assert_eq!(kind(&root.path().join("file")), Some(ErrorKind::NotADirectory));
}

#[test]
fn files_that_were_cut_removed_or_replaced_are_noticed() {
    for kind in FILE_KINDS.into_iter().filter(|kind| kind.check().is_ok()) {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("data");
        let cut_to = |path: &Path, bytes| {
            let file = fs::OpenOptions::new().write(true).open(path).expect("a file");
            file.set_len(bytes).expect("cut");
        };
        let pages = open(kind, &path).expect("a file");
        pages.reserve(64).expect("room");
        pages.check().expect("whole");
        cut_to(&path, 8 * PAGE_SIZE as u64);
        let said = pages.check().expect_err("cut").to_string();
        assert!(said.ends_with("was cut to 32768 bytes while it was in use; it had 262144"));
        // Reserving room, or a write, would make it long enough again.
        assert!(pages.reserve(128).is_err());
        let one = image(63, 1);
        let mut results = Vec::new();
        let write = || PageWrite { page: PageId(63), image: &one };
        pages.write_pages(&[write(), write()], &mut results);
        assert!(results.len() == 2 && results.iter().all(Result::is_err));
        assert_eq!(fs::metadata(&path).expect("there").len(), 8 * PAGE_SIZE as u64);
        cut_to(&path, 64 * PAGE_SIZE as u64);
        assert!(pages.sync().is_err() && pages.check().is_err(), "lost pages stay lost");

        let pages = open(kind, &path).expect("a file");
        fs::rename(&path, root.path().join("elsewhere")).expect("renamed");
        let said = pages.check().expect_err("removed").to_string();
        assert!(said.ends_with("was removed while it was in use"), "{said}");
        fs::write(&path, "another").expect("written");
        let said = pages.check().expect_err("replaced").to_string();
        assert!(said.ends_with("was replaced by another file while it was in use"), "{said}");

        let log = open_log(kind, &root.path().join("log")).expect("a log");
        let file = |number| root.path().join(format!("log/{number:016}.log"));
        (1..=4).for_each(|number| log.create(number, BYTES).expect("room"));
        log.check(&[1, 2, 3, 4]).expect("whole");
        cut_to(&file(1), PAGE_SIZE as u64);
        assert!(log.check(&[1]).is_err());
        assert!(log.write(1, &[(BYTES - 4096, &LogBuffer::new(PAGE_SIZE))]).is_err());
        fs::remove_file(file(2)).expect("removed");
        assert!(log.check(&[2]).is_err());
        fs::remove_file(file(3)).expect("removed");
        fs::write(file(3), vec![0; BYTES as usize]).expect("written");
        assert!(log.check(&[3]).is_err());
        log.check(&[4]).expect("whole");
        assert!(log.check(&[5]).is_err());
    }
}

#[test]
fn a_file_in_the_way_of_the_log_is_named_and_foreign_files_stay() {
    let root = tempfile::tempdir().expect("a directory");
    let path = |name: &str| root.path().join(name);
    // Names that a log does not create.
    for name in ["notes.new", "1.log", "+000000000000001.log", "000000000000001x.new"] {
        fs::write(path(name), name).expect("written");
    }
    fs::create_dir(path("lost+found")).expect("made");
    fs::create_dir(path("0000000000000009.new")).expect("made");
    let before = contents(root.path());
    let log = open_log(IoKind::Threads, root.path()).expect("a log");
    assert_eq!(log.segments().expect("a list"), []);
    log.create(1, BYTES).expect("room");
    log.remove(1).expect("removed");
    assert!(!log.give_back(true).expect("nothing to spare"));
    assert_eq!(contents(root.path()), before);
    let in_the_way = |error: io::Error, name: &str, kind: &str| {
        let said = error.to_string();
        let says = format!("{name} is {kind} where a file of the log has its place: move it");
        assert!(said.contains(&says), "{said}");
    };
    let error = log.create(9, BYTES).expect_err("its unfinished file has no place");
    in_the_way(error, "0000000000000009.new", "a directory");
    std::os::unix::fs::symlink(path("notes.new"), path("0000000000000008.new")).expect("made");
    let error = log.create(8, BYTES).expect_err("it would write elsewhere");
    in_the_way(error, "0000000000000008.new", "a symbolic link");
    fs::create_dir(path("0000000000000007.log")).expect("made");
    in_the_way(log.create(7, BYTES).expect_err("taken"), "0000000000000007.log", "a directory");
    in_the_way(log.segments().expect_err("taken"), "0000000000000007.log", "a directory");
    let error = log.read(7, 0, &mut [0; 8]).expect_err("no file");
    in_the_way(error, "0000000000000007.log", "a directory");
    assert_eq!(fs::read(path("notes.new")).expect("there"), b"notes.new");
}

#[test]
fn a_lock_ends_when_it_is_ended_and_not_with_the_last_copy() {
    let root = tempfile::tempdir().expect("a directory");
    let directory = Directory::open(root.path()).expect("a directory");
    let file = directory.create_file("data").expect("made");
    assert!(try_lock(&file).expect("locked") && try_lock(&directory).expect("locked"));
    let again = directory.open_file("data").expect("opened");
    let above = Directory::open(root.path()).expect("a directory");
    assert!(!try_lock(&again).expect("looked") && !try_lock(&above).expect("looked"));
    let copy = file.try_clone().expect("a copy");
    unlock(&file).expect("unlocked");
    unlock(&directory).expect("unlocked");
    assert!(try_lock(&again).expect("locked") && try_lock(&above).expect("locked"));
    drop(copy);
}
