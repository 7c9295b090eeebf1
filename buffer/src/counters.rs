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
        }

        /// Sums of the counters of all workers and background threads, since the pool was opened.
        #[derive(Debug, Default, Clone, Copy, PartialEq)]
        pub struct CounterSums {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl CounterSums {
            pub(crate) fn add(&mut self, counters: &Counters) {
                $(self.$name += counters.$name.get();)*
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
    /// Nanoseconds of processor time of evictor and writer threads.
    evictor_cpu_ns,
    /// Times that an operation waited for a free frame.
    frame_waits,
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
