//! Results of replays as one HTML page: miss-ratio curves, misses relative to a policy, read/write
//! trade-off, I/O cost, effects of parameters, and resistance to scans: the figures of the papers,
//! for any replays.

use std::collections::{BTreeMap, BTreeSet};

use super::ace::Ace;
use super::generate::with_parasite;
use super::policy::Access;
use super::registry::Spec;
use super::replay::{Device, Replay};
use super::table::{Resistance, Row};
use super::trace::Trace;
use crate::report::figures::{count, plural, significant};
use crate::report::html::Page;
use crate::report::plot::{Plot, Scale, Series};

/// Lines of one plot: a legend has no room for more.
const LINES: usize = 6;

/// Accesses of a trace that the parasite test replays.
const LOAD: usize = 200_000;

/// The parameters that the figures of the WATT paper vary, one at a time: sample size (Figure 3),
/// length of the access log (4), epochs per replacement (5), dampening (6), length of the write log
/// (7) and write weight (8).
const STUDIES: &[(&str, &[&str])] = &[
    ("sample", &["1", "2", "4", "16", "32", "64"]),
    ("accesses", &["1", "2", "4", "16"]),
    ("epochs", &["1", "2", "8", "16", "64"]),
    ("dampening", &["0", "0.05", "0.25", "0.5", "1"]),
    ("writes", &["0", "1", "2", "8"]),
    ("write_weight", &["0", "1", "2", "8", "16"]),
];

/// The policies of the parameter studies.
pub fn studied() -> Vec<String> {
    let forms = |(name, values): &(&str, &'static [&str])| {
        let name = (*name).to_owned();
        values.iter().map(move |value| format!("watt:{name}={value}"))
    };
    STUDIES.iter().flat_map(forms).collect()
}

/// Measures the parasite test of FBARC (section 5.4) on the beginning of a trace; `None` if it is
/// too short.
pub fn resistance(
    trace: &Trace,
    cache_pages: usize,
    spec: &Spec,
    device: Device,
    seed: u64,
) -> Option<Resistance> {
    let before =
        trace.len().min(LOAD).checked_sub(cache_pages).filter(|before| *before > cache_pages)?;
    let rate = |parasite| {
        let load = with_parasite(trace, before, cache_pages, parasite);
        let mut policy = spec.build(&load, cache_pages, seed, device);
        let mut replay = Replay::new(&load, cache_pages, &mut *policy);
        if let Some(settings) = spec.ace {
            replay = replay.with_ace(Ace::new(settings, device.concurrency, &load));
        }
        let accesses: Vec<Access> = load.accesses().collect();
        let (first, last) = accesses.split_at(load.len() - cache_pages);
        first.iter().for_each(|access| replay.access(*access));
        let misses = replay.counts.misses;
        last.iter().for_each(|access| replay.access(*access));
        100.0 * (1.0 - (replay.counts.misses - misses) as f64 / cache_pages as f64)
    };
    let without = rate(None);
    Some(Resistance {
        rate: without,
        lost: [Some(false), Some(true)].map(|parasite| without - rate(parasite)),
    })
}

/// Costs of reads and writes in FOR's Table 5, in microseconds.
const COSTS: [(f64, f64); 2] = [(100.0, 800.0), (245.0, 9663.0)];

