//! Deletes of all records of a tree, key by key against `delete_range`.
//!
//! `cargo bench -p wattle-benches --bench delete_range -- [records=1000000] [value=100] [rounds=3]
//! [pool=1024] [snapshot=0] [checkpoint=0] [dir=PATH]`
//!
//! Records of 8 + `value` bytes, loaded in bulk; `Durability::None`; a pool of `pool` MiB, in which
//! all records lie. The ways run in turns, each on a tree of its own in one store. With
//! `snapshot=1` a snapshot from before the delete is open until its end. With `checkpoint=1` a
//! checkpoint comes before the delete, so that the log gets an image of each page too.
//!
//! | row | delete |
//! |---|---|
//! | `each` | `Session::remove` of each key: a transaction of its own |
//! | `together` | `Transaction::remove` of each key, in one transaction |
//! | `range` | `Session::delete_range` |
//!
//! Columns: nanoseconds for each record, medians of `rounds`; the time of the row by that of
//! `range`; bytes of the log for each record; milliseconds from the end of the delete until its
//! pages are free. The bar of the project: `each` takes at least 20 times as long as `range`.

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};
use wattle::{Durability, Engine, Options, Session, Tree};
use wattle_benches::{argument, directory, median};

const ROWS: [&str; 3] = ["each", "together", "range"];
/// Leaves take at least a page for so many bytes of records.
const LEAF_BYTES: u64 = 4096;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Deletes all records in one way.
fn delete(session: &Session, tree: &Tree, records: u64, row: usize) {
    match row {
        0 => {
            for number in 0..records {
                assert!(session.remove(tree, &key(number)).expect("remove"), "record {number}");
            }
        }
        1 => {
            let mut txn = session.begin().expect("begin");
            for number in 0..records {
                assert!(txn.remove(tree, &key(number)).expect("remove"), "record {number}");
            }
            txn.commit().expect("commit");
        }
        _ => {
            let removed = session.delete_range(tree, key(0)..key(records));
            assert_eq!(removed.expect("delete"), records);
        }
    }
}

/// Nanoseconds and bytes of the log for each record, and milliseconds until the pages are free.
fn run(engine: &Engine, session: &Session, records: u64, row: usize) -> [f64; 3] {
    let tree = engine.tree("tree").expect("tree");
    let value = vec![7_u8; argument("value", 100)];
    session.bulk_load(&tree, (0..records).map(|number| (key(number), &value))).expect("load");
    if argument("checkpoint", 0) > 0 {
        engine.checkpoint().expect("checkpoint");
    }
    let snapshot = (argument("snapshot", 0) > 0).then(|| engine.snapshot().expect("snapshot"));
    let (used, logged) = (engine.stats().used_pages, engine.stats().log_bytes);
    let leaves = records * (8 + value.len() as u64) / LEAF_BYTES;
    let begun = Instant::now();
    delete(session, &tree, records, row);
    let took = begun.elapsed();
    let logged = engine.stats().log_bytes - logged;
    drop(snapshot);
    let ended = Instant::now();
    while engine.stats().used_pages > used - leaves * 9 / 10 {
        assert!(ended.elapsed() < Duration::from_secs(60), "its pages are not free");
        thread::sleep(Duration::from_millis(1));
    }
    let free = ended.elapsed();
    engine.drop_tree(tree).expect("drop");
    let of_each = |all: f64| all / records as f64;
    [of_each(took.as_nanos() as f64), of_each(logged as f64), free.as_secs_f64() * 1e3]
}

fn main() -> ExitCode {
    let records = argument("records", 1_000_000) as u64;
    let scratch = tempfile::tempdir_in(directory(".")).expect("a folder for the store");
    let options = Options::default()
        .pool_bytes((argument("pool", 1024) as u64) << 20)
        .durability(Durability::None);
    let engine = Engine::open(scratch.path().join("store"), options).expect("open");
    let session = engine.session().expect("session");
    let mut rows = [const { [const { Vec::new() }; 3] }; ROWS.len()];
    for _ in 0..argument("rounds", 3) {
        for (number, columns) in rows.iter_mut().enumerate() {
            let figures = run(&engine, &session, records, number);
            columns.iter_mut().zip(figures).for_each(|(column, figure)| column.push(figure));
        }
    }
    let rows = rows.map(|columns| columns.map(median));
    println!("row        ns a record    by range   log bytes a record   pages free after ms");
    for (name, [took, logged, free]) in ROWS.iter().zip(rows) {
        println!("{name:<10} {took:>11.1} {:>11.2} {logged:>20.1} {free:>21.0}", took / rows[2][0]);
    }
    ExitCode::SUCCESS
}
