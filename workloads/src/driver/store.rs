//! The store, as workloads see it.
//!
//! A workload is written once, against [`Client`], and runs in both modes. A blocking session
//! answers every call at once, so its futures never wait and compile to straight code. An
//! asynchronous session lets other tasks run while it waits for a page. [`crate::adapter`]
//! implements these traits for Wattle, and the tests implement them over `BTreeMap`s.

use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use super::counters::Counters;

/// The order of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// An error of the store: one sentence for the user.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// A result of the store.
pub type StoreResult<T> = Result<T, StoreError>;

/// An open store, shared by all threads.
pub trait Store: Sync {
    /// An ordered table of key-value pairs.
    type Table: Sync;
    /// A blocking client; one for each thread.
    type Session: Client<Table = Self::Table>;
    /// An asynchronous client; one for each task.
    type Task: Client<Table = Self::Table>;

    /// The names of all tables.
    fn table_names(&self) -> StoreResult<Vec<String>>;
    /// The table `name`, created if absent.
    fn table(&self, name: &str) -> StoreResult<Self::Table>;
    /// Fills the empty `table` with pairs whose keys ascend strictly. Durable when it returns.
    fn fill<P: AsRef<[u8]>>(
        &self,
        table: &Self::Table,
        pairs: impl Iterator<Item = (P, P)>,
    ) -> StoreResult<()>;
    /// A blocking client for this thread.
    fn session(&self) -> StoreResult<Self::Session>;
    /// Asynchronous clients for `tasks` tasks of this thread; called inside [`Store::run_tasks`].
    fn task_clients(&self, tasks: usize) -> StoreResult<Vec<Self::Task>>;
    /// Runs `tasks` to completion on this thread, in a runtime for up to `in_flight` operations.
    fn run_tasks<F: Future>(&self, in_flight: usize, tasks: F) -> StoreResult<F::Output>;
    /// Counters of the store since it was opened.
    fn counters(&self) -> Counters;
    /// Bytes of its files.
    fn file_bytes(&self) -> u64;
    /// Writes all changed data and closes the store.
    fn close(self) -> StoreResult<()>;
}

/// A blocking or asynchronous client of a store. Each call is auto-committed; [`Client::begin`]
/// begins a transaction of several calls.
///
/// `change` may be called more than once, and only the last call counts; `visit` sees each pair
/// once. An asynchronous client lets the other tasks of its thread run now and then, even if it
/// never has to wait.
#[allow(async_fn_in_trait, reason = "clients stay on their thread, so futures need not be Send")]
pub trait Client {
    /// The table type of the store.
    type Table;
    /// A commit that is not durable yet.
    type Pending: Pending;
    /// A transaction of several calls.
    type Txn<'a>: Txn<Table = Self::Table>
    where
        Self: 'a;

    /// The commit of the last call, or of the last transaction, if that returned before its commit
    /// was durable. Only clients with pipelined commits return one.
    fn take_pending(&self) -> Option<Self::Pending>;

    /// Begins a transaction with snapshot isolation. A client has one at a time.
    async fn begin(&self, access: Access) -> StoreResult<Self::Txn<'_>>;

    /// Calls `look` with the value of `key`; `None` if there is none.
    async fn read<R>(
        &self,
        table: &Self::Table,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> StoreResult<Option<R>>;
    /// Stores a new pair; an error if the key exists.
    async fn insert(&self, table: &Self::Table, key: &[u8], value: &[u8]) -> StoreResult<()>;
    /// Stores a pair, whether or not the key exists.
    async fn put(&self, table: &Self::Table, key: &[u8], value: &[u8]) -> StoreResult<()>;
    /// Replaces the value of `key`; `false` if there is none.
    async fn update(&self, table: &Self::Table, key: &[u8], value: &[u8]) -> StoreResult<bool>;
    /// Changes the value of `key` in place, keeping its size; `false` if there is none.
    async fn modify(
        &self,
        table: &Self::Table,
        key: &[u8],
        change: impl FnMut(&mut [u8]),
    ) -> StoreResult<bool>;
    /// Calls `visit` with up to `limit` pairs in key order, the first at or after `start`.
    /// Returns how many there were.
    async fn scan(
        &self,
        table: &Self::Table,
        start: &[u8],
        limit: usize,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> StoreResult<usize>;
    /// Whether calls may have to wait for pages: the data are larger than memory, or memory has
    /// just become full. Only `--hints prefetch` asks.
    fn is_paging(&self) -> bool;
    /// Yields to the other tasks of this thread, or, for a blocking client, to other threads.
    async fn pause(&self);
    /// Waits for one of the places of a queue.
    async fn enter<'q>(&self, queue: &'q Queue) -> Place<'q>;
    /// Waits for the turn of a place. The next turn begins when this one is dropped.
    async fn turn<'q>(&self, place: Place<'q>) -> Turn<'q>;
}

