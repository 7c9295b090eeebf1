//! `--record-trace` of the binary: a recorded trace replays like the engine ran, and files that
//! cannot be written end the run.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use wattle_workloads::simulate::kinds::Kind;
use wattle_workloads::simulate::trace::Trace;

fn wattle(arguments: &str, folder: &Path) -> Output {
    let arguments = arguments.replace("DIR", folder.to_str().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
    command.args(arguments.split_whitespace()).output().unwrap()
}

/// The output of a command, which must succeed.
fn printed(arguments: &str, folder: &Path) -> String {
    let output = wattle(arguments, folder);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn result(arguments: &str, folder: &Path) -> Value {
    serde_json::from_str(&printed(&format!("{arguments} --format json"), folder)).unwrap()
}

/// Misses of each policy on the recorded trace with a cache of `pages`.
fn misses(trace: &str, pages: u64, policies: &[&str], folder: &Path) -> Vec<u64> {
    let policies: Vec<String> = policies.iter().map(|name| format!("--policy {name}")).collect();
    let arguments =
        format!("simulate --trace DIR/{trace} --cache {pages} {} --format csv", policies.join(" "));
    let text = printed(&arguments, folder);
    // Policies with parameters are in quotes, because of the commas between these.
    let misses = |line: &str| {
        let after = line.rsplit_once('"').map_or_else(
            || line.splitn(4, ',').nth(3).unwrap(),
            |(_, rest)| rest.trim_start_matches(','),
        );
        after.split(',').nth(1).unwrap().parse().unwrap()
    };
    text.lines().skip(1).map(misses).collect()
}

#[test]
fn a_recorded_trace_misses_as_often_as_the_engine_did() {
    let folder = tempfile::tempdir().unwrap();
    // How commits become durable changes no access.
    let data = "ycsb --db DIR/store --records 20000 --pool 4MiB --warmup 0 --threads 2 \
                --durability group";
    result(&format!("{data} --workload c --operations 10"), folder.path());
    for (workload, trace) in [("a", "a.csv.zst"), ("wis", "wis.csv"), ("c", "c.csv.zst")] {
        // The store is opened again, so that its pool is as empty as the simulated cache.
        let run = result(
            &format!("{data} --workload {workload} --operations 80000 --record-trace DIR/{trace}"),
            folder.path(),
        );
        let recorded = Trace::read(&folder.path().join(trace)).unwrap();
        assert_eq!(run["run"]["trace_accesses"], recorded.len());
        // Each operation visits a root, inner pages and a leaf: the tree has three levels.
        assert!(recorded.len() >= 3 * 80_000, "{workload}: {} accesses", recorded.len());
        assert!(recorded.len() < 3 * 80_000 + 20_000, "{workload}: {} accesses", recorded.len());
        let updates = run["run"]["latency_us"]["update"]["count"].as_u64().unwrap_or(0);
        let writes = recorded.writes() as u64;
        // An update that met the change of another thread on its way may begin again.
        let most = updates + 100 + updates / 50;
        assert!((updates..=most).contains(&writes), "{workload}: {writes} of {updates}");

        let read = run["buffer"]["pages_read"].as_f64().unwrap();
        let frames = run["buffer"]["frames"].as_u64().unwrap();
        let found = misses(trace, frames, &["watt", "lru", "opt"], folder.path());
        let [watt, lru, opt] = found[..] else { panic!("{found:?}") };
        println!("{workload}: engine {read}, watt {watt}, lru {lru}, opt {opt}");
        // The engine keeps some frames free, evicts ahead and in batches, and its frames of inner
        // pages are not free to go: with a pool this small it reads up to 1.45 times as often as
        // the simulated WATT where the hot pages nearly fill the pool (wis), 1.04 times in workload
        // a.
        let (low, high) = (watt as f64 * 0.9, watt as f64 * 1.7);
        assert!((low..high).contains(&read), "{workload}: engine {read}, simulated {watt}");
        assert!(opt <= watt.min(lru) && opt as f64 <= read, "{workload}: {found:?} and {read}");
    }
}

#[test]
fn tpcc_with_a_pool_of_a_fifth_reads_as_often_as_the_same_policy_in_the_simulator() {
    let folder = tempfile::tempdir().unwrap();
    let data = "tpcc --db DIR/store --warehouses 1 --pool 17MiB --warmup 0 --threads 2 \
                --durability none";
    let load = result(&format!("{data} --operations 10"), folder.path());
    // The store is opened again, so that its pool is as empty as the simulated cache.
    let run =
        result(&format!("{data} --operations 8000 --record-trace DIR/t.csv.zst"), folder.path());
    let frames = run["buffer"]["frames"].as_u64().unwrap();
    let share = frames as f64 * 4096.0 / load["load"]["file_bytes"].as_f64().unwrap();
    assert!((0.15..0.25).contains(&share), "the pool is {share} of the data");
    // The engine evicts in batches and measures ages without the running epoch.
    let policies = ["watt:evict=listing,age=plain", "watt", "random", "opt"];
    let [same, watt, random, opt] = misses("t.csv.zst", frames, &policies, folder.path())[..]
    else {
        panic!("four policies have four results")
    };
    let read = run["buffer"]["pages_read"].as_f64().unwrap();
    println!("engine {read}, the same {same}, watt {watt}, random {random}, opt {opt}");
    // Pages that grow the trees come into memory without a read, and some frames are kept free.
    assert!((0.85..1.15).contains(&(read / same as f64)), "engine {read}, simulated {same}");
    assert!(read < random as f64 && opt < same, "{read} {random} {opt} {same}");
}

#[test]
fn tasks_scans_and_inserts_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    for (workload, crew) in [("e", "--threads 2 --tasks 8"), ("d", "--threads 2 --tasks 8")] {
        let run = result(
            &format!(
                "ycsb --records 5000 --pool 1MiB --warmup 100ms --operations 4000 {crew} \
                 --workload {workload} --record-trace DIR/t.csv.zst"
            ),
            folder.path(),
        );
        let recorded = Trace::read(&folder.path().join("t.csv.zst")).unwrap();
        assert_eq!(run["run"]["trace_accesses"], recorded.len());
        assert!(recorded.len() > 8000 && recorded.writes() > 100, "{}", recorded.len());
        // Every operation begins at the root of the only tree, and most pages are leaves.
        let kinds = recorded.kinds().expect("the trace has places");
        let roots: Vec<usize> =
            (0..kinds.len()).filter(|page| kinds[*page] == Kind::Root).collect();
        let leaves = kinds.len() - roots.len();
        assert!(!kinds.contains(&Kind::Other) && roots.len() == 1 && leaves > 100, "{roots:?}");
        let first = recorded.accesses().next().unwrap();
        assert_eq!(first.page.0 as usize, roots[0]);
    }
    let text = printed(
        "ycsb --io memory --records 500 --warmup 0 --operations 500 --threads 1 \
         --record-trace DIR/memory.csv",
        folder.path(),
    );
    assert!(text.contains("page accesses"), "{text}");
}

#[test]
fn a_trace_that_cannot_be_written_ends_the_run_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |trace: &str, code: i32, parts: &[&str]| {
        let run = format!(
            "ycsb --db DIR/store --records 1000 --duration 60s --warmup 0 --record-trace {trace}"
        );
        let output = wattle(&run, folder.path());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{error}");
        let last = error.lines().last().unwrap();
        assert!(last.starts_with("error: "), "{error}");
        for part in parts {
            assert!(last.contains(part), "{part} is not in: {error}");
        }
    };
    refused("DIR/none/t.csv", 2, &["--record-trace", "none/t.csv", "cannot be created"]);
    refused("DIR", 2, &["--record-trace", "cannot be created", "directory"]);
    if Path::new("/dev/full").exists() {
        refused("/dev/full", 1, &["writing the page trace /dev/full", "No space left"]);
    }
    // The store was closed in order.
    let again = "ycsb --db DIR/store --records 1000 --operations 100 --warmup 0";
    assert_eq!(result(again, folder.path())["load"]["reused"], true);
}
