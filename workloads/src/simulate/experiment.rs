//! Every policy on every trace with every cache size, in parallel.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::registry::Spec;
use super::replay::{Counts, Device};
use super::trace::Trace;
use crate::report::figures::plural;

/// Fewest pages for a percentage, if the trace has that many.
pub const LEAST_BY_PERCENT: usize = 10;

/// A cache size as given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheSize {
    /// A number of pages.
    Pages(usize),
    /// A percentage of the different pages of the trace.
    Percent(f64),
}

impl CacheSize {
    /// Reads `500` or `5%`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "\"{text}\" is not a cache size; write a number of pages above 0, as 1000, or a \
                     share of the pages of the trace above 0% and up to 100%, as 5%"
            )
        };
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let size = match text.strip_suffix('%') {
            Some(share) if plain(share) => share
                .parse()
                .ok()
                .filter(|percent| *percent > 0.0 && *percent <= 100.0)
                .map(CacheSize::Percent),
            Some(_) => None,
            None => text.parse().ok().filter(|pages| *pages > 0).map(CacheSize::Pages),
        };
        size.ok_or_else(refused)
    }

    /// The number of pages for `trace`. The error names the problem.
    pub fn of(self, trace: &Trace) -> Result<usize, String> {
        let all = trace.pages();
        match self {
            CacheSize::Pages(pages) if pages > all => Err(format!(
                "a cache of {} is larger than trace {}, which has {}: every policy would read each \
                 of them once and evict nothing; give at most {all}, or a percentage",
                plural(pages as u64, "page"),
                trace.name(),
                plural(all as u64, "different page")
            )),
            CacheSize::Pages(pages) => Ok(pages),
            CacheSize::Percent(percent) => {
                let pages = (all as f64 * percent / 100.0).round_ties_even() as usize;
                Ok(pages.max(LEAST_BY_PERCENT).min(all))
            }
        }
    }
}

/// One replay.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// Number of frames.
    pub cache_pages: usize,
    /// The policy.
    pub spec: &'a Spec,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// All runs of some policies with some cache sizes on some traces, ordered by trace, size and
/// policy. Equal sizes are run once.
pub fn combine<'a>(
    traces: &'a [Trace],
    sizes: &[CacheSize],
    specs: &'a [Spec],
    seed: u64,
) -> Result<Vec<Run<'a>>, String> {
    let mut runs = Vec::new();
    for trace in traces {
        let mut done = Vec::new();
        for size in sizes {
            let cache_pages = size.of(trace)?;
            if !done.contains(&cache_pages) {
                done.push(cache_pages);
                runs.extend(specs.iter().map(|spec| Run { trace, cache_pages, spec, seed }));
            }
        }
    }
    Ok(runs)
}

/// Does `work` for each of `tasks`, in their order, on `threads` threads, one of which is the
/// calling one. When `go_on` returns false no further task begins; its result is `None`.
pub fn in_parallel<T: Sync, R: Send>(
    tasks: &[T],
    threads: usize,
    go_on: &(impl Fn() -> bool + Sync),
    work: &(impl Fn(&T) -> R + Sync),
) -> Vec<Option<R>> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::from_iter(tasks.iter().map(|_| None)));
    let work_on = || {
        while go_on() {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(index) else { break };
            let result = work(task);
            results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(tasks.len()) {
            // If a thread cannot be started the others do its work.
            if std::thread::Builder::new().spawn_scoped(scope, work_on).is_err() {
                break;
            }
        }
        work_on();
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Replays all `runs` on `threads` threads. `progress` gets the number of accesses done and returns
/// whether to go on; a run that was not finished is `None`.
pub fn run_all(
    runs: &[Run],
    threads: usize,
    device: Device,
    progress: &(impl Fn(usize) -> bool + Sync),
) -> Vec<Option<Counts>> {
    // The longest first, so that all threads end at about the same time.
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by_key(|run| std::cmp::Reverse(runs[*run].trace.len()));
    let replays = in_parallel(&order, threads, &|| progress(0), &|index: &usize| {
        let Run { trace, cache_pages, spec, seed } = runs[*index];
        spec.run(trace, cache_pages, seed, device, progress)
    });
    let mut results = vec![None; runs.len()];
    for (index, counts) in order.into_iter().zip(replays) {
        results[index] = counts.flatten();
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        Trace::of("t", (0..5_000u64).map(|access| ((access * access) % 251, access % 3 == 0)))
    }

    #[test]
    fn sizes_are_pages_or_percent_of_the_pages() {
        let trace = trace();
        let pages = trace.pages();
        assert_eq!(CacheSize::parse("50"), Ok(CacheSize::Pages(50)));
        assert_eq!(CacheSize::parse("50%").unwrap().of(&trace), Ok(pages / 2));
        assert_eq!(CacheSize::parse("0.5%").unwrap().of(&trace), Ok(10));
        assert_eq!(CacheSize::parse("100%").unwrap().of(&trace), Ok(pages));
        for text in ["", "0", "0%", "101%", "-1", "x", "5 %", "1e2%", "%", "1.5"] {
            assert!(CacheSize::parse(text).unwrap_err().contains("5%"), "{text}");
        }
        let sentence = CacheSize::Pages(1000).of(&trace).unwrap_err();
        assert!(
            sentence.contains("1,000 pages") && sentence.contains(&pages.to_string()),
            "{sentence}"
        );
    }

    #[test]
    fn runs_in_parallel_count_the_same_as_one_after_the_other() {
        let traces = [trace()];
        let specs: Vec<Spec> =
            ["lru", "random", "opt"].iter().map(|text| Spec::parse(text).unwrap()).collect();
        let sizes = [CacheSize::Percent(10.0), CacheSize::Pages(30), CacheSize::Percent(10.0)];
        let runs = combine(&traces, &sizes, &specs, 1).unwrap();
        assert_eq!(runs.len(), 6);
        let misses = |threads| -> Vec<u64> {
            let results = run_all(&runs, threads, Device::default(), &|_| true);
            results.into_iter().map(|counts| counts.unwrap().misses).collect()
        };
        assert_eq!(misses(1), misses(4));
        assert!(run_all(&runs, 2, Device::default(), &|_| false).iter().all(Option::is_none));
    }
}