/// Places of a [`Queue`]: one worker prepares its turn for about as long as three turns take.
const PLACES: usize = 4;

/// A queue in which workers wait for each other: first for one of [`PLACES`] places, in the order
/// of their arrival, and then for their turn, which they prepare meanwhile.
///
/// It has a lock for each place instead of a semaphore, because threads without a runtime wait here
/// as well.
#[derive(Debug, Default)]
pub struct Queue {
    tickets: AtomicUsize,
    places: [tokio::sync::Mutex<()>; PLACES],
    taken: AtomicUsize,
    turn: tokio::sync::Mutex<()>,
}

/// The place of one worker in a [`Queue`], until its turn ends.
#[derive(Debug)]
pub struct Place<'q> {
    queue: &'q Queue,
    ahead: usize,
    #[expect(dead_code, reason = "a lock that is held")]
    place: tokio::sync::MutexGuard<'q, ()>,
}

/// The turn of one worker in a [`Queue`].
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Turn<'q>(
    #[expect(dead_code, reason = "a lock that is held")] tokio::sync::MutexGuard<'q, ()>,
    #[expect(dead_code, reason = "a place that is held")] Place<'q>,
);

impl Queue {
    /// The place of the next worker: places are given out round-robin.
    fn next(&self) -> &tokio::sync::Mutex<()> {
        &self.places[self.tickets.fetch_add(1, Ordering::Relaxed) % PLACES]
    }

    fn take<'q>(&'q self, place: tokio::sync::MutexGuard<'q, ()>) -> Place<'q> {
        Place { queue: self, ahead: self.taken.fetch_add(1, Ordering::Relaxed), place }
    }

    /// Waits for a place, without blocking the thread. Turns begin in the order in which they are
    /// asked for, which may differ from the order of places.
    pub async fn enter(&self) -> Place<'_> {
        self.take(self.next().lock().await)
    }

    /// Like [`Queue::enter`], but blocks the thread, which must run no tasks.
    pub fn blocking_enter(&self) -> Place<'_> {
        self.take(self.next().blocking_lock())
    }
}

impl<'q> Place<'q> {
    /// Number of workers that had a place before this one: 3 at most, one of which has its turn.
    pub fn ahead(&self) -> usize {
        self.ahead
    }

    /// Waits for the turn, without blocking the thread.
    pub async fn turn(self) -> Turn<'q> {
        Turn(self.queue.turn.lock().await, self)
    }

    /// Waits for the turn, and blocks the thread, which must run no tasks.
    pub fn blocking_turn(self) -> Turn<'q> {
        Turn(self.queue.turn.blocking_lock(), self)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.queue.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The kind of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads the newest commits, and may change records.
    ReadWrite,
    /// It only reads. The commits that it has read are durable when its own commit returns.
    ReadOnly,
}

/// Why a call in a transaction failed.
#[derive(Debug)]
pub enum Stop {
    /// Another transaction changed the record first, or the snapshot was cancelled. The transaction
    /// can only be aborted, and tried again.
    Conflict,
    /// The store failed; a retry would not help.
    Failed(StoreError),
}

/// A result in a transaction.
pub type TxnResult<T> = Result<T, Stop>;

/// A transaction. It reads from one consistent snapshot, plus its own changes. It becomes visible
/// and durable as a whole or not at all. If it is dropped without an end it is rolled back.
///
/// As with [`Client`], `change` may be called more than once, and only the last call counts.
#[allow(async_fn_in_trait, reason = "clients stay on their thread, so futures need not be Send")]
pub trait Txn {
    /// The table type of the store.
    type Table;

