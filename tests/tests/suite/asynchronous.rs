//! Asynchronous sessions against a `BTreeMap`: many tasks on one and two threads in a tiny pool,
//! with and without futures that are dropped half way. `WATTLE_ROUNDS` multiplies the length.
//!
//! A cancelled operation has happened or has not: the task finds out with its next look-up.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    cell::Cell,
    collections::BTreeMap,
    future::Future,
    ops::{Bound, ControlFlow},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use wattle::{
    AsyncSession, Direction, Durability, Engine, Error, IoKind, MIN_LOG_BYTES, Options, Result,
    Tree,
    io::{Fault, FaultPlan, Op, SimStorage},
};
use wattle_tests::harness::{
    Device, Watchdog, assert_verified, give_up_after, rounds, small_pool, unlogged_pool,
};

/// One task: its keys end in its number.
struct Task {
    number: u8,
    random: SmallRng,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    /// One operation in this many is dropped after a few polls; 0 for none.
    cancel_every: u32,
    cancelled: u64,
    seed: u64,
}

impl Task {
    fn new(number: u8, seed: u64, cancel_every: u32) -> Task {
        let random = SmallRng::seed_from_u64(seed ^ (u64::from(number) << 32));
        Task { number, random, model: BTreeMap::new(), cancel_every, cancelled: 0, seed }
    }

    fn key(&mut self) -> Vec<u8> {
        let number: u32 = self.random.random_range(0..250);
        let mut key = number.wrapping_mul(0x9e37_79b1).to_be_bytes().to_vec();
        key.resize(4 + number as usize % 60, 7);
        key.push(self.number);
        key
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.random.random_range(0..60) {
            0 => self.random.random_range(2000..40_000),
            1..10 => 0,
            _ => self.random.random_range(0..400),
        };
        let start: u8 = self.random.random();
        (0..len).map(|i| start.wrapping_add((i * 11) as u8)).collect()
    }

