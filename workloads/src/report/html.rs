//! The result of a run as one HTML page with plots. The page loads no other files.

use std::fmt::Write;

use super::plot::{Plot, Scale, Series};
use super::stacked_bars::StackedBars;
use super::svg::{DARK, LIGHT, Paper, escape};
use super::{Report, text};
use crate::driver::measure::Sample;
use crate::histogram::LatencyTotal;

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 1340px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 1.6em; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2em .8em; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.facts td { text-align: left; overflow-wrap: anywhere; }
.facts td:first-child { color: var(--soft); white-space: nowrap; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(560px, 100%), 1fr));
  gap: 1em 2em; }
svg { width: 100%; font: 11px system-ui, sans-serif; }
figure { margin: 0; } figcaption, caption { color: var(--soft); font-size: .85em; }
caption { text-align: left; padding: .4em 0; }
.wide { overflow-x: auto; }
@page { size: A4; margin: 14mm; }
@media print {
  body { max-width: none; margin: 0; padding: 0; font-size: 9pt; }
  .plots { grid-template-columns: 1fr 1fr; gap: 4mm; }
  .wide { overflow-x: visible; } .wide table { font-size: 6.5pt; }
  .wide th, .wide td { padding: .1em .5em; }
  .wide th:first-child, .wide td:first-child { overflow-wrap: anywhere; }
  thead { display: table-header-group; }
  figure, tr, .facts { break-inside: avoid; } h2, caption { break-after: avoid; }
}
";

/// A page with `title`, facts as pairs of a name and a value, tables, and plots.
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// An empty page.
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), body: String::new() }
    }

    /// Adds pairs of a name and a value. Writes to a `String` cannot fail, here and below.
    pub fn facts(&mut self, facts: &[(&str, String)]) {
        self.body.push_str("<table class=\"facts\">\n");
        for (name, value) in facts {
            let (name, value) = (escape(name), escape(value));
            let _ = writeln!(self.body, "<tr><td>{name}</td><td>{value}</td></tr>");
        }
        self.body.push_str("</table>\n");
    }

    /// Adds a heading.
    pub fn heading(&mut self, heading: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", escape(heading));
    }

    /// Adds a table with a heading.
    pub fn table(&mut self, heading: &str, columns: &[&str], rows: &[Vec<String>]) {
        self.heading(heading);
        self.body.push_str("<table>\n<tr>");
        for column in columns {
            let _ = write!(self.body, "<th>{}</th>", escape(column));
        }
        self.body.push_str("</tr>\n");
        for row in rows {
            self.body.push_str("<tr>");
            for cell in row {
                let _ = write!(self.body, "<td>{}</td>", escape(cell));
            }
            self.body.push_str("</tr>\n");
        }
        self.body.push_str("</table>\n");
    }

    /// Adds plots with a heading.
    pub fn plots(&mut self, heading: &str, plots: &[Plot]) {
        self.heading(heading);
        self.body.push_str("<div class=\"plots\">\n");
        for plot in plots {
            let _ = writeln!(self.body, "<div>{}</div>", plot.svg());
        }
        self.body.push_str("</div>\n");
    }

    /// Adds stacked bars with a heading.
    pub fn stacked_bars(&mut self, heading: &str, bars: &StackedBars) {
        self.heading(heading);
        self.body.push_str(&bars.svg());
    }

    /// Adds an element with the contents `html`; `tag` is its name and attributes.
    pub fn element(&mut self, tag: &str, html: &str) {
        let name = tag.split(' ').next().unwrap_or(tag);
        let _ = writeln!(self.body, "<{tag}>\n{html}</{name}>");
    }

    /// Adds a table with a caption, whose header is repeated on each page in print.
    pub fn captioned_table(&mut self, caption: &str, columns: &[&str], rows: &[Vec<String>]) {
        let line = |tag: &str, cells: &mut dyn Iterator<Item = &str>| {
            let cells = cells.map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)));
            format!("<tr>{}</tr>\n", cells.collect::<String>())
        };
        let mut html = format!("<table>\n<caption>{}</caption>\n<thead>", escape(caption));
        html += &line("th", &mut columns.iter().copied());
        html += "</thead>\n";
        rows.iter().for_each(|row| html += &line("td", &mut row.iter().map(String::as_str)));
        self.element("div class=\"wide\"", &(html + "</table>\n"));
    }

    /// Adds a drawing, which is an `<svg>` element.
    pub fn drawing(&mut self, svg: &str) {
        let _ = writeln!(self.body, "<div class=\"plots\"><div>{svg}</div></div>");
    }

    /// The page.
    pub fn finish(self) -> String {
        let title = escape(&self.title);
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
             <style>{}\n@media screen and (prefers-color-scheme: dark) {{\n{}\n}}{STYLE}{}\
             </style>\n</head>\n<body>\n<h1>{title}</h1>\n{}</body>\n</html>\n",
            variables(LIGHT),
            variables(DARK),
            super::style::css(),
            self.body
        )
    }
}

