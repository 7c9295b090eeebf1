//! The least cost that any policy can have when writes cost something: bounds, because the optimum
//! itself is NP-complete (Beckmann, Gibbons, Haeupler, McGuffey, "Writeback-aware caching", APOCS
//! 2020).
//!
//! Between two consecutive uses of a page, the page is either kept, which saves a read, or not.
//! Between two consecutive writes of a page, it is written to the device exactly if it was not kept
//! all the time; the last write of each page costs a write in any case. So
//!
//! cost = read x (pages + gaps between uses that are not kept)
//!      + write x (written pages + gaps between writes in which something is not kept),
//!
//! and kept are at most C - 1 pages at each use of another one. Two relaxations:
//!
//! - `simple`, for any trace: the misses of OPT and, separately, the fewest writes: gaps between
//!   writes as solid intervals, of which the one that ends last is dropped if there are too many,
//!   which is the optimum for intervals of equal worth.
//! - `by_flow`, for small traces: the worth of keeping a page between two writes is divided among
//!   the gaps between uses inside. Any division gives a bound, since a part that is kept then
//!   counts although the whole is not. The remaining problem is a choice of intervals of unequal
//!   worth, which is a flow of least cost (C - 1 units along the trace; each gap an edge past the
//!   uses inside). The shares are moved towards the gaps that were not kept, and the best bound is
//!   taken. The kept gaps are a valid plan, so its cost is an upper bound: if both bounds are
//!   equal, they are the optimum.

mod flow;

use std::collections::BinaryHeap;

use super::policy::Access;
use super::registry::Spec;
use super::replay::{Device, replay};
use super::trace::{NEVER, Trace};
use flow::Flow;

/// Largest product of accesses and frames for which flows are computed: a few seconds.
pub const MOST_FLOW: usize = 4_000_000;

/// How often the shares are moved.
const ROUNDS: i64 = 12;

/// Bounds of the least cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// No policy has a lower cost, in microseconds.
    pub lower: f64,
    /// The cost of a plan that knows the future, if one was computed.
    pub feasible: Option<f64>,
}

/// Bounds of the cost of `trace` with a cache of `capacity` pages: by flows if that takes only
/// seconds, otherwise the simple one.
pub fn bound(trace: &Trace, capacity: usize, device: &Device) -> Bound {
    let lower = simple(trace, capacity, device);
    if trace.len().saturating_mul(capacity) > MOST_FLOW {
        return Bound { lower, feasible: None };
    }
    let by_flow = by_flow(trace, capacity, device);
    Bound { lower: by_flow.lower.max(lower), ..by_flow }
}

/// Misses of OPT times the cost of a read, plus the fewest writes times the cost of a write.
pub fn simple(trace: &Trace, capacity: usize, device: &Device) -> f64 {
    let opt = Spec::parse("opt").expect("opt is a policy");
    let mut opt = opt.build(trace, capacity, 1, *device);
    let misses = replay(trace, capacity, &mut *opt, |_| true).map_or(0, |counts| counts.misses);
    misses as f64 * device.read_us + fewest_writes(trace, capacity) as f64 * device.write_us
}

/// For each access the next write of its page after it, or `NEVER`; and whether it was written
/// before.
fn writes_around(trace: &Trace) -> (Vec<u32>, Vec<bool>) {
    let (mut coming, mut next) = (vec![NEVER; trace.pages()], vec![NEVER; trace.len()]);
    let accesses: Vec<Access> = trace.accesses().collect();
    for (at, access) in accesses.iter().enumerate().rev() {
        next[at] = coming[access.page.0 as usize];
        if access.write {
            coming[access.page.0 as usize] = at as u32;
        }
    }
    let mut written = vec![false; trace.pages()];
    let before = accesses
        .iter()
        .map(|access| {
            let written = &mut written[access.page.0 as usize];
            std::mem::replace(written, *written || access.write)
        })
        .collect();
    (next, before)
}