    /// The future's result, or `None` when it was cancelled.
    async fn maybe<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        if self.cancel_every == 0 || self.random.random_range(0..self.cancel_every) != 0 {
            return Some(future.await);
        }
        let done = give_up_after(self.random.random_range(0..4), future).await;
        self.cancelled += u64::from(done.is_none());
        done
    }

    /// After a change that may have happened: whatever is there must be the value before or after.
    async fn settle(
        &mut self,
        session: &AsyncSession,
        tree: &Tree,
        key: Vec<u8>,
        after: Option<Vec<u8>>,
    ) {
        let found = session.get(tree, &key).await.expect("get");
        let before = self.model.get(&key);
        assert!(
            found.as_ref() == before || found == after,
            "seed {}: {key:02x?} is neither before nor after a cancelled change",
            self.seed
        );
        match found {
            Some(value) => self.model.insert(key, value),
            None => self.model.remove(&key),
        };
    }

    async fn step(&mut self, session: &AsyncSession, tree: &Tree) {
        let key = self.key();
        let known = self.model.get(&key).cloned();
        match self.random.random_range(0..20) {
            0..6 => {
                let value = self.value();
                match self.maybe(session.put(tree, &key, &value)).await {
                    Some(done) => {
                        done.expect("put");
                        self.model.insert(key, value);
                    }
                    None => self.settle(session, tree, key, Some(value)).await,
                }
            }
            6..8 => {
                let value = self.value();
                match self.maybe(session.insert(tree, &key, &value)).await {
                    Some(Ok(())) => {
                        assert!(self.model.insert(key, value).is_none(), "inserted twice");
                    }
                    Some(Err(Error::KeyExists)) => assert!(known.is_some(), "it did not exist"),
                    Some(Err(error)) => panic!("seed {}: insert: {error}", self.seed),
                    None => {
                        let after = known.is_none().then_some(value).or(known);
                        self.settle(session, tree, key, after).await;
                    }
                }
            }
            8..10 => {
                let value = self.value();
                match self.maybe(session.update(tree, &key, &value)).await {
                    Some(updated) => {
                        assert_eq!(updated.expect("update"), known.is_some());
                        if known.is_some() {
                            self.model.insert(key, value);
                        }
                    }
                    None => {
                        self.settle(session, tree, key, known.map(|_| value)).await;
                    }
                }
            }
            10 => {
                let mut after = known.clone();
                let change = |value: &mut [u8]| value.iter_mut().for_each(|byte| *byte ^= 3);
                after.iter_mut().for_each(|value| change(value));
                match self.maybe(session.modify(tree, &key, change)).await {
                    Some(modified) => {
                        assert_eq!(modified.expect("modify"), known.is_some());
                        after.map(|value| self.model.insert(key, value));
                    }
                    None => self.settle(session, tree, key, after).await,
                }
            }
            11..14 => match self.maybe(session.remove(tree, &key)).await {
                Some(removed) => {
                    assert_eq!(removed.expect("remove"), known.is_some());
                    self.model.remove(&key);
                }
                None => self.settle(session, tree, key, None).await,
            },
            14..18 => {
                if let Some(value) = self.maybe(session.get(tree, &key)).await {
                    let right = value.expect("get") == known;
                    assert!(right, "seed {}: get of {key:02x?}", self.seed);
                }
            }
            18 => {
                let keys: Vec<_> = (0..40).map(|_| self.key()).collect();
                let mut seen = vec![None; keys.len()];
                let report = |i: usize, value: Option<&[u8]>| {
                    seen[i] = Some(value.map(<[u8]>::to_vec));
                };
                if let Some(done) = self.maybe(session.multi_get(tree, &keys, report)).await {
                    done.expect("multi_get");
                    for (key, value) in keys.iter().zip(seen) {
                        let right = value.expect("reported").as_ref() == self.model.get(key);
                        assert!(right, "seed {}: multi_get of {key:02x?}", self.seed);
                    }
                }
            }
            _ => {
                let backward = self.random.random();
                let (mut found, number) = (Vec::new(), self.number);
                let visit = |key: &[u8], value: &[u8]| {
                    if key.last() == Some(&number) {
                        found.push((key.to_vec(), value.to_vec()));
                    }
                    if found.len() < 20 {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    }
                };
                let (direction, bounds) = if backward {
                    (Direction::Backward, (Bound::Unbounded, Bound::Excluded(&key[..])))
                } else {
                    (Direction::Forward, (Bound::Included(&key[..]), Bound::Unbounded))
                };
                if let Some(done) = self.maybe(session.visit(tree, bounds, direction, visit)).await
                {
                    done.expect("scan");
                    let owned = |(k, v): (&Vec<u8>, &Vec<u8>)| (k.clone(), v.clone());
                    let range = self.model.range::<[u8], _>(bounds).map(owned);
                    let expected: Vec<_> = if backward {
                        range.rev().take(20).collect()
                    } else {
                        range.take(20).collect()
                    };
                    assert!(found == expected, "seed {}: scan from {key:02x?}", self.seed);
                }
            }
        }
    }
}

/// The load: threads, tasks on each of them, steps of each task. One operation in `cancel_every` is
/// cancelled.
#[derive(Clone, Copy, Debug)]
struct Plan {
    threads: u8,
    tasks: u8,
    steps: u64,
    cancel_every: u32,
    seed: u64,
}

/// Runs all tasks to their end; gives what the tree must hold.
fn work(engine: &Engine, tree: &Tree, plan: Plan) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let watchdog = Arc::new(Watchdog::start("asynchronous tasks", Duration::from_secs(20)));
    let handles: Vec<_> = (0..plan.threads)
        .map(|thread| {
            let (engine, tree, watchdog) = (engine.clone(), tree.clone(), watchdog.clone());
            std::thread::spawn(move || {
                let work = async move {
                    let session = engine.async_session().expect("session");
                    let spawn = |number| {
                        let (session, tree) = (session.clone(), tree.clone());
                        let watchdog = watchdog.clone();
                        tokio::task::spawn_local(async move {
                            let number = thread * plan.tasks + number;
                            let mut task = Task::new(number, plan.seed, plan.cancel_every);
                            for _ in 0..plan.steps {
                                task.step(&session, &tree).await;
                                watchdog.step();
                            }
                            task
                        })
                    };
                    let spawned: Vec<_> = (0..plan.tasks).map(spawn).collect();
                    let mut done = Vec::new();
                    for task in spawned {
                        done.push(task.await.expect("a task panicked"));
                    }
                    done
                };
                wattle::run(64, work).expect("runtime")
            })
        })
        .collect();
    let done: Vec<_> =
        handles.into_iter().flat_map(|thread| thread.join().expect("a thread panicked")).collect();
    let cancelled: u64 = done.iter().map(|task| task.cancelled).sum();
    println!("{cancelled} operations were cancelled; {:?}", engine.stats());
    assert!((cancelled > 0) == (plan.cancel_every > 0), "{cancelled} cancelled");
    done.into_iter().flat_map(|task| task.model).collect()
}

