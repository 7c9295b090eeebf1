//! Tasks on a device that loses power: each has commits under way while it goes on, gives
//! operations, commits and roll-backs up half way, and goes on with the transaction or leaves it.
//! Whatever was acknowledged is there after a crash, and of each transaction all or nothing.
//!
//! `WATTLE_ROUNDS` multiplies the length, `WATTLE_CRASH_SEED` runs one seed alone.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::VecDeque,
    ops::{Bound, ControlFlow},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use wattle::{
    AsyncSession, AsyncTransaction, Direction, Durability, Engine, Error, MIN_POOL_BYTES, Options,
    Result, Ticket, Tree,
    io::{Cut, Fault, FaultPlan, Op, SimStorage},
};
use wattle_tests::{
    crash::{
        check::{Setting, close, open, options, verify},
        device::{Bounds, Camera, Capturing, Image},
    },
    harness::{Context, Device, Watchdog, give_up_after, one_seed, rounds},
};

const THREADS: usize = 2;
/// Tasks of each thread.
const TASKS: usize = 5;
const LINES: usize = THREADS * TASKS;
/// Records of a task, each set by its last transaction with that number modulo this.
const RECORDS: u64 = 60;
/// Every transaction with a multiple of this number removes all records of its task.
const CLEARS: u64 = 25;
/// Places in the record of a task that is changed in place.
const PLACES: u64 = 40;
const ACCOUNTS: u32 = 30;
const BALANCE: i64 = 1000;
/// Commits that are waited for later.
const MOST_TICKETS: usize = 6;

fn key_of(line: usize, number: u64) -> Vec<u8> {
    format!("{:03}/{line:02}", number % RECORDS).into_bytes()
}

fn value_of(line: usize, number: u64) -> Vec<u8> {
    let mix = (number * 2_654_435_761 + line as u64) >> 3;
    let len = match mix % 40 {
        0 => 2000 + mix % 9000,
        1..12 => mix % 900,
        _ => mix % 60,
    };
    let mut value = number.to_le_bytes().to_vec();
    value.extend((0..len).map(|at| (at + mix) as u8));
    value
}

/// The record that transaction `set` set, after transaction `number`.
fn expected(line: usize, set: u64, number: u64) -> Option<Vec<u8>> {
    let cleared = number / CLEARS * CLEARS >= set;
    (!cleared && !set.is_multiple_of(7)).then(|| value_of(line, set))
}

/// The value changed in place, after transaction `number`.
fn places(number: u64) -> Vec<u8> {
    let last = |place: u64| {
        (0..PLACES).map(|age| number.saturating_sub(age)).find(|n| n % PLACES == place)
    };
    (0..PLACES).flat_map(|place| last(place).unwrap_or(0).to_le_bytes()).collect()
}

fn account(number: u32) -> Vec<u8> {
    format!("account {number:04}").into_bytes()
}

fn counter(line: usize) -> Vec<u8> {
    format!("line {line:02}").into_bytes()
}

fn in_place(line: usize) -> Vec<u8> {
    format!("places {line:02}").into_bytes()
}

fn single(line: usize) -> Vec<u8> {
    format!("single {line:02}").into_bytes()
}

fn number_in(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().expect("8 bytes"))
}

#[derive(Clone)]
struct Trees {
    lines: Tree,
    accounts: Tree,
}

impl Trees {
    fn open(engine: &Engine) -> Result<Trees> {
        Ok(Trees { lines: engine.tree("lines")?, accounts: engine.tree("accounts")? })
    }
}

/// Why a transaction goes no further.
enum End {
    Error(Error),
    /// It is cancelled.
    Dropped,
}

impl From<Error> for End {
    fn from(error: Error) -> End {
        End::Error(error)
    }
}

struct Task {
    line: usize,
    session: AsyncSession,
    trees: Trees,
    device: Arc<Capturing>,
    random: SmallRng,
    /// One operation in this many is cancelled.
    cancel_every: u32,
    tickets: VecDeque<(u64, Ticket)>,
    singles: u64,
    watchdog: Arc<Watchdog>,
}

impl Task {
    fn below(&mut self, bound: u32) -> u32 {
        self.random.random_range(0..bound)
    }

    fn polls(&mut self) -> u32 {
        match self.below(self.cancel_every) {
            0 => self.below(5),
            _ => u32::MAX,
        }
    }

