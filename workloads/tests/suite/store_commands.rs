//! `dump`, `load`, `verify` and `stat` on stores of the engine.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Parser;
use wattle::{Engine, Options};
use wattle_workloads::cli::exit::Exit;
use wattle_workloads::cli::{Cli, Command, backup, dump, load, maintain};
use wattle_workloads::driver::control::Interrupt;

fn command(arguments: &[&str], path: &Path) -> Command {
    let words = ["wattle"].iter().chain(arguments).copied().chain([path.to_str().unwrap()]);
    Cli::try_parse_from(words).unwrap().command.unwrap()
}

fn dumped(arguments: &[&str], path: &Path) -> Result<Vec<u8>, Exit> {
    let mut text = Vec::new();
    match command(arguments, path) {
        Command::Dump(flags) => dump::dump(&flags, &mut text, &Interrupt::default()).map(|()| text),
        other => panic!("{other:?}"),
    }
}

fn loaded(text: &[u8], path: &Path) -> Result<(), Exit> {
    loaded_as(&["load"], text, path)
}

fn loaded_as(arguments: &[&str], mut text: &[u8], path: &Path) -> Result<(), Exit> {
    match command(arguments, path) {
        Command::Load(flags) => load::load(&flags, &mut text, &Interrupt::default()),
        other => panic!("{other:?}"),
    }
}

/// How `verify` or `stat` end.
fn looked(arguments: &[&str], path: &Path, interrupt: &Interrupt) -> Result<(), Exit> {
    match command(arguments, path) {
        Command::Verify(flags) => maintain::verify(&flags, interrupt),
        Command::Stat(flags) => maintain::stat(&flags, interrupt),
        Command::Compact(flags) => maintain::compact(&flags, interrupt),
        other => panic!("{other:?}"),
    }
}

fn with_engine<T>(path: &Path, work: impl FnOnce(&Engine) -> T) -> T {
    let engine = Engine::open(path, Options::default().pool_bytes(16 << 20)).unwrap();
    let result = work(&engine);
    engine.close().unwrap();
    result
}

#[test]
fn a_store_survives_dump_and_load() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    with_engine(&from, |engine| {
        let session = engine.session().unwrap();
        for (name, pairs) in [("a", 5000u32), ("b\tc", 3), ("empty", 0)] {
            let tree = engine.tree(name).unwrap();
            for number in 0..pairs {
                let value = vec![number as u8; number as usize % 700];
                session.put(&tree, &number.to_be_bytes(), &value).unwrap();
            }
        }
        let large = engine.tree("large").unwrap();
        session.put(&large, b"key", &vec![0xAB; 1 << 20]).unwrap();
    });
    let text = dumped(&["dump"], &from).unwrap();
    assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 5005);
    loaded(&text, &to).unwrap();
    assert!(dumped(&["dump"], &to).unwrap() == text);
    let one = dumped(&["dump", "--tree", "b\tc"], &from).unwrap();
    assert!(one.starts_with(b"b\\x09c\t\\x00\\x00\\x00\\x00\t\n"), "{}", one.escape_ascii());
    let Err(Exit::Usage(sentence)) = dumped(&["dump", "--tree", "d"], &from) else { panic!() };
    assert!(sentence.contains("no tree \"d\"") && sentence.contains("empty"), "{sentence}");
}

#[test]
fn lines_that_are_no_pairs_are_refused_with_their_number() {
    for (line, part) in [
        ("t\tonly a key", "a tree, a key and a value"),
        ("t\tk\tv\tmore", "a tree, a key and a value"),
        ("t\tk\\q\tv", "not an escape"),
        ("t\tk\t\u{fc}", "must be written as"),
        ("\\xff\tk\tv", "not UTF-8"),
        ("\tk\tv", "a tree name must have 1 to"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("t\tgood\t1\n{line}\n");
        let failed = loaded(text.as_bytes(), folder.path());
        let Err(Exit::Failed(sentence)) = failed else { panic!("{line}: {failed:?}") };
        assert!(sentence.contains("line 2") && sentence.contains(part), "{sentence}");
        let stored = dumped(&["dump"], folder.path()).unwrap();
        assert_eq!(stored, b"t\tgood\t1\n", "the line before is stored");
    }
}

#[test]
fn json_lines_and_csv_are_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let jsonl = concat!(
        "{\"tree\": \"b\", \"key\": \"k\u{fc}\\n\", \"value\": {\"n\": [1, 2.5]}}\n\n",
        "{\"key_hex\": \"00fF\", \"value_hex\": \"\"}\r\n",
        "{\"tree\": \"empty\"}",
    );
    loaded_as(&["load", "--format", "jsonl", "--tree", "a"], jsonl.as_bytes(), folder.path())
        .unwrap();
    let expected = "a\t\\x00\\xff\t\nb\tk\\xc3\\xbc\\x0a\t{\"n\": [1, 2.5]}\nempty\n";
    assert_eq!(String::from_utf8(dumped(&["dump"], folder.path()).unwrap()).unwrap(), expected);

    let folder = tempfile::tempdir().unwrap();
    let csv = "value,key_hex\n\"two\nlines, \"\"quoted\"\"\",6b31\nplain,6B32\n";
    loaded_as(&["load", "--format", "csv", "--tree", "t"], csv.as_bytes(), folder.path()).unwrap();
    let expected = "t\tk1\ttwo\\x0alines, \"quoted\"\nt\tk2\tplain\n";
    assert_eq!(String::from_utf8(dumped(&["dump"], folder.path()).unwrap()).unwrap(), expected);
    let refused = loaded_as(&["load", "--tree", "t"], b"", folder.path());
    assert!(matches!(refused, Err(Exit::Usage(sentence)) if sentence.contains("jsonl or csv")));
}

