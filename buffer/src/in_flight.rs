//! The in-flight table: which pages are being read, and which were read and have not been swizzled. It
//! decides that a page has one frame at most, however many read it.
//!
//! **A read belongs to the entry of its page, not to the thread or task that began it.** That one may be
//! blocked, or it may be a future that nobody polls. An entry in state `Reading` therefore has any number
//! of readers, each with a [`ReadTicket`], a frame and a transfer of its own:
//!
//! | event | effect on the entry |
//! |---|---|
//! | a descent meets the evicted swip | made, with one reader; a new number |
//! | somebody has waited for [`TAKE_OVER`] | one more reader, with the same number |
//! | a reader has the page, verified | `Loaded` with its frame, if it is still `Reading` with that number |
//! | the same, otherwise | none: the reader gives its frame back and runs its operation again |
//! | a ticket is dropped: cancelled, failed | one reader less; removed with the last one |
//! | swizzled, or taken back by an evictor | removed |
//! | the page is freed | removed, also while it is being read |
//!
//! The time until somebody joins doubles with each reader, so that a slow device gets few reads of a page
//! more, and every wait for a page ends.
//!
//! **Why no page gets two frames.** The table is the only way from evicted to hot:
//! 1. An entry for page P is made under the lock of its shard, and *under that lock* the parent
//!    guard that showed the evicted swip is validated. So at that moment P is evicted and had no
//!    entry.
//! 2. An entry becomes `Loaded` once: under the lock, from `Reading`.
//! 3. A swip becomes hot only while its parent is latched exclusively and P's entry, in state
//!    `Loaded`, is removed from the table in the same step.
//!
//! Hence between making and removing the entry P stays evicted. Without the validation inside the
//! lock, an operation that read the swip long ago could start a second read of a page that was
//! swizzled, changed, written and evicted since, and find its own stale frame later: the classic
//! way to lose a record in this design.
//!
//! **Why no stale image is published.** Evicted means that storage has the last content and that no write of
//! the page is in flight. A ticket is given out while the entry exists, its transfer begins after that, and
//! [`InFlight::publish`] finds the same entry, by its number, which is used once. So P was evicted during the
//! whole transfer and the bytes are its last content. A transfer that takes longer than the entry lives may
//! read anything: its number is not found, nobody sees its bytes, and what is wrong with them is no error.
//!
//! **When is the frame of a reader free?** When its own transfer has ended, never before; this does not
//! depend on the entry. So a frame of a late reader is not given out while the kernel may write to it.

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

/// How long somebody waits for the reader of a page before it reads as well.
pub(crate) const TAKE_OVER: Duration = Duration::from_millis(20);

/// How often that time doubles.
const MAX_DOUBLED: u32 = 8;

/// Wakers looked at before another one is added, in case the same task waits again and again.
const SAME_WAKER: usize = 32;

enum InFlightEntry {
    Reading(Reading),
    /// In this frame, verified, not yet swizzled.
    Loaded(FrameId),
}

/// A page that is being read, or is about to be.
struct Reading {
    /// Differs from those of all other entries of the page.
    number: u64,
    tree: TreeId,
    /// Tickets that exist.
    readers: u32,
    /// Tickets that were given out to those who waited.
    joined: u32,
    /// When the newest ticket was given out.
    since: Instant,
    /// Woken when the entry ends, whatever the end is, and when a reader leaves.
    waiters: Vec<Waker>,
    /// A waiter cannot look at the time itself.
    watched: bool,
}

impl Reading {
    /// How long it takes until somebody who waits reads as well.
    fn left(&self) -> Duration {
        let limit = TAKE_OVER * (1 << self.joined.min(MAX_DOUBLED));
        limit.saturating_sub(self.since.elapsed())
    }
}

/// What a descent finds.
pub(crate) enum LookOutcome {
    /// The page is to be read; the number of the entry.
    Read(u64),
    /// Another reads it.
    Reading,
    Loaded(FrameId),
}

/// What somebody who waits for a page finds.
pub(crate) enum WaitOutcome {
    /// The wait is over: the page is not being read any more.
    Over,
    /// The waker is registered. After that time the caller has waited for long.
    Registered(Duration),
    /// The caller has waited for long, and is to read the page itself: number of the entry, tree.
    Join(u64, TreeId),
}

/// How somebody waits for a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaiterKind {
    /// A thread that looks at the time.
    Timed,
    /// A task: it only runs when it is woken.
    Task,
    /// A thread that must not wait: it may be the only one that could poll the reader.
    Eager,
}

#[derive(Default)]
struct InFlightShard {
    entries: HashMap<PageId, InFlightEntry>,
    /// The number of the last entry.
    number: u64,
}

impl InFlightShard {
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

    /// The entry, if a reader with that number may still publish the page.
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
    /// Those who wait read as well whenever the scheduler of the model likes.
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

    /// What there is of a page whose swip is evicted; `validate` says whether it still is, inside the lock.
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

    /// Makes the entry of a page that no swip names, the root of a tree.
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

    /// A reader has the page in `frame`. False when another was first, or the page is not wanted any more;
    /// `load` puts the frame into state `Loaded`, inside the lock.
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

    /// A reader with that number may still publish the page.
    pub(crate) fn is_current(&self, page: PageId, number: u64) -> bool {
        self.shard(page).lock().current(page, number).is_some()
    }

    pub(crate) fn is_loaded(&self, page: PageId) -> bool {
        matches!(self.shard(page).lock().entries.get(&page), Some(InFlightEntry::Loaded(_)))
    }

    /// Waits for a page. `number` is none at first, and then the entry that the caller waits for.
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

    /// Wakes tasks that have waited for long, so that they read. False when no task waits.
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
                    // Those who wait on register again.
                    reading.watched = false;
                    wake.append(&mut reading.waiters);
                }
            }
        }
        wake.into_iter().for_each(Waker::wake);
        any
    }

    /// Removes what there is of a page that is being freed; gives the frame that it was loaded into.
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

    /// Takes a loaded page that nobody swizzled. False when it is not in `frame` any more.
    pub(crate) fn reclaim(&self, page: PageId, frame: FrameId) -> bool {
        let mut shard = self.shard(page).lock();
        match shard.entries.entry(page) {
            hash_map::Entry::Occupied(entry) if matches!(entry.get(), InFlightEntry::Loaded(f) if *f == frame) =>
            {
                entry.remove();
                true
            }
            _ => false,
        }
    }

    /// Entries of all shards.
    #[cfg(shuttle)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }
}

/// How often the watching thread looks at the time while tasks wait for pages that others read.
const LOOK: Duration = Duration::from_millis(10);

/// Wakes tasks that have waited for long. It sleeps while no task waits for a page that another reads.
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
    /// A task waits.
    fn call(&self) {
        // Partner: the fence in `run`. Either we see that it sleeps or it sees who waits.
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

    /// There is no time in the model, and nobody to be woken by it.
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
