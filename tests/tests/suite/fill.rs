//! How full leaves are after inserts in several orders, and that records which move between leaves
//! are found by readers, by writers and after a crash.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use wattle::{
    Durability, Engine, MIN_LOG_BYTES, Options, Session, Tree,
    io::{Cut, FaultPlan, SimStorage},
};
use wattle_tests::{
    harness::{Context, Device, Watchdog, assert_verified, rounds, seed, small_pool},
    model::{Client, Keys, Plan},
};

/// Runs of ascending keys that are inserted in turns, and records that each gets at a time.
const RUNS: u64 = 20;
const LINES: u64 = 10;

#[derive(Clone, Copy, Debug)]
enum Order {
    Random,
    Ascending,
    Descending,
    Runs,
    DescendingRuns,
}

impl Order {
    fn key(self, number: u64, records: u64) -> [u8; 16] {
        let (batch, line) = (number / LINES, number % LINES);
        let (run, place) = match self {
            Order::Random => (0, number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            Order::Ascending => (0, number),
            Order::Descending => (0, records - number),
            Order::Runs => (batch % RUNS, batch / RUNS * LINES + line),
            Order::DescendingRuns => (batch % RUNS, records - batch / RUNS * LINES - line),
        };
        let mut key = [0; 16];
        key[..8].copy_from_slice(&run.to_be_bytes());
        key[8..].copy_from_slice(&place.to_be_bytes());
        key
    }
}

/// Leaves after inserts in this order, and redistributions.
fn leaves(order: Order, value: usize, records: u64, redistribution: bool) -> (u64, u64) {
    let options = Options::default().pool_bytes(64 << 20).log(false);
    let engine = Device::memory().open(options.redistribution(redistribution)).expect("open");
    let session = engine.session().expect("session");
    let tree = engine.tree("fill").expect("tree");
    for number in 0..records {
        session.insert(&tree, &order.key(number, records), &vec![1; value]).expect("insert");
    }
    assert_verified(&engine);
    let stats = engine.tree_stats().expect("stats");
    let stat = stats.iter().find(|stat| stat.name == "fill").expect("the tree is listed");
    assert_eq!(stat.records, records);
    (stat.leaf_pages, engine.stats().redistributions)
}

#[test]
fn inserts_in_sequence_leave_full_leaves_whatever_the_size_of_records() {
    // Records of a leaf: 35, 4, 3, 2.
    for (value, most) in [(100, 35), (900, 4), (1000, 3), (1350, 2)] {
        for order in [Order::Ascending, Order::Descending, Order::Runs, Order::DescendingRuns] {
            // Fifty full leaves for each run, whose ends are not full.
            let records = 50 * RUNS * most;
            let (leaves, moves) = leaves(order, value, records, true);
            let least = records.div_ceil(most);
            let share = least as f64 / leaves as f64;
            println!(
                "{value} bytes, {order:?}: {leaves} leaves, {share:.3} of what fits, {moves} moves"
            );
            assert!(share > 0.85, "{value} bytes, {order:?}: {leaves} leaves instead of {least}");
            // Of two records that follow each other in a leaf of two none tells a run.
            assert!(most == 2 || moves <= records / 100, "{moves} redistributions, {order:?}");
        }
    }
}

#[test]
fn random_inserts_fill_more_of_each_leaf_with_redistribution() {
    for (value, most, with, without) in
        [(100, 35, 0.66, 0.66), (900, 4, 0.83, 0.68), (1000, 3, 0.86, 0.74), (1350, 2, 0.86, 0.72)]
    {
        for (redistribution, bar) in [(true, with), (false, without)] {
            let records = 6000;
            let (leaves, moves) = leaves(Order::Random, value, records, redistribution);
            let share = records as f64 / (leaves * most) as f64;
            println!("{value} bytes, {redistribution}: {leaves} leaves, {share:.3}, {moves} moves");
            assert!(share > bar, "{value} bytes, {redistribution}: {share:.3} of what fits");
            // Small records move no others.
            assert_eq!(moves > 0, redistribution && value > 500);
        }
    }
}

/// Readers of both directions see every record that stays, once and in order, while writers of
/// other records make leaves give records to each other, in a pool that holds all of them and in
/// one that does not. Some writers take back what they inserted.
#[test]
fn scans_see_every_record_once_while_records_move_between_leaves() {
    let seed = seed();
    println!("seed {seed}");
    for (frames, options) in [48, 4000].into_iter().flat_map(|frames| {
        let options = small_pool(frames).durability(Durability::None);
        let options = options.log_bytes(MIN_LOG_BYTES).stall_timeout(Duration::from_secs(10));
        [(frames, options.clone()), (frames, options.swizzling(false))]
    }) {
        let engine = Device::memory().open(options).expect("open");
        let tree = engine.tree("t").expect("tree");
        scan_beside_writers(&engine, &tree, seed);
        println!("{frames} frames: {} redistributions", engine.stats().redistributions);
        assert!(engine.stats().redistributions > 0, "no record moved");
        assert_verified(&engine);
    }
}

const STAYING: u32 = 1500;
const WRITERS: u32 = 2;

fn scan_beside_writers(engine: &Engine, tree: &Tree, seed: u64) {
    // The last byte says whose a key is: 0 stays.
    let key = |number: u32, owner: u32| (number << 8 | owner).to_be_bytes();
    let session = engine.session().expect("session");
    for number in 0..STAYING {
        session.insert(tree, &key(number, 0), &[0; 700]).expect("insert");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, key) = (&stop, &key);
        let readers: Vec<_> = [false, true]
            .map(|backward| {
                scope.spawn(move || {
                    let session = engine.session().expect("session");
                    let mut scans = 0;
                    while scans < 3 || !stop.load(Ordering::Relaxed) {
                        scan_once(&session, tree, backward);
                        scans += 1;
                    }
                })
            })
            .into();
        let writers: Vec<_> = (1..=WRITERS)
            .map(|owner| {
                scope.spawn(move || {
                    let mut random = SmallRng::seed_from_u64(seed ^ u64::from(owner));
                    write(engine, tree, &|number| key(number, owner), &mut random);
                })
            })
            .collect();
        for writer in writers {
            let ended = writer.join();
            stop.store(true, Ordering::Relaxed);
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
    });
}