    /// Calls `look` with the value of `key`; `None` if there is none.
    async fn read<R>(
        &self,
        table: &Self::Table,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> TxnResult<Option<R>>;
    /// Looks up many keys at once; calls `look` with the index of each key and its value, in any
    /// order.
    async fn read_many<K: AsRef<[u8]>>(
        &self,
        table: &Self::Table,
        keys: &[K],
        look: impl FnMut(usize, Option<&[u8]>),
    ) -> TxnResult<()>;
    /// Prefetches pairs of any tables that will be looked up or changed next. A store may ignore
    /// this.
    async fn prefetch<K: AsRef<[u8]>>(&self, pairs: &[(&Self::Table, K)]) -> TxnResult<()>;
    /// Stores a new pair; [`Stop::Failed`] if the key exists.
    async fn insert(&mut self, table: &Self::Table, key: &[u8], value: &[u8]) -> TxnResult<()>;
    /// Stores a pair, whether or not the key exists.
    async fn put(&mut self, table: &Self::Table, key: &[u8], value: &[u8]) -> TxnResult<()>;
    /// Replaces the value of `key` by one of any size; `false` if there is none.
    async fn update(&mut self, table: &Self::Table, key: &[u8], value: &[u8]) -> TxnResult<bool>;
    /// Reads and changes the value of `key` in place, in one step, keeping its size; `false` if
    /// there is none.
    async fn modify(
        &mut self,
        table: &Self::Table,
        key: &[u8],
        change: impl FnMut(&mut [u8]),
    ) -> TxnResult<bool>;
    /// Stores new pairs, all or none; [`Stop::Failed`] if a key exists.
    async fn insert_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        table: &Self::Table,
        pairs: &[(K, V)],
    ) -> TxnResult<()>;
    /// Like [`Txn::modify`] for many keys at once, with the index of each; returns how many exist.
    async fn modify_many<K: AsRef<[u8]>>(
        &mut self,
        table: &Self::Table,
        keys: &[K],
        change: impl FnMut(usize, &mut [u8]),
    ) -> TxnResult<usize>;
    /// Removes a pair; `false` if there is none.
    async fn remove(&mut self, table: &Self::Table, key: &[u8]) -> TxnResult<bool>;
    /// Calls `visit` with the pairs from `low` on and below `high`, in `direction`, until it
    /// breaks.
    async fn scan(
        &self,
        table: &Self::Table,
        low: &[u8],
        high: &[u8],
        direction: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> TxnResult<()>;
    /// Commits. With pipelined commits this returns before the commit is durable, and
    /// [`Client::take_pending`] returns it. Otherwise the commit is durable when this returns, if
    /// the durability of the store asks for that.
    #[inline]
    async fn commit(self) -> TxnResult<()>
    where
        Self: Sized,
    {
        self.commit_in_turn(&mut None).await
    }
    /// Commits, and ends the turn as soon as the changes are visible, which may be before they are
    /// durable. If the commit fails the turn goes on.
    async fn commit_in_turn(self, turn: &mut Option<Turn<'_>>) -> TxnResult<()>;
    /// Rolls back.
    async fn abort(self) -> StoreResult<()>;
}

/// A commit that may not be durable yet.
#[allow(async_fn_in_trait, reason = "commits stay on their thread, so futures need not be Send")]
pub trait Pending {
    /// Whether it is durable.
    fn is_durable(&self) -> bool;
    /// Waits until it is durable. A blocking client blocks the thread.
    async fn wait(self) -> StoreResult<()>;
}

/// For clients without pipelined commits.
#[derive(Debug)]
pub enum NonePending {}

impl Pending for NonePending {
    fn is_durable(&self) -> bool {
        match *self {}
    }

    async fn wait(self) -> StoreResult<()> {
        match self {}
    }
}

/// Suspends the calling task once, so that every other task that is ready runs first.
pub async fn one_turn() {
    let mut waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::Queue;
    use crate::driver::crew::at_once;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn four_at_most_have_a_place_in_a_queue_and_one_of_them_its_turn() {
        let queue = Queue::default();
        let mut places: Vec<_> = (0..4).map(|_| at_once(queue.enter())).collect();
        assert_eq!(places.iter().map(|place| place.ahead()).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let (mut fifth, mut sixth) = (pin!(queue.enter()), pin!(queue.enter()));
        assert!(poll(fifth.as_mut()).is_pending());

        let first = at_once(places.remove(0).turn());
        let mut second = pin!(places.remove(0).turn());
        assert!(poll(second.as_mut()).is_pending() && poll(fifth.as_mut()).is_pending());
        drop(first);
        let Poll::Ready(second) = poll(second) else { panic!("the second has its turn") };
        let Poll::Ready(fifth) = poll(fifth) else { panic!("a place is free") };
        assert_eq!(fifth.ahead(), 3);

        // A waiter that is dropped lets the others through.
        assert!(poll(sixth.as_mut()).is_pending());
        drop(second);
        assert!(poll(sixth).is_ready());
        drop((places, fifth));
        drop(queue.blocking_enter().blocking_turn());
        assert_eq!(queue.blocking_enter().ahead(), 0);
    }
}
