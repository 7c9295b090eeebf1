//! Interleavings of trees, pool and background work, under the model checker:
//! `RUSTFLAGS="--cfg shuttle" cargo test -p wattle-btree --test interleave`.
//!
//! Pool and tree are the real ones; threads, locks and device are those of the model checker. A
//! failure prints its schedule, which `shuttle::replay` runs again. `WATTLE_ROUNDS` multiplies the
//! number of schedules.
#![cfg(shuttle)]

use shuttle::{
    Config, MaxSteps, Runner,
    rand::{Rng, thread_rng},
    scheduler::{PctScheduler, RandomScheduler},
    thread,
};
use std::{
    collections::BTreeMap,
    future::Future,
    ops::Bound,
    pin::Pin,
    sync::{Arc, atomic::AtomicBool},
    task::{Context as TaskContext, Waker},
    time::Duration,
};
use wattle_btree::{
    Context, Cursor, Direction, Forest, Journal, Mode, Newest, Renumbered, Stop, System, Tree,
    Value, run,
};
use wattle_buffer::{
    Background, Fault, FrameId, MIN_POOL_BYTES, NoLog, PageAllocator, PageId, Pool, PoolOptions,
    TreeId, Worker,
    model::{Audit, ModelStorage, Stepper, audit, make_impatient},
    replacement::policies,
    sync::{AtomicUsize, Mutex, Ordering, interleave, yield_now},
};

/// Pages that no tree uses: superblocks and both copies of the bitmap.
const RESERVED: u64 = 4;