/// Runs the tasks and compares everything at the end, in two lives of the store, with and without
/// a log.
fn run(device: &mut dyn FnMut() -> Device, plan: Plan) {
    let options = small_pool(if plan.threads == 1 { 64 } else { 128 });
    // A loaded machine may take longer than a second to complete anything.
    let options = options.stall_timeout(Duration::from_secs(10));
    let logged = options.clone().log_bytes(MIN_LOG_BYTES);
    let soon = logged.clone().durability(Durability::None);
    let plan = Plan { steps: plan.steps / 2, ..plan };
    for (mode, options) in [options.log(false), logged, soon].into_iter().enumerate() {
        run_in(&device(), options, Plan { seed: plan.seed + 1000 * mode as u64, ..plan });
    }
}

fn run_in(device: &Device, options: Options, plan: Plan) {
    println!("{plan:?} on {}, {options:?}", device.pages.name());
    let check = |engine: &Engine, tree: &Tree, model: &BTreeMap<Vec<u8>, Vec<u8>>| {
        // A commit that was cancelled while it waited may not be durable yet.
        engine.sync().expect("sync");
        let session = engine.session().expect("session");
        let found = session.scan(tree).expect("scan").map(|entry| entry.expect("entry"));
        let same = found.eq(model.iter().map(|(key, value)| (key.clone(), value.clone())));
        assert!(same, "{plan:?}: the tree differs from the models");
        drop(session);
        assert_verified(engine);
    };
    let engine = device.open(options.clone()).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let model = work(&engine, &tree, plan);
    check(&engine, &tree, &model);
    drop(tree);
    engine.close().expect("close");
    let engine = device.open(options).expect("reopen");
    let tree = engine.tree("tree").expect("tree");
    check(&engine, &tree, &model);
    let second = engine.tree("second").expect("tree");
    let model = work(&engine, &second, Plan { steps: plan.steps / 2 + 1, ..plan });
    check(&engine, &second, &model);
    engine.drop_tree(tree).expect("drop");
    engine.drop_tree(second).expect("drop");
    assert_all_frames_free(&engine);
    engine.close().expect("close");
}

/// Without trees only the root of the catalog is in the pool: no cancelled operation has lost a
/// frame or a page.
fn assert_all_frames_free(engine: &Engine) {
    assert_verified(engine);
    let stats = engine.stats();
    assert!(stats.free_frames + 1 >= stats.frames, "frames are lost: {stats:?}");
}

/// New files in a directory, each time.
fn uring(directory: &tempfile::TempDir) -> impl FnMut() -> Device {
    let mut turn = 0;
    move || {
        turn += 1;
        let path = directory.path().join(turn.to_string());
        std::fs::create_dir_all(&path).expect("directory");
        Device::files(IoKind::Uring, &path)
    }
}

/// A device whose reads take a while, so that tasks really wait.
fn slow(seed: u64) -> Device {
    let latency = Fault::Latency(Duration::from_micros(200));
    let plan = FaultPlan::new(seed).sometimes(Op::Read, 0.3, latency);
    Device::sim(&Arc::new(SimStorage::new(plan)))
}

fn plan(threads: u8, tasks: u8, steps: u64, cancel_every: u32, seed: u64) -> Plan {
    Plan { threads, tasks, steps: steps * rounds(), cancel_every, seed }
}