    /// An operation of a transaction. After a cancellation it may be repeated or not.
    async fn insist<T>(&mut self, mut operation: impl AsyncFnMut() -> Result<T>) -> Result<T, End> {
        loop {
            let polls = self.polls();
            match give_up_after(polls, operation()).await {
                Some(done) => return Ok(done?),
                None if self.below(4) == 0 => return Err(End::Dropped),
                None => {}
            }
        }
    }

    /// Whether the error is one that others, or the device, are the reason for.
    fn may_be(&self, error: &Error) -> bool {
        match error {
            Error::Conflict(_) | Error::SnapshotTooOld(_) | Error::MustAbort(_) => true,
            Error::DiskFull { .. } => {
                std::thread::sleep(Duration::from_micros(200));
                true
            }
            _ => false,
        }
    }

    async fn run(mut self, count: u64) -> (u64, u64) {
        let mut last = 0;
        let mut made = 0;
        while made < count {
            self.watchdog.step();
            if self.below(3) == 0 {
                self.single().await;
            }
            let Ok(mut txn) = self.session.begin() else { panic!("begin") };
            let found = txn.get(&self.trees.lines, &counter(self.line)).await.expect("get");
            let before = number_in(&found.expect("a counter"));
            assert!(before == last || last == 0 || before == last + 1, "{before} after {last}");
            last = before;
            let number = before + 1;
            let outcome = self.changes(&mut txn, number).await;
            match outcome {
                Ok(true) => {
                    if self.commit(txn, number).await {
                        (last, made) = (number, made + 1);
                    }
                }
                Ok(false) => self.leave(txn).await,
                Err(End::Dropped) => self.leave(txn).await,
                Err(End::Error(error)) => {
                    assert!(self.may_be(&error), "line {}: {error:?}", self.line);
                    self.leave(txn).await;
                }
            }
        }
        while let Some((number, ticket)) = self.tickets.pop_front() {
            self.session.wait(ticket).await.expect("durable");
            self.device.ack(self.line, number);
        }
        // A commit whose wait was cancelled.
        let found = self.session.get(&self.trees.lines, &counter(self.line)).await.expect("get");
        (number_in(&found.expect("a counter")), self.singles)
    }

    async fn leave(&mut self, txn: AsyncTransaction) {
        let polls = self.polls();
        match self.below(3) {
            0 => drop(txn),
            _ => {
                if let Some(ended) = give_up_after(polls, txn.abort()).await {
                    ended.expect("abort");
                }
            }
        }
        // The janitor needs a moment.
        std::thread::sleep(Duration::from_micros(50));
    }

    /// False: it may have happened or not.
    async fn commit(&mut self, txn: AsyncTransaction, number: u64) -> bool {
        self.device.issue(self.line, number);
        let polls = self.polls();
        match self.below(3) {
            0 => match give_up_after(polls, txn.commit()).await {
                Some(Ok(())) => {
                    self.tickets.clear();
                    self.device.ack(self.line, number);
                    true
                }
                Some(Err(error)) => {
                    assert!(self.may_be(&error), "{error:?}");
                    false
                }
                None => false,
            },
            _ => match give_up_after(polls, txn.commit_ticket()).await {
                Some(Ok(ticket)) => {
                    self.tickets.push_back((number, ticket));
                    while self.tickets.len() > MOST_TICKETS {
                        let (number, ticket) = self.tickets.pop_front().expect("not empty");
                        let polls = self.polls();
                        let ticket = match self.below(2) {
                            0 => give_up_after(polls, ticket).await,
                            _ => give_up_after(polls, self.session.wait(ticket)).await,
                        };
                        if let Some(done) = ticket {
                            done.expect("durable");
                            self.device.ack(self.line, number);
                        }
                    }
                    true
                }
                Some(Err(error)) => {
                    assert!(self.may_be(&error), "{error:?}");
                    false
                }
                None => false,
            },
        }
    }

    /// Operations that are transactions of their own.
    async fn single(&mut self) {
        let (session, tree, key) =
            (self.session.clone(), self.trees.lines.clone(), single(self.line));
        let mark = LINES + self.line;
        let number = self.singles + 1;
        let mut value = number.to_le_bytes().to_vec();
        let len = match self.below(30) {
            0 => 3000,
            _ => self.below(400) as usize,
        };
        value.resize(8 + len, number as u8);
        self.device.issue(mark, number);
        let polls = self.polls();
        let outcome = match self.below(3) {
            0 => {
                let change = |value: &mut [u8]| value[..8].copy_from_slice(&number.to_le_bytes());
                let done = give_up_after(polls, session.modify(&tree, &key, change)).await;
                done.map(|done| done.map(drop))
            }
            _ => give_up_after(polls, session.put(&tree, &key, &value)).await,
        };
        match outcome {
            Some(Ok(())) => {
                self.singles = number;
                self.device.ack(mark, number);
            }
            Some(Err(error)) => assert!(self.may_be(&error), "{error:?}"),
            None => {}
        }
        let found = session.get(&tree, &key).await.expect("get");
        let found = number_in(&found.expect("a record"));
        assert!(found == self.singles || found == number, "{found} is neither old nor new");
        self.singles = found;
    }