/// Runs `body` under random schedules and under priority schedules: so many of each in a pool with
/// swizzling, and half as many in one without ([`Store::new`]).
fn explore(schedules: usize, body: impl Fn() + Send + Sync + Clone + 'static) {
    let schedules = schedules * 3 / 2;
    let rounds = std::env::var("WATTLE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let schedules = schedules * rounds;
    let mut config = Config::new();
    config.stack_size = 512 << 10;
    config.silence_warnings = true;
    config.max_steps = MaxSteps::FailAfter(2_000_000);
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(body.clone());
    Runner::new(PctScheduler::new(3, schedules), config).run(body);
}

struct Store {
    storage: Arc<ModelStorage>,
    pool: Arc<Pool>,
    forest: Arc<Forest>,
    tree: Arc<Tree>,
}

impl Store {
    /// An empty tree in a pool of `frames`.
    fn new(frames: u64, policy: &str) -> Store {
        let options = PoolOptions {
            pool_bytes: (frames * (4096 + 512)).max(MIN_POOL_BYTES),
            policy: policy.to_string(),
            evictors: 1,
            write_concurrency: 4,
            read_ahead: 32,
            ace: wattle_buffer::Ace::Off,
            write_order: wattle_buffer::WriteOrder::Value,
            stall_timeout: Duration::from_secs(1 << 20),
            swizzling: !thread_rng().gen_ratio(1, 3),
            trace: None,
        };
        let (storage, forest) = (ModelStorage::new(), Forest::new());
        let allocator = PageAllocator::new(Vec::new(), 64);
        let pool = Pool::open(options, storage.clone(), allocator, forest.clone(), Arc::new(NoLog))
            .expect("open");
        let cx = Context::new(pool.worker(), Journal::Off);
        let tree = Tree::create(&cx, &forest, TreeId(7)).expect("create");
        Store { storage, pool, forest, tree: Arc::new(tree) }
    }

    /// Evicts all pages that can be evicted; no other thread may run.
    fn cool(&self) {
        let mut stepper = Stepper::new(&self.pool, 3);
        for _ in 0..4 {
            for frame in (0..self.pool.frames() as u32).map(FrameId) {
                stepper.evict(frame);
                stepper.write();
            }
        }
    }

    /// Checks the tree, its contents, the pool and the storage, when no other thread runs.
    fn check(&self, expected: &BTreeMap<Vec<u8>, Vec<u8>>) -> Audit {
        let cx = Context::new(self.pool.worker(), Journal::Off);
        let (mut found, mut pages) = (BTreeMap::new(), 0);
        // The whole tree may not fit into the pool.
        let background = Background::start(&self.pool).expect("start");
        let quiet = self.pool.quiet();
        let report = self
            .tree
            .verify(&cx, &AtomicBool::new(false), &mut |_| pages += 1, &mut |key, value, _| {
                found.insert(key.to_vec(), value.to_vec());
            })
            .expect("verify");
        // In this order: merges in between would not have been counted.
        background.stop().expect("no thread panicked");
        drop((quiet, cx));
        assert!(report.problems.is_empty(), "{:#?}", report.problems);
        let short = |map: &BTreeMap<Vec<u8>, Vec<u8>>| {
            map.iter()
                .map(|(k, v)| (k[k.len() - 2..].to_vec(), v[..3].to_vec()))
                .collect::<Vec<_>>()
        };
        assert!(&found == expected, "{:?} instead of {:?}", short(&found), short(expected));
        let audit = audit(&self.pool);
        assert_eq!(audit.used_pages, RESERVED + pages, "pages were lost");
        audit
    }
}

/// Keys of a shape; long ones make inner nodes small.
#[derive(Clone, Copy)]
struct Shape {
    key_len: usize,
    value_len: usize,
}

const SHORT: Shape = Shape { key_len: 4, value_len: 900 };
const LONG: Shape = Shape { key_len: 700, value_len: 700 };

impl Shape {
    fn key(self, i: u16) -> Vec<u8> {
        let mut key = vec![b'k'; self.key_len - 2];
        key.extend(i.to_be_bytes());
        key
    }

    fn value(self, i: u16, version: u8) -> Vec<u8> {
        // Lengths change with the version, so that replacing a value moves others.
        let len = self.value_len / 2 + usize::from(version % 4) * self.value_len / 6;
        let mut value = vec![version; len.max(3)];
        value[..2].copy_from_slice(&i.to_be_bytes());
        value
    }
}

/// A tree that is open while a client uses it, and perhaps longer, as in the engine's catalog.
struct Shelf {
    forest: Arc<Forest>,
    id: TreeId,
    root: PageId,
    open: Mutex<Option<Arc<Tree>>>,
}

impl Shelf {
    fn take(&self, cx: &Context) -> Arc<Tree> {
        let mut open = self.open.lock();
        let tree = open.take().unwrap_or_else(|| {
            Arc::new(Tree::open(cx, &self.forest, self.id, self.root).expect("open"))
        });
        open.insert(tree).clone()
    }

    fn close(&self) {
        let mut open = self.open.lock();
        if open.as_ref().is_some_and(|tree| Arc::strong_count(tree) == 1) {
            *open = None;
        }
    }
}

/// One session with keys of its own, in leaves that it shares with all others.
struct Client {
    cx: Context,
    tree: Arc<Tree>,
    shape: Shape,
    keys: Vec<u16>,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    version: u8,
}

impl Client {
    fn new(store: &Store, shape: Shape, keys: impl IntoIterator<Item = u16>) -> Client {
        Client {
            cx: Context::new(store.pool.worker(), Journal::Off),
            tree: store.tree.clone(),
            shape,
            keys: keys.into_iter().collect(),
            model: BTreeMap::new(),
            version: 2,
        }
    }

    fn put(&mut self, i: u16) {
        self.version = self.version.wrapping_add(1);
        let (key, value) = (self.shape.key(i), self.shape.value(i, self.version));
        let value_in = Value::Inline(&value);
        let written = run(&self.cx, |restarts| {
            self.tree.write_step(&self.cx, &key, value_in, Mode::Put, &mut System, restarts)
        })
        .expect("put");
        let old = self.model.insert(key, value);
        assert_eq!(written.existed, old.is_some(), "put of {i}");
    }

    fn remove(&mut self, i: u16) {
        let key = self.shape.key(i);
        let (written, underfull) =
            run(&self.cx, |_| self.tree.remove_step(&self.cx, &key, &mut System)).expect("remove");
        assert_eq!(written.existed, self.model.remove(&key).is_some(), "remove of {i}");
        if underfull {
            run(&self.cx, |_| self.tree.merge_step(&self.cx, &key, 0)).expect("merge");
        }
    }

    fn get(&self, i: u16) {
        let (key, mut value) = (self.shape.key(i), Vec::new());
        let found = run(&self.cx, |_| {
            value.clear();
            self.tree.get_step(&key, &mut Newest, &mut value)
        })
        .expect("get");
        assert_eq!(found.map(|_| &value), self.model.get(&key), "get of {i}");
    }

    fn multi_get(&self) {
        let keys: Vec<_> = self.keys.iter().take(8).map(|i| self.shape.key(*i)).collect();
        let (mut done, mut buffer) = (0, Vec::new());
        let mut found = vec![None; keys.len()];
        run(&self.cx, |_| {
            self.tree.multi_get_step(&keys, &mut Newest, &mut done, &mut buffer, &mut |i, value| {
                let value = value.map(|(_, value)| value.to_vec());
                assert!(found[i].replace(value).is_none(), "reported twice");
            })
        })
        .expect("multi_get");
        for (key, found) in keys.iter().zip(found) {
            assert_eq!(found.expect("reported").as_ref(), self.model.get(key));
        }
    }

    /// Scans the whole tree: checks the order, and that each of its own keys comes once.
    fn scan(&self, direction: Direction) {
        let mut cursor = Cursor::new(Bound::Unbounded, Bound::Unbounded, direction);
        let mut entries = Vec::new();
        while !cursor.is_at_end() {
            run(&self.cx, |_| cursor.load_step(&self.tree, &mut Newest)).expect("scan");
            while cursor.is_loaded() {
                cursor.take().expect("entry").expect("no ghosts without transactions");
                entries.push((cursor.key().to_vec(), cursor.value().to_vec()));
            }
        }
        if direction == Direction::Backward {
            entries.reverse();
        }
        assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "a scan lost its order");
        let mine = self.keys.iter().map(|i| self.shape.key(*i)).collect::<Vec<_>>();
        let found: BTreeMap<_, _> =
            entries.into_iter().filter(|(key, _)| mine.contains(key)).collect();
        assert!(found == self.model, "a scan missed or invented records");
    }

    fn step(&mut self) {
        let i = self.keys[thread_rng().gen_range(0..self.keys.len())];
        match thread_rng().gen_range(0..16) {
            0..7 => self.put(i),
            7..11 => self.remove(i),
            11..14 => self.get(i),
            14 => self.multi_get(),
            _ => self.scan(if i % 2 == 0 { Direction::Forward } else { Direction::Backward }),
        }
    }
}