fn variables(paper: Paper) -> String {
    let Paper { page, ink, soft, rule } = paper;
    format!(":root {{ --ink: {ink}; --soft: {soft}; --rule: {rule}; --page: {page}; }}")
}

/// The page of a run.
pub fn report(report: &Report) -> String {
    let mut page = Page::new(&format!("wattle {}", report.subcommand));
    page.facts(&text::summary(report));
    page.plots("Over time", &over_time(&report.details.samples));
    page.plots("Latency", &[by_quantile(&report.details.latencies)]);
    let columns = ["operation", "count", "mean", "p50", "p95", "p99", "p99.9", "max"];
    page.table("Latency in microseconds", &columns, &text::latency_rows(report));
    let columns = ["counter", "total", "per second", "per operation"];
    page.table("Buffer pool", &columns, &text::buffer_rows(report));
    let columns = ["log", "total", "per second", "per operation"];
    page.table("Log", &columns, &text::log_rows(report));
    page.facts(&[("commits", text::commits(report))]);
    page.heading("Process and checks");
    page.facts(&text::outcome(report));
    page.finish()
}

fn plot(title: &str, y_label: &'static str, y_scale: Scale, series: Vec<Series>) -> Plot {
    let (title, x_label, x_scale) = (title.to_owned(), "seconds", Scale::Linear);
    Plot { title, x_label, x_scale, y_label, y_scale, series }
}

fn line(samples: &[Sample], name: &str, value: impl Fn(&Sample) -> f64) -> Series {
    let points = samples.iter().map(|sample| (sample.at_seconds, value(sample))).collect();
    Series::new(name, points)
}

fn over_time(samples: &[Sample]) -> Vec<Plot> {
    let line = |name: &str, value: &dyn Fn(&Sample) -> f64| line(samples, name, value);
    let mut plots = vec![
        plot(
            "Throughput",
            "operations/s",
            Scale::Linear,
            vec![line("operations", &Sample::throughput)],
        ),
        plot(
            "Page faults and pages written",
            "pages/s",
            Scale::Linear,
            vec![
                line("faults", &|sample| sample.rate(sample.counters.buffer.faults)),
                line("written", &|sample| sample.rate(sample.counters.buffer.pages_written)),
            ],
        ),
        plot(
            "Evictions",
            "pages/s",
            Scale::Linear,
            vec![
                line("all", &|sample| sample.rate(sample.counters.buffer.evictions)),
                line("dirty", &|sample| sample.rate(sample.counters.buffer.evictions_dirty)),
            ],
        ),
        plot(
            "Latency of all operations",
            "microseconds",
            Scale::Logarithmic,
            vec![
                line("p50", &|sample| sample.latency.p50),
                line("p99", &|sample| sample.latency.p99),
                line("p99.9", &|sample| sample.latency.p999),
                line("max", &|sample| sample.latency.max),
            ],
        ),
    ];
    plots.push(plot(
        "Log",
        "per second",
        Scale::Logarithmic,
        vec![
            line("commits", &|sample| sample.rate(sample.counters.log.commits)),
            line("flushes", &|sample| sample.rate(sample.counters.log.flushes)),
            line("syncs", &|sample| sample.rate(sample.counters.log.syncs)),
        ],
    ));
    plots.extend(of_evictors(samples));
    plots
}

