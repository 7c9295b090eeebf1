//! Micro-benchmarks of the parts that decide the cost of an operation. Each is one group:
//!
//! ```text
//! cargo bench -p wattle-benches --bench micro                    # all groups, some three minutes
//! cargo bench -p wattle-benches --bench micro -- node            # one group
//! cargo bench -p wattle-benches --bench micro -- --quick         # less exact, half a minute
//! ```
//!
//! Groups: `node` (search in one node), `latch`, `watt` (page values), `append` (log records),
//! `descent` (look-ups in a tree in memory) and `commit`.

use criterion::Criterion;
use std::time::Duration;

mod engine;
mod latch;
mod log;
mod node;
mod watt;

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    node::benches(&mut criterion);
    latch::benches(&mut criterion);
    watt::benches(&mut criterion);
    log::benches(&mut criterion);
    engine::benches(&mut criterion);
    criterion.final_summary();
}
