//! Space of leaves by the order of inserts, and what it costs and saves in reads and writes.
//!
//! `cargo bench -p wattle-benches --bench fill -- [part=space|pool|all] [megabytes=24]
//! [sizes=100;1000;1350] [orders=random;ascending;descending;runs] [operations=100000]
//! [redistribution=on|off]`
//!
//! Everything is in memory and nothing is timed: the figures are counts. Those of part `space` are
//! the same in each run.
//!
//! Part `space`: a table is inserted into a pool that holds all of it.
//!
//! | column | value |
//! |---|---|
//! | data | share of the bytes of leaves that are keys and values |
//! | used | share of the bytes of leaves in use, headers and fences included |
//! | most | what `data` would be if every leaf had as many records as fit |
//! | levels, inner | levels of the tree, inner pages |
//! | splits, moves | splits and redistributions for each 1000 inserts |
//! | log | bytes of log records for each insert |
//!
//! Part `pool`: the pool holds a fifth of the data that full leaves would take. `load` inserts in
//! random order, `YCSB A` reads and updates (half each, Zipfian 0.99) what a large pool has loaded.

use std::sync::Arc;
use wattle::{
    Durability, Engine, IoKind, Options, PAGE_SIZE, Session, Stats, Tree,
    io::{MemoryLog, MemoryStorage},
};
use wattle_benches::{argument, text};
use wattle_workloads::{key::fnv1a, rng::Rng, zipf::Zipfian};

/// Interleaved runs, and records that a run gets at a time (as order lines of an order).
const RUNS: u64 = 20;
const LINES: u64 = 10;
/// Keys are 16 bytes: number of the run, number in the run.
const KEY: usize = 16;
/// Bytes of a leaf that records and fences share.
const ROOM: usize = PAGE_SIZE - 128;

type Key = [u8; KEY];

