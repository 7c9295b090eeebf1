//! Changes of many records in a transaction, one call for each record against one call for all.
//!
//! `cargo bench -p wattle-benches --bench many -- [dir=PATH] [rounds=3] [records=100000]
//! [batch=1000] [share=5] [device=read_us=100,..]`
//!
//! Records of 1000 bytes in random order, `batch` in each transaction, `Durability::Group`. The
//! pool has `1 / share` of the bytes of the data. The two subjects run in turns, each on a store of
//! its own; rows are records per second.
//!
//! | row | change |
//! |---|---|
//! | load | puts into an empty tree |
//! | overwrite | puts of a quarter of the records, right after the store was opened |
//! | remove | removal of a quarter of the records, right after the store was opened |
//!
//! With `dir=` the stores are files there, otherwise they are on the simulated device, whose
//! service times do not depend on the machine.

use std::time::Instant;
use wattle::{Durability, Engine, Options, Tree};
use wattle_benches::{Place, argument, median};

const VALUE: usize = 1000;
/// Bytes of a record in the pool, when a leaf is filled at random.
const RECORD_BYTES: u64 = 2000;
const ROWS: [&str; 3] = ["load", "overwrite", "remove"];

/// Opens a store whose pool has a share of the data.
fn open(place: &Place, records: u64) -> (Engine, Tree) {
    let pool = (records * RECORD_BYTES / argument("share", 5) as u64).max(8 << 20);
    place.open(Options::default().pool_bytes(pool).durability(Durability::Group))
}

/// Keys in an order without a pattern that read-ahead could use.
fn keys(records: u64, salt: u64) -> Vec<[u8; 8]> {
    let mut keys: Vec<_> = (0..records).collect();
    keys.sort_unstable_by_key(|key| {
        (key ^ salt).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    });
    keys.into_iter().map(u64::to_be_bytes).collect()
}

/// Runs one row; gives records per second.
fn run(place: &Place, records: u64, row: usize, is_many: bool) -> f64 {
    let (engine, tree) = open(place, records);
    let session = engine.session().expect("a session");
    let all = keys(records, row as u64);
    let keys = if row == 0 { &all[..] } else { &all[..all.len() / 4] };
    let value = vec![row as u8; VALUE];
    let start = Instant::now();
    for batch in keys.chunks(argument("batch", 1000)) {
        let mut txn = session.begin().expect("a transaction");
        match (row, is_many) {
            (0 | 1, true) => {
                let records: Vec<_> = batch.iter().map(|key| (key, &value)).collect();
                txn.put_many(&tree, &records).expect("put_many");
            }
            (0 | 1, false) => {
                for key in batch {
                    txn.put(&tree, key, &value).expect("put");
                }
            }
            (_, true) => assert_eq!(txn.remove_many(&tree, batch).expect("remove"), batch.len()),
            (_, false) => {
                for key in batch {
                    assert!(txn.remove(&tree, key).expect("remove"));
                }
            }
        }
        txn.commit().expect("commit");
    }
    let rate = keys.len() as f64 / start.elapsed().as_secs_f64();
    drop((session, tree));
    engine.close().expect("close");
    rate
}

fn main() {
    let records = argument("records", 100_000) as u64;
    let mut rates = vec![[Vec::new(), Vec::new()]; ROWS.len()];
    for _ in 0..argument("rounds", 3) {
        for is_many in [false, true] {
            let place = Place::of_arguments("read_us=100,asymmetry=1,kr=64,kw=64");
            for (row, rates) in rates.iter_mut().enumerate() {
                rates[usize::from(is_many)].push(run(&place, records, row, is_many));
            }
        }
    }
    println!("row             one by one   together    ratio");
    for (row, [one, many]) in ROWS.iter().zip(rates) {
        let (one, many) = (median(one), median(many));
        println!("{row:<12} {one:>13.0} {many:>10.0} {:>8.2}", many / one);
    }
}
