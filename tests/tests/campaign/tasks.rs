//! Tasks of one thread: futures that are polled once and kept, cancelled or finished; and calls
//! that block the thread beside them.

use crate::world::{Beat, Check, World, number_of, value};
use std::{
    collections::{BTreeMap, VecDeque},
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::Poll,
    thread::Scope,
    time::Duration,
};
use wattle::{AsyncSession, Engine, Tree};
use wattle_tests::harness::Random;

/// Keys of each task.
const KEYS: u64 = 6000;
/// Futures that a task keeps at once.
const KEPT: usize = 6;

pub fn start<'s>(scope: &'s Scope<'s, '_>, world: &'s World) {
    scope.spawn(move || {
        let _guard = world.stop_at_panic();
        let tasks: Vec<_> = (0..5).map(|id| Task::new(world, id)).collect();
        let engine = world.engine.clone();
        let beat = world.beat("calls that block tasks");
        let random = world.random(60);
        let over: Rc<dyn Fn() -> bool> = {
            // The tasks are `'static`; they end before the scope does.
            let flag = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let seen = flag.clone();
            scope.spawn(move || {
                while !world.is_over() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                flag.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            Rc::new(move || seen.load(std::sync::atomic::Ordering::Relaxed))
        };
        let ended = wattle::run(16, async move {
            let session = engine.async_session().expect("session");
            let spawned: Vec<_> = tasks
                .into_iter()
                .map(|task| {
                    let (session, over) = (session.clone(), over.clone());
                    tokio::task::spawn_local(task.run(session, over))
                })
                .collect();
            block(&engine, &beat, random, over).await;
            let mut ended = Vec::new();
            for task in spawned {
                ended.push(task.await.expect("task"));
            }
            ended
        });
        for task in ended.expect("runtime") {
            let prefix = vec![task.id as u8];
            world.grow(0, task.model.len() * 109);
            world.add_check(Check { tree: "tasks".to_string(), prefix, records: task.model });
        }
    });
    scope.spawn(move || {
        let _guard = world.stop_at_panic();
        neighbour(world);
    });
}

/// A thread that reads the records of the tasks, whatever these do with their futures.
fn neighbour(world: &World) {
    let (beat, mut random) = (world.beat("neighbour of tasks"), world.random(70));
    let session = world.engine.session().expect("session");
    let tree = world.engine.tree("tasks").expect("tree");
    while !world.is_over() {
        let key = key(random.below(5), random.below(KEYS));
        if let Some(Some(bytes)) = beat.attempt("get", || session.get(&tree, &key)) {
            number_of(&bytes);
        }
    }
}

fn key(task: u64, number: u64) -> Vec<u8> {
    let mut key = vec![task as u8];
    key.extend_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

/// Calls of the engine that block the thread of the tasks.
async fn block(engine: &Engine, beat: &Beat, mut random: Random, over: Rc<dyn Fn() -> bool>) {
    let tree = engine.tree("blocking").expect("tree");
    while !over() {
        let key = random.below(3000).to_be_bytes();
        match random.below(500) {
            0 => _ = beat.attempt("tree_stats in a task", || engine.tree_stats()),
            1..4 => _ = beat.attempt("checkpoint in a task", || engine.checkpoint()),
            4..150 => {
                let transaction = || {
                    let mut txn = engine.begin()?;
                    txn.put(&tree, &key, &[1; 300])?;
                    txn.commit()
                };
                _ = beat.attempt("transaction in a task", transaction);
            }
            _ => {
                let get = || engine.session()?.get(&tree, &key);
                _ = beat.attempt("get in a task", get);
            }
        }
        tokio::time::sleep(Duration::from_millis(random.below(10))).await;
    }
}

/// The operation of a kept future.
#[derive(Clone, Copy)]
enum Step {
    Get,
    Put(u64),
    Remove,
}

type Outcome = wattle::Result<Option<Vec<u8>>>;

struct Kept {
    key: Vec<u8>,
    step: Step,
    future: Pin<Box<dyn Future<Output = Outcome>>>,
}

struct Task {
    id: u64,
    beat: Arc<Beat>,
    tree: Tree,
    random: Random,
    next: u64,
    model: BTreeMap<Vec<u8>, (u64, usize)>,
    kept: VecDeque<Kept>,
}

/// Bytes of each value.
const LEN: usize = 100;

impl Task {
    fn new(world: &World, id: u64) -> Task {
        Task {
            id,
            beat: world.beat(format!("task {id}")),
            tree: world.engine.tree("tasks").expect("tree"),
            random: world.random(50 + id),
            next: 0,
            model: BTreeMap::new(),
            kept: VecDeque::new(),
        }
    }

    async fn run(mut self, session: AsyncSession, over: Rc<dyn Fn() -> bool>) -> Task {
        while !over() {
            let key = key(self.id, self.random.below(KEYS));
            if self.kept.iter().any(|kept| kept.key == key) {
                continue;
            }
            self.next += 1;
            let step = match self.random.below(10) {
                0..4 => Step::Get,
                4..8 => Step::Put(self.next),
                _ => Step::Remove,
            };
            let mut future = self.begin(&session, key.clone(), step);
            // Tasks 0 and 1 keep most futures, the others few.
            let keeps = self.random.below(10) < if self.id < 2 { 5 } else { 1 };
            if keeps && self.kept.len() < KEPT {
                let first = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
                match first {
                    Poll::Ready(outcome) => self.ended(&key, step, outcome),
                    Poll::Pending => self.kept.push_back(Kept { key, step, future }),
                }
            } else {
                let beat = self.beat.clone();
                let at = beat.at("an operation of a task");
                let outcome = future.await;
                drop(at);
                self.ended(&key, step, outcome);
            }
            if self.kept.len() == KEPT {
                tokio::time::sleep(Duration::from_millis(self.random.below(400))).await;
            }
            if self.kept.len() == KEPT || self.random.below(50) == 0 {
                self.end_one(&session).await;
            }
        }
        while !self.kept.is_empty() {
            self.end_one(&session).await;
        }
        self
    }

    fn begin(
        &self,
        session: &AsyncSession,
        key: Vec<u8>,
        step: Step,
    ) -> Pin<Box<dyn Future<Output = Outcome>>> {
        let (session, tree) = (session.clone(), self.tree.clone());
        Box::pin(async move {
            match step {
                Step::Get => session.get(&tree, &key).await,
                Step::Put(number) => {
                    session.put(&tree, &key, &value(number, LEN)).await.map(|()| None)
                }
                Step::Remove => session.remove(&tree, &key).await.map(|_| None),
            }
        })
    }

    /// Finishes or cancels the future that was kept for the longest time.
    async fn end_one(&mut self, session: &AsyncSession) {
        let Some(Kept { key, step, future }) = self.kept.pop_front() else { return };
        let beat = self.beat.clone();
        if self.random.below(2) == 0 {
            let at = beat.at("a future that was kept");
            let outcome = future.await;
            drop(at);
            return self.ended(&key, step, outcome);
        }
        drop(future);
        // Whether a cancelled change was made says the record.
        let found = loop {
            let at = beat.at("get after a cancelled future");
            let found = session.get(&self.tree, &key).await;
            drop(at);
            if let Some(found) = beat.accept("get after a cancelled future", found) {
                break found.map(|bytes| (number_of(&bytes), bytes.len()));
            }
        };
        let before = self.model.get(&key).copied();
        let after = match step {
            Step::Get => before,
            Step::Put(number) => Some((number, LEN)),
            Step::Remove => None,
        };
        assert!(
            found == before || found == after,
            "{key:?}: {found:?}, not {before:?} or {after:?}"
        );
        self.set(&key, found);
    }

    fn ended(&mut self, key: &[u8], step: Step, outcome: Outcome) {
        let Some(found) = self.beat.accept("an operation of a task", outcome) else { return };
        match step {
            Step::Get => {
                let found = found.map(|bytes| (number_of(&bytes), bytes.len()));
                assert_eq!(found, self.model.get(key).copied(), "record {key:?}");
            }
            Step::Put(number) => self.set(key, Some((number, LEN))),
            Step::Remove => self.set(key, None),
        }
    }

    fn set(&mut self, key: &[u8], after: Option<(u64, usize)>) {
        match after {
            Some(value) => self.model.insert(key.to_vec(), value),
            None => self.model.remove(key),
        };
    }
}
