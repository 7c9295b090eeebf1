//! Latencies, recorded in nanoseconds and reported in microseconds.
//!
//! An HDR histogram with two significant digits: every quantile is within 1 % of the exact one. A
//! third digit would take eight times the memory in every thread, which would be visible in the
//! reported resident size.
//!
//! Each thread records into its own small counters ([`Latencies`]) and hands them over once a
//! second to be added to totals ([`LatencyTotal`]), so recording shares no memory.

use std::time::Duration;

use hdrhistogram::{Counter, Histogram};
use serde::Serialize;

/// Longest latency that the histogram distinguishes. A longer operation counts as this.
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
    extremes: Extremes,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: empty(), extremes: Extremes::default() }
    }
}

/// The shortest and the longest latency in nanoseconds, which a histogram knows only to within 1 %.
#[derive(Clone, Copy, Debug)]
struct Extremes {
    min: u64,
    max: u64,
}

impl Default for Extremes {
    /// The extremes of no latencies.
    fn default() -> Self {
        Self { min: u64::MAX, max: 0 }
    }
}

impl Extremes {
    #[inline]
    fn add(&mut self, other: Extremes) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// `nanoseconds`, limited to the range from the shortest to the longest latency.
    fn clamp(self, nanoseconds: u64) -> u64 {
        nanoseconds.max(self.min).min(self.max)
    }
}

impl Latencies {
    /// Records one operation.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.counts.saturating_record(nanoseconds);
        self.extremes.add(Extremes { min: nanoseconds, max: nanoseconds });
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Moves the contents of `other` here.
    pub fn take(&mut self, other: &mut Latencies) {
        self.counts.add(&other.counts).expect("both histograms have the same bounds");
        self.extremes.add(std::mem::take(&mut other.extremes));
        other.counts.reset();
    }
}

/// Latencies of one kind of operation over all threads.
#[derive(Clone, Debug)]
pub struct LatencyTotal {
    counts: Histogram<u64>,
    extremes: Extremes,
    nanoseconds: f64,
}

impl Default for LatencyTotal {
    fn default() -> Self {
        Self { counts: empty(), extremes: Extremes::default(), nanoseconds: 0.0 }
    }
}

impl LatencyTotal {
    /// Adds the latencies of a thread.
    pub fn add(&mut self, latencies: &Latencies) {
        self.extremes.add(latencies.extremes);
        for step in latencies.counts.iter_recorded() {
            let (value, count) = (step.value_iterated_to(), u64::from(step.count_at_value()));
            self.counts.saturating_record_n(value, count);
            self.nanoseconds += latencies.counts.median_equivalent(value) as f64 * count as f64;
        }
    }

    /// Adds another total.
    pub fn merge(&mut self, other: &LatencyTotal) {
        self.counts.add(&other.counts).expect("both histograms have the same bounds");
        self.extremes.add(other.extremes);
        self.nanoseconds += other.nanoseconds;
    }

    /// The number of operations recorded.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// The latency in microseconds that a share `quantile` of the operations does not exceed; 0 if
    /// there are none.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        // The histogram returns the upper edge of a bucket, which may be above the longest latency.
        self.extremes.clamp(self.counts.value_at_quantile(quantile)) as f64 / 1000.0
    }

    /// The figures for reports.
    pub fn summary(&self) -> LatencySummary {
        let count = self.count();
        LatencySummary {
            count,
            mean: if count == 0 { 0.0 } else { self.nanoseconds / count as f64 / 1000.0 },
            min: if count == 0 { 0.0 } else { self.extremes.min as f64 / 1000.0 },
            p50: self.quantile_us(0.5),
            p95: self.quantile_us(0.95),
            p99: self.quantile_us(0.99),
            p999: self.quantile_us(0.999),
            max: self.extremes.max as f64 / 1000.0,
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
    /// The shortest, exactly.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The longest, exactly. (For quantiles one above 100 seconds counts as that.)
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
    fn the_shortest_and_the_longest_are_exact_and_quantiles_lie_between_them() {
        let mut total = LatencyTotal::default();
        // 1,234,567 lies in a bucket that ends 0.7 % above it.
        for (at, latency) in [1_001, 1_234_567, 50_003, 50_005].into_iter().enumerate() {
            let (mut one, mut other) = (Latencies::default(), Latencies::default());
            one.record(latency);
            // By each kind of hand-over.
            if at % 2 == 0 {
                other.take(&mut one);
                total.add(&other);
            } else {
                let mut part = LatencyTotal::default();
                part.add(&one);
                total.merge(&part);
            }
        }
        let summary = total.summary();
        assert_eq!((summary.min, summary.max), (1.001, 1234.567));
        for quantile in [0.0, 0.001, 0.5, 0.99, 0.9999, 1.0] {
            let found = total.quantile_us(quantile);
            assert!((summary.min..=summary.max).contains(&found), "{quantile}: {found}");
        }
        // After a hand-over the records of a thread are empty.
        let (mut one, mut other) = (Latencies::default(), Latencies::default());
        one.record(7_000_000);
        other.take(&mut one);
        one.record(3);
        let mut later = LatencyTotal::default();
        later.add(&one);
        assert_eq!((later.summary().min, later.summary().max), (0.003, 0.003));
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
        assert!(total.summary().p50 >= 99e6 && total.summary().max > 1e16);
    }

    #[test]
    fn an_empty_total_reports_zeros() {
        assert_eq!(LatencyTotal::default().summary(), LatencySummary::default());
    }
}