/// The plots of the counters of evictors.
fn of_evictors(samples: &[Sample]) -> Vec<Plot> {
    let line = |name: &str, value: &dyn Fn(&Sample) -> f64| line(samples, name, value);
    vec![
        plot(
            "Swips that became hot and cold",
            "swips/s",
            Scale::Linear,
            vec![
                line("hot", &|sample| sample.rate(sample.counters.buffer.evictor.swizzles)),
                line("cold", &|sample| sample.rate(sample.counters.buffer.evictor.unswizzles)),
            ],
        ),
        plot(
            "Free frames and queued writes",
            "pages",
            Scale::Linear,
            vec![
                line("free", &|sample| sample.counters.buffer.free_frames as f64),
                line("queued", &|sample| sample.counters.buffer.evictor.queued_writes as f64),
            ],
        ),
        plot(
            "Candidates for each eviction",
            "pages",
            Scale::Linear,
            vec![line("candidates", &|sample| {
                let buffer = &sample.counters.buffer;
                buffer.evictor.candidates_per_eviction(buffer.evictions)
            })],
        ),
        plot("Pages that stayed, by reason", "pages/s", Scale::Logarithmic, refused(samples)),
        plot(
            "Threshold of eviction",
            "value of a page",
            Scale::Linear,
            vec![line("mean", &|sample| sample.counters.buffer.evictor.threshold)],
        ),
        plot(
            "Epoch",
            "epochs",
            Scale::Linear,
            vec![line("epoch", &|sample| sample.counters.buffer.evictor.epoch as f64)],
        ),
    ]
}

/// A line for each reason for which a page stayed.
fn refused(samples: &[Sample]) -> Vec<Series> {
    let counts = |sample: &Sample| sample.counters.buffer.evictor.refused.reasons();
    let names = counts(&Sample::default()).map(|(why, _)| why);
    let line = |(index, why): (usize, &str)| {
        line(samples, why, |sample| sample.rate(counts(sample)[index].1))
    };
    let lines = names.into_iter().enumerate().map(line);
    lines.filter(|line| line.points.iter().any(|(_, rate)| *rate > 0.0)).collect()
}

/// Latency by quantile.
fn by_quantile(latencies: &[(&'static str, LatencyTotal)]) -> Plot {
    let line = |(kind, total): &(&'static str, LatencyTotal)| {
        // The last quantile is the one that only a single operation exceeds.
        let nines = (total.count().max(1) as f64).log10();
        let steps = 0..=(nines * 20.0) as u32;
        let quantiles = steps.map(|step| 1.0 - 10f64.powf(-f64::from(step) / 20.0));
        let points = quantiles.map(|quantile| (quantile, total.quantile_us(quantile))).collect();
        Series::new(*kind, points)
    };
    Plot {
        title: "Latency by share of operations".to_owned(),
        x_label: "share of operations that took no longer",
        x_scale: Scale::Nines,
        y_label: "microseconds",
        y_scale: Scale::Logarithmic,
        series: latencies.iter().filter(|(_, total)| total.count() > 0).map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = report(&super::super::tests::example());
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<svg").count(), 12);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(page.contains("--records 1000 &lt;&amp;&gt;"));
        // The name of SVG's elements is an address that nothing loads.
        let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for outside in ["http:", "https:", "src=", "href=", "NaN"] {
            assert!(!page.contains(outside), "{outside}");
        }
        for part in ["<h2>Log</h2>", "flushes", "commits per flush", "pool : data", "snapshot"] {
            assert!(page.contains(part), "{part}");
        }
    }
}