#[test]
fn tasks_of_one_thread_agree_with_their_models() {
    let directory = tempfile::tempdir().expect("temporary directory");
    run(&mut Device::memory, plan(1, 8, 4000, 0, 1));
    run(&mut uring(&directory), plan(1, 16, 1400, 0, 2));
    run(&mut || slow(3), plan(1, 16, 600, 0, 3));
}

#[test]
fn tasks_of_two_threads_agree_with_their_models() {
    let directory = tempfile::tempdir().expect("temporary directory");
    run(&mut Device::memory, plan(2, 16, 1400, 0, 4));
    run(&mut uring(&directory), plan(2, 16, 800, 0, 5));
    run(&mut || slow(6), plan(2, 16, 400, 0, 6));
}

#[test]
fn operations_dropped_half_way_happen_as_a_whole_or_not_at_all() {
    let directory = tempfile::tempdir().expect("temporary directory");
    run(&mut uring(&directory), plan(1, 16, 1400, 3, 7));
    run(&mut || slow(8), plan(1, 16, 600, 3, 8));
    let directory = tempfile::tempdir().expect("temporary directory");
    run(&mut uring(&directory), plan(2, 16, 800, 2, 9));
    run(&mut || slow(10), plan(2, 16, 400, 2, 10));
}

#[test]
fn a_session_dropped_with_operations_in_flight_leaves_a_working_store() {
    let directory = tempfile::tempdir().expect("temporary directory");
    for (device, seed) in [(uring(&directory)(), 11), (slow(12), 12)] {
        let engine = device.open(small_pool(64)).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let session = engine.session().expect("session");
        for i in 0u32..3000 {
            session.put(&tree, &i.to_be_bytes(), &[i as u8; 300]).expect("put");
        }
        drop(session);
        for round in 0..20 * rounds() {
            let work = async {
                let session = engine.async_session().expect("session");
                let handles: Vec<_> = (0u32..32)
                    .map(|task| {
                        let (session, tree) = (session.clone(), tree.clone());
                        tokio::task::spawn_local(async move {
                            for i in 0.. {
                                let key = (task * 977 + i * 131 + round as u32) % 3000;
                                let value = session.get(&tree, &key.to_be_bytes()).await?;
                                assert!(value.is_some_and(|value| value == [key as u8; 300]));
                            }
                            Result::<()>::Ok(())
                        })
                    })
                    .collect();
                for _ in 0..round % 7 * 3 {
                    tokio::task::yield_now().await;
                }
                // Tasks end wherever they are.
                handles.iter().for_each(tokio::task::JoinHandle::abort);
                drop(session);
            };
            wattle::run(64, work).expect("runtime");
        }
        let session = engine.session().expect("session");
        for i in 0u32..3000 {
            let value = session.get(&tree, &i.to_be_bytes()).expect("get");
            assert_eq!(value.as_deref(), Some(&[i as u8; 300][..]), "seed {seed}");
        }
        drop(session);
        assert_verified(&engine);
        engine.drop_tree(tree).expect("drop");
        assert_all_frames_free(&engine);
        engine.close().expect("close");
    }
}

#[test]
fn a_task_that_never_waits_does_not_keep_others_from_their_pages() {
    let _watchdog = Watchdog::start("a task that never waits", Duration::from_secs(60));
    let directory = tempfile::tempdir().expect("temporary directory");
    let options = small_pool(64).conflict_wait(Duration::from_secs(30));
    let engine = uring(&directory)().open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for i in 0u32..3000 {
        session.put(&tree, &i.to_be_bytes(), &[i as u8; 300]).expect("put");
    }
    drop(session);
    let done = Cell::new(false);
    let work = async {
        let session = engine.async_session().expect("session");
        let busy = async {
            while !done.get() {
                assert!(session.get(&tree, &7u32.to_be_bytes()).await?.is_some());
            }
            Result::<()>::Ok(())
        };
        let cold = async {
            for i in (0u32..3000).step_by(20) {
                assert!(session.get(&tree, &i.to_be_bytes()).await?.is_some());
            }
            done.set(true);
            Result::<()>::Ok(())
        };
        tokio::try_join!(busy, cold).expect("get");
        // One that waits for a conflict to end is no different.
        done.set(false);
        let mut txn = session.begin().expect("begin");
        txn.put(&tree, &7u32.to_be_bytes(), b"first").await.expect("put");
        let seven = 7u32.to_be_bytes();
        let blocked = session.put(&tree, &seven, b"second");
        let blocker = async {
            for i in (0u32..3000).step_by(20) {
                assert!(txn.get(&tree, &i.to_be_bytes()).await?.is_some());
            }
            txn.commit().await
        };
        tokio::try_join!(blocked, blocker).expect("the second one comes after the first");
        let value = session.get(&tree, &7u32.to_be_bytes()).await.expect("get");
        assert_eq!(value.as_deref(), Some(&b"second"[..]));
    };
    wattle::run(64, work).expect("runtime");
    engine.close().expect("close");
}

