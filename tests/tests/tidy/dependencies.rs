//! Rule: each dependency of a `Cargo.toml` is used, and stands there once.

use crate::{
    Finding,
    workspace::{File, Workspace},
};
use std::collections::BTreeSet;
use toml::{Table, Value};

/// Dependencies that their crate does not use, or that it lists twice.
pub fn dependencies(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used_by_members = BTreeSet::new();
    let mut of_the_workspace = Vec::new();
    for manifest in workspace.files.iter().filter(|file| file.path.ends_with("Cargo.toml")) {
        let table: Table = match manifest.text.parse() {
            Ok(table) => table,
            Err(error) => panic!("{}: {error}", manifest.path),
        };
        if let Some(Value::Table(whole)) = table.get("workspace") {
            let names = whole.get("dependencies").and_then(Value::as_table);
            of_the_workspace.extend(
                names.into_iter().flat_map(Table::keys).map(|name| (manifest, name.clone())),
            );
        }
        let mut listed = BTreeSet::new();
        for (name, for_tests) in all(&table) {
            if !is_used(workspace, manifest, &name, for_tests) {
                findings.push(finding(manifest, &name, "is not used"));
            }
            // The tests of a crate may have what is optional for its users.
            let is_again = !listed.insert(name.clone());
            if is_again && !(for_tests && is_optional(&table, &name)) {
                findings.push(finding(manifest, &name, "stands here twice"));
            }
            used_by_members.insert(name);
        }
    }
    let unused = of_the_workspace.iter().filter(|(_, name)| !used_by_members.contains(name));
    findings.extend(unused.map(|(file, name)| finding(file, name, "is used by no crate")));
    findings
}

fn finding(manifest: &File, name: &str, problem: &str) -> Finding {
    let line = manifest.text.lines().position(|line| line.starts_with(name)).unwrap_or(0) + 1;
    manifest.finding(line, format!("dependency `{name}` {problem}"))
}

/// Whether the users of a crate choose if they have this dependency.
fn is_optional(table: &Table, name: &str) -> bool {
    let dependency = table.get("dependencies").and_then(|all| all.get(name));
    dependency.and_then(|of| of.get("optional")).and_then(Value::as_bool) == Some(true)
}

/// The dependencies of a manifest, and whether they are for tests only.
fn all(table: &Table) -> Vec<(String, bool)> {
    let mut names = Vec::new();
    for (key, for_tests) in
        [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
    {
        let found = table.get(key).and_then(Value::as_table);
        names.extend(found.into_iter().flat_map(Table::keys).map(|name| (name.clone(), for_tests)));
    }
    let targets = table.get("target").and_then(Value::as_table);
    for target in targets.into_iter().flat_map(Table::values) {
        names.extend(target.as_table().into_iter().flat_map(all));
    }
    names
}

/// Whether a file of the crate names the dependency: outside of its tests, unless it is for tests.
fn is_used(workspace: &Workspace, manifest: &File, name: &str, for_tests: bool) -> bool {
    let directory = manifest.directory();
    let tests = format!("{directory}/tests/");
    let inside = format!("{directory}/");
    let name = name.replace('-', "_");
    workspace.with_extension("rs").any(|file| {
        file.path.starts_with(&inside)
            && (for_tests || !file.path.starts_with(&tests))
            && names(&file.text, &name)
    })
}

/// Whether a text has this word.
fn names(text: &str, word: &str) -> bool {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|found| found == word)
}
