//! `wattle probe`: what the device under a directory can do.
//!
//! The write-back of the buffer pool keeps several page writes in flight. How many are worth it
//! depends on the device: `k_w` is where more of them only wait for each other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::common::{FileBackend, Format};
use super::exit::{Exit, failed};
use super::units;
use crate::driver::backend::{Backend, ProbePlan, ProbePoint, ProbeReport};
use crate::machine::{self, Machine};
use crate::report::figures::{bytes, rate, significant, table};
use crate::report::html::Page;
use crate::report::plot::{Plot, Scale, Series};

const MIN_FILE_BYTES: u64 = 1 << 20;

/// Flags of `probe`.
#[derive(Args, Debug)]
pub struct ProbeFlags {
    /// Directory on the device; a temporary file is written there and removed.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,

    /// Size of the temporary file, at least 1MiB. A small one may fit into a cache of the device.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = units::some_size)]
    pub size: u64,

    /// How long each queue depth is measured, for reads and again for writes.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::some_time)]
    pub duration: Duration,

    /// Queue depths, 1 to 4096, with commas between.
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128,256", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub depths: Vec<u64>,

    /// How to do the reads and writes.
    #[arg(long, value_enum, default_value_t = FileBackend::Uring)]
    pub io: FileBackend,

    /// Which pages are read and written derives from it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// How to print the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// File for a page with the results and plots.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

impl ProbeFlags {
    /// Refuses what cannot be measured.
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
}

/// Measures the device.
pub fn probe<B: Backend>(flags: &ProbeFlags) -> Result<(), Exit> {
    flags.check()?;
    let mut depths: Vec<usize> = flags.depths.iter().map(|depth| *depth as usize).collect();
    depths.sort_unstable();
    depths.dedup();
    let plan = ProbePlan {
        file_bytes: flags.size,
        seconds: flags.duration.as_secs_f64(),
        depths,
        io: flags.io.into(),
        seed: flags.seed,
    };
    let style = ProgressStyle::with_template("probing {bar:40} {pos} of {len} points")
        .expect("the template is a constant that indicatif accepts");
    let bar = ProgressBar::new(2 * plan.depths.len() as u64).with_style(style);
    let report = B::probe(&flags.path, &plan, &mut |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let report = report.map_err(failed("measuring the device"))?;
    if let Some(path) = &flags.report {
        std::fs::write(path, html(&report, &plan, &flags.path))
            .map_err(failed(format_args!("writing {}", path.display())))?;
    }
    match flags.format {
        Format::Text => print!("{}", text(&report, &plan, &flags.path)),
        Format::Json => println!(
            "{}",
            serde_json::to_string_pretty(&report).expect("a report consists of plain values")
        ),
    }
    Ok(())
}

const COLUMNS: [&str; 8] =
    ["queue depth", "reads/s", "MiB/s", "p50 us", "p99 us", "writes/s", "p50 us", "p99 us"];

fn rows(report: &ProbeReport) -> Vec<Vec<String>> {
    let cells = |(read, write): (&ProbePoint, &ProbePoint)| {
        vec![
            read.depth.to_string(),
            rate(read.iops),
            significant(read.iops * report.page_bytes as f64 / f64::from(1 << 20)),
            significant(read.p50_us),
            significant(read.p99_us),
            rate(write.iops),
            significant(write.p50_us),
            significant(write.p99_us),
        ]
    };
    report.reads.iter().zip(&report.writes).map(cells).collect()
}

fn facts(report: &ProbeReport, plan: &ProbePlan, path: &Path) -> Vec<(&'static str, String)> {
    let machine = Machine::this();
    vec![
        ("device", machine::file_system(path)),
        ("machine", format!("{}, {}", machine.cpu, machine.kernel)),
        (
            "settings",
            format!(
                "random pages of {} in a file of {}, {} s for each point, seed {}",
                bytes(report.page_bytes),
                bytes(plan.file_bytes),
                plan.seconds,
                plan.seed
            ),
        ),
        (
            "asymmetry",
            format!("a write takes {} times as long as a read", significant(report.asymmetry)),
        ),
        ("k_r", format!("{} reads at once", report.k_r)),
        ("k_w", format!("{} writes at once", report.k_w)),
    ]
}

fn text(report: &ProbeReport, plan: &ProbePlan, path: &Path) -> String {
    let facts = facts(report, plan, path);
    let mut text: String =
        facts.iter().map(|(name, value)| format!("{name:<12}{value}\n")).collect();
    let mut lines = vec![COLUMNS.map(str::to_owned).to_vec()];
    lines.extend(rows(report));
    text.push('\n');
    text.push_str(&table("", &lines));
    text
}

fn html(report: &ProbeReport, plan: &ProbePlan, path: &Path) -> String {
    let mut page = Page::new("wattle probe");
    page.facts(&facts(report, plan, path));
    let line = |name: &str, points: &[ProbePoint], value: fn(&ProbePoint) -> f64| Series {
        name: name.to_owned(),
        points: points.iter().map(|point| (point.depth as f64, value(point))).collect(),
    };
    let plot = |title: &str, y_label, y_scale, series| Plot {
        title: title.to_owned(),
        x_label: "operations in flight",
        x_scale: Scale::Logarithmic,
        y_label,
        y_scale,
        series,
    };
    let iops = vec![
        line("reads", &report.reads, |point| point.iops),
        line("writes", &report.writes, |point| point.iops),
    ];
    let latency = vec![
        line("reads p50", &report.reads, |point| point.p50_us),
        line("reads p99", &report.reads, |point| point.p99_us),
        line("writes p50", &report.writes, |point| point.p50_us),
        line("writes p99", &report.writes, |point| point.p99_us),
    ];
    page.plots(
        "Against queue depth",
        &[
            plot("Operations per second", "operations/s", Scale::Linear, iops),
            plot("Latency", "microseconds", Scale::Logarithmic, latency),
        ],
    );
    page.table("Figures", &COLUMNS, &rows(report));
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (ProbeReport, ProbePlan) {
        let point = |depth, iops| ProbePoint { depth, iops, p50_us: 50.0, p99_us: 90.0 };
        let report = ProbeReport {
            page_bytes: 4096,
            reads: vec![point(1, 19_500.0), point(32, 81_000.0)],
            writes: vec![point(1, 15_000.0), point(32, 65_000.0)],
            asymmetry: 1.3,
            k_r: 32,
            k_w: 16,
        };
        let plan = ProbePlan {
            file_bytes: 1 << 30,
            seconds: 1.0,
            depths: vec![1, 32],
            io: FileBackend::Uring.into(),
            seed: 1,
        };
        (report, plan)
    }

    #[test]
    fn the_text_has_a_line_for_each_depth() {
        let (report, plan) = example();
        let text = text(&report, &plan, Path::new("/"));
        assert!(text.contains("a write takes 1.30 times as long as a read"), "{text}");
        assert!(text.contains("16 writes at once") && text.contains("81,000"), "{text}");
    }

    #[test]
    fn the_page_has_both_plots() {
        let (report, plan) = example();
        let page = html(&report, &plan, Path::new("/"));
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(!page.contains("NaN") && page.contains("81,000"));
    }
}
