//! TPC-B and TATP from flags to report: on a store of maps with planted conflicts and damage, and
//! by the binary on the engine, larger than memory and killed.

use std::path::Path;
use std::process::{Command as Process, Output, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{self, MapStore, store_at};
use serde_json::Value;
use wattle_workloads::bench::Benchmark;
use wattle_workloads::cli::bench_run::BenchScenario;
use wattle_workloads::cli::exit::Exit;
use wattle_workloads::cli::run::check_store;
use wattle_workloads::driver::control::Interrupt;
use wattle_workloads::report::Condition;
use wattle_workloads::tatp::benchmark::Tatp;
use wattle_workloads::tpcb::benchmark::Tpcb;

/// Runs `wattle` with `arguments` on maps, in which `DIR` stands for `folder`. Returns how it
/// ended, and the result that it printed, if any.
fn over_maps(arguments: &str, folder: &Path) -> (Result<(), Exit>, Value) {
    support::over_maps(arguments, folder, &Interrupt::default())
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

const TPCB: &str = "tpcb --db DIR/store --scale 2 --warmup 0 --operations 3000 --check";
const TATP: &str = "tatp --db DIR/store --subscribers 3000 --warmup 0 --operations 20000 --check";

/// Names of the conditions that do not hold.
fn broken(result: &Value) -> Vec<&str> {
    let conditions = result["check"]["conditions"].as_array().unwrap();
    let broken = conditions.iter().filter(|one| one["passed"] == false);
    broken.map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn both_run_blocking_and_with_tasks_and_meet_conflicts() {
    for (run, conditions) in [(TPCB, 13), (TATP, 11)] {
        let folder = folder();
        let store = store_at(&folder.path().join("store"));
        for (turn, crew) in
            ["--threads 1", "--threads 3", "--threads 2 --tasks 5"].into_iter().enumerate()
        {
            if turn == 1 {
                store.shared.conflict_every.store(50, Ordering::Relaxed);
            }
            let (end, result) = over_maps(&format!("{run} {crew}"), folder.path());
            assert_eq!(end, Ok(()), "{run} {crew}: {result}");
            let operations = if run == TPCB { 3_000 } else { 20_000 };
            assert_eq!(result["run"]["operations"], operations);
            assert_eq!(result["load"]["reused"], turn > 0);
            assert_eq!(result["check"]["conditions"].as_array().unwrap().len(), conditions);
            assert_eq!(result["check"]["passed"], true);
            assert_eq!(result["run"]["aborts"].as_u64() > Some(10), turn > 0, "{}", result["run"]);
        }
    }
}

#[test]
fn tatp_has_its_mix_and_its_shares_of_successful_transactions() {
    let folder = folder();
    let run = TATP.replace("20000", "200000") + " --threads 2";
    let (end, result) = over_maps(&run, folder.path());
    assert_eq!(end, Ok(()));
    let count = |name: &str| result["run"]["latency_us"][name]["count"].as_f64().unwrap();
    // The description says 23.9 % for GET_NEW_DESTINATION; going through all cases of its
    // population and its parameters gives 14.8 %.
    for (name, share, successful) in [
        ("get-subscriber-data", 0.35, None),
        ("get-new-destination", 0.10, Some((0.148, 0.02))),
        ("get-access-data", 0.35, Some((0.625, 0.01))),
        ("update-subscriber-data", 0.02, Some((0.625, 0.03))),
        ("update-location", 0.14, None),
        ("insert-call-forwarding", 0.02, Some((0.3125, 0.03))),
        ("delete-call-forwarding", 0.02, Some((0.3125, 0.03))),
    ] {
        let mut all = count(name);
        if let Some((expected, tolerance)) = successful {
            let unsuccessful = count(&format!("{name}-unsuccessful"));
            let found = all / (all + unsuccessful);
            assert!((found - expected).abs() < tolerance, "{name}: {found} are successful");
            all += unsuccessful;
        }
        assert!((all / 200_000.0 - share).abs() < 0.005, "{name}: {all}");
    }
}

/// Damages a row.
fn change(store: &MapStore, table: &str, number: usize, change: impl Fn(&mut Vec<u8>)) {
    let map = store.shared.trees.lock().unwrap()[table].clone();
    let mut map = map.write().unwrap();
    change(map.values_mut().nth(number).unwrap());
}

fn remove(store: &MapStore, table: &str, number: usize) {
    let map = store.shared.trees.lock().unwrap()[table].clone();
    let mut map = map.write().unwrap();
    let key = map.keys().nth(number).unwrap().clone();
    map.remove(&key).unwrap();
}

/// The findings of a check after a run and `damage` of its data.
fn damaged(run: &str, damage: impl Fn(&MapStore)) -> String {
    let folder = folder();
    assert_eq!(over_maps(run, folder.path()).0, Ok(()));
    let store = store_at(&folder.path().join("store"));
    damage(&store);
    let (path, interrupt) = (folder.path(), Interrupt::default());
    let check = match run.starts_with("tpcb") {
        true => check_store(&BenchScenario::<Tpcb>::of_any_size(), &store, path, &interrupt),
        false => check_store(&BenchScenario::<Tatp>::of_any_size(), &store, path, &interrupt),
    };
    let broken = check.unwrap().conditions.into_iter().filter(|one| !one.passed);
    let shown = |one: Condition| format!("{}: {}", one.name, one.detail.unwrap_or_default());
    broken.map(shown).collect::<Vec<_>>().join("; ")
}

#[test]
fn the_check_of_tpcb_finds_what_is_wrong() {
    use wattle_workloads::tpcb::rows::{Row, RowKind};
    let run = TPCB.replace("3000", "500") + " --threads 1";
    let money = |kind: RowKind, table: &'static str, number: usize, amount: i64| {
        move |store: &MapStore| {
            change(store, table, number, |row| {
                let old = Row::decode(kind, number as u64, row).unwrap();
                *row = Row { balance: old.balance + amount, ..old }.encode().to_vec();
            });
        }
    };
    assert_eq!(damaged(&run, |_| ()), "");
    // A balance that a transaction forgot, as if its update had been lost.
    let found = damaged(&run, money(RowKind::Branch, "tpcb-branches", 1, 5));
    assert!(found.contains("branch 1 has") && found.contains("its tellers have"), "{found}");
    let found = damaged(&run, money(RowKind::Teller, "tpcb-tellers", 13, -7));
    assert!(found.contains("teller 13 has") && found.contains("its history says"), "{found}");
    // Money on the wrong account: the sums are right.
    let found = damaged(&run, |store| {
        money(RowKind::Account, "tpcb-accounts", 100, 9)(store);
        money(RowKind::Account, "tpcb-accounts", 150_000, -9)(store);
    });
    assert!(found.starts_with("the accounts have the sums of their history: "), "{found}");
    let found = damaged(&run, |store| remove(store, "tpcb-history", 20));
    assert!(found.contains("each branch has the sum of its history"), "{found}");
    let found = damaged(&run, |store| remove(store, "tpcb-accounts", 77_777));
    assert!(found.contains("account 77777 is missing or damaged"), "{found}");
    let found = damaged(&run, |store| change(store, "tpcb-tellers", 3, |row| row[20] ^= 1));
    assert!(found.contains("teller 3 is missing or damaged"), "{found}");
}

#[test]
fn the_check_of_tatp_finds_what_is_wrong() {
    let run = TATP.replace("20000", "500").replace("3000", "300") + " --threads 1";
    assert_eq!(damaged(&run, |_| ()), "");
    for (table, part) in [
        ("tatp-subscriber", "subscriber 12 is missing or damaged"),
        ("tatp-sub-nbr", "the number of subscriber 12 is missing or leads elsewhere"),
        ("tatp-access-info", "access info refers to subscribers, each has some: row "),
        ("tatp-special-facility", "special facilities refer to subscribers, each has some: row "),
        ("tatp-call-forwarding", "call forwardings refer to special facilities: row "),
    ] {
        let found = damaged(&run, |store| change(store, table, 11, |row| row[0] ^= 1));
        assert!(found.contains(part), "{table}: {found}");
    }
    let found = damaged(&run, |store| remove(store, "tatp-sub-nbr", 299));
    assert!(found.contains("it has 299 numbers, not 300"), "{found}");
    // Without its special facilities a call forwarding is an orphan.
    let found = damaged(&run, |store| {
        (0..300).for_each(|_| remove(store, "tatp-special-facility", 0));
    });
    assert!(found.contains("call forwardings refer to special facilities: row"), "{found}");
}

#[test]
fn damaged_reads_and_failing_loads_end_a_run() {
    let folder = folder();
    assert_eq!(over_maps(TATP, folder.path()).0, Ok(()));
    let store = store_at(&folder.path().join("store"));
    let next = store.shared.reads.load(Ordering::Relaxed) + 500;
    store.shared.damaged_read.store(next, Ordering::Relaxed);
    let run = TATP.replace(" --check", " --threads 1");
    let (end, result) = over_maps(&run, folder.path());
    assert!(
        matches!(&end, Err(Exit::Failed(why)) if why.contains("missing or damaged")),
        "{end:?}"
    );
    assert_eq!(broken(&result), ["every row asked for was there and as it was written"]);

    let fresh = folder.path().join("fresh");
    store_at(&fresh.join("store")).shared.failing_insert.store(1000, Ordering::Relaxed);
    let (end, _) = over_maps(TPCB, &fresh);
    assert_eq!(end, Err(Exit::Failed("loading: the device is full".to_owned())));
    let (end, _) = over_maps(TPCB, &fresh);
    assert!(matches!(end, Err(Exit::Usage(why)) if why.contains("a load that was not finished")));
}

#[test]
fn an_interrupted_run_has_its_results_and_does_not_say_that_it_was_checked() {
    for run in [TPCB, TATP] {
        let folder = folder();
        assert_eq!(over_maps(run, folder.path()).0, Ok(()));
        let store = store_at(&folder.path().join("store"));
        let interrupt = Interrupt::default();
        let (raised, mut changes) = (interrupt.clone(), 0);
        *store.shared.distort.lock().unwrap() = Some(Box::new(move |_, _, _, _| {
            changes += 1;
            if changes == 20_000 {
                raised.raise();
            }
        }));
        let long =
            run.split(" --operations").next().unwrap().to_owned() + " --duration 60s --check";
        let (end, result) = support::over_maps(&long, folder.path(), &interrupt);
        let so_far = "interrupted: these are the results so far";
        assert_eq!(end, Err(Exit::Interrupted(so_far.to_owned())));
        assert_eq!(result["run"]["interrupted"], true);
        assert!(result["run"]["operations"].as_u64() > Some(10), "{result}");
        assert_eq!(broken(&result), ["after the run, everything was checked"]);
        let (end, result) = support::over_maps(&long, folder.path(), &interrupt);
        assert_eq!(end, Err(Exit::Interrupted("interrupted while checking".to_owned())));
        assert_eq!(result, Value::Null);
    }
}

#[test]
fn data_of_another_size_or_workload_are_refused() {
    let folder = folder();
    assert_eq!(over_maps(TATP, folder.path()).0, Ok(()));
    for (run, parts) in [
        (
            TATP.replace("3000", "4000"),
            vec!["holds 3,000 subscribers, and not the 4,000 asked for"],
        ),
        (TPCB.to_owned(), vec!["holds other data", "tatp-subscriber", "no TPC-B data"]),
    ] {
        let (end, _) = over_maps(&run, folder.path());
        let Err(Exit::Usage(why)) = end else { panic!("{end:?}") };
        assert!(parts.iter().all(|part| why.contains(part)), "{why}");
    }
    assert_eq!(Tpcb::with_size(7).size(), 7);
}

fn wattle(arguments: &str, folder: &Path) -> Output {
    let arguments = arguments.replace("DIR", folder.to_str().unwrap());
    let mut command = Process::new(env!("CARGO_BIN_EXE_wattle"));
    command.args(arguments.split_whitespace()).output().unwrap()
}

fn result(arguments: &str, folder: &Path) -> Value {
    let output = wattle(arguments, folder);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn both_run_on_the_engine_larger_than_memory() {
    for (load, run) in [
        ("tpcb --scale 1", "--pool 4MiB --operations 1500"),
        ("tatp --subscribers 20000", "--pool 2MiB --operations 10000"),
    ] {
        let folder = folder();
        let common = format!("{load} {run} --db DIR/store --warmup 50ms --check --format json");
        for crew in
            ["--threads 2 --durability group", "--threads 2 --tasks 4 --record-trace DIR/t.csv"]
        {
            let run = result(&format!("{common} {crew}"), folder.path());
            assert_eq!(run["check"]["passed"], true, "{run}");
            assert!(run["buffer"]["faults"].as_u64() > Some(100), "{}", run["buffer"]);
        }
        let name = load.split(' ').next().unwrap();
        let check = result(&format!("verify --format json --{name} DIR/store"), folder.path());
        assert_eq!(check["passed"], true);
        assert!(check["conditions"].as_array().unwrap().len() >= 5);
        let other = if name == "tpcb" { "tatp" } else { "tpcb" };
        let refused = wattle(&format!("verify --{other} DIR/store"), folder.path());
        let error = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{error}");
        assert!(error.contains("holds other data"), "{error}");
    }
}

#[test]
fn a_killed_run_leaves_consistent_data() {
    for load in ["tpcb --scale 1", "tatp --subscribers 5000"] {
        let folder = folder();
        let common = format!("{load} --pool 4MiB --db DIR/store --warmup 0 --format json");
        result(&format!("{common} --operations 10"), folder.path());
        for (crew, time) in [("--threads 2 --durability group", 700), ("--tasks 4", 900)] {
            let run = format!("{common} --duration 60s {crew}");
            let run = run.replace("DIR", folder.path().to_str().unwrap());
            let mut command = Process::new(env!("CARGO_BIN_EXE_wattle"));
            command.args(run.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            std::thread::sleep(Duration::from_millis(time));
            child.kill().unwrap();
            child.wait().unwrap();
            let name = load.split(' ').next().unwrap();
            let check = result(&format!("verify --format json --{name} DIR/store"), folder.path());
            assert_eq!(check["passed"], true, "{check}");
        }
        let again = result(&format!("{common} --operations 100 --check"), folder.path());
        assert_eq!(again["load"]["reused"], true);
    }
}

#[test]
fn bad_flags_are_refused_with_a_sentence() {
    let folder = folder();
    for (arguments, parts) in [
        ("tpcb --scale 0", vec!["--scale", "1..=100000"]),
        ("tatp --subscribers 0", vec!["--subscribers", "1..=4294967296"]),
        ("tpcb --pool 4KiB", vec!["too small", "minimum"]),
        ("tatp --db x --io memory", vec!["--db", "--io memory"]),
        ("verify --tpcb --tatp DIR", vec!["--tpcb", "--tatp", "cannot be used with"]),
    ] {
        let output = wattle(arguments, folder.path());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{arguments}: {error}");
    }
}
