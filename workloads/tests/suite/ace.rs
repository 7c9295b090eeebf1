//! ACE around every policy on a recorded run of TPC-C: it writes hardly more pages (the paper: at
//! most 0.17 %), and the device is busy for less time (ACE, Figure 10).

use super::recorded;
use wattle_workloads::simulate::ace;
use wattle_workloads::simulate::policies::ALL;
use wattle_workloads::simulate::registry::Spec;
use wattle_workloads::simulate::replay::{Counts, Device};
use wattle_workloads::simulate::trace::Trace;

#[test]
fn ace_writes_at_most_2_percent_more_and_is_1_5_times_as_fast_for_every_policy() {
    let trace = recorded::tpcc();
    let cache = trace.pages() / 10;
    let device = Device { asymmetry: 2.8, concurrency: 8, ..Device::default() };
    let run = |text: &str, trace: &Trace, cache: usize| -> Counts {
        Spec::parse(text).unwrap().run(trace, cache, 1, device, |_| true).unwrap()
    };
    let live = wattle::policies().iter().map(|info| format!("live({})", info.name));
    let names = ALL.iter().map(|entry| entry.name.to_owned()).chain(live);
    // FOR looks at all cached pages at each miss: a tenth of the trace is enough.
    let part = Trace::of(
        "part",
        trace.accesses().take(trace.len() / 10).map(|access| (trace.id(access.page), access.write)),
    );
    let mut wrong = Vec::new();
    for name in names {
        let (trace, cache) = match &*name {
            "for" => (&part, part.pages() / 10),
            _ => (trace, cache),
        };
        let plain = run(&name, trace, cache);
        let with = run(&format!("ace({name}):nw=8"), trace, cache);
        let writes = with.all_writes() as f64 / plain.all_writes() as f64;
        let faster = plain.device_seconds(&device) / with.device_seconds(&device);
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