#[test]
fn json_values_are_stored_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    // Programs of some systems write a byte order mark first.
    let mut jsonl = "\u{feff}".to_owned();
    let mut expected = String::new();
    for (number, value) in [
        "12345678901234567890123",
        "1.10",
        "1e999",
        "null",
        "true",
        "{\"b\": 1, \"a\": 2, \"b\": 3}",
        "[ 1,\t2 ]",
    ]
    .iter()
    .enumerate()
    {
        jsonl += &format!("{{\"key\": \"{number}\", \"value\":  {value} }}\n");
        expected += &format!("t\t{number}\t{}\n", value.replace('\t', "\\x09"));
    }
    jsonl += "{\"key\": \"7\", \"value\": \"\\u0061\\\"\"}";
    expected += "t\t7\ta\"\n";
    loaded_as(&["load", "--format", "jsonl", "--tree", "t"], jsonl.as_bytes(), folder.path())
        .unwrap();
    assert_eq!(String::from_utf8(dumped(&["dump"], folder.path()).unwrap()).unwrap(), expected);

    // A tree alone must name itself.
    for line in ["{}", "{\"key\":null,\"value\":null}"] {
        let folder = tempfile::tempdir().unwrap();
        let command = ["load", "--format", "jsonl", "--tree", "t"];
        let failed = loaded_as(&command, line.as_bytes(), folder.path());
        assert!(matches!(&failed, Err(Exit::Failed(_))), "{line}: {failed:?}");
        assert_eq!(dumped(&["dump"], folder.path()).unwrap(), b"", "{line}");
    }
}

