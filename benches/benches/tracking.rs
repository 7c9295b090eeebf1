//! The cost of WATT's tracking for a resident look-up, in instructions: the same look-ups with
//! `watt` and with `random`, which tracks nothing. Counted by callgrind:
//!
//! `cargo bench -p wattle-benches --bench tracking -- callgrind`
//!
//! Without valgrind, or without the word `callgrind`, it only performs the look-ups.

use std::{hint::black_box, process::Command};
use wattle::{Engine, IoKind, Options, Session, Tree};
use wattle_benches::text;
use wattle_workloads::{key::fnv1a, rng::Rng, zipf::Zipfian};

const RECORDS: u64 = 50_000;
const LOOKUPS: u64 = 200_000;

/// One YCSB C operation after the other: choose a key, read its value, look at it.
#[inline(never)]
fn measured_lookups(session: &Session, tree: &Tree, zipf: &Zipfian, rng: &mut Rng) {
    for _ in 0..LOOKUPS {
        let key = fnv1a(fnv1a(zipf.next(rng)) % RECORDS).to_be_bytes();
        let sum = session.get_with(tree, &key, |value| value[0]).expect("get").expect("found");
        black_box(sum);
    }
}

fn run(policy: &str) {
    let options =
        Options::default().log(false).io(IoKind::Memory).pool_bytes(64 << 20).policy(policy);
    let engine = Engine::open("in memory", options).expect("open");
    let tree = engine.tree("bench").expect("tree");
    let session = engine.session().expect("session");
    for i in 0..RECORDS {
        session.insert(&tree, &fnv1a(i).to_be_bytes(), &[i as u8; 120]).expect("insert");
    }
    measured_lookups(&session, &tree, &Zipfian::new(RECORDS, 0.99), &mut Rng::new(1, 1));
}

/// Instructions of one look-up under a policy.
fn count(policy: &str) -> f64 {
    let program = std::env::current_exe().expect("own path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*measured_lookups*")
        .arg(program)
        .arg(format!("policy={policy}"))
        .output()
        .expect("valgrind runs");
    let text = String::from_utf8_lossy(&output.stderr);
    let total = text
        .lines()
        .find_map(|line| line.split("Collected :").nth(1)?.trim().parse::<f64>().ok())
        .unwrap_or_else(|| panic!("no count in the output of valgrind:\n{text}"));
    total / LOOKUPS as f64
}

fn main() {
    if std::env::args().any(|argument| argument == "callgrind") {
        let (watt, random) = (count("watt"), count("random"));
        println!(
            "instructions per look-up: watt {watt:.1}, random {random:.1}: tracking is {:.2} %",
            100.0 * (watt / random - 1.0)
        );
    } else {
        run(&text("policy", "watt"));
    }
}
