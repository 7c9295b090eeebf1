//! A data file that is newer than its log: what a copy leaves that was not made at one moment, or a
//! device of the log that lost its last writes. Pages from after the end of the log are refused
//! wherever they are read, by the error that names them, and stay refused while the log goes on.

use std::{collections::BTreeMap, sync::Arc, time::Duration};
use wattle::{
    Engine, Error, Options,
    io::{Cut, FaultPlan, SimStorage},
};
use wattle_buffer::PageId;
use wattle_tests::harness::{Device, Random, Watchdog, assert_verified, small_pool};

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

const TREE: &str = "t";

fn options() -> Options {
    small_pool(48).log_bytes(64 << 20)
}

fn open(device: &Arc<SimStorage>, options: Options) -> Result<Engine, Error> {
    Device::sim(device).open(options)
}

/// Changes some records, in the engine and in `records`, each durably.
fn change(engine: &Engine, records: &mut Records, random: &mut Random, times: u64) {
    let tree = engine.tree(TREE).expect("the tree");
    let session = engine.session().expect("a session");
    for time in 0..times {
        let key = format!("key {:06}", random.below(6000)).into_bytes();
        let value = vec![time as u8; 100 + random.below(300) as usize];
        session.put(&tree, &key, &value).expect("put");
        records.insert(key, value);
    }
}

/// A device with some thousand records on many more pages than the pool has, checkpointed.
fn loaded(random: &mut Random, options: Options) -> (Arc<SimStorage>, Engine, Records) {
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let engine = open(&device, options).expect("a new store");
    let mut records = Records::new();
    change(&engine, &mut records, random, 4000);
    engine.checkpoint().expect("a checkpoint");
    (device, engine, records)
}

/// The superblocks, the bitmaps and the log of `old`, and the other pages of `new`. Gives how many
/// differ.
fn mixed(old: &SimStorage, new: &SimStorage) -> (Arc<SimStorage>, usize) {
    let mixed = Arc::new(old.clone_at_rest());
    let mut differ = 0;
    for page in new.pages().into_iter().filter(|page| *page > PageId(3)) {
        let bytes = new.raw_page(page).expect("it was written");
        differ += usize::from(old.raw_page(page) != Some(bytes));
        mixed.modify_raw(page, |to| *to = bytes);
    }
    (mixed, differ)
}

/// All records, or the first error.
fn read_all(engine: &Engine) -> Result<Records, Error> {
    let tree = engine.open_tree(TREE)?.expect("the tree is listed");
    let session = engine.session()?;
    session.scan(&tree)?.collect()
}

/// An error that names a page: mostly that it is too new. Where one of two neighbours is, the
/// fences may differ that are looked at before.
fn is_newer(error: &Error) -> bool {
    let text = error.to_string();
    assert!(matches!(error, Error::Corruption { .. }) && text.starts_with("page "), "{text}");
    text.contains("newer than the log")
}

/// An engine returns the values of the log, or the error that names a page; and where a page is too
/// new, `verify` finds it. Returns whether one was found.
fn never_of_two_times(engine: &Engine, records: &Records) -> bool {
    let report = engine.verify(&mut |_| {}).expect("verify");
    match read_all(engine) {
        Ok(read) => {
            assert_eq!(read, *records, "the contents are of two times");
            assert!(report.problems.is_empty(), "{:?}", report.problems);
            false
        }
        Err(error) => {
            is_newer(&error);
            let found =
                report.problems.iter().any(|problem| problem.contains("newer than the log"));
            assert!(found, "{:?}", report.problems);
            true
        }
    }
}

