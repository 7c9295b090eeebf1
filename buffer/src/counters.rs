//! Counters. Each has one writer; the pool sums those of all workers and background threads.

use crate::sync::{AtomicU64, Mutex, Ordering};
use std::sync::Arc;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one worker or one background thread. Only the owner writes them, with plain
        /// stores; any thread may read them.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)*
            /// Sum of the thresholds of rounds, of which `thresholds` is the number.
            pub threshold_sum: Sum,
        }

        /// Sums of the counters of all workers and background threads, since the pool was opened.
        #[derive(Debug, Default, Clone, Copy, PartialEq)]
        pub struct CounterSums {
            $($(#[$doc])* pub $name: u64,)*
            /// Sum of the thresholds of rounds, of which `thresholds` is the number.
            pub threshold_sum: f64,
            /// Swips that became hot because an operation needed the page.
            pub swizzles: u64,
        }

        impl CounterSums {
            pub(crate) fn add(&mut self, counters: &Counters) {
                $(self.$name += counters.$name.get();)*
                self.threshold_sum += counters.threshold_sum.get();
            }
        }
    };
}

counters! {
    /// Operations that found every page they needed resident.
    hits,
    /// Page faults: operations that had to wait for a page.
    faults,
    /// Pages read from storage.
    pages_read,
    /// Of these, pages that no operation had asked for yet.
    pages_read_ahead,
    /// Pages written to storage.
    pages_written,
    /// Pages evicted.
    evictions,
    /// Of these, pages that had to be written first.
    evictions_dirty,
    /// Operations that restarted because an optimistic read did not validate.
    restarts,
    /// Leaf and inner splits.
    splits,
    /// Nodes removed by merges.
    merges,
    /// Leaves split because writers contended for them.
    contention_splits,
    /// Nodes saved by X-merge.
    x_merges,
    /// Full leaves that gave records to a neighbour instead of being split.
    redistributions,
    /// Nanoseconds of processor time of evictor and writer threads.
    evictor_cpu_ns,
    /// Times that an operation waited for a free frame.
    frame_waits,
    /// Rounds of evictors that had a threshold; without one, every candidate counts as cold.
    thresholds,
    /// Frames that evictors sampled as candidates. Each is evicted, queued or refused.
    candidates,
    /// Candidates that were dirty and queued for write-back.
    queued,
    /// Swips that evictions made cold.
    unswizzles,
    /// Refused: the frame was free, being read, or held a page that is in no tree yet.
    refused_no_page,
    /// Refused: the page is kept in memory, such as the root of an open tree.
    refused_pinned,
    /// Refused: a child of the page has a frame.
    refused_hot_children,
    /// Refused: a write of the page was in flight.
    refused_writing,
    /// Refused: its value was above the threshold.
    refused_hotter,
    /// Refused: a thread held the latch of the page.
    refused_latched,
    /// Refused: a thread held the latch of the parent, or the parent was not found.
    refused_parent_latched,
    /// Refused: the page changed after it was sampled or written.
    refused_changed,
    /// Refused: the page was dirty and the write queue full.
    refused_queue_full,
}

/// Why a page that an evictor or writer wanted to evict stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoPage,
    Pinned,
    HotChildren,
    Writing,
    Hotter,
    Latched,
    ParentLatched,
    Changed,
    QueueFull,
}

impl Counters {
    /// Counts a page that was not evicted.
    #[inline]
    pub(crate) fn refuse(&self, why: Refusal) {
        let counter = match why {
            Refusal::NoPage => &self.refused_no_page,
            Refusal::Pinned => &self.refused_pinned,
            Refusal::HotChildren => &self.refused_hot_children,
            Refusal::Writing => &self.refused_writing,
            Refusal::Hotter => &self.refused_hotter,
            Refusal::Latched => &self.refused_latched,
            Refusal::ParentLatched => &self.refused_parent_latched,
            Refusal::Changed => &self.refused_changed,
            Refusal::QueueFull => &self.refused_queue_full,
        };
        counter.add(1);
    }
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. The addition is not atomic, so only the owner may call it.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// The current count.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces the count, for gauges.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }
}

/// A sum of numbers with one writer, stored as the bits of an `f64`.
#[derive(Debug, Default)]
pub struct Sum(AtomicU64);

impl Sum {
    /// Adds `value`. The addition is not atomic, so only the owner may call it.
    #[inline]
    pub fn add(&self, value: f64) {
        self.0.store((self.get() + value).to_bits(), Ordering::Relaxed);
    }

    /// The current sum.
    #[inline]
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// The counters of a pool.
#[derive(Default)]
pub(crate) struct CounterRegistry {
    counters: Mutex<RegisteredCounters>,
}

#[derive(Default)]
struct RegisteredCounters {
    live: Vec<Arc<Counters>>,
    retired: CounterSums,
}

impl CounterRegistry {
    pub(crate) fn register(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        self.counters.lock().live.push(counters.clone());
        counters
    }

    pub(crate) fn unregister(&self, counters: &Arc<Counters>) {
        let mut registered = self.counters.lock();
        registered.retired.add(counters);
        registered.live.retain(|c| !Arc::ptr_eq(c, counters));
    }

    /// Sums of all counters, including those of workers that have ended.
    pub(crate) fn sums(&self) -> CounterSums {
        let registered = self.counters.lock();
        let mut sums = registered.retired;
        registered.live.iter().for_each(|c| sums.add(c));
        sums
    }
}
