//! Each tuned figure of the log's threads, on against off, on the workload that it was made for.
//!
//! `cargo bench -p wattle-benches --bench log_policy -- [rule=NAME] [rounds=5] [seconds=10]
//! [dir=PATH]`
//!
//! | rule | off | workload |
//! |---|---|---|
//! | `busy-delay` | `busy_delay_us=0` | TPC-C in memory, as many threads as cores, `group` |
//! | `unwaited-factor` | `unwaited_factor=1` | the same |
//! | `reserve-zeroes` | `reserve_zeroes=false` | the same |
//! | `group-wait` | `group_wait_us=0` | YCSB A, 64 threads, `sync` |
//! | `least-delay` | `least_delay_us=0` | YCSB A, 1 thread, `group`, on tmpfs |
//!
//! Each run is a process of its own with a new store, as `wattle` runs it. Runs alternate: off, on,
//! off, on. A line has, off and on, the medians of the throughput, of the processor time of the
//! process for each operation, and of the commits for each sync; then the median, least and largest
//! ratio of the throughputs of the pairs, and the processor time that the host took away. On a busy
//! machine only processor time and commits for each sync mean something.

use std::{
    ffi::OsString,
    path::Path,
    process::{Command, ExitCode},
};
use wattle_benches::{argument, directory, median, stolen, text};

/// First argument of a process that is a run.
const RUN: &str = "wattle";
const TPCC: &str = "tpcc --warehouses 2 --pool 1GiB --durability group";
const SYNC: &str = "ycsb --workload a --records 200000 --threads 64 --durability sync";
const GROUP: &str = "ycsb --workload a --records 200000 --threads 1 --durability group";

/// A figure, switched off and on, and a workload.
struct Rule {
    name: &'static str,
    off: &'static str,
    on: &'static str,
    workload: &'static str,
}

const fn rule(
    name: &'static str,
    off: &'static str,
    on: &'static str,
    workload: &'static str,
) -> Rule {
    Rule { name, off, on, workload }
}

const RULES: [Rule; 5] = [
    rule("busy-delay", "busy_delay_us=0", "busy_delay_us=2000", TPCC),
    rule("unwaited-factor", "unwaited_factor=1", "unwaited_factor=5", TPCC),
    rule("reserve-zeroes", "reserve_zeroes=false", "reserve_zeroes=true", TPCC),
    rule("group-wait", "group_wait_us=0", "group_wait_us=200", SYNC),
    rule("least-delay", "least_delay_us=0", "least_delay_us=150", GROUP),
];

/// The figures of a run.
struct Outcome {
    throughput: f64,
    cpu_us_per_operation: f64,
    commits_per_sync: f64,
}

/// Runs the workload of a rule with this policy of the log.
fn run(rule: &Rule, policy: &str, seconds: usize, dir: &Path) -> Outcome {
    let folder = tempfile::tempdir_in(dir).expect("a folder for the store");
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.arg(RUN).args(rule.workload.split(' '));
    command.args(["--format", "json", "--io", "threads", "--log-policy", policy]);
    command.args(["--duration", &format!("{seconds}s"), "--db"]).arg(folder.path());
    let output = command.output().expect("run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {policy}: {error}", rule.workload);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    let number = |part: &str, name: &str| {
        report[part][name].as_f64().unwrap_or_else(|| panic!("there is no {part}.{name}"))
    };
    let cpu_seconds = number("process", "user_seconds") + number("process", "system_seconds");
    Outcome {
        throughput: number("run", "throughput"),
        cpu_us_per_operation: cpu_seconds * 1e6 / number("run", "operations"),
        commits_per_sync: number("log", "commits") / number("log", "syncs").max(1.0),
    }
}

fn compare(rule: &Rule, rounds: usize, seconds: usize, dir: &Path) {
    let before = stolen();
    let (mut off, mut on) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        off.push(run(rule, rule.off, seconds, dir));
        on.push(run(rule, rule.on, seconds, dir));
    }
    let pairs = on.iter().zip(&off);
    let ratios: Vec<f64> = pairs.map(|(on, off)| on.throughput / off.throughput).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = ratios.iter().copied().fold(0.0, f64::max);
    let medians = |of: fn(&Outcome) -> f64| {
        [&off, &on].map(|runs| median(runs.iter().map(of).collect::<Vec<f64>>()))
    };
    let [off_speed, on_speed] = medians(|run| run.throughput);
    let [off_cpu, on_cpu] = medians(|run| run.cpu_us_per_operation);
    let [off_group, on_group] = medians(|run| run.commits_per_sync);
    println!(
        "| {} | {off_speed:.0}, {on_speed:.0} | {off_cpu:.2}, {on_cpu:.2} | \
         {off_group:.1}, {on_group:.1} | {:.3} | {least:.3} to {largest:.3} | {:.1} s |",
        rule.name,
        median(ratios),
        stolen() - before,
    );
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|first| first == RUN) {
        return wattle_workloads::cli::main(arguments);
    }
    let (rounds, seconds) = (argument("rounds", 5), argument("seconds", 10));
    let (dir, only) = (directory("."), text("rule", "all"));
    println!(
        "| rule, off and on | 1/s | us of processors | commits / sync | ratio | range | stolen |"
    );
    println!("|---|---|---|---|---|---|---|");
    for rule in RULES.iter().filter(|rule| only == "all" || only == rule.name) {
        compare(rule, rounds, seconds, &dir);
    }
    ExitCode::SUCCESS
}
