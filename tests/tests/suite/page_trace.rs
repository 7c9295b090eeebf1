//! The trace of page accesses: exact for one thread, nothing lost and each thread's own order with
//! several, errors of the sink, and nothing recorded outside of its time.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::{HashMap, HashSet},
    io,
    sync::{Arc, Mutex},
    time::Duration,
};
use wattle::{Engine, IoKind, Options, PageAccess, PageTrace, Session, TraceSink, Tree, TreeId};

/// Keeps what it gets; may be slow, or fail at the access of some number.
#[derive(Clone, Default)]
struct Kept {
    accesses: Arc<Mutex<Vec<PageAccess>>>,
    finished: Arc<Mutex<u32>>,
    pause: Duration,
    fail_at: Option<usize>,
}

impl TraceSink for Kept {
    fn write(&mut self, accesses: &[PageAccess]) -> io::Result<()> {
        std::thread::sleep(self.pause);
        let mut kept = self.accesses.lock().unwrap();
        if self.fail_at.is_some_and(|limit| kept.len() + accesses.len() >= limit) {
            return Err(io::Error::other("the sink is full"));
        }
        kept.extend_from_slice(accesses);
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        *self.finished.lock().unwrap() += 1;
        Ok(())
    }
}

impl Kept {
    /// Takes the recorded accesses, as pairs of page and whether it was changed.
    fn take(&self) -> Vec<(u64, bool)> {
        let accesses = std::mem::take(&mut *self.accesses.lock().unwrap());
        accesses.into_iter().map(|access| (access.page.0, access.write)).collect()
    }
}

const VALUE: usize = 200;