/// Runs clients and a thread for background work, step by step, until they are done. Gives the
/// contents of the tree then.
fn race(
    store: &Store,
    clients: Vec<Client>,
    body: impl Fn(&mut Client) + Send + Sync + Copy + 'static,
    background: impl Fn(&mut Stepper, FrameId) + Send + 'static,
) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let running = Arc::new(AtomicUsize::new(clients.len()));
    let threads: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            let running = running.clone();
            thread::spawn(move || {
                body(&mut client);
                running.fetch_sub(1, Ordering::Relaxed);
                client.model
            })
        })
        .collect();
    let pool = store.pool.clone();
    let background = thread::spawn(move || {
        let mut stepper = Stepper::new(&pool, 1);
        while running.load(Ordering::Relaxed) > 0 {
            let frame = FrameId(thread_rng().gen_range(0..pool.frames() as u32));
            background(&mut stepper, frame);
            // Seldom enough that some pages stay in memory.
            (0..thread_rng().gen_range(0..400)).for_each(|_| interleave());
            yield_now();
        }
        // No frame may stay claimed.
        for _ in 0..pool.frames() {
            stepper.write();
        }
    });
    let models: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    background.join().unwrap();
    models.into_iter().flatten().collect()
}

/// As [`race`], and `beside` runs in one more thread.
fn race_beside(
    store: &Store,
    clients: Vec<Client>,
    body: impl Fn(&mut Client) + Send + Sync + Copy + 'static,
    beside: impl FnOnce() + Send + 'static,
) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let thread = thread::spawn(beside);
    let model = race(store, clients, body, evict_and_write);
    thread.join().unwrap();
    model
}