fn scan_once(session: &Session, tree: &Tree, backward: bool) {
    let range = session.scan(tree).expect("scan");
    let range = if backward { range.rev() } else { range };
    let mut keys: Vec<u32> = range
        .map(|entry| {
            let (key, value) = entry.expect("entry");
            let key = u32::from_be_bytes(key.try_into().expect("4 bytes"));
            assert_eq!(value[0], key as u8, "a value of another key");
            key
        })
        .collect();
    if backward {
        keys.reverse();
    }
    assert!(keys.is_sorted_by(|a, b| a < b), "a key twice, or out of order");
    let staying: Vec<u32> = keys.iter().filter(|key| *key & 255 == 0).map(|key| key >> 8).collect();
    assert!(staying.into_iter().eq(0..STAYING), "a record that stays was missed");
}

/// Changes keys of one writer at random and compares every answer.
fn write(engine: &Engine, tree: &Tree, key: &dyn Fn(u32) -> [u8; 4], random: &mut SmallRng) {
    let session = engine.session().expect("session");
    let mut mine = BTreeMap::new();
    for step in 0..3000 * rounds() {
        let number = random.random_range(0..STAYING);
        let key = key(number);
        let value = vec![key[3]; random.random_range(1..1900)];
        match random.random_range(0..8) {
            0 | 1 => {
                let removed = session.remove(tree, &key).expect("remove");
                assert_eq!(removed, mine.remove(&number).is_some());
            }
            2 => {
                let mut txn = engine.begin().expect("begin");
                txn.put(tree, &key, &value).expect("put");
                txn.abort().expect("abort");
            }
            _ => {
                session.put(tree, &key, &value).expect("put");
                mine.insert(number, value);
            }
        }
        if step % 16 == 0 {
            assert_eq!(session.get(tree, &key).expect("get").as_ref(), mine.get(&number));
        }
    }
    for number in 0..STAYING {
        assert_eq!(session.get(tree, &key(number)).expect("get").as_ref(), mine.get(&number));
    }
}

/// Crash images of a store whose records move between leaves all the time: with images of pages in
/// the log and without, in a pool that writes them soon and in one that keeps them.
#[test]
fn records_that_moved_between_leaves_survive_a_power_cut() {
    const PLAN: Plan = Plan {
        keys: Keys::Random,
        universe: 4000,
        value: 1500,
        large_every: 0,
        large: 0,
        client: 0,
        clients: 1,
    };
    let watchdog = Watchdog::start("moved records", Duration::from_secs(60));
    for seed in 0..4 * rounds() {
        let _context = Context(("seed", seed));
        let whole = seed / 2 % 2 == 1;
        let cut = if whole { Cut::Pages } else { Cut::Sectors };
        let options = small_pool([48, 4000][seed as usize % 2])
            .log_bytes(MIN_LOG_BYTES)
            .atomic_page_writes(whole);
        let open = |device: &Arc<SimStorage>| {
            let opened = Engine::open_on(device.clone(), device.clone(), options.clone());
            let engine = opened.expect("open");
            let (session, tree) =
                (engine.session().expect("session"), engine.tree("t").expect("tree"));
            (engine, session, tree)
        };
        let device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        let mut client = Client::new(PLAN, seed);
        let (engine, session, tree) = open(&device);
        for step in 0..4000 {
            client.step(&session, &tree);
            if step % 500 == 499 {
                let left = Arc::new(device.crash_as(seed * 100 + step / 500, cut));
                let (engine, session, tree) = open(&left);
                client.check_all(&session, &tree);
                drop((session, tree));
                assert_verified(&engine);
                watchdog.step();
            }
        }
        assert!(engine.stats().redistributions > 0, "no record moved");
    }
}
