//! The journal of an experiment: a line with its configuration, and one for each finished run.
//!
//! Each line is a JSON object, written at once. After an interrupt, `--resume` reads it and runs
//! what is missing. Results of another configuration, machine or build do not compare, so a journal
//! of another one is refused.

use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::design::Cell;
use crate::cli::exit::{Exit, failed};

/// The name of the file in the directory of an experiment.
pub const NAME: &str = "journal.jsonl";

/// A finished run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Number of the cell.
    pub cell: usize,
    /// Number of the repetition.
    pub repetition: usize,
    /// How long the process ran.
    pub seconds: f64,
    /// Its report.
    pub report: Value,
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    /// The finished runs.
    pub entries: Vec<Entry>,
}

/// A number that differs between two builds of this binary.
pub fn build() -> Result<String, Exit> {
    let path = std::env::current_exe().map_err(failed("looking for this binary"))?;
    let bytes = std::fs::read(path).map_err(failed("reading this binary"))?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}

/// The first line of a journal: everything that must be equal for results to compare.
pub fn configuration(facts: Vec<(&str, Value)>, cells: &[Cell]) -> Map<String, Value> {
    let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value));
    let cell = |cell: &Cell| {
        let Cell { command, store, warm_up, seconds, .. } = cell;
        let store = store.as_ref().map_or("no store", |store| &store.name);
        let name = cell.name();
        Value::String(format!("{name}: {command} on {store}, {seconds} s after {warm_up} s"))
    };
    let cells = Value::Array(cells.iter().map(cell).collect());
    facts.chain([("cells".to_owned(), cells)]).collect()
}

impl Journal {
    /// Begins a journal in `folder`, or goes on with the one that is there if `resume` is set.
    ///
    /// # Errors
    /// [`Exit::Usage`] if a journal is there without `resume`, is not there with it, or has another
    /// configuration; the sentence names the first difference.
    pub fn open(
        folder: &Path,
        configuration: &Map<String, Value>,
        resume: bool,
    ) -> Result<Self, Exit> {
        let path = folder.join(NAME);
        let shown = path.display();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(failed(format_args!("reading {shown}"))(error)),
        };
        match (text, resume) {
            (Some(_), false) => Err(Exit::Usage(format!(
                "{shown} is there from an earlier experiment; --resume goes on with it, or give \
                 another --out"
            ))),
            (None, true) => Err(Exit::Usage(format!(
                "--resume finds no {shown}; without --resume the experiment begins"
            ))),
            (None, false) => {
                let file = File::create(&path).map_err(failed(format_args!("creating {shown}")))?;
                let mut journal = Self { file, path, entries: Vec::new() };
                journal.write(&Value::Object(configuration.clone()))?;
                Ok(journal)
            }
            (Some(text), true) => Self::resumed(path, &text, configuration),
        }
    }

    fn resumed(
        path: PathBuf,
        text: &str,
        configuration: &Map<String, Value>,
    ) -> Result<Self, Exit> {
        let shown = path.display().to_string();
        // A killed process may leave a part of a line, whose run is repeated.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut lines = text[..whole].lines();
        let broken =
            |error| Exit::Usage(format!("{shown} is damaged: {error}; give another --out"));
        let header = lines.next().unwrap_or("{}");
        let header: Map<String, Value> = serde_json::from_str(header).map_err(broken)?;
        if let Some(difference) = difference(&header, configuration) {
            return Err(Exit::Usage(format!(
                "--resume: {shown} is of another experiment: {difference}; give another --out"
            )));
        }
        let entries: Result<Vec<Entry>, _> = lines.map(serde_json::from_str).collect();
        let entries = entries.map_err(broken)?;
        let opened = OpenOptions::new().append(true).open(&path);
        let file = opened.map_err(failed(format_args!("opening {shown}")))?;
        file.set_len(whole as u64).map_err(failed(format_args!("writing {shown}")))?;
        Ok(Self { file, path, entries })
    }

    /// Whether the run is finished.
    pub fn has(&self, cell: usize, repetition: usize) -> bool {
        self.entries.iter().any(|entry| (entry.cell, entry.repetition) == (cell, repetition))
    }

    /// Adds a finished run.
    pub fn add(&mut self, entry: Entry) -> Result<(), Exit> {
        let line = serde_json::to_value(&entry).expect("an entry consists of plain values");
        self.write(&line)?;
        self.entries.push(entry);
        Ok(())
    }

    fn write(&mut self, line: &Value) -> Result<(), Exit> {
        self.file
            .write_all(format!("{line}\n").as_bytes())
            .map_err(failed(format_args!("writing {}", self.path.display())))
    }
}

