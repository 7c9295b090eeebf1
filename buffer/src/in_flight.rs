//! The in-flight table: pages that are being read, and pages that were read but not swizzled yet.
//! It ensures that a page has at most one frame, however many operations read it.
//!
//! **A read belongs to the entry of its page, not to the thread or task that began it.** That
//! thread may be blocked, and that task may never be polled again. An entry in state `Reading`
//! therefore has any number of readers, each with its own [`ReadTicket`](crate::ReadTicket), frame
//! and transfer:
//!
//! | event | effect on the entry |
//! |---|---|
//! | a descent meets the evicted swip | created with one reader and a new number |
//! | an operation has waited for [`TAKE_OVER`] | one more reader, with the same number |
//! | a reader has verified the page | `Loaded` with its frame, if the entry is still `Reading` and has that number |
//! | the same, otherwise | none: the reader gives its frame back and restarts its operation |
//! | a ticket is dropped: cancelled, failed | one reader less; removed with the last reader |
//! | swizzled, or reclaimed by an evictor | removed |
//! | the page is freed | removed, even while it is being read |
//!
//! The time until the next waiter joins doubles with each reader. So a slow device gets few extra
//! reads of a page, and every wait for a page ends.
//!
//! **Why no page gets two frames.** A page becomes hot only through this table:
//! 1. An entry for page P is created under the lock of its shard, and *under that lock* the parent
//!    guard that showed the evicted swip is validated. At that moment P is evicted and has no
//!    entry.
//! 2. An entry becomes `Loaded` once, under the lock, from `Reading`.
//! 3. A swip becomes hot only while its parent is latched exclusively and P's entry, in state
//!    `Loaded`, is removed from the table in the same step.
//!
//! Hence P stays evicted from the creation of its entry to the removal. Without the validation
//! under the lock, an operation that read the swip long ago could start a second read of a page
//! that was since swizzled, changed, written and evicted, and later find its own stale frame: the
//! classic way to lose a record in this design.
//!
//! **Why no stale image is published.** Evicted means that storage has the last content and that no
//! write of the page is in flight. A ticket is issued while the entry exists, and its transfer
//! begins after that. [`InFlight::publish`] finds the same entry by its number, which is used only
//! once. So P was evicted during the whole transfer, and the bytes are its last content. A transfer
//! that outlives its entry may read anything. Then no entry has its number, its bytes are dropped,
//! and an error in them is ignored.
//!
//! **When the frame of a reader is free.** It is free when its own transfer has ended, also if the
//! entry is gone by then. So the frame of a late reader is not reused while the kernel may write to
//! it.

use crate::{
    ids::{FrameId, PageId, TreeId},
    page::Restart,
    sync::{AtomicBool, AtomicUsize, Condvar, Mutex, Ordering, fence},
};
use std::{
    collections::{HashMap, hash_map},
    task::Waker,
    time::{Duration, Instant},
};

const SHARDS: usize = 64;

/// How long an operation waits for the reader of a page before it reads the page as well.
pub(crate) const TAKE_OVER: Duration = Duration::from_millis(20);

/// How often that time doubles at most.
const MAX_DOUBLED: u32 = 8;

/// Number of registered wakers that are compared with a new one, in case the same task registers
/// again.
const SAME_WAKER: usize = 32;

enum InFlightEntry {
    Reading(Reading),
    /// The page is in this frame, verified and not yet swizzled.
    Loaded(FrameId),
}

impl InFlightEntry {
    fn is_loaded_in(&self, frame: FrameId) -> bool {
        matches!(self, InFlightEntry::Loaded(loaded) if *loaded == frame)
    }
}

/// A page that is being read or about to be read.
struct Reading {
    /// Number of the entry, used once per page.
    number: u64,
    tree: TreeId,
    /// Number of live tickets.
    readers: u32,
    /// Number of tickets that waiters got.
    joined: u32,
    /// When the newest ticket was issued.
    since: Instant,
    /// Woken when the entry ends for any reason, and when a reader leaves.
    waiters: Vec<Waker>,
    /// A waiter is a task, which cannot watch the clock itself.
    watched: bool,
}

impl Reading {
    /// Time left until the next waiter reads the page as well.
    fn left(&self) -> Duration {
        let limit = TAKE_OVER * (1 << self.joined.min(MAX_DOUBLED));
        limit.saturating_sub(self.since.elapsed())
    }
}

/// Result of [`InFlight::look`].
pub(crate) enum LookOutcome {
    /// The caller must read the page; the number of the entry.
    Read(u64),
    /// Another operation reads the page.
    Reading,
    Loaded(FrameId),
}

/// Result of [`InFlight::wait`].
pub(crate) enum WaitOutcome {
    /// The wait is over: no operation reads the page.
    Over,
    /// The waker is registered. After that time the caller may join the readers.
    Registered(Duration),
    /// The caller has waited long enough and must read the page itself: number of the entry, tree.
    Join(u64, TreeId),
}

/// How an operation waits for a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaiterKind {
    /// A thread that watches the clock.
    Timed,
    /// A task, which runs only when it is woken.
    Task,
    /// A thread that must not wait, because it may be the only one that can poll the reader.
    Eager,
}

