//! Measures a device: the cost of random reads and writes of pages, one at a time and many in
//! flight.
//!
//! Write-back needs the device's write concurrency k_w, and comparisons of policies need its
//! read/write asymmetry alpha (Papon, Athanassoulis: ACEing the Bufferpool Management Paradigm for
//! Modern Storage Devices, ICDE 2023, section II). The paper measures both empirically and leaves
//! the procedure open; [`ProbeReport`] documents the one used here.
//!
//! The probe works on a file of its own, which is completely written first so that reads meet real
//! blocks. The file has no name once it is open, so it vanishes with the process. Called by `wattle
//! probe`.

pub use super::probe_load::{Latency, ProbePoint};
use super::{
    directory::Directory,
    file::{PageCache, PageFile},
    open::IoKind,
    probe_load::{Load, Samples, scramble},
    ring,
};
use crate::{
    ids::PageId,
    page::{PAGE_SIZE, PageImage},
    random::SeededRandom,
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Pages written at once while the file is filled.
const FILL_PAGES: u64 = 256;
/// Upper bound on the queue depth.
pub const MAX_DEPTH: usize = 1024;
/// Share of the highest throughput that counts as saturation.
pub const SATURATION: f64 = 0.95;

/// The options of a probe. All fields but the directory have useful defaults.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// Directory on the device, for the temporary file.
    pub directory: PathBuf,
    /// Size of the file; if possible larger than the caches of the device.
    pub file_bytes: u64,
    /// Time for each point, a tenth of it warm-up.
    pub point_time: Duration,
    /// Queue depths, 1 to [`MAX_DEPTH`] each, ascending.
    pub depths: Vec<usize>,
    /// Queue depth of the mixed point.
    pub mixed_depth: usize,
    /// Share of reads in the mixed point, 0 to 1.
    pub mixed_reads: f64,
    /// Number of measured syncs, each after one write.
    pub syncs: usize,
    /// `Uring` falls back to `Threads` as [`super::open()`] does; `Memory` and `Sim` are refused.
    pub kind: IoKind,
    /// Seed of the page numbers.
    pub seed: u64,
}

impl ProbeOptions {
    /// 1 GiB in `directory`, depths 1 to 128, 2 seconds for each, half reads in the mix.
    pub fn new(directory: impl Into<PathBuf>) -> ProbeOptions {
        ProbeOptions {
            directory: directory.into(),
            file_bytes: 1 << 30,
            point_time: Duration::from_secs(2),
            depths: vec![1, 2, 4, 8, 16, 32, 64, 128],
            mixed_depth: 32,
            mixed_reads: 0.5,
            syncs: 50,
            kind: IoKind::default(),
            seed: 1,
        }
    }

    fn check(&self) -> io::Result<()> {
        let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let deep = |depth: &usize| !(1..=MAX_DEPTH).contains(depth);
        if let Some(depth) = self.depths.iter().chain([&self.mixed_depth]).find(|d| deep(d)) {
            return refuse(format!("a queue depth must be 1 to {MAX_DEPTH}, not {depth}"));
        }
        if self.depths.is_empty() || !self.depths.is_sorted() {
            return refuse("queue depths must be given in ascending order".into());
        }
        if !(0.0..=1.0).contains(&self.mixed_reads) {
            return refuse(format!("a share of reads must be 0 to 1, not {}", self.mixed_reads));
        }
        if self.file_bytes < PAGE_SIZE as u64 || self.file_bytes / PAGE_SIZE as u64 > PageId::MAX.0
        {
            return refuse(format!("a file of {} bytes cannot be probed", self.file_bytes));
        }
        self.kind.check()?;
        if self.kind.is_volatile() {
            return refuse("memory is no device to probe".into());
        }
        Ok(())
    }
}

/// The current step, for progress displays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProbeStep {
    /// Writing the file, bytes so far.
    Fill(u64),
    /// Random reads at this depth.
    Reads(usize),
    /// Random writes at this depth.
    Writes(usize),
    /// Reads and writes at this depth.
    Mixed(usize),
    /// Syncs.
    Syncs,
}

