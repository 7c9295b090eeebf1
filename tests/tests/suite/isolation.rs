//! The ten anomalies of Hermitage (Kleppmann, after Adya), as fixed interleavings of two or three
//! transactions, at both levels: snapshot isolation admits write skew on items (G2-item) and on
//! predicates (G2) and nothing else, serializable admits none.

use std::time::Duration;
use wattle::{Engine, Error, Isolation, Session, Transaction, Tree, TxnOptions};
use wattle_tests::harness::{Device, small_pool};

const LEVELS: [Isolation; 2] = [Isolation::Snapshot, Isolation::Serializable];

/// Records 1 = 10 and 2 = 20, and three sessions.
struct Table {
    sessions: [Session; 3],
    tree: Tree,
    level: Isolation,
    _engine: Engine,
}

fn key(id: u8) -> [u8; 1] {
    [id]
}

fn each_level(test: impl Fn(&Table)) {
    for level in LEVELS {
        println!("{level:?}");
        let engine = Device::memory().open(small_pool(64)).expect("open");
        let tree = engine.tree("test").expect("tree");
        let sessions = [0, 1, 2].map(|_| engine.session().expect("session"));
        for (id, value) in [(1, 10), (2, 20)] {
            sessions[0].put(&tree, &key(id), &[value]).expect("put");
        }
        test(&Table { sessions, tree, level, _engine: engine });
    }
}

impl Table {
    fn begin(&self, session: usize) -> Transaction<'_> {
        let options = TxnOptions { isolation: self.level, ..TxnOptions::default() };
        self.sessions[session].begin_with(options).expect("begin")
    }

    fn read(&self, txn: &Transaction<'_>, id: u8) -> Option<u8> {
        txn.get(&self.tree, &key(id)).expect("get").map(|value| value[0])
    }

    fn write(&self, txn: &mut Transaction<'_>, id: u8, value: u8) -> Result<(), Error> {
        txn.put(&self.tree, &key(id), &[value])
    }

    /// Ids of the records whose value is divisible by `by`.
    fn divisible(&self, txn: &Transaction<'_>, by: u8) -> Vec<u8> {
        let entries = txn.scan(&self.tree).expect("scan").map(|entry| entry.expect("entry"));
        entries.filter(|(_, value)| value[0].is_multiple_of(by)).map(|(key, _)| key[0]).collect()
    }

    fn state(&self) -> Vec<u8> {
        let entries = self.sessions[2].scan(&self.tree).expect("scan");
        entries.map(|entry| entry.expect("entry").1[0]).collect()
    }

    fn conflicts<T: std::fmt::Debug>(&self, outcome: Result<T, Error>) {
        assert!(matches!(outcome, Err(Error::Conflict(_) | Error::MustAbort(_))), "{outcome:?}");
    }
}

#[test]
fn g0_write_cycles_do_not_happen() {
    each_level(|table| {
        let (mut a, mut b) = (table.begin(0), table.begin(1));
        table.write(&mut a, 1, 11).expect("first");
        table.conflicts(table.write(&mut b, 1, 12));
        table.write(&mut a, 2, 21).expect("write");
        a.commit().expect("commit");
        table.conflicts(b.commit());
        assert_eq!(table.state(), [11, 21]);
    });
}

#[test]
fn g1a_aborted_reads_do_not_happen() {
    each_level(|table| {
        let (mut a, b) = (table.begin(0), table.begin(1));
        table.write(&mut a, 1, 101).expect("write");
        assert_eq!(table.read(&b, 1), Some(10));
        a.abort().expect("abort");
        assert_eq!(table.read(&b, 1), Some(10));
        b.commit().expect("commit");
    });
}

#[test]
fn g1b_intermediate_reads_do_not_happen() {
    each_level(|table| {
        let (mut a, b) = (table.begin(0), table.begin(1));
        table.write(&mut a, 1, 101).expect("write");
        assert_eq!(table.read(&b, 1), Some(10));
        table.write(&mut a, 1, 11).expect("write");
        a.commit().expect("commit");
        assert_eq!(table.read(&b, 1), Some(10));
        b.commit().expect("commit");
    });
}