/// A store larger than its pool: 4000 records of 1000 bytes, each of which says its number.
fn larger_than_its_pool() -> (Arc<SimStorage>, Engine, Tree) {
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let engine = Device::sim(&device).open(small_pool(512).log(false)).expect("open");
    let tree = engine.tree("t").expect("tree");
    let session = engine.session().expect("session");
    for key in 0..4000u32 {
        session.insert(&tree, &key.to_be_bytes(), &[key as u8; 1000]).expect("insert");
    }
    drop(session);
    (device, engine, tree)
}

/// A device of which every read takes 20 ms: of sixteen keys whose pages are not in memory, most
/// are read at the same time.
#[test]
fn the_reads_of_one_multi_get_or_prefetch_are_under_way_at_once() {
    const READ: Duration = Duration::from_millis(20);
    const KEYS: u32 = 16;
    let (device, engine, tree) = larger_than_its_pool();
    let read_all = |turn: u32, prefetch: bool| {
        device.set_plan(FaultPlan::new(1).always(Op::Read, Fault::Latency(READ)));
        let keys: Vec<_> = (0..KEYS)
            .map(|i| (i * 240 + turn * 8 + u32::from(prefetch) * 120).to_be_bytes())
            .collect();
        let session = engine.async_session().expect("session");
        let mut found = 0;
        let look = |i: usize, value: Option<&[u8]>| {
            assert_eq!(value, Some(&[keys[i][3]; 1000][..]));
            found += 1;
        };
        if prefetch {
            let records: Vec<_> = keys.iter().map(|key| (&tree, key)).collect();
            wattle::run(64, session.prefetch(&records)).expect("run").expect("prefetch");
        } else {
            wattle::run(64, session.multi_get(&tree, &keys, look)).expect("run").expect("get");
            assert_eq!(found, KEYS);
        }
        device.counters().reads_at_once
    };
    for prefetch in [false, true] {
        // Some of their pages may be in memory, and other work on the processors lowers the figure.
        let most = (0..8).map(|turn| read_all(turn, prefetch)).max().expect("there are turns");
        assert!(most > u64::from(KEYS) / 2, "{most} reads at once, prefetch: {prefetch}");
    }
    device.heal();
    drop(tree);
    assert_verified(&engine);
}

