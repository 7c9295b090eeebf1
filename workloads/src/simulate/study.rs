//! Replays as one HTML page: miss-ratio curves, misses relative to a policy, read/write trade-off,
//! I/O cost, what parameters do, and resistance to scans. The figures that the papers show, for
//! whatever was replayed.

use std::collections::BTreeMap;

use super::generate::with_parasite;
use super::policy::Access;
use super::registry::Spec;
use super::replay::{Device, Replay};
use super::table::Row;
use super::trace::Trace;
use crate::report::figures::{count, significant};
use crate::report::html::Page;
use crate::report::plot::{Plot, Scale, Series};

/// Lines of one plot: a legend has no room for more.
const LINES: usize = 6;

/// Accesses of a trace that the parasite test replays.
const LOAD: usize = 200_000;

/// Hit rates of the last accesses, without a parasite and points lost to one that reads and one
/// that writes.
#[derive(Clone, Debug)]
pub struct Resistance {
    /// Name of the trace.
    pub trace: String,
    /// Number of frames, and pages of the parasite.
    pub cache_pages: usize,
    /// The policy as it was given.
    pub policy: String,
    /// Hit rate in percent.
    pub rate: f64,
    /// Points lost.
    pub lost: [f64; 2],
}

/// Measures the parasite test of FBARC (section 5.4) on the beginning of a trace; `None` if it is
/// too short.
pub fn resistance(
    trace: &Trace,
    cache_pages: usize,
    spec: &Spec,
    device: Device,
) -> Option<Resistance> {
    let before =
        trace.len().min(LOAD).checked_sub(cache_pages).filter(|before| *before > cache_pages)?;
    let rate = |parasite| {
        let load = with_parasite(trace, before, cache_pages, parasite);
        let mut policy = spec.build(&load, cache_pages, 1, device);
        let mut replay = Replay::new(&load, cache_pages, &mut *policy);
        let accesses: Vec<Access> = load.accesses().collect();
        let (first, last) = accesses.split_at(load.len() - cache_pages);
        first.iter().for_each(|access| replay.access(*access));
        let misses = replay.counts.misses;
        last.iter().for_each(|access| replay.access(*access));
        100.0 * (1.0 - (replay.counts.misses - misses) as f64 / cache_pages as f64)
    };
    let without = rate(None);
    Some(Resistance {
        trace: trace.name().to_owned(),
        cache_pages,
        policy: spec.text.clone(),
        rate: without,
        lost: [Some(false), Some(true)].map(|parasite| without - rate(parasite)),
    })
}

/// The page. Misses are relative to those of `base`, or of the first policy if it was not replayed.
pub fn page(
    facts: &[(&str, String)],
    rows: &[Row],
    device: &Device,
    base: &str,
    resistances: &[Resistance],
) -> String {
    let mut page = Page::new("wattle simulate");
    page.facts(facts);
    if rows.is_empty() {
        return page.finish();
    }
    let policies = distinct(rows.iter().map(|row| &*row.policy));
    let base = if policies.contains(&base) { base } else { policies[0] };
    let traces = distinct(rows.iter().map(|row| &*row.trace));
    let curves: Vec<Plot> =
        traces.iter().map(|trace| miss_ratios(rows, trace, &policies)).collect();
    page.plots("Miss ratio by cache size", &curves);
    let relative = relative(rows, base);
    matrix(&mut page, &format!("Misses relative to {base}"), rows, &policies, |row| {
        relative.get(&key(row)).map(|relative| format!("{relative:.3}"))
    });
    let trade_offs = trade_offs(rows);
    if !trade_offs.is_empty() {
        page.plots("Reads and writes", &trade_offs);
    }
    let studies = studies(rows, &relative, base);
    if !studies.is_empty() {
        page.plots("What a parameter does", &studies);
    }
    let title = format!(
        "I/O cost in seconds at {} us a read and {} us a write",
        device.read_us, device.write_us
    );
    matrix(&mut page, &title, rows, &policies, |row| {
        Some(significant(row.counts.cost(device) / 1e6))
    });
    let title = format!(
        "Seconds of a device with asymmetry {} and concurrency {}",
        device.asymmetry, device.concurrency
    );
    matrix(&mut page, &title, rows, &policies, |row| {
        Some(significant(row.counts.device_seconds(device)))
    });
    if !resistances.is_empty() {
        let cells = |one: &Resistance| {
            vec![
                format!("{}, {} pages, {}", one.trace, count(one.cache_pages as u64), one.policy),
                format!("{:.2}", one.rate),
                format!("{:.2}", one.lost[0]),
                format!("{:.2}", one.lost[1]),
            ]
        };
        let columns = ["", "hit rate %", "points lost to a scan that reads", "to one that writes"];
        page.table(
            "Resistance to a scan as large as the cache",
            &columns,
            &resistances.iter().map(cells).collect::<Vec<_>>(),
        );
    }
    let cells = |row: &Row| {
        vec![
            format!("{}, {} pages, {}", row.trace, count(row.cache_pages as u64), row.policy),
            count(row.counts.misses),
            count(row.counts.reads),
            count(row.counts.all_writes()),
            format!("{:.0}", row.counts.cpu_ns_per_access()),
            format!("{}", row.counts.bytes_per_page),
        ]
    };
    let columns = ["", "misses", "reads", "writes", "ns/access", "bytes/page"];
    page.table("All replays", &columns, &rows.iter().map(cells).collect::<Vec<_>>());
    page.finish()
}

