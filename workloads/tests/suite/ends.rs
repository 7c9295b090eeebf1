//! How commands end if their results cannot be written, or if their reader closes the pipe early.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn wattle(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ended(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// A store with more pairs than a pipe takes.
fn store(folder: &Path) -> String {
    let path = folder.join("store").to_str().unwrap().to_owned();
    let mut load = wattle(&["load", &path]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = load.stdin.take().unwrap();
    for number in 0..20_000 {
        writeln!(input, "t\t{number:08}\t{}", "value ".repeat(10)).unwrap();
    }
    drop(input);
    assert_eq!(load.wait().unwrap().code(), Some(0));
    path
}

fn trace(folder: &Path) -> String {
    let path = folder.join("small.trace");
    std::fs::write(&path, "1,R\n2,R\n1,W\n").unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_dump_whose_reader_closes_the_pipe_ends_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let path = store(folder.path());
    for lines in [1, 10, 5_000] {
        let mut dump = wattle(&["dump", &path]).spawn().unwrap();
        let mut out = BufReader::new(dump.stdout.take().unwrap());
        let mut text = String::new();
        for number in 0..lines {
            text.clear();
            out.read_line(&mut text).unwrap();
            assert!(text.starts_with(&format!("t\t{number:08}\tvalue ")), "{text}");
        }
        drop(out);
        let mut error = String::new();
        dump.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert_eq!((dump.wait().unwrap().code(), error.as_str()), (Some(0), ""), "{lines} lines");
    }
    // The store was closed each time.
    assert_eq!(ended(&mut wattle(&["verify", &path])), (Some(0), String::new()));
}

/// Every command that prints something, with arguments to do so.
fn commands<'a>(store: &'a str, trace: &'a str) -> Vec<Vec<&'a str>> {
    let simulate = ["simulate", "--trace", trace, "--policy", "lru", "--cache", "1", "--format"];
    let with = |format| [&simulate[..], &[format]].concat();
    let run = |name, size, more: &[&'a str]| {
        let run = [name, size, "1", "--operations", "20", "--warmup", "0", "--pool", "16MiB"];
        [&run[..], &["--io", "memory"], more].concat()
    };
    vec![
        vec!["--help"],
        vec!["--version"],
        vec!["ycsb", "--help"],
        vec!["help", "dump"],
        vec!["dump", store],
        vec!["verify", store],
        vec!["verify", "--format", "json", store],
        vec!["stat", store],
        vec!["stat", "--format", "json", store],
        vec!["stat", "--log", store],
        vec!["simulate", "--list-policies"],
        with("text"),
        with("csv"),
        with("json"),
        run("ycsb", "--records", &[]),
        run("ycsb", "--records", &["--format", "json"]),
        run("tpcb", "--scale", &["--format", "json"]),
        run("tatp", "--subscribers", &[]),
    ]
}

#[test]
fn a_command_whose_results_have_no_reader_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = (store(folder.path()), trace(folder.path()));
    for arguments in commands(&path, &trace) {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, error) = ended(wattle(&arguments).stdout(writer));
        assert_eq!(code, Some(0), "{arguments:?}: {error}");
        let is_run = ["ycsb", "tpcb", "tatp"].contains(&arguments[0]);
        assert!(is_run || error.is_empty(), "{arguments:?}: {error}");
    }
}

#[test]
fn every_command_whose_results_cannot_be_written_says_so() {
    if std::fs::File::create("/dev/full").is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = (store(folder.path()), trace(folder.path()));
    let full = || std::fs::File::create("/dev/full").unwrap();
    for arguments in commands(&path, &trace) {
        let (code, error) = ended(wattle(&arguments).stdout(full()));
        let doing = error.lines().last().unwrap_or_default();
        assert_eq!(code, Some(1), "{arguments:?}: {error}");
        assert!(doing.starts_with("error: "), "{arguments:?}: {error}");
        assert!(doing.contains("No space left on device"), "{arguments:?}: {error}");
    }
    // Also a command that has something bad to tell.
    let data = Path::new(&path).join(wattle::DATA_FILE);
    let mut bytes = std::fs::read(&data).unwrap();
    let value = bytes.windows(5).rposition(|window| window == b"value").unwrap();
    bytes[value] ^= 1;
    std::fs::write(&data, bytes).unwrap();
    let (code, error) = ended(wattle(&["verify", &path]).stdout(full()));
    assert_eq!(code, Some(1));
    assert!(error.contains("error: writing the result: No space left on device"), "{error}");
}

#[test]
fn an_interrupted_dump_has_an_exit_code_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = store(folder.path());
    let mut dump = wattle(&["dump", &path]).spawn().unwrap();
    let mut out = BufReader::new(dump.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    // It waits for its reader now.
    kill_process(Pid::from_child(&dump), Signal::INT).unwrap();
    let mut rest = Vec::new();
    let mut error = BufReader::new(dump.stderr.take().unwrap());
    let mut told = String::new();
    error.read_line(&mut told).unwrap();
    assert!(told.starts_with("interrupted: finishing"), "{told}");
    out.read_to_end(&mut rest).unwrap();
    told.clear();
    error.read_to_string(&mut told).unwrap();
    assert_eq!(told, "interrupted while dumping\n");
    assert_eq!(dump.wait().unwrap().code(), Some(130));
    // All that was read is there, in whole lines, and the store is closed.
    assert!(rest.ends_with(b"value \n"), "{}", rest.len());
    assert_eq!(ended(&mut wattle(&["verify", &path])), (Some(0), String::new()));
}