/// The page. Misses are relative to those of `base`, or to the first policy if `base` was not
/// replayed.
pub fn page(facts: &[(&str, String)], rows: &[Row], device: &Device, base: &str) -> String {
    let mut page = Page::new("wattle simulate");
    page.facts(facts);
    if rows.is_empty() {
        return page.finish();
    }
    let all = rows;
    let of_policies: Vec<Row> = rows.iter().filter(|row| !row.studied).cloned().collect();
    let rows = if of_policies.is_empty() { rows } else { &of_policies };
    let policies = distinct(rows.iter().map(|row| &*row.policy));
    let base = if policies.contains(&base) { base } else { policies[0] };
    let traces = distinct(rows.iter().map(|row| &*row.trace));
    let curves: Vec<Plot> =
        traces.iter().flat_map(|trace| miss_ratios(rows, trace, &policies)).collect();
    page.plots("Miss ratio by cache size", &curves);
    let relative = relative(all, base);
    let title = format!("Misses relative to {base} (WATT, Figure 1)");
    matrix(&mut page, &title, rows, &policies, |row| {
        relative.get(&key(row)).map(|relative| format!("{:.3}", relative[0]))
    });
    let trade_offs = trade_offs(all);
    if !trade_offs.is_empty() {
        page.plots("Reads and writes (WATT, Figure 2)", &trade_offs);
    }
    let studies = studies(all, &relative, base);
    if !studies.is_empty() {
        page.plots("Effects of parameters (WATT, Figures 3 to 8)", &studies);
    }
    let given = (device.read_us, device.write_us);
    let others = COSTS.into_iter().filter(|costs| *costs != given);
    for (read_us, write_us) in std::iter::once(given).chain(others) {
        let title = format!("I/O cost in seconds at {read_us} us a read and {write_us} us a write");
        let device = Device { read_us, write_us, ..*device };
        matrix(&mut page, &title, rows, &policies, |row| {
            Some(significant(row.counts.cost(&device) / 1e6))
        });
    }
    let title = format!(
        "Seconds of a device with asymmetry {} and concurrency {}",
        device.asymmetry, device.concurrency
    );
    matrix(&mut page, &title, rows, &policies, |row| {
        Some(significant(row.counts.device_seconds(device)))
    });
    bounds(&mut page, rows);
    resistances(&mut page, rows);
    let cells = |row: &Row| {
        vec![
            name(row),
            count(row.counts.misses),
            format!("{:.4}", row.counts.hit_ratio()),
            count(row.counts.reads),
            count(row.counts.all_writes()),
            count(row.counts.writes_at_end),
            format!("{:.0}", row.counts.cpu_ns_per_access()),
            format!("{}", row.counts.bytes_per_page),
            row.complexity.clone(),
        ]
    };
    let columns =
        ["", "misses", "hit ratio", "reads", "writes", "at end", "ns/access", "bytes/page", "time"];
    page.table("All replays", &columns, &all.iter().map(cells).collect::<Vec<_>>());
    page.finish()
}

fn name(row: &Row) -> String {
    format!("{}, {}, {}", row.trace, plural(row.cache_pages as u64, "page"), row.policy)
}

/// The lower bounds of the cost, if they were asked for.
fn bounds(page: &mut Page, rows: &[Row]) {
    let seconds = |cost: f64| significant(cost / 1e6);
    let line = |group: &[Row]| {
        let bound = group[0].bound?;
        let name = format!("{}, {}", group[0].trace, plural(group[0].cache_pages as u64, "page"));
        Some(vec![name, seconds(bound.lower), bound.feasible.map_or(String::new(), seconds)])
    };
    let lines: Vec<Vec<String>> = rows.chunk_by(Row::is_of_same_task).filter_map(line).collect();
    if !lines.is_empty() {
        let columns = ["", "no policy costs less", "one that knows the future"];
        page.table("Least I/O cost in seconds", &columns, &lines);
    }
}

/// The hit rate that each policy loses to a scan, if it was tested.
fn resistances(page: &mut Page, rows: &[Row]) {
    let cells = |row: &Row| {
        let Resistance { rate, lost } = row.resistance?;
        let points = [rate, lost[0], lost[1]].map(|points| format!("{points:.2}"));
        Some(std::iter::once(name(row)).chain(points).collect())
    };
    let lines: Vec<Vec<String>> = rows.iter().filter_map(cells).collect();
    if !lines.is_empty() {
        let columns = ["", "hit rate %", "points lost to a scan that reads", "to one that writes"];
        page.table("Resistance to a scan as large as the cache (FBARC, 5.4)", &columns, &lines);
    }
}

/// Ratios by the bits of a value, which sort like the values if these are above 0.
type Line = BTreeMap<u64, Vec<f64>>;
/// The line of each trace.
type Lines<'a> = BTreeMap<&'a str, Line>;

type Key<'a> = (&'a str, usize, &'a str);

fn key(row: &Row) -> Key<'_> {
    (&row.trace, row.cache_pages, &row.policy)
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    names.for_each(|name| {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    });
    distinct
}

/// Misses and writes of every row relative to those of `base` with the same trace and cache. The
/// writes are not a number if there are none.
fn relative<'a>(rows: &'a [Row], base: &str) -> BTreeMap<Key<'a>, [f64; 2]> {
    let of_base: BTreeMap<(&str, usize), &Row> = rows
        .iter()
        .filter(|row| row.policy == base)
        .map(|row| ((&*row.trace, row.cache_pages), row))
        .collect();
    let ratio = |row: &'a Row| {
        let (ours, base) = (&row.counts, of_base.get(&(&*row.trace, row.cache_pages))?.counts);
        let pairs = [(ours.misses, base.misses), (ours.all_writes(), base.all_writes())];
        Some((key(row), pairs.map(|(ours, base)| ours as f64 / base as f64)))
    };
    rows.iter().filter_map(ratio).collect()
}

