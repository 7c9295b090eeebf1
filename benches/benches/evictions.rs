//! The cost of an eviction for each policy of the simulator: instructions and processor time of the
//! events of a miss (`miss`, `select`, `fetch`). The limit compares watt2 with WATT.
//!
//! `cargo bench -p wattle-benches --bench evictions -- callgrind`
//!
//! counts instructions inside of the policy alone, with valgrind. Without the word, rounds of whole
//! replays alternate and the processor time is compared: for each miss, or with `per=access` for
//! each access. `trace=` names a trace file or a generated trace, `pages=` the sizes of the cache,
//! `policies=` a `;`-separated list; the others are compared with its first one.

use std::path::Path;
use std::process::Command;

use wattle_benches::{argument, median, text};
use wattle_workloads::simulate::generate;
use wattle_workloads::simulate::registry::Spec;
use wattle_workloads::simulate::replay::{Device, Replay};
use wattle_workloads::simulate::trace::Trace;

fn trace() -> Trace {
    let name = text("trace", "gen:two-level-80-20:pages=100000,accesses=1000000");
    match name.strip_prefix("gen:") {
        Some(generated) => generate::parse(generated).expect("a generated trace"),
        None => Trace::read(Path::new(&name)).expect("a trace"),
    }
}

fn policies() -> Vec<String> {
    text("policies", "watt;watt2").split(';').map(str::to_owned).collect()
}

fn sizes() -> Vec<usize> {
    let sizes = text("pages", "1000;10000;50000");
    sizes.split(';').map(|pages| pages.parse().expect("a number of pages")).collect()
}

/// Replays all and returns the misses. The clock of `replay` is left out, because valgrind does not
/// know the call that it makes.
fn replay(policy: &str, trace: &Trace, pages: usize) -> u64 {
    let spec = Spec::parse(policy).expect("a policy");
    let mut policy = spec.build(trace, pages, 1, Device::default());
    let mut replay = Replay::new(trace, pages, &mut *policy);
    trace.accesses().for_each(|access| replay.access(access));
    replay.finish().misses
}

/// Instructions of the policy's own events of a miss.
fn count(policy: &str, pages: usize) -> f64 {
    let program = std::env::current_exe().expect("own path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(
            ["miss", "select", "fetch"].map(|event| format!("--toggle-collect=*Policy>::{event}*")),
        )
        .arg(program)
        .args([format!(
            "trace={}",
            text("trace", "gen:two-level-80-20:pages=100000,accesses=1000000")
        )])
        .args([format!("one={policy}"), format!("pages={pages}")])
        .output()
        .expect("valgrind runs");
    let (said, misses) =
        (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    let total = said
        .lines()
        .find_map(|line| line.split("Collected :").nth(1)?.trim().parse::<f64>().ok())
        .unwrap_or_else(|| panic!("no count in the output of valgrind:\n{said}"));
    total / misses.trim().parse::<f64>().expect("the number of misses")
}

/// Processor time of this thread, in nanoseconds.
fn cpu_ns() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn main() {
    let (one, policies) = (text("one", ""), policies());
    if !one.is_empty() {
        println!("{}", replay(&one, &trace(), sizes()[0]));
        return;
    }
    let instructions = std::env::args().any(|argument| argument == "callgrind");
    let trace = trace();
    let accesses = match text("per", "miss").as_str() {
        "miss" => None,
        "access" if !instructions => Some(trace.accesses().len() as u64),
        other => panic!("per={other}: known are miss, and access for times"),
    };
    for pages in sizes() {
        let costs: Vec<f64> = if instructions {
            policies.iter().map(|policy| count(policy, pages)).collect()
        } else {
            let mut times = vec![Vec::new(); policies.len()];
            for _ in 0..argument("rounds", 5) {
                for (policy, times) in policies.iter().zip(&mut times) {
                    let started = cpu_ns();
                    let misses = replay(policy, &trace, pages);
                    let events = accesses.unwrap_or(misses);
                    times.push((cpu_ns() - started) / events as f64);
                }
            }
            times.into_iter().map(median).collect()
        };
        for (policy, cost) in policies.iter().zip(&costs) {
            let unit = if instructions { "instructions" } else { "ns" };
            let event = if accesses.is_some() { "access" } else { "miss" };
            println!(
                "{pages} pages, {policy}: {cost:.0} {unit} for each {event}, {:.2} x {}",
                cost / costs[0],
                policies[0]
            );
        }
    }
}