/// Relative misses by the bits of a value, which compare as values above 0 do.
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

/// Misses of every row relative to those of `base` with the same trace and cache.
fn relative<'a>(rows: &'a [Row], base: &str) -> BTreeMap<Key<'a>, f64> {
    let of_base: BTreeMap<(&str, usize), u64> = rows
        .iter()
        .filter(|row| row.policy == base)
        .map(|row| ((&*row.trace, row.cache_pages), row.counts.misses))
        .collect();
    let ratio = |row: &'a Row| {
        let of_base = of_base.get(&(&*row.trace, row.cache_pages))?;
        Some((key(row), row.counts.misses as f64 / *of_base as f64))
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
    let same = |a: &Row, b: &Row| a.trace == b.trace && a.cache_pages == b.cache_pages;
    let lines: Vec<Vec<String>> = rows
        .chunk_by(same)
        .map(|group| {
            let name = format!("{}, {} pages", group[0].trace, count(group[0].cache_pages as u64));
            let of =
                |policy: &&str| group.iter().find(|row| row.policy == **policy).and_then(&cell);
            let cells = policies.iter().map(|policy| of(policy).unwrap_or_default());
            std::iter::once(name).chain(cells).collect()
        })
        .collect();
    let columns: Vec<&str> = std::iter::once("").chain(policies.iter().copied()).collect();
    page.table(title, &columns, &lines);
}

/// The first policies and the optimum.
fn miss_ratios(rows: &[Row], trace: &str, policies: &[&str]) -> Plot {
    let mut shown: Vec<&str> = policies.iter().copied().filter(|policy| *policy != "opt").collect();
    let optimum = policies.contains(&"opt");
    shown.truncate(LINES - usize::from(optimum));
    shown.extend(optimum.then_some("opt"));
    let line = |policy: &&str| {
        let of = rows.iter().filter(|row| row.trace == trace && row.policy == **policy);
        let mut points: Vec<(f64, f64)> =
            of.map(|row| (row.cache_pages as f64, 1.0 - row.counts.hit_ratio())).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name: (*policy).to_owned(), points }
    };
    Plot {
        title: trace.to_owned(),
        x_label: "cached pages",
        x_scale: Scale::Logarithmic,
        y_label: "miss ratio",
        y_scale: Scale::Linear,
        series: shown.iter().map(line).collect(),
    }
}

