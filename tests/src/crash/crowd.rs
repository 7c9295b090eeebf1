//! A workload of several threads at once. Each thread is a line of its own with numbered
//! transactions, which leave their number in a record of the thread; its other records follow from
//! the number, so what must be there is known without a history. Besides, all threads move amounts
//! between accounts whose sum never changes. One more line makes, fills, renames and drops a tree,
//! and checkpoints follow each other.

use super::{
    check::{Setting, close, open, options, verify},
    device::{Bounds, Camera, Capturing, Image},
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use wattle::{Engine, Error, Transaction, Tree, io::SimStorage};

/// Lines that make transactions.
const WRITERS: usize = 4;
/// All lines: the last one has to do with trees.
pub const LINES: usize = WRITERS + 1;
/// Accounts, and what is on each at first.
const ACCOUNTS: u32 = 40;
const BALANCE: i64 = 1000;
/// Records that a thread has at most, each set by the last transaction with its number modulo this.
const RECORDS: u64 = 90;

/// The record that transaction `number` of a line sets; every seventh removes one instead.
fn key_of(line: usize, number: u64) -> Vec<u8> {
    // Lines share leaves.
    format!("{:03}/{line}", number % RECORDS).into_bytes()
}

fn value_of(line: usize, number: u64) -> Vec<u8> {
    let mix = (number * 2_654_435_761 + line as u64) >> 3;
    let len = match mix % 40 {
        0 => 2000 + mix % 9000,
        1..8 => mix % 900,
        _ => mix % 60,
    };
    let mut value = number.to_le_bytes().to_vec();
    value.extend((0..len).map(|at| (at + mix) as u8));
    value
}

fn removes(number: u64) -> bool {
    number.is_multiple_of(7)
}

fn account(number: u32) -> Vec<u8> {
    format!("account {number:04}").into_bytes()
}

fn counter(line: usize) -> Vec<u8> {
    format!("line {line}").into_bytes()
}

/// Trees of the workload.
struct Trees {
    lines: Tree,
    accounts: Tree,
}

impl Trees {
    fn open(engine: &Engine) -> wattle::Result<Trees> {
        Ok(Trees { lines: engine.tree("lines")?, accounts: engine.tree("accounts")? })
    }
}

/// Runs some transactions of one line, from `next` on; gives the first that was not made.
fn work(engine: &Engine, device: &Capturing, line: usize, next: u64, count: u64, seed: u64) -> u64 {
    let mut random = SmallRng::seed_from_u64(seed ^ ((line as u64) << 40) ^ next);
    let session = engine.session().expect("session");
    let trees = Trees::open(engine).expect("trees");
    let mut number = next;
    let mut pending = Vec::new();
    while number < next + count {
        let mut txn = session.begin().expect("begin");
        match transaction(&mut txn, &trees, line, number, &mut random) {
            Ok(true) => {}
            Ok(false) => {
                txn.abort().expect("abort");
                continue;
            }
            Err(Error::Conflict(_) | Error::SnapshotTooOld { .. }) => {
                txn.abort().expect("abort");
                continue;
            }
            Err(error) => panic!("line {line}, transaction {number}: {error}"),
        }
        device.issue(line, number);
        if random.random_range(0..3) == 0 {
            pending.push(txn.commit_ticket().expect("commit"));
        } else {
            txn.commit().expect("commit");
            pending.clear();
            device.ack(line, number);
        }
        if pending.len() > 4 {
            pending.drain(..).for_each(|ticket| ticket.wait().expect("commit"));
            device.ack(line, number);
        }
        number += 1;
    }
    pending.into_iter().for_each(|ticket| ticket.wait().expect("commit"));
    device.ack(line, number - 1);
    number
}

/// One transaction; false: it is to be aborted.
fn transaction(
    txn: &mut Transaction<'_>,
    trees: &Trees,
    line: usize,
    number: u64,
    random: &mut SmallRng,
) -> wattle::Result<bool> {
    let key = key_of(line, number);
    if removes(number) {
        txn.remove(&trees.lines, &key)?;
    } else {
        txn.put(&trees.lines, &key, &value_of(line, number))?;
    }
    if random.random_range(0..3) == 0 {
        // A detour.
        let mark = txn.savepoint();
        move_some(txn, trees, random)?;
        let other = key_of(line, random.random_range(0..RECORDS));
        txn.put(&trees.lines, &other, &vec![7; random.random_range(0..3000)])?;
        txn.rollback_to(&mark)?;
    }
    for _ in 0..random.random_range(0..3) {
        move_some(txn, trees, random)?;
    }
    txn.put(&trees.lines, &counter(line), &number.to_le_bytes())?;
    Ok(random.random_range(0..6) != 0)
}

/// Moves an amount from one account to another.
fn move_some(
    txn: &mut Transaction<'_>,
    trees: &Trees,
    random: &mut SmallRng,
) -> wattle::Result<()> {
    let (from, to) = (random.random_range(0..ACCOUNTS), random.random_range(0..ACCOUNTS));
    let amount = random.random_range(1..100);
    for (number, amount) in [(from, -amount), (to, amount)] {
        let key = account(number);
        if random.random_range(0..2) == 0 {
            let change = |value: &mut [u8]| {
                let balance = i64::from_le_bytes(value[..8].try_into().expect("8 bytes")) + amount;
                value[..8].copy_from_slice(&balance.to_le_bytes());
            };
            assert!(txn.modify(&trees.accounts, &key, change)?, "every account exists");
            continue;
        }
        let balance = txn.get(&trees.accounts, &key)?.expect("every account exists");
        let balance = i64::from_le_bytes(balance[..8].try_into().expect("8 bytes")) + amount;
        // Longer and shorter, so that leaves split and merge.
        let mut value = balance.to_le_bytes().to_vec();
        value.resize(8 + random.random_range(0..600), 0);
        txn.put(&trees.accounts, &key, &value)?;
    }
    Ok(())
}

/// The tree of the last line after an event: its name and how many records it has.
fn tree_after(number: u64) -> Option<(&'static str, u32)> {
    let size = 20 + (number / 4 * 37 % 300) as u32;
    match number % 4 {
        1 => Some(("first name", 0)),
        2 => Some(("first name", size)),
        3 => Some(("second name", size)),
        _ => None,
    }
}

/// Does the work of the last line.
fn work_on_trees(engine: &Engine, device: &Capturing, last: u64, count: u64) -> u64 {
    for number in last + 1..=last + count {
        device.issue(WRITERS, number);
        let retry = |what: &dyn Fn(Tree) -> wattle::Result<()>, name: &str| {
            for _ in 0..1000 {
                let tree = engine.open_tree(name).expect("open a tree").expect("it exists");
                match what(tree) {
                    Err(Error::TreeInUse(_)) => std::thread::yield_now(),
                    done => return done.expect("a tree that is renamed or dropped"),
                }
            }
            panic!("the tree {name:?} stays in use");
        };
        match number % 4 {
            1 => drop(engine.create_tree("first name").expect("create a tree")),
            2 => {
                let tree = engine.tree("first name").expect("open a tree");
                let mut txn = engine.begin().expect("begin");
                let (_, size) = tree_after(number).expect("a tree");
                for record in 0..size {
                    let len = if record == 7 { 9000 } else { 40 };
                    txn.put(&tree, &record.to_be_bytes(), &vec![record as u8; len]).expect("put");
                }
                txn.commit().expect("commit");
            }
            3 => retry(&|tree| engine.rename_tree(tree, "second name").map(drop), "first name"),
            _ => retry(&|tree| engine.drop_tree(tree), "second name"),
        }
        device.ack(WRITERS, number);
    }
    last + count
}

/// The event after which the trees are as they are found.
fn compare_trees(engine: &Engine, bounds: Bounds, what: &str) -> u64 {
    let fail = |error: Error| -> ! { panic!("{what}: {error}") };
    let names = engine.trees().unwrap_or_else(|error| fail(error));
    let name = names.into_iter().find(|name| name.ends_with("name"));
    let found = name.as_ref().map(|name| {
        let session = engine.session().unwrap_or_else(|error| fail(error));
        let tree = engine.open_tree(name).unwrap_or_else(|error| fail(error)).expect("listed");
        let scan = session.scan(&tree).unwrap_or_else(|error| fail(error));
        let entries: Result<Vec<_>, Error> = scan.collect();
        (&name[..], entries.unwrap_or_else(|error| fail(error)).len() as u32)
    });
    let number = (bounds.acked..=bounds.issued).find(|number| tree_after(*number) == found);
    number.unwrap_or_else(|| panic!("{what}: the trees are {found:?} after events {bounds:?}"))
}

/// Compares a store with what must be there; gives the last transaction of each line.
fn compare(engine: &Engine, bounds: &[Bounds], what: &str) -> Vec<u64> {
    let fail = |error: Error| -> ! { panic!("{what}: {error}") };
    let trees = Trees::open(engine).unwrap_or_else(|error| fail(error));
    let session = engine.session().unwrap_or_else(|error| fail(error));
    let get = |tree: &Tree, key: &[u8]| session.get(tree, key).unwrap_or_else(|error| fail(error));
    let mut last = Vec::new();
    for (line, bounds) in bounds[..WRITERS].iter().enumerate() {
        let number = get(&trees.lines, &counter(line)).expect("a counter of each line");
        let number = u64::from_le_bytes(number[..8].try_into().expect("8 bytes"));
        assert!(
            (bounds.acked..=bounds.issued).contains(&number),
            "{what}: line {line} is at {number}, not between {} and {}",
            bounds.acked,
            bounds.issued
        );
        for age in 0..RECORDS.min(number) {
            let set = number - age;
            let expected = (!removes(set)).then(|| value_of(line, set));
            let found = get(&trees.lines, &key_of(line, set));
            assert!(
                found == expected,
                "{what}: line {line} at {number}: the record of {set} is {:?} bytes long, not {:?}",
                found.map(|value| value.len()),
                expected.map(|value| value.len()),
            );
        }
        last.push(number);
    }
    last.push(compare_trees(engine, bounds[WRITERS], what));
    let mut sum = 0;
    let mut accounts = 0;
    for entry in session.scan(&trees.accounts).unwrap_or_else(|error| fail(error)) {
        let (_, value) = entry.unwrap_or_else(|error| fail(error));
        sum += i64::from_le_bytes(value[..8].try_into().expect("8 bytes"));
        accounts += 1;
    }
    assert_eq!(accounts, ACCOUNTS, "{what}: accounts");
    assert_eq!(sum, BALANCE * i64::from(ACCOUNTS), "{what}: the sum of all accounts");
    last
}

fn check(image: Image, seed: u64, checked: &mut u64, again: bool) {
    *checked += 1;
    let what = format!("crowd, seed {seed}: {image:?}");
    let camera = Camera { one_in: if again { 6 } else { 0 }, most: 4, whole_pages: false };
    let device = Capturing::new(Arc::new(image.sim), LINES, image.seed, camera);
    device.set(&image.bounds);
    let options = options(seed, Setting::default());
    let engine = open(&device, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
    let last = compare(&engine, &image.bounds, &what);
    verify(&engine, &what);
    let exact: Vec<_> =
        last.iter().map(|number| Bounds { acked: *number, issued: *number }).collect();
    device.set(&exact);
    if again {
        crowd(&engine, &device, &last, 3, image.seed);
    }
    close(engine, &what);
    device.take().into_iter().for_each(|image| check(image, seed, checked, false));
}

/// Runs all lines concurrently, `count` more transactions for each.
fn crowd(
    engine: &Engine,
    device: &Arc<Capturing>,
    last: &[u64],
    count: u64,
    seed: u64,
) -> Vec<u64> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads: Vec<_> = (last[..WRITERS].iter().enumerate())
            .map(|(line, last)| {
                scope.spawn(move || work(engine, device, line, last + 1, count, seed) - 1)
            })
            .collect();
        let trees = last[WRITERS];
        threads.push(scope.spawn(move || work_on_trees(engine, device, trees, count / 3)));
        scope.spawn(|| {
            while seed.is_multiple_of(2) && !done.load(Relaxed) {
                engine.checkpoint().expect("checkpoint");
                std::thread::sleep(Duration::from_micros(200 + seed % 7 * 400));
            }
        });
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Relaxed);
        ended.into_iter().map(|last| last.expect("a line")).collect()
    })
}

