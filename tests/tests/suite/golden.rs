//! This build opens the stores that released versions wrote. `tests/golden/` has one file for each:
//! the non-zero pages of all files of the store.
//!
//! `cargo test -p wattle-tests --test suite golden:: -- --ignored` writes the file of the current
//! version. Run it only when the format of the store or of the log gets a new version number, and
//! keep the older files.

use std::{fs, ops::ControlFlow, path::Path};
use wattle::{Engine, IoKind, Options, PageImages, STORE_VERSION, dump_log};
use wattle_tests::harness::assert_verified;

const PAGE: usize = 4096;

fn options() -> Options {
    let options = Options::default().pool_bytes(1 << 20).log_bytes(2 << 20).io(IoKind::Threads);
    options.page_images(PageImages::Compressed)
}

fn value(i: u32) -> Vec<u8> {
    vec![i as u8; if i.is_multiple_of(97) { 5000 } else { (i % 200) as usize }]
}

/// Packs all files below `store` into one sequence of bytes.
fn pack(store: &Path) -> Vec<u8> {
    let mut files = vec!["data".to_string()];
    let log = fs::read_dir(store.join("log")).expect("log");
    files.extend(log.map(|entry| format!("log/{}", entry.expect("entry").file_name().display())));
    files.sort();
    let mut packed = Vec::new();
    for name in files {
        let bytes = fs::read(store.join(&name)).expect("read");
        let pages =
            || bytes.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|b| *b != 0));
        packed.push(name.len() as u8);
        packed.extend_from_slice(name.as_bytes());
        packed.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        packed.extend_from_slice(&(pages().count() as u32).to_le_bytes());
        for (number, page) in pages() {
            packed.extend_from_slice(&(number as u32).to_le_bytes());
            packed.extend_from_slice(page);
        }
    }
    packed
}

fn unpack(mut packed: &[u8], store: &Path) {
    fn take<'p>(packed: &mut &'p [u8], len: usize) -> &'p [u8] {
        let (front, rest) = packed.split_at(len);
        *packed = rest;
        front
    }
    fs::create_dir_all(store.join("log")).expect("directories");
    while !packed.is_empty() {
        let len = usize::from(take(&mut packed, 1)[0]);
        let name = str::from_utf8(take(&mut packed, len)).expect("a name");
        let len = u64::from_le_bytes(take(&mut packed, 8).try_into().expect("8 bytes"));
        let pages = u32::from_le_bytes(take(&mut packed, 4).try_into().expect("4 bytes"));
        let mut bytes = vec![0; len as usize];
        for _ in 0..pages {
            let number = u32::from_le_bytes(take(&mut packed, 4).try_into().expect("4 bytes"));
            let at = number as usize * PAGE;
            bytes[at..at + PAGE].copy_from_slice(take(&mut packed, PAGE));
        }
        fs::write(store.join(name), bytes).expect("write");
    }
}

/// Two trees, large values, deletes, a checkpoint, and changes that only the log has, among them
/// those of a transaction that has not ended.
#[test]
#[ignore = "writes the golden file of this version"]
fn write_the_golden_file_of_this_version() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let engine = Engine::open(&store, options()).expect("open");
    let (numbers, names) =
        (engine.tree("numbers").expect("tree"), engine.tree("names").expect("tree"));
    let session = engine.session().expect("session");
    for i in 0..400u32 {
        session.insert(&numbers, &i.to_be_bytes(), &value(i)).expect("insert");
    }
    engine.checkpoint().expect("checkpoint");
    for i in (0..400u32).step_by(5) {
        session.remove(&numbers, &i.to_be_bytes()).expect("remove");
    }
    let mut txn = session.begin().expect("begin");
    txn.put(&names, "Wattle".as_bytes(), b"a tree").expect("put");
    txn.commit().expect("commit");
    let other = engine.session().expect("session");
    let mut open = other.begin().expect("begin");
    open.put(&names, b"never", b"committed").expect("put");
    engine.sync().expect("sync");
    let packed = pack(&store);
    let segment = fs::read_dir(store.join("log")).expect("log").next().expect("a segment");
    let head = fs::read(segment.expect("a segment").path()).expect("read");
    let log = u32::from_le_bytes(head[12..16].try_into().expect("4 bytes"));
    let name = format!("version-{STORE_VERSION}-log-{log}.pages");
    let file = format!("{}/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::create_dir_all(Path::new(&file).parent().expect("parent")).expect("directory");
    fs::write(file, packed).expect("write");
}

#[test]
fn a_store_of_version_1_that_was_not_closed_is_recovered_as_it_was() {
    recover(include_bytes!("../../golden/version-1-log-1.pages"));
}

#[test]
fn a_log_of_version_2_is_recovered_too() {
    let golden = include_bytes!("../../golden/version-1-log-2.pages");
    recover(golden);
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    unpack(golden, &store);
    let mut compressed = 0;
    let dumped = dump_log(&store, &mut |line| {
        compressed += u32::from(line.contains(" compressed into "));
        ControlFlow::Continue(())
    });
    dumped.expect("a log");
    assert!(compressed > 0, "the log of this version has compressed images");
}

fn recover(golden: &[u8]) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    unpack(golden, &store);
    for _ in 0..2 {
        let engine = Engine::open(&store, options()).expect("open");
        assert_eq!(engine.trees().expect("trees"), ["names", "numbers"]);
        let session = engine.session().expect("session");
        let numbers = engine.open_tree("numbers").expect("open").expect("there");
        let names = engine.open_tree("names").expect("open").expect("there");
        for i in 0..400u32 {
            let expected = (i % 5 != 0).then(|| value(i));
            assert_eq!(
                session.get(&numbers, &i.to_be_bytes()).expect("get"),
                expected,
                "record {i}"
            );
        }
        assert_eq!(session.get(&names, b"Wattle").expect("get").as_deref(), Some(&b"a tree"[..]));
        assert_eq!(session.get(&names, b"never").expect("get"), None);
        assert_verified(&engine);
        drop((session, numbers, names));
        engine.close().expect("close");
    }
}