fn evict_and_write(stepper: &mut Stepper, frame: FrameId) {
    match thread_rng().gen_range(0..8) {
        0 => stepper.round(),
        1..3 => stepper.write(),
        _ => stepper.evict(frame),
    }
}

/// Fills the tree with every key of every client, without any other thread.
fn fill(clients: &mut [Client]) {
    for client in clients {
        client.keys.clone().into_iter().for_each(|i| client.put(i));
    }
}

fn clients(store: &Store, count: u16, keys: u16, shape: Shape) -> Vec<Client> {
    (0..count)
        .map(|c| Client::new(store, shape, (0..keys).filter(move |i| i % count == c)))
        .collect()
}

#[test]
fn a_leaf_that_is_evicted_and_read_again_keeps_every_record() {
    explore(3000, || {
        let store = Store::new(40, "random");
        let mut clients = clients(&store, 2, 16, SHORT);
        fill(&mut clients);
        let model =
            race(&store, clients, |client| (0..6).for_each(|_| client.step()), evict_and_write);
        store.check(&model);
    });
}

#[test]
fn inner_nodes_are_evicted_split_and_merged_under_descents() {
    explore(2000, || {
        let store = Store::new(60, "random");
        let mut clients = clients(&store, 3, 36, LONG);
        fill(&mut clients);
        let model =
            race(&store, clients, |client| (0..6).for_each(|_| client.step()), evict_and_write);
        store.check(&model);
    });
}

#[test]
fn a_tree_grows_from_nothing_and_shrinks_to_nothing() {
    explore(2000, || {
        let store = Store::new(60, "watt");
        let model = race(
            &store,
            clients(&store, 3, 24, LONG),
            |client| {
                client.keys.clone().into_iter().for_each(|i| client.put(i));
                client.keys.clone().into_iter().for_each(|i| client.remove(i));
            },
            evict_and_write,
        );
        assert!(model.is_empty());
        store.check(&model);
    });
}

#[test]
fn a_pool_smaller_than_the_tree_never_stops_with_real_background_threads() {
    never_stops(1500, "watt");
}

/// A policy with an order has a latch and a protocol of its own between loads, uses, evictors and
/// pages that leave; the others are few and quick.
#[test]
fn no_policy_loses_a_page_or_stops_in_a_pool_smaller_than_the_tree() {
    for info in policies() {
        never_stops(if info.ordered { 60 } else { 10 }, info.name);
    }
}

#[test]
fn no_policy_with_an_order_loses_a_page_to_evictors_beside_each_other() {
    for info in policies().iter().filter(|info| info.ordered) {
        explore(40, || {
            let store = Store::new(26, info.name);
            let mut clients = clients(&store, 2, 36, SHORT);
            fill(&mut clients);
            let pool = store.pool.clone();
            let second = thread::spawn(move || {
                let mut stepper = Stepper::new(&pool, 2);
                for _ in 0..6 {
                    stepper.round();
                    stepper.write();
                    (0..thread_rng().gen_range(0..100)).for_each(|_| interleave());
                }
            });
            let model =
                race(&store, clients, |client| (0..4).for_each(|_| client.step()), rounds_only);
            second.join().unwrap();
            store.check(&model);
        });
    }
}

fn rounds_only(stepper: &mut Stepper, _: FrameId) {
    stepper.round();
    stepper.write();
}

fn never_stops(schedules: usize, policy: &'static str) {
    explore(schedules, move || {
        let store = Store::new(0, policy);
        let background = Background::start(&store.pool).expect("start");
        let mut clients = clients(&store, 2, 36, SHORT);
        fill(&mut clients);
        let threads: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                thread::spawn(move || {
                    (0..8).for_each(|_| client.step());
                    client.model
                })
            })
            .collect();
        let model = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        background.stop().expect("no thread panicked");
        store.check(&model);
    });
}