/// A lower bound of the writes of any policy.
pub fn fewest_writes(trace: &Trace, capacity: usize) -> u64 {
    let (next_write, written_before) = writes_around(trace);
    // Gaps between writes that are kept so far, by the last of them to end, and the one of each
    // page.
    let mut open = BinaryHeap::<(u32, u32)>::new();
    let mut kept_until = vec![NEVER; trace.pages()];
    let (mut kept, mut writes) = (0usize, 0u64);
    for (at, access) in trace.accesses().enumerate() {
        let page = access.page.0 as usize;
        if access.write && kept_until[page] == at as u32 {
            kept -= 1;
            kept_until[page] = NEVER;
        }
        // The page of this access needs a frame; inside of one of its gaps it may have one.
        let inside = !access.write && written_before[at] && next_write[at] != NEVER;
        let most = if inside { capacity } else { capacity - 1 };
        while kept > most {
            let (end, page) = open.pop().expect("kept gaps are in the heap");
            if kept_until[page as usize] == end {
                kept_until[page as usize] = NEVER;
                kept -= 1;
                writes += 1;
            }
        }
        if access.write {
            match next_write[at] {
                // The last write of the page.
                NEVER => writes += 1,
                next => {
                    open.push((next, access.page.0));
                    kept_until[page] = next;
                    kept += 1;
                }
            }
        }
    }
    writes
}

/// The gaps between uses in each gap between writes, by the positions where they begin.
fn groups(trace: &Trace) -> Vec<Vec<u32>> {
    let (next_write, written_before) = writes_around(trace);
    let mut group_of = vec![usize::MAX; trace.pages()];
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for (at, access) in trace.accesses().enumerate() {
        if next_write[at] == NEVER || !(access.write || written_before[at]) {
            continue;
        }
        let group = &mut group_of[access.page.0 as usize];
        if access.write {
            *group = groups.len();
            groups.push(Vec::new());
        }
        groups[*group].push(at as u32);
    }
    groups
}

/// Bounds by flows. Takes time in proportion to accesses times frames.
pub fn by_flow(trace: &Trace, capacity: usize, device: &Device) -> Bound {
    let nanoseconds = |us: f64| (us * 1000.0).round() as i64;
    let (read, write) = (nanoseconds(device.read_us), nanoseconds(device.write_us));
    let (next_use, groups) = (trace.next_use(), groups(trace));
    let gaps = next_use.iter().filter(|next| **next != NEVER).count();
    let mut written = vec![false; trace.pages()];
    trace.accesses().for_each(|access| written[access.page.0 as usize] |= access.write);
    let written = written.into_iter().filter(|written| *written).count();
    // The cost of keeping nothing.
    let all = read * (trace.pages() + gaps) as i64 + write * (written + groups.len()) as i64;

    let mut shares = vec![0i64; trace.len()];
    for group in &groups {
        share_out(&mut shares, group, write);
    }
    let (mut lower, mut feasible) = (0, i64::MAX);
    for round in 1..=ROUNDS {
        let flow = Flow::solve(next_use, capacity - 1, |at| read + shares[at]);
        lower = lower.max(all - flow.worth);
        let whole = |group: &&Vec<u32>| group.iter().all(|at| flow.kept[*at as usize]);
        let saved = read * flow.kept.iter().filter(|kept| **kept).count() as i64
            + write * groups.iter().filter(whole).count() as i64;
        feasible = feasible.min(all - saved);
        if lower == feasible {
            break;
        }
        for group in &groups {
            let lost = group.iter().filter(|at| !flow.kept[**at as usize]).count() as i64;
            if lost == 0 || lost == group.len() as i64 {
                continue;
            }
            // Part of the shares of gaps that were kept in vain goes to gaps that were not kept.
            let mut moved = 0;
            for at in group.iter().filter(|at| flow.kept[**at as usize]) {
                let part = shares[*at as usize] / (1 + round);
                shares[*at as usize] -= part;
                moved += part;
            }
            let gone: Vec<u32> =
                group.iter().copied().filter(|at| !flow.kept[*at as usize]).collect();
            share_out(&mut shares, &gone, moved);
        }
    }
    Bound { lower: lower as f64 / 1000.0, feasible: Some(feasible as f64 / 1000.0) }
}

