//! `dump`, `load`, `verify` and `stat` over a store of maps.

mod support;

use std::path::Path;

use clap::Parser;
use support::{MapBackend, store_at};
use wattle_workloads::cli::exit::Exit;
use wattle_workloads::cli::{Cli, Command, dump, maintain};

fn command(arguments: &[&str], path: &Path) -> Command {
    let words = ["wattle"].iter().chain(arguments).copied().chain([path.to_str().unwrap()]);
    Cli::try_parse_from(words).unwrap().command
}

fn dumped(arguments: &[&str], path: &Path) -> Result<Vec<u8>, Exit> {
    let mut text = Vec::new();
    match command(arguments, path) {
        Command::Dump(flags) => dump::dump::<MapBackend>(&flags, &mut text).map(|()| text),
        other => panic!("{other:?}"),
    }
}

fn load(mut text: &[u8], path: &Path) -> Result<(), Exit> {
    match command(&["load"], path) {
        Command::Load(flags) => dump::load::<MapBackend>(&flags, &mut text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_store_survives_dump_and_load() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    load(b"", &from).unwrap();
    let trees = &store_at(&from).shared.trees;
    for (name, pairs) in [("a", 5000u32), ("b\tc", 3), ("empty", 0)] {
        let map: support::Map = Default::default();
        for number in 0..pairs {
            let value = vec![number as u8; number as usize % 700];
            map.write().unwrap().insert(number.to_be_bytes().to_vec(), value);
        }
        trees.lock().unwrap().insert(name.to_owned(), map.into());
    }
    let text = dumped(&["dump"], &from).unwrap();
    assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 5004);
    load(&text, &to).unwrap();
    assert_eq!(dumped(&["dump"], &to).unwrap(), text);
    let one = dumped(&["dump", "--tree", "b\tc"], &from).unwrap();
    assert!(one.starts_with(b"b\\x09c\t\\x00\\x00\\x00\\x00\t\n"), "{}", one.escape_ascii());
    let Err(Exit::Usage(sentence)) = dumped(&["dump", "--tree", "d"], &from) else { panic!() };
    assert!(sentence.contains("no tree \"d\"") && sentence.contains("a, b\tc, empty"));
}

#[test]
fn lines_that_are_no_pairs_are_refused_with_their_number() {
    let folder = tempfile::tempdir().unwrap();
    for (line, part) in [
        ("t\tonly a key", "a tree, a key and a value"),
        ("t\tk\tv\tmore", "a tree, a key and a value"),
        ("t\tk\\q\tv", "not an escape"),
        ("t\tk\t\u{fc}", "must be written as"),
        ("\\xff\tk\tv", "not UTF-8"),
    ] {
        let text = format!("t\tgood\t1\n{line}\n");
        let Err(Exit::Failed(sentence)) = load(text.as_bytes(), folder.path()) else { panic!() };
        assert!(sentence.contains("line 2") && sentence.contains(part), "{sentence}");
    }
    let tree = store_at(folder.path()).shared.trees.lock().unwrap()["t"].clone();
    assert_eq!(tree.read().unwrap().len(), 1, "the line before is stored");
}

#[test]
fn verify_fails_for_a_damaged_store_only() {
    let folder = tempfile::tempdir().unwrap();
    load(b"t\tk\tv", folder.path()).unwrap();
    let verify = || match command(&["verify"], folder.path()) {
        Command::Verify(flags) => maintain::verify::<MapBackend>(&flags),
        other => panic!("{other:?}"),
    };
    assert_eq!(verify(), Ok(()));
    load(b"damaged", folder.path()).unwrap();
    assert_eq!(verify(), Err(Exit::Reported));
    match command(&["stat", "--format", "json"], folder.path()) {
        Command::Stat(flags) => assert_eq!(maintain::stat::<MapBackend>(&flags), Ok(())),
        other => panic!("{other:?}"),
    }
}