#[test]
fn a_page_that_many_want_is_read_once() {
    explore(2000, || {
        let store = Store::new(30, "random");
        let mut clients = clients(&store, 3, 9, SHORT);
        fill(&mut clients);
        store.cool();
        let threads: Vec<_> = clients
            .into_iter()
            .map(|client| {
                thread::spawn(move || {
                    client.keys.iter().for_each(|i| client.get(*i));
                    client.model
                })
            })
            .collect();
        let model = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        for page in 0..64 {
            let reads = store.storage.reads(wattle_buffer::PageId(page));
            assert!(reads <= 1, "page {page} was read {reads} times");
        }
        store.check(&model);
    });
}

#[test]
fn reads_that_are_cancelled_or_fail_leave_nothing_behind() {
    explore(1500, || {
        let store = Store::new(30, "random");
        let mut clients = clients(&store, 3, 9, SHORT);
        fill(&mut clients);
        store.cool();
        store.storage.fail_reads(1);
        let failed = Arc::new(AtomicUsize::new(0));
        let seen = failed.clone();
        // `race` would lose errors of a captured counter, so ask the storage.
        let model = race(
            &store,
            clients,
            move |client| {
                for i in client.keys.clone() {
                    give_up(client, i);
                    let (key, mut value) = (client.shape.key(i), Vec::new());
                    let outcome = run(&client.cx, |_| {
                        value.clear();
                        client.tree.get_step(&key, &mut Newest, &mut value)
                    });
                    match outcome {
                        Ok(found) => {
                            assert_eq!(found.map(|_| &value), client.model.get(&key));
                        }
                        Err(error) => assert!(error.to_string().contains("read page"), "{error}"),
                    }
                }
            },
            |stepper, frame| {
                interleave();
                stepper.evict(frame);
            },
        );
        drop(seen);
        store.storage.fail_reads(0);
        store.check(&model);
    });
}

/// Begins a look-up and drops its wait at a random moment.
fn give_up(client: &Client, i: u16) {
    let (key, mut value) = (client.shape.key(i), Vec::new());
    let fault = match client.tree.get_step(&key, &mut Newest, &mut value) {
        Err(Stop::Fault(fault)) => fault,
        _ => return,
    };
    match thread_rng().gen_range(0..4) {
        0 => drop(fault),
        polls => {
            // The storage of the model reads meanwhile, so some of these reads end.
            let is_read = matches!(fault, Fault::Read(_));
            let mut read = Box::pin(client.cx.worker.resolve_async(fault));
            for _ in 0..if is_read { polls } else { 1 } {
                let outcome = read.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
                if outcome.is_ready() {
                    return;
                }
                yield_now();
            }
        }
    }
}

/// A wait that has begun.
type Begun<'w> = Pin<Box<dyn Future<Output = wattle_buffer::Result<()>> + 'w>>;

/// Begins a look-up and keeps its wait, polled once or not at all.
fn keep_waiting<'w>(client: &Client, worker: &'w Worker, i: u16, kept: &mut Vec<Begun<'w>>) {
    let (key, mut value) = (client.shape.key(i), Vec::new());
    if let Err(Stop::Fault(fault)) = client.tree.get_step(&key, &mut Newest, &mut value) {
        let mut read: Begun<'w> = Box::pin(worker.resolve_async(fault));
        if thread_rng().gen_range(0..3) > 0 {
            let outcome = read.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
            if outcome.is_ready() {
                return;
            }
        }
        kept.push(read);
    }
}