/// Adds equal shares of `worth`, to the last unit.
fn share_out(shares: &mut [i64], group: &[u32], worth: i64) {
    let number = group.len() as i64;
    for (place, at) in (0..number).zip(group) {
        shares[*at as usize] += worth * (place + 1) / number - worth * place / number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::policies::testing::{mixed, replayed};
    use proptest::prelude::*;
    use std::collections::HashMap;

    const DEVICE: Device = Device {
        read_us: 100.0,
        write_us: 250.0,
        sequential_write_us: 250.0,
        asymmetry: 2.5,
        concurrency: 1,
    };

    /// The least cost, least misses and least writes of all ways to choose victims: the best of
    /// each state of the cache (cached pages, dirty pages) after each access.
    fn least(trace: &Trace, capacity: usize, read: i64, write: i64) -> i64 {
        let mut states = HashMap::from([((0u32, 0u32), 0i64)]);
        for access in trace.accesses() {
            let page = 1u32 << access.page.0;
            let mut next = HashMap::new();
            let mut reach = |cached: u32, dirty: u32, cost: i64| {
                let dirty = if access.write { dirty | page } else { dirty };
                let best = next.entry((cached | page, dirty)).or_insert(i64::MAX);
                *best = cost.min(*best);
            };
            for ((cached, dirty), cost) in states {
                if cached & page != 0 {
                    reach(cached, dirty, cost);
                } else if (cached.count_ones() as usize) < capacity {
                    reach(cached, dirty, cost + read);
                } else {
                    for victim in (0..32).map(|bit| 1u32 << bit).filter(|bit| cached & bit != 0) {
                        let written = if dirty & victim != 0 { write } else { 0 };
                        reach(cached & !victim, dirty & !victim, cost + read + written);
                    }
                }
            }
            states = next;
        }
        let at_end = |dirty: u32| i64::from(dirty.count_ones()) * write;
        states.into_iter().map(|((_, dirty), cost)| cost + at_end(dirty)).min().unwrap()
    }

    fn small() -> impl Strategy<Value = Trace> {
        prop::collection::vec((0u64..6, any::<bool>()), 1..24)
            .prop_map(|accesses| Trace::of("small", accesses))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn the_least_cost_lies_between_the_bounds(trace in small(), capacity in 1usize..5) {
            let cost = least(&trace, capacity, 100_000, 250_000) as f64 / 1000.0;
            let by_flow = by_flow(&trace, capacity, &DEVICE);
            prop_assert!(by_flow.lower <= cost, "{by_flow:?} of {cost}");
            prop_assert!(by_flow.feasible.unwrap() >= cost, "{by_flow:?} of {cost}");
            prop_assert!(simple(&trace, capacity, &DEVICE) <= cost);
            prop_assert!(fewest_writes(&trace, capacity) as i64 <= least(&trace, capacity, 0, 1));
            // Where writes cost nothing the flow is OPT.
            let misses = least(&trace, capacity, 1, 0);
            let free = Device { read_us: 1.0, write_us: 0.0, ..DEVICE };
            let bound = super::by_flow(&trace, capacity, &free);
            prop_assert_eq!(bound, Bound { lower: misses as f64, feasible: Some(misses as f64) });
        }
    }

    #[test]
    fn the_flow_is_the_optimum_more_often_than_not_and_close_to_it_else() {
        let mut rng = crate::rng::Rng::new(1, 1);
        let (mut met, mut gaps, mut simple_gaps) = (0, 0.0, 0.0);
        for _ in 0..300 {
            let length = 6 + rng.below(24);
            let accesses: Vec<(u64, bool)> =
                (0..length).map(|_| (rng.below(6), rng.below(3) == 0)).collect();
            let trace = Trace::of("small", accesses);
            let cost = least(&trace, 3, 100_000, 250_000) as f64 / 1000.0;
            let bound = by_flow(&trace, 3, &DEVICE);
            met += u32::from(bound.lower == bound.feasible.unwrap());
            gaps += 1.0 - bound.lower / cost;
            simple_gaps += 1.0 - simple(&trace, 3, &DEVICE) / cost;
        }
        println!("met {met} of 300, mean gaps {} and {}", gaps / 300.0, simple_gaps / 300.0);
        assert!(met >= 150 && gaps / 300.0 < 0.02 && simple_gaps / 300.0 < 0.2);
    }

    #[test]
    fn no_policy_costs_less_than_the_bound() {
        let trace = mixed(5);
        for capacity in [5, 20, 80] {
            let bound = bound(&trace, capacity, &DEVICE);
            let plan = bound.feasible.unwrap();
            assert!(simple(&trace, capacity, &DEVICE) <= bound.lower && bound.lower <= plan);
            for policy in ["opt", "watt", "watt2", "for+", "cflru", "lru"] {
                let cost = replayed(policy, capacity, &trace).cost(&DEVICE);
                assert!(cost >= bound.lower, "{policy} at {capacity}: {cost} and {bound:?}");
            }
            println!("{capacity} pages: {bound:?}");
            assert!(plan / bound.lower < 1.03, "{capacity} pages: {bound:?}");
        }
    }
}
