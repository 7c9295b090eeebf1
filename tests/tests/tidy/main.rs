//! Checks the text of the whole repository: line length, plain words, references, dependencies,
//! `unsafe`, import circles, the length of files and functions, and examples.
//!
//! Each rule returns findings. `tests/tidy-debts.txt` lists how many findings of a rule a crate
//! may still have. A test fails when a crate has more findings than that, and when it has none
//! left, so that the list only shrinks. To print every number:
//!
//! ```text
//! cargo test -p wattle-tests --test tidy -- --nocapture
//! WATTLE_TIDY=lower cargo test -p wattle-tests --test tidy   # lower the debts to the findings
//! ```

mod circles;
mod code;
mod debts;
mod dependencies;
mod examples;
mod offenders;
mod prose;
mod references;
mod text;
mod workspace;

use debts::{Debts, Verdict};
use workspace::Workspace;

/// One breach of a rule.
#[derive(Debug)]
struct Finding {
    /// First component of the path, or `root` for a file at the root.
    package: String,
    file: String,
    line: usize,
    message: String,
}

/// A rule of this test, named as in `tidy-debts.txt`.
struct Rule {
    name: &'static str,
    check: fn(&Workspace) -> Vec<Finding>,
}

const RULES: [Rule; 10] = [
    Rule { name: "line-length", check: text::line_length },
    Rule { name: "words", check: text::words },
    Rule { name: "references", check: references::references },
    Rule { name: "dependencies", check: dependencies::dependencies },
    Rule { name: "unsafe", check: code::unsafe_reasons },
    Rule { name: "unfinished", check: code::unfinished },
    Rule { name: "file-length", check: code::file_length },
    Rule { name: "function-length", check: code::function_length },
    Rule { name: "circles", check: circles::circles },
    Rule { name: "examples", check: examples::examples },
];

fn rule(name: &str) -> &'static Rule {
    RULES.iter().find(|rule| rule.name == name).expect("a rule of this name")
}

/// Fails unless the findings of a rule are those that the debts allow.
fn hold(name: &str) {
    let workspace = Workspace::read();
    let findings = (rule(name).check)(&workspace);
    let debts = Debts::read();
    for (package, count) in debts::counts(&findings) {
        println!("{name:16} {package:10} {count:5}");
    }
    match debts.judge(name, &findings) {
        Verdict::Holds => {}
        Verdict::Fails(reasons) => panic!("\n{reasons}"),
    }
}

#[test]
fn lines_have_at_most_100_characters() {
    hold("line-length");
}

#[test]
fn comments_messages_and_documents_are_in_plain_words() {
    hold("words");
}

#[test]
fn references_lead_somewhere() {
    hold("references");
}

#[test]
fn every_dependency_is_used() {
    hold("dependencies");
}

#[test]
fn unsafe_code_gives_its_reasons() {
    hold("unsafe");
}

#[test]
fn nothing_is_left_unfinished() {
    hold("unfinished");
}

#[test]
fn files_outside_of_tests_have_at_most_600_lines() {
    hold("file-length");
}

#[test]
fn functions_have_at_most_80_lines_or_a_reason() {
    hold("function-length");
}

#[test]
fn files_of_a_crate_do_not_import_in_circles() {
    hold("circles");
}

#[test]
fn methods_of_the_main_types_have_an_example() {
    hold("examples");
}

#[test]
fn the_debts_name_rules_and_packages_that_exist() {
    let workspace = Workspace::read();
    for (rule, package) in Debts::read().names() {
        assert!(RULES.iter().any(|known| known.name == rule), "tidy-debts.txt: no rule {rule}");
        let found = workspace.files.iter().any(|file| file.package == package);
        assert!(found, "tidy-debts.txt: no package {package}");
    }
}

/// With `WATTLE_TIDY=lower`, lowers the debts to the findings of today.
#[test]
fn the_debts_are_lowered_on_request() {
    if std::env::var("WATTLE_TIDY").as_deref() != Ok("lower") {
        return;
    }
    let workspace = Workspace::read();
    let mut debts = Debts::read();
    for rule in &RULES {
        debts.lower(rule.name, &(rule.check)(&workspace));
    }
    debts.write();
}
