//! A second storage engine: a store over `BTreeMap`s, for the tests of everything above an engine.
//!
//! A store stays in memory after it was closed, under its path, so that opening it again works as
//! it does with files. Tests plant faults: values that come back damaged, an insert that fails,
//! conflicts. Transactions run one after the other, so they are serializable.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use clap::Parser;
use serde_json::Value;
use wattle_workloads::cli::exit::Exit;
use wattle_workloads::cli::record::Recording;
use wattle_workloads::cli::{Cli, Command, run_workload};
use wattle_workloads::driver::backend::{Backend, OpenError};
use wattle_workloads::driver::control::Interrupt;
use wattle_workloads::driver::counters::{BufferCounters, Counters};
use wattle_workloads::driver::crew::by_turns;
use wattle_workloads::driver::options::StoreOptions;
use wattle_workloads::driver::store::{
    Access, Client, Direction, NonePending, Place, Queue, Stop, Store, StoreResult, Turn, Txn,
    TxnResult, one_turn,
};

pub type Map = RwLock<BTreeMap<Vec<u8>, Vec<u8>>>;

/// The shared state of one store.
#[derive(Default)]
pub struct Shared {
    pub trees: Mutex<BTreeMap<String, Arc<Map>>>,
    pub accesses: AtomicU64,
    /// The read with this number, counted from 1, sees a flipped bit; 0 for none.
    pub damaged_read: AtomicU64,
    pub reads: AtomicU64,
    /// The insert with this number fails; 0 for none.
    pub failing_insert: AtomicU64,
    pub inserts: AtomicU64,
    /// A transaction is under way.
    pub busy: AtomicBool,
    /// Every so many changes in transactions, one meets a conflict; 0 for none.
    pub conflict_every: AtomicU64,
    pub changes: AtomicU64,
    /// The options that the store was opened with last.
    pub opened_with: Mutex<Option<StoreOptions>>,
    /// Makes transactions wrong.
    pub distort: Mutex<Option<Distort>>,
}

/// Gets the table, the key, the row before, and the row as it will be, which it may change.
pub type Distort = Box<dyn FnMut(&str, &[u8], Option<&[u8]>, &mut Option<Vec<u8>>) + Send>;

impl Shared {
    fn count_insert(&self) -> StoreResult<()> {
        let number = self.inserts.fetch_add(1, Ordering::Relaxed) + 1;
        if number == self.failing_insert.load(Ordering::Relaxed) {
            return Err("the device is full".into());
        }
        Ok(())
    }
}

#[derive(Clone, Default)]
pub struct MapStore {
    pub shared: Arc<Shared>,
}

/// A client; `tasks` are those of a thread that takes turns.
pub struct MapClient {
    shared: Arc<Shared>,
    takes_turns: bool,
}

impl MapStore {
    fn client(&self, takes_turns: bool) -> MapClient {
        MapClient { shared: Arc::clone(&self.shared), takes_turns }
    }
}

impl Store for MapStore {
    type Table = Arc<Map>;
    type Session = MapClient;
    type Task = MapClient;

    fn table_names(&self) -> StoreResult<Vec<String>> {
        Ok(self.shared.trees.lock().unwrap().keys().cloned().collect())
    }

    fn table(&self, name: &str) -> StoreResult<Arc<Map>> {
        Ok(Arc::clone(self.shared.trees.lock().unwrap().entry(name.to_owned()).or_default()))
    }

    fn fill<P: AsRef<[u8]>>(
        &self,
        table: &Arc<Map>,
        pairs: impl Iterator<Item = (P, P)>,
    ) -> StoreResult<()> {
        if !table.read().unwrap().is_empty() {
            return Err("the table is not empty".into());
        }
        let mut filled = BTreeMap::new();
        for (key, value) in pairs {
            let key = key.as_ref().to_vec();
            if filled.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err("the keys do not ascend".into());
            }
            self.shared.count_insert()?;
            filled.insert(key, value.as_ref().to_vec());
        }
        *table.write().unwrap() = filled;
        Ok(())
    }

    fn session(&self) -> StoreResult<MapClient> {
        Ok(self.client(false))
    }

    fn task_clients(&self, tasks: usize) -> StoreResult<Vec<MapClient>> {
        Ok((0..tasks).map(|_| self.client(true)).collect())
    }

    fn run_tasks<F: Future>(&self, _in_flight: usize, tasks: F) -> StoreResult<F::Output> {
        Ok(by_turns(tasks))
    }

    fn counters(&self) -> Counters {
        let hits = self.shared.accesses.load(Ordering::Relaxed);
        let buffer = BufferCounters { hits, ..BufferCounters::default() };
        Counters { buffer, ..Counters::default() }
    }

    fn file_bytes(&self) -> u64 {
        0
    }

    fn close(self) -> StoreResult<()> {
        Ok(())
    }
}