#[derive(Default)]
struct InFlightShard {
    entries: HashMap<PageId, InFlightEntry>,
    /// Number of the newest entry.
    number: u64,
    /// Pages that operations have swizzled.
    swizzles: u64,
}

impl InFlightShard {
    /// Removes the entry of a page that is loaded in `frame`, if there is one.
    fn remove_loaded(&mut self, page: PageId, frame: FrameId) -> bool {
        match self.entries.entry(page) {
            hash_map::Entry::Occupied(entry) if entry.get().is_loaded_in(frame) => {
                entry.remove();
                true
            }
            _ => false,
        }
    }

    fn begin(&mut self, page: PageId, tree: TreeId) -> u64 {
        self.number += 1;
        let reading = Reading {
            number: self.number,
            tree,
            readers: 1,
            joined: 0,
            since: Instant::now(),
            waiters: Vec::new(),
            watched: false,
        };
        let before = self.entries.insert(page, InFlightEntry::Reading(reading));
        assert!(before.is_none(), "page {page} is in flight");
        self.number
    }

    fn reading(&mut self, page: PageId) -> Option<&mut Reading> {
        match self.entries.get_mut(&page) {
            Some(InFlightEntry::Reading(reading)) => Some(reading),
            _ => None,
        }
    }

    /// The entry, if it is still `Reading` and has that number.
    fn current(&mut self, page: PageId, number: u64) -> Option<&mut Reading> {
        self.reading(page).filter(|reading| reading.number == number)
    }
}

/// See the module documentation.
pub(crate) struct InFlight {
    shards: Vec<Mutex<InFlightShard>>,
    pub(crate) watch: Watch,
    /// Threads that wait for several reads at once ([`crate::Worker::resolve_all`]).
    pub(crate) reading_together: AtomicUsize,
    /// In models: a waiter may join the readers at any time that the scheduler picks.
    #[cfg(shuttle)]
    pub(crate) impatient: std::sync::atomic::AtomicBool,
}

impl InFlight {
    pub(crate) fn new() -> Self {
        InFlight {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            watch: Watch::default(),
            reading_together: AtomicUsize::new(0),
            #[cfg(shuttle)]
            impatient: false.into(),
        }
    }

    fn shard(&self, page: PageId) -> &Mutex<InFlightShard> {
        &self.shards[page.0 as usize % SHARDS]
    }

    /// Looks for the entry of a page whose swip is evicted, and creates it if there is none.
    /// `validate` checks, under the lock, that the swip still is evicted.
    pub(crate) fn look(
        &self,
        page: PageId,
        tree: TreeId,
        validate: impl FnOnce() -> Result<(), Restart>,
    ) -> Result<LookOutcome, Restart> {
        let mut shard = self.shard(page).lock();
        validate()?;
        Ok(match shard.entries.get(&page) {
            None => LookOutcome::Read(shard.begin(page, tree)),
            Some(InFlightEntry::Reading(_)) => LookOutcome::Reading,
            Some(InFlightEntry::Loaded(frame)) => LookOutcome::Loaded(*frame),
        })
    }

    /// Creates the entry of a page that no swip names, the root of a tree.
    pub(crate) fn begin_root(&self, page: PageId, tree: TreeId) -> u64 {
        self.shard(page).lock().begin(page, tree)
    }

