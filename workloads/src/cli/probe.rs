//! `wattle probe`: measures the device of a directory.
//!
//! The write-back of the buffer pool keeps several page writes in flight. The best number depends
//! on the device: above `k_w` more writes only wait for each other.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use wattle::io::probe::{MAX_DEPTH, ProbeOptions, ProbePoint, ProbeReport, ProbeStep};
use wattle::io::{DEVICE_FILE, DeviceRecord, Directory};
use wattle::{DATA_FILE, PAGE_SIZE};

use super::common::{FileBackend, Format};
use super::exit::{Exit, failed, print};
use super::units;
use crate::driver::control::Interrupt;
use crate::machine::{self, Machine};
use crate::report::DeviceReport;
use crate::report::figures::{bytes, plural, rate, significant, table};
use crate::report::html::Page;
use crate::report::plot::{Plot, Scale, Series};

const MIN_FILE_BYTES: u64 = 1 << 20;

/// Flags of `probe`.
#[derive(Args, Debug)]
pub struct ProbeFlags {
    /// Directory on the device; a temporary file is written there and removed. If it is the
    /// directory of a store, the figures are kept there in the file device, and opening the store
    /// uses k_w as its write concurrency and k_r as its read-ahead.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,

    /// Size of the temporary file, at least 1MiB. A small file may fit into a cache of the device.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = units::some_size)]
    pub size: u64,

    /// Time to measure each queue depth, for reads and again for writes.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::some_time)]
    pub duration: Duration,

    /// Queue depths, 1 to 1024, separated by commas.
    #[arg(long, value_name = "N,N,..", value_delimiter = ',',
        default_value = "1,2,4,8,16,32,64,128",
        value_parser = clap::value_parser!(u64).range(1..=MAX_DEPTH as u64))]
    pub depths: Vec<u64>,

    /// Storage back end.
    #[arg(long, value_enum, default_value_t = FileBackend::Uring)]
    pub io: FileBackend,

    /// Seed of the choice of pages.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Format of the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// HTML file with the results and plots.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

/// The figures that were kept in the store at `path`, if there are any of its device.
pub(super) fn kept(path: &std::path::Path) -> Option<DeviceReport> {
    // A damaged file counts as none: the engine has warned of it.
    let record = DeviceRecord::read(&Directory::open(path).ok()?).ok()??;
    let probed = std::time::UNIX_EPOCH + std::time::Duration::from_secs(record.probed);
    Some(DeviceReport {
        k_r: record.k_r,
        k_w: record.k_w,
        asymmetry: record.asymmetry,
        probed: humantime::format_rfc3339_seconds(probed).to_string(),
        reads_per_second: record.rates.map(|rates| rates.reads),
        writes_per_second: record.rates.map(|rates| rates.writes),
    })
}

impl ProbeFlags {
    /// Refuses values that cannot be measured.
    pub fn check(&self) -> Result<(), Exit> {
        if !self.path.is_dir() {
            return Err(Exit::Usage(format!(
                "{} is not a directory; give one on the device to measure",
                self.path.display()
            )));
        }
        if self.size < MIN_FILE_BYTES {
            return Err(Exit::Usage(format!(
                "--size {} is too small; at least 1MiB is accepted",
                self.size
            )));
        }
        Ok(())
    }

    /// The measurement that the flags ask for.
    fn options(&self) -> ProbeOptions {
        let mut depths: Vec<usize> = self.depths.iter().map(|depth| *depth as usize).collect();
        depths.sort_unstable();
        depths.dedup();
        ProbeOptions {
            file_bytes: self.size,
            point_time: self.duration,
            depths,
            kind: self.io.into(),
            seed: self.seed,
            ..ProbeOptions::new(&self.path)
        }
    }
}

/// Steps of the progress bar.
const PROGRESS_STEPS: u64 = 1000;

/// Measures the device.
pub fn probe(flags: &ProbeFlags, interrupt: &Interrupt) -> Result<(), Exit> {
    let options = flags.options();
    if let Some(path) = &flags.report {
        // Before the measurement, so that a wrong path is reported at once.
        File::create(path).map_err(|error| {
            Exit::Usage(format!("--report {} cannot be created: {error}", path.display()))
        })?;
    }
    let style = ProgressStyle::with_template("{msg:20} {bar:40} {percent} %")
        .expect("the template is a constant that indicatif accepts");
    let bar = ProgressBar::new(PROGRESS_STEPS).with_style(style);
    let mut progress = |step, share: f64| {
        bar.set_message(doing(step));
        bar.set_position((share * PROGRESS_STEPS as f64) as u64);
    };
    let report = wattle::io::probe::probe(&options, interrupt.flag(), &mut progress);
    bar.finish_and_clear();
    let report = report.map_err(|error| match error.kind() {
        ErrorKind::Interrupted if interrupt.requested() => {
            Exit::Interrupted("interrupted while measuring the device".to_owned())
        }
        _ => failed("measuring the device")(error),
    })?;
    let stored = store(&report, &flags.path)?;
    if let Some(path) = &flags.report {
        std::fs::write(path, html(&report, &options))
            .map_err(failed(format_args!("writing {}", path.display())))?;
    }
    print(&match flags.format {
        Format::Text => text(&report, &options) + &stored,
        Format::Json => format!("{}\n", json(&report, &flags.path)),
    })
}

