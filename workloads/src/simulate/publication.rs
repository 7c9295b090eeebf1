//! Results of replays as a report for publication: the figures of the papers for any replays, in an
//! HTML page and as files.
//!
//! A chart has at most eight policies; tables have all of them. Each caption names the trace, the
//! sizes, the seeds, the version and the machine. Error bars are 95 % confidence intervals of
//! `--repeat`.

mod plots;
mod relative;
mod tables;

use super::replay::Device;
use super::table::Row;
use crate::machine::Machine;
use crate::report::chart::{Chart, Drawing, MeanBars};
use crate::report::document::{Cell, Document};
use crate::report::figures::{bytes, plural, significant};
use relative::{Measure, Relative, distinct, drawn, key, relative};

/// Costs of reads and writes in FOR's Table 5, in microseconds.
const COSTS: [(f64, f64); 2] = [(100.0, 800.0), (245.0, 9663.0)];

/// The origin of the results, for captions.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The first seed.
    pub seed: u64,
    /// Replays with seeds from the first one on.
    pub replays: u64,
    /// Share of the pages that cannot leave.
    pub pinned: f64,
    /// The machine.
    pub machine: Machine,
}

impl Origin {
    /// Seeds, version and machine, as sentences.
    fn text(&self) -> String {
        let seeds = match self.replays {
            1 => format!("Seed {}, one replay, so no error bars.", self.seed),
            replays => format!(
                "Means of {replays} replays with seeds {} to {}; error bars are 95 % confidence \
                 intervals.",
                self.seed,
                self.seed.wrapping_add(replays - 1)
            ),
        };
        let pinned = match self.pinned {
            0.0 => String::new(),
            share => format!(" {} % of the pages cannot leave.", 100.0 * share),
        };
        let version = env!("CARGO_PKG_VERSION");
        format!("{seeds}{pinned} Wattle {version}; {}.", machine(&self.machine))
    }
}

/// The machine in a line.
pub fn machine(machine: &Machine) -> String {
    let cpu = if machine.cpu.is_empty() { "unknown processor" } else { &machine.cpu };
    let cores = plural(machine.cores as u64, "core");
    format!("{cpu}, {cores}, {} memory, {}", bytes(machine.memory_bytes), machine.kernel)
}

/// The report. Misses are relative to those of `base`, or to the first policy if `base` was not
/// replayed.
pub fn report(
    facts: &[(&str, String)],
    rows: &[Row],
    device: &Device,
    base: &str,
    origin: &Origin,
) -> Document {
    let mut document = Document::new("wattle simulate");
    document.facts(facts);
    if rows.is_empty() {
        return document;
    }
    let all = rows;
    let of_policies: Vec<Row> = rows.iter().filter(|row| !row.studied).cloned().collect();
    let rows = if of_policies.is_empty() { rows } else { &of_policies };
    let policies = distinct(rows.iter().map(|row| &*row.policy));
    let base = if policies.contains(&base) { base } else { policies[0] };
    let relative = relative(all, base);
    let drawn = drawn(&policies, &relative, base);
    let shown = match drawn.len() < policies.len() {
        true => format!(
            " Drawn are {base}, OPT if it was replayed, and the others with the fewest misses on \
             average: {} of {} policies; the tables have all.",
            drawn.len(),
            policies.len()
        ),
        false => String::new(),
    };
    let provenance = origin.text();
    let parts =
        Parts { all, rows, policies: &policies, base, relative: &relative, drawn: &drawn, device };
    parts.means(&mut document, &shown, &provenance);
    for trace in distinct(rows.iter().map(|row| &*row.trace)) {
        parts.trace(&mut document, trace, &shown, &provenance);
    }
    parts.studies(&mut document, &provenance);
    document.heading("All policies");
    tables::bounds(&mut document, rows);
    tables::resistances(&mut document, rows);
    tables::complexities(&mut document, rows);
    tables::replays(&mut document, all, device, &provenance);
    document
}