/// The same for sessions that block, and for scans that have become long: their device takes 3 ms
/// for each page, and they come to a hundred pages and more.
#[test]
fn blocking_look_ups_and_long_scans_read_many_pages_at_once() {
    const READ: Duration = Duration::from_millis(3);
    const ENOUGH: u64 = 4;
    let (device, engine, tree) = larger_than_its_pool();
    let session = engine.session().expect("session");
    // The most reads at one time. Other work on the processors can only lower the figure, so the
    // best of some attempts counts.
    let at_once = |work: &mut dyn FnMut()| {
        let mut best = 0;
        for _ in 0..8 {
            device.set_plan(FaultPlan::new(1).always(Op::Read, Fault::Latency(READ)));
            let before = engine.stats().pages_read;
            work();
            let pages = engine.stats().pages_read - before;
            assert!(pages > 100, "{pages} pages were read");
            best = best.max(device.counters().reads_at_once);
            if best > ENOUGH {
                break;
            }
        }
        best
    };
    let look_ups = at_once(&mut || {
        for turn in 0..20u32 {
            let keys: Vec<_> = (0..16).map(|i| (i * 240 + turn * 12).to_be_bytes()).collect();
            let mut found = 0;
            let look = |i: usize, value: Option<&[u8]>| {
                assert_eq!(value, Some(&[keys[i][3]; 1000][..]));
                found += 1;
            };
            session.multi_get(&tree, &keys, look).expect("multi_get");
            assert_eq!(found, 16);
        }
    });
    let scan = |backward: bool| {
        let range = session.scan(&tree).expect("scan");
        let mut range = if backward { range.rev() } else { range };
        let mut next = 0;
        while let Some((key, _)) = range.next_entry().expect("entry") {
            let expected: u32 = if backward { 3999 - next } else { next };
            assert_eq!(key, expected.to_be_bytes());
            next += 1;
        }
        assert_eq!(next, 4000);
    };
    let forward = at_once(&mut || scan(false));
    let backward = at_once(&mut || scan(true));
    println!("look-ups {look_ups}, forward {forward}, backward {backward}");
    assert!(look_ups > ENOUGH && forward > ENOUGH && backward > ENOUGH);
    let verify = at_once(&mut || assert_verified(&engine));
    assert!(verify > ENOUGH, "verify {verify}");
    device.heal();
}

/// More threads than read their batches together want the same pages in different orders.
#[test]
fn threads_that_want_the_same_pages_in_different_orders_all_get_them() {
    let (device, engine, tree) = larger_than_its_pool();
    let plan = FaultPlan::new(1).always(Op::Read, Fault::Latency(Duration::from_micros(200)));
    device.set_plan(plan);
    let watchdog = Watchdog::start("batches of many threads", Duration::from_secs(20));
    let faults = engine.stats().faults;
    std::thread::scope(|scope| {
        for thread in 0..10u32 {
            let (engine, tree, watchdog) = (&engine, &tree, &watchdog);
            scope.spawn(move || {
                let session = engine.session().expect("session");
                for turn in 0..200u32 {
                    // All threads are at about the same pages, each begins elsewhere, half of them
                    // backward.
                    let order = |i: u32| if thread.is_multiple_of(2) { i } else { 15 - i };
                    let place = |i| (order(i) + thread) % 16 * 240 + turn * 3 % 240;
                    let keys: Vec<_> = (0..16).map(|i| place(i).to_be_bytes()).collect();
                    let mut found = 0;
                    let look = |i: usize, value: Option<&[u8]>| {
                        assert_eq!(value, Some(&[keys[i][3]; 1000][..]));
                        found += 1;
                    };
                    session.multi_get(tree, &keys, look).expect("multi_get");
                    assert_eq!(found, 16);
                    watchdog.step();
                }
            });
        }
    });
    assert!(engine.stats().faults - faults > 1280, "every page was read, and read again");
    device.heal();
}

/// Trees of one leaf, of a root above leaves and of one more level: the prefetched pages of a batch
/// are resident.
#[test]
fn records_of_trees_of_any_height_are_prefetched_together() {
    let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let options = small_pool(512).log(false);
    let engine = Device::sim(&device).open(options.clone()).expect("open");
    let sizes = [3000u32, 1, 40];
    for size in sizes {
        let tree = engine.tree(&size.to_string()).expect("tree");
        let session = engine.session().expect("session");
        for key in 0..size {
            session.insert(&tree, &key.to_be_bytes(), &[size as u8; 1000]).expect("insert");
        }
    }
    engine.close().expect("close");
    let engine = Device::sim(&device).open(options).expect("open again");
    let trees = sizes.map(|size| engine.tree(&size.to_string()).expect("tree"));
    let session = engine.session().expect("session");
    // More than one batch. For absent keys, the leaf where they would be is prefetched.
    let records: Vec<_> = (0..60u32)
        .map(|i| (&trees[i as usize % 3], (i * 67 % (sizes[i as usize % 3] + 1)).to_be_bytes()))
        .collect();
    let before = engine.stats().faults;
    session.prefetch(&records).expect("prefetch");
    let after = engine.stats().faults;
    assert!(after - before > 25, "{} pages were read", after - before);
    for (at, (tree, key)) in records.iter().enumerate() {
        let size = sizes[at % 3];
        let expected = (u32::from_be_bytes(*key) < size).then(|| vec![size as u8; 1000]);
        assert_eq!(session.get(tree, key).expect("get"), expected);
    }
    assert_eq!(engine.stats().faults, after, "all of it was there");
    session.prefetch::<&[u8]>(&[]).expect("nothing");
}

