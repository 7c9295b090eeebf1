//! Backups beside what goes wrong: a log that gets no further segment, a target without room, damaged
//! pages. (What crashes leave of backups is for the crash images.)

use std::{
    io::{self, ErrorKind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use wattle::{
    Durability, Error, MIN_LOG_BYTES, Session, Storage, Tree,
    io::{FaultPlan, MemoryLog, MemoryStorage, PageWrite, ReadFuture, ReadTarget, SimStorage},
};
use wattle_buffer::{PageId, PageImage};
use wattle_tests::harness::{Device, Watchdog, assert_verified, small_pool};

/// A target that takes no page until it may, or never.
struct Gate {
    pages: Arc<MemoryStorage>,
    is_open: AtomicBool,
    is_full: bool,
    is_waiting: AtomicBool,
}

impl Storage for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn read_page(&self, target: &mut ReadTarget) -> io::Result<()> {
        self.pages.read_page(target)
    }

    fn read_page_async(self: Arc<Self>, target: ReadTarget) -> ReadFuture {
        self.pages.clone().read_page_async(target)
    }

    fn read_image(&self, page: PageId, image: &mut PageImage) -> io::Result<()> {
        self.pages.read_image(page, image)
    }

    fn write_pages(&self, batch: &[PageWrite<'_>], results: &mut Vec<io::Result<()>>) {
        self.is_waiting.store(true, Ordering::SeqCst);
        while !self.is_open.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        match self.is_full {
            true => results.extend(batch.iter().map(|_| Err(ErrorKind::StorageFull.into()))),
            false => self.pages.write_pages(batch, results),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.pages.sync()
    }

    fn capacity_pages(&self) -> u64 {
        self.pages.capacity_pages()
    }

    fn reserve(&self, pages: u64) -> io::Result<()> {
        self.pages.reserve(pages)
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(20), "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn put(session: &Session, tree: &Tree, key: u32) -> Result<(), Error> {
    session.put(tree, &key.to_be_bytes(), &vec![key as u8; 1200])
}

/// The backup keeps the log, a roll-back takes what is in reserve, and the log stands still. Neither may wait
/// for the other, whether the backup fails or could go on.
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
        let target = Arc::new(Gate {
            pages: Arc::new(MemoryStorage::new()),
            is_open: AtomicBool::new(false),
            is_full,
            is_waiting: AtomicBool::new(false),
        });
        let copying = {
            let (engine, target) = (engine.clone(), target.clone());
            thread::spawn(move || engine.backup_on(target, Arc::new(MemoryLog::default())))
        };
        until("the backup copies", || target.is_waiting.load(Ordering::SeqCst));
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
        target.is_open.store(true, Ordering::SeqCst);
        until("the backup ends", || copying.is_finished());
        let outcome = copying.join().expect("no panic");
        assert!(!is_full || matches!(outcome, Err(Error::DiskFull { .. })), "{outcome:?}");
        until("there is room", || put(&session, &tree, 1000).is_ok());
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
                session.put_async(&tree, &key.to_be_bytes(), &[turn; 500]).map(drop).expect("put");
            }
        };
        put_all(1);
        engine.checkpoint().expect("checkpoint");
        // Once more, so that nothing is written any more.
        engine.checkpoint().expect("checkpoint");
        let pages = device.pages();
        let page = *pages.iter().filter(|page| page.0 > 50).nth(20).expect("a page");
        device.modify_raw(page, |bytes| bytes[2000] ^= 1);
        let target = Arc::new(Gate {
            pages: Arc::new(MemoryStorage::new()),
            is_open: AtomicBool::new(!is_changed),
            is_full: false,
            is_waiting: AtomicBool::new(false),
        });
        let log = Arc::new(MemoryLog::default());
        let copying = {
            let (engine, target, log) = (engine.clone(), target.clone(), log.clone());
            thread::spawn(move || engine.backup_on(target, log))
        };
        if is_changed {
            // The engine has every page in memory, and the log gets each of them whole.
            until("the backup copies", || target.is_waiting.load(Ordering::SeqCst));
            put_all(2);
            target.is_open.store(true, Ordering::SeqCst);
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
