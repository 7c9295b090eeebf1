//! Processes killed in the middle of writing. A child process runs transfers between accounts from
//! several threads and tells its parent, over a pipe, each commit that was acknowledged; the parent
//! kills it at a random moment, opens the store, and compares. The child is this test program.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};
use wattle::{Durability, Engine, Error, IoKind, Options, Session, Tree};
use wattle_tests::harness::{Random, rounds, seed};

const CHILD: &str = "WATTLE_KILL_CHILD";
const ACCOUNTS: u64 = 300;
const BALANCE: u64 = 1000;
const THREADS: u64 = 4;

fn options() -> Options {
    Options::default().pool_bytes(1 << 20).log_bytes(4 << 20)
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().expect("8 bytes"))
}

/// A value with a number in front and bytes that make pages split and merge.
fn padded(number: u64, len: usize) -> Vec<u8> {
    let mut value = vec![number as u8; 8 + len];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

fn prepare(engine: &Engine) -> (Tree, Tree, Tree) {
    let [accounts, marks, notes] =
        ["accounts", "marks", "notes"].map(|name| engine.tree(name).expect("tree"));
    let mut txn = engine.begin().expect("begin");
    for account in 0..ACCOUNTS {
        let key = account.to_be_bytes();
        if txn.get(&accounts, &key).expect("get").is_none() {
            txn.put(&accounts, &key, &padded(BALANCE, 0)).expect("put");
        }
    }
    txn.commit().expect("commit");
    (accounts, marks, notes)
}

/// One transfer with everything that goes with it.
fn transfer(
    session: &Session,
    (accounts, marks, notes): &(Tree, Tree, Tree),
    thread: u64,
    count: u64,
    random: &mut Random,
) -> Result<(), Error> {
    let mut txn = session.begin()?;
    let from = random.below(ACCOUNTS).to_be_bytes();
    let to = random.below(ACCOUNTS).to_be_bytes();
    let amount = random.below(10);
    if from != to {
        let balance = |value: Option<Vec<u8>>| number(&value.expect("an account"));
        let (a, b) = (balance(txn.get(accounts, &from)?), balance(txn.get(accounts, &to)?));
        let amount = amount.min(a);
        let len = random.below(300) as usize;
        txn.put(accounts, &from, &padded(a - amount, len))?;
        txn.put(accounts, &to, &padded(b + amount, len))?;
    }
    // Notes come and go, some of them large.
    let key = (thread << 32 | random.below(200)).to_be_bytes();
    match random.below(4) {
        0 => drop(txn.remove(notes, &key)?),
        1 if random.below(8) == 0 => txn.put(notes, &key, &padded(count, 9000))?,
        _ => txn.put(notes, &key, &padded(count, random.below(400) as usize))?,
    }
    txn.put(marks, &thread.to_be_bytes(), &padded(count, 0))?;
    if random.below(20) == 0 {
        return txn.abort();
    }
    txn.commit()?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "ack {thread} {count}").and_then(|()| out.flush()).expect("the parent listens");
    Ok(())
}

#[test]
#[ignore = "the child process of the other tests"]
fn child_that_is_killed() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let seed: u64 = std::env::var("WATTLE_KILL_SEED").expect("seed").parse().expect("number");
    let durability = if seed.is_multiple_of(2) { Durability::Sync } else { Durability::Group };
    // The next open may be past the page cache, which the kernel keeps the same as the file.
    let io = if seed.is_multiple_of(3) { IoKind::Buffered } else { IoKind::default() };
    let engine = Engine::open(path, options().durability(durability).io(io)).expect("open");
    let trees = prepare(&engine);
    writeln!(std::io::stdout(), "ready").expect("the parent listens");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, trees) = (&engine, &trees);
            scope.spawn(move || {
                let session = engine.session().expect("session");
                let mut random = Random::new(seed * 31 + thread);
                let mark = session.get(&trees.1, &thread.to_be_bytes()).expect("get");
                let first = mark.map_or(1, |mark| number(&mark) + 1);
                let mut count = first;
                loop {
                    match transfer(&session, trees, thread, count, &mut random) {
                        Ok(()) => count += 1,
                        Err(Error::Conflict(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                    if thread == 0 && count.is_multiple_of(64) {
                        engine.checkpoint().expect("checkpoint");
                    }
                }
            });
        }
    });
}

/// Runs the child until it is killed; gives the last commit that each thread acknowledged.
fn run_and_kill(path: &Path, seed: u64, after: Duration) -> HashMap<u64, u64> {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["child_that_is_killed", "--exact", "--ignored", "--nocapture"])
        .env(CHILD, path)
        .env("WATTLE_KILL_SEED", seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start the child");
    let out = BufReader::new(child.stdout.take().expect("piped"));
    let acked = Arc::new(Mutex::new(HashMap::new()));
    let journal = acked.clone();
    let listener = std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            let mut words = line.split_whitespace();
            if words.next() == Some("ack") {
                let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
                if let [thread, count] = numbers[..] {
                    journal.lock().expect("journal").insert(thread, count);
                }
            }
        }
    });
    std::thread::sleep(after);
    child.kill().expect("kill");
    let status = child.wait().expect("wait");
    assert!(!status.success(), "seed {seed}: the child was not killed");
    listener.join().expect("listener");
    let acked = acked.lock().expect("journal");
    acked.clone()
}

fn check(engine: &Engine, acked: &HashMap<u64, u64>, seed: u64) {
    let session = engine.session().expect("session");
    let (Some(accounts), Some(marks)) = (
        engine.open_tree("accounts").expect("accounts"),
        engine.open_tree("marks").expect("marks"),
    ) else {
        assert!(acked.is_empty(), "seed {seed}: the trees are gone");
        return;
    };
    let (mut sum, mut count) = (0, 0);
    let mut range = session.scan(&accounts).expect("scan");
    while let Some((_, value)) = range.next_entry().expect("entry") {
        sum += number(value);
        count += 1;
    }
    drop(range);
    if count > 0 || !acked.is_empty() {
        assert_eq!((count, sum), (ACCOUNTS, ACCOUNTS * BALANCE), "seed {seed}: money");
    }
    for (thread, last) in acked {
        let mark = session.get(&marks, &thread.to_be_bytes()).expect("get").map(|v| number(&v));
        assert!(
            mark.is_some_and(|mark| mark >= *last),
            "seed {seed}: commit {last} of thread {thread} was acknowledged, the store has {mark:?}"
        );
    }
    drop(session);
    let report = engine.verify(&mut |_| {}).expect("verify");
    assert!(report.problems.is_empty(), "seed {seed}: {:?}", report.problems);
}

#[test]
fn acknowledged_transfers_survive_a_killed_process_and_no_money_is_lost() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    let first = seed();
    let mut random = Random::new(first);
    let mut acked = HashMap::new();
    for round in 0..10 * rounds() {
        let seed = first.wrapping_add(round) % (1 << 32);
        let after = Duration::from_millis(20 + random.below(500));
        acked.extend(run_and_kill(&path, seed, after));
        if random.below(3) == 0 {
            // Killed while it recovers, or just after.
            let again = Duration::from_millis(random.below(30));
            acked.extend(run_and_kill(&path, seed + 1, again));
        }
        let engine = match Engine::open(&path, options()) {
            Ok(engine) => engine,
            Err(error) => panic!("seed {seed}: the store cannot be opened: {error}"),
        };
        check(&engine, &acked, seed);
        engine.close().expect("close");
    }
    assert!(!acked.is_empty(), "no child lived long enough to commit anything");
}