    /// One transaction; false: it is to be aborted.
    async fn changes(&mut self, txn: &mut AsyncTransaction, number: u64) -> Result<bool, End> {
        let (line, trees) = (self.line, self.trees.clone());
        let tree = &trees.lines;
        self.look(txn, number - 1).await?;
        if self.below(3) == 0 {
            let mark = txn.savepoint();
            self.detour(txn, number).await?;
            self.insist(async || txn.rollback_to(&mark).await).await?;
        }
        let key = key_of(line, number);
        if number.is_multiple_of(CLEARS) {
            for other in 0..RECORDS {
                let key = key_of(line, other);
                self.insist(async || txn.remove(tree, &key).await).await?;
            }
        } else if number.is_multiple_of(7) {
            self.insist(async || txn.remove(tree, &key).await).await?;
        } else {
            let value = value_of(line, number);
            self.insist(async || txn.put(tree, &key, &value).await).await?;
        }
        if self.below(3) == 0 {
            self.detour(txn, number).await?;
            // As it was, in another way.
            let (key, was) = (in_place(line), places(number - 1));
            let restore = |value: &mut [u8]| value.copy_from_slice(&was);
            self.insist(async || txn.modify(tree, &key, restore).await).await?;
        }
        let (place, mine) = ((number % PLACES) as usize * 8, in_place(line));
        let change =
            |value: &mut [u8]| value[place..place + 8].copy_from_slice(&number.to_le_bytes());
        self.insist(async || txn.modify(tree, &mine, change).await).await?;
        for _ in 0..self.below(3) {
            self.move_some(txn).await?;
        }
        let value = number.to_le_bytes();
        self.insist(async || txn.put(tree, &counter(line), &value).await).await?;
        if self.below(4) == 0 {
            self.look(txn, number).await?;
        }
        Ok(self.below(8) != 0)
    }

    /// Changes in place that are taken back.
    async fn detour(&mut self, txn: &mut AsyncTransaction, number: u64) -> Result<(), End> {
        let (key, tree) = (in_place(self.line), self.trees.lines.clone());
        for _ in 0..1 + self.below(3) {
            let from = self.below(PLACES as u32 * 8) as usize;
            let to = (from + self.below(60) as usize).min(PLACES as usize * 8);
            let change = |value: &mut [u8]| value[from..to].fill(number as u8 ^ 0x55);
            self.insist(async || txn.modify(&tree, &key, change).await).await?;
        }
        Ok(())
    }

    async fn move_some(&mut self, txn: &mut AsyncTransaction) -> Result<(), End> {
        let tree = self.trees.accounts.clone();
        let (from, to) = (self.below(ACCOUNTS), self.below(ACCOUNTS));
        let amount = 1 + i64::from(self.below(100));
        for (number, amount) in [(from, -amount), (to, amount)] {
            let key = account(number);
            let balance = txn.get(&tree, &key).await?.expect("every account exists");
            let balance = i64::from_le_bytes(balance[..8].try_into().expect("8 bytes")) + amount;
            let balance = balance.to_le_bytes();
            if self.below(2) == 0 {
                let change = |value: &mut [u8]| value[..8].copy_from_slice(&balance);
                self.insist(async || txn.modify(&tree, &key, change).await).await?;
            } else {
                let mut value = balance.to_vec();
                value.resize(8 + self.below(600) as usize, 0);
                self.insist(async || txn.put(&tree, &key, &value).await).await?;
            }
        }
        Ok(())
    }