/// The first difference between the configuration of a journal and this one.
fn difference(journal: &Map<String, Value>, this: &Map<String, Value>) -> Option<String> {
    for (name, value) in this {
        let other = journal.get(name).unwrap_or(&Value::Null);
        if other == value {
            continue;
        }
        if let (Value::Array(there), Value::Array(here)) = (other, value) {
            let lacks = |one: &[Value], all: &[Value]| {
                one.iter().find(|cell| !all.contains(cell)).map(Value::to_string)
            };
            return Some(match (lacks(there, here), lacks(here, there)) {
                (Some(there), Some(here)) => format!("it has the cell {there}, here it is {here}"),
                (Some(there), None) => format!("its cell {there} is not in this one"),
                (None, Some(here)) => format!("it lacks the cell {here}"),
                (None, None) => "its cells have another order".to_owned(),
            });
        }
        return Some(format!("{name} is {other} there and {value} here"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cell(policy: &str) -> Cell {
        let at = vec![("policy", policy.to_owned())];
        let command = format!("ycsb --policy {policy}");
        Cell { at, command, store: None, warm_up: 1.0, seconds: 2.0 }
    }

    fn made(scale: &str, policies: &[&str]) -> Map<String, Value> {
        let cells: Vec<Cell> = policies.iter().map(|policy| cell(policy)).collect();
        configuration(vec![("scale", json!(scale))], &cells)
    }

    fn entry(cell: usize) -> Entry {
        Entry { cell, repetition: 0, seconds: 1.5, report: json!({"run": 1}) }
    }

    fn refused(opened: Result<Journal, Exit>, part: &str) {
        match opened {
            Err(Exit::Usage(sentence)) => assert!(sentence.contains(part), "{sentence}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_journal_goes_on_where_it_was_and_drops_a_part_of_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let this = made("small", &["watt", "random"]);
        refused(Journal::open(folder.path(), &this, true), "--resume finds no");
        let mut journal = Journal::open(folder.path(), &this, false).unwrap();
        journal.add(entry(0)).unwrap();
        refused(Journal::open(folder.path(), &this, false), "--resume goes on");
        let path = folder.path().join(NAME);
        let torn = std::fs::read_to_string(&path).unwrap() + "{\"cell\":1,\"repet";
        std::fs::write(&path, torn).unwrap();
        let mut journal = Journal::open(folder.path(), &this, true).unwrap();
        assert!(journal.has(0, 0) && !journal.has(1, 0) && !journal.has(0, 1));
        journal.add(entry(1)).unwrap();
        assert_eq!(Journal::open(folder.path(), &this, true).unwrap().entries.len(), 2);
    }

    #[test]
    fn a_journal_of_another_configuration_is_refused_with_the_difference() {
        let folder = tempfile::tempdir().unwrap();
        Journal::open(folder.path(), &made("small", &["watt", "random"]), false).unwrap();
        let resume = |this| Journal::open(folder.path(), &this, true);
        refused(resume(made("paper", &["watt", "random"])), "scale is \"small\" there");
        refused(resume(made("small", &["watt", "lru"])), "policy random on no store, 2 s");
        refused(resume(made("small", &["watt"])), "is not in this one");
        refused(resume(made("small", &["watt", "random", "lru"])), "it lacks the cell");
        refused(resume(made("small", &["random", "watt"])), "another order");
        std::fs::write(folder.path().join(NAME), "no json\n").unwrap();
        refused(resume(made("small", &["watt", "random"])), "is damaged");
    }
}
