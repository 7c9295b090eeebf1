//! Ranges in chunks, when a read fails.

#[path = "../src/chunks.rs"]
mod chunks;

use chunks::Chunks;
use std::{io::ErrorKind, ops::Bound, sync::Arc};
use wattle::{
    Direction, Engine, MIN_LOG_BYTES, Options,
    io::{Fault, FaultPlan, Op, SimStorage},
};

const RECORDS: u32 = 2000;

#[test]
fn a_range_that_failed_gives_every_record_once() {
    let mut failures = 0;
    for read in 1..60 {
        let storage = Arc::new(SimStorage::new(FaultPlan::new(read)));
        let options = Options::default().pool_bytes(1 << 20).log_bytes(MIN_LOG_BYTES);
        let engine = Engine::open_on(storage.clone(), storage.clone(), options).expect("open");
        let tree = engine.tree("t").expect("a tree");
        let session = engine.session().expect("a session");
        let records: Vec<_> = (0..RECORDS).map(|i| (i.to_be_bytes(), [7; 1000])).collect();
        session.put_many(&tree, &records).expect("put");
        engine.checkpoint().expect("checkpoint");
        let txn = engine.begin().expect("a transaction");
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut chunks = Chunks::new(tree.clone(), all.0, all.1, Direction::Forward);
        storage.set_plan(FaultPlan::new(read).nth(Op::Read, read, Fault::Error(ErrorKind::Other)));
        let mut seen = Vec::new();
        // As the callers do.
        loop {
            if chunks.step() {
                seen.push(u32::from_be_bytes(chunks.record().0.try_into().expect("4 bytes")));
                continue;
            }
            match chunks.fill(&txn) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => failures += 1,
            }
        }
        assert_eq!(seen, (0..RECORDS).collect::<Vec<_>>(), "failed read {read}");
        drop(txn);
    }
    assert!(failures > 0, "no read failed that was needed at once");
}