    /// Checks that the transaction sees the right state.
    async fn look(&mut self, txn: &AsyncTransaction, number: u64) -> Result<(), End> {
        let (line, tree) = (self.line, self.trees.lines.clone());
        let found = self.insist(async || txn.get(&tree, &in_place(line)).await).await?;
        assert_eq!(
            found,
            Some(places(number)),
            "line {line} at {number}: what is changed in place"
        );
        for _ in 0..2 {
            let set = number.saturating_sub(u64::from(self.below(RECORDS as u32)));
            if set > 0 {
                let key = key_of(line, set);
                let found = self.insist(async || txn.get(&tree, &key).await).await?;
                assert!(found == expected(line, set, number), "line {line} at {number}: {set}");
            }
        }
        if self.below(6) == 0 {
            let mut sum = 0;
            let accounts = self.trees.accounts.clone();
            let visit = |_: &[u8], value: &[u8]| {
                sum += number_in(value) as i64;
                ControlFlow::Continue(())
            };
            let all = (Bound::Unbounded, Bound::Unbounded);
            // Its own moves come in pairs.
            txn.visit(&accounts, all, Direction::Forward, visit).await?;
            assert_eq!(sum, BALANCE * i64::from(ACCOUNTS), "line {line}: the sum");
        }
        Ok(())
    }
}

/// Compares a store with what must be there; gives the last event of each line.
fn compare(engine: &Engine, bounds: &[Bounds], what: &str) -> Vec<u64> {
    let fail = |error: Error| -> ! { panic!("{what}: {error}") };
    let trees = Trees::open(engine).unwrap_or_else(|error| fail(error));
    let session = engine.session().unwrap_or_else(|error| fail(error));
    let get = |key: &[u8]| session.get(&trees.lines, key).unwrap_or_else(|error| fail(error));
    let mut last = vec![0; 2 * LINES];
    for line in 0..LINES {
        for (mark, key) in [(line, counter(line)), (LINES + line, single(line))] {
            let number = number_in(&get(&key).expect("a counter of each line"));
            let Bounds { acked, issued } = bounds[mark];
            assert!(
                (acked..=issued).contains(&number),
                "{what}: mark {mark} is at {number}, not between {acked} and {issued}"
            );
            last[mark] = number;
        }
        let number = last[line];
        assert_eq!(get(&in_place(line)), Some(places(number)), "{what}: line {line} at {number}");
        for age in 0..RECORDS.min(number) {
            let set = number - age;
            let (found, right) = (get(&key_of(line, set)), expected(line, set, number));
            assert!(
                found == right,
                "{what}: line {line} at {number}: the record of {set} is {:?} bytes long, not {:?}",
                found.map(|value| value.len()),
                right.map(|value| value.len()),
            );
        }
    }
    let (mut sum, mut accounts) = (0, 0);
    for entry in session.scan(&trees.accounts).unwrap_or_else(|error| fail(error)) {
        let (_, value) = entry.unwrap_or_else(|error| fail(error));
        (sum, accounts) = (sum + number_in(&value) as i64, accounts + 1);
    }
    assert_eq!((accounts, sum), (ACCOUNTS, BALANCE * i64::from(ACCOUNTS)), "{what}: accounts");
    last
}

fn check(image: Image, options: &Options, seed: u64, checked: &mut u64, again: bool) {
    *checked += 1;
    let what = format!("tasks, seed {seed}: {image:?}");
    let camera = Camera { one_in: if again { 5 } else { 0 }, most: 4, whole_pages: false };
    let device = Capturing::new(Arc::new(image.sim), 2 * LINES, image.seed, camera);
    device.set(&image.bounds);
    // The smallest pool that there is.
    let small = options.clone().pool_bytes(MIN_POOL_BYTES);
    let engine = open(&device, &small).unwrap_or_else(|error| panic!("{what}: {error}"));
    let last = compare(&engine, &image.bounds, &what);
    verify(&engine, &what);
    let exact: Vec<_> =
        last.iter().map(|number| Bounds { acked: *number, issued: *number }).collect();
    device.set(&exact);
    close(engine, &what);
    device.take().into_iter().for_each(|image| check(image, options, seed, checked, false));
}

