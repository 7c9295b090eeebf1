//! Processes that run out of file descriptors: from the start, or while a store is open. Operations
//! fail with an error that says so, or do without; nothing panics, hangs or is lost; and when there
//! are descriptors again, everything works again. Each is a child process, because the limit is
//! that of a process: it is this test program.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    fs::File,
    path::Path,
    process::{Command, Output},
    sync::Arc,
    time::Duration,
};
use wattle::{Engine, Error, IoKind, MIN_LOG_BYTES, Options, Session, Tree};
use wattle_tests::harness::{Watchdog, assert_verified, small_pool};

const CHILD: &str = "WATTLE_DESCRIPTORS_CHILD";
const MODE: &str = "WATTLE_DESCRIPTORS_MODE";
const KINDS: [IoKind; 2] = [IoKind::Threads, IoKind::Uring];

fn options(io: IoKind) -> Options {
    small_pool(64)
        .io(io)
        .log_bytes(MIN_LOG_BYTES)
        .write_concurrency(64)
        .stall_timeout(Duration::from_millis(300))
}

fn limit(files: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit { current: Some(files), maximum };
    setrlimit(Resource::Nofile, limit).expect("a limit below the greatest");
}

/// The least descriptor that is free. All below are taken.
fn first_free() -> u64 {
    use std::os::fd::AsRawFd;
    File::open("/dev/null").expect("a descriptor").as_raw_fd() as u64
}

fn run_child(path: &Path, name: &str, mode: &str) -> Output {
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    child.env(CHILD, path).env(MODE, mode).env("RUST_BACKTRACE", "0");
    child.output().expect("a process")
}

