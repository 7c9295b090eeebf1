//! Medians and spread of the runs of each cell, ratios to a baseline, and the paper's ratios.

use super::design::{Cell, Claim, Design, Measure};
use super::journal::Entry;

/// The values of one measure of one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Median.
    pub median: f64,
    /// Smallest.
    pub low: f64,
    /// Largest.
    pub high: f64,
    /// Number of runs.
    pub runs: usize,
}

impl Summary {
    /// Of values, in any order; `None` of none.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        };
        Some(Self { median, low, high, runs: values.len() })
    }

    /// The range of the values in percent of the median.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.high - self.low) / self.median.abs() * 100.0 }
    }
}

/// The results of a design.
pub struct Results<'a> {
    /// The design.
    pub design: &'a Design,
    /// For each cell, one summary for each measure.
    summaries: Vec<Vec<Option<Summary>>>,
}

/// A ratio of two cells, ours and the paper's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio<'a> {
    /// Ours; `None` if the other cell was not run.
    pub ours: Option<f64>,
    /// The paper's number.
    pub claim: Option<&'a Claim>,
}

impl<'a> Results<'a> {
    /// The results of the finished runs `entries`.
    pub fn of(design: &'a Design, entries: &[Entry]) -> Self {
        let summary = |cell: usize, measure: &Measure| {
            let runs = entries.iter().filter(|entry| entry.cell == cell);
            Summary::of(runs.filter_map(|entry| (measure.of)(&entry.report)).collect())
        };
        let cells = 0..design.cells.len();
        let row = |cell| design.measures.iter().map(|measure| summary(cell, measure)).collect();
        Self { design, summaries: cells.map(row).collect() }
    }

    fn column(&self, measure: &str) -> Option<usize> {
        self.design.measures.iter().position(|one| one.name == measure)
    }

    /// The summary of a measure of cell number `cell`.
    pub fn summary(&self, cell: usize, measure: &str) -> Option<Summary> {
        self.summaries[cell][self.column(measure)?]
    }

    /// Median of `measure` of cell number `cell` over that of the cell which has `value` on `axis`
    /// instead.
    fn over(&self, cell: usize, measure: &str, axis: &str, value: &str) -> Option<f64> {
        let cells = &self.design.cells;
        let other = cells.iter().position(|other| differs_in(&cells[cell], other, axis, value))?;
        let (ours, others) = (self.summary(cell, measure)?, self.summary(other, measure)?);
        (others.median != 0.0).then(|| ours.median / others.median)
    }

    /// The ratio of a measure of cell number `cell` to the baseline, or to the cell that the
    /// paper's number compares it with.
    pub fn ratio(&self, cell: usize, measure: &str) -> Ratio<'a> {
        let this = &self.design.cells[cell];
        let mut claims = self.design.claims.iter();
        let claim = claims.find(|claim| claim.measure == measure && this.is_at(&claim.at));
        let baseline = self.design.baseline.as_ref();
        let baseline = baseline.map(|(axis, value)| (*axis, value.as_str()));
        let over = |(axis, value): (&str, &str)| self.over(cell, measure, axis, value);
        let ours = match claim.map(|claim| claim.against) {
            Some(None) => self.summary(cell, measure).map(|summary| summary.median),
            Some(Some(against)) => over(against),
            None => baseline.and_then(over),
        };
        Ratio { ours, claim }
    }

    /// The value that the paper's ratio gives with our value of the other cell.
    pub fn expected(&self, cell: usize, measure: &str) -> Option<f64> {
        let Ratio { ours, claim } = self.ratio(cell, measure);
        let claim = claim?;
        if claim.against.is_none() {
            return Some(claim.ratio);
        }
        let ours = ours.filter(|ours| *ours != 0.0)?;
        Some(self.summary(cell, measure)?.median / ours * claim.ratio)
    }
}

/// Whether `other` differs from `cell` only in that it has `value` on `axis`.
fn differs_in(cell: &Cell, other: &Cell, axis: &str, value: &str) -> bool {
    other.at.len() == cell.at.len()
        && other.at.iter().all(|(name, here)| match *name == axis {
            true => here == value,
            false => cell.on(name) == here,
        })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::design::{Across, Figure};
    use serde_json::json;

    /// Two policies on two workloads, with a number of the paper.
    pub(crate) fn design() -> Design {
        let cell = |workload: &str, policy: &str| Cell {
            at: vec![("workload", workload.to_owned()), ("policy", policy.to_owned())],
            command: format!("ycsb --policy {policy}"),
            store: None,
            warm_up: 0.0,
            seconds: 1.0,
        };
        let figure = |across, series| Figure {
            title: "Reads (Figure <9>)".to_owned(),
            across,
            up: "reads",
            series,
            only: Vec::new(),
        };
        Design {
            cells: vec![cell("1", "watt"), cell("1", "random"), cell("4", "watt")],
            repetitions: 3,
            measures: vec![Measure {
                name: "reads",
                label: "reads per transaction",
                of: |report| report["reads"].as_f64(),
            }],
            figures: vec![
                figure(Across::Groups("workload"), "policy"),
                figure(Across::Numbers("workload", true, "size"), "policy"),
                figure(Across::Measure("reads", "reads"), "policy"),
            ],
            claims: vec![Claim {
                at: vec![("workload", "1"), ("policy", "random")],
                against: Some(("policy", "watt")),
                measure: "reads",
                ratio: 1.11,
                source: "WATT, Figure 9",
            }],
            baseline: Some(("policy", "watt".to_owned())),
            ..Design::default()
        }
    }

    pub(crate) fn entries() -> Vec<Entry> {
        let entry = |(cell, repetition, reads): (usize, usize, f64)| Entry {
            cell,
            repetition,
            seconds: 1.0,
            report: json!({"reads": reads}),
        };
        [(0, 0, 2.0), (1, 0, 3.0), (2, 0, 8.0), (0, 1, 1.0), (1, 1, 2.5), (0, 2, 2.2)]
            .map(entry)
            .to_vec()
    }

    #[test]
    fn medians_spread_and_ratios_are_those_of_the_runs() {
        let design = design();
        let results = Results::of(&design, &entries());
        let watt = results.summary(0, "reads").unwrap();
        assert_eq!((watt.median, watt.low, watt.high, watt.runs), (2.0, 1.0, 2.2, 3));
        assert!((watt.spread() - 60.0).abs() < 1e-9);
        assert_eq!(results.summary(1, "reads").unwrap().median, 2.75);
        let ratio = results.ratio(1, "reads");
        assert_eq!((ratio.ours, ratio.claim.unwrap().ratio), (Some(1.375), 1.11));
        assert!((results.expected(1, "reads").unwrap() - 2.22).abs() < 1e-9);
        assert_eq!(results.ratio(2, "reads"), Ratio { ours: Some(1.0), claim: None });
        assert_eq!((results.expected(2, "reads"), results.summary(0, "writes")), (None, None));
    }

    #[test]
    fn a_cell_without_runs_has_no_summary() {
        let design = design();
        let results = Results::of(&design, &entries()[..1]);
        assert_eq!(results.summary(1, "reads"), None);
        assert_eq!(results.ratio(1, "reads").ours, None);
        assert_eq!(Summary::of(vec![f64::NAN]), None);
    }
}