fn open(policy: &str, trace: &PageTrace) -> Engine {
    let options = Options::default()
        .io(IoKind::Memory)
        .pool_bytes(32 << 20)
        .policy(policy)
        .page_trace(trace.clone());
    Engine::open("in memory", options).expect("open")
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn fill(session: &Session, tree: &Tree, records: u64) {
    for number in 0..records {
        session.insert(tree, &key(number), &[number as u8; VALUE]).expect("insert");
    }
}

/// Runs `work` under a trace of its own engine and gives what was recorded. Nothing that it removes
/// is cleared away meanwhile, which would be accesses as well.
fn recorded(policy: &str, records: u64, work: impl FnOnce(&Session, &Tree)) -> Vec<(u64, bool)> {
    let (trace, kept) = (PageTrace::new(), Kept::default());
    let engine = open(policy, &trace);
    let (session, tree) = (engine.session().expect("session"), engine.tree("t").expect("tree"));
    fill(&session, &tree, records);
    let snapshot = engine.begin().expect("begin");
    trace.start(Box::new(kept.clone())).expect("start");
    work(&session, &tree);
    let count = trace.finish().expect("finish");
    drop(snapshot);
    // Later accesses are not recorded.
    session.get(&tree, &key(0)).expect("get");
    let accesses = kept.take();
    assert_eq!(count, accesses.len() as u64);
    assert_eq!(*kept.finished.lock().unwrap(), 1);
    drop((session, tree));
    engine.close().expect("close");
    accesses
}

/// The ways of `keys`, by a look-up of each.
fn ways(accesses: &[(u64, bool)], keys: u64) -> Vec<Vec<u64>> {
    assert_eq!(accesses.len() % keys as usize, 0, "every way is equally long");
    let height = accesses.len() / keys as usize;
    accesses.chunks(height).map(|way| way.iter().map(|access| access.0).collect()).collect()
}

#[test]
fn a_tree_of_one_page_has_one_access_for_each_operation() {
    for policy in ["watt", "random"] {
        let accesses = recorded(policy, 5, |session, tree| {
            session.get(tree, &key(1)).expect("get");
            session.get(tree, &key(100)).expect("get of what is absent");
            session.put(tree, &key(1), &[9; VALUE]).expect("put");
            session.modify(tree, &key(2), |value| value[0] ^= 1).expect("modify");
            session.remove(tree, &key(3)).expect("remove");
            assert!(!session.update(tree, &key(77), b"x").expect("update"), "absent");
            session.insert(tree, &key(6), &[1; VALUE]).expect("insert");
            assert_eq!(session.range(tree, ..).expect("range").count(), 5);
        });
        let root = accesses[0].0;
        let writes = [false, false, true, true, true, false, true, false];
        assert_eq!(accesses, writes.map(|write| (root, write)), "{policy}");
    }
}

#[test]
fn the_trace_of_a_known_sequence_is_exact() {
    const RECORDS: u64 = 30_000;
    let (trace, kept) = (PageTrace::new(), Kept::default());
    let engine = open("watt", &trace);
    let (session, tree) = (engine.session().expect("session"), engine.tree("t").expect("tree"));
    fill(&session, &tree, RECORDS);
    trace.start(Box::new(kept.clone())).expect("start");
    for number in 0..RECORDS {
        session.get(&tree, &key(number)).expect("get").expect("present");
    }
    let mut rng = SmallRng::seed_from_u64(11);
    let operations: Vec<(u32, u64)> =
        (0..50_000).map(|_| (rng.random_range(0..4), rng.random_range(0..RECORDS))).collect();
    for (kind, number) in &operations {
        let key = key(*number);
        match kind {
            0 => assert!(session.get(&tree, &key).expect("get").is_some()),
            1 => session.put(&tree, &key, &[7; VALUE]).expect("put"),
            2 => assert!(session.modify(&tree, &key, |value| value[0] ^= 1).expect("modify")),
            _ => {
                let keys = [key];
                session.multi_get(&tree, &keys, |_, value| assert!(value.is_some())).expect("get");
            }
        }
    }
    for entry in session.range(&tree, ..).expect("range") {
        entry.expect("entry");
    }
    for entry in session.range(&tree, ..).expect("range").rev() {
        entry.expect("entry");
    }
    trace.finish().expect("finish");
    let places: Vec<(TreeId, u8)> =
        (kept.accesses.lock().unwrap().iter()).map(|access| (access.tree, access.level)).collect();
    let accesses = kept.take();

    // The look-ups in key order say which pages there are.
    let height = accesses.iter().skip(1).position(|access| access.0 == accesses[0].0).unwrap() + 1;
    assert_eq!(height, 3, "the tree has three levels");
    // Every operation descends from level 2 of the one tree to a leaf, also those that change it.
    for (i, place) in places.iter().enumerate() {
        assert_eq!(*place, (places[0].0, 2 - (i % 3) as u8), "access {i}");
    }
    let looked_up = RECORDS as usize * height;
    let ways = ways(&accesses[..looked_up], RECORDS);
    assert!(ways.iter().all(|way| way[0] == ways[0][0]), "all begin at the root");
    let mut distinct = ways.clone();
    distinct.dedup();
    let leaves: HashSet<u64> = ways.iter().map(|way| way[2]).collect();
    assert_eq!(distinct.len(), leaves.len(), "each leaf has one range of keys and one way");
    assert!(leaves.len() > 1000, "{} leaves", leaves.len());
    assert!(accesses[..looked_up].iter().all(|access| !access.1));

    // From then on every line is known.
    let read = |way: &Vec<u64>| way.iter().map(|page| (*page, false)).collect::<Vec<_>>();
    let mut expected = Vec::new();
    for (kind, number) in operations {
        expected.extend(read(&ways[number as usize]));
        if kind == 1 || kind == 2 {
            expected.last_mut().unwrap().1 = true;
        }
    }
    expected.extend(distinct.iter().flat_map(&read));
    expected.extend(distinct.iter().rev().flat_map(&read));
    assert_eq!(accesses.len(), looked_up + expected.len());
    for (i, (found, expected)) in accesses[looked_up..].iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "access {i}");
    }
}

#[test]
fn splits_record_the_pages_that_they_change() {
    let accesses = recorded("watt", 0, |session, tree| fill(session, tree, 200));
    let mut changed = HashMap::new();
    accesses.iter().filter(|access| access.1).for_each(|access| {
        *changed.entry(access.0).or_insert(0) += 1;
    });
    // 200 records of 208 bytes, ascending: each full leaf keeps what it has.
    assert!(changed.len() > 200 * (VALUE + 8) / 4096, "{} pages were changed", changed.len());
    assert!(changed.values().sum::<i32>() >= 200, "every insert changes a leaf");
}

