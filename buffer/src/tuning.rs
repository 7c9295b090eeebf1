//! Choices that were made by measurement: each has a name, a reason and a switch.
//!
//! Results, with machine and date, are in `benches/results/2026-11-heuristics-buffer.md`. To
//! measure one again, `WATTLE_OFF` names the choices that a build leaves out:
//!
//! ```text
//! cargo bench -p wattle-benches --bench heuristics -- off=prefetch
//! ```
//!
//! builds the benchmark twice, runs both builds in turns and prints the ratios. `WATTLE_OFF` is
//! read when this crate is compiled, so a switch takes no instruction, and it is empty unless the
//! person who builds Wattle sets it. Without the choices the engine is slower but does the same.
//!
//! Other numbers are not in this list because they do not follow from a machine: limits of waits
//! (`in_flight`, `resolve`, `worker`), sizes of buffers, and the parameters of WATT, which are
//! options of the policy.

/// Prefetches of node and frame lines ([`crate::prefetch`], [`crate::prefetch_write`]): a descent
/// or a batch would otherwise wait for each cache line in turn.
pub(crate) const PREFETCH: bool = is_on("prefetch");

/// The evictor prefetches headers of candidates and of their parents: a sample is random, so each
/// header is a cache miss.
pub(crate) const EVICT_PREFETCH: bool = is_on("evict-prefetch");

/// Huge pages for mappings of [`crate::memory::HUGE_PAGES_MIN`] or more: fewer TLB misses.
pub(crate) const HUGE_PAGES: bool = is_on("huge-pages");

/// The thread `wattle-frames` touches frames ahead of use: zeroing a huge page on first touch
/// delays an operation by milliseconds where a host has to provide it first.
pub(crate) const POPULATE: bool = is_on("populate");

/// Shares are counted in bulk (`share`): the two atomic changes of an `Arc`'s count for each
/// version would wait for pending stores.
pub(crate) const BULK_SHARES: bool = is_on("bulk-shares");

/// A limit on the number of threads that have several reads in flight each (`resolve`): with more
/// of them the device is busy anyway, and their helper threads only cost processor time.
pub(crate) const LIMIT_READERS: bool = is_on("limit-readers");

/// A runtime submits reads of tasks before all of its tasks wait (`io::runtime`): the device would
/// idle while tasks run.
#[cfg(feature = "async")]
pub(crate) const SUBMIT_EARLY: bool = is_on("submit-early");

/// Whether `name` is not in the comma-separated list `WATTLE_OFF` of the build.
const fn is_on(name: &str) -> bool {
    match option_env!("WATTLE_OFF") {
        Some(list) => !contains(list.as_bytes(), name.as_bytes()),
        None => true,
    }
}

/// Whether a comma-separated list has this item.
const fn contains(list: &[u8], item: &[u8]) -> bool {
    let mut start = 0;
    while start <= list.len() {
        let mut end = start;
        while end < list.len() && list[end] != b',' {
            end += 1;
        }
        let mut same = end - start == item.len();
        let mut at = start;
        while same && at < end {
            same = list[at] == item[at - start];
            at += 1;
        }
        if same {
            return true;
        }
        start = end + 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_its_items_and_no_parts_of_them() {
        assert!(
            contains(b"a,bc,d", b"a") && contains(b"a,bc,d", b"bc") && contains(b"a,bc,d", b"d")
        );
        for absent in [&b"b"[..], b"c", b"bcd", b"a,bc", b""] {
            assert!(!contains(b"a,bc,d", absent));
        }
        assert!(!contains(b"", b"a"));
    }
}