impl MapClient {
    async fn access(&self) {
        let number = self.shared.accesses.fetch_add(1, Ordering::Relaxed);
        // Every seventh access is a page fault of sorts: other tasks go first.
        if self.takes_turns && number.is_multiple_of(7) {
            one_turn().await;
        }
    }
}

/// A table, a key of it, and its value before a change.
type Before = (Arc<Map>, Vec<u8>, Option<Vec<u8>>);

/// A transaction; no other one begins until it ends.
pub struct MapTxn<'a> {
    client: &'a MapClient,
    access: Access,
    /// The value before each change.
    undo: Vec<Before>,
    /// It met a conflict, and may only be aborted.
    stopped: bool,
}

impl MapTxn<'_> {
    /// Before a change of `key`.
    async fn change(&mut self, table: &Arc<Map>, key: &[u8]) -> TxnResult<()> {
        self.client.access().await;
        assert!(
            self.access == Access::ReadWrite,
            "a transaction that only reads changes something"
        );
        assert!(!self.stopped, "a transaction goes on after a conflict");
        let shared = &self.client.shared;
        let every = shared.conflict_every.load(Ordering::Relaxed);
        let number = shared.changes.fetch_add(1, Ordering::Relaxed) + 1;
        if every > 0 && number.is_multiple_of(every) {
            self.stopped = true;
            return Err(Stop::Conflict);
        }
        let before = table.read().unwrap().get(key).cloned();
        self.undo.push((Arc::clone(table), key.to_vec(), before));
        Ok(())
    }

    /// After a change: makes it wrong, if that is asked for.
    fn distort(&self, table: &Arc<Map>, key: &[u8]) {
        let mut distort = self.client.shared.distort.lock().unwrap();
        let Some(distort) = distort.as_mut() else { return };
        let trees = self.client.shared.trees.lock().unwrap();
        let name = trees.iter().find(|(_, tree)| Arc::ptr_eq(tree, table)).map(|(name, _)| name);
        let before = self.undo.last().and_then(|(_, _, before)| before.as_deref());
        let mut map = table.write().unwrap();
        let mut after = map.get(key).cloned();
        distort(name.unwrap(), key, before, &mut after);
        match after {
            Some(after) => map.insert(key.to_vec(), after),
            None => map.remove(key),
        };
    }
}

impl Drop for MapTxn<'_> {
    fn drop(&mut self) {
        for (table, key, before) in self.undo.drain(..).rev() {
            // A worker that panics rolls back as well.
            let mut map = table.write().unwrap_or_else(PoisonError::into_inner);
            match before {
                Some(before) => map.insert(key, before),
                None => map.remove(&key),
            };
        }
        self.client.shared.busy.store(false, Ordering::Release);
    }
}

