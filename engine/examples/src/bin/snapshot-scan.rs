//! A report over one snapshot: it sees no change of the writers beside it, and they do not wait for
//! it.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
};
use wattle::{Durability, Engine, Options, Session, Tree};

const ITEMS: u32 = 2000;

/// Moves a piece from one shelf to another: the sum stays the same in every snapshot.
fn move_a_piece(session: &Session, shelves: &Tree, round: u32) -> wattle::Result<()> {
    let mut txn = session.begin()?;
    let (from, to) = (round % ITEMS, (round * 7 + 1) % ITEMS);
    if from != to {
        let change = |by: i64| {
            move |value: &mut [u8]| {
                if let Ok(bytes) = <[u8; 8]>::try_from(&*value) {
                    value.copy_from_slice(&(i64::from_be_bytes(bytes) + by).to_be_bytes());
                }
            }
        };
        txn.modify(shelves, &from.to_be_bytes(), change(-1))?;
        txn.modify(shelves, &to.to_be_bytes(), change(1))?;
    }
    txn.commit()
}

fn total(session: &Session, shelves: &Tree) -> wattle::Result<(u64, i64)> {
    // All that this transaction reads is of one moment.
    let txn = session.begin_read()?;
    let (mut records, mut sum) = (0, 0);
    // The keys and values are borrowed: nothing is copied.
    let mut range = txn.scan(shelves)?.expect_records(ITEMS as usize);
    while let Some((_, value)) = range.next_entry()? {
        records += 1;
        sum += <[u8; 8]>::try_from(value).map_or(0, i64::from_be_bytes);
    }
    Ok((records, sum))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (path, _temporary) = wattle_examples::store_path()?;
    let options = Options::default().pool_bytes(64 << 20).durability(Durability::Group);
    let engine = Engine::open(&path, options)?;
    let shelves = engine.tree("shelves")?;
    let session = engine.session()?;
    let items: Vec<_> = (0..ITEMS).map(|item| (item.to_be_bytes(), 5_i64.to_be_bytes())).collect();
    session.put_many(&shelves, &items)?;

    let stop = AtomicBool::new(false);
    let (moved, reports) = std::thread::scope(|scope| -> wattle::Result<_> {
        let writer = scope.spawn(|| -> wattle::Result<u32> {
            let session = engine.session()?;
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                move_a_piece(&session, &shelves, round)?;
                round += 1;
            }
            Ok(round)
        });
        let reports: wattle::Result<Vec<_>> = (0..20).map(|_| total(&session, &shelves)).collect();
        stop.store(true, Ordering::Relaxed);
        match writer.join() {
            Ok(moved) => Ok((moved?, reports?)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    for report in &reports {
        if *report != (u64::from(ITEMS), 5 * i64::from(ITEMS)) {
            return Err(format!("a report saw half of a transaction: {report:?}").into());
        }
    }
    println!("{} equal reports beside {moved} transactions", reports.len());
    drop((session, shelves));
    engine.close()?;
    Ok(())
}
