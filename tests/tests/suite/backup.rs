//! Backups beside what goes wrong: a log that gets no further segment, a target without room,
//! damaged pages. (What crashes leave of backups is for the crash images.)

use std::{
    io::ErrorKind,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use wattle::{
    Durability, Error, MIN_LOG_BYTES, Session, Tree,
    io::{FaultPlan, MemoryLog, SimStorage},
};
use wattle_tests::harness::{Asked, Device, Watchdog, assert_verified, eventually, small_pool};

/// Whether a target takes pages, and whether somebody wants it to.
#[derive(Default)]
struct Gate {
    is_open: AtomicBool,
    is_waiting: AtomicBool,
}

/// A target that takes no page until its gate is open, or never.
fn behind(gate: &Arc<Gate>, is_full: bool) -> Arc<Asked> {
    let gate = gate.clone();
    let write = move || {
        gate.is_waiting.store(true, Ordering::SeqCst);
        while !gate.is_open.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        if is_full { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    };
    Arc::new(Asked { write: Box::new(write), ..Asked::nothing() })
}

fn put(session: &Session, tree: &Tree, key: u32) -> Result<(), Error> {
    session.put(tree, &key.to_be_bytes(), &vec![key as u8; 1200])
}

/// The backup keeps the log, a roll-back takes what is in reserve, and the log stands still.
/// Neither may wait for the other, whether the backup fails or could go on.
#[test]
fn a_backup_does_not_keep_a_full_log_for_ever() {
    for is_full in [false, true] {
        let _watchdog = Watchdog::start("a backup and a full log", Duration::from_secs(60));
        let plan = FaultPlan::new(1).log_limit(MIN_LOG_BYTES);
        let device = Device::sim(&Arc::new(SimStorage::new(plan)));
        let options = small_pool(256).log_bytes(MIN_LOG_BYTES).durability(Durability::None);
        let engine = device.open(options).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let session = engine.session().expect("session");
        for key in 0..200 {
            put(&session, &tree, key).expect("put");
        }
        let gate = Arc::<Gate>::default();
        let copying = {
            let (engine, target) = (engine.clone(), behind(&gate, is_full));
            thread::spawn(move || engine.backup_on(target, Arc::new(MemoryLog::default())))
        };
        eventually("the backup copies", || gate.is_waiting.load(Ordering::SeqCst));
        // The log grows to some part of what there is room for, and then a transaction begins.
        let begin = engine.stats().log_bytes;
        for turn in 0.. {
            if engine.stats().log_bytes >= begin + MIN_LOG_BYTES * 3 / 16 {
                break;
            }
            put(&session, &tree, turn % 200).expect("put");
        }
        engine.checkpoint().expect("a checkpoint");
        let mut txn = engine.begin().expect("begin");
        for turn in 0..390u32 {
            if txn.put(&tree, &(turn % 200).to_be_bytes(), &[turn as u8; 1200]).is_err() {
                break;
            }
        }
        txn.abort().expect("abort");
        // The backup ends, whatever becomes of it.
        thread::sleep(Duration::from_millis(300));
        gate.is_open.store(true, Ordering::SeqCst);
        eventually("the backup ends", || copying.is_finished());
        let outcome = copying.join().expect("no panic");
        assert!(!is_full || matches!(outcome, Err(Error::DiskFull { .. })), "{outcome:?}");
        eventually("there is room", || put(&session, &tree, 1000).is_ok());
        drop((session, tree));
        assert_verified(&engine);
        engine.close().expect("close");
    }
}

#[test]
fn a_backup_of_a_damaged_page_says_so() {
    for is_changed in [false, true] {
        let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
        let options = small_pool(4096).log_bytes(4 * MIN_LOG_BYTES).durability(Durability::Group);
        let engine = Device::sim(&device).open(options.clone()).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let session = engine.session().expect("session");
        let put_all = |turn: u8| {
            for key in 0..2000u32 {
                session.put_ticket(&tree, &key.to_be_bytes(), &[turn; 500]).map(drop).expect("put");
            }
        };
        put_all(1);
        engine.checkpoint().expect("checkpoint");
        // Once more, so that no page remains to be written.
        engine.checkpoint().expect("checkpoint");
        let pages = device.pages();
        let page = *pages.iter().filter(|page| page.0 > 50).nth(20).expect("a page");
        device.modify_raw(page, |bytes| bytes[2000] ^= 1);
        let gate = Arc::<Gate>::default();
        gate.is_open.store(!is_changed, Ordering::SeqCst);
        let target = behind(&gate, false);
        let log = Arc::new(MemoryLog::default());
        let copying = {
            let (engine, target, log) = (engine.clone(), target.clone(), log.clone());
            thread::spawn(move || engine.backup_on(target, log))
        };
        if is_changed {
            // The engine has every page in memory, and the log gets each of them whole.
            eventually("the backup copies", || gate.is_waiting.load(Ordering::SeqCst));
            put_all(2);
            gate.is_open.store(true, Ordering::SeqCst);
        }
        let outcome = copying.join().expect("no panic");
        match is_changed {
            false => assert!(
                matches!(outcome, Err(Error::Corruption { .. })),
                "the copy of page {page} is not as it was written: {outcome:?}"
            ),
            true => {
                outcome.expect("the log has the page whole");
                let copy = wattle::Engine::open_on(target.pages.clone(), log, options);
                let copy = copy.expect("open the copy");
                let tree = copy.tree("tree").expect("tree");
                let session = copy.session().expect("session");
                for key in 0..2000u32 {
                    let found = session.get(&tree, &key.to_be_bytes()).expect("get");
                    assert_eq!(found.as_deref(), Some(&[2; 500][..]));
                }
                drop(session);
                assert_verified(&copy);
            }
        }
    }
}