/// Keeps the figures beside the store, if the directory is one. Gives a line that says so.
fn store(report: &ProbeReport, path: &Path) -> Result<String, Exit> {
    if !path.join(DATA_FILE).is_file() {
        return Ok(
            "\nnot stored: the directory holds no store; probe that of a store, and opening \
                   it uses k_r and k_w\n"
                .to_owned(),
        );
    }
    let file = path.join(DEVICE_FILE);
    Directory::open(path)
        .and_then(|directory| DeviceRecord::from(report).write(&directory))
        .map_err(failed(format_args!("writing {}", file.display())))?;
    Ok(format!("\nstored in {}; opening the store uses k_r and k_w\n", file.display()))
}

fn doing(step: ProbeStep) -> String {
    match step {
        ProbeStep::Fill(_) => "writing the file".to_owned(),
        ProbeStep::Reads(depth) => plural(depth as u64, "read") + " at once",
        ProbeStep::Writes(depth) => plural(depth as u64, "write") + " at once",
        ProbeStep::Mixed(depth) => format!("{depth} mixed at once"),
        ProbeStep::Syncs => "syncs".to_owned(),
    }
}

/// The object of `--format json`.
#[derive(Serialize)]
struct Json {
    device: String,
    machine: Machine,
    back_end: &'static str,
    direct: bool,
    file_bytes: u64,
    page_bytes: usize,
    reads: Vec<Point>,
    writes: Vec<Point>,
    mixed_reads: Point,
    mixed_writes: Point,
    asymmetry: f64,
    asymmetry_of_latency: f64,
    k_r: usize,
    k_w: usize,
    sync_p50_us: f64,
}

/// One kind of operation at one queue depth.
#[derive(Serialize)]
struct Point {
    depth: usize,
    iops: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
}

impl From<&ProbePoint> for Point {
    fn from(point: &ProbePoint) -> Self {
        Self {
            depth: point.depth,
            iops: point.per_second,
            p50_us: point.latency.p50_us,
            p99_us: point.latency.p99_us,
            p999_us: point.latency.p999_us,
        }
    }
}

fn json(report: &ProbeReport, directory: &Path) -> String {
    let json = Json {
        device: machine::file_system(directory),
        machine: Machine::this(),
        back_end: report.back_end,
        direct: report.direct,
        file_bytes: report.file_bytes,
        page_bytes: PAGE_SIZE,
        reads: report.reads.iter().map(Point::from).collect(),
        writes: report.writes.iter().map(Point::from).collect(),
        mixed_reads: Point::from(&report.mixed_reads),
        mixed_writes: Point::from(&report.mixed_writes),
        asymmetry: report.alpha,
        asymmetry_of_latency: report.alpha_latency,
        k_r: report.k_r,
        k_w: report.k_w,
        sync_p50_us: report.sync_p50_us,
    };
    serde_json::to_string_pretty(&json).expect("a report consists of plain values")
}

const COLUMNS: [&str; 8] =
    ["queue depth", "reads/s", "MiB/s", "p50 us", "p99 us", "writes/s", "p50 us", "p99 us"];

fn rows(report: &ProbeReport) -> Vec<Vec<String>> {
    let cells = |name: String, read: &ProbePoint, write: &ProbePoint| {
        vec![
            name,
            rate(read.per_second),
            significant(read.per_second * PAGE_SIZE as f64 / f64::from(1 << 20)),
            significant(read.latency.p50_us),
            significant(read.latency.p99_us),
            rate(write.per_second),
            significant(write.latency.p50_us),
            significant(write.latency.p99_us),
        ]
    };
    let pairs = report.reads.iter().zip(&report.writes);
    let mut rows: Vec<_> =
        pairs.map(|(read, write)| cells(read.depth.to_string(), read, write)).collect();
    let mixed = format!("{}, mixed", report.mixed_reads.depth);
    rows.push(cells(mixed, &report.mixed_reads, &report.mixed_writes));
    rows
}

