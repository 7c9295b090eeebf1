//! Real files and a kernel that refuses: limits of the size of files and of open files, which a
//! shell sets for a child process. The child is this test program. It tells its parent what it got
//! acknowledged, and ends without closing the store; the parent opens it without the limits.

use std::{
    io::Write,
    path::Path,
    process::{Command, Output},
};
use wattle::{Engine, Error, IoKind, MIN_LOG_BYTES, Options};
use wattle_tests::harness::{assert_verified, small_pool};

const CHILD: &str = "WATTLE_LIMITS_CHILD";
const SETTINGS: &str = "WATTLE_LIMITS_SETTINGS";

/// How a store is opened, how many records a child writes, and how often a transaction writes them
/// all again before it is taken back.
#[derive(Clone, Copy, Debug)]
struct Settings {
    uring: bool,
    log_bytes: u64,
    records: u32,
    rewrites: u32,
}

impl Settings {
    fn encode(self) -> String {
        let Settings { uring, log_bytes, records, rewrites } = self;
        format!("{} {log_bytes} {records} {rewrites}", u64::from(uring))
    }

    fn decode(text: &str) -> Settings {
        let numbers: Vec<u64> = text.split(' ').map(|n| n.parse().expect("a number")).collect();
        let (records, rewrites) = (numbers[2] as u32, numbers[3] as u32);
        Settings { uring: numbers[0] == 1, log_bytes: numbers[1], records, rewrites }
    }

    fn options(self) -> Options {
        let io = if self.uring { IoKind::Uring } else { IoKind::Threads };
        small_pool(64).io(io).log_bytes(self.log_bytes)
    }
}