fn assert_well(output: &Output, what: &str) {
    let text = format!(
        "{what}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}

/// The error is about descriptors, and does not speak of a full device.
fn assert_says_so(error: &Error) {
    let text = error.to_string();
    println!("{text}");
    assert!(text.contains("os error 24"), "{text}");
    assert!(!text.contains("device is full") && !text.contains("no room"), "{text}");
}

fn put(session: &Session, tree: &Tree, key: u32) -> Result<(), Error> {
    session.put(tree, &key.to_be_bytes(), &[key as u8; 900])
}

/// All acknowledged records are there, and at most one more.
fn assert_there(path: &Path, io: IoKind, acknowledged: u32) {
    let engine = Engine::open(path, options(io)).expect("open without a limit");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for key in 0..acknowledged {
        let found = session.get(&tree, &key.to_be_bytes()).expect("get");
        assert_eq!(found, Some(vec![key as u8; 900]), "record {key} of {acknowledged}");
    }
    drop((session, tree));
    assert_verified(&engine);
    engine.close().expect("close");
}

/// Everything that takes descriptors, once; errors must say so. Gives the records that are
/// acknowledged.
fn exercise(engine: &Engine, from: u32, records: u32) -> (u32, Vec<Error>) {
    let mut errors = Vec::new();
    let mut acknowledged = from;
    let mut note = |result: Result<(), Error>| errors.extend(result.err());
    note((|| {
        let tree = engine.tree("tree")?;
        let session = engine.session()?;
        while acknowledged < from + records {
            put(&session, &tree, acknowledged)?;
            acknowledged += 1;
        }
        Ok(())
    })());
    note((|| {
        // One that spills.
        let tree = engine.tree("other")?;
        let mut txn = engine.begin()?;
        for key in 0..1500u32 {
            txn.put(&tree, &(key % 300).to_be_bytes(), &[key as u8; 900])?;
        }
        txn.abort()
    })());
    note(engine.checkpoint());
    note(engine.verify(&mut |_| {}).map(|report| assert_eq!(report.problems, [] as [String; 0])));
    (acknowledged, errors)
}

#[test]
#[ignore = "the child process of another test"]
fn child_with_a_limit_from_the_start() {
    let (Ok(path), Ok(mode)) = (std::env::var(CHILD), std::env::var(MODE)) else { return };
    let _watchdog = Watchdog::start("few descriptors", Duration::from_secs(60));
    let (io, files) = mode.split_once(' ').expect("two words");
    let io = if io == "uring" { IoKind::Uring } else { IoKind::Threads };
    limit(files.parse().expect("a number"));
    let engine = match Engine::open(&path, options(io)) {
        Ok(engine) => engine,
        Err(error) => return assert_says_so(&error),
    };
    let (acknowledged, errors) = exercise(&engine, 0, 300);
    errors.iter().for_each(assert_says_so);
    if let Err(error) = engine.close() {
        assert_says_so(error.error());
    }
    limit(1000);
    assert_there(Path::new(&path), io, acknowledged);
    println!("opened with {files}, {acknowledged} records, {} errors", errors.len());
}

#[test]
fn any_limit_from_the_start_is_enough_or_an_error() {
    for io in ["threads", "uring"] {
        let mut opened = 0;
        for files in (5..18).chain([20, 24, 30, 40]) {
            let dir = tempfile::tempdir().expect("a directory");
            let mode = format!("{io} {files}");
            let path = dir.path().join("store");
            let output = run_child(&path, "child_with_a_limit_from_the_start", &mode);
            assert_well(&output, &mode);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            opened += u32::from(said.contains(", 0 errors"));
            said.lines()
                .filter(|line| line.starts_with("opened"))
                .for_each(|line| println!("{io}: {line}"));
        }
        assert!(opened > 3, "{opened} limits were enough");
    }
}

#[test]
#[ignore = "the child process of another test"]
fn child_that_runs_out_of_descriptors() {
    let (Ok(path), Ok(mode)) = (std::env::var(CHILD), std::env::var(MODE)) else { return };
    let _watchdog = Watchdog::start("no descriptors", Duration::from_secs(60));
    let path = Path::new(&path);
    let (mut acknowledged, io) = (0, if mode == "uring" { IoKind::Uring } else { IoKind::Threads });
    for more in [0, 1, 2, 4, 6] {
        limit(1000);
        let engine = Engine::open(path, options(io)).expect("open");
        let (tree, session) =
            (engine.tree("tree").expect("tree"), engine.session().expect("session"));
        put(&session, &tree, 0).expect("put");
        acknowledged = acknowledged.max(1);
        drop((session, tree));
        limit(first_free() + more);
        let errors;
        (acknowledged, errors) = exercise(&engine, acknowledged, 200);
        errors.iter().for_each(assert_says_so);
        println!("{io:?}, {more} more: {acknowledged} records, {} errors", errors.len());
        // As soon as there are some everything works.
        limit(1000);
        std::thread::sleep(Duration::from_millis(400));
        let errors;
        (acknowledged, errors) = exercise(&engine, acknowledged, 200);
        assert!(errors.is_empty(), "{errors:?}");
        // Closing needs none.
        limit(first_free());
        engine.close().expect("close");
        limit(1000);
        assert_there(path, io, acknowledged);
    }
}

#[test]
fn a_store_that_is_open_outlives_a_lack_of_descriptors() {
    for io in KINDS {
        let dir = tempfile::tempdir().expect("a directory");
        let mode = if io == IoKind::Uring { "uring" } else { "threads" };
        let output =
            run_child(&dir.path().join("store"), "child_that_runs_out_of_descriptors", mode);
        assert_well(&output, mode);
        println!("{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
#[ignore = "the child process of another test"]
fn child_with_tasks_and_without_descriptors() {
    let (Ok(path), Ok(_)) = (std::env::var(CHILD), std::env::var(MODE)) else { return };
    let _watchdog = Watchdog::start("tasks without descriptors", Duration::from_secs(60));
    let engine = Arc::new(Engine::open(path, options(IoKind::Uring)).expect("open"));
    let (count, errors) = exercise(&engine, 0, 600);
    assert!(count == 600 && errors.is_empty(), "{errors:?}");
    for more in 0..8 {
        limit(first_free() + more);
        let run = || {
            wattle::run(8, async {
                let session = engine.async_session()?;
                let tree = engine.tree("tree")?;
                for key in 0..600u32 {
                    let found = session.get(&tree, &key.to_be_bytes()).await?;
                    assert_eq!(found, Some(vec![key as u8; 900]));
                }
                Ok::<_, Error>(())
            })
        };
        match run() {
            Ok(done) => done.expect("reads need no descriptor of their own"),
            Err(error) => println!("{more} more: {error}"),
        }
        limit(1000);
        run().expect("a ring").expect("read");
    }
}

#[test]
fn tasks_without_descriptors_read_or_are_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let output = run_child(&path, "child_with_tasks_and_without_descriptors", "uring");
    assert_well(&output, "tasks");
    println!("{}", String::from_utf8_lossy(&output.stdout));
}