fn facts(report: &ProbeReport, options: &ProbeOptions) -> Vec<(&'static str, String)> {
    let machine = Machine::this();
    let cached = if report.direct { "" } else { " (through the page cache: this is memory)" };
    vec![
        ("device", machine::file_system(&options.directory) + cached),
        ("machine", format!("{}, {}", machine.cpu, machine.kernel)),
        (
            "settings",
            format!(
                "random pages of {} in a file of {}, {} s for each point, seed {}, back end {}",
                bytes(PAGE_SIZE as u64),
                bytes(report.file_bytes),
                options.point_time.as_secs_f64(),
                options.seed,
                report.back_end
            ),
        ),
        (
            "asymmetry",
            format!(
                "{} reads for the price of a write under load; one at a time a write takes {} \
                 times as long as a read",
                significant(report.alpha),
                significant(report.alpha_latency)
            ),
        ),
        ("k_r", format!("{} at once for 95 % of the most", plural(report.k_r as u64, "read"))),
        ("k_w", format!("{} at once for 95 % of the most", plural(report.k_w as u64, "write"))),
        ("sync", format!("{} us after one write (median)", significant(report.sync_p50_us))),
    ]
}

fn text(report: &ProbeReport, options: &ProbeOptions) -> String {
    let facts = facts(report, options);
    let mut text: String =
        facts.iter().map(|(name, value)| format!("{name:<12}{value}\n")).collect();
    let mut lines = vec![COLUMNS.map(str::to_owned).to_vec()];
    lines.extend(rows(report));
    text.push('\n');
    text.push_str(&table("", &lines));
    text
}

fn html(report: &ProbeReport, options: &ProbeOptions) -> String {
    let mut page = Page::new("wattle probe");
    page.facts(&facts(report, options));
    let line = |name: &str, points: &[ProbePoint], value: fn(&ProbePoint) -> f64| {
        Series::new(name, points.iter().map(|point| (point.depth as f64, value(point))).collect())
    };
    let plot = |title: &str, y_label, y_scale, series| Plot {
        title: title.to_owned(),
        x_label: "operations in flight",
        x_scale: Scale::Logarithmic,
        y_label,
        y_scale,
        series,
    };
    let rates = vec![
        line("reads", &report.reads, |point| point.per_second),
        line("writes", &report.writes, |point| point.per_second),
    ];
    let latency = vec![
        line("reads p50", &report.reads, |point| point.latency.p50_us),
        line("reads p99", &report.reads, |point| point.latency.p99_us),
        line("writes p50", &report.writes, |point| point.latency.p50_us),
        line("writes p99", &report.writes, |point| point.latency.p99_us),
    ];
    page.plots(
        "Against queue depth",
        &[
            plot("Operations per second", "operations/s", Scale::Linear, rates),
            plot("Latency", "microseconds", Scale::Logarithmic, latency),
        ],
    );
    page.table("Figures", &COLUMNS, &rows(report));
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle::io::probe::Latency;

    fn example() -> ProbeReport {
        let point = |depth, per_second| ProbePoint {
            depth,
            operations: 10,
            per_second,
            latency: Latency { p50_us: 50.0, p99_us: 90.0, ..Latency::default() },
        };
        ProbeReport {
            back_end: "uring",
            direct: true,
            file_bytes: 1 << 30,
            reads: vec![point(1, 19_500.0), point(32, 81_000.0)],
            writes: vec![point(1, 15_000.0), point(32, 65_000.0)],
            mixed_reads: point(32, 40_000.0),
            mixed_writes: point(32, 33_000.0),
            alpha: 1.3,
            alpha_latency: 0.8,
            k_r: 32,
            k_w: 16,
            sync_p50_us: 3_800.0,
        }
    }

    #[test]
    fn the_text_has_a_line_for_each_depth_and_the_mix() {
        let text = text(&example(), &ProbeOptions::new("/"));
        for part in [
            "1.30 reads for the price of a write",
            "16 writes at once",
            "81,000",
            "32, mixed",
            "40,000",
            "3,800 us after one write",
            "1 GiB",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }

    #[test]
    fn the_json_keys_are_stable() {
        let json: serde_json::Value =
            serde_json::from_str(&json(&example(), Path::new("/"))).unwrap();
        let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
        assert_eq!(
            keys,
            [
                "device",
                "machine",
                "back_end",
                "direct",
                "file_bytes",
                "page_bytes",
                "reads",
                "writes",
                "mixed_reads",
                "mixed_writes",
                "asymmetry",
                "asymmetry_of_latency",
                "k_r",
                "k_w",
                "sync_p50_us"
            ]
        );
        assert_eq!(json["reads"][1]["iops"], 81_000.0);
    }

    #[test]
    fn the_page_has_both_plots() {
        let page = html(&example(), &ProbeOptions::new("/"));
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(!page.contains("NaN") && page.contains("81,000"));
    }
}