#[test]
fn json_lines_and_csv_that_are_wrong_are_refused_with_their_line() {
    let csv = |row: &str| format!("tree,key,value\nt,good,\"1\n2\"\n{row}\n");
    let json = |line: &str| {
        format!("{{\"tree\":\"t\",\"key\":\"good\",\"value\":\"1\\n2\"}}\n\n\n{line}\n")
    };
    for (format, text, part) in [
        ("csv", csv("t,k"), "2 fields, where the header has 3"),
        ("csv", csv("t,k,v,w"), "4 fields"),
        ("csv", csv(&format!("t,{},v", "k".repeat(2000))), "2000 bytes"),
        ("jsonl", json("{\"tree\":\"t\",\"key\":\"k\""), "EOF"),
        ("jsonl", json("{\"tree\":\"t\",\"key\":1,\"value\":1}"), "expected a string"),
        ("jsonl", json("{\"tree\":\"t\",\"name\":1}"), "unknown field `name`"),
        ("jsonl", json("{\"tree\":\"t\",\"key\":\"k\"}"), "a key without a value"),
        ("jsonl", json("{\"key\":\"k\",\"value\":\"v\"}"), "no tree is named"),
        ("jsonl", json("{\"tree\":\"t\",\"key_hex\":\"0\",\"value\":1}"), "hexadecimal"),
        ("jsonl", json("{\"tree\":\"t\",\"key\":\"\",\"key_hex\":\"\",\"value\":1}"), "both"),
        ("jsonl", json("[\"t\",\"k\",null,\"v\",null]"), "a JSON object"),
        ("jsonl", json("{\"tree\":null,\"key\":\"k\",\"value\":1}"), "null, expected a string"),
        ("jsonl", json("{\"tree\":\"t\",\"key\":null,\"value\":null}"), "null, expected a string"),
        ("jsonl", json("{\"tree\":\"t\",\"key_hex\":null}"), "null, expected a string"),
        ("jsonl", json("{\"tree\":\"t\",\"value_hex\":null}"), "null, expected a string"),
        ("jsonl", json("{\"tree\":\"t\",\"value\":null}"), "a value without a key"),
        ("jsonl", json("{\"tree\":\"t\",\"key\":\"k\",\"value\":\"\\ud800\"}"), "\"value\": "),
        ("jsonl", json("{\"tree\":\"t\",\"key\":\"k\",\"value\":01}"), "invalid number"),
        ("jsonl", json("{\"tree\":\"t\",\"key\":\"k\",\"value\":1,\"value\":1}"), "duplicate"),
        ("csv", csv("t,k,\"v\nt,l,w"), "the quote that opens in line 4 is never closed"),
        ("csv", csv("t,k,\"ab\"cd"), "\"c\" follows a closing quote in line 4"),
        ("csv", csv("t,k,a\"b\""), "a quote within a field in line 4"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        // Some programs end lines with a carriage return as well.
        let text = if format == "csv" { text.replace('\n', "\r\n") } else { text };
        let failed = loaded_as(&["load", "--format", format], text.as_bytes(), folder.path());
        let Err(Exit::Failed(sentence)) = failed else { panic!("{text}: {failed:?}") };
        assert!(sentence.contains("line 4 of") && sentence.contains(part), "{text}: {sentence}");
        let stored = String::from_utf8(dumped(&["dump"], folder.path()).unwrap()).unwrap();
        assert_eq!(
            stored.replace("\\x0d", ""),
            "t\tgood\t1\\x0a2\n",
            "the record before is stored: {text}"
        );
    }
    for (header, part) in [
        ("tree,key", "not complete"),
        ("tree,key,value,value_hex", "not complete"),
        ("key,key,value", "twice"),
        ("tree,key,price", "\"price\""),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("{header}\nt,k,v\n");
        let failed = loaded_as(&["load", "--format", "csv"], text.as_bytes(), folder.path());
        let Err(Exit::Failed(sentence)) = failed else { panic!("{header}: {failed:?}") };
        assert!(sentence.contains("line 1 of") && sentence.contains(part), "{header}: {sentence}");
    }
}

#[test]
fn pairs_in_any_order_are_stored_as_if_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut model = BTreeMap::new();
    let mut text = String::new();
    // Ascending pairs, then pairs in disorder with keys that repeat, of two trees in turns.
    for number in 0..12_000u32 {
        let tree = if number / 3000 % 2 == 0 { "a" } else { "b" };
        let key = if number % 3000 < 1500 { number } else { number * 7919 % 2000 };
        let value = format!("{number}{}", "x".repeat(number as usize % 50));
        text += &format!("{tree}\t{key:06}\t{value}\n");
        model.insert((tree, format!("{key:06}")), value);
    }
    loaded(text.as_bytes(), folder.path()).unwrap();
    let expected: String =
        model.iter().map(|((tree, key), value)| format!("{tree}\t{key}\t{value}\n")).collect();
    assert!(dumped(&["dump"], folder.path()).unwrap() == expected.as_bytes());
    // A key that is too long, in the middle of a bulk load.
    let new = tempfile::tempdir().unwrap();
    let long = "k".repeat(wattle::MAX_KEY + 1);
    let text = format!("a\t1\t1\na\t2\t2\na\t{long}\t3\na\tz\t4\n");
    let Err(Exit::Failed(sentence)) = loaded(text.as_bytes(), new.path()) else { panic!() };
    assert!(sentence.contains("line 3 of"), "{sentence}");
    assert_eq!(dumped(&["dump"], new.path()).unwrap(), b"a\t1\t1\na\t2\t2\n");
    // A tree whose pairs were all removed.
    with_engine(new.path(), |engine| {
        let (session, tree) = (engine.session().unwrap(), engine.tree("a").unwrap());
        assert_eq!(session.remove_many(&tree, &["1", "2"]).unwrap(), 2);
    });
    loaded(b"a\t1\t5\na\t2\t6\n", new.path()).unwrap();
    assert_eq!(dumped(&["dump"], new.path()).unwrap(), b"a\t1\t5\na\t2\t6\n");
    // A key that is too long, among others of its transaction.
    let long = "k".repeat(wattle::MAX_KEY + 1);
    let text = format!("a\tnew\t1\na\t{long}\t2\na\tnext\t3\n");
    let Err(Exit::Failed(sentence)) = loaded(text.as_bytes(), folder.path()) else { panic!() };
    assert!(sentence.contains("line 2 of"), "{sentence}");
    let text = String::from_utf8(dumped(&["dump", "--tree", "a"], folder.path()).unwrap()).unwrap();
    assert!(text.contains("a\tnew\t1\n") && !text.contains("a\tnext"), "{text}");
}

