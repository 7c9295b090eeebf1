//! Results relative to those of one policy, their means, and the policies that are drawn.

use std::collections::BTreeMap;

use crate::report::style::{STYLES, Style};
use crate::simulate::table::Row;

/// A value with half of its 95 % confidence interval; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// The value.
    pub value: f64,
    /// Half of the interval.
    pub half: f64,
}

impl Measure {
    /// Of the mean of values that are independent of each other; not a number if there are none.
    pub fn mean(measures: &[Measure]) -> Self {
        let number = measures.len() as f64;
        let squares = measures.iter().map(|one| one.half.powi(2)).sum::<f64>();
        let sum = measures.iter().map(|one| one.value).sum::<f64>();
        Self { value: sum / number, half: squares.sqrt() / number }
    }

    /// Of a ratio, by the first terms of its expansion.
    pub fn over(self, base: Measure) -> Self {
        let value = self.value / base.value;
        let parts = [self.half / self.value, base.half / base.value];
        let half = value * parts.iter().map(|part| part.powi(2)).sum::<f64>().sqrt();
        Self { value, half: if half.is_finite() { half } else { 0.0 } }
    }
}

/// The misses of a row.
pub fn misses(row: &Row) -> Measure {
    let half = row.spread.map_or(0.0, |spread| spread.misses);
    Measure { value: row.counts.misses as f64, half }
}

/// The reads of a row.
pub fn reads(row: &Row) -> Measure {
    let half = row.spread.map_or(0.0, |spread| spread.reads);
    Measure { value: row.counts.reads as f64, half }
}

/// The writes of a row.
pub fn writes(row: &Row) -> Measure {
    let half = row.spread.map_or(0.0, |spread| spread.writes);
    Measure { value: row.counts.all_writes() as f64, half }
}

/// A trace, a cache and a policy.
pub type Key<'a> = (&'a str, usize, &'a str);

/// The key of a row.
pub fn key(row: &Row) -> Key<'_> {
    (&row.trace, row.cache_pages, &row.policy)
}

/// Misses and writes of rows relative to those of a base with the same trace and cache. Writes are
/// not a number if the base has none.
pub type Relative<'a> = BTreeMap<Key<'a>, [Measure; 2]>;

/// The same for all rows that have a base.
pub fn relative<'a>(rows: &'a [Row], base: &str) -> Relative<'a> {
    let of_base: BTreeMap<(&str, usize), &Row> = rows
        .iter()
        .filter(|row| row.policy == base)
        .map(|row| ((&*row.trace, row.cache_pages), row))
        .collect();
    let ratio = |row: &'a Row| {
        let other = of_base.get(&(&*row.trace, row.cache_pages))?;
        let same = row.policy == base;
        let ratios = [(misses(row), misses(other)), (writes(row), writes(other))];
        let ratio = |(ours, base): (Measure, Measure)| match same {
            true => Measure { value: ours.value / base.value, half: 0.0 },
            false => ours.over(base),
        };
        Some((key(row), ratios.map(ratio)))
    };
    rows.iter().filter_map(ratio).collect()
}

/// The mean of the relative misses (0) or writes (1) of a policy over all traces and caches that
/// have some, and their number.
pub fn mean_of(relative: &Relative, policy: &str, which: usize) -> (Measure, usize) {
    let of = relative.iter().filter(|((_, _, name), _)| *name == policy);
    let ratios = of.map(|(_, ratios)| ratios[which]);
    let ratios: Vec<Measure> = ratios.filter(|ratio| ratio.value.is_finite()).collect();
    (Measure::mean(&ratios), ratios.len())
}

/// The names without repetitions, in their order.
pub fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    names.for_each(|name| {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    });
    distinct
}

/// The policies that are drawn, each with its style in all charts: all if there are at most eight,
/// else the base, OPT, and those with the fewest relative misses on average.
pub fn drawn<'a>(policies: &[&'a str], relative: &Relative, base: &str) -> Vec<(&'a str, Style)> {
    let mut drawn: Vec<&str> = policies.to_vec();
    if drawn.len() > STYLES {
        let rank = |policy: &str| match policy {
            policy if policy == base => -2.0,
            "opt" => -1.0,
            policy => Some(mean_of(relative, policy, 0).0.value)
                .filter(|mean| mean.is_finite())
                .unwrap_or(f64::INFINITY),
        };
        drawn.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
        drawn.truncate(STYLES);
    }
    drawn.into_iter().enumerate().map(|(style, policy)| (policy, Style(style))).collect()
}

/// The name of a policy without its parameters.
pub fn family(policy: &str) -> &str {
    policy.split(':').next().unwrap_or(policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_means_and_ratios_follow_from_those_of_their_parts() {
        let measure = |value, half| Measure { value, half };
        let mean = Measure::mean(&[measure(1.0, 0.3), measure(2.0, 0.4)]);
        assert_eq!(mean, measure(1.5, 0.25));
        let ratio = measure(30.0, 3.0).over(measure(10.0, 0.0));
        assert!((ratio.value - 3.0).abs() < 1e-12 && (ratio.half - 0.3).abs() < 1e-12);
        assert!(Measure::mean(&[]).value.is_nan());
        assert_eq!(measure(0.0, 0.0).over(measure(2.0, 0.0)), measure(0.0, 0.0));
    }
}