/// A table with a line for each trace and cache and a column for each policy.
fn matrix(
    page: &mut Page,
    title: &str,
    rows: &[Row],
    policies: &[&str],
    cell: impl Fn(&Row) -> Option<String>,
) {
    let lines: Vec<Vec<String>> = rows
        .chunk_by(Row::is_of_same_task)
        .map(|group| {
            let name =
                format!("{}, {}", group[0].trace, plural(group[0].cache_pages as u64, "page"));
            let of =
                |policy: &&str| group.iter().find(|row| row.policy == **policy).and_then(&cell);
            let cells = policies.iter().map(|policy| of(policy).unwrap_or_default());
            std::iter::once(name).chain(cells).collect()
        })
        .collect();
    let columns: Vec<&str> = std::iter::once("").chain(policies.iter().copied()).collect();
    page.table(title, &columns, &lines);
}

/// All policies, a few in each plot, with the optimum in all of them.
fn miss_ratios(rows: &[Row], trace: &str, policies: &[&str]) -> Vec<Plot> {
    let others: Vec<&str> = policies.iter().copied().filter(|policy| *policy != "opt").collect();
    let optimum = policies.contains(&"opt").then_some("opt");
    let line = |policy: &str| {
        let of = rows.iter().filter(|row| row.trace == trace && row.policy == policy);
        let mut points: Vec<(f64, f64)> =
            of.map(|row| (row.cache_pages as f64, 1.0 - row.counts.hit_ratio())).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name: policy.to_owned(), points }
    };
    let plot = |policies: &[&str]| Plot {
        title: trace.to_owned(),
        x_label: "cached pages",
        x_scale: Scale::Logarithmic,
        y_label: "miss ratio",
        y_scale: Scale::Linear,
        series: policies.iter().copied().chain(optimum).map(line).collect(),
    };
    match others.is_empty() {
        true => vec![plot(&[])],
        false => others.chunks(LINES - 1).map(plot).collect(),
    }
}