    /// A ticket was dropped without a page.
    pub(crate) fn leave(&self, page: PageId, number: u64) {
        let mut shard = self.shard(page).lock();
        let Some(reading) = shard.current(page, number) else { return };
        reading.readers -= 1;
        let is_last = reading.readers == 0;
        let waiters = std::mem::take(&mut reading.waiters);
        if is_last {
            shard.entries.remove(&page);
        }
        drop(shard);
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Publishes the page that a reader has in `frame`. Returns false if another reader was first
    /// or the page is no longer wanted. `load` moves the frame to state `Loaded`, under the lock.
    pub(crate) fn publish(
        &self,
        page: PageId,
        number: u64,
        frame: FrameId,
        load: impl FnOnce(),
    ) -> bool {
        let mut shard = self.shard(page).lock();
        let Some(reading) = shard.current(page, number) else { return false };
        let waiters = std::mem::take(&mut reading.waiters);
        load();
        shard.entries.insert(page, InFlightEntry::Loaded(frame));
        drop(shard);
        waiters.into_iter().for_each(Waker::wake);
        true
    }

    /// Whether a reader with that number may still publish the page.
    pub(crate) fn is_current(&self, page: PageId, number: u64) -> bool {
        self.shard(page).lock().current(page, number).is_some()
    }

    /// Whether the page is being read, or is loaded and not swizzled yet.
    pub(crate) fn contains(&self, page: PageId) -> bool {
        self.shard(page).lock().entries.contains_key(&page)
    }

    pub(crate) fn is_loaded(&self, page: PageId) -> bool {
        matches!(self.shard(page).lock().entries.get(&page), Some(InFlightEntry::Loaded(_)))
    }

    /// Waits for a page. `number` starts as `None` and then holds the entry that the caller waits
    /// for.
    pub(crate) fn wait(
        &self,
        page: PageId,
        number: &mut Option<u64>,
        waker: &Waker,
        waiter: WaiterKind,
    ) -> WaitOutcome {
        #[cfg(shuttle)]
        let wants = self.impatient.load(Ordering::Relaxed)
            && shuttle::rand::Rng::gen_bool(&mut shuttle::rand::thread_rng(), 0.3);
        let mut shard = self.shard(page).lock();
        let Some(reading) = shard.reading(page) else { return WaitOutcome::Over };
        if *number.get_or_insert(reading.number) != reading.number {
            return WaitOutcome::Over;
        }
        let left = reading.left();
        #[cfg(not(shuttle))]
        let wants = left.is_zero() || waiter == WaiterKind::Eager;
        if wants {
            reading.readers += 1;
            reading.joined += 1;
            reading.since = Instant::now();
            return WaitOutcome::Join(reading.number, reading.tree);
        }
        if !reading.waiters.iter().rev().take(SAME_WAKER).any(|other| other.will_wake(waker)) {
            reading.waiters.push(waker.clone());
        }
        reading.watched |= waiter == WaiterKind::Task;
        drop(shard);
        if waiter == WaiterKind::Task {
            self.watch.call();
        }
        WaitOutcome::Registered(left)
    }

    /// Wakes tasks that have waited long enough, so that they read the page. Returns false if no
    /// task waits.
    fn wake_overdue(&self) -> bool {
        let mut any = false;
        let mut wake = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            for entry in shard.entries.values_mut() {
                let InFlightEntry::Reading(reading) = entry else { continue };
                if !reading.watched {
                    continue;
                }
                any = true;
                if reading.left().is_zero() {
                    // Tasks that go on waiting register again.
                    reading.watched = false;
                    wake.append(&mut reading.waiters);
                }
            }
        }
        wake.into_iter().for_each(Waker::wake);
        any
    }

    /// Removes the entry of a page that is being freed; returns the frame if the page was loaded.
    pub(crate) fn discard(&self, page: PageId) -> Option<FrameId> {
        let entry = self.shard(page).lock().entries.remove(&page)?;
        match entry {
            InFlightEntry::Loaded(frame) => Some(frame),
            InFlightEntry::Reading(reading) => {
                reading.waiters.into_iter().for_each(Waker::wake);
                None
            }
        }
    }

    /// Takes a loaded page that no operation swizzled. Returns false if it is no longer in `frame`.
    pub(crate) fn reclaim(&self, page: PageId, frame: FrameId) -> bool {
        self.shard(page).lock().remove_loaded(page, frame)
    }

    /// Removes the loaded page of `frame` for the operation that swizzles it, and counts it.
    /// Returns false if it is no longer there.
    pub(crate) fn take_to_swizzle(&self, page: PageId, frame: FrameId) -> bool {
        let mut shard = self.shard(page).lock();
        let taken = shard.remove_loaded(page, frame);
        shard.swizzles += u64::from(taken);
        taken
    }

    /// Pages that operations have swizzled since the pool was opened.
    pub(crate) fn swizzles(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().swizzles).sum()
    }

    /// Number of entries in all shards.
    #[cfg(shuttle)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }
}

/// How often the watching thread looks at the clock while tasks wait for pages.
const LOOK: Duration = Duration::from_millis(10);

/// Wakes tasks that have waited long enough. Its thread sleeps while no task waits for a page.
#[derive(Default)]
pub(crate) struct Watch {
    state: Mutex<WatchState>,
    condition: Condvar,
    asleep: AtomicBool,
}

#[derive(Default)]
struct WatchState {
    called: bool,
    stopping: bool,
}

impl Watch {
    /// Wakes the thread because a task waits.
    fn call(&self) {
        // Partner: the fence in `run`. Either this thread sees that `run` sleeps, or `run` sees the
        // waiter.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.state.lock().called = true;
            self.condition.notify_one();
        }
    }

    pub(crate) fn start(&self) {
        self.state.lock().stopping = false;
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.condition.notify_one();
    }

    /// Body of the thread.
    #[cfg(not(shuttle))]
    pub(crate) fn run(&self, in_flight: &InFlight) {
        let mut state = self.state.lock();
        while !state.stopping {
            self.asleep.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            drop(state);
            let waiting = in_flight.wake_overdue();
            state = self.state.lock();
            if waiting {
                self.asleep.store(false, Ordering::Relaxed);
                if !state.stopping {
                    self.condition.wait_for(&mut state, LOOK);
                }
            } else {
                while !state.called && !state.stopping {
                    self.condition.wait(&mut state);
                }
            }
            state.called = false;
        }
    }

    /// There is no time in the model, so no task is woken by it.
    #[cfg(shuttle)]
    pub(crate) fn run(&self, in_flight: &InFlight) {
        let _ = (in_flight.wake_overdue(), LOOK);
        let mut state = self.state.lock();
        while !state.stopping {
            state.called = false;
            self.condition.wait(&mut state);
        }
    }
}
