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
fn metrics() {
    let output = Command::new(env!("CARGO_BIN_EXE_metrics")).output().expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}\n{text}", output.status);
    let value = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in\n{text}"));
        line.trim().parse().expect("a number")
    };
    // As many as the program has made, and times that a device can have.
    assert!(value("wattle_commits_total{engine=\"orders\"}") >= 20.0);
    assert!(value("wattle_faults_total{engine=\"orders\"}") > 0.0);
    assert_eq!(value("wattle_waits_total{engine=\"orders\",what=\"commit\"}"), 20.0);
    assert!([0.0, 1.0].contains(&value("wattle_is_warming{engine=\"orders\"}")));
    assert_eq!(value("wattle_warm_pages_read_total{engine=\"orders\"}"), 0.0);
    for what in ["commit", "operation"] {
        let of = |quantile: &str| {
            value(&format!(
                "wattle_wait_seconds{{engine=\"orders\",what=\"{what}\",quantile=\"{quantile}\"}}"
            ))
        };
        let (median, longest) = (of("0.5"), of("1"));
        // A write to a device, or a read from it, takes some microseconds at least.
        assert!(median > 0.0 && median <= longest && longest < 60.0, "{what} {median} {longest}");
        assert!(longest > 3e-6, "{what} {longest}");
    }
    assert!(text.contains("JSON with"), "{text}");
}

#[test]
fn backup() {
    run(env!("CARGO_BIN_EXE_backup"), &["events in the backup"]);
}
