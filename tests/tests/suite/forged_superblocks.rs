//! Superblocks with a good checksum and numbers that do not belong together: opening such a store
//! is an error or gives what is in it, and takes no time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};
use wattle::{
    Engine, Error, Options,
    io::{Cut, FaultPlan, SimStorage},
};
use wattle_buffer::{PageId, PageImage};
use wattle_tests::harness::{Device, Watchdog, small_pool};

/// Fields of a superblock: offset, bytes, name.
const FIELDS: [(usize, usize, &str); 17] = [
    (44, 4, "state"),
    (48, 8, "sequence"),
    (56, 8, "pages"),
    (64, 8, "catalog root"),
    (72, 4, "next tree"),
    (80, 8, "store id"),
    (88, 8, "redo epoch"),
    (96, 8, "undo epoch"),
    (104, 8, "segment"),
    (112, 8, "last segment"),
    (120, 8, "last epoch"),
    (128, 8, "last flush"),
    (136, 8, "last block"),
    (144, 8, "bitmaps"),
    (152, 8, "durable flush"),
    (160, 8, "end of a gap"),
    (168, 8, "start of a gap"),
];

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    small_pool(64).log_bytes(4 << 20)
}

fn read(engine: &Engine) -> Result<Records, Error> {
    let Some(tree) = engine.open_tree("t")? else { return Ok(Records::new()) };
    engine.session()?.scan(&tree)?.collect()
}

fn fill(engine: &Engine) {
    let (tree, session) = (engine.tree("t").expect("tree"), engine.session().expect("session"));
    for number in 0..2000_u32 {
        drop(session.put_ticket(&tree, &number.to_be_bytes(), &[3; 100]).expect("put"));
    }
    engine.sync().expect("durable");
}

/// A device with the same change in both superblocks.
fn forged(device: &SimStorage, at: usize, bytes: &[u8]) -> Arc<SimStorage> {
    let forged = Arc::new(device.clone_at_rest());
    for page in [PageId(0), PageId(1)] {
        forged.modify_raw(page, |raw| {
            let mut image = PageImage(*raw);
            image.0[at..at + bytes.len()].copy_from_slice(bytes);
            image.seal();
            *raw = image.0;
        });
    }
    forged
}

#[test]
fn a_store_with_a_forged_superblock_is_refused_or_read_and_nobody_waits() {
    let watch = Watchdog::start("forged superblocks", Duration::from_secs(20));
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let engine = Device::sim(&device).open(options()).expect("a new store");
    fill(&engine);
    engine.checkpoint().expect("a checkpoint");
    fill(&engine);
    let records = read(&engine).expect("read");
    let killed = device.crash_as(1, Cut::Process);
    engine.close().expect("closed");
    let closed = device.clone_at_rest();
    let engine = Device::sim(&device).open(options().log(false)).expect("without a log");
    fill(&engine);
    engine.close().expect("closed");
    let unlogged = device.clone_at_rest();

    let (mut refused, mut same, mut other) = (0, 0, 0);
    for (store, device) in [("killed", killed), ("closed", closed), ("unlogged", unlogged)] {
        let block = device.raw_page(PageId(0)).expect("a superblock");
        for (at, len, name) in FIELDS {
            let mut old = [0; 8];
            old[..len].copy_from_slice(&block[at..at + len]);
            let old = u64::from_le_bytes(old);
            let values =
                [0, 1, 2, 3, old.wrapping_sub(1), old + 1, old + 1000, old << 20, 1 << 40, 1 << 63];
            for value in values.into_iter().chain([u64::MAX]).filter(|value| *value != old) {
                watch.step();
                let forged = forged(&device, at, &value.to_le_bytes()[..len]);
                let opened = Device::sim(&forged).open(options());
                let outcome = opened.and_then(|engine| {
                    let found = read(&engine);
                    let _verified = engine.verify(&mut |_| {});
                    let _checkpoint = engine.checkpoint();
                    drop(engine);
                    found
                });
                match outcome {
                    Err(_) => refused += 1,
                    Ok(found) if found == records => same += 1,
                    Ok(found) => {
                        println!("{store}: {name} {old} -> {value}: {} records", found.len());
                        other += 1;
                    }
                }
            }
        }
    }
    println!("refused {refused}, as it was {same}, otherwise {other}");
    assert!(refused > 200 && same > 20, "refused {refused}, as it was {same}");
    assert_eq!(other, 0, "contents that were never written");
}
