//! The tables of the report: all policies, those that no chart has room for included.

use super::relative::{Measure, Relative, distinct, mean_of};
use crate::report::document::{Cell, Document};
use crate::report::figures::{count, plural, significant};
use crate::simulate::replay::Device;
use crate::simulate::table::{Resistance, Row};

fn whole(value: u64) -> Cell {
    Cell::number(value as f64, count(value))
}

fn with_digits(value: f64, digits: usize) -> Cell {
    Cell::number(value, format!("{value:.digits$}"))
}

/// Means of relative misses and writes of all policies, with their intervals.
pub fn means(document: &mut Document, relative: &Relative, policies: &[&str], caption: &str) {
    let line = |policy: &&str| {
        let of = |which| {
            let (Measure { value, half }, number) = mean_of(relative, policy, which);
            let half = if number > 0 { half } else { f64::NAN };
            [with_digits(value, 3), with_digits(half, 4), whole(number as u64)]
        };
        std::iter::once(Cell::text(policy)).chain(of(0)).chain(of(1)).collect()
    };
    let lines: Vec<Vec<Cell>> = policies.iter().map(line).collect();
    let columns = ["policy", "misses", "+- misses", "points", "writes", "+- writes", "points "];
    document.table("means", caption, &columns, &lines);
}

/// A table of one trace with a line for each policy and a column for each cache size.
pub fn by_cache(
    document: &mut Document,
    (name, caption): (&str, &str),
    rows: &[Row],
    policies: &[&str],
    cell: impl Fn(&Row) -> Cell,
) {
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.cache_pages).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let headers: Vec<String> = sizes.iter().map(|size| plural(*size as u64, "page")).collect();
    let columns: Vec<&str> =
        std::iter::once("policy").chain(headers.iter().map(String::as_str)).collect();
    let line = |policy: &&str| {
        let of = |size: &usize| {
            let row = rows.iter().find(|row| row.policy == **policy && row.cache_pages == *size);
            row.map_or_else(Cell::default, &cell)
        };
        std::iter::once(Cell::text(policy)).chain(sizes.iter().map(of)).collect()
    };
    let lines: Vec<Vec<Cell>> = policies.iter().map(line).collect();
    document.table(name, caption, &columns, &lines);
}

/// The lower bounds of the cost, if they were asked for.
pub fn bounds(document: &mut Document, rows: &[Row]) {
    let seconds = |cost: f64| Cell::number(cost / 1e6, significant(cost / 1e6));
    let line = |group: &[Row]| {
        let bound = group[0].bound?;
        Some(vec![
            Cell::text(&group[0].trace),
            whole(group[0].cache_pages as u64),
            seconds(bound.lower),
            bound.feasible.map_or_else(Cell::default, seconds),
        ])
    };
    let lines: Vec<Vec<Cell>> = rows.chunk_by(Row::is_of_same_task).filter_map(line).collect();
    if !lines.is_empty() {
        let columns =
            ["trace", "cached pages", "no policy costs less", "one that knows the future"];
        document.table("bounds", "Least I/O cost in seconds.", &columns, &lines);
    }
}

/// The hit rate that each policy loses to a scan, if it was tested.
pub fn resistances(document: &mut Document, rows: &[Row]) {
    let cells = |row: &Row| {
        let Resistance { rate, lost } = row.resistance?;
        let place =
            [Cell::text(&row.trace), whole(row.cache_pages as u64), Cell::text(&row.policy)];
        let points = [rate, lost[0], lost[1]].map(|points| with_digits(points, 2));
        Some(place.into_iter().chain(points).collect())
    };
    let lines: Vec<Vec<Cell>> = rows.iter().filter_map(cells).collect();
    if !lines.is_empty() {
        let caption = "Resistance to a scan as large as the cache (FBARC, section 5.4): hit rate \
                       of the last accesses in percent, and points lost to a scan that reads and \
                       to one that writes.";
        let columns = ["trace", "cached pages", "policy", "hit rate", "reads", "writes"];
        document.table("scan-resistance", caption, &columns, &lines);
    }
}

/// The costs of a policy that are not in other tables, of all policies.
pub fn complexities(document: &mut Document, rows: &[Row]) {
    let line = |policy: &str| {
        let of = rows.iter().find(|row| row.policy == policy)?;
        Some(vec![Cell::text(policy), Cell::text(&of.complexity)])
    };
    let policies = distinct(rows.iter().map(|row| &*row.policy));
    let lines: Vec<Vec<Cell>> = policies.into_iter().filter_map(line).collect();
    document.table("complexities", "Time of an access.", &["policy", "time"], &lines);
}

/// All replays with all counts.
pub fn replays(document: &mut Document, rows: &[Row], device: &Device, provenance: &str) {
    let columns = [
        "trace",
        "cached pages",
        "policy",
        "misses",
        "+- misses",
        "hit ratio",
        "reads",
        "writes",
        "+- writes",
        "at end",
        "cost s",
        "ns/access",
        "B/page",
    ];
    let cells = |row: &Row| {
        let counts = &row.counts;
        let half = |half: Option<f64>| half.map_or_else(Cell::default, |half| with_digits(half, 1));
        vec![
            Cell::text(&row.trace),
            whole(row.cache_pages as u64),
            Cell::text(&row.policy),
            whole(counts.misses),
            half(row.spread.map(|spread| spread.misses)),
            with_digits(counts.hit_ratio(), 4),
            whole(counts.reads),
            whole(counts.all_writes()),
            half(row.spread.map(|spread| spread.writes)),
            whole(counts.writes_at_end),
            Cell::number(counts.cost(device) / 1e6, significant(counts.cost(device) / 1e6)),
            with_digits(counts.cpu_ns_per_access(), 0),
            with_digits(counts.bytes_per_page, 1),
        ]
    };
    let lines: Vec<Vec<Cell>> = rows.iter().map(cells).collect();
    document.table("replays", &format!("All replays. {provenance}"), &columns, &lines);
}