#[test]
fn g1c_circular_information_flow_does_not_happen() {
    each_level(|table| {
        let (mut a, mut b) = (table.begin(0), table.begin(1));
        table.write(&mut a, 1, 11).expect("write");
        table.write(&mut b, 2, 22).expect("write");
        assert_eq!(table.read(&a, 2), Some(20));
        assert_eq!(table.read(&b, 1), Some(10));
        a.commit().expect("commit");
        match table.level {
            // Neither saw the other: that is write skew, not a flow of information.
            Isolation::Snapshot => b.commit().expect("commit"),
            Isolation::Serializable => table.conflicts(b.commit()),
        }
    });
}

#[test]
fn otv_an_observed_transaction_does_not_vanish() {
    each_level(|table| {
        let (mut a, mut b, c) = (table.begin(0), table.begin(1), table.begin(2));
        table.write(&mut a, 1, 11).expect("write");
        table.write(&mut a, 2, 19).expect("write");
        table.conflicts(table.write(&mut b, 1, 12));
        a.commit().expect("commit");
        assert_eq!(table.read(&c, 1), Some(10));
        table.conflicts(table.write(&mut b, 2, 18));
        assert_eq!(table.read(&c, 2), Some(20));
        table.conflicts(b.commit());
        assert_eq!((table.read(&c, 2), table.read(&c, 1)), (Some(20), Some(10)));
        c.commit().expect("commit");
    });
}

#[test]
fn pmp_predicates_do_not_find_what_came_later() {
    each_level(|table| {
        let (a, mut b) = (table.begin(0), table.begin(1));
        assert!(table.divisible(&a, 30).is_empty());
        table.write(&mut b, 3, 30).expect("write");
        b.commit().expect("commit");
        assert!(table.divisible(&a, 3).is_empty());
        a.commit().expect("commit");
        // A write by a predicate that another changed.
        let (mut a, mut b) = (table.begin(0), table.begin(1));
        for id in [1, 2] {
            let value = table.read(&a, id).expect("there");
            table.write(&mut a, id, value + 10).expect("write");
        }
        assert_eq!(table.divisible(&b, 20), [2]);
        table.conflicts(b.remove(&table.tree, &key(2)));
        a.commit().expect("commit");
        table.conflicts(b.commit());
    });
}

#[test]
fn p4_updates_are_not_lost() {
    each_level(|table| {
        let (mut a, mut b) = (table.begin(0), table.begin(1));
        assert_eq!((table.read(&a, 1), table.read(&b, 1)), (Some(10), Some(10)));
        table.write(&mut a, 1, 11).expect("write");
        table.conflicts(table.write(&mut b, 1, 11));
        a.commit().expect("commit");
        table.conflicts(b.commit());
        // Also when the first has committed before the second writes.
        let (mut a, mut b) = (table.begin(0), table.begin(1));
        assert_eq!((table.read(&a, 1), table.read(&b, 1)), (Some(11), Some(11)));
        table.write(&mut a, 1, 12).expect("write");
        a.commit().expect("commit");
        table.conflicts(table.write(&mut b, 1, 12));
        table.conflicts(b.commit());
    });
}

#[test]
fn g_single_reads_are_not_skewed() {
    each_level(|table| {
        let (a, mut b) = (table.begin(0), table.begin(1));
        assert_eq!(table.read(&a, 1), Some(10));
        assert_eq!((table.read(&b, 1), table.read(&b, 2)), (Some(10), Some(20)));
        table.write(&mut b, 1, 12).expect("write");
        table.write(&mut b, 2, 18).expect("write");
        b.commit().expect("commit");
        assert_eq!(table.read(&a, 2), Some(20));
        a.commit().expect("commit");
        // By a predicate, and with a write that depends on it.
        let (mut a, mut b) = (table.begin(0), table.begin(1));
        assert_eq!(table.divisible(&a, 5), Vec::<u8>::new());
        table.write(&mut b, 1, 25).expect("write");
        b.commit().expect("commit");
        assert_eq!(table.divisible(&a, 5), Vec::<u8>::new());
        table.conflicts(a.remove(&table.tree, &key(1)));
        table.conflicts(a.commit());
    });
}

