//! The clock of commit times, and the registry of active readers and writers.
//!
//! Every transaction has a [`SnapshotSlot`] while it runs. The slot says what the transaction still
//! needs: versions visible at its snapshot, pages that it may have changed, log since its first
//! record. A collector ([`Snapshots::collect`]) first loads the clock and then looks at every slot.
//! Its conclusions stay true forever, for the transactions that it saw and for those that it
//! missed.
//!
//! Why a snapshot that the collector missed is safe: [`SnapshotSlot::open`] stores the time `s`
//! marked as *opening*, then loads the clock again, `s2 >= s`, and stores `s2` as its snapshot.
//! These stores, the loads of the clock and those of the collector are sequentially consistent.
//! - The collector saw neither store. Its load of the clock, `c0`, came before its look at the
//!   slot, that before the first store, and that before the load of `s2`. So `c0 <= s2`, and the
//!   collector drops nothing that a snapshot at or after `c0` needs (`oldest <= c0`, `as_of <=
//!   c0`).
//! - It saw *opening at s*. It takes `s` for the oldest snapshot, and for the time up to which it
//!   knows all snapshots. The list alone would not suffice: commits between `s` and `s2` may have
//!   replaced a version that `s2` needs and `s` does not.
//! - It saw `s2`. That is in the list.
//!
//! A slot belongs to one transaction at a time. Slots are never removed from the registry, so there
//! are as many as the most transactions that ever ran at once.

use super::state::MAX_TS;
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{
        AtomicU64,
        Ordering::{Relaxed, Release, SeqCst},
    },
};

use wattle_buffer::prefetch_write;

/// Time before the first commit.
const START: u64 = 1;

/// The only source of commit times.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Clock {
    now: AtomicU64,
}

impl Clock {
    /// A clock at time 1, the commit time of everything that is in the store when it is opened.
    pub fn new() -> Clock {
        Clock { now: AtomicU64::new(START) }
    }

    /// The newest time drawn.
    #[inline]
    pub fn now(&self) -> u64 {
        self.now.load(SeqCst)
    }

    /// Prefetches the clock for a draw.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_write(std::ptr::from_ref(self).cast());
    }

    /// Draws a commit time: unique, and above every snapshot opened before.
    #[inline]
    pub fn draw(&self) -> u64 {
        self.now.fetch_add(1, SeqCst) + 1
    }
}

// The word of a snapshot:
// | bit 63    | bit 62  | bits 61..0 | meaning                                               |
// |-----------|---------|------------|-------------------------------------------------------|
// | 0         | 0       | 0          | closed                                                |
// | 0         | 1       | time       | opening: the snapshot will be at this time or later   |
// | 0         | 0       | time       | open                                                  |
// | 1         | 0       | time       | cancelled: was open, its versions may be gone         |
// | 1         | 1       | any        | never                                                 |
// | any but 0 | any but 0 | 0        | never                                                 |
const CANCELLED: u64 = 1 << 63;
const OPENING: u64 = 1 << 62;
const TIME: u64 = OPENING - 1;

const _: () = assert!(TIME + 1 == MAX_TS, "every commit time fits");
const _: () = assert!(CANCELLED | OPENING | TIME == u64::MAX && CANCELLED & OPENING == 0);

/// The needs of one running transaction. Alone on its cache lines, because its owner stores to it
/// at the begin and the end of each transaction.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SnapshotSlot {
    snapshot: AtomicU64,
    /// The clock before the first change of a page; 0 for none.
    writer_since: AtomicU64,
    /// Log epoch before the first record; 0 for none.
    first_epoch: AtomicU64,
    /// Number of the slot, among all slots of the process, and number of transactions that it had.
    /// Both give each transaction of the process a number of its own, without a shared cache line.
    index: u64,
    used: AtomicU64,
}

/// Number of slots ever made.
static SLOTS: AtomicU64 = AtomicU64::new(0);

/// Bits for the number of a transaction within its slot.
const USED_BITS: u32 = 40;

impl SnapshotSlot {
    /// A number for the next transaction of this slot; called by its owner.
    pub fn next_number(&self) -> u64 {
        let used = self.used.load(Relaxed);
        self.used.store(used + 1, Relaxed);
        self.index << USED_BITS | used
    }

    /// Opens a snapshot and gives its time: it sees all commits up to it.
    #[inline]
    pub fn open(&self, clock: &Clock) -> u64 {
        self.start_opening(clock);
        self.finish_opening(clock)
    }

