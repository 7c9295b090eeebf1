//! The charts of the report: one colour and mark for each policy in all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::relative::{Measure, Relative, distinct, family, key, mean_of, misses, reads, writes};
use crate::report::chart::{Chart, Curve, MeanBar, MeanBars, Point};
use crate::report::fitted::Spacing;
use crate::report::style::{STYLES, Style};
use crate::simulate::registry::Spec;
use crate::simulate::study::one_parameter;
use crate::simulate::table::Row;

/// The parameter that moves WATT along the trade-off between reads and writes.
const WEIGHT: &str = "write_weight";

/// Policies with their styles.
pub type Drawn<'a> = [(&'a str, Style)];

/// Miss ratios by cache size on one trace.
pub fn miss_ratios(rows: &[Row], trace: &str, drawn: &Drawn) -> Chart {
    let curve = |(policy, style): &(&str, Style)| {
        let of = rows.iter().filter(|row| row.trace == trace && row.policy == *policy);
        let point = |row: &Row| {
            let (measure, all) = (misses(row), row.counts.accesses as f64);
            Point {
                x: row.cache_pages as f64,
                y: measure.value / all,
                y_half: measure.half / all,
                ..Point::default()
            }
        };
        let mut points: Vec<Point> = of.map(point).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Curve { name: (*policy).to_owned(), style: *style, points }
    };
    Chart {
        title: format!("Miss ratio on {trace}"),
        x_label: "cached pages".to_owned(),
        x_spacing: Spacing::ByRatio,
        y_label: "miss ratio".to_owned(),
        y_from_zero: false,
        curves: drawn.iter().map(curve).filter(|curve| !curve.points.is_empty()).collect(),
    }
}

/// Writes against reads with one trace and cache, if something was written; forms of a policy with
/// different parameters are one line.
pub fn trade_off(group: &[Row], drawn: &Drawn) -> Option<Chart> {
    let is_drawn = |row: &&Row| match row.studied {
        true => one_parameter(&row.policy).is_some_and(|(_, name, _)| name == WEIGHT),
        false => true,
    };
    let families = distinct(drawn.iter().map(|(policy, _)| family(policy)));
    let curve = |name: &&str| {
        let (_, style) = drawn.iter().find(|(policy, _)| family(policy) == *name)?;
        let of = group.iter().filter(|row| family(&row.policy) == *name).filter(is_drawn);
        let shown = |row: &&Row| row.studied || drawn.iter().any(|(name, _)| *name == row.policy);
        let mut rows: Vec<&Row> = of.filter(shown).collect();
        rows.sort_by_key(|row| row.counts.reads);
        let several = rows.len() > 1;
        let point = |row: &&Row| {
            let (reads, writes) = (reads(row), writes(row));
            let parameters = row.policy.split_once(':').map_or("", |(_, rest)| rest);
            let label = match one_parameter(&row.policy) {
                Some((_, _, value)) => value.to_string(),
                None => parameters.to_owned(),
            };
            Point {
                x: reads.value,
                y: writes.value,
                x_half: reads.half,
                y_half: writes.half,
                label: if several { label } else { String::new() },
            }
        };
        let points: Vec<Point> = rows.iter().map(point).collect();
        (!points.is_empty()).then(|| Curve { name: (*name).to_owned(), style: *style, points })
    };
    group.iter().any(|row| row.counts.all_writes() > 0).then(|| Chart {
        title: format!("Reads and writes on {}", group[0].trace),
        x_label: "reads".to_owned(),
        x_spacing: Spacing::Even,
        y_label: "writes".to_owned(),
        y_from_zero: false,
        curves: families.iter().filter_map(curve).collect(),
    })
}

