//! Instructions for each operation, counted by callgrind. Counts are exact where noise hides a
//! difference of time.
//!
//! `cargo bench -p wattle-benches --bench instructions -- [work=NAME,..] [records=100000]
//! [value=120] [hints=on|off]`
//!
//! TPC-C runs with `--hints prefetch --delivery-queue on`, as the benchmark `tpcc` does;
//! `hints=off` leaves them out. `value=` is the length of the values that `scan`, `range`, `visit`
//! and `whole` read.
//!
//! Needs `valgrind`. Each work runs in a process of its own, with one thread and the back end
//! `memory`, and only the thread that runs the operations is counted: background threads are not.
//! Two builds are compared by running this benchmark in both; the figures repeat within 0.2 %
//! (TPC-C 1 %).
//!
//! | work | operation |
//! |---|---|
//! | `get` | look-up of a resident record, `Session::get_with` |
//! | `multi-get` | one key of 32 of `Session::multi_get` |
//! | `update` | auto-committed update in place, `Durability::None` |
//! | `insert` | auto-committed insert of a new key at random, `Durability::None` |
//! | `commit` | transaction of one look-up and one update, `Durability::None` |
//! | `held-get` | one of 100 look-ups of resident records in a read transaction |
//! | `scan` | one record of a range of 100, as an iterator of owned pairs |
//! | `range` | one record of a range of 100, `Range::next_entry` |
//! | `visit` | one record of a range of 100, `Session::visit` |
//! | `whole` | one record of a scan of all records, `Session::visit` |
//! | `large-get` | look-up of a resident value of 10,000 bytes, `Session::get_with` |
//! | `large-part` | 100 bytes of such a value, `Session::get_range` |
//! | `large-put` | auto-committed put of such a value over another one, `Durability::None` |
//! | `large-insert` | auto-committed insert of such a value, `Durability::None` |
//! | `new-order`, `payment`, `order-status`, `delivery`, `stock-level`, `standard` | a TPC-C transaction, one warehouse, `group` |

use std::{
    collections::HashMap,
    hint::black_box,
    ops::{
        Bound::{self, Included, Unbounded},
        ControlFlow,
    },
    path::Path,
    process::{Command, ExitCode, Stdio},
};
use wattle::{Direction, Durability, Engine, IoKind, Options, Session, Tree};
use wattle_benches::{argument, text};
use wattle_workloads::{key::fnv1a, rng::Rng};

/// First argument of a process that runs operations of a tree.
const TREE: &str = "tree";
/// First argument of a process that runs the `wattle` binary.
const WATTLE: &str = "wattle";
/// Operations that are counted.
const OPERATIONS: usize = 20_000;
/// Those of TPC-C, which are a hundred times as long.
const TRANSACTIONS: u64 = 1000;
const VALUE: usize = 120;
/// Bytes of a large value.
const LARGE: usize = 10_000;
/// There are so many times fewer large values.
const FEWER: usize = 50;
const TREE_WORK: [&str; 14] = [
    "get",
    "multi-get",
    "update",
    "insert",
    "commit",
    "held-get",
    "scan",
    "range",
    "visit",
    "whole",
    "large-get",
    "large-part",
    "large-put",
    "large-insert",
];
const TPCC_WORK: [&str; 6] =
    ["new-order", "payment", "order-status", "delivery", "stock-level", "standard"];

fn key(i: usize) -> [u8; 8] {
    fnv1a(i as u64).to_be_bytes()
}

/// The function that callgrind counts, by its name.
#[inline(never)]
fn measured(
    keys: &[[u8; 8]],
    mut operation: impl FnMut(&[[u8; 8]]) -> wattle::Result<()>,
    at_once: usize,
) {
    for keys in keys.chunks(at_once) {
        operation(keys).expect("an operation");
    }
}