impl Txn for MapTxn<'_> {
    type Table = Arc<Map>;

    async fn read<R>(
        &self,
        table: &Arc<Map>,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> TxnResult<Option<R>> {
        self.client.read(table, key, look).await.map_err(Stop::Failed)
    }

    async fn prefetch<K: AsRef<[u8]>>(&self, _: &[(&Arc<Map>, K)]) -> TxnResult<()> {
        Ok(())
    }

    async fn read_many<K: AsRef<[u8]>>(
        &self,
        table: &Arc<Map>,
        keys: &[K],
        mut look: impl FnMut(usize, Option<&[u8]>),
    ) -> TxnResult<()> {
        // In an order that callers must not rely on.
        for (number, key) in keys.iter().enumerate().rev() {
            let found = self.read(table, key.as_ref(), |value| look(number, Some(value))).await?;
            if found.is_none() {
                look(number, None);
            }
        }
        Ok(())
    }

    async fn insert(&mut self, table: &Arc<Map>, key: &[u8], value: &[u8]) -> TxnResult<()> {
        self.change(table, key).await?;
        self.client.insert(table, key, value).await.map_err(Stop::Failed)?;
        self.distort(table, key);
        Ok(())
    }

    async fn insert_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        table: &Arc<Map>,
        pairs: &[(K, V)],
    ) -> TxnResult<()> {
        // The first that fails ends the transactions of this store anyway.
        for (key, value) in pairs {
            self.insert(table, key.as_ref(), value.as_ref()).await?;
        }
        Ok(())
    }

    async fn modify_many<K: AsRef<[u8]>>(
        &mut self,
        table: &Arc<Map>,
        keys: &[K],
        mut change: impl FnMut(usize, &mut [u8]),
    ) -> TxnResult<usize> {
        let mut found = 0;
        for (number, key) in keys.iter().enumerate() {
            let change = |value: &mut [u8]| change(number, value);
            found += usize::from(self.modify(table, key.as_ref(), change).await?);
        }
        Ok(found)
    }

    async fn put(&mut self, table: &Arc<Map>, key: &[u8], value: &[u8]) -> TxnResult<()> {
        self.change(table, key).await?;
        self.client.put(table, key, value).await.map_err(Stop::Failed)
    }

    async fn update(&mut self, table: &Arc<Map>, key: &[u8], value: &[u8]) -> TxnResult<bool> {
        self.change(table, key).await?;
        let mut map = table.write().unwrap();
        Ok(map.get_mut(key).map(|old| *old = value.to_vec()).is_some())
    }

    async fn modify(
        &mut self,
        table: &Arc<Map>,
        key: &[u8],
        change: impl FnMut(&mut [u8]),
    ) -> TxnResult<bool> {
        self.change(table, key).await?;
        let found = self.client.modify(table, key, change).await.map_err(Stop::Failed)?;
        self.distort(table, key);
        Ok(found)
    }

    async fn remove(&mut self, table: &Arc<Map>, key: &[u8]) -> TxnResult<bool> {
        self.change(table, key).await?;
        let found = table.write().unwrap().remove(key).is_some();
        self.distort(table, key);
        Ok(found)
    }

    async fn scan(
        &self,
        table: &Arc<Map>,
        low: &[u8],
        high: &[u8],
        direction: Direction,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> TxnResult<()> {
        self.client.access().await;
        let map = table.read().unwrap();
        let mut visit = |(key, value): (&Vec<u8>, &Vec<u8>)| visit(key, value);
        let mut pairs = map.range(low.to_vec()..high.to_vec());
        let _ended = match direction {
            Direction::Forward => pairs.try_for_each(&mut visit),
            Direction::Backward => pairs.rev().try_for_each(&mut visit),
        };
        Ok(())
    }

    async fn commit_in_turn(mut self, turn: &mut Option<Turn<'_>>) -> TxnResult<()> {
        assert!(!self.stopped, "a transaction commits after a conflict");
        self.undo.clear();
        *turn = None;
        Ok(())
    }

    async fn abort(self) -> StoreResult<()> {
        Ok(())
    }
}

impl Client for MapClient {
    type Table = Arc<Map>;
    type Pending = NonePending;
    type Txn<'a> = MapTxn<'a>;