/// The results of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeReport {
    /// `uring` or `threads`.
    pub back_end: &'static str,
    /// Whether the page cache was bypassed. If not, the numbers are about memory.
    pub direct: bool,
    /// Size of the file.
    pub file_bytes: u64,
    /// Random reads by depth.
    pub reads: Vec<ProbePoint>,
    /// Random writes by depth.
    pub writes: Vec<ProbePoint>,
    /// Reads of the mixed load; its depth counts reads and writes together.
    pub mixed_reads: ProbePoint,
    /// Writes of the mixed load.
    pub mixed_writes: ProbePoint,
    /// Asymmetry at saturation: the highest rate of reads over the highest rate of writes, that is
    /// the cost of a write in reads on a busy device. This is the alpha to use.
    pub alpha: f64,
    /// Asymmetry of latencies: median of a write over median of a read at the smallest depth. Often
    /// below 1, because devices acknowledge a write once it is in their cache.
    pub alpha_latency: f64,
    /// Read concurrency: the smallest depth with [`SATURATION`] of the highest rate of reads.
    pub k_r: usize,
    /// Write concurrency: the smallest depth with [`SATURATION`] of the highest rate of writes.
    pub k_w: usize,
    /// Median fdatasync after one write, microseconds.
    pub sync_p50_us: f64,
}

/// Measures the device under `options.directory`.
///
/// Calls `progress` with each step and the fraction of the whole that is done, 0 to 1. Once `stop`
/// is set the probe ends soon with `ErrorKind::Interrupted`.
pub fn probe(
    options: &ProbeOptions,
    stop: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(ProbeStep, f64),
) -> io::Result<ProbeReport> {
    options.check()?;
    let on_ring = options.kind == IoKind::Uring && ring_allowed();
    let pages = options.file_bytes / PAGE_SIZE as u64;
    let file = Arc::new(temporary(&options.directory)?);
    // Filling counts as one step, like each point.
    let steps = (2 * options.depths.len() + 3) as f64;
    file.reserve(pages)?;
    fill(&file, pages, options.seed, stop, &mut |bytes| {
        progress(ProbeStep::Fill(bytes), bytes as f64 / options.file_bytes as f64 / steps);
    })?;

    let mut done = 1.0;
    let mut run = |step: ProbeStep, depth: usize, read_share: f64| {
        progress(step, done / steps);
        done += 1.0;
        let load = Load {
            depth,
            read_share,
            pages,
            time: options.point_time,
            seed: SeededRandom::new(options.seed).mix(done as u64),
            stop: Arc::clone(stop),
        };
        let samples =
            if on_ring { ring::run_load(&load, &file)? } else { load.run_on_threads(&file)? };
        if stop.load(Ordering::Relaxed) { Err(stopped()) } else { Ok(samples) }
    };
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for &depth in &options.depths {
        reads.push(run(ProbeStep::Reads(depth), depth, 1.0)?.reads(depth));
    }
    for &depth in &options.depths {
        writes.push(run(ProbeStep::Writes(depth), depth, 0.0)?.writes(depth));
    }
    let depth = options.mixed_depth;
    let mixed: Samples = run(ProbeStep::Mixed(depth), depth, options.mixed_reads)?;
    progress(ProbeStep::Syncs, (steps - 1.0) / steps);
    let sync_p50_us = median_sync(&file, pages, options, stop)?;
    progress(ProbeStep::Syncs, 1.0);
    Ok(ProbeReport {
        back_end: if on_ring { "uring" } else { "threads" },
        direct: file.is_direct(),
        file_bytes: options.file_bytes,
        alpha: ratio(highest(&reads), highest(&writes)),
        alpha_latency: ratio(writes[0].latency.p50_us, reads[0].latency.p50_us),
        k_r: concurrency(&reads),
        k_w: concurrency(&writes),
        mixed_reads: mixed.reads(depth),
        mixed_writes: mixed.writes(depth),
        reads,
        writes,
        sync_p50_us,
    })
}

fn ring_allowed() -> bool {
    ring::probe()
        .inspect_err(|error| tracing::warn!(%error, "io_uring is refused: probing with threads"))
        .is_ok()
}

fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the probe was stopped")
}

/// Creates a file in `directory` and removes its name.
fn temporary(directory: &Path) -> io::Result<PageFile> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let directory = Arc::new(Directory::open(directory)?);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!(".wattle-probe-{}-{number}", std::process::id());
        match directory.create_file(&name) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        }
        let file = PageFile::open_in(&directory, Path::new(&name), PageCache::Bypassed);
        directory.remove(&name)?;
        return file;
    }
}