/// Visits so many records.
fn visit(session: &Session, tree: &Tree, low: Bound<&[u8]>, mut left: usize) -> wattle::Result<()> {
    session.visit(tree, (low, Unbounded), Direction::Forward, |key, value| {
        black_box((key, value));
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// Runs the operations of `work` on these keys.
fn operate(work: &str, session: &Session, tree: &Tree, keys: &[[u8; 8]]) {
    let mut value = [7; VALUE];
    match work {
        "get" => measured(
            keys,
            |keys| {
                session.get_with(tree, &keys[0], |bytes| value.copy_from_slice(bytes))?;
                black_box(&value);
                Ok(())
            },
            1,
        ),
        "multi-get" => measured(
            keys,
            |keys| session.multi_get(tree, keys, |_, bytes| _ = black_box(bytes)),
            32,
        ),
        "update" => measured(keys, |keys| session.update(tree, &keys[0], &value).map(drop), 1),
        "insert" => measured(keys, |keys| session.insert(tree, &keys[0], &value), 1),
        "commit" => measured(
            keys,
            |keys| {
                let mut txn = session.begin()?;
                txn.get_with(tree, &keys[0], |bytes| value.copy_from_slice(bytes))?;
                txn.update(tree, &keys[0], &value)?;
                txn.commit()
            },
            1,
        ),
        "held-get" => measured(
            keys,
            |keys| {
                let txn = session.begin_read()?;
                for key in keys {
                    txn.get_with(tree, key, |bytes| value.copy_from_slice(bytes))?;
                    black_box(&value);
                }
                Ok(())
            },
            100,
        ),
        "range" => measured(
            keys,
            |keys| {
                let (mut range, mut left) = (session.range(tree, &keys[0][..]..)?, 100);
                while left > 0
                    && let Some(entry) = range.next_entry()?
                {
                    black_box(entry);
                    left -= 1;
                }
                Ok(())
            },
            100,
        ),
        "visit" => measured(keys, |keys| visit(session, tree, Included(&keys[0]), 100), 100),
        "whole" => measured(keys, |keys| visit(session, tree, Unbounded, keys.len()), OPERATIONS),
        "scan" => measured(
            keys,
            |keys| {
                for entry in session.range(tree, &keys[0][..]..)?.take(100) {
                    black_box(entry?);
                }
                Ok(())
            },
            100,
        ),
        _ => operate_large(work, session, tree, keys),
    }
}

/// Runs the operations of a work with large values on these keys.
fn operate_large(work: &str, session: &Session, tree: &Tree, keys: &[[u8; 8]]) {
    match work {
        "large-get" => measured(
            keys,
            |keys| {
                session.get_with(tree, &keys[0], |bytes| _ = black_box(bytes))?;
                Ok(())
            },
            1,
        ),
        "large-part" => measured(
            keys,
            |keys| session.get_range(tree, &keys[0], 5000..5100).map(|part| _ = black_box(part)),
            1,
        ),
        "large-put" => measured(keys, |keys| session.put(tree, &keys[0], &[9; LARGE]), 1),
        "large-insert" => measured(keys, |keys| session.insert(tree, &keys[0], &[9; LARGE]), 1),
        _ => panic!("unknown work {work}"),
    }
}

/// Runs the operations of one work in this process.
fn run_tree(work: &str, mut records: usize) -> wattle::Result<()> {
    let (mut operations, mut len) = (OPERATIONS, VALUE);
    if ["scan", "range", "visit", "whole"].contains(&work) {
        len = argument("value", VALUE);
    }
    if work.starts_with("large-") {
        (records, operations, len) = (records / FEWER, OPERATIONS / FEWER, LARGE);
    }
    let options = Options::default()
        .io(IoKind::Memory)
        .durability(Durability::None)
        .pool_bytes(((records + operations) * (len + 8 + 40) * 2).max(64 << 20) as u64);
    let engine = Engine::open("in memory", options)?;
    let tree = engine.tree("bench")?;
    let mut sorted: Vec<_> = (0..records).map(key).collect();
    sorted.sort_unstable();
    let session = engine.session()?;
    for key in &sorted {
        session.insert(&tree, key, &vec![5; len])?;
    }
    engine.sync()?;
    let mut rng = Rng::new(11, 0);
    let first = if work.ends_with("insert") { records } else { 0 };
    let keys: Vec<_> = (0..operations)
        .map(|i| match first {
            0 => key((rng.next_u64() % records as u64) as usize),
            first => key(first + i),
        })
        .collect();
    operate(work, &session, &tree, &keys);
    drop((session, tree));
    Ok(engine.close()?)
}

/// The counts of a function.
struct Counted {
    instructions: u64,
    /// How often it was called.
    calls: u64,
}

/// Runs this program with these arguments and returns the counts of the functions whose names
/// contain these parts in this order.
fn count(function: &[&str], arguments: &[&str], scratch: &Path) -> Counted {
    let out = scratch.join("callgrind.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--error-exitcode=3"])
        .arg(format!("--toggle-collect=*{}*", function.join("*")))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().expect("own path"))
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .unwrap_or_else(|error| panic!("valgrind cannot be started: {error}; is it installed?"));
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {messages}");
    let profile = std::fs::read_to_string(&out).expect("callgrind wrote its profile");
    let total = profile
        .lines()
        .find_map(|line| line.strip_prefix("totals: ").or_else(|| line.strip_prefix("summary: ")));
    let instructions = total.expect("the profile has a total").trim().parse().expect("a number");
    assert!(instructions > 0, "nothing was counted in {function:?}");
    Counted { instructions, calls: calls(&profile, function) }
}

/// Calls of the functions whose names contain these parts, in a profile of callgrind. A name
/// follows its number at the first use (`cfn=(12) name`), and `calls=N` follows the callee.
fn calls(profile: &str, function: &[&str]) -> u64 {
    let (mut names, mut callee, mut calls) = (HashMap::new(), "", 0);
    for line in profile.lines() {
        if let Some(rest) = line.strip_prefix("cfn=").or_else(|| line.strip_prefix("fn=")) {
            let (number, name) = rest.split_once(' ').unwrap_or((rest, ""));
            if !name.is_empty() {
                names.insert(number, name);
            }
            if line.starts_with("cfn=") {
                callee = names.get(number).copied().unwrap_or("");
            }
        } else if let Some(rest) = line.strip_prefix("calls=")
            && !callee.starts_with("core::ptr::drop_in_place")
            && function.iter().all(|part| callee.contains(part))
        {
            let count = rest.split_whitespace().next().and_then(|count| count.parse::<u64>().ok());
            calls += count.expect("a number of calls");
        }
    }
    calls
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(WATTLE) => {
            return wattle_workloads::cli::main(std::env::args_os().skip(1));
        }
        Some(TREE) => {
            run_tree(&arguments[2], arguments[3].parse().expect("records")).expect("run");
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let records = argument("records", 100_000).to_string();
    let value = format!("value={}", argument("value", VALUE));
    let wanted = text("work", "");
    let is_wanted =
        |work: &&&str| wanted.is_empty() || wanted.split(',').any(|name| name == **work);
    let scratch = tempfile::tempdir().expect("a folder for profiles");
    println!("work, instructions for each operation");
    for work in TREE_WORK.iter().filter(is_wanted) {
        let counted =
            count(&["instructions::measured"], &[TREE, work, &records, &value], scratch.path());
        let fewer = if work.starts_with("large-") { FEWER } else { 1 };
        let operations = (OPERATIONS / fewer) as f64;
        println!("{work:<14} {:>10.1}", counted.instructions as f64 / operations);
    }
    for work in TPCC_WORK.iter().filter(is_wanted) {
        let operations = TRANSACTIONS.to_string();
        let mut arguments = vec![
            WATTLE,
            "tpcc",
            "--warehouses",
            "1",
            "--threads",
            "1",
            "--io",
            "memory",
            "--pool",
            "1GiB",
            "--durability",
            "group",
            "--warmup",
            "0s",
            "--mix",
            work,
            "--operations",
            &operations,
        ];
        if text("hints", "on") == "on" {
            arguments.extend(["--hints", "prefetch", "--delivery-queue", "on"]);
        }
        // Some transactions run before and after the measured part.
        let counted = count(&["Tpcc", "attempt"], &arguments, scratch.path());
        assert!(counted.calls >= TRANSACTIONS, "{} transactions", counted.calls);
        println!("{work:<14} {:>10.0}", counted.instructions as f64 / counted.calls as f64);
    }
    ExitCode::SUCCESS
}