#[test]
fn a_backup_is_restored_to_a_new_place_and_over_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (store, copy, again) =
        (folder.path().join("store"), folder.path().join("copy"), folder.path().join("again"));
    let lines: String = (0..5_000).map(|number| format!("t\t{number:08}\tvalue\n")).collect();
    loaded(lines.as_bytes(), &store).unwrap();
    let interrupt = Interrupt::default();
    let run = |command: &str, from: &Path, to: &Path| {
        let words = ["wattle", command, from.to_str().unwrap(), to.to_str().unwrap()];
        match Cli::try_parse_from(words).unwrap().command.unwrap() {
            Command::Backup(flags) => backup::backup(&flags, &interrupt),
            Command::Restore(flags) => backup::restore(&flags, &interrupt),
            other => panic!("{other:?}"),
        }
    };
    let before = files(&store);
    assert_eq!(run("backup", &store, &copy), Ok(()));
    assert!(files(&store) == before, "a backup changes nothing");
    assert_eq!(run("restore", &copy, &again), Ok(()));
    assert!(dumped(&["dump"], &again).unwrap() == lines.as_bytes());
    for command in ["backup", "restore"] {
        let Err(Exit::Failed(sentence)) = run(command, &copy, &again) else { panic!() };
        assert!(sentence.contains("exists already"), "{sentence}");
    }
    assert!(dumped(&["dump"], &again).unwrap() == lines.as_bytes());
    // A damaged backup is not restored.
    let data = copy.join(wattle::DATA_FILE);
    let mut bytes = std::fs::read(&data).unwrap();
    let value = bytes.windows(5).rposition(|window| window == b"value").unwrap();
    bytes[value] ^= 1;
    std::fs::write(&data, bytes).unwrap();
    let elsewhere = folder.path().join("elsewhere");
    let Err(Exit::Failed(sentence)) = run("restore", &copy, &elsewhere) else { panic!() };
    assert!(sentence.contains("copy"), "{sentence}");
    assert!(!elsewhere.exists());
    // Nor is a store that another process has open.
    let engine = Engine::open(&store, Options::default().pool_bytes(16 << 20)).unwrap();
    let Err(exit) = run("backup", &store, &elsewhere) else { panic!() };
    assert!(format!("{exit:?}").contains("open"), "{exit:?}");
    engine.close().unwrap();
}

#[test]
fn verify_passes_a_good_store_and_fails_a_damaged_one() {
    let folder = tempfile::tempdir().unwrap();
    let lines: String = (0..20_000).map(|number| format!("t\t{number:08}\tvalue\n")).collect();
    loaded(lines.as_bytes(), folder.path()).unwrap();
    let interrupt = Interrupt::default();
    let verify = || looked(&["verify"], folder.path(), &interrupt);
    assert_eq!(verify(), Ok(()));
    assert_eq!(looked(&["stat", "--format", "json"], folder.path(), &interrupt), Ok(()));
    let data = folder.path().join(wattle::DATA_FILE);
    let mut bytes = std::fs::read(&data).unwrap();
    let value = bytes.windows(5).rposition(|window| window == b"value").unwrap();
    bytes[value] ^= 1;
    std::fs::write(&data, bytes).unwrap();
    assert!(matches!(verify(), Err(Exit::Reported | Exit::Failed(_))));
}

#[test]
fn the_state_in_which_a_store_was_left_is_told() {
    let folder = tempfile::tempdir().unwrap();
    with_engine(folder.path(), |engine| engine.tree("t").map(drop).unwrap());
    let read_only = || Options::default().pool_bytes(16 << 20).read_only(true);
    let info = || Engine::open(folder.path(), read_only()).unwrap().store_info();
    let closed = info();
    assert!(closed.closed && closed.logged && closed.replay_records == 0, "{closed:?}");
    assert_eq!(closed.version, wattle::STORE_VERSION);
    let options = Options::default().pool_bytes(16 << 20);
    let engine = Engine::open(folder.path(), options.clone()).unwrap();
    engine.session().unwrap().put(&engine.tree("t").unwrap(), b"key", b"value").unwrap();
    engine.abandon().unwrap();
    let left = info();
    assert!(!left.closed && left.replay_records > 0 && left.replay_bytes > 0, "{left:?}");
    assert!(left.log_segments > 0 && left.log_file_bytes >= left.replay_bytes, "{left:?}");
    // A store without a log.
    let folder = tempfile::tempdir().unwrap();
    Engine::open(folder.path(), options.log(false)).unwrap().close().unwrap();
    let info = Engine::open(folder.path(), read_only()).unwrap().store_info();
    assert!(info.closed && !info.logged && info.log_segments == 0, "{info:?}");
}