/// Writes every page with contents that no device can compress or deduplicate.
fn fill(
    file: &PageFile,
    pages: u64,
    seed: u64,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let mut random = SeededRandom::new(seed).mix(u64::MAX);
    let mut images = vec![PageImage([0; PAGE_SIZE]); pages.min(FILL_PAGES) as usize];
    let mut page = 0;
    while page < pages {
        if stop.load(Ordering::Relaxed) {
            return Err(stopped());
        }
        let count = (pages - page).min(FILL_PAGES);
        let images = &mut images[..count as usize];
        images.iter_mut().for_each(|image| scramble(image, &mut random));
        file.write_run(PageId(page), images)?;
        page += count;
        progress(page * PAGE_SIZE as u64);
    }
    file.sync()
}

fn median_sync(
    file: &PageFile,
    pages: u64,
    options: &ProbeOptions,
    stop: &AtomicBool,
) -> io::Result<f64> {
    file.sync()?;
    let mut random = SeededRandom::new(options.seed).mix(0);
    let mut image = PageImage::zeroed();
    scramble(&mut image, &mut random);
    let mut times = Vec::with_capacity(options.syncs);
    for _ in 0..options.syncs {
        if stop.load(Ordering::Relaxed) {
            return Err(stopped());
        }
        file.write(PageId(random.below(pages)), &image)?;
        let start = Instant::now();
        file.sync()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6))
}

pub(super) fn highest(points: &[ProbePoint]) -> f64 {
    points.iter().map(|point| point.per_second).fold(0.0, f64::max)
}

/// The smallest depth that saturates.
fn concurrency(points: &[ProbePoint]) -> usize {
    let enough = SATURATION * highest(points);
    points.iter().find(|point| point.per_second >= enough).map_or(1, |point| point.depth)
}

/// The quotient, or 0 if nothing was measured.
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick(directory: &Path) -> ProbeOptions {
        ProbeOptions {
            file_bytes: 4 << 20,
            point_time: Duration::from_millis(50),
            depths: vec![1, 8],
            mixed_depth: 4,
            mixed_reads: 0.75,
            syncs: 3,
            ..ProbeOptions::new(directory)
        }
    }

    #[test]
    fn a_probe_fills_every_number_and_leaves_no_file() {
        let directory = tempfile::tempdir().expect("a directory");
        for kind in [IoKind::Uring, IoKind::Threads].into_iter().filter(|kind| kind.check().is_ok())
        {
            let mut last = 0.0;
            let options = ProbeOptions { kind, ..quick(directory.path()) };
            let report = probe(&options, &Arc::default(), &mut |_, share| {
                assert!((last..=1.0).contains(&share), "{share} after {last}");
                last = share;
            })
            .expect("a device");
            assert_eq!(last, 1.0);
            let points = report.reads.iter().chain(&report.writes);
            for point in points.chain([&report.mixed_reads, &report.mixed_writes]) {
                assert!(point.operations > 0 && point.per_second > 0.0, "{point:?}");
                let latency = point.latency;
                assert!(latency.p50_us > 0.0 && latency.p50_us <= latency.max_us, "{point:?}");
            }
            assert!(report.alpha > 0.0 && report.alpha_latency > 0.0 && report.sync_p50_us > 0.0);
            assert!([1, 8].contains(&report.k_r) && [1, 8].contains(&report.k_w));
            assert!(report.mixed_reads.operations > report.mixed_writes.operations);
            assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0);
        }
    }

    #[test]
    fn a_stopped_probe_and_impossible_options_are_errors() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = quick(directory.path());
        let stop = Arc::new(AtomicBool::new(false));
        let error = probe(&options, &stop, &mut |step, _| {
            stop.store(matches!(step, ProbeStep::Writes(_)), Ordering::Relaxed);
        });
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::Interrupted);
        let fails = |options| {
            let kind = probe(&options, &Arc::default(), &mut |_, _| ()).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::InvalidInput);
        };
        fails(ProbeOptions { depths: vec![0], ..options.clone() });
        fails(ProbeOptions { depths: vec![], ..options.clone() });
        fails(ProbeOptions { mixed_reads: f64::NAN, ..options.clone() });
        fails(ProbeOptions { file_bytes: 100, ..options.clone() });
        fails(ProbeOptions { kind: IoKind::Memory, ..options });
    }

    #[test]
    fn concurrency_is_the_smallest_depth_that_saturates() {
        let point = |depth, per_second| ProbePoint { depth, per_second, ..ProbePoint::default() };
        let points = [point(1, 10.0), point(2, 95.0), point(4, 100.0), point(8, 90.0)];
        assert_eq!(concurrency(&points), 2);
        assert_eq!(concurrency(&points[..1]), 1);
    }
}
