//! The drivers of YCSB and TPC-C on any engine: their traits ([`Store`], [`Client`], [`Txn`]) over
//! a small interface that each engine implements ([`Peer`], [`PeerTxn`]).
//!
//! An engine gives transactions; a call outside of one is a transaction of its own, except where
//! the engine has a cheaper way to read one record. Clients are blocking, so no future ever waits.

use std::{
    fs, io,
    marker::PhantomData,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};
use wattle_workloads::driver::{
    backend::{Backend, OpenError},
    counters::Counters,
    crew::by_turns,
    options::{Durability, StoreOptions},
    store::{
        Access, Client, Direction, NonePending, Place, Queue, Stop, Store, StoreError, StoreResult,
        Turn, Txn, TxnResult,
    },
};

/// Pairs of one transaction of a load.
const FILL_BATCH: usize = 10_000;

/// An engine with an open store.
pub trait Peer: Send + Sync + Sized + 'static {
    /// Its name.
    const NAME: &'static str;
    /// Isolation of its transactions.
    const ISOLATION: &'static str;
    /// A table.
    type Table: Sync;
    /// A transaction.
    type Txn<'a>: PeerTxn<Table = Self::Table>
    where
        Self: 'a;

    /// Opens or creates the store in an existing directory.
    fn open(options: &StoreOptions) -> StoreResult<Self>;
    /// The names of all tables.
    fn table_names(&self) -> StoreResult<Vec<String>>;
    /// A table, created if absent.
    fn table(&self, name: &str) -> StoreResult<Self::Table>;
    /// Begins a transaction.
    fn begin(&self, access: Access) -> StoreResult<Self::Txn<'_>>;
    /// Reads the newest version of a record.
    fn get<R>(
        &self,
        table: &Self::Table,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> StoreResult<Option<R>> {
        self.begin(Access::ReadOnly)?.get(table, key, look)
    }
    /// Makes all commits durable.
    fn sync(&self) -> StoreResult<()>;
    /// Closes the store.
    fn close(self) -> StoreResult<()>;
}

/// Gets the pairs of a scan, until it breaks.
pub type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// A transaction of an engine. It rolls back if it is dropped.
pub trait PeerTxn {
    /// A table.
    type Table;

    /// Calls `look` with the value of `key`.
    fn get<R>(
        &self,
        table: &Self::Table,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> StoreResult<Option<R>>;
    /// Stores a pair.
    fn put(&mut self, table: &Self::Table, key: &[u8], value: &[u8]) -> TxnResult<()>;
    /// Removes a pair that is there.
    fn remove(&mut self, table: &Self::Table, key: &[u8]) -> TxnResult<()>;
    /// Calls `visit` with the pairs from `low` on, and below `high` if there is one, until it
    /// breaks.
    fn scan(
        &self,
        table: &Self::Table,
        low: &[u8],
        high: Option<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> StoreResult<()>;
    /// Commits.
    fn commit(self) -> TxnResult<()>;
}

/// A failure in a transaction that a retry would not help.
pub fn failed(error: impl Into<StoreError>) -> Stop {
    Stop::Failed(error.into())
}

/// Opens stores of an engine.
pub struct PeerBackend<P>(PhantomData<P>);

impl<P> Default for PeerBackend<P> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<P: Peer> Backend for PeerBackend<P> {
    type Store = PeerStore<P>;

    const NAME: &'static str = P::NAME;
    const ISOLATION: &'static str = P::ISOLATION;

    /// The engines show a commit when it is as durable as it will be, so both values of
    /// [`StoreOptions::reads`] mean the same.
    fn check(&self, options: &StoreOptions) -> Result<(), OpenError> {
        let refused = |what: &str| Err(OpenError::Refused(format!("{} has no {what}", P::NAME)));
        match options {
            _ if options.tasks > 0 => refused("asynchronous clients (--tasks)"),
            _ if options.durability == Durability::Group => refused("commits with tickets (group)"),
            _ if !options.log => refused("switch for its log"),
            _ => Ok(()),
        }
    }

    fn open(&self, options: &StoreOptions) -> Result<PeerStore<P>, OpenError> {
        self.check(options)?;
        let opened = fs::create_dir_all(&options.path).map_err(StoreError::from);
        let opened = opened.and_then(|()| P::open(options));
        let peer = opened.map_err(|error| {
            OpenError::Failed(format!("opening {}: {error}", options.path.display()))
        })?;
        Ok(PeerStore { peer: Arc::new(peer), directory: options.path.clone() })
    }
}

/// An open store.
pub struct PeerStore<P> {
    peer: Arc<P>,
    directory: PathBuf,
}

/// Bytes of the blocks of all files below a directory.
fn file_bytes(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        bytes += match kind.is_dir() {
            true => file_bytes(&entry.path())?,
            false => std::os::unix::fs::MetadataExt::blocks(&entry.metadata()?) * 512,
        };
    }
    Ok(bytes)
}

impl<P: Peer> Store for PeerStore<P> {
    type Table = P::Table;
    type Session = PeerClient<P>;
    type Task = PeerClient<P>;

