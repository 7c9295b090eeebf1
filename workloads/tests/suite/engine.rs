//! The binary on the engine: every core workload with data larger than the pool, and interrupts.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn wattle(arguments: &str, folder: &Path) -> Command {
    let arguments = arguments.replace("DIR", folder.to_str().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
    command.args(arguments.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The JSON object that a command prints, which must succeed.
fn result(arguments: &str, folder: &Path) -> Value {
    let output = wattle(arguments, folder).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_core_workload_runs_larger_than_memory_in_both_modes() {
    for (shape, crew) in [
        ("--fields 10", "--threads 2"),
        ("--fields 10", "--threads 2 --tasks 8"),
        ("--fields 10", "--threads 2 --tasks 16 --durability group"),
        ("--value-size 700 --key-size 8", "--threads 3"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        for workload in ["a", "b", "c", "d", "e", "f"] {
            let run = result(
                &format!(
                    "ycsb --db DIR/store --records 5000 --pool 1MiB --warmup 0 --operations 1200 \
                     --format json --workload {workload} {shape} {crew}"
                ),
                folder.path(),
            );
            assert_eq!(run["run"]["operations"], 1200);
            assert_eq!(run["load"]["reused"], workload != "a");
            assert!(run["buffer"]["faults"].as_u64() > Some(100), "{workload}: {run}");
            assert!(run["buffer"]["frames"].as_u64() <= Some(256));
        }
        let check = result("verify --format json DIR/store", folder.path());
        assert_eq!(check["passed"], true);
        assert!(check["records"].as_u64() >= Some(5001), "records and their description: {check}");
        let stat = result("stat --format json DIR/store", folder.path());
        let names: Vec<&str> = stat["trees"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tree| tree["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["ycsb", "ycsb-meta"]);
        assert!(stat["trees"][0]["depth"].as_u64() >= Some(2));
    }
}

/// The evictors of the second phase draw new frames in each round. When they drew the same ones
/// again and again, which they had freed, each eviction took dozens of candidates, and more in a
/// larger pool.
#[test]
fn an_evict_phase_looks_at_few_frames_for_each_eviction() {
    let folder = tempfile::tempdir().unwrap();
    for (policy, evictors) in [("random", 1), ("watt", 2)] {
        let phase = result(
            &format!(
                "evict-phase --threads {evictors} --share 60 ycsb --io memory --records 150000 \
                 --key-size 8 --value-size 120 --pool 64MiB --workload c --durability none \
                 --warmup 200ms --duration 20s --policy {policy}"
            ),
            folder.path(),
        );
        let of = |name: &str| phase[name].as_u64().unwrap();
        assert!(of("evictions") * 2 > of("used_frames"), "{phase}");
        // A sixth of the frames still has a page at the end. WATT passes over those above its
        // threshold.
        let most = if policy == "random" { 8 } else { 40 };
        assert!(of("candidates") < most * of("evictions"), "{phase}");
    }
}

#[test]
fn a_run_in_memory_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut command =
        wattle("ycsb --io memory --records 2000 --operations 5000 --warmup 0", folder.path());
    let output = command.env("TMPDIR", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("5,000 operations") && text.contains("durability=group"));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

/// Waits for the first row of samples, which appears after a second of the measured part.
fn wait_for_a_sample(folder: &Path) {
    let (start, samples) = (Instant::now(), folder.join("samples.csv"));
    while std::fs::read_to_string(&samples).map_or(0, |text| text.lines().count()) < 2 {
        assert!(start.elapsed() < Duration::from_secs(30), "the run has not begun");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn ctrl_c_ends_a_run_with_its_results_and_a_closed_store() {
    let folder = tempfile::tempdir().unwrap();
    let run = "ycsb --db DIR/store --records 2000 --duration 60s --warmup 0 --workload d \
               --samples DIR/samples.csv --format json";
    let child = wattle(run, folder.path()).spawn().unwrap();
    let start = Instant::now();
    wait_for_a_sample(folder.path());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(start.elapsed() < Duration::from_secs(50), "the run did not end early");
    let run: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(run["run"]["interrupted"], true);
    assert!(run["run"]["operations"].as_u64() > Some(100));
    assert_eq!(result("verify --format json DIR/store", folder.path())["passed"], true);
    let again = "ycsb --db DIR/store --records 2000 --operations 100 --warmup 0 --format json";
    assert_eq!(result(again, folder.path())["load"]["reused"], true);
}

#[test]
fn a_second_interrupt_ends_the_process_at_once_without_its_temporary_store() {
    // Closing the store, after the first one, takes longer than the second one waits: mostly.
    let again = (0..5).any(|_| {
        let folder = tempfile::tempdir().unwrap();
        let temporary = folder.path().join("temporary");
        std::fs::create_dir(&temporary).unwrap();
        let run = "ycsb --records 60000 --duration 60s --warmup 0 --samples DIR/samples.csv";
        let child = wattle(run, folder.path()).env("TMPDIR", &temporary).spawn().unwrap();
        wait_for_a_sample(folder.path());
        assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 1, "the store is elsewhere");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        std::thread::sleep(Duration::from_millis(105));
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "the store was not removed");
        String::from_utf8_lossy(&output.stderr).contains("interrupted again")
    });
    assert!(again, "no second interrupt was one");
}

/// As `timeout` sends them: one to the process and one to its group.
#[test]
fn two_signals_at_once_are_one_interrupt() {
    for round in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let run = "ycsb --records 2000 --duration 60s --warmup 0 --samples DIR/samples.csv \
                   --format json";
        let child = wattle(run, folder.path()).spawn().unwrap();
        wait_for_a_sample(folder.path());
        // Two signals of one kind, one right after the other, could arrive as one.
        for signal in [Signal::INT, Signal::TERM] {
            kill_process(Pid::from_child(&child), signal).unwrap();
            std::thread::sleep(Duration::from_millis(10 * round));
        }
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{error}");
        assert!(!error.contains("interrupted again"), "{error}");
        let run: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(run["run"]["interrupted"], true);
    }
}

#[test]
fn probe_measures_and_draws() {
    let folder = tempfile::tempdir().unwrap();
    let probe = result(
        "probe DIR --size 4MiB --duration 50ms --depths 4,1 --format json --report DIR/probe.html",
        folder.path(),
    );
    assert_eq!(probe["reads"][0]["depth"], 1);
    assert!(probe["writes"][1]["iops"].as_f64() > Some(0.0) && probe["k_w"].as_u64() >= Some(1));
    let page = std::fs::read_to_string(folder.path().join("probe.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 2);
}