    async fn begin(&self, access: Access) -> StoreResult<MapTxn<'_>> {
        let taken = || self.shared.busy.swap(true, Ordering::Acquire);
        while taken() {
            self.pause().await;
        }
        Ok(MapTxn { client: self, access, undo: Vec::new(), stopped: false })
    }

    fn take_pending(&self) -> Option<NonePending> {
        None
    }

    async fn read<R>(
        &self,
        table: &Arc<Map>,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> StoreResult<Option<R>> {
        self.access().await;
        let number = self.shared.reads.fetch_add(1, Ordering::Relaxed) + 1;
        let damaged = number == self.shared.damaged_read.load(Ordering::Relaxed);
        Ok(table.read().unwrap().get(key).map(|value| {
            let mut value = value.clone();
            if damaged && let Some(last) = value.last_mut() {
                *last ^= 1;
            }
            look(&value)
        }))
    }

    async fn insert(&self, table: &Arc<Map>, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.access().await;
        self.shared.count_insert()?;
        let mut map = table.write().unwrap();
        if map.contains_key(key) {
            return Err("the key exists".into());
        }
        map.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    async fn put(&self, table: &Arc<Map>, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.access().await;
        table.write().unwrap().insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    async fn update(&self, table: &Arc<Map>, key: &[u8], value: &[u8]) -> StoreResult<bool> {
        self.modify(table, key, |old| old.copy_from_slice(value)).await
    }

    async fn modify(
        &self,
        table: &Arc<Map>,
        key: &[u8],
        mut change: impl FnMut(&mut [u8]),
    ) -> StoreResult<bool> {
        self.access().await;
        Ok(table.write().unwrap().get_mut(key).map(|value| change(value)).is_some())
    }

    async fn scan(
        &self,
        table: &Arc<Map>,
        start: &[u8],
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> StoreResult<usize> {
        self.access().await;
        let map = table.read().unwrap();
        let pairs = map.range(start.to_vec()..).take(limit);
        Ok(pairs.map(|(key, value)| visit(key, value)).count())
    }

    fn is_paging(&self) -> bool {
        self.takes_turns
    }

    async fn pause(&self) {
        if self.takes_turns {
            one_turn().await;
        } else {
            std::thread::yield_now();
        }
    }

    async fn enter<'q>(&self, queue: &'q Queue) -> Place<'q> {
        if self.takes_turns { queue.enter().await } else { queue.blocking_enter() }
    }

    async fn turn<'q>(&self, place: Place<'q>) -> Turn<'q> {
        if self.takes_turns { place.turn().await } else { place.blocking_turn() }
    }
}

/// The engine: it needs no setting of its own.
#[derive(Clone, Copy, Debug)]
pub struct Maps;

impl Backend for Maps {
    type Store = MapStore;

    const NAME: &'static str = "maps";
    const ISOLATION: &'static str = "serializable";

    fn check(&self, _options: &StoreOptions) -> Result<(), OpenError> {
        Ok(())
    }

    fn open(&self, options: &StoreOptions) -> Result<MapStore, OpenError> {
        let failed = |error: std::io::Error| OpenError::Failed(error.to_string());
        std::fs::create_dir_all(&options.path).map_err(failed)?;
        let store = store_at(&options.path);
        *store.shared.opened_with.lock().unwrap() = Some(options.clone());
        Ok(store)
    }
}

/// Runs `wattle` with `arguments` on maps, until `interrupt` is raised; `DIR` in them stands for
/// `folder`. Returns how it ended, and the JSON result that it printed, if any.
pub fn over_maps(
    arguments: &str,
    folder: &Path,
    interrupt: &Interrupt,
) -> (Result<(), Exit>, Value) {
    let arguments = arguments.replace("DIR", folder.to_str().unwrap());
    let words = ["wattle"].into_iter().chain(arguments.split_whitespace());
    let cli = Cli::try_parse_from(words.chain(["--format", "json"])).unwrap();
    let Some(Command::Workload(workload)) = cli.command else {
        panic!("{arguments} runs no workload")
    };
    let (mut out, recording) = (Vec::new(), Recording::new(workload.run_flags()));
    let line = arguments.clone();
    let end = run_workload(&workload, line, &Maps, &recording, interrupt, &mut out);
    let result = if out.is_empty() { Value::Null } else { serde_json::from_slice(&out).unwrap() };
    (end, result)
}

/// All stores that were opened, by path.
static STORES: Mutex<Option<HashMap<PathBuf, MapStore>>> = Mutex::new(None);

/// The store at `path`, to inspect or damage it.
pub fn store_at(path: &Path) -> MapStore {
    STORES.lock().unwrap().get_or_insert_default().entry(path.to_owned()).or_default().clone()
}

/// Puts a copy of everything in `store` at `path`.
#[allow(dead_code, reason = "some of the tests that share this file need it")]
pub fn copy_to(path: &Path, store: &MapStore) -> MapStore {
    let copy = MapStore::default();
    let copied = |(name, map): (&String, &Arc<Map>)| {
        (name.clone(), Arc::new(RwLock::new(map.read().unwrap().clone())))
    };
    *copy.shared.trees.lock().unwrap() =
        store.shared.trees.lock().unwrap().iter().map(copied).collect();
    STORES.lock().unwrap().get_or_insert_default().insert(path.to_owned(), copy.clone());
    copy
}