    fn table_names(&self) -> StoreResult<Vec<String>> {
        self.peer.table_names()
    }

    fn table(&self, name: &str) -> StoreResult<P::Table> {
        self.peer.table(name)
    }

    fn fill<B: AsRef<[u8]>>(
        &self,
        table: &P::Table,
        pairs: impl Iterator<Item = (B, B)>,
    ) -> StoreResult<()> {
        let mut pairs = pairs.peekable();
        while pairs.peek().is_some() {
            let mut txn = self.peer.begin(Access::ReadWrite)?;
            for (key, value) in pairs.by_ref().take(FILL_BATCH) {
                txn.put(table, key.as_ref(), value.as_ref()).map_err(of_stop)?;
            }
            txn.commit().map_err(of_stop)?;
        }
        self.peer.sync()
    }

    fn session(&self) -> StoreResult<PeerClient<P>> {
        Ok(PeerClient { peer: self.peer.clone() })
    }

    /// For loads, which always run in tasks. They block their thread, so one works at a time.
    fn task_clients(&self, tasks: usize) -> StoreResult<Vec<PeerClient<P>>> {
        (0..tasks).map(|_| self.session()).collect()
    }

    fn run_tasks<F: Future>(&self, _: usize, tasks: F) -> StoreResult<F::Output> {
        Ok(by_turns(tasks))
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn file_bytes(&self) -> u64 {
        file_bytes(&self.directory).unwrap_or(0)
    }

    fn close(self) -> StoreResult<()> {
        Arc::into_inner(self.peer).ok_or("a client of the store is still there")?.close()
    }
}

fn of_stop(stop: Stop) -> StoreError {
    match stop {
        Stop::Conflict => "a conflict with another transaction".into(),
        Stop::Failed(error) => error,
    }
}

/// A blocking client.
pub struct PeerClient<P> {
    peer: Arc<P>,
}

impl<P: Peer> PeerClient<P> {
    /// Runs `change` in a transaction of its own, again after each conflict.
    fn changed<R>(
        &self,
        mut change: impl FnMut(&mut P::Txn<'_>) -> TxnResult<R>,
    ) -> StoreResult<R> {
        loop {
            let mut txn = self.peer.begin(Access::ReadWrite)?;
            let done = change(&mut txn).and_then(|done| txn.commit().map(|()| done));
            match done {
                Ok(done) => return Ok(done),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Conflict) => {}
            }
        }
    }
}

impl<P: Peer> Client for PeerClient<P> {
    type Table = P::Table;
    type Pending = NonePending;
    type Txn<'a> = OpenTxn<P::Txn<'a>>;

    fn take_pending(&self) -> Option<NonePending> {
        None
    }

    async fn begin(&self, access: Access) -> StoreResult<OpenTxn<P::Txn<'_>>> {
        Ok(OpenTxn(self.peer.begin(access)?))
    }