/// All tasks concurrently, so many more transactions for each.
fn crowd(
    engine: &Engine,
    device: &Arc<Capturing>,
    last: &[u64],
    count: u64,
    seed: u64,
) -> Vec<u64> {
    let done = AtomicBool::new(false);
    let watchdog = Arc::new(Watchdog::start("tasks", Duration::from_secs(30)));
    let cancel_every = [4, 20, 100][seed as usize % 3];
    let mut ended = vec![0; 2 * LINES];
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (watchdog, engine, device) = (watchdog.clone(), engine.clone(), device.clone());
                let singles = last[LINES..].to_vec();
                scope.spawn(move || {
                    let work = async move {
                        let session = engine.async_session().expect("session");
                        let trees = Trees::open(&engine).expect("trees");
                        let tasks: Vec<_> = (0..TASKS)
                            .map(|task| {
                                let line = thread * TASKS + task;
                                let mix = seed ^ ((line as u64) << 40) ^ singles[line] << 20;
                                let task = Task {
                                    line,
                                    session: session.clone(),
                                    trees: trees.clone(),
                                    device: device.clone(),
                                    random: SmallRng::seed_from_u64(mix),
                                    cancel_every,
                                    tickets: VecDeque::new(),
                                    singles: singles[line],
                                    watchdog: watchdog.clone(),
                                };
                                (line, tokio::task::spawn_local(task.run(count)))
                            })
                            .collect();
                        drop(session);
                        let mut ended = Vec::new();
                        for (line, task) in tasks {
                            ended.push((line, task.await.expect("a task panicked")));
                        }
                        ended
                    };
                    wattle::run(64, work).expect("runtime")
                })
            })
            .collect();
        let done = &done;
        scope.spawn(move || {
            while seed % 4 != 3 && !done.load(SeqCst) {
                match engine.checkpoint() {
                    Ok(()) | Err(Error::DiskFull { .. }) => {}
                    Err(error) => panic!("checkpoint: {error:?}"),
                }
                std::thread::sleep(Duration::from_micros(200 + seed % 7 * 900));
            }
        });
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        done.store(true, SeqCst);
        for (line, (number, singles)) in results.into_iter().flat_map(|done| done.expect("thread"))
        {
            (ended[line], ended[LINES + line]) = (number, singles);
        }
    });
    ended
}

fn run(seed: u64, rounds: u64, one_in: u64, count: u64) -> u64 {
    let sim = Arc::new(SimStorage::new(FaultPlan::new(seed)));
    let camera = Camera { one_in: 0, most: 25, whole_pages: false };
    let device = Capturing::new(sim.clone(), 2 * LINES, seed, camera);
    let what = format!("tasks, seed {seed}");
    let options = options(seed, Setting::default()).stall_timeout(Duration::from_secs(20));
    let engine = open(&device, &options).expect("open");
    {
        let trees = Trees::open(&engine).expect("trees");
        let mut txn = engine.begin().expect("begin");
        for number in 0..ACCOUNTS {
            txn.put(&trees.accounts, &account(number), &BALANCE.to_le_bytes()).expect("put");
        }
        for line in 0..LINES {
            for key in [counter(line), single(line)] {
                txn.put(&trees.lines, &key, &0u64.to_le_bytes()).expect("put");
            }
            txn.put(&trees.lines, &in_place(line), &places(0)).expect("put");
        }
        txn.commit().expect("commit");
    }
    // Reads take a while, so that tasks really wait, and the log now and then has no room.
    let mut plan = FaultPlan::new(seed)
        .sometimes(Op::Read, 0.3, Fault::Latency(Duration::from_micros(150)))
        .sometimes(Op::LogSync, 0.5, Fault::Latency(Duration::from_micros(300)));
    if seed % 3 == 1 {
        let full = std::io::ErrorKind::StorageFull;
        plan = plan.sometimes(Op::LogCreate, 0.3, Fault::Error(full));
    }
    sim.set_plan(plan);
    device.aim(Camera { one_in, ..camera });
    let (mut checked, mut last) = (0, vec![0; 2 * LINES]);
    for round in 0..rounds {
        last = crowd(&engine, &device, &last, count, seed.wrapping_add(round << 50));
        for (at, image) in device.take().into_iter().enumerate() {
            check(image, &options, seed, &mut checked, at % 6 == 0);
        }
    }
    sim.heal();
    engine.sync().expect("sync");
    let exact: Vec<_> =
        last.iter().map(|number| Bounds { acked: *number, issued: *number }).collect();
    compare(&engine, &exact, &what);
    verify(&engine, &what);
    close(engine, &what);
    let engine = open(&device, &options).expect("open");
    compare(&engine, &exact, &what);
    verify(&engine, &what);
    close(engine, &what);
    checked
}

#[test]
fn tasks_that_give_up_half_way_lose_nothing_when_the_power_is_cut() {
    let watchdog = Watchdog::start("images of tasks", Duration::from_secs(120));
    let seeds = one_seed().map_or(0..6 * rounds(), |seed| seed..seed + 1);
    let mut images = 0;
    for seed in seeds {
        let _context = Context(("seed", seed));
        images += run(seed, 4, 30, 20);
        watchdog.step();
    }
    println!("{images} images");
}