/// Runs [`child_with_limits`] on the store at `path` after a shell command.
fn child(path: &Path, settings: Settings, limit: &str) -> Output {
    let program = std::env::current_exe().expect("this program");
    let mut shell = Command::new("sh");
    // A file that would get too large is an error then, and not a signal.
    shell.arg("-c").arg(format!("trap '' XFSZ; {limit}; exec \"$0\" \"$@\"")).arg(program);
    shell.args(["child_with_limits", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    shell.env(CHILD, path).env(SETTINGS, settings.encode()).env("RUST_BACKTRACE", "0");
    shell.output().expect("a shell")
}

#[test]
#[ignore = "the child process of the other tests"]
fn child_with_limits() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let settings = Settings::decode(&std::env::var(SETTINGS).expect("settings of a child"));
    let say = |what: &str| {
        let mut out = std::io::stdout().lock();
        out.write_all(format!("\n{what}\n").as_bytes()).expect("the parent listens");
        out.flush().expect("the parent listens");
    };
    let engine = match Engine::open(&path, settings.options()) {
        Ok(engine) => engine,
        Err(error) => return say(&format!("refused {error}")),
    };
    let outcome = (|| -> Result<(), Error> {
        let tree = engine.tree("tree")?;
        let session = engine.session()?;
        let mut txn = engine.begin()?;
        txn.put(&tree, b"never", &[0; 3000])?;
        for key in 0..settings.records {
            session.put(&tree, &key.to_be_bytes(), &[key as u8; 900])?;
            say(&format!("acknowledged {key}"));
        }
        txn.abort()?;
        let mut txn = engine.begin()?;
        for rewrite in 0..settings.rewrites {
            for key in 0..settings.records {
                let written = txn.put(&tree, &key.to_be_bytes(), &[rewrite as u8; 900]);
                if let Err(error) = written {
                    txn.abort()?;
                    session.put(&tree, &0u32.to_be_bytes(), &[0; 900])?;
                    return Err(error);
                }
            }
        }
        txn.abort()
    })();
    match outcome {
        Ok(()) => say("done"),
        Err(error @ Error::DiskFull { .. }) => say(&format!("refused {error}\nfull")),
        Err(error) => say(&format!("refused {error}")),
    }
    // As it would end when it is killed.
    std::process::exit(0);
}

/// The output of a child.
struct Said {
    acknowledged: Option<u32>,
    /// The error that it met, and whether that is a full device.
    refused: Option<(String, bool)>,
}

fn said(output: &Output) -> Said {
    let all = String::from_utf8_lossy(&output.stdout);
    let says = || format!("{all}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", says());
    let after = |what: &str| all.lines().filter_map(|line| line.strip_prefix(what)).next_back();
    let acknowledged = after("acknowledged ").map(|key| key.parse().expect("a number"));
    let refused = after("refused ").map(|what| (what.to_string(), after("full").is_some()));
    assert!(refused.is_some() || after("done").is_some(), "{}", says());
    Said { acknowledged, refused }
}

/// The store has what was acknowledged, and nothing that was not.
fn assert_there(path: &Path, settings: Settings, said: &Said) {
    let engine = Engine::open(path, settings.options()).expect("open without limits");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let records = said.acknowledged.map_or(0, |last| last + 1);
    for key in 0..records {
        let found = session.get(&tree, &key.to_be_bytes()).expect("get");
        assert_eq!(found, Some(vec![key as u8; 900]), "record {key} of {records}");
    }
    let all = session.scan(&tree).expect("scan").count() as u32;
    assert!(all == records || all == records + 1, "{all} records, {records} were acknowledged");
    session.put(&tree, b"more", b"there is room").expect("put");
    drop((session, tree));
    assert_verified(&engine);
    engine.close().expect("close");
}

#[test]
fn files_that_may_not_grow_are_a_full_device_and_lose_nothing() {
    let (small, large) = (MIN_LOG_BYTES, 32 << 20);
    for uring in [false, true] {
        // Blocks of 512 bytes: less than the pages of a new store, some more, less than a segment.
        for (blocks, log_bytes) in [(300, small), (2100, small), (2600, small), (3000, large)] {
            let settings = Settings { uring, log_bytes, records: 20_000, rewrites: 0 };
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("store");
            let said = said(&child(&path, settings, &format!("ulimit -f {blocks}")));
            let (error, full) = said.refused.as_ref().expect("20000 records are too much");
            println!("{blocks} blocks, {settings:?}: {:?}, then {error}", said.acknowledged);
            assert!(error.contains("reserve") || error.contains("make log segment"), "{error}");
            assert!(*full || said.acknowledged.is_none(), "{error}");
            assert_there(&path, settings, &said);
        }
    }
}

#[test]
fn too_few_open_files_are_an_error_that_names_the_file_and_loses_nothing() {
    for uring in [false, true] {
        let settings = Settings { uring, log_bytes: MIN_LOG_BYTES, records: 300, rewrites: 0 };
        let (mut refused, mut done) = (0, 0);
        for files in 4.. {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("store");
            let said = said(&child(&path, settings, &format!("ulimit -n {files}")));
            match &said.refused {
                Some((error, _)) => {
                    println!("{files} files, {settings:?}: {:?}, then {error}", said.acknowledged);
                    let names = ["data", "store", "log"].iter().any(|name| error.contains(name));
                    assert!(names && error.contains("os error 24"), "{error}");
                    // Open files stay open, so no operation under way fails.
                    assert!(!error.contains("unknown"), "{error}");
                    refused += 1;
                }
                None => done += 1,
            }
            assert_there(&path, settings, &said);
            if done == 2 {
                break;
            }
            assert!(files < 60, "never enough");
        }
        assert!(refused > 2, "{refused} refused");
    }
}

#[test]
fn a_transaction_whose_undo_entries_find_no_room_is_taken_back() {
    // Blocks of 512 bytes: pages and segments fit, the temporary file of the transaction does not.
    let settings = Settings { uring: false, log_bytes: 8 << 20, records: 300, rewrites: 12 };
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let said = said(&child(&path, settings, "ulimit -f 2100"));
    let (error, full) = said.refused.as_ref().expect("it does not fit");
    assert!(error.contains("undo entries") && *full, "{error}");
    assert_eq!(said.acknowledged, Some(299));
    assert_there(&path, settings, &said);
}