    /// Closes the snapshot and opens one at the present time; announced changes stay announced.
    pub fn reopen(&self, clock: &Clock) -> u64 {
        self.snapshot.store(0, Release);
        self.open(clock)
    }

    /// First step of [`SnapshotSlot::open`]: from closed to opening.
    #[inline]
    pub(super) fn start_opening(&self, clock: &Clock) {
        debug_assert_eq!(self.snapshot.load(SeqCst), 0, "the slot has an open snapshot");
        self.snapshot.store(OPENING | clock.now(), SeqCst);
    }

    /// Second step of [`SnapshotSlot::open`]: from opening to open.
    #[inline]
    pub(super) fn finish_opening(&self, clock: &Clock) -> u64 {
        let snapshot = clock.now();
        debug_assert_ne!(self.snapshot.load(Relaxed) & OPENING, 0, "the slot is not opening");
        // A collector that still sees *opening* is only more cautious.
        self.snapshot.store(snapshot, Release);
        snapshot
    }

    /// As [`SnapshotSlot::open`], for a snapshot at a time that only grows and is at most that of
    /// the clock, such as the newest durable commit. A collector that keeps the versions from that
    /// time on loads it before it looks at the slots. So it sees this slot, or it loaded no later
    /// time than this call.
    #[inline]
    pub fn open_at(&self, time: impl Fn() -> u64) -> u64 {
        debug_assert_eq!(self.snapshot.load(SeqCst), 0, "the slot has an open snapshot");
        self.snapshot.store(OPENING | time(), SeqCst);
        let snapshot = time();
        self.snapshot.store(snapshot, Release);
        snapshot
    }

    /// True if versions that this snapshot needs may have been dropped. Ask after each read of the
    /// version index: the thread that drops versions cancels first and locks the shard afterwards,
    /// so a reader that missed a version in the shard sees the cancellation.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.snapshot.load(SeqCst) & CANCELLED != 0
    }

    /// Cancels the snapshot if it is open and still the one at `snapshot`; does nothing to a later
    /// one in the same slot. Gives whether it did.
    pub fn cancel(&self, snapshot: u64) -> bool {
        debug_assert!(snapshot & !TIME == 0 && snapshot != 0);
        self.snapshot.compare_exchange(snapshot, CANCELLED | snapshot, SeqCst, SeqCst).is_ok()
    }

    /// Announces changes of pages. Called before the first one of the transaction; more calls do
    /// nothing. A collector that misses the store loaded its clock before every change.
    #[inline]
    pub fn start_writing(&self, clock: &Clock) {
        if self.writer_since.load(SeqCst) == 0 {
            self.writer_since.store(clock.now(), SeqCst);
        }
    }

    /// Announces log records. Called before the first one is appended, with the log's epoch at that
    /// time (not 0); more calls do nothing.
    #[inline]
    pub fn start_logging(&self, epoch: u64) {
        debug_assert_ne!(epoch, 0, "log epochs start at 1");
        if self.first_epoch.load(SeqCst) == 0 {
            self.first_epoch.store(epoch, SeqCst);
        }
    }

    /// True if the transaction announced changes of pages.
    pub fn is_writing(&self) -> bool {
        self.writer_since.load(SeqCst) != 0
    }

    /// Ends the transaction: committed, or rolled back with all pages restored.
    #[inline]
    pub fn close(&self) {
        // A collector that sees these late is only more cautious.
        self.first_epoch.store(0, Release);
        self.writer_since.store(0, Release);
        self.snapshot.store(0, Release);
    }
}

/// The active transactions, as one look at all slots found them. Its statements stay true forever,
/// but lose precision with time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Active {
    /// No snapshot is below this, now or later, except cancelled ones.
    pub oldest: u64,
    /// Open snapshots, ascending, without cancelled ones.
    pub list: Vec<u64>,
    /// All snapshots below this, now or later, are in `list`, except cancelled ones.
    pub as_of: u64,
    /// Every change of a page by a transaction that runs now or later came after this time.
    pub oldest_writer_since: u64,
    /// The smallest log epoch of a first record. To drop log, a caller loads the epoch of the log
    /// before it calls [`Snapshots::collect`], and takes the smaller one.
    pub oldest_first_epoch: Option<u64>,
}