/// One workload with all its images; gives how many were looked at.
///
/// # Panics
/// If anything is wrong.
pub fn run(seed: u64, rounds: u64, one_in: u64, setting: Setting) -> u64 {
    let sim = Arc::new(SimStorage::new(setting.plan(seed)));
    let camera = Camera { one_in: 0, most: 40, whole_pages: false };
    let device = Capturing::new(sim, LINES, seed, camera);
    let what = format!("crowd, seed {seed}");
    let engine = open(&device, &options(seed, setting)).expect("open");
    {
        let trees = Trees::open(&engine).expect("trees");
        let mut txn = engine.begin().expect("begin");
        for number in 0..ACCOUNTS {
            txn.put(&trees.accounts, &account(number), &BALANCE.to_le_bytes()).expect("put");
        }
        for line in 0..WRITERS {
            txn.put(&trees.lines, &counter(line), &0u64.to_le_bytes()).expect("put");
        }
        txn.commit().expect("commit");
    }
    device.aim(Camera { one_in, ..camera });
    let (mut checked, mut last) = (0, vec![0; LINES]);
    for round in 0..rounds {
        last = crowd(&engine, &device, &last, 12, seed);
        if round % 4 == 3 {
            engine.checkpoint().expect("checkpoint");
        }
        for (at, image) in device.take().into_iter().enumerate() {
            check(image, seed, &mut checked, at % 8 == 0);
        }
    }
    verify(&engine, &what);
    close(engine, &what);
    checked
}