fn key(run: u64, number: u64) -> Key {
    let mut key = [0; KEY];
    key[..8].copy_from_slice(&run.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The key that the insert with this number inserts.
fn key_of(order: &str, number: u64, records: u64) -> Key {
    match order {
        "random" => key(0, fnv1a(number)),
        "ascending" => key(0, number),
        "descending" => key(0, records - number),
        "runs" => {
            let (batch, line) = (number / LINES, number % LINES);
            key(batch % RUNS, batch / RUNS * LINES + line)
        }
        _ => panic!("orders are random, ascending, descending and runs, not {order:?}"),
    }
}

fn list(name: &str, default: &str) -> Vec<String> {
    text(name, default).split(';').map(str::to_owned).collect()
}

/// Records of `size` bytes that take `argument("megabytes")`.
fn records(size: usize) -> u64 {
    (argument("megabytes", 24) << 20) as u64 / size as u64
}

/// Bytes of a record in a leaf: the value, the rest of the key after prefix and head, an entry.
fn record_bytes(size: usize) -> usize {
    (size + 4).next_multiple_of(8) + 8
}

/// Most records of a leaf between two fences of 16 bytes.
fn most_records(size: usize) -> usize {
    (ROOM - 32) / record_bytes(size)
}

fn options(pool: u64) -> Options {
    let redistribution = match text("redistribution", "on").as_str() {
        "on" => true,
        "off" => false,
        other => panic!("redistribution is on or off, not {other}"),
    };
    let options = Options::default().pool_bytes(pool).io(IoKind::Memory);
    options.durability(Durability::None).redistribution(redistribution)
}

fn insert_all(session: &Session, tree: &Tree, order: &str, size: usize) {
    let (records, value) = (records(size), vec![7; size]);
    for number in 0..records {
        session.insert(tree, &key_of(order, number, records), &value).expect("insert");
    }
}

fn open(pool: u64) -> (Engine, Tree) {
    let engine = Engine::open("fill", options(pool)).expect("open");
    let tree = engine.tree("fill").expect("tree");
    (engine, tree)
}

fn large_pool() -> u64 {
    (argument("megabytes", 24) as u64) << 22
}

fn space(size: usize, order: &str) {
    let (engine, tree) = open(large_pool());
    let session = engine.session().expect("session");
    insert_all(&session, &tree, order, size);
    let (records, stats) = (records(size), engine.stats());
    let report = engine.verify(&mut |_| ()).expect("verify");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let trees = engine.tree_stats().expect("stats of the tree");
    let stat = trees.iter().find(|stat| stat.name == "fill").expect("the tree is listed");
    assert_eq!(stat.records, records, "every insert is there");
    let data =
        (records as usize * (KEY + size)) as f64 / (stat.leaf_pages * PAGE_SIZE as u64) as f64;
    let most = (most_records(size) * (KEY + size)) as f64 / PAGE_SIZE as f64;
    let per_insert = |count: u64| count as f64 / records as f64;
    println!(
        "{size:6} {order:11} {data:6.3} {:6.3} {most:6.3} {:7} {:6} {:6} {:8.1} {:8.1} {:8.0}",
        stat.fill,
        stat.leaf_pages,
        stat.inner_pages,
        stat.depth,
        1000.0 * per_insert(stats.splits),
        1000.0 * per_insert(moves(&stats)),
        per_insert(stats.log_record_bytes),
    );
}

fn moves(stats: &Stats) -> u64 {
    stats.redistributions
}

/// Prints the counts for each operation between two moments.
fn print_pool(size: usize, name: &str, operations: u64, before: &Stats, engine: &Engine) {
    let after = engine.stats();
    let each = |of: fn(&Stats) -> u64| (of(&after) - of(before)) as f64 / operations as f64;
    println!(
        "{size:6} {name:11} {:8} {:7.3} {:7.3} {:9.4} {:9.4} {:9.4} {:8.0}",
        after.used_pages,
        each(|stats| stats.pages_read),
        each(|stats| stats.pages_written),
        each(|stats| stats.splits),
        each(moves),
        each(|stats| stats.x_merges),
        each(|stats| stats.log_record_bytes),
    );
}

fn small_pool(size: usize) -> u64 {
    let pages = records(size) / most_records(size) as u64;
    (pages / 5).max(64) * (PAGE_SIZE as u64 + 128)
}

fn load_in_small_pool(size: usize) {
    let (engine, tree) = open(small_pool(size));
    let session = engine.session().expect("session");
    let before = engine.stats();
    insert_all(&session, &tree, "random", size);
    print_pool(size, "load", records(size), &before, &engine);
}

fn ycsb_a(size: usize) {
    let (pages, log) = (Arc::new(MemoryStorage::new()), Arc::new(MemoryLog::default()));
    let open = |pool| {
        let options = options(pool).warm_start(false);
        let engine = Engine::open_on(pages.clone(), log.clone(), options).expect("open");
        let tree = engine.tree("fill").expect("tree");
        (engine, tree)
    };
    let (engine, tree) = open(large_pool());
    let session = engine.session().expect("session");
    insert_all(&session, &tree, "random", size);
    drop((session, tree));
    engine.close().expect("close");
    let (engine, tree) = open(small_pool(size));
    let session = engine.session().expect("session");
    let (operations, records) = (argument("operations", 100_000) as u64, records(size));
    let (zipf, mut random) = (Zipfian::new(records, 0.99), Rng::new(1, 1));
    let mut run = |operations: u64| {
        for number in 0..operations {
            let key = key(0, fnv1a(zipf.next(&mut random)));
            match number % 2 {
                0 => assert!(session.contains(&tree, &key).expect("get")),
                _ => assert!(session.update(&tree, &key, &vec![8; size]).expect("update")),
            }
        }
    };
    run(operations / 2);
    let before = engine.stats();
    run(operations);
    print_pool(size, "YCSB A", operations, &before, &engine);
}

fn main() {
    let part = text("part", "all");
    let sizes = list("sizes", "100;1000;1350");
    let sizes: Vec<usize> = sizes.iter().map(|size| size.parse().expect("a size")).collect();
    if part != "pool" {
        let order = "  size order         data   used   most";
        println!("{order}  leaves  inner levels   splits    moves      log");
        for size in &sizes {
            for order in list("orders", "random;ascending;descending;runs") {
                space(*size, &order);
            }
        }
    }
    if part != "space" {
        println!(
            "  size part           pages   reads  writes    splits     moves  x_merges      log"
        );
        for size in &sizes {
            load_in_small_pool(*size);
            ycsb_a(*size);
        }
    }
}
