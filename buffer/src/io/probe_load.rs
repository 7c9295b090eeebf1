//! The load of one point of a probe: random page reads and writes, a fixed number in flight, from
//! threads, or from tasks on a ring (`probe_ring`). Used by [`super::probe`] only.

use super::file::PageFile;
use crate::{ids::PageId, page::PageImage, random::SeededRandom};
use hdrhistogram::Histogram;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Upper bound on recorded latencies, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

/// Latencies in microseconds, accurate to 1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Longest.
    pub max_us: f64,
}

/// One kind of operation at one queue depth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProbePoint {
    /// Operations in flight.
    pub depth: usize,
    /// Operations measured.
    pub operations: u64,
    /// Operations per second.
    pub per_second: f64,
    /// Latency from submission until the submitter sees the completion.
    pub latency: Latency,
}

/// Fills a page with contents that no device can compress or deduplicate.
pub(super) fn scramble(image: &mut PageImage, random: &mut SeededRandom) {
    for word in image.0.chunks_exact_mut(8) {
        word.copy_from_slice(&random.next_u64().to_le_bytes());
    }
}

/// The load of one point.
#[derive(Clone)]
pub(super) struct Load {
    pub(super) depth: usize,
    /// 1 for reads only, 0 for writes only.
    pub(super) read_share: f64,
    pub(super) pages: u64,
    pub(super) time: Duration,
    pub(super) seed: SeededRandom,
    pub(super) stop: Arc<AtomicBool>,
}

/// Latencies of operations started after the warm-up.
pub(super) struct Samples {
    reads: Histogram<u64>,
    writes: Histogram<u64>,
    /// From the end of the warm-up to the last completion.
    pub(super) measured: Duration,
}

impl Samples {
    pub(super) fn new() -> Samples {
        let new = || Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("constant bounds");
        Samples { reads: new(), writes: new(), measured: Duration::ZERO }
    }

    pub(super) fn record(&mut self, is_read: bool, latency: Duration) {
        let histogram = if is_read { &mut self.reads } else { &mut self.writes };
        histogram.saturating_record(latency.as_nanos().min(u128::from(LONGEST_NS)) as u64);
    }

    fn merge(&mut self, other: &Samples) {
        self.reads.add(&other.reads).expect("the same bounds");
        self.writes.add(&other.writes).expect("the same bounds");
        self.measured = self.measured.max(other.measured);
    }

    pub(super) fn reads(&self, depth: usize) -> ProbePoint {
        self.point(&self.reads, depth)
    }

    pub(super) fn writes(&self, depth: usize) -> ProbePoint {
        self.point(&self.writes, depth)
    }

    fn point(&self, histogram: &Histogram<u64>, depth: usize) -> ProbePoint {
        let operations = histogram.len();
        let seconds = self.measured.as_secs_f64();
        let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        ProbePoint {
            depth,
            operations,
            per_second: if seconds > 0.0 { operations as f64 / seconds } else { 0.0 },
            latency: Latency {
                mean_us: histogram.mean() / 1e3,
                p50_us: us(0.5),
                p95_us: us(0.95),
                p99_us: us(0.99),
                p999_us: us(0.999),
                max_us: histogram.max() as f64 / 1e3,
            },
        }
    }
}

/// Start and end of the measured part of a point.
#[derive(Clone, Copy)]
pub(super) struct Schedule {
    pub(super) counts_from: Instant,
    ends: Instant,
}

impl Load {
    pub(super) fn schedule(&self) -> Schedule {
        let start = Instant::now();
        Schedule { counts_from: start + self.time / 10, ends: start + self.time }
    }

    /// Whether a task or thread starts another operation: until the point ends, and longer on a
    /// stalled device, until one of its operations counts.
    pub(super) fn goes_on(&self, schedule: Schedule, now: Instant, counted: bool) -> bool {
        (now < schedule.ends || !counted) && !self.stop.load(Ordering::Relaxed)
    }

    /// The next operation: whether it reads, and the page.
    pub(super) fn next(&self, random: &mut SeededRandom) -> (bool, PageId) {
        // The share is exact to 2^-32.
        let is_read = (random.below(1 << 32) as f64) < self.read_share * (1u64 << 32) as f64;
        (is_read, PageId(random.below(self.pages)))
    }

    /// Runs the load with `depth` threads.
    pub(super) fn run_on_threads(&self, file: &PageFile) -> io::Result<Samples> {
        let schedule = self.schedule();
        thread::scope(|scope| {
            let spawn = |number| {
                let random = self.seed.mix(number);
                thread::Builder::new()
                    .spawn_scoped(scope, move || self.one_thread(file, random, schedule))
            };
            let threads: Vec<_> = (0..self.depth as u64).map(spawn).collect();
            let mut samples = Samples::new();
            for thread in threads {
                let ended = thread?.join();
                samples.merge(&ended.map_err(|_| io::Error::other("a probing thread panicked"))??);
            }
            Ok(samples)
        })
    }

    fn one_thread(
        &self,
        file: &PageFile,
        mut random: SeededRandom,
        schedule: Schedule,
    ) -> io::Result<Samples> {
        let mut samples = Samples::new();
        let mut image = PageImage::zeroed();
        scramble(&mut image, &mut random);
        let mut counted = false;
        loop {
            let start = Instant::now();
            if !self.goes_on(schedule, start, counted) {
                samples.measured = schedule.counts_from.elapsed();
                return Ok(samples);
            }
            let (is_read, page) = self.next(&mut random);
            if is_read {
                file.read_image(page, &mut image)?;
            } else {
                file.write(page, &image)?;
            }
            if start >= schedule.counts_from {
                samples.record(is_read, start.elapsed());
                counted = true;
            }
        }
    }
}