/// A log of which every sync takes 20 ms: a task with tickets does not wait for each of them, sees
/// what it has done, and finds all of it after a crash once the tickets said so.
#[test]
fn a_task_goes_on_while_its_commits_are_under_way() {
    const SYNC: Duration = Duration::from_millis(20);
    const KEYS: u32 = 200;
    for durability in [Durability::Sync, Durability::Group] {
        let device = Arc::new(SimStorage::new(FaultPlan::new(1)));
        let options = small_pool(512).durability(durability);
        let engine = Device::sim(&device).open(options.clone()).expect("open");
        let tree = engine.tree("t").expect("tree");
        device.set_plan(FaultPlan::new(1).always(Op::LogSync, Fault::Latency(SYNC)));
        let session = engine.async_session().expect("session");
        let syncs = device.counters().log_syncs;
        let waited = wattle::run(8, async {
            let mut tickets = Vec::new();
            for key in (0..KEYS).map(u32::to_be_bytes) {
                tickets.push(session.insert_ticket(&tree, &key, b"0").await.expect("insert"));
                tickets.push(session.put_ticket(&tree, &key, b"1").await.expect("put"));
                let (existed, ticket) =
                    session.update_ticket(&tree, &key, b"2").await.expect("update");
                assert!(existed);
                tickets.push(ticket);
                let change = |value: &mut [u8]| value[0] += 1;
                let (existed, ticket) =
                    session.modify_ticket(&tree, &key, change).await.expect("modify");
                assert!(existed);
                tickets.push(ticket);
                if key[3].is_multiple_of(2) {
                    let removed = session.remove_ticket(&tree, &key).await.expect("remove");
                    assert!(removed.0);
                    tickets.push(removed.1);
                }
                let expected = (!key[3].is_multiple_of(2)).then(|| b"3".to_vec());
                assert_eq!(session.get(&tree, &key).await.expect("get"), expected);
                let again = session.insert_ticket(&tree, &key, b"x").await;
                match expected {
                    Some(_) => assert!(matches!(again, Err(Error::KeyExists))),
                    None => tickets.push(again.expect("insert")),
                }
                session.take_turn().await;
            }
            let under_way = tickets.iter().filter(|ticket| !ticket.is_durable()).count();
            let commits = tickets.len() as u64;
            for ticket in tickets {
                let copy = ticket.clone();
                session.wait(ticket).await.expect("durable");
                assert!(copy.is_durable());
            }
            (under_way, commits)
        });
        let (under_way, commits) = waited.expect("run");
        assert!(under_way > 1, "nothing was under way");
        let syncs = device.counters().log_syncs - syncs;
        assert!(syncs < commits, "{syncs} syncs: as if it had waited for each commit");
        device.heal();
        // All commits are durable now.
        let crashed = Arc::new(device.crash(7));
        drop((session, tree, engine));
        let engine = Device::sim(&crashed).open(options).expect("recover");
        let tree = engine.tree("t").expect("tree");
        let session = engine.session().expect("session");
        for key in (0..KEYS).map(u32::to_be_bytes) {
            let expected = if key[3].is_multiple_of(2) { b"x" } else { b"3" };
            assert_eq!(session.get(&tree, &key).expect("get").as_deref(), Some(&expected[..]));
        }
        drop((session, tree));
        assert_verified(&engine);
    }
}