/// Tickets outlive the session, the engine, and the threads of the log: what they say holds after a
/// crash.
#[test]
fn tickets_that_outlive_their_engine_say_that_their_commits_are_durable() {
    let _watchdog = Watchdog::start("tickets without an engine", Duration::from_secs(60));
    for durability in [Durability::Sync, Durability::Group] {
        let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
        let slow = Fault::Latency(Duration::from_millis(5));
        sim.set_plan(FaultPlan::new(1).always(Op::LogSync, slow));
        let device = Device::sim(&sim);
        let options = options(1, Setting::default()).durability(durability);
        let engine = device.open(options.clone()).expect("open");
        let tree = engine.tree("t").expect("tree");
        let session = engine.async_session().expect("session");
        let mut tickets = wattle::run(8, async {
            let mut tickets = Vec::new();
            for key in 0..50u32 {
                let mut txn = session.begin().expect("begin");
                txn.put(&tree, &key.to_be_bytes(), b"value").await.expect("put");
                tickets.push(txn.commit_ticket().await.expect("commit"));
            }
            // Left without a commit, it must not be there.
            let mut txn = session.begin().expect("begin");
            txn.put(&tree, &7u32.to_be_bytes(), b"never").await.expect("put");
            tickets
        })
        .expect("run");
        // A future that was polled, and is no longer polled.
        let polled = tickets.pop().expect("there are some");
        assert!(wattle::run(8, give_up_after(0, polled.clone())).expect("run").is_none());
        drop((session, tree, engine));
        tickets.into_iter().for_each(|ticket| ticket.wait().expect("durable"));
        assert!(polled.is_durable());
        wattle::run(8, polled).expect("run").expect("durable");
        for device in [Device::sim(&Arc::new(sim.crash_as(1, Cut::Nothing))), device] {
            let engine = device.open(options.clone()).expect("open");
            let (session, tree) =
                (engine.session().expect("session"), engine.tree("t").expect("tree"));
            for key in 0..50u32 {
                let found = session.get(&tree, &key.to_be_bytes()).expect("get");
                assert_eq!(found.as_deref(), Some(&b"value"[..]), "{durability:?}, {key}");
            }
        }
    }
}

/// A task whose function panics in the middle of a change affects no other task.
#[test]
fn a_panic_in_a_change_of_a_task_leaves_the_record_and_the_log_as_they_were() {
    let _watchdog = Watchdog::start("a panic in a task", Duration::from_secs(60));
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let options = options(1, Setting::default());
    let engine = Device::sim(&sim).open(options.clone()).expect("open");
    let tree = engine.tree("t").expect("tree");
    let session = engine.async_session().expect("session");
    let panics = |value: &mut [u8]| {
        value[0] = 9;
        if value.len() > 1 {
            std::panic::panic_any("meant to be");
        }
    };
    let outcomes = wattle::run(8, async {
        session.put(&tree, b"key", b"12").await.expect("put");
        let (ours, same) = (session.clone(), tree.clone());
        let alone = tokio::task::spawn_local(async move {
            drop(ours.modify(&same, b"key", panics).await);
        });
        let (ours, same) = (session.clone(), tree.clone());
        let within = tokio::task::spawn_local(async move {
            let mut txn = ours.begin().expect("begin");
            txn.put(&same, b"other", b"3").await.expect("put");
            txn.modify(&same, b"key", |value| value[1] = b'4').await.expect("modify");
            drop(txn.modify(&same, b"key", panics).await);
        });
        (alone.await.is_err(), within.await.is_err())
    });
    assert_eq!(outcomes.expect("run"), (true, true));
    let check = |engine: &Engine| {
        let (session, tree) = (engine.session().expect("session"), engine.tree("t").expect("tree"));
        assert_eq!(session.get(&tree, b"key").expect("get").as_deref(), Some(&b"12"[..]));
        assert_eq!(session.get(&tree, b"other").expect("get"), None);
        // There is no conflict.
        session.put(&tree, b"other", b"5").expect("put");
        session.put(&tree, b"key", b"56").expect("put");
        session.put(&tree, b"key", b"12").expect("put");
        assert!(session.remove(&tree, b"other").expect("remove"));
        drop((session, tree));
        verify(engine, "after a panic");
    };
    drop((session, tree));
    check(&engine);
    let left = Arc::new(sim.crash_as(1, Cut::Nothing));
    check(&Device::sim(&left).open(options.clone()).expect("open"));
    close(engine, "after a panic");
    check(&Device::sim(&sim).open(options).expect("open"));
}
