//! TPC-C on a store of `BTreeMap`s: the population, runs, wrong transactions, bad input; and on the
//! engine, in memory, larger than memory and after a crash.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::support::{Distort, MapStore, copy_to, over_maps, store_at};
use serde_json::{Value, json};
use wattle_workloads::cli::exit::Exit;
use wattle_workloads::cli::run::check_store;
use wattle_workloads::cli::tpcc_run::TpccScenario;
use wattle_workloads::driver::control::Interrupt;
use wattle_workloads::tpcc::rows::{self, customer, district, item, order, order_line, warehouse};

/// Runs a subcommand on stores of maps; returns how it ended, and its JSON object if it printed
/// one.
fn run(arguments: &str, folder: &Path) -> (Result<(), Exit>, Value) {
    run_until(arguments, folder, &Interrupt::default())
}

/// The same, until `interrupt` is raised.
fn run_until(arguments: &str, folder: &Path, interrupt: &Interrupt) -> (Result<(), Exit>, Value) {
    over_maps(arguments, folder, interrupt)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

const ONE: &str = "tpcc --db DIR/store --warehouses 1 --warmup 0";

/// One loaded warehouse at DIR/store.
fn loaded(folder: &Path) -> MapStore {
    static LOADED: OnceLock<MapStore> = OnceLock::new();
    let store = LOADED.get_or_init(|| {
        let folder = self::folder();
        let (end, result) =
            run(&format!("{ONE} --operations 1 --mix order-status --check"), folder.path());
        assert_eq!(end, Ok(()));
        assert_eq!(failed(&result), Vec::<String>::new());
        let names = result["check"]["conditions"].as_array().unwrap();
        assert_eq!(names.len(), 15 + 14, "condition 11 counts after the load only");
        store_at(&folder.path().join("store"))
    });
    copy_to(&folder.join("store"), store)
}

/// The conditions that do not hold: their numbers, or their first words.
fn failed(result: &Value) -> Vec<String> {
    let conditions = result["check"]["conditions"].as_array().unwrap();
    let broken = conditions.iter().filter(|condition| condition["passed"] == false);
    let name = |condition: &Value| {
        assert!(condition["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
        let name = condition["name"].as_str().unwrap();
        let name = name.split_once(", ").unwrap().1;
        match name.strip_prefix("3.3.2.") {
            Some(numbered) => numbered.split(':').next().unwrap().to_owned(),
            None => name.split(' ').next().unwrap().to_owned(),
        }
    };
    broken.map(name).collect()
}

/// Rows of a table.
fn count(store: &MapStore, table: &str) -> u64 {
    store.shared.trees.lock().unwrap()[table].read().unwrap().len() as u64
}

#[test]
fn the_population_has_the_rows_and_shares_of_clause_4_3_3() {
    let folder = folder();
    let store = loaded(folder.path());
    let lines = count(&store, "tpcc-order-line");
    assert!((297_000..303_000).contains(&lines), "{lines}");
    for (table, rows) in [
        ("tpcc-warehouse", 1),
        ("tpcc-district", 10),
        ("tpcc-customer", 30_000),
        ("tpcc-customer-name", 30_000),
        ("tpcc-history", 30_000),
        ("tpcc-new-order", 9_000),
        ("tpcc-order", 30_000),
        ("tpcc-order-customer", 30_000),
        ("tpcc-item", 100_000),
        ("tpcc-stock", 100_000),
    ] {
        assert_eq!(count(&store, table), rows, "{table}");
    }
    let trees = store.shared.trees.lock().unwrap();
    let rows =
        |table: &str| -> Vec<Vec<u8>> { trees[table].read().unwrap().values().cloned().collect() };
    let customers = rows("tpcc-customer");
    let bad = customers.iter().filter(|row| customer::CREDIT.get(row) == customer::BAD);
    assert_eq!(bad.count(), 3_000);
    let original =
        |at: usize, number| move |row: &&Vec<u8>| rows::is_original(rows::string(row, at, number));
    assert_eq!(rows("tpcc-item").iter().filter(original(item::STRINGS, 1)).count(), 10_000);
    assert_eq!(rows("tpcc-stock").iter().filter(original(rows::stock::STRINGS, 0)).count(), 10_000);
    // The orders of a district are those of each of its customers once, in random order.
    let mut ordering: Vec<u16> =
        rows("tpcc-order")[..3_000].iter().map(|row| order::C_ID.get(row)).collect();
    assert!(!ordering.is_sorted());
    ordering.sort();
    assert!(ordering.into_iter().eq(1..=3_000));
    let carriers = rows("tpcc-order").iter().filter(|row| order::CARRIER_ID.get(row) != 0).count();
    assert_eq!(carriers, 21_000);
    let paid: i64 = rows("tpcc-district").iter().map(|row| district::YTD.get(row)).sum();
    assert_eq!(paid, warehouse::YTD.get(&rows("tpcc-warehouse")[0]));
}

#[test]
fn the_same_seed_loads_the_same_rows_with_any_number_of_workers() {
    let folder = folder();
    let first = loaded(folder.path());
    let other = run(
        "tpcc --db DIR/other --warehouses 1 --warmup 0 --operations 1 --threads 2 \
         --tasks 3 --mix order-status",
        folder.path(),
    );
    assert_eq!(other.0, Ok(()));
    let second = store_at(&folder.path().join("other"));
    for table in
        ["tpcc-warehouse", "tpcc-item", "tpcc-stock", "tpcc-customer-name", "tpcc-order-customer"]
    {
        let rows =
            |store: &MapStore| store.shared.trees.lock().unwrap()[table].read().unwrap().clone();
        assert!(rows(&first) == rows(&second), "{table}");
    }
}

#[test]
fn everything_is_consistent_after_runs_with_threads_and_tasks() {
    for (crew, mix) in [
        ("--threads 1", "--mix standard"),
        ("--threads 3 --affinity", "--mix standard"),
        ("--threads 2 --tasks 4", "--mix standard"),
        ("--threads 2", "--mix delivery"),
        ("--threads 2 --hints prefetch --delivery-queue on", "--mix delivery"),
        ("--threads 2 --tasks 4 --hints prefetch --delivery-queue on", "--mix standard"),
        ("--threads 3 --hints prefetch", "--mix standard"),
    ] {
        let folder = folder();
        let store = loaded(folder.path());
        store.shared.conflict_every.store(211, Ordering::Relaxed);
        let (orders, lines) = (count(&store, "tpcc-order"), count(&store, "tpcc-order-line"));
        let arguments = format!("{ONE} --operations 3000 --check {crew} {mix}");
        let (end, result) = run(&arguments, folder.path());
        assert_eq!(end, Ok(()), "{arguments}: {:?}", failed(&result));
        let run = &result["run"];
        assert_eq!(run["operations"], 3000);
        assert!(run["aborts"].as_u64() > Some(50), "{run}");
        let latency = run["latency_us"].as_object().unwrap();
        let done = |kind: &str| latency[kind]["count"].as_u64().unwrap();
        assert_eq!(latency.keys().map(|kind| done(kind)).sum::<u64>(), 3000);
        let settings = &result["settings"];
        let hints = if crew.contains("--hints") { "prefetch" } else { "none" };
        let queue = if crew.contains("--delivery-queue") { "on" } else { "off" };
        assert_eq!(
            (&settings["hints"], &settings["delivery_queue"]),
            (&hints.into(), &queue.into())
        );
        if mix == "--mix delivery" {
            // 900 undelivered orders of each of ten districts. Some transactions come before the
            // measured part.
            assert_eq!((count(&store, "tpcc-new-order"), latency.len()), (0, 1));
            assert!(run["deliveries_skipped"].as_u64() >= Some((3000 - 900) * 10), "{run}");
            continue;
        }
        let rolled_back = run["rollbacks"].as_u64().unwrap();
        assert!((3..40).contains(&rolled_back), "{rolled_back}");
        let added = count(&store, "tpcc-order") - orders;
        assert!((done("new-order")..done("new-order") + 100).contains(&added), "{added} {run}");
        // A roll-back leaves nothing: every change of a stock row has its line.
        let stock = store.shared.trees.lock().unwrap()["tpcc-stock"].clone();
        let stock = stock.read().unwrap();
        let supplied: u64 =
            stock.values().map(|row| u64::from(rows::stock::ORDER_CNT.get(row))).sum();
        assert_eq!(supplied, count(&store, "tpcc-order-line") - lines);
        // Ten of 23 cards.
        assert!((1250..1360).contains(&(done("new-order") + rolled_back)), "{run}");
        assert!((100..160).contains(&done("stock-level")), "{run}");
        assert!(count(&store, "tpcc-history") - 30_000 >= done("payment"));
        let tpmc = run["tpmc"].as_f64().unwrap() * run["seconds"].as_f64().unwrap() / 60.0;
        assert_eq!(tpmc.round() as u64, done("new-order"));
    }
}

/// Restores the old value of a number in a row.
macro_rules! forget {
    ($table:literal, $field:expr, $when:expr) => {
        Box::new(|table: &str, _: &[u8], before: Option<&[u8]>, after: &mut Option<Vec<u8>>| {
            if let (true, Some(before), Some(after)) = (table == $table, before, after) {
                let when: fn(&[u8], &[u8]) -> bool = $when;
                if when(before, after) {
                    $field.set(after, $field.get(before));
                }
            }
        })
    };
}

/// Does not insert a row.
fn lose(table: &'static str, which: fn(&[u8]) -> bool) -> Distort {
    Box::new(move |name, key, before, after| {
        if name == table && before.is_none() && which(key) {
            *after = None;
        }
    })
}

#[test]
fn a_wrong_transaction_is_caught_by_the_conditions_that_speak_of_it() {
    let cases: Vec<(&str, &str, Distort, &[&str])> = vec![
        (
            "Payment forgets D_YTD",
            "payment",
            forget!("tpcc-district", district::YTD, |_, _| true),
            &["1", "9"],
        ),
        (
            "Payment forgets W_YTD",
            "payment",
            forget!("tpcc-warehouse", warehouse::YTD, |_, _| true),
            &["1", "8"],
        ),
        (
            "Payment forgets HISTORY",
            "payment",
            lose("tpcc-history", |_| true),
            &["8", "9", "10", "counters"],
        ),
        (
            "Payment forgets C_YTD_PAYMENT",
            "payment",
            forget!("tpcc-customer", customer::YTD_PAYMENT, |_, _| true),
            &["12"],
        ),
        (
            "Delivery forgets C_BALANCE",
            "standard",
            forget!("tpcc-customer", customer::BALANCE, |before, after| {
                customer::DELIVERY_CNT.get(before) != customer::DELIVERY_CNT.get(after)
            }),
            &["10", "12"],
        ),
        (
            "Delivery forgets OL_DELIVERY_D",
            "delivery",
            forget!("tpcc-order-line", order_line::DELIVERY_D, |_, _| true),
            &["7", "10", "12"],
        ),
        (
            "Delivery forgets O_CARRIER_ID",
            "delivery",
            forget!("tpcc-order", order::CARRIER_ID, |_, _| true),
            &["5", "7", "counters"],
        ),
        (
            "Delivery forgets to delete from NEW-ORDER",
            "delivery",
            Box::new(|table, _, before, after| {
                if table == "tpcc-new-order" {
                    *after = before.map(<[u8]>::to_vec);
                }
            }),
            &["5", "10", "12", "counters"],
        ),
        (
            "New-Order forgets a line",
            "new-order",
            lose("tpcc-order-line", |key| key[6] == 3),
            &["4", "6", "all", "counters"],
        ),
        (
            "New-Order forgets S_YTD",
            "new-order",
            forget!("tpcc-stock", rows::stock::YTD, |_, _| true),
            &["counters"],
        ),
        (
            "Payment forgets C_PAYMENT_CNT",
            "payment",
            forget!("tpcc-customer", customer::PAYMENT_CNT, |_, _| true),
            &["counters"],
        ),
        ("New-Order forgets NEW-ORDER", "new-order", lose("tpcc-new-order", |_| true), &["2", "5"]),
        (
            "New-Order forgets one row of NEW-ORDER",
            "new-order",
            lose("tpcc-new-order", |key| key[3..] == 3003u32.to_be_bytes()[1..]),
            &["3", "5"],
        ),
        (
            "New-Order takes two numbers",
            "new-order",
            Box::new(|table, _, _, after| {
                if let ("tpcc-district", Some(row)) = (table, after) {
                    district::NEXT_O_ID.add(row, 1);
                }
            }),
            &["2", "3"],
        ),
        (
            "New-Order forgets the index by customer",
            "new-order",
            lose("tpcc-order-customer", |_| true),
            &["indexes"],
        ),
    ];
    for (what, mix, distort, expected) in cases {
        let folder = folder();
        let store = loaded(folder.path());
        *store.shared.distort.lock().unwrap() = Some(distort);
        let arguments = format!("{ONE} --operations 400 --threads 1 --check --mix {mix}");
        let (end, result) = run(&arguments, folder.path());
        assert_eq!(failed(&result), expected, "{what}: {result:#}");
        assert_eq!(
            (end, &result["check"]["passed"]),
            (Err(Exit::Reported), &json!(false)),
            "{what}"
        );
    }
}

/// The rows of a table.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn first(rows: &mut Rows) -> &mut Vec<u8> {
    rows.values_mut().next().unwrap()
}

fn last(rows: &mut Rows) -> &mut Vec<u8> {
    rows.values_mut().next_back().unwrap()
}

/// Removes the row with one key and inserts it with another.
fn rename(rows: &mut Rows, old: &[u8], new: &[u8]) {
    let row = rows.remove(old).unwrap();
    assert_eq!(rows.insert(new.to_vec(), row), None);
}

/// Inserts a row as sound as the first one.
fn stray(rows: &mut Rows, key: &[u8]) {
    let row = first(rows).clone();
    assert_eq!(rows.insert(key.to_vec(), row), None);
}

/// A table, what happens to its rows, and the conditions that have to find it.
type Damage = (&'static str, fn(&mut Rows), &'static [&'static str]);

#[test]
fn damage_of_any_row_is_found_by_the_conditions_that_speak_of_it() {
    let damages: &[Damage] = &[
        // One for each condition but 11, and both sides of those that compare two tables.
        ("warehouse", |rows| _ = warehouse::YTD.add(first(rows), 1), &["1", "8"]),
        ("district", |rows| _ = district::YTD.add(first(rows), -1), &["1", "9"]),
        ("district", |rows| _ = district::NEXT_O_ID.add(last(rows), 1), &["2"]),
        ("new-order", |rows| stray(rows, b"\x00\x01\x0a\x00\x0b\xb9"), &["2", "5"]),
        ("order", |rows| _ = rows.pop_last(), &["2", "4", "5", "6", "indexes"]),
        ("new-order", |rows| _ = rows.remove(&b"\x00\x01\x05\x00\x0b\x00"[..]), &["3", "5"]),
        ("order-line", |rows| _ = rows.pop_last(), &["4", "6"]),
        ("order", |rows| _ = order::OL_CNT.add(last(rows), 1), &["4", "6"]),
        ("order", |rows| order::CARRIER_ID.set(first(rows), 0), &["5", "7"]),
        ("order", |rows| order::CARRIER_ID.set(last(rows), 3), &["5", "7", "counters"]),
        ("order-line", |rows| order_line::DELIVERY_D.set(first(rows), 0), &["7"]),
        ("order-line", |rows| order_line::DELIVERY_D.set(last(rows), 1), &["7", "10", "12"]),
        ("order-line", |rows| _ = order_line::AMOUNT.add(first(rows), 1), &["10", "12"]),
        ("history", |rows| _ = rows::history::AMOUNT.add(first(rows), 1), &["8", "9", "10"]),
        ("history", |rows| rows::history::C_ID.set(first(rows), 2), &["10", "counters"]),
        ("customer", |rows| _ = customer::BALANCE.add(last(rows), 1), &["10", "12"]),
        ("customer", |rows| customer::BALANCE.set(last(rows), i64::MAX), &["10", "12"]),
        ("customer", |rows| _ = customer::YTD_PAYMENT.add(last(rows), 1), &["12"]),
        // Counters, and fields with few valid values.
        ("stock", |rows| _ = rows::stock::YTD.add(last(rows), 1), &["counters"]),
        ("stock", |rows| _ = rows::stock::ORDER_CNT.add(first(rows), 5), &["counters"]),
        ("stock", |rows| _ = rows::stock::REMOTE_CNT.add(first(rows), 1), &["counters"]),
        ("stock", |rows| rows::stock::QUANTITY.set(first(rows), 9), &["counters"]),
        ("stock", |rows| rows::stock::QUANTITY.set(last(rows), 101), &["counters"]),
        ("customer", |rows| _ = customer::PAYMENT_CNT.add(last(rows), 9), &["counters"]),
        ("customer", |rows| _ = customer::DELIVERY_CNT.add(first(rows), 1), &["counters"]),
        ("customer", |rows| customer::CREDIT.set(first(rows), 0), &["counters"]),
        ("order", |rows| order::ALL_LOCAL.set(first(rows), 78), &["counters"]),
        ("order", |rows| order::CARRIER_ID.set(first(rows), 11), &["counters"]),
        ("order-line", |rows| order_line::QUANTITY.set(first(rows), 11), &["counters"]),
        // Rows that are missing, cut, too long, or whose strings are not as long as they may be.
        ("warehouse", Rows::clear, &["1", "8", "all"]),
        ("warehouse", |rows| first(rows).truncate(8), &["1", "8", "all"]),
        ("district", |rows| first(rows)[district::STRINGS] = 255, &["1", "2", "9", "all"]),
        ("customer", |rows| first(rows).truncate(3), &["all", "indexes"]),
        ("customer", |rows| first(rows)[customer::STRINGS] = 255, &["all", "indexes"]),
        ("customer", |rows| _ = first(rows).pop(), &["all", "indexes"]),
        ("history", |rows| first(rows).push(0), &["8", "9", "10", "all", "counters"]),
        ("order", |rows| first(rows).clear(), &["4", "6", "all", "indexes"]),
        ("order-line", |rows| first(rows).push(0), &["4", "6", "all"]),
        ("new-order", |rows| first(rows).push(0), &["5", "all"]),
        ("item", |rows| _ = last(rows).pop(), &["all"]),
        ("stock", |rows| last(rows)[rows::stock::STRINGS] = 25, &["all"]),
        ("order-customer", |rows| first(rows).push(0), &["all"]),
        // Rows with invalid references.
        ("order", |rows| order::C_ID.set(first(rows), 0), &["all", "indexes"]),
        ("order-line", |rows| order_line::I_ID.set(first(rows), 0), &["all"]),
        ("order-line", |rows| order_line::I_ID.set(first(rows), 100_001), &["all"]),
        ("order-line", |rows| order_line::SUPPLY_W_ID.set(first(rows), 2), &["all", "counters"]),
        ("history", |rows| rows::history::C_D_ID.set(first(rows), 11), &["10", "all", "counters"]),
        (
            "customer",
            |rows| rename(rows, b"\0\x01\x0a\x0b\xb8", b"\0\x01\x0a\x0b\xb9"),
            &["all", "indexes"],
        ),
        ("order-customer", |rows| _ = rows.pop_first(), &["indexes"]),
        ("customer-name", |rows| _ = rows.pop_last(), &["indexes"]),
        // Rows that no transaction reads.
        ("warehouse", |rows| stray(rows, b"\0\0"), &["all"]),
        ("district", |rows| stray(rows, b"\0\x01\x0b"), &["all"]),
        ("district", |rows| stray(rows, b"\0\x01\x01\0"), &["all"]),
        ("warehouse", |rows| stray(rows, b"\0\x01\0"), &["all"]),
        ("customer", |rows| stray(rows, b"\0\x01\x0b\0\x01"), &["all"]),
        ("customer", |rows| stray(rows, b"\0\x01\x0a\x0b\xb8\0"), &["all"]),
        ("history", |rows| stray(rows, b"\0\x02\x01\0\0\0\0\0\0\0\0\0\0\0\0"), &["all"]),
        ("order", |rows| stray(rows, b"\0\0\x01\0\0\x01"), &["all"]),
        ("order-line", |rows| stray(rows, b"\xff\xff\x01\0\0\x01\x01"), &["all"]),
        ("new-order", |rows| stray(rows, b"\0\x01\0\0\0\x01"), &["all"]),
        ("item", |rows| stray(rows, b"\x01\x86\xa1"), &["all"]),
        ("stock", |rows| rename(rows, b"\0\x01\0\0\x01", b"\0\x01\0\0\0"), &["all"]),
    ];
    let folder = folder();
    let store = loaded(folder.path());
    let check = || {
        let (tpcc, interrupt) = (TpccScenario::of_any_size(), Interrupt::default());
        let found = check_store(&tpcc, &store, folder.path(), &interrupt).unwrap();
        failed(&json!({ "check": found }))
    };
    assert_eq!(check(), Vec::<String>::new());
    for (number, (table, damage, expected)) in damages.iter().enumerate() {
        let map = store.shared.trees.lock().unwrap()[&format!("tpcc-{table}")].clone();
        let sound = map.read().unwrap().clone();
        damage(&mut map.write().unwrap());
        assert_eq!(check(), *expected, "damage {number}, of {table}");
        *map.write().unwrap() = sound;
    }
}

#[test]
fn an_interrupted_run_has_its_results_and_does_not_say_that_it_was_checked() {
    let folder = folder();
    let store = loaded(folder.path());
    let interrupt = Interrupt::default();
    let (raised, mut changes) = (interrupt.clone(), 0);
    *store.shared.distort.lock().unwrap() = Some(Box::new(move |_, _, _, _| {
        changes += 1;
        if changes == 10_000 {
            raised.raise();
        }
    }));
    let arguments = format!("{ONE} --duration 60s --threads 2 --check");
    let (end, result) = run_until(&arguments, folder.path(), &interrupt);
    let so_far = "interrupted: these are the results so far";
    assert_eq!(end, Err(Exit::Interrupted(so_far.to_owned())));
    assert_eq!(result["run"]["interrupted"], true);
    assert!(result["run"]["operations"].as_u64() > Some(0), "{result:#}");
    assert_eq!(result["check"]["passed"], false);
    let last = result["check"]["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(
        last,
        &json!({"name": "after the run, everything was checked", "passed": false,
                "detail": "interrupted while checking"})
    );
    // The load and the check after it have no results.
    let (end, result) = run_until(&arguments, folder.path(), &interrupt);
    assert_eq!(end, Err(Exit::Interrupted("interrupted while checking".to_owned())));
    assert_eq!(result, Value::Null);
    let (end, _) = run_until(&arguments.replace("store", "new"), folder.path(), &interrupt);
    assert_eq!(end, Err(Exit::Interrupted("interrupted while loading".to_owned())));
}

#[test]
fn a_wrong_load_is_caught() {
    let folder = folder();
    let store = store_at(&folder.path().join("store"));
    *store.shared.distort.lock().unwrap() =
        Some(lose("tpcc-new-order", |key| key[2] == 4 && key[3..] == 2101u32.to_be_bytes()[1..]));
    let arguments = format!("{ONE} --operations 1 --threads 2 --check --mix order-status");
    let (end, result) = run(&arguments, folder.path());
    assert_eq!(end, Err(Exit::Reported));
    assert_eq!(failed(&result), ["5", "11", "5"], "after the load, and after the run");
    let detail = result["check"]["conditions"][10]["detail"].as_str().unwrap();
    assert_eq!(detail, "district 4 of warehouse 1: 2101");
}

#[test]
fn a_missing_or_wrong_row_ends_the_run_with_a_sentence() {
    for (table, mix, says) in [
        ("tpcc-stock", "new-order", "a row of tpcc-stock with the key"),
        ("tpcc-customer-name", "payment", "a row of tpcc-customer-name with the key"),
        ("tpcc-order-line", "order-status", "0 lines, and says that it has"),
        ("tpcc-district", "stock-level", "a row of tpcc-district with the key"),
        ("tpcc-order", "delivery", "a row of tpcc-order with the key"),
    ] {
        let folder = folder();
        let store = loaded(folder.path());
        store.shared.trees.lock().unwrap()[table].write().unwrap().clear();
        let (end, result) = run(&format!("{ONE} --operations 500 --mix {mix}"), folder.path());
        let Err(Exit::Failed(sentence)) = end else { panic!("{table}: {end:?}") };
        assert!(sentence.contains(says), "{sentence}");
        assert_eq!(result["check"]["passed"], false);
    }
}

#[test]
fn a_row_of_a_wrong_layout_ends_the_run_at_once_and_with_a_sentence() {
    for (table, mix) in [
        ("tpcc-warehouse", "payment"),
        ("tpcc-item", "new-order"),
        ("tpcc-stock", "stock-level"),
        ("tpcc-customer", "order-status"),
        ("tpcc-order-line", "delivery"),
    ] {
        let folder = folder();
        let store = loaded(folder.path());
        let map = store.shared.trees.lock().unwrap()[table].clone();
        map.write().unwrap().values_mut().for_each(|row| row.truncate(1));
        let start = Instant::now();
        let arguments = format!("{ONE} --threads 2 --duration 60s --mix {mix}");
        let (end, result) = run(&arguments, folder.path());
        let Err(Exit::Failed(sentence)) = end else { panic!("{table}: {end:?}") };
        assert!(sentence.starts_with("a worker stopped in the middle of an operation: "));
        assert_eq!(result["error"], sentence);
        assert!(start.elapsed() < Duration::from_secs(30), "the other workers went on");
    }
}

#[test]
fn bad_input_is_refused_with_a_sentence() {
    let folder = folder();
    let refused = |arguments: &str, parts: &[&str]| {
        let Err(Exit::Usage(sentence)) = run(arguments, folder.path()).0 else {
            panic!("{arguments} was accepted");
        };
        for part in parts {
            assert!(sentence.contains(part), "{part} is not in: {sentence}");
        }
    };
    let store = loaded(folder.path());
    refused(
        "tpcc --db DIR/store --warehouses 2",
        &["holds 1 TPC-C warehouse, and not the 2 asked for", "--db"],
    );
    refused("ycsb --db DIR/store --records 10", &["tpcc-customer", "no YCSB data"]);
    // A description without a format.
    let meta = store.shared.trees.lock().unwrap()["tpcc-meta"].clone();
    let new = meta.read().unwrap()[&b"data"[..]].clone();
    let mut old: Value = serde_json::from_slice(&new).unwrap();
    old.as_object_mut().unwrap().remove("format").expect("a format");
    meta.write().unwrap().insert(b"data".to_vec(), old.to_string().into_bytes());
    refused("tpcc --db DIR/store --warehouses 1", &["TPC-C data of format 0", "writes format 2"]);
    // A constant that is out of range.
    let mut wrong: Value = serde_json::from_slice(&new).unwrap();
    wrong["last_name_constant"] = json!(99_999);
    meta.write().unwrap().insert(b"data".to_vec(), wrong.to_string().into_bytes());
    refused("tpcc --db DIR/store --warehouses 1", &["TPC-C data that no load wrote"]);
    meta.write().unwrap().insert(b"data".to_vec(), new);
    assert_eq!(count(&store, "tpcc-stock"), 100_000);
    assert_eq!(
        run("ycsb --db DIR/ycsb --records 10 --operations 10 --warmup 0", folder.path()).0,
        Ok(())
    );
    refused("tpcc --db DIR/ycsb --warehouses 1", &["tables ycsb, ycsb-meta", "no TPC-C data"]);

    let full = store_at(&folder.path().join("full"));
    full.shared.failing_insert.store(1000, Ordering::Relaxed);
    let (end, _) = run("tpcc --db DIR/full --warehouses 1", folder.path());
    assert_eq!(end, Err(Exit::Failed("loading: the device is full".to_owned())));
    refused("tpcc --db DIR/full --warehouses 1", &["a load that was not finished"]);

    let free = wattle_workloads::machine::free_bytes(folder.path()).unwrap();
    assert!(free < 5 << 40, "this test counts on a device with less than 5 TiB free");
    refused(
        "tpcc --db DIR/huge --warehouses 65534",
        &["loading 65,534 warehouses takes about 6.2 TiB", "are free"],
    );
    for arguments in ["--warehouses 0", "--warehouses 65535", "--threads 0", "--mix nothing"] {
        let words = ["wattle", "tpcc"].into_iter().chain(arguments.split(' '));
        let words: Vec<_> = words.map(std::ffi::OsString::from).collect();
        let Err(Exit::Usage(sentence)) = wattle_workloads::cli::parse(&words) else {
            panic!("{arguments} was accepted");
        };
        assert!(sentence.contains(arguments.split(' ').nth(1).unwrap()), "{sentence}");
    }
}

fn wattle(arguments: &str, folder: &Path) -> Command {
    let arguments = arguments.replace("DIR", folder.to_str().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
    command.args(arguments.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The JSON object that the binary prints, which must succeed.
fn on_engine(arguments: &str, folder: &Path) -> Value {
    let output = wattle(arguments, folder).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {error}{text}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_engine_is_consistent_in_memory_larger_than_memory_and_after_a_crash() {
    let folder = folder();
    let run =
        |flags: &str| on_engine(&format!("{ONE} --format json --check {flags}"), folder.path());
    // In memory, and loaded with the conditions of the load.
    let first = run("--pool 256MiB --operations 4000 --threads 2 --durability group");
    assert_eq!(first["load"]["reused"], false);
    assert_eq!(first["check"]["conditions"].as_array().unwrap().len(), 15 + 14);
    // A fifth of the data fits.
    for crew in [
        "--threads 2",
        "--threads 2 --tasks 16",
        "--threads 2 --tasks 16 --durability group",
        "--threads 16 --durability group",
    ] {
        let run = run(&format!("--pool 16MiB --operations 2000 {crew}"));
        assert_eq!(
            (&run["load"]["reused"], &run["run"]["operations"]),
            (&json!(true), &json!(2000))
        );
        assert!(run["buffer"]["faults"].as_u64() > Some(1000), "{run}");
    }
    // A killed process loses and tears no commit.
    for flags in ["--threads 4 --durability group", "--threads 2 --tasks 8 --durability group"] {
        let long = format!(
            "{ONE} --format json --pool 16MiB --duration 60s --samples DIR/samples.csv {flags}"
        );
        let mut child = wattle(&long, folder.path()).spawn().unwrap();
        let start = Instant::now();
        let samples = folder.path().join("samples.csv");
        while std::fs::read_to_string(&samples).map_or(0, |text| text.lines().count()) < 2 {
            assert!(start.elapsed() < Duration::from_secs(60), "the run has not begun");
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        std::fs::remove_file(&samples).unwrap();
        let verified = on_engine("verify --tpcc --format json DIR/store", folder.path());
        assert_eq!(verified["passed"], true, "{verified}");
        assert_eq!(verified["conditions"].as_array().unwrap().len(), 14);
    }
    let other = wattle(
        "ycsb --db DIR/ycsb --records 10 --operations 10 --warmup 0 --format json",
        folder.path(),
    );
    assert!({ other }.output().unwrap().status.success());
    for (arguments, parts) in [
        ("verify --tpcc DIR/ycsb", ["no TPC-C data", "tables ycsb, ycsb-meta"]),
        (
            "tpcc --db DIR/small --warehouses 1 --pool 202752",
            ["202752 bytes is too small for 12 tables", "minimum is 219648"],
        ),
    ] {
        let refused = wattle(arguments, folder.path()).output().unwrap();
        let error = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{arguments}: {error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{arguments}: {error}");
    }
    assert!(!folder.path().join("small").exists());
}
