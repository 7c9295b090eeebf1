//! Read-ahead of scans: which pages are read, when and in vain, on a device that takes its time.

use std::sync::Arc;
use wattle::{
    Durability, Engine, Options, Tree,
    io::{DeviceModel, MemoryLog, Storage, TimedStorage},
};

const RECORDS: u64 = 3000;
/// Records of a leaf that was loaded in key order.
const PER_LEAF: u64 = 3;

struct Store {
    pages: Arc<dyn Storage>,
    log: Arc<MemoryLog>,
}

impl Store {
    fn loaded() -> Store {
        let model = DeviceModel { read_us: 500, write_us: 1, kr: 64, kw: 64 };
        let store = Store {
            pages: Arc::new(TimedStorage::new(model)),
            log: Arc::new(MemoryLog::default()),
        };
        let (engine, tree) = store.open(32);
        let session = engine.session().unwrap();
        let entries = (0..RECORDS).map(|number| (number.to_be_bytes(), [1; 1000]));
        session.bulk_load(&tree, entries).unwrap();
        drop((session, tree));
        engine.close().unwrap();
        store
    }

    /// A cold store that reads so many pages ahead.
    fn open(&self, ahead: usize) -> (Engine, Tree) {
        let options = Options::default().pool_bytes(32 << 20).read_ahead(ahead);
        let options = options.durability(Durability::None);
        let engine = Engine::open_on(self.pages.clone(), self.log.clone(), options).unwrap();
        let tree = engine.tree("t").unwrap();
        (engine, tree)
    }
}

#[test]
fn a_scan_reads_ahead_in_both_directions_and_sees_the_same() {
    let store = Store::loaded();
    for (ahead, is_backward) in [(0, false), (32, false), (32, true)] {
        let (engine, tree) = store.open(ahead);
        let session = engine.session().unwrap();
        let range = session.scan(&tree).unwrap();
        let range = if is_backward { range.rev() } else { range };
        let mut keys: Vec<_> = range.map(|entry| entry.unwrap().0).collect();
        if is_backward {
            keys.reverse();
        }
        let expected: Vec<_> = (0..RECORDS).map(|number| number.to_be_bytes().to_vec()).collect();
        assert!(keys == expected, "{ahead} {is_backward}");
        let stats = engine.stats();
        if ahead == 0 {
            assert_eq!(stats.pages_read_ahead, 0);
        } else {
            assert!(stats.pages_read_ahead > RECORDS / PER_LEAF * 9 / 10, "{stats:?}");
        }
        // No page is read twice.
        assert!(stats.pages_read <= RECORDS / PER_LEAF + 30, "{stats:?}");
    }
}

#[test]
fn read_ahead_ends_at_the_bound_of_the_range_and_where_the_caller_said() {
    let store = Store::loaded();
    let first = 1000u64.to_be_bytes();
    for (leaves, is_bounded) in [(10, true), (10, false)] {
        let (engine, tree) = store.open(32);
        let session = engine.session().unwrap();
        let count = leaves * PER_LEAF;
        let end = (1000 + count).to_be_bytes();
        let before = engine.stats().pages_read;
        let taken = match is_bounded {
            true => session.range(&tree, &first[..]..&end[..]).unwrap().count(),
            false => {
                let range = session.range(&tree, &first[..]..).unwrap();
                range.expect_records(count as usize).take(count as usize).count()
            }
        };
        assert_eq!(taken as u64, count);
        // All reads that were asked for have ended when the store is closed.
        drop(session);
        drop(tree);
        let stats = engine.stats();
        engine.close().unwrap();
        // The leaves, one more at each end, and the inner nodes on the way.
        let read = stats.pages_read - before;
        assert!(read <= leaves + 5, "{read} pages were read, bounded: {is_bounded}");
        assert!(stats.pages_read_ahead > 0, "{stats:?}");
    }
}

#[test]
fn a_range_that_says_how_many_records_it_needs_reads_their_leaves_at_once() {
    let store = Store::loaded();
    let (engine, tree) = store.open(48);
    let session = engine.session().unwrap();
    // Inner nodes are in memory, and the session has seen a leaf.
    for number in (0..RECORDS).step_by(300) {
        assert_eq!(session.range(&tree, &number.to_be_bytes()[..]..).unwrap().take(1).count(), 1);
    }
    for is_backward in [false, true] {
        for number in (20..RECORDS - 300).step_by(600) {
            let number = number + if is_backward { 400 } else { 0 };
            let before = engine.stats();
            let key = number.to_be_bytes();
            let range = match is_backward {
                false => session.range(&tree, &key[..]..).unwrap(),
                true => session.range(&tree, ..&key[..]).unwrap().rev(),
            };
            assert_eq!(range.expect_records(100).take(100).count(), 100);
            let after = engine.stats();
            let ahead = after.pages_read_ahead - before.pages_read_ahead;
            let own = after.pages_read - before.pages_read - ahead;
            let what = format!("from {number}, backward: {is_backward}: {own} own, {ahead} ahead");
            assert!((30..=36).contains(&ahead), "{what}");
            // On a busy machine a reader that waits for long joins the other read.
            assert!(own <= 4, "{what}");
        }
    }
}

#[test]
fn a_scan_that_ends_early_leaves_few_reads_behind() {
    let store = Store::loaded();
    let (engine, tree) = store.open(32);
    let session = engine.session().unwrap();
    let before = engine.stats().pages_read;
    for number in 0..20 {
        let first = (number * 140u64).to_be_bytes();
        assert_eq!(session.range(&tree, &first[..]..).unwrap().take(2).count(), 2);
    }
    let stats = engine.stats();
    assert!(stats.pages_read - before < 70, "{stats:?}");
}

#[cfg(feature = "async")]
#[test]
fn a_scan_of_a_task_reads_ahead_too() {
    let store = Store::loaded();
    let (engine, tree) = store.open(32);
    let keys = wattle::run(64, async {
        let session = engine.async_session().unwrap();
        let mut range = session.scan(&tree).await.unwrap();
        let mut keys = 0;
        while let Some((key, _)) = range.next_entry().await.unwrap() {
            assert_eq!(key, u64::to_be_bytes(keys));
            keys += 1;
        }
        keys
    });
    let Ok(keys) = keys else { return eprintln!("skipped: io_uring is refused") };
    assert_eq!(keys, RECORDS);
    assert!(engine.stats().pages_read_ahead > RECORDS / PER_LEAF * 9 / 10);
}