    async fn read<R>(
        &self,
        table: &P::Table,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> StoreResult<Option<R>> {
        self.peer.get(table, key, look)
    }

    async fn insert(&self, table: &P::Table, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.changed(|txn| insert(txn, table, key, value))
    }

    async fn put(&self, table: &P::Table, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.changed(|txn| txn.put(table, key, value))
    }

    async fn update(&self, table: &P::Table, key: &[u8], value: &[u8]) -> StoreResult<bool> {
        self.changed(|txn| update(txn, table, key, value))
    }

    async fn modify(
        &self,
        table: &P::Table,
        key: &[u8],
        mut change: impl FnMut(&mut [u8]),
    ) -> StoreResult<bool> {
        self.changed(|txn| modify(txn, table, key, &mut change))
    }

    async fn scan(
        &self,
        table: &P::Table,
        start: &[u8],
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> StoreResult<usize> {
        let mut pairs = 0;
        if limit == 0 {
            return Ok(0);
        }
        let txn = self.peer.begin(Access::ReadOnly)?;
        txn.scan(table, start, None, Direction::Forward, &mut |key, value| {
            visit(key, value);
            pairs += 1;
            if pairs == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(pairs)
    }

    fn is_paging(&self) -> bool {
        false
    }

    async fn pause(&self) {
        std::thread::yield_now();
    }

    async fn enter<'q>(&self, queue: &'q Queue) -> Place<'q> {
        queue.blocking_enter()
    }

    async fn turn<'q>(&self, place: Place<'q>) -> Turn<'q> {
        place.blocking_turn()
    }
}

fn insert<T: PeerTxn>(txn: &mut T, table: &T::Table, key: &[u8], value: &[u8]) -> TxnResult<()> {
    if txn.get(table, key, |_| ()).map_err(Stop::Failed)?.is_some() {
        return Err(failed("the key exists"));
    }
    txn.put(table, key, value)
}

fn update<T: PeerTxn>(txn: &mut T, table: &T::Table, key: &[u8], value: &[u8]) -> TxnResult<bool> {
    if txn.get(table, key, |_| ()).map_err(Stop::Failed)?.is_none() {
        return Ok(false);
    }
    txn.put(table, key, value).map(|()| true)
}

fn modify<T: PeerTxn>(
    txn: &mut T,
    table: &T::Table,
    key: &[u8],
    change: &mut impl FnMut(&mut [u8]),
) -> TxnResult<bool> {
    let value = txn.get(table, key, <[u8]>::to_vec).map_err(Stop::Failed)?;
    let Some(mut value) = value else { return Ok(false) };
    change(&mut value);
    txn.put(table, key, &value).map(|()| true)
}

/// A transaction of a client.
pub struct OpenTxn<T>(T);

impl<T: PeerTxn> Txn for OpenTxn<T> {
    type Table = T::Table;

    async fn read<R>(
        &self,
        table: &T::Table,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> TxnResult<Option<R>> {
        self.0.get(table, key, look).map_err(Stop::Failed)
    }

    async fn read_many<K: AsRef<[u8]>>(
        &self,
        table: &T::Table,
        keys: &[K],
        mut look: impl FnMut(usize, Option<&[u8]>),
    ) -> TxnResult<()> {
        for (index, key) in keys.iter().enumerate() {
            let found = self.0.get(table, key.as_ref(), |value| look(index, Some(value)));
            if found.map_err(Stop::Failed)?.is_none() {
                look(index, None);
            }
        }
        Ok(())
    }

    async fn prefetch<K: AsRef<[u8]>>(&self, _: &[(&T::Table, K)]) -> TxnResult<()> {
        Ok(())
    }

    async fn insert(&mut self, table: &T::Table, key: &[u8], value: &[u8]) -> TxnResult<()> {
        insert(&mut self.0, table, key, value)
    }

    async fn put(&mut self, table: &T::Table, key: &[u8], value: &[u8]) -> TxnResult<()> {
        self.0.put(table, key, value)
    }

    async fn update(&mut self, table: &T::Table, key: &[u8], value: &[u8]) -> TxnResult<bool> {
        update(&mut self.0, table, key, value)
    }

    async fn modify(
        &mut self,
        table: &T::Table,
        key: &[u8],
        mut change: impl FnMut(&mut [u8]),
    ) -> TxnResult<bool> {
        modify(&mut self.0, table, key, &mut change)
    }

    async fn insert_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        table: &T::Table,
        pairs: &[(K, V)],
    ) -> TxnResult<()> {
        pairs
            .iter()
            .try_for_each(|(key, value)| insert(&mut self.0, table, key.as_ref(), value.as_ref()))
    }

    async fn modify_many<K: AsRef<[u8]>>(
        &mut self,
        table: &T::Table,
        keys: &[K],
        mut change: impl FnMut(usize, &mut [u8]),
    ) -> TxnResult<usize> {
        let mut existing = 0;
        for (index, key) in keys.iter().enumerate() {
            let mut change = |value: &mut [u8]| change(index, value);
            existing += usize::from(modify(&mut self.0, table, key.as_ref(), &mut change)?);
        }
        Ok(existing)
    }

    async fn remove(&mut self, table: &T::Table, key: &[u8]) -> TxnResult<bool> {
        if self.0.get(table, key, |_| ()).map_err(Stop::Failed)?.is_none() {
            return Ok(false);
        }
        self.0.remove(table, key).map(|()| true)
    }

    async fn scan(
        &self,
        table: &T::Table,
        low: &[u8],
        high: &[u8],
        direction: Direction,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> TxnResult<()> {
        self.0.scan(table, low, Some(high), direction, &mut visit).map_err(Stop::Failed)
    }

    async fn commit_in_turn(self, turn: &mut Option<Turn<'_>>) -> TxnResult<()> {
        self.0.commit()?;
        *turn = None;
        Ok(())
    }

    async fn abort(self) -> StoreResult<()> {
        Ok(())
    }
}