#[test]
fn g2_item_write_skew_is_admitted_by_snapshots_alone() {
    each_level(|table| {
        let (mut a, mut b) = (table.begin(0), table.begin(1));
        for txn in [&a, &b] {
            assert_eq!((table.read(txn, 1), table.read(txn, 2)), (Some(10), Some(20)));
        }
        table.write(&mut a, 1, 11).expect("write");
        table.write(&mut b, 2, 21).expect("write");
        a.commit().expect("commit");
        match table.level {
            Isolation::Snapshot => {
                b.commit().expect("admitted");
                assert_eq!(table.state(), [11, 21]);
            }
            Isolation::Serializable => {
                table.conflicts(b.commit());
                assert_eq!(table.state(), [11, 20]);
            }
        }
    });
}

#[test]
fn g2_write_skew_on_predicates_is_admitted_by_snapshots_alone() {
    each_level(|table| {
        let (mut a, mut b) = (table.begin(0), table.begin(1));
        for txn in [&a, &b] {
            assert!(table.divisible(txn, 3).is_empty());
        }
        table.write(&mut a, 3, 30).expect("write");
        table.write(&mut b, 4, 42).expect("write");
        a.commit().expect("commit");
        match table.level {
            Isolation::Snapshot => {
                b.commit().expect("admitted");
                assert_eq!(table.state(), [10, 20, 30, 42]);
            }
            Isolation::Serializable => {
                table.conflicts(b.commit());
                assert_eq!(table.state(), [10, 20, 30]);
            }
        }
    });
}

/// Validation reads nothing from storage, so what was scanned need not fit the pool.
#[test]
fn ranges_larger_than_the_pool_are_validated() {
    let options = small_pool(48).log(false).stall_timeout(Duration::from_secs(1));
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let [session, other] = [(); 2].map(|()| engine.session().expect("session"));
    let row = |i: u32| (2 * i).to_be_bytes();
    session.bulk_load(&tree, (0..400).map(|i| (row(i), [i as u8; 1500]))).expect("load");
    let within = 100..300;
    // The concurrent operation, and whether it changes something in the range.
    type Change<'c> = &'c dyn Fn(&Session) -> bool;
    let changes: [(&str, Change<'_>, bool); 7] = [
        ("nothing", &|_| true, false),
        ("an update", &|other| other.update(&tree, &row(150), b"new").expect("update"), true),
        ("in place", &|other| other.modify(&tree, &row(299), |v| v[7] += 1).expect("modify"), true),
        ("a phantom", &|other| other.insert(&tree, &401u32.to_be_bytes(), b"").is_ok(), true),
        ("a removal", &|other| other.remove(&tree, &row(100)).expect("remove"), true),
        ("one before", &|other| other.remove(&tree, &row(99)).expect("remove"), false),
        ("the next one", &|other| other.update(&tree, &row(300), b"new").expect("update"), false),
    ];
    for level in LEVELS {
        for (what, change, is_within) in changes {
            let options = TxnOptions { isolation: level, ..TxnOptions::default() };
            let mut txn = session.begin_with(options).expect("begin");
            let (low, high) = (row(within.start), row(within.end));
            assert!(txn.range(&tree, &low..&high).expect("range").all(|entry| entry.is_ok()));
            txn.put(&tree, &row(0), what.as_bytes()).expect("put");
            assert!(change(&other), "{what}");
            let outcome = txn.commit();
            if level == Isolation::Serializable && is_within {
                assert!(matches!(outcome, Err(Error::Conflict(_))), "{what}: {outcome:?}");
            } else {
                outcome.unwrap_or_else(|error| panic!("{level:?}, {what}: {error}"));
            }
            for i in [99, 100] {
                other.put(&tree, &row(i), &[1; 1500]).expect("put");
            }
            other.remove(&tree, &401u32.to_be_bytes()).expect("remove");
        }
    }
}
