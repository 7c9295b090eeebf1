//! YCSB from flags to report, on a store of maps.

use std::path::Path;
use std::sync::atomic::Ordering;

use crate::support::{over_maps, store_at};
use serde_json::{Value, json};
use wattle_workloads::cli::exit::Exit;
use wattle_workloads::driver::control::Interrupt;

/// Runs `wattle ycsb` with `arguments`, in which `DIR` stands for `folder`. Returns how it ended,
/// and the result that it printed, if any.
fn ycsb_with(interrupt: &Interrupt, arguments: &str, folder: &Path) -> (Result<(), Exit>, Value) {
    over_maps(&format!("ycsb {arguments}"), folder, interrupt)
}

fn ycsb(arguments: &str, folder: &Path) -> Result<(), Exit> {
    ycsb_with(&Interrupt::default(), arguments, folder).0
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

const SMALL: &str = "--db DIR/store --records 2000 --warmup 20ms --operations 20000";

#[test]
fn every_core_workload_runs_blocking_and_with_tasks() {
    for workload in ["a", "b", "c", "d", "e", "f", "ms", "wis", "ris", "mu"] {
        for crew in ["--threads 1", "--threads 3", "--threads 2 --tasks 5"] {
            let folder = folder();
            let arguments = format!("{SMALL} --workload {workload} {crew}");
            let (end, result) = ycsb_with(&Interrupt::default(), &arguments, folder.path());
            assert_eq!(end, Ok(()), "{arguments}");
            let run = &result["run"];
            assert_eq!(run["operations"], 20_000, "{arguments}");
            let latency = run["latency_us"].as_object().unwrap();
            let counts = latency.values().map(|kind| kind["count"].as_u64().unwrap());
            assert_eq!(counts.sum::<u64>(), 20_000, "{arguments}");
            assert_eq!(result["check"]["passed"], true);
        }
    }
}

#[test]
fn other_shapes_and_distributions_run() {
    for shape in [
        "--value-size 120 --key-size 8 --distribution uniform",
        "--value-size 1 --key-size 40",
        "--fields 3 --field-size 7 --distribution latest --theta 0.5",
        "--read 1 --update 1 --insert 1 --scan 0.1 --rmw 1",
    ] {
        let folder = folder();
        assert_eq!(ycsb(&format!("{SMALL} --threads 2 {shape}"), folder.path()), Ok(()), "{shape}");
    }
}

#[test]
fn a_loaded_store_is_used_again_and_keeps_its_inserts() {
    let folder = folder();
    // Without a warm-up, whose inserts have no limit.
    let run =
        "--db DIR/store --records 2000 --warmup 0 --operations 20000 --workload d --threads 2";
    let store = store_at(&folder.path().join("store"));
    assert_eq!(ycsb(run, folder.path()), Ok(()));
    let after_first = store.shared.inserts.load(Ordering::Relaxed);
    assert!(after_first > 2500, "2000 records and about 1000 inserts, not {after_first}");
    assert_eq!(ycsb(run, folder.path()), Ok(()));
    let second = store.shared.inserts.load(Ordering::Relaxed) - after_first;
    assert!((500..1900).contains(&second), "nothing is loaded again, {second} inserts");
}

#[test]
fn a_store_with_other_data_is_refused_and_left_alone() {
    let folder = folder();
    assert_eq!(ycsb(&format!("{SMALL} --workload c"), folder.path()), Ok(()));
    for other in ["--records 3000", "--key-size 8", "--fields 9", "--value-size 1000"] {
        let small = SMALL.replace("--records 2000", "");
        let records = if other.contains("records") { "" } else { "--records 2000" };
        let Err(Exit::Usage(sentence)) = ycsb(&format!("{small} {records} {other}"), folder.path())
        else {
            panic!("{other} was accepted");
        };
        for part in ["2,000 records", "24 bytes", "10 fields of 100 bytes", "as asked for"] {
            assert!(sentence.contains(part), "{part} is not in: {sentence}");
        }
    }
    let strange = folder.path().join("strange");
    store_at(&strange).shared.trees.lock().unwrap().insert("orders".to_owned(), Default::default());
    let refused = ycsb("--db DIR/strange --records 10", folder.path());
    assert!(matches!(&refused, Err(Exit::Usage(sentence)) if sentence.contains("orders")));
    assert_eq!(store_at(&strange).shared.inserts.load(Ordering::Relaxed), 0);
}

#[test]
fn a_wrong_value_fails_the_run() {
    for crew in ["--threads 1", "--threads 2 --tasks 3"] {
        for workload in ["a", "c", "d", "f"] {
            let folder = folder();
            let store = store_at(&folder.path().join("store"));
            // The first read of all is that of the description of the data.
            store.shared.damaged_read.store(500, Ordering::Relaxed);
            let run = format!("{SMALL} --workload {workload} {crew}");
            let (failed, result) = ycsb_with(&Interrupt::default(), &run, folder.path());
            let Err(Exit::Failed(sentence)) = failed else { panic!("{failed:?}") };
            assert_eq!(
                (&result["error"], &result["check"]["passed"]),
                (&json!(sentence), &json!(false))
            );
            assert!(sentence.contains("not one that was written to it"), "{sentence}");
            assert!(sentence.contains("user"), "the key is named: {sentence}");
        }
    }
}

#[test]
fn a_record_that_vanished_fails_the_run() {
    for workload in ["a", "c", "e", "f"] {
        let folder = folder();
        let load = format!("{SMALL} --workload c --distribution uniform");
        assert_eq!(ycsb(&load, folder.path()), Ok(()));
        let store = store_at(&folder.path().join("store"));
        let table = store.shared.trees.lock().unwrap()["ycsb"].clone();
        let key = table.read().unwrap().keys().nth(1000).cloned().unwrap();
        table.write().unwrap().remove(&key);
        let run = format!("{SMALL} --workload {workload} --distribution uniform --threads 2");
        let failed = ycsb(&run, folder.path());
        let Err(Exit::Failed(sentence)) = failed else { panic!("{workload}: {failed:?}") };
        let key = String::from_utf8(key).unwrap();
        assert!(sentence.contains(&key) && sentence.contains("did not find"), "{sentence}");
    }
}

#[test]
fn a_failing_insert_ends_the_load_and_the_run() {
    for crew in ["--threads 2", "--threads 2 --tasks 4"] {
        let folder = folder();
        let store = store_at(&folder.path().join("store"));
        store.shared.failing_insert.store(1000, Ordering::Relaxed);
        let failed = ycsb(&format!("{SMALL} {crew}"), folder.path());
        assert_eq!(failed, Err(Exit::Failed("loading: the device is full".to_owned())));
        let again = ycsb(&format!("{SMALL} {crew}"), folder.path());
        assert!(
            matches!(&again, Err(Exit::Usage(sentence)) if sentence.contains("not finished")),
            "half a load is not used: {again:?}"
        );

        let other = store_at(&folder.path().join("other"));
        other.shared.failing_insert.store(2100, Ordering::Relaxed);
        let run = format!("{SMALL} {crew} --workload d").replace("DIR/store", "DIR/other");
        let failed = ycsb(&run, folder.path());
        assert_eq!(failed, Err(Exit::Failed("the device is full".to_owned())));
        let again = ycsb(&run, folder.path());
        assert!(
            matches!(&again, Err(Exit::Usage(sentence)) if sentence.contains("run that inserts")),
            "a run that failed between inserts leaves unknown data: {again:?}"
        );
    }
}

#[test]
fn samples_and_page_are_written_and_wrong_paths_refused_at_once() {
    let folder = folder();
    let run = "--db DIR/store --records 1000 --warmup 0 --duration 1200ms --threads 2 \
               --samples DIR/samples.csv --report DIR/report.html";
    assert_eq!(ycsb(run, folder.path()), Ok(()));
    let samples = std::fs::read_to_string(folder.path().join("samples.csv")).unwrap();
    assert_eq!(samples.lines().count(), 3, "a header, a full second and the rest: {samples}");
    let operations: Vec<u64> = samples
        .lines()
        .skip(1)
        .map(|row| row.split(',').nth(1).unwrap().parse().unwrap())
        .collect();
    assert!(operations.iter().all(|&operations| operations > 100), "{samples}");
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("wattle ycsb"));

    for flag in ["--samples", "--report"] {
        let run = format!("--db DIR/new --records 1000 {flag} DIR/none/file");
        let refused = ycsb(&run, folder.path());
        assert!(
            matches!(&refused, Err(Exit::Usage(sentence)) if sentence.contains(flag)),
            "{refused:?}"
        );
    }
    assert_eq!(store_at(&folder.path().join("new")).shared.inserts.load(Ordering::Relaxed), 0);
}

#[test]
fn an_interrupt_ends_a_run_early_with_its_results() {
    let folder = folder();
    let interrupt = Interrupt::default();
    let raised = interrupt.clone();
    let start = std::time::Instant::now();
    let run = "--db DIR/store --records 1000 --warmup 0 --duration 60s --threads 2 \
               --report DIR/report.html --workload d";
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(700));
        raised.raise();
    });
    let (end, result) = ycsb_with(&interrupt, run, folder.path());
    let ended = Err(Exit::Interrupted("interrupted: these are the results so far".to_owned()));
    assert_eq!((end, &result["run"]["interrupted"]), (ended, &json!(true)));
    assert!(start.elapsed().as_secs() < 50);
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("(interrupted)"));
    // The inserts of the interrupted run are whole, so the store is good for another one.
    let again = "--db DIR/store --records 1000 --warmup 0 --operations 1000 --workload d";
    assert_eq!(ycsb(again, folder.path()), Ok(()));
    assert_eq!(
        ycsb_with(&interrupt, "--db DIR/other --records 9999", folder.path()).0,
        Err(Exit::Interrupted("interrupted while loading".to_owned()))
    );
}
