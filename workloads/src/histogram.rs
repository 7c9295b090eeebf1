//! Latencies, recorded in nanoseconds and reported in microseconds.
//!
//! An HDR histogram with two significant digits: every quantile is within 1 % of the exact one. A
//! third digit would take eight times the memory in every thread, which would show up in the
//! resident size that a run reports.
//!
//! Threads record into small counters of their own ([`Latencies`]) that are handed over once a
//! second and added to totals ([`LatencyTotal`]), so that recording shares nothing.

use std::time::Duration;

use hdrhistogram::{Counter, Histogram};
use serde::Serialize;

/// Longest latency told apart from longer ones. An operation that took more counts as this.
const LONGEST: Duration = Duration::from_secs(100);
const SIGNIFICANT_DIGITS: u8 = 2;

fn empty<C: Counter>() -> Histogram<C> {
    Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, SIGNIFICANT_DIGITS)
        .expect("the bounds are constants that the histogram accepts")
}

/// Latencies of one kind of operation in one thread since the last hand-over.
#[derive(Clone, Debug)]
pub struct Latencies {
    counts: Histogram<u32>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: empty() }
    }
}

impl Latencies {
    /// Records one operation.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.counts.saturating_record(nanoseconds);
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Moves everything that `other` holds here and leaves it empty.
    pub fn take(&mut self, other: &mut Latencies) {
        self.counts.add(&other.counts).expect("both histograms have the same bounds");
        other.counts.reset();
    }
}

/// Latencies of one kind of operation over all threads.
#[derive(Clone, Debug)]
pub struct LatencyTotal {
    counts: Histogram<u64>,
    nanoseconds: f64,
}

impl Default for LatencyTotal {
    fn default() -> Self {
        Self { counts: empty(), nanoseconds: 0.0 }
    }
}

impl LatencyTotal {
    /// Adds what a thread recorded.
    pub fn add(&mut self, latencies: &Latencies) {
        for step in latencies.counts.iter_recorded() {
            let (value, count) = (step.value_iterated_to(), u64::from(step.count_at_value()));
            self.counts.saturating_record_n(value, count);
            self.nanoseconds += latencies.counts.median_equivalent(value) as f64 * count as f64;
        }
    }

    /// Adds another total.
    pub fn merge(&mut self, other: &LatencyTotal) {
        self.counts.add(&other.counts).expect("both histograms have the same bounds");
        self.nanoseconds += other.nanoseconds;
    }

    /// The number of operations recorded.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// The latency in microseconds that a share `quantile` of the operations does not exceed; 0
    /// when there are none.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.counts.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// The figures that reports show.
    pub fn summary(&self) -> LatencySummary {
        let count = self.count();
        LatencySummary {
            count,
            mean: if count == 0 { 0.0 } else { self.nanoseconds / count as f64 / 1000.0 },
            p50: self.quantile_us(0.5),
            p95: self.quantile_us(0.95),
            p99: self.quantile_us(0.99),
            p999: self.quantile_us(0.999),
            max: self.counts.max() as f64 / 1000.0,
        }
    }
}

/// Latencies of one kind of operation in microseconds, as in the JSON of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Operations recorded.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Longest, up to 100 seconds.
    pub max: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_one_percent() {
        let mut total = LatencyTotal::default();
        for thread in 0..4u64 {
            let mut latencies = Latencies::default();
            (0..25_000).for_each(|step| latencies.record((step * 4 + thread + 1) * 100));
            total.add(&latencies);
        }
        let summary = total.summary();
        assert_eq!(summary.count, 100_000);
        for (measured, exact) in
            [(summary.p50, 5_000.0), (summary.p99, 9_900.0), (summary.max, 10_000.0)]
        {
            assert!((measured / exact - 1.0_f64).abs() < 0.01, "{measured} for {exact}");
        }
        assert!((summary.mean / 5_000.0 - 1.0).abs() < 0.01);
    }

    #[test]
    fn taking_moves_the_counts() {
        let (mut from, mut to) = (Latencies::default(), Latencies::default());
        from.record(10);
        to.take(&mut from);
        assert!(from.is_empty() && !to.is_empty());
    }

    #[test]
    fn absurdly_long_operations_count_as_the_longest() {
        let mut latencies = Latencies::default();
        latencies.record(u64::MAX);
        let mut total = LatencyTotal::default();
        total.add(&latencies);
        assert_eq!(total.count(), 1);
        assert!(total.summary().max >= 99e6);
    }

    #[test]
    fn an_empty_total_reports_zeros() {
        assert_eq!(LatencyTotal::default().summary(), LatencySummary::default());
    }
}