/// Writes against reads; forms of a policy with different parameters are one line.
fn trade_offs(rows: &[Row]) -> Vec<Plot> {
    let same = |a: &Row, b: &Row| a.trace == b.trace && a.cache_pages == b.cache_pages;
    let plot = |group: &[Row]| {
        let names = distinct(group.iter().map(|row| family(&row.policy)));
        let line = |name: &&str| {
            let of = group.iter().filter(|row| family(&row.policy) == *name);
            let mut points: Vec<(f64, f64)> =
                of.map(|row| (row.counts.reads as f64, row.counts.all_writes() as f64)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series { name: (*name).to_owned(), points }
        };
        Plot {
            title: format!("{}, {} pages", group[0].trace, count(group[0].cache_pages as u64)),
            x_label: "reads",
            x_scale: Scale::Logarithmic,
            y_label: "writes",
            y_scale: Scale::Logarithmic,
            series: names.iter().take(LINES).map(line).collect(),
        }
    };
    let written = |group: &&[Row]| group.iter().any(|row| row.counts.all_writes() > 0);
    rows.chunk_by(same).filter(written).map(plot).collect()
}

/// The name of a policy without its parameters.
fn family(policy: &str) -> &str {
    policy.split(':').next().unwrap_or(policy)
}

/// For policies that were replayed with several values of one parameter: the mean of relative
/// misses by value, a line for each trace (WATT, Figures 3 to 8).
fn studies(rows: &[Row], relative: &BTreeMap<Key, f64>, base: &str) -> Vec<Plot> {
    // Name and parameter, then trace and bits of the value, with all ratios there.
    let mut found = BTreeMap::<(String, String), Lines>::new();
    for row in rows {
        let Some((name, parameter)) = row.policy.split_once(':') else { continue };
        let Some((parameter, value)) = parameter.split_once('=') else { continue };
        let Some(value) = value.parse::<f64>().ok().filter(|value| *value >= 0.0) else { continue };
        let Some(ratio) = relative.get(&key(row)) else { continue };
        let lines = found.entry((name.to_owned(), parameter.to_owned())).or_default();
        lines.entry(&row.trace).or_default().entry(value.to_bits()).or_default().push(*ratio);
    }
    found.retain(|_, lines| lines.values().any(|line| line.len() > 1));
    let plot = |((name, parameter), lines): ((String, String), Lines)| {
        let line = |(trace, line): (&str, Line)| {
            let mean = |ratios: &Vec<f64>| ratios.iter().sum::<f64>() / ratios.len() as f64;
            let points = line.iter().map(|(value, ratios)| (f64::from_bits(*value), mean(ratios)));
            Series { name: trace.to_owned(), points: points.collect() }
        };
        Plot {
            title: format!("{name}: misses relative to {base} by {parameter}"),
            x_label: "value of the parameter",
            x_scale: Scale::Linear,
            y_label: "relative misses",
            y_scale: Scale::Linear,
            series: lines.into_iter().take(LINES).map(line).collect(),
        }
    };
    found.into_iter().map(plot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::experiment::{CacheSize, combine, run_all};
    use crate::simulate::generate::parse;

    #[test]
    fn the_page_has_every_section_and_loads_nothing() {
        let traces = [parse("dynZipfRW:pages=500,accesses=20000").unwrap()];
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
            complexity: run.spec.entry.cost,
            bound: None,
        };
        let rows: Vec<Row> = runs.iter().zip(&results).map(row).collect();
        let resistances: Vec<Resistance> =
            specs.iter().filter_map(|spec| resistance(&traces[0], 100, spec, device)).collect();
        assert_eq!(resistances.len(), specs.len());
        let html = page(&[("seed", "1".to_owned())], &rows, &device, "watt", &resistances);
        for part in [
            "Miss ratio by cache size",
            "Misses relative to watt",
            "Reads and writes",
            "by write_weight",
            "I/O cost in seconds at 100 us",
            "asymmetry 8 and concurrency 8",
            "Resistance to a scan",
            "All replays",
            "ace(lru):nw=8",
        ] {
            assert!(html.contains(part), "{part}");
        }
        // One curve, two trade-offs, one parameter.
        assert_eq!(html.matches("<svg").count(), 4);
        for outside in ["http:", "https:", "src=", "href=", "NaN"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