#[test]
fn a_read_whose_future_is_not_polled_is_taken_over_and_no_page_gets_two_frames() {
    explore(1500, || {
        let store = Store::new(0, "random");
        make_impatient(&store.pool);
        store.storage.allow_late_reads();
        let mut clients = clients(&store, 3, 18, SHORT);
        fill(&mut clients);
        store.cool();
        let model = race(
            &store,
            clients,
            |client| {
                let worker = client.cx.worker.pool().worker();
                let mut kept = Vec::new();
                for i in client.keys.clone() {
                    if thread_rng().gen_bool(0.4) && kept.len() < 2 {
                        keep_waiting(client, &worker, i, &mut kept);
                    }
                    client.get(i);
                    client.put(i);
                    if thread_rng().gen_bool(0.2) {
                        // Dropped at any stage, or polled again.
                        if let Some(mut read) = kept.pop()
                            && thread_rng().gen_bool(0.5)
                        {
                            let mut context = TaskContext::from_waker(Waker::noop());
                            let _ = read.as_mut().poll(&mut context);
                        }
                    }
                }
            },
            |stepper, frame| {
                interleave();
                stepper.evict(frame);
                stepper.write();
            },
        );
        store.check(&model);
    });
}

#[test]
fn a_page_that_changes_while_it_is_written_stays_dirty() {
    explore(3000, || {
        let store = Store::new(30, "random");
        let mut clients = clients(&store, 2, 8, SHORT);
        fill(&mut clients);
        store.storage.fail_writes(1);
        let model = race(
            &store,
            clients,
            |client| {
                for i in client.keys.clone() {
                    client.put(i);
                    client.remove(i);
                    client.put(i);
                }
            },
            |stepper, frame| {
                stepper.evict(frame);
                stepper.write();
            },
        );
        store.storage.fail_writes(0);
        store.check(&model);
    });
}

#[test]
fn a_cancelled_wait_for_a_frame_does_not_leave_another_asleep_beside_a_free_frame() {
    explore(300, || {
        let store = Store::new(0, "watt");
        let background = Background::start(&store.pool).expect("start");
        // All frames but the root's are in the reserves of workers.
        let mut holders: Vec<_> = (0..store.pool.frames() - 1)
            .map(|_| {
                let worker = store.pool.worker();
                worker.resolve(Fault::Pages(1)).expect("reserve");
                worker
            })
            .collect();
        let cancelled = store.pool.worker();
        {
            let mut wait = Box::pin(cancelled.resolve_async(Fault::Pages(1)));
            assert!(wait.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())).is_pending());
        }
        let waiting = store.pool.worker();
        let waiting = thread::spawn(move || waiting.resolve(Fault::Pages(1)).expect("reserve"));
        drop(holders.pop());
        waiting.join().unwrap();
        drop((holders, cancelled));
        background.stop().expect("no thread panicked");
        store.check(&BTreeMap::new());
    });
}

#[test]
fn pages_that_were_freed_while_they_were_written_are_free_when_it_is_quiet() {
    // The critical moment between two steps of the writer is short.
    explore(20_000, || {
        let store = Store::new(40, "random");
        let mut client = Client::new(&store, SHORT, 0..8);
        fill(std::slice::from_mut(&mut client));
        let pool = store.pool.clone();
        let writer = thread::spawn(move || {
            let mut stepper = Stepper::new(&pool, 1);
            (0..pool.frames() as u32).for_each(|frame| stepper.evict(FrameId(frame)));
            stepper.write();
        });
        client.keys.clone().into_iter().for_each(|i| client.remove(i));
        let quiet = store.pool.quiet();
        let (_, _, used) = store.pool.allocator().snapshot();
        let mut pages = RESERVED + store.pool.reserved_pages() as u64;
        let stop = AtomicBool::new(false);
        let report = store
            .tree
            .verify(&client.cx, &stop, &mut |_| pages += 1, &mut |_, _, _| {})
            .expect("verify");
        assert!(report.problems.is_empty(), "{:#?}", report.problems);
        assert_eq!(used, pages, "pages in use that belong to no tree");
        drop(quiet);
        writer.join().unwrap();
    });
}