#[test]
fn with_several_threads_nothing_is_lost_and_each_keeps_its_order() {
    const THREADS: u64 = 4;
    const RECORDS: u64 = 2_000;
    const OPERATIONS: usize = 60_000;
    // Slower than the threads: they have to wait for room.
    let kept = Kept { pause: Duration::from_millis(2), ..Kept::default() };
    let trace = PageTrace::new();
    let engine = open("watt", &trace);
    let session = engine.session().expect("session");
    let trees: Vec<Tree> = (0..THREADS)
        .map(|thread| {
            let tree = engine.tree(&format!("t{thread}")).expect("tree");
            fill(&session, &tree, RECORDS);
            tree
        })
        .collect();
    trace.start(Box::new(kept.clone())).expect("start");
    for tree in &trees {
        for number in 0..RECORDS {
            session.get(tree, &key(number)).expect("get").expect("present");
        }
    }
    let sequences: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let work = |(thread, tree)| {
            let session = engine.session().expect("session");
            let mut rng = SmallRng::seed_from_u64(thread as u64);
            let numbers = (0..OPERATIONS).map(|_| {
                let number = rng.random_range(0..RECORDS);
                if number % 2 == 0 {
                    session.put(tree, &key(number), &[3; VALUE]).expect("put");
                } else {
                    session.get(tree, &key(number)).expect("get").expect("present");
                }
                number
            });
            numbers.collect()
        };
        let threads: Vec<_> =
            trees.iter().enumerate().map(|one| scope.spawn(move || work(one))).collect();
        threads.into_iter().map(|thread| thread.join().expect("thread")).collect()
    });
    let count = trace.finish().expect("finish");
    let accesses = kept.take();
    assert_eq!(count, accesses.len() as u64);

    // Trees share no page, so each thread's accesses can be told apart.
    let looked_up = (2 * THREADS * RECORDS) as usize;
    let mut thread_of = HashMap::new();
    let mut all_ways = Vec::new();
    for (thread, part) in accesses[..looked_up].chunks(2 * RECORDS as usize).enumerate() {
        thread_of.extend(part.iter().map(|access| (access.0, thread)));
        all_ways.push(ways(part, RECORDS));
    }
    let mut found = vec![Vec::new(); THREADS as usize];
    for access in &accesses[looked_up..] {
        found[thread_of[&access.0]].push(*access);
    }
    for ((found, sequence), ways) in found.iter().zip(&sequences).zip(&all_ways) {
        let expected: Vec<(u64, bool)> = sequence
            .iter()
            .flat_map(|number| {
                let way = &ways[*number as usize];
                [(way[0], false), (way[1], number % 2 == 0)]
            })
            .collect();
        assert!(*found == expected, "the accesses of a thread are not the ones that it made");
    }
    let expected = looked_up + THREADS as usize * OPERATIONS * 2;
    assert_eq!(accesses.len(), expected, "nothing is lost and nothing is there twice");
}

#[test]
fn a_sink_that_fails_ends_the_trace_and_not_the_work() {
    let kept = Kept { fail_at: Some(20_000), ..Kept::default() };
    let trace = PageTrace::new();
    let engine = open("watt", &trace);
    let (session, tree) = (engine.session().expect("session"), engine.tree("t").expect("tree"));
    fill(&session, &tree, 1000);
    trace.start(Box::new(kept.clone())).expect("start");
    assert!(!trace.has_failed());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let session = engine.session().expect("session");
                for number in 0..100_000 {
                    session.get(&tree, &key(number % 1000)).expect("get").expect("present");
                }
            });
        }
    });
    assert!(trace.has_failed());
    assert_eq!(trace.finish().expect_err("the sink failed").to_string(), "the sink is full");
    assert!(kept.take().len() < 20_000);
    assert_eq!(*kept.finished.lock().unwrap(), 0);
    let again = trace.start(Box::new(kept)).expect_err("it was started before");
    assert!(again.to_string().contains("once"), "{again}");
}

#[test]
fn a_trace_that_was_never_started_records_nothing() {
    let trace = PageTrace::new();
    let engine = open("watt", &trace);
    let (session, tree) = (engine.session().expect("session"), engine.tree("t").expect("tree"));
    fill(&session, &tree, 100);
    assert!(!trace.has_failed());
    assert_eq!(trace.finish().expect("finish"), 0);
}