/// Means of relative misses (0) or writes (1), if there are any, the least first.
pub fn means(relative: &Relative, drawn: &Drawn, which: usize, base: &str) -> Option<MeanBars> {
    let bar = |(policy, style): &(&str, Style)| {
        let (Measure { value, half }, number) = mean_of(relative, policy, which);
        (number > 0).then(|| MeanBar { name: (*policy).to_owned(), style: *style, value, half })
    };
    let mut bars: Vec<MeanBar> = drawn.iter().filter_map(bar).collect();
    bars.sort_by(|a, b| a.value.total_cmp(&b.value));
    let what = ["misses", "writes"][which];
    (!bars.is_empty()).then(|| MeanBars {
        title: format!("Mean of {what} relative to {base}"),
        x_label: format!("{what} relative to {base}"),
        bars,
    })
}

/// A policy, a parameter, whether writes are compared instead of misses, and the chart.
pub type Study<'a> = (&'a str, &'a str, bool, Chart);

/// For policies that were replayed with several values of one parameter: relative misses, and
/// relative writes, by value, as the mean over all traces and one line for each of the first seven.
/// The policy without parameters stands for the default.
pub fn studies<'a>(rows: &'a [Row], relative: &Relative, base: &str) -> Vec<Study<'a>> {
    let named = rows.iter().filter_map(|row| one_parameter(&row.policy));
    let found: BTreeSet<(&str, &str)> = named.map(|(name, of, _)| (name, of)).collect();
    let each = found.into_iter().flat_map(|(name, of)| [(name, of, 0), (name, of, 1)]);
    each.filter_map(|(name, parameter, which)| {
        let chart = study(rows, relative, base, (name, parameter, which))?;
        Some((name, parameter, which == 1, chart))
    })
    .collect()
}

/// Measures by the bits of a value, which sort like the values if these are not below 0.
type Line = BTreeMap<u64, Vec<Measure>>;

fn study(
    rows: &[Row],
    relative: &Relative,
    base: &str,
    (name, parameter, which): (&str, &str, usize),
) -> Option<Chart> {
    let default = Spec::parse(name).ok().and_then(|spec| {
        let known = spec.entry.parameters.iter().find(|known| known.name == parameter)?;
        known.default.parse::<f64>().ok()
    });
    let value = |row: &Row| match one_parameter(&row.policy) {
        Some((other, of, value)) => (other == name && of == parameter).then_some(value),
        None => default.filter(|_| row.policy == name),
    };
    let (mut all, mut lines) = (Line::new(), BTreeMap::<&str, Line>::new());
    for row in rows {
        let (Some(value), Some(ratios)) = (value(row), relative.get(&key(row))) else { continue };
        if ratios[which].value.is_finite() {
            let line = lines.entry(&row.trace).or_default();
            line.entry(value.to_bits()).or_default().push(ratios[which]);
            all.entry(value.to_bits()).or_default().push(ratios[which]);
        }
    }
    lines.retain(|_, line| line.len() > 1);
    let curve = |name: &str, style, line: &Line| {
        let point = |(value, measures): (&u64, &Vec<Measure>)| {
            let Measure { value: y, half } = Measure::mean(measures);
            Point { x: f64::from_bits(*value), y, y_half: half, ..Point::default() }
        };
        let points = line.iter().map(point).collect();
        Curve { name: name.to_owned(), style: Style(style), points }
    };
    let mean = (lines.len() > 1).then(|| curve("mean of all traces", 0, &all));
    let others = lines.iter().take(STYLES - 1).enumerate();
    let curves: Vec<Curve> = mean
        .into_iter()
        .chain(others.map(|(at, (trace, line))| curve(trace, at + 1, line)))
        .collect();
    let values = || all.keys().map(|bits| f64::from_bits(*bits));
    let wide = values().all(|value| value > 0.0) && values().fold(0.0, f64::max) >= 8.0;
    (!lines.is_empty()).then(|| Chart {
        title: format!("{name}: {} by {parameter}", ["misses", "writes"][which]),
        x_label: parameter.to_owned(),
        x_spacing: if wide { Spacing::ByRatio } else { Spacing::Even },
        y_label: format!("relative to {base}"),
        y_from_zero: false,
        curves,
    })
}