#[test]
fn a_tree_that_is_closed_and_opened_again_keeps_every_record() {
    explore(1000, || {
        let store = Store::new(40, "random");
        let cx = Context::new(store.pool.worker(), Journal::Off);
        let tree = Tree::create(&cx, &store.forest, TreeId(8)).expect("create");
        let (id, root) = (tree.id(), tree.root_page());
        let open = Mutex::new(Some(Arc::new(tree)));
        let shelf = Arc::new(Shelf { forest: store.forest.clone(), id, root, open });
        let clients: Vec<_> = (0..2)
            .map(|number| {
                let mut client = Client::new(&store, SHORT, (0..16).filter(|i| i % 2 == number));
                client.tree = shelf.take(&cx);
                fill(std::slice::from_mut(&mut client));
                client.tree = store.tree.clone();
                client
            })
            .collect();
        let (ours, running) = (shelf.clone(), Arc::new(AtomicUsize::new(clients.len())));
        let threads: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                let (shelf, running) = (shelf.clone(), running.clone());
                thread::spawn(move || {
                    let home = client.tree.clone();
                    for _ in 0..6 {
                        client.tree = shelf.take(&client.cx);
                        client.step();
                        client.tree = home.clone();
                        shelf.close();
                    }
                    running.fetch_sub(1, Ordering::Relaxed);
                    client.model
                })
            })
            .collect();
        let pool = store.pool.clone();
        let background = thread::spawn(move || {
            let mut stepper = Stepper::new(&pool, 1);
            while running.load(Ordering::Relaxed) > 0 {
                let frame = FrameId(thread_rng().gen_range(0..pool.frames() as u32));
                evict_and_write(&mut stepper, frame);
                (0..thread_rng().gen_range(0..100)).for_each(|_| interleave());
                yield_now();
            }
            (0..pool.frames()).for_each(|_| stepper.write());
        });
        let models = threads.into_iter().map(|thread| thread.join().unwrap());
        let model: BTreeMap<_, _> = models.flatten().collect();
        background.join().unwrap();
        // Evict it, if it is closed, and read it again.
        ours.close();
        store.cool();
        let background = Background::start(&store.pool).expect("start");
        let mut client = Client::new(&store, SHORT, 0..16);
        (client.tree, client.model) = (ours.take(&cx), model);
        client.scan(Direction::Forward);
        client.tree = store.tree.clone();
        let tree = ours.open.lock().take().and_then(Arc::into_inner).expect("the only handle");
        tree.discard(&cx).expect("discard");
        drop((background, cx, client));
        store.check(&BTreeMap::new());
    });
}

#[test]
fn pages_get_other_ids_under_readers_writers_and_evictors() {
    explore(700, || {
        let store = Store::new(60, "random");
        let mut clients = clients(&store, 2, 30, LONG);
        fill(&mut clients);
        let (tree, pool) = (store.tree.clone(), store.pool.clone());
        let moved = Arc::new(AtomicUsize::new(0));
        let count = moved.clone();
        let mover = move || {
            let cx = Context::new(pool.worker(), Journal::Off);
            for from in [20, 12, 8] {
                let mut ids = Vec::new();
                for level in 1..3 {
                    let mut key = Vec::new();
                    loop {
                        while ids.len() < 3 {
                            ids.push(pool.allocate_page().expect("room"));
                        }
                        let step = run(&cx, |_| {
                            tree.renumber_step(&cx, (level, &key), PageId(from), &mut ids)
                        });
                        key = match step.expect("no I/O fails") {
                            Renumbered::Pages(pages) => {
                                count.fetch_add(pages, Ordering::Relaxed);
                                match thread_rng().gen_range(0..4) {
                                    0 => break,
                                    _ => continue,
                                }
                            }
                            Renumbered::Next(next) | Renumbered::Busy(Some(next)) => next,
                            Renumbered::Busy(None) | Renumbered::End => break,
                        };
                    }
                }
                ids.into_iter().for_each(|page| pool.free_page_id(page));
            }
        };
        let step = |client: &mut Client| (0..5).for_each(|_| client.step());
        let model = race_beside(&store, clients, step, mover);
        store.check(&model);
    });
}