struct Parts<'a> {
    /// Rows of parameter studies included.
    all: &'a [Row],
    rows: &'a [Row],
    policies: &'a [&'a str],
    base: &'a str,
    relative: &'a Relative<'a>,
    drawn: &'a plots::Drawn<'a>,
    device: &'a Device,
}

/// A figure of a document.
fn figure(name: String, drawing: Drawing, caption: String) -> (String, Drawing, String) {
    (name, drawing, caption)
}

impl Parts<'_> {
    /// Means over all traces and caches.
    fn means(&self, document: &mut Document, shown: &str, provenance: &str) {
        document.heading(&format!("Misses and writes relative to {}", self.base));
        let tasks = self.rows.chunk_by(Row::is_of_same_task).count() as u64;
        let traces = distinct(self.rows.iter().map(|row| &*row.trace));
        let over =
            format!("over {} of traces with caches: {}", plural(tasks, "pair"), traces.join(", "));
        let of = |which: usize| {
            let what = ["misses", "writes"][which];
            let bars: MeanBars = plots::means(self.relative, self.drawn, which, self.base)?;
            let caption = format!(
                "Mean of {what} relative to {} (as WATT, Figure 1) {over}.{shown} {provenance}",
                self.base
            );
            Some(figure(format!("mean-{what}"), bars.draw(), caption))
        };
        document.figures(&(0..2).filter_map(of).collect::<Vec<_>>());
        let caption =
            format!("Means of misses and writes relative to {} {over}. {provenance}", self.base);
        tables::means(document, self.relative, self.policies, &caption);
    }

    /// Curves, trade-offs and costs on one trace.
    fn trace(&self, document: &mut Document, trace: &str, shown: &str, provenance: &str) {
        document.heading(trace);
        let of = |rows: &[Row]| -> Vec<Row> {
            rows.iter().filter(|row| row.trace == trace).cloned().collect()
        };
        let (all, rows) = (of(self.all), of(self.rows));
        let about = format!(
            "{trace} ({}, {})",
            plural(rows[0].counts.accesses, "access"),
            plural(rows[0].pages as u64, "page")
        );
        let curves: Chart = plots::miss_ratios(&rows, trace, self.drawn);
        let caption = format!("Miss ratio by cache size: {about}.{shown} {provenance}");
        let mut figures = vec![figure(format!("misses-{trace}"), curves.draw(), caption)];
        for group in all.chunk_by(Row::is_of_same_task) {
            let Some(chart) = plots::trade_off(group, self.drawn) else { continue };
            let pages = group[0].cache_pages;
            let caption = format!(
                "Reads and writes (as WATT, Figure 2): {about} with a cache of {} ({:.1} %). \
                 Numbers beside points are values of the parameter of a line.{shown} {provenance}",
                plural(pages as u64, "page"),
                100.0 * pages as f64 / group[0].pages as f64
            );
            figures.push(figure(format!("trade-off-{trace}-{pages}"), chart.draw(), caption));
        }
        document.figures(&figures);
        let mut table = |name: &str, what: &str, cell: &dyn Fn(&Row) -> Cell| {
            let caption = format!("{what}: {about}. {provenance}");
            let named = (&*format!("{name}-{trace}"), &*caption);
            tables::by_cache(document, named, &rows, self.policies, cell);
        };
        table("miss-ratio", "Miss ratio", &|row| {
            let ratio = 1.0 - row.counts.hit_ratio();
            Cell::number(ratio, format!("{ratio:.4}"))
        });
        let (relative, base) = (self.relative, self.base);
        table("relative-misses", &format!("Misses relative to {base}"), &|row| {
            relative.get(&key(row)).map_or_else(Cell::default, |[Measure { value, .. }, _]| {
                Cell::number(*value, format!("{value:.3}"))
            })
        });
        let given = (self.device.read_us, self.device.write_us);
        let others = COSTS.into_iter().filter(|costs| *costs != given);
        for (read_us, write_us) in std::iter::once(given).chain(others) {
            let device = Device { read_us, write_us, ..*self.device };
            let what = format!("I/O cost in s at {read_us} us a read and {write_us} us a write");
            table(&format!("cost-{read_us}-{write_us}"), &what, &|row| {
                let seconds = row.counts.cost(&device) / 1e6;
                Cell::number(seconds, significant(seconds))
            });
        }
        let what = format!(
            "Seconds of a device with asymmetry {} and concurrency {}",
            self.device.asymmetry, self.device.concurrency
        );
        table("device", &what, &|row| {
            let seconds = row.counts.device_seconds(self.device);
            Cell::number(seconds, significant(seconds))
        });
    }

    /// Effects of parameters, drawn and as tables.
    fn studies(&self, document: &mut Document, provenance: &str) {
        let studies = plots::studies(self.all, self.relative, self.base);
        if studies.is_empty() {
            return;
        }
        document.heading("Effects of parameters (WATT, Figures 3 to 8)");
        let mut lines = Vec::new();
        let mut figures = Vec::new();
        for (policy, parameter, of_writes, chart) in &studies {
            let what = if *of_writes { "writes" } else { "misses" };
            for (curve, point) in
                chart.curves.iter().flat_map(|curve| curve.points.iter().map(move |p| (curve, p)))
            {
                let number = |value: f64| Cell::number(value, format!("{value:.4}"));
                let names = [policy, parameter, what].map(Cell::text);
                let names = names.into_iter().chain([Cell::text(&curve.name)]);
                let value = Cell::number(point.x, point.x.to_string());
                lines.push(names.chain([value, number(point.y), number(point.y_half)]).collect());
            }
            let caption =
                format!("{policy}: {what} relative to {} by {parameter}. {provenance}", self.base);
            figures.push(figure(
                format!("study-{policy}-{parameter}-{what}"),
                chart.draw(),
                caption,
            ));
        }
        document.figures(&figures);
        let columns = ["policy", "parameter", "of", "trace", "value", "relative", "+-"];
        let caption = format!("Effects of parameters relative to {}. {provenance}", self.base);
        document.table("parameters", &caption, &columns, &lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::bound::bound;
    use crate::simulate::experiment::{CacheSize, Run, combine, run_all};
    use crate::simulate::generate::parse;
    use crate::simulate::registry::Spec;
    use crate::simulate::repeat::summarise;
    use crate::simulate::study::resistance;

    fn rows_of(texts: &[&str], studied: &str) -> Vec<Row> {
        let traces = [
            parse("dynZipfRW:pages=300,accesses=5000").unwrap(),
            parse("MS:pages=300,accesses=4000").unwrap(),
        ];
        let specs: Vec<Spec> = texts.iter().map(|text| Spec::parse(text).unwrap()).collect();
        let sizes = [CacheSize::Pages(20), CacheSize::Pages(100)];
        let runs = combine(&traces, &sizes, &specs, 1).unwrap();
        let device = Device::default();
        let results = [1, 2].map(|seed| {
            let seeded: Vec<Run> = runs.iter().map(|run| Run { seed, ..*run }).collect();
            run_all(&seeded, 1, device, &|_| true)
        });
        let row = |(index, run): (usize, &Run)| {
            // It is the same for all policies, and takes long.
            let bounded = !studied.is_empty() && run.spec.text == texts[0];
            let samples = [results[0][index].unwrap(), results[1][index].unwrap()];
            let (counts, spread) = summarise(&samples, &device);
            Row {
                trace: run.trace.name().to_owned(),
                pages: run.trace.pages(),
                cache_pages: run.cache_pages,
                policy: run.spec.text.clone(),
                counts,
                relative: None,
                complexity: run.spec.complexity(),
                bound: bounded.then(|| bound(run.trace, run.cache_pages, &device)),
                resistance: resistance(run.trace, run.cache_pages, run.spec, device, 1),
                studied: run.spec.text == studied,
                spread,
            }
        };
        runs.iter().enumerate().map(row).collect()
    }

    fn written(rows: &[Row]) -> (tempfile::TempDir, String) {
        let cpu = "a processor of this test".to_owned();
        let origin = Origin {
            seed: 1,
            replays: 2,
            pinned: 0.0,
            machine: Machine { cpu, ..Machine::default() },
        };
        let facts = [("command", "wattle simulate".to_owned())];
        let document = report(&facts, rows, &Device::default(), "watt", &origin);
        let folder = tempfile::tempdir().unwrap();
        document.write_files(folder.path()).unwrap();
        (folder, document.html())
    }

    #[test]
    fn the_report_has_every_part_and_loads_nothing() {
        let texts =
            ["watt", "lru", "opt", "watt:write_weight=0", "watt:write_weight=8", "ace(lru):nw=8"];
        let rows = rows_of(&texts, "watt:write_weight=8");
        assert!(rows.iter().all(|row| row.resistance.is_some()));
        let (_folder, html) = written(&rows);
        for part in [
            "Miss ratio by cache size",
            "Misses and writes relative to watt",
            "Mean of misses relative to watt",
            "Reads and writes (as WATT, Figure 2)",
            "watt: writes relative to watt by write_weight",
            "I/O cost in s at 100 us",
            "I/O cost in s at 245 us",
            "Least I/O cost",
            "O(cache log cache) at worst for a dirty victim",
            "asymmetry 8 and concurrency 8",
            "Resistance to a scan",
            "All replays",
            "ace(lru):nw=8",
            "with a cache of 20 pages (6.7 %)",
            "5,000 accesses",
            "seeds 1 to 2",
            "a processor of this test",
            env!("CARGO_PKG_VERSION"),
            "size: A4",
        ] {
            assert!(html.contains(part), "{part}");
        }
        // Two means; one curve and two trade-offs for each trace; misses and writes of one study.
        assert_eq!(html.matches("<svg").count(), 2 + 2 * 3 + 2);
        assert_eq!(html.matches("<svg").count(), html.matches("<figcaption>Figure ").count());
        for outside in ["http:", "https:", "src=", "href=", "NaN"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_chart_has_at_most_eight_policies_and_each_the_same_style_in_all() {
        let texts =
            ["random", "fifo", "lru", "mru", "clock", "lfu", "2q", "arc", "watt", "sieve", "opt"];
        let rows = rows_of(&texts, "");
        let (folder, html) = written(&rows);
        let mut styles = std::collections::BTreeMap::<String, String>::new();
        let mut charts = 0;
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !name.ends_with(".svg") {
                continue;
            }
            charts += 1;
            let svg = std::fs::read_to_string(&path).unwrap();
            let titled = svg.split("<g class=\"").skip(1).filter_map(|group| {
                let style = group.split('"').next()?;
                let title = group.split("</g>").next()?.split("<title>").nth(1)?;
                Some((title.split('<').next()?.to_owned(), style.to_owned()))
            });
            let titled: Vec<_> = titled.collect();
            assert!((1..=8).contains(&titled.len()), "{name}: {titled:?}");
            for (policy, style) in titled {
                let known = styles.entry(policy).or_insert(style.clone());
                assert_eq!(*known, style, "{name}");
            }
        }
        assert_eq!((charts, styles.len()), (2 + 2 * 3, 8));
        assert!(styles.contains_key("watt") && styles.contains_key("opt"));
        // The policies that are not drawn are in the tables.
        assert!(html.contains("8 of 11 policies") && html.contains("<td>mru</td>"));
        let index = std::fs::read_to_string(folder.path().join("index.csv")).unwrap();
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(index.lines().count(), files);
        let means = index.lines().find(|line| line.contains("-means.csv")).unwrap();
        let means = folder.path().join(means.split(',').next().unwrap());
        let means = std::fs::read_to_string(means).unwrap();
        assert_eq!(means.lines().count(), 1 + texts.len());
        assert!(means.lines().any(|line| line.starts_with("watt,1,0,4,1,0,4")), "{means}");
    }
}
