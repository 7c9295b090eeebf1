//! The parts of an experiment: cells, stores, measures, figures, and the paper's numbers.

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

/// The size of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Seconds: shows that everything works, measures nothing.
    Smoke,
    /// At most 15 minutes on two cores.
    Small,
    /// The sizes of the paper.
    Paper,
}

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Paper and figure.
    pub source: &'static str,
    /// Its cells for a scale on a machine with that many cores.
    pub design: fn(Scale, usize) -> Design,
}

/// The cells of an experiment, and what is shown of them.
#[derive(Clone, Debug, Default)]
pub struct Design {
    /// The cells, in the order in which a repetition runs them.
    pub cells: Vec<Cell>,
    /// Runs of each cell.
    pub repetitions: usize,
    /// Demands on the machine.
    pub needs: Needs,
    /// Columns of the results; the first one that a run has is in the message about it.
    pub measures: Vec<Measure>,
    /// Plots.
    pub figures: Vec<Figure>,
    /// The paper's numbers.
    pub claims: Vec<Claim>,
    /// An axis and its value: every cell is compared with the one that differs in this axis only.
    pub baseline: Option<(&'static str, String)>,
    /// Sentences for the reader of plan and results.
    pub notes: Vec<String>,
}

/// Demands of a design on a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Main memory.
    pub memory: u64,
    /// Cores.
    pub cores: usize,
}

/// One configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Its value on each axis.
    pub at: Vec<(&'static str, String)>,
    /// Arguments of the binary, without those of store, time, seed and format.
    pub command: String,
    /// The store that it runs on; `None` for commands that have their own data.
    pub store: Option<Store>,
    /// Seconds before the measured part.
    pub warm_up: f64,
    /// Seconds of the measured part.
    pub seconds: f64,
}

impl Cell {
    /// Its value on `axis`; empty if it has none.
    pub fn on(&self, axis: &str) -> &str {
        let found = self.at.iter().find(|(name, _)| *name == axis);
        found.map_or("", |(_, value)| value)
    }

    /// Its values, for people.
    pub fn name(&self) -> String {
        let values = self.at.iter().map(|(axis, value)| format!("{axis}={value}"));
        values.collect::<Vec<_>>().join(" ")
    }

    /// Whether it has all of `at`.
    pub fn is_at(&self, at: &[(&'static str, &str)]) -> bool {
        at.iter().all(|(axis, value)| self.on(axis) == *value)
    }
}

/// A loaded store that cells run on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Store {
    /// Its name, which is that of its directory.
    pub name: String,
    /// Arguments that load it.
    pub load: String,
    /// About the bytes of the loaded store.
    pub bytes: u64,
    /// Whether a run gets a fresh copy, because it makes the store grow.
    pub copied: bool,
    /// Whether it is kept on a file system in memory, so that no device limits a run.
    pub in_memory: bool,
}

/// A number that a run gives.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Its name in the CSV file.
    pub name: &'static str,
    /// Its name for people, with its unit.
    pub label: &'static str,
    /// Takes it from the JSON report of a run; `None` if the report has no such number.
    pub of: fn(&Value) -> Option<f64>,
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its title, with the figure of the paper.
    pub title: String,
    /// The horizontal axis.
    pub across: Across,
    /// The measure of the vertical axis.
    pub up: &'static str,
    /// The axis whose values are the lines or colours.
    pub series: &'static str,
    /// Only cells with these values.
    pub only: Vec<(&'static str, &'static str)>,
}

/// A horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Across {
    /// Numbers of this axis, on a logarithmic scale if that is set, with a label.
    Numbers(&'static str, bool, &'static str),
    /// Groups of bars, by the values of this axis.
    Groups(&'static str),
    /// This measure.
    Measure(&'static str, &'static str),
}

/// A number of a paper: a measure of one cell, mostly relative to that of another.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The cell.
    pub at: Vec<(&'static str, &'static str)>,
    /// The other cell has this value on this axis instead. `None`: the number is a measure.
    pub against: Option<(&'static str, &'static str)>,
    /// The measure.
    pub measure: &'static str,
    /// The paper's ratio or number.
    pub ratio: f64,
    /// Where the paper says so.
    pub source: &'static str,
}