#[test]
fn an_interrupt_ends_every_command_with_the_store_closed() {
    let folder = tempfile::tempdir().unwrap();
    let lines: String = (0..2_000).map(|number| format!("t\t{number:08}\tvalue\n")).collect();
    let interrupt = Interrupt::default();
    interrupt.raise();
    let Command::Load(flags) = command(&["load"], folder.path()) else { panic!() };
    let loaded = load::load(&flags, &mut lines.as_bytes(), &interrupt);
    assert!(matches!(&loaded, Err(Exit::Interrupted(sentence)) if sentence.contains("256 lines")));
    let Command::Dump(flags) = command(&["dump"], folder.path()) else { panic!() };
    let dumped = dump::dump(&flags, &mut Vec::new(), &interrupt);
    assert!(
        matches!(&dumped, Err(Exit::Interrupted(sentence)) if sentence.contains("interrupted"))
    );
    // Also when it comes after the store was opened.
    with_engine(folder.path(), |engine| {
        assert_eq!(engine.trees().unwrap(), ["t"]);
        let verified = engine.verify_until(interrupt.flag(), &mut |_| {});
        assert!(matches!(verified, Err(wattle::Error::Interrupted)), "{verified:?}");
        let measured = engine.tree_stats_until(interrupt.flag());
        assert!(matches!(measured, Err(wattle::Error::Interrupted)), "{measured:?}");
    });
    for subcommand in ["verify", "stat"] {
        let ended = looked(&[subcommand], folder.path(), &interrupt);
        let Err(Exit::Interrupted(sentence)) = ended else { panic!("{ended:?}") };
        assert!(sentence.starts_with("interrupted while opening the store"), "{sentence}");
    }
    assert_eq!(looked(&["verify"], folder.path(), &Interrupt::default()), Ok(()));
}

/// Names, bytes and times of the files of a store.
fn files(path: &Path) -> Vec<(std::path::PathBuf, std::time::SystemTime, Vec<u8>)> {
    let mut files = Vec::new();
    for directory in [path.to_owned(), path.join(wattle::LOG_DIRECTORY)] {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let modified = path.metadata().unwrap().modified().unwrap();
            let bytes = if path.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            files.push((path, modified, bytes));
        }
    }
    files.sort();
    files
}

#[test]
fn commands_leave_the_list_for_a_warm_start_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let lines: String = (0..50_000).map(|number| format!("t\t{number:08}\tvalue\n")).collect();
    loaded(lines.as_bytes(), folder.path()).unwrap();
    let list = folder.path().join(wattle::WARM_FILE);
    assert!(!list.exists());
    std::fs::write(&list, "the list of a server").unwrap();
    loaded(lines.replace("value", "other").as_bytes(), folder.path()).unwrap();
    let interrupt = Interrupt::default();
    for arguments in [&["compact"][..], &["stat"], &["verify"]] {
        assert_eq!(looked(arguments, folder.path(), &interrupt), Ok(()), "{arguments:?}");
    }
    assert!(dumped(&["dump"], folder.path()).unwrap().ends_with(b"other\n"));
    assert_eq!(std::fs::read(&list).unwrap(), b"the list of a server");
}

#[test]
fn looking_at_a_store_changes_nothing_in_it_and_several_may() {
    let folder = tempfile::tempdir().unwrap();
    let lines: String = (0..5_000).map(|number| format!("t\t{number:08}\tvalue\n")).collect();
    loaded(lines.as_bytes(), folder.path()).unwrap();
    let before = files(folder.path());
    let read_only = Options::default().pool_bytes(1 << 20).read_only(true);
    let reader = Engine::open(folder.path(), read_only).unwrap();
    let interrupt = Interrupt::default();
    for arguments in [&["verify"][..], &["stat"], &["stat", "--log"]] {
        assert_eq!(looked(arguments, folder.path(), &interrupt), Ok(()), "{arguments:?}");
    }
    assert!(dumped(&["dump"], folder.path()).unwrap() == lines.as_bytes());
    let refused = loaded(b"t\tk\tv\n", folder.path());
    assert!(matches!(&refused, Err(Exit::Usage(sentence)) if sentence.contains("open already")));
    reader.close().unwrap();
    assert!(before == files(folder.path()), "the store was changed");
}