#[test]
fn pages_from_after_the_end_of_a_log_that_is_read_are_refused() {
    let watch = Watchdog::start("two_times", Duration::from_secs(60));
    let (mut refused, mut found) = (0, 0);
    for round in 0..12 {
        watch.step();
        let mut random = Random::new(round);
        // With whole pages in the log redo reads few, without them each that it changes.
        let options = || options().atomic_page_writes(round % 2 == 1);
        let (device, engine, mut records) = loaded(&mut random, options());
        change(&engine, &mut records, &mut random, 150 * (round % 4));
        let old = device.clone_at_rest();
        let mut later = records.clone();
        change(&engine, &mut later, &mut random, 100 * (1 + round));
        let (mixed, differ) = mixed(&old, &device.clone_at_rest());
        assert!(differ > 0, "round {round}: no page was evicted in between");
        drop(engine);
        match open(&mixed, options()) {
            Err(error) => refused += usize::from(is_newer(&error)),
            Ok(engine) => found += usize::from(never_of_two_times(&engine, &records)),
        }
        // The store itself is as good as before.
        let engine = open(&Arc::new(old), options()).expect("of one time");
        assert_eq!(read_all(&engine).expect("read"), records);
        assert_verified(&engine);
    }
    assert!(refused > 0 && found > 0, "refused {refused}, found later {found}");
}

#[test]
fn they_are_refused_while_the_log_goes_on_and_after_the_store_was_closed_and_killed() {
    let watch = Watchdog::start("two_times", Duration::from_secs(60));
    let mut random = Random::new(77);
    let (device, engine, records) = loaded(&mut random, options());
    engine.close().expect("closed");
    let old = device.clone_at_rest();
    let engine = open(&device, options()).expect("opened again");
    // Some tens of epochs, which the log of the old store passes before long.
    change(&engine, &mut records.clone(), &mut random, 60);
    let (mut mixed, differ) = mixed(&old, &device.clone_at_rest());
    assert!(differ > 0, "no page was evicted in between");
    drop(engine);
    // The log of the copy goes on where the clock is then.
    std::thread::sleep(Duration::from_millis(100));
    for life in 0..8_u8 {
        watch.step();
        let engine = open(&mixed, options()).expect("nothing is to be recovered");
        let other = engine.tree("other").expect("another tree");
        let session = engine.session().expect("a session");
        for key in 0..200_u32 {
            session.put(&other, &key.to_be_bytes(), &[life; 50]).expect("put");
        }
        drop((session, other));
        if life == 3 {
            engine.checkpoint().expect("a checkpoint");
        }
        assert!(never_of_two_times(&engine, &records), "life {life}: nothing was found");
        let copy = Arc::new(SimStorage::new(FaultPlan::new(2)));
        let error = engine.backup_on(copy.clone(), copy).expect_err("a backup copies no such page");
        assert!(is_newer(&error), "{error}");
        if life % 2 == 0 {
            engine.close().expect("closed");
        } else {
            // As after a kill: a recovery follows.
            mixed = Arc::new(mixed.crash_as(u64::from(life), Cut::Process));
            drop(engine);
        }
    }
}

#[test]
fn a_store_that_is_used_without_its_log_refuses_them_too() {
    let mut random = Random::new(78);
    let (device, engine, records) = loaded(&mut random, options());
    engine.close().expect("closed");
    let old = device.clone_at_rest();
    let engine = open(&device, options()).expect("opened again");
    change(&engine, &mut records.clone(), &mut random, 60);
    let (mixed, _) = mixed(&old, &device.clone_at_rest());
    drop(engine);
    let unlogged = || options().log(false);
    let engine = open(&mixed, unlogged()).expect("nothing is to be recovered");
    assert!(never_of_two_times(&engine, &records));
    drop(engine);
    // And one of one time is read whatever it writes, with its log and without, in turns.
    let (old, mut records) = (Arc::new(old), records);
    for turn in 0..4 {
        let options = if turn % 2 == 0 { unlogged() } else { options() };
        let engine = open(&old, options).expect("of one time");
        change(&engine, &mut records, &mut random, 3000);
        assert_eq!(read_all(&engine).expect("read"), records, "turn {turn}");
        assert_verified(&engine);
        engine.close().expect("closed");
    }
}
