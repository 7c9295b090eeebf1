//! `tests/tidy-debts.txt`: how many findings of a rule a crate may still have. The file may only
//! shrink.

use crate::{Finding, workspace};
use std::{collections::BTreeMap, fmt::Write, path::PathBuf};

/// Findings that a failure prints for one package.
const PRINTED: usize = 400;

const HEAD: &str = "\
# Findings of the tidy test that are known, as `rule package count`. No count may rise, and a line
# whose count reached 0 goes. `WATTLE_TIDY=lower cargo test -p wattle-tests --test tidy` lowers all
# counts to the numbers of today.
";

/// The allowed number of findings by package and rule.
pub struct Debts(BTreeMap<(String, String), usize>);

/// Whether a rule holds, or why it does not.
#[derive(Debug)]
pub enum Verdict {
    Holds,
    Fails(String),
}

/// The number of findings of each package.
pub fn counts(findings: &[Finding]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for finding in findings {
        *counts.entry(finding.package.as_str()).or_default() += 1;
    }
    counts
}

impl Debts {
    fn path() -> PathBuf {
        workspace::root().join("tests/tidy-debts.txt")
    }

    /// Reads the file; there are no debts without one.
    pub fn read() -> Self {
        let path = Self::path();
        if !path.exists() {
            return Self(BTreeMap::new());
        }
        Self::parse(&std::fs::read_to_string(path).expect("tests/tidy-debts.txt"))
    }

    pub fn parse(text: &str) -> Self {
        let mut debts = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [rule, package, count] = words[..] else {
                panic!("tidy-debts.txt: not `rule package count`: {line}")
            };
            let count = count.parse().expect("a count");
            let old = debts.insert((package.to_owned(), rule.to_owned()), count);
            assert!(old.is_none(), "tidy-debts.txt: twice {rule} {package}");
        }
        Self(debts)
    }

    /// All pairs of rule and package.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.keys().map(|(package, rule)| (rule.as_str(), package.as_str()))
    }

    /// Compares the findings of a rule with the debts.
    pub fn judge(&self, rule: &str, findings: &[Finding]) -> Verdict {
        let counts = counts(findings);
        let mut reasons = String::new();
        for (&package, &count) in &counts {
            let allowed = self.0.get(&(package.to_owned(), rule.to_owned())).copied().unwrap_or(0);
            if count <= allowed {
                continue;
            }
            writeln!(reasons, "{rule} {package}: {count} findings, {allowed} allowed").unwrap();
            let here = findings.iter().filter(|finding| finding.package == package);
            let mut here: Vec<&Finding> = here.collect();
            here.sort_by_key(|finding| (&finding.file, finding.line));
            for Finding { file, line, message, .. } in here.into_iter().take(PRINTED) {
                writeln!(reasons, "  {file}:{line}: {message}").unwrap();
            }
            if count > PRINTED {
                writeln!(reasons, "  and {} more", count - PRINTED).unwrap();
            }
        }
        for (name, package) in self.names().filter(|&(name, _)| name == rule) {
            if !counts.contains_key(package) {
                writeln!(reasons, "tests/tidy-debts.txt: `{name} {package}`: remove this line")
                    .unwrap();
            }
        }
        if reasons.is_empty() { Verdict::Holds } else { Verdict::Fails(reasons) }
    }

    /// Lowers the counts of a rule to its findings. No count rises unless the file is absent.
    pub fn lower(&mut self, rule: &str, findings: &[Finding]) {
        let counts = counts(findings);
        if !Self::path().exists() {
            for (package, count) in counts {
                self.0.insert((package.to_owned(), rule.to_owned()), count);
            }
            return;
        }
        self.0.retain(|(package, name), allowed| {
            if name == rule {
                *allowed = (*allowed).min(counts.get(package.as_str()).copied().unwrap_or(0));
            }
            *allowed > 0
        });
    }

    pub fn write(&self) {
        let mut text = HEAD.to_owned();
        let mut last = "";
        for ((package, rule), count) in &self.0 {
            if package != last {
                text.push('\n');
                last = package;
            }
            writeln!(text, "{rule} {package} {count}").unwrap();
        }
        std::fs::write(Self::path(), text).expect("write tests/tidy-debts.txt");
    }
}
