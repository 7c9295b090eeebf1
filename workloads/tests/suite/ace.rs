//! ACE around every policy on recorded runs of TPC-C: it writes hardly more pages (the paper: at
//! most 0.17 %), and the device is busy for less time (ACE, Figure 10).
//!
//! The writes are those of four recordings, each with a seed of its own: of a single one they
//! scatter by 0.5 %, also where the policy draws no random numbers.

use super::recorded;
use wattle_workloads::simulate::ace;
use wattle_workloads::simulate::policies::ALL;
use wattle_workloads::simulate::registry::Spec;
use wattle_workloads::simulate::replay::{Counts, Device};
use wattle_workloads::simulate::trace::Trace;

#[test]
fn ace_writes_at_most_2_percent_more_and_is_1_5_times_as_fast_for_every_policy() {
    let recorded: Vec<Trace> = (1..=3).map(|_| recorded::record(4_000)).collect();
    let traces: Vec<&Trace> = recorded.iter().chain([recorded::tpcc()]).collect();
    // FOR looks at all cached pages at each miss: a tenth of a trace is enough.
    let tenth = |trace: &&Trace| {
        let accesses = trace.accesses().take(trace.len() / 10);
        Trace::of("part", accesses.map(|access| (trace.id(access.page), access.write)))
    };
    let parts: Vec<Trace> = traces.iter().map(tenth).collect();
    let parts: Vec<&Trace> = parts.iter().collect();
    let device = Device { asymmetry: 2.8, concurrency: 8, ..Device::default() };
    // Pages written and seconds of the device.
    let run = |text: &str, traces: &[&Trace]| -> (f64, f64) {
        let spec = Spec::parse(text).unwrap();
        let counts = traces.iter().zip(1..).map(|(trace, seed)| -> Counts {
            spec.run(trace, trace.pages() / 10, seed, device, |_| true).unwrap()
        });
        counts.fold((0.0, 0.0), |(writes, seconds), counts| {
            (writes + counts.all_writes() as f64, seconds + counts.device_seconds(&device))
        })
    };
    let live = wattle::policies().iter().map(|info| format!("live({})", info.name));
    let names = ALL.iter().map(|entry| entry.name.to_owned()).chain(live);
    let mut wrong = Vec::new();
    for name in names {
        let traces = if name == "for" { &parts } else { &traces };
        let (plain_writes, plain_seconds) = run(&name, traces);
        let (writes, seconds) = run(&format!("ace({name}):nw=8"), traces);
        let (writes, faster) = (writes / plain_writes, plain_seconds / seconds);
        let limit = ace::limit(&name);
        println!(
            "{name:<18} writes {:+6.2} %, {faster:.2} x {}",
            100.0 * (writes - 1.0),
            limit.unwrap_or("")
        );
        // A policy of the engine evicts batches, which count as single writes without ACE.
        if writes > 1.02 || (faster < 1.5) != limit.is_some() {
            wrong.push(format!("{name}: writes {writes:.4}, {faster:.2} x"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