impl Active {
    /// True if a snapshot lies in `from <= s < to`.
    #[inline]
    pub fn any_in(&self, from: u64, to: u64) -> bool {
        let at = self.list.partition_point(|&snapshot| snapshot < from);
        self.list.get(at).is_some_and(|&snapshot| snapshot < to)
    }
}

#[derive(Debug, Default)]
struct Slots {
    all: Vec<Arc<SnapshotSlot>>,
    free: Vec<Arc<SnapshotSlot>>,
}

/// All slots of an engine.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    slots: Mutex<Slots>,
}

impl Snapshots {
    /// A registry without slots.
    pub fn new() -> Snapshots {
        Snapshots::default()
    }

    /// A closed slot for the caller. Takes a lock, so sessions keep their slot.
    pub fn acquire(&self) -> Arc<SnapshotSlot> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.free.pop() {
            return slot;
        }
        let slot = Arc::new(SnapshotSlot {
            index: SLOTS.fetch_add(1, Relaxed),
            ..SnapshotSlot::default()
        });
        slots.all.push(slot.clone());
        slot
    }

    /// Gives a closed slot back.
    pub fn retire(&self, slot: Arc<SnapshotSlot>) {
        assert_eq!(slot.snapshot.load(SeqCst), 0, "a slot is given back with an open snapshot");
        assert!(!slot.is_writing(), "a slot is given back with changes to pages");
        self.slots.lock().free.push(slot);
    }

    /// Looks at all slots. `ids` is the clock that [`SnapshotSlot::start_writing`] is called with.
    pub fn collect(&self, clock: &Clock, ids: &Clock) -> Active {
        // Load the clock before the slots, see the head of the file. A slot that is not registered
        // yet opens its first snapshot after this lock is released, so it counts as missed.
        let (now, newest) = (clock.now(), ids.now());
        let mut active = Active {
            oldest: now,
            list: Vec::new(),
            as_of: now,
            oldest_writer_since: newest,
            oldest_first_epoch: None,
        };
        for slot in &self.slots.lock().all {
            let word = slot.snapshot.load(SeqCst);
            let time = word & TIME;
            if word & OPENING != 0 {
                active.oldest = active.oldest.min(time);
                active.as_of = active.as_of.min(time);
            } else if word & CANCELLED == 0 && time != 0 {
                active.oldest = active.oldest.min(time);
                active.list.push(time);
            }
            let since = slot.writer_since.load(SeqCst);
            if since != 0 {
                active.oldest_writer_since = active.oldest_writer_since.min(since);
            }
            let epoch = slot.first_epoch.load(SeqCst);
            if epoch != 0 {
                active.oldest_first_epoch =
                    Some(active.oldest_first_epoch.map_or(epoch, |oldest| oldest.min(epoch)));
            }
        }
        active.list.sort_unstable();
        debug_assert!(active.oldest <= active.as_of && active.as_of <= now, "{active:?} at {now}");
        active
    }

    /// The oldest snapshot, now or later, except cancelled ones, as [`Snapshots::collect`] finds
    /// it. `None` while another thread looks, which will find the same.
    pub fn try_oldest(&self, clock: &Clock) -> Option<u64> {
        // Load the clock first, as in `collect`.
        let now = clock.now();
        let slots = self.slots.try_lock()?;
        let snapshots = slots.all.iter().map(|slot| slot.snapshot.load(SeqCst));
        let open = snapshots.filter(|word| word & CANCELLED == 0 && word & TIME != 0);
        Some(open.map(|word| word & TIME).fold(now, u64::min))
    }

    /// Cancels all open snapshots below `time`; gives how many.
    pub fn cancel_below(&self, time: u64) -> usize {
        let cancel = |slot: &&Arc<SnapshotSlot>| {
            let word = slot.snapshot.load(SeqCst);
            word != 0 && word < time && word & !TIME == 0 && slot.cancel(word)
        };
        self.slots.lock().all.iter().filter(cancel).count()
    }

    /// True if any transaction has changes in pages.
    pub fn any_writing(&self) -> bool {
        self.slots.lock().all.iter().any(|slot| slot.is_writing())
    }

    /// True if any transaction runs: has a snapshot, cancelled or not, or changes in pages.
    #[cfg(test)]
    pub fn any_active(&self) -> bool {
        let slots = self.slots.lock();
        slots.all.iter().any(|slot| slot.snapshot.load(SeqCst) != 0 || slot.is_writing())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_drawn_one_after_the_other() {
        let clock = Clock::new();
        assert_eq!((clock.now(), clock.draw(), clock.draw(), clock.now()), (1, 2, 3, 3));
    }

    #[test]
    fn collect_sees_open_snapshots_sorted() {
        let (clock, snapshots) = (Clock::new(), Snapshots::new());
        let slots: Vec<_> = (0..3).map(|_| snapshots.acquire()).collect();
        let active = snapshots.collect(&clock, &clock);
        assert_eq!((active.oldest, active.as_of, active.oldest_writer_since), (1, 1, 1));
        assert!(active.list.is_empty() && !snapshots.any_active());
        for at in [2, 0, 1] {
            clock.draw();
            assert_eq!(slots[at].open(&clock), clock.now());
        }
        clock.draw();
        let active = snapshots.collect(&clock, &clock);
        assert_eq!((active.oldest, active.as_of), (2, 5));
        assert_eq!(active.list, [2, 3, 4]);
        assert!(snapshots.any_active());
        assert!(active.any_in(2, 3) && active.any_in(0, 9) && active.any_in(4, 5));
        assert!(!active.any_in(0, 2) && !active.any_in(5, 9) && !active.any_in(3, 3));
        slots[2].close();
        assert_eq!(snapshots.collect(&clock, &clock).list, [3, 4]);
        assert_eq!(snapshots.try_oldest(&clock), Some(3));
    }

    #[test]
    fn an_opening_snapshot_holds_everything_from_its_time_on() {
        let (clock, snapshots) = (Clock::new(), Snapshots::new());
        let (slot, other) = (snapshots.acquire(), snapshots.acquire());
        slot.start_opening(&clock);
        clock.draw();
        other.open(&clock);
        let active = snapshots.collect(&clock, &clock);
        assert_eq!((active.oldest, active.as_of, &active.list[..]), (1, 1, &[2][..]));
        assert_eq!(snapshots.try_oldest(&clock), Some(1));
        assert!(!slot.cancel(1) && snapshots.any_active());
        assert_eq!(snapshots.cancel_below(9), 1);
        assert!(other.is_cancelled() && !slot.is_cancelled());
    }

    #[test]
    fn a_cancelled_snapshot_holds_nothing_and_a_later_one_is_spared() {
        let (clock, snapshots) = (Clock::new(), Snapshots::new());
        let slot = snapshots.acquire();
        let old = slot.open(&clock);
        clock.draw();
        assert!(!slot.is_cancelled() && slot.cancel(old) && slot.is_cancelled());
        assert!(!slot.cancel(old));
        let active = snapshots.collect(&clock, &clock);
        assert_eq!((active.oldest, active.list.len()), (2, 0));
        assert_eq!(snapshots.try_oldest(&clock), Some(2));
        assert!(snapshots.any_active(), "its transaction still runs");
        slot.close();
        let new = slot.open(&clock);
        assert!(!slot.cancel(old) && !slot.is_cancelled());
        assert_eq!(snapshots.cancel_below(new), 0);
        assert_eq!(snapshots.cancel_below(new + 1), 1);
    }

    #[test]
    fn writers_and_epochs_are_reported_until_closed() {
        let (clock, snapshots) = (Clock::new(), Snapshots::new());
        let (a, b) = (snapshots.acquire(), snapshots.acquire());
        clock.draw();
        a.start_writing(&clock);
        a.start_logging(9);
        clock.draw();
        a.start_writing(&clock);
        a.start_logging(12);
        b.start_writing(&clock);
        b.start_logging(7);
        let active = snapshots.collect(&clock, &clock);
        assert_eq!((active.oldest_writer_since, active.oldest_first_epoch), (2, Some(7)));
        assert!(snapshots.any_active() && a.is_writing());
        b.close();
        assert_eq!(snapshots.collect(&clock, &clock).oldest_first_epoch, Some(9));
        a.close();
        let active = snapshots.collect(&clock, &clock);
        assert_eq!((active.oldest_writer_since, active.oldest_first_epoch), (3, None));
        assert!(!snapshots.any_active());
    }

    #[test]
    fn slots_are_reused() {
        let snapshots = Snapshots::new();
        let slot = snapshots.acquire();
        let address = Arc::as_ptr(&slot);
        snapshots.retire(slot);
        assert_eq!(Arc::as_ptr(&snapshots.acquire()), address);
        assert_ne!(Arc::as_ptr(&snapshots.acquire()), address);
        assert_eq!(snapshots.slots.lock().all.len(), 2);
    }
}
