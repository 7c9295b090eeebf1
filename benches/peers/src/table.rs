//! The table, in Markdown.

use crate::{
    Arguments, Figures, engines, machine, median,
    rows::{Better, PARTS, Row},
    stores,
};

/// Names the versions of the engines that were built.
const LOCK: &str = include_str!("../Cargo.lock");

/// Prints the machine, the versions, the conditions and the table.
pub fn print(
    arguments: &Arguments,
    engines: &[&'static str],
    figures: &Figures,
    unlimited: Option<&str>,
) {
    let case = arguments.case(None, "", 0);
    println!("- Machine: {}.", machine::description(stores(arguments)));
    println!("- Date: {}. Versions: {}.", machine::date(), versions());
    println!(
        "- {} records of 24 + {} bytes, rows of {} s, medians of {} processes that alternate. \
         Cache {} MiB, in the rows `larger` {} MiB ({}).",
        case.records,
        case.value_bytes,
        case.seconds,
        arguments.repetitions(),
        case.cache_bytes >> 20,
        crate::rows::small_cache(case.records, case.value_bytes) >> 20,
        unlimited.map_or("limited by a control group".into(), |reason| format!(
            "not enforced, the page cache of the system is free: {reason}"
        )),
    );
    let durable = engines::DURABLE_COMMITS.iter().filter(|(name, _)| engines.contains(name));
    let durable: Vec<_> = durable.map(|(name, how)| format!("{name} {how}")).collect();
    println!("- Durable commits: {}.\n", durable.join("; "));
    let ours: Vec<_> = engines.iter().copied().filter(|name| is_wattle(name)).collect();
    let to_best: Vec<_> = ours.iter().map(|name| format!("{name} to the best peer")).collect();
    println!("| row | what | {} | {} |", engines.join(" | "), to_best.join(" | "));
    println!("|---|---|{}", "---|".repeat(engines.len() + ours.len()));
    for row in PARTS.iter().flat_map(|part| part.rows) {
        let medians: Vec<_> = engines.iter().map(|name| of(figures, row, name)).collect();
        if medians.iter().all(Option::is_none) {
            continue;
        }
        let mut cells: Vec<_> =
            medians.iter().map(|figure| figure.map_or("-".into(), short)).collect();
        for one in &ours {
            let ratio = ratio(row, one, engines, &medians);
            cells.push(ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")));
        }
        println!("| `{}` | {} | {} |", row.name, row.title, cells.join(" | "));
    }
}

/// The median of a row with an engine.
fn of(figures: &Figures, row: &Row, engine: &'static str) -> Option<f64> {
    let figures = figures.get(&(row.name, engine))?;
    let figures: Vec<_> = figures.iter().copied().filter(|figure| figure.is_finite()).collect();
    (!figures.is_empty()).then(|| median(figures))
}

fn is_wattle(engine: &str) -> bool {
    engine.starts_with("wattle")
}

/// How many times as good as the best peer `ours` is, a form of Wattle. A `BTreeMap` is no peer: it
/// stores nothing.
fn ratio(row: &Row, ours: &str, engines: &[&str], medians: &[Option<f64>]) -> Option<f64> {
    if row.name == "sync" {
        return None;
    }
    let of = |wanted: &dyn Fn(&str) -> bool| {
        let pairs = engines.iter().zip(medians).filter(|(name, _)| wanted(name));
        pairs.filter_map(|(_, figure)| *figure).reduce(match row.better {
            Better::Higher => f64::max,
            Better::Lower => f64::min,
        })
    };
    let wattle = of(&|name| name == ours)?;
    let durable = row.name.starts_with("durable");
    let best = of(&|name| {
        let excluded = durable && engines::WITHOUT_DEVICE_SYNC.contains(&name);
        !is_wattle(name) && name != "btreemap" && !excluded
    })?;
    Some(if row.better == Better::Higher { wattle / best } else { best / wattle })
}

/// Three digits, with `k` or `M`.
pub fn short(figure: f64) -> String {
    let (scaled, unit) = match figure {
        1e6.. => (figure / 1e6, " M"),
        1e4.. => (figure / 1e3, " k"),
        _ => (figure, ""),
    };
    let digits = (2 - scaled.max(1.0).log10().floor() as i32).max(0) as usize;
    format!("{scaled:.digits$}{unit}")
}

/// The engines' versions.
fn versions() -> String {
    let version = |name: &str| {
        let (_, rest) = LOCK.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        Some(rest.split_once('"')?.0)
    };
    let of = |(label, name): (&str, &str)| Some(format!("{label} {}", version(name)?));
    let crates = [
        ("wattle", "wattle"),
        ("redb", "redb"),
        ("fjall", "fjall"),
        ("heed", "heed"),
        ("sled", "sled"),
    ];
    let mut all: Vec<_> = crates.into_iter().filter_map(of).collect();
    all.push(format!("SQLite {}", rusqlite::version()));
    all.join(", ")
}