/// Writes against reads; forms of a policy with different parameters are one line.
fn trade_offs(rows: &[Row]) -> Vec<Plot> {
    let plots = |group: &[Row]| -> Vec<Plot> {
        let names = distinct(group.iter().map(|row| family(&row.policy)));
        let line = |name: &&str| {
            let of = group.iter().filter(|row| family(&row.policy) == *name);
            let mut points: Vec<(f64, f64)> =
                of.map(|row| (row.counts.reads as f64, row.counts.all_writes() as f64)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series { name: (*name).to_owned(), points }
        };
        let plot = |names: &[&str]| Plot {
            title: format!("{}, {}", group[0].trace, plural(group[0].cache_pages as u64, "page")),
            x_label: "reads",
            x_scale: Scale::Logarithmic,
            y_label: "writes",
            y_scale: Scale::Logarithmic,
            series: names.iter().map(line).collect(),
        };
        names.chunks(LINES).map(plot).collect()
    };
    let written = |group: &&[Row]| group.iter().any(|row| row.counts.all_writes() > 0);
    rows.chunk_by(Row::is_of_same_task).filter(written).flat_map(plots).collect()
}

/// The name of a policy without its parameters.
fn family(policy: &str) -> &str {
    policy.split(':').next().unwrap_or(policy)
}

/// For policies that were replayed with several values of one parameter: the mean of relative
/// misses, and of relative writes, by value, one line for each trace. The policy without parameters
/// stands for the default.
fn studies(rows: &[Row], relative: &BTreeMap<Key, [f64; 2]>, base: &str) -> Vec<Plot> {
    let mut found = BTreeSet::<(&str, &str)>::new();
    for row in rows {
        if let Some((name, parameter, _)) = one_parameter(&row.policy) {
            found.insert((name, parameter));
        }
    }
    let plots = found.into_iter().flat_map(|(name, parameter)| {
        let default = Spec::parse(name).ok().and_then(|spec| {
            let known = spec.entry.parameters.iter().find(|known| known.name == parameter)?;
            known.default.parse::<f64>().ok()
        });
        let value = move |row: &Row| match one_parameter(&row.policy) {
            Some((other, of, value)) => (other == name && of == parameter).then_some(value),
            None => default.filter(|_| row.policy == name),
        };
        ["misses", "writes"].into_iter().enumerate().filter_map(move |(which, what)| {
            let mut lines = Lines::new();
            for row in rows {
                let (Some(value), Some(ratios)) = (value(row), relative.get(&key(row))) else {
                    continue;
                };
                if ratios[which].is_finite() {
                    let line = lines.entry(&row.trace).or_default();
                    line.entry(value.to_bits()).or_default().push(ratios[which]);
                }
            }
            lines.retain(|_, line| line.len() > 1);
            let series = lines.into_iter().map(|(trace, line)| mean_line(trace, &line)).collect();
            let title = format!("{name}: {what} relative to {base} by {parameter}");
            Some((title, series)).filter(|(_, series): &(_, Vec<Series>)| !series.is_empty())
        })
    });
    plots.flat_map(|(title, series)| study_plots(&title, &series)).collect()
}

/// Name, parameter and value of a policy with one parameter that is a number and not below 0.
fn one_parameter(policy: &str) -> Option<(&str, &str, f64)> {
    let (name, parameter) = policy.split_once(':')?;
    let (parameter, value) = parameter.split_once('=')?;
    value.parse().ok().filter(|value| *value >= 0.0).map(|value| (name, parameter, value))
}

fn mean_line(trace: &str, line: &Line) -> Series {
    let mean = |ratios: &Vec<f64>| ratios.iter().sum::<f64>() / ratios.len() as f64;
    let points = line.iter().map(|(value, ratios)| (f64::from_bits(*value), mean(ratios)));
    Series { name: trace.to_owned(), points: points.collect() }
}

fn study_plots(title: &str, series: &[Series]) -> Vec<Plot> {
    let plot = |series: &[Series]| Plot {
        title: title.to_owned(),
        x_label: "value of the parameter",
        x_scale: Scale::Linear,
        y_label: "relative to the base",
        y_scale: Scale::Linear,
        series: series.to_vec(),
    };
    series.chunks(LINES).map(plot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::bound::bound;
    use crate::simulate::experiment::{CacheSize, combine, run_all};
    use crate::simulate::generate::parse;

    #[test]
    fn the_studies_are_forms_that_watt_takes() {
        assert!(studied().len() > 20);
        for text in studied() {
            assert!(Spec::parse(&text).is_ok() && one_parameter(&text).is_some(), "{text}");
        }
    }

    #[test]
    fn the_page_has_every_section_and_loads_nothing() {
        let traces = [parse("dynZipfRW:pages=300,accesses=5000").unwrap()];
        let texts =
            ["watt", "lru", "opt", "watt:write_weight=0", "watt:write_weight=8", "ace(lru):nw=8"];
        let specs: Vec<Spec> = texts.iter().map(|text| Spec::parse(text).unwrap()).collect();
        let sizes = [CacheSize::Pages(20), CacheSize::Pages(100)];
        let runs = combine(&traces, &sizes, &specs, 1).unwrap();
        let device = Device::default();
        let results = run_all(&runs, 1, device, &|_| true);
        let row = |(run, counts): (&super::super::experiment::Run, &Option<_>)| Row {
            trace: run.trace.name().to_owned(),
            pages: run.trace.pages(),
            cache_pages: run.cache_pages,
            policy: run.spec.text.clone(),
            counts: counts.unwrap(),
            relative: None,
            complexity: run.spec.complexity(),
            bound: Some(bound(run.trace, run.cache_pages, &device)),
            resistance: resistance(run.trace, run.cache_pages, run.spec, device, 1),
            studied: run.spec.text == "watt:write_weight=8",
            spread: None,
        };
        let rows: Vec<Row> = runs.iter().zip(&results).map(row).collect();
        assert!(rows.iter().all(|row| row.resistance.is_some()));
        let html = page(&[("seed", "1".to_owned())], &rows, &device, "watt");
        for part in [
            "Miss ratio by cache size",
            "Misses relative to watt",
            "Reads and writes",
            "by write_weight",
            "watt: writes relative to watt by write_weight",
            "I/O cost in seconds at 100 us",
            "I/O cost in seconds at 245 us",
            "Least I/O cost",
            "O(cache log cache) at worst for a dirty victim",
            "asymmetry 8 and concurrency 8",
            "Resistance to a scan",
            "All replays",
            "ace(lru):nw=8",
        ] {
            assert!(html.contains(part), "{part}");
        }
        // One curve, two trade-offs, misses and writes by one parameter.
        assert_eq!(html.matches("<svg").count(), 5);
        // Rows of a parameter study have no column.
        assert!(!html.contains("<th>watt:write_weight=8") && html.contains("pages, watt:write_w"));
        for outside in ["http:", "https:", "src=", "href=", "NaN"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
