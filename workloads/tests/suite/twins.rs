//! Each policy of the engine against itself in the simulator: the engine records the page accesses
//! of a run with a pool of a quarter of the data, and the same policy replays them over simulated
//! frames. Reads of the engine and misses of the simulator must agree within 3 %.
//!
//! The run has one thread and one evictor, nine reads for each update, and begins with an empty
//! pool. The engine keeps some frames free: the simulated cache has those frames fewer. A page that
//! changes while it is being written stays in the engine. With many updates `random`, which asks
//! for nothing else, therefore reads less than its twin misses: 4 % with three updates of ten.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use wattle_workloads::simulate::registry::Spec;
use wattle_workloads::simulate::replay::Device;
use wattle_workloads::simulate::trace::Trace;

/// The result of a run of the binary, which must succeed.
fn run(arguments: &str, folder: &Path) -> Value {
    let arguments = arguments.replace("DIR", folder.to_str().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
    let output = command.args(arguments.split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The accesses of leaves in a trace, and the number of other pages: each operation begins at the
/// root and ends at its leaf. The engine reports uses of leaves to its policy, and an inner page
/// does not leave while a child of it is in memory.
fn leaves(trace: &Trace) -> (Trace, usize) {
    let accesses: Vec<(u64, bool)> =
        trace.accesses().map(|access| (trace.id(access.page), access.write)).collect();
    let root = accesses[0].0;
    let ends = |at: &usize| accesses.get(at + 1).is_none_or(|(next, _)| *next == root);
    let (mut last, others): (Vec<usize>, Vec<usize>) = (0..accesses.len()).partition(ends);
    let inner: HashSet<u64> = others.iter().map(|at| accesses[*at].0).collect();
    // An operation that begins again on its way ends at an inner page.
    last.retain(|at| !inner.contains(&accesses[*at].0));
    assert!(inner.len() * 20 < last.len(), "{} inner pages", inner.len());
    (Trace::of("leaves", last.into_iter().map(|at| accesses[at])), inner.len())
}

#[test]
fn every_policy_reads_as_often_as_its_twin_in_the_simulator_misses() {
    let folder = tempfile::tempdir().unwrap();
    let data = "ycsb --db DIR/store --records 30000 --value-size 1000 --pool 8MiB --warmup 0 \
                --threads 1 --evictors 1 --durability none --warm-start off --format json";
    run(&format!("{data} --workload c --operations 10"), folder.path());
    let mut wrong = Vec::new();
    for info in wattle::policies() {
        let name = info.name;
        // The store is opened again, so that its pool is as empty as the simulated cache.
        let result = run(
            &format!(
                "{data} --read 0.9 --update 0.1 --operations 30000 --policy {name} \
                 --record-trace DIR/t.csv"
            ),
            folder.path(),
        );
        let (leaves, inner) = leaves(&Trace::read(&folder.path().join("t.csv")).unwrap());
        let frames = result["buffer"]["frames"].as_u64().unwrap() as usize;
        let read = result["buffer"]["pages_read"].as_u64().unwrap() as f64;
        // Below low water the engine evicts. Inner pages stay, and are read once.
        let cached = frames - (frames / 128).max(4) - inner;
        let missed = |text: &str| {
            let spec = Spec::parse(text).unwrap();
            let counts = spec.run(&leaves, cached, 1, Device::default(), |_| true);
            (counts.unwrap().misses + inner as u64) as f64
        };
        let twin = missed(&format!("live({name})"));
        let ratio = read / twin;
        println!("{name:<11} engine {read}, twin {twin}, ratio {ratio:.4}");
        if !(0.97..=1.03).contains(&ratio) {
            wrong.push((name, ratio));
        }
    }
    assert!(wrong.is_empty(), "reads of the engine per miss of its twin: {wrong:?}");
}