/// A task may log more in one turn than the log takes without a flush.
#[test]
fn tasks_that_wait_for_the_log_take_turns() {
    const TASKS: u32 = 5;
    const COMMITS: u32 = 100;
    const CHANGES: u32 = 300;
    let _watchdog = Watchdog::start("turns at the log", Duration::from_secs(120));
    let options = Options::default().durability(Durability::Group).pool_bytes(32 << 20);
    // A task in the middle of a transaction keeps the versions of all that the others commit
    // meanwhile.
    let options = options.version_bytes(1 << 30);
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("t").expect("tree");
    let session = engine.async_session().expect("session");
    let done = Rc::new([const { Cell::new(0) }; TASKS as usize]);
    let sum = |done: &[Cell<u32>]| done.iter().map(Cell::get).sum::<u32>();
    wattle::run(64, async {
        let tasks = (0..TASKS).map(|task| {
            let (session, tree, done) = (session.clone(), tree.clone(), Rc::clone(&done));
            tokio::task::spawn_local(async move {
                let commits = &done[task as usize];
                while sum(&done[..]) < COMMITS {
                    let mut txn = session.begin().expect("begin");
                    for change in 0..CHANGES {
                        let key = (task * CHANGES + change).to_be_bytes();
                        let value = [commits.get() as u8; 1500];
                        txn.put(&tree, &key, &value).await.expect("put");
                    }
                    let _ticket = txn.commit_ticket().await.expect("commit");
                    commits.set(commits.get() + 1);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("task");
        }
    })
    .expect("run");
    println!("{done:?}");
    let least = done.iter().map(Cell::get).min().expect("there are tasks");
    assert!(least >= COMMITS / TASKS / 4, "a task was kept waiting: {done:?}");
    drop((session, tree));
    assert_verified(&engine);
}

/// Awaits an operation on more than 4000 records or chunks; it lets the other tasks of the thread
/// run for each 512.
async fn in_turns<T>(what: &str, operation: impl Future<Output = Result<T>>) -> Result<T> {
    let (mut operation, mut turns) = (std::pin::pin!(operation), 0);
    let outcome = std::future::poll_fn(|context| {
        let polled = operation.as_mut().poll(context);
        turns += u32::from(polled.is_pending());
        polled
    });
    let outcome = outcome.await?;
    println!("{what}: {turns}");
    assert!(turns >= 6, "{what}: the other tasks could run {turns} times");
    Ok(outcome)
}

/// All in memory and without a log, so that hardly an operation waits.
#[test]
fn operations_on_many_records_let_the_other_tasks_run() {
    const RECORDS: u32 = 8_192;
    const LARGE: usize = 8 << 20;
    let _watchdog = Watchdog::start("turns of long operations", Duration::from_secs(60));
    let options = unlogged_pool(16_384).version_bytes(1 << 30);
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("t").expect("tree");
    let session = engine.async_session().expect("session");
    let keys: Vec<[u8; 4]> = (0..RECORDS).map(u32::to_be_bytes).collect();
    let records: Vec<_> = keys.iter().map(|key| (key, b"value")).collect();
    wattle::run(8, async {
        in_turns("put_many", session.put_many(&tree, &records)).await?;
        let found = in_turns("get_many", session.get_many(&tree, &keys)).await?;
        assert!(found.iter().all(|value| value.as_deref() == Some(b"value")));
        let all: Vec<_> = keys.iter().map(|key| (&tree, key)).collect();
        in_turns("prefetch", session.prefetch(&all)).await?;
        let mut txn = session.begin()?;
        let change = |_: usize, value: &mut [u8]| value[0] ^= 1;
        let changed = in_turns("modify_many", txn.modify_many(&tree, &keys, change)).await?;
        assert_eq!(changed, keys.len());
        in_turns("abort", txn.abort()).await?;
        let removed = in_turns("remove_many", session.remove_many(&tree, &keys[1..])).await?;
        assert_eq!(removed, keys.len() - 1);
        session.put_many(&tree, &records).await?;
        let removed = in_turns("delete_range", session.delete_range(&tree, ..)).await?;
        assert_eq!(removed, u64::from(RECORDS));
        let large = vec![7; LARGE];
        in_turns("put of a large value", session.put(&tree, b"large", &large)).await?;
        let found = in_turns("get of a large value", session.get(&tree, b"large")).await?;
        assert!(found.as_ref() == Some(&large));
        Ok::<_, Error>(())
    })
    .expect("run")
    .expect("no error");
}
