//! Helpers for the tests of the policies.

use crate::rng::Rng;
use crate::simulate::policy::Access;
use crate::simulate::pool::Page;
use crate::simulate::registry::Spec;
use crate::simulate::replay::{Counts, Device, Replay, replay};
use crate::simulate::trace::Trace;

/// A trace of 6,000 accesses to 200 pages with skew, a scan, a loop and writes.
pub fn mixed(seed: u64) -> Trace {
    let mut rng = Rng::new(seed, 77);
    let mut cursor = 0;
    let accesses = (0..6000u64).map(move |now| {
        let page = match (now / 500) % 3 {
            0 => (rng.unit().powi(3) * 100.0) as u64,
            1 => {
                cursor = (cursor + 1) % 60;
                100 + cursor
            }
            _ => rng.below(200),
        };
        (page, rng.below(4) == 0)
    });
    Trace::of("mixed", accesses)
}

/// Counts of a policy on a trace.
pub fn replayed(text: &str, capacity: usize, trace: &Trace) -> Counts {
    let spec = Spec::parse(text).unwrap();
    let mut policy = spec.build(trace, capacity, 1, Device::default());
    replay(trace, capacity, &mut *policy, |_| true).unwrap()
}

/// Misses and writes of a policy on a trace.
pub fn run(text: &str, capacity: usize, trace: &Trace) -> (u64, u64) {
    let counts = replayed(text, capacity, trace);
    (counts.misses, counts.all_writes())
}

/// The page ids that miss, when all are read.
pub fn misses_of(text: &str, capacity: usize, ids: &[u64]) -> Vec<u64> {
    steps(text, capacity, &ids.iter().map(|id| (*id, false)).collect::<Vec<_>>()).0
}

/// Page ids that miss, and page ids that leave, in this order, for accesses `(id, write)`.
pub fn steps(text: &str, capacity: usize, accesses: &[(u64, bool)]) -> (Vec<u64>, Vec<u64>) {
    let trace = Trace::of("steps", accesses.iter().copied());
    let spec = Spec::parse(text).unwrap();
    let mut policy = spec.build(&trace, capacity, 1, Device::default());
    let mut replay = Replay::new(&trace, capacity, &mut *policy);
    let (mut missed, mut left) = (Vec::new(), Vec::new());
    for (access, (id, _)) in trace.accesses().zip(accesses) {
        let Access { page, .. } = access;
        if !replay.pool.holds(page) {
            missed.push(*id);
        }
        let before: Vec<Page> = replay.pool.pages().collect();
        replay.access(access);
        left.extend(
            before.iter().filter(|page| !replay.pool.holds(**page)).map(|page| trace.id(*page)),
        );
    }
    (missed, left)
}
