//! Runs each program as a user would, with a temporary store, and looks at what it prints.

use std::process::Command;

#[track_caller]
fn run(program: &str, expected: &[&str]) {
    let output = Command::new(program).output().expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {}\n{text}{errors}", output.status);
    for line in expected {
        assert!(text.contains(line), "{program} does not print {line:?}:\n{text}");
    }
}

#[test]
fn embed() {
    run(env!("CARGO_BIN_EXE_embed"), &["the address is taken", "Ada,ada@example.org"]);
}

#[test]
fn retry() {
    run(env!("CARGO_BIN_EXE_retry"), &["attempts, sum 8000"]);
}

#[test]
fn snapshot_scan() {
    run(env!("CARGO_BIN_EXE_snapshot-scan"), &["20 equal reports beside"]);
}

#[test]
fn tokio_tasks() {
    let expected = ["5000 records found by 100 tasks", "100 commits"];
    run(env!("CARGO_BIN_EXE_tokio-tasks"), &expected);
}

#[test]
fn backup() {
    run(env!("CARGO_BIN_EXE_backup"), &["events in the backup"]);
}
