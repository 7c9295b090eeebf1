//! Interleavings of the latch, the in-flight table and the page table, under the model checker:
//! `RUSTFLAGS="--cfg shuttle" cargo test -p wattle-buffer shuttle`.

use crate::{
    brief::RawBrief,
    ids::{FrameId, PageId, TreeId},
    in_flight::{InFlight, LookOutcome, WaitOutcome, WaiterKind},
    latch::Latch,
    page::Restart,
    page_table::PageTable,
    sync::Mutex,
};
use lock_api::RawMutex;
use shuttle::{rand::Rng, sync::atomic::AtomicU64, thread};
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Waker,
};

/// Runs `body` under random schedules and under priority schedules. A failure prints the schedule,
/// which replays it.
fn explore(schedules: usize, body: impl Fn() + Send + Sync + Clone + 'static) {
    let rounds = std::env::var("WATTLE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    shuttle::check_random(body.clone(), schedules * rounds);
    shuttle::check_pct(body, schedules * rounds, 3);
}

#[derive(Default)]
struct Pair {
    latch: Latch,
    words: [AtomicU64; 2],
    inside: AtomicU64,
}

impl Pair {
    /// Adds one to both words; the caller is inside exclusively.
    fn change(&self) {
        assert_eq!(self.inside.fetch_add(1, Relaxed), 0, "two exclusive holders");
        for word in &self.words {
            word.store(word.load(Relaxed) + 1, Relaxed);
        }
        assert_eq!(self.inside.fetch_sub(1, Relaxed), 1);
    }

    fn read(&self) -> [u64; 2] {
        [self.words[0].load(Relaxed), self.words[1].load(Relaxed)]
    }
}

#[test]
fn an_optimistic_read_that_validates_is_never_torn() {
    explore(3000, || {
        let pair = Arc::new(Pair::default());
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let pair = pair.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let version = pair.latch.exclusive();
                        pair.change();
                        pair.latch.release(version, true);
                    }
                })
            })
            .collect();
        let reader = pair.clone();
        let reader = thread::spawn(move || {
            let mut last = 0;
            for _ in 0..4 {
                let version = reader.latch.optimistic();
                let words = reader.read();
                if reader.latch.validate(version).is_ok() {
                    assert_eq!(words[0], words[1]);
                    assert!(words[0] >= last, "time went back");
                    last = words[0];
                }
            }
        });
        writers.into_iter().chain([reader]).for_each(|thread| thread.join().unwrap());
        assert_eq!(pair.read(), [4, 4]);
    });
}

#[test]
fn an_upgrade_succeeds_only_if_nothing_changed_and_no_holder_is_inside() {
    explore(3000, || {
        let pair = Arc::new(Pair::default());
        let upgraders: Vec<_> = (0..3)
            .map(|_| {
                let pair = pair.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        loop {
                            let version = pair.latch.optimistic();
                            let words = pair.read();
                            if pair.latch.upgrade(version).is_ok() {
                                assert_eq!(pair.read(), words, "changed before the upgrade");
                                pair.change();
                                pair.latch.release(version, true);
                                break;
                            }
                            crate::sync::yield_now();
                        }
                    }
                })
            })
            .collect();
        upgraders.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(pair.read(), [6, 6]);
    });
}

#[test]
fn shared_and_exclusive_holders_exclude_each_other() {
    explore(3000, || {
        let pair = Arc::new(Pair::default());
        let mut threads = Vec::new();
        for _ in 0..2 {
            let pair = pair.clone();
            threads.push(thread::spawn(move || {
                for _ in 0..3 {
                    if pair.latch.try_shared() {
                        let words = pair.read();
                        assert_eq!(words[0], words[1]);
                        assert_eq!(pair.inside.load(Relaxed), 0);
                        assert_eq!(pair.read(), words);
                        pair.latch.release_shared();
                    }
                }
            }));
        }
        for changed in [true, false] {
            let pair = pair.clone();
            threads.push(thread::spawn(move || {
                for _ in 0..2 {
                    let version = pair.latch.exclusive();
                    if changed {
                        pair.change();
                    }
                    pair.latch.release(version, changed);
                }
            }));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(pair.read(), [2, 2]);
        assert!(pair.latch.try_exclusive().is_some());
    });
}

#[test]
fn holders_of_a_brief_lock_exclude_each_other_and_see_earlier_changes() {
    explore(3000, || {
        let lock = Arc::new((RawBrief::INIT, Pair::default()));
        let threads = [3, 2, 1].map(|rounds| {
            let lock = lock.clone();
            thread::spawn(move || {
                for _ in 0..rounds {
                    lock.0.lock();
                    lock.1.change();
                    // SAFETY: held since the call above.
                    unsafe { lock.0.unlock() };
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(lock.1.read(), [6, 6]);
    });
}

/// One page between storage and a tree of one swip, with all that can happen to it: faults, reads
/// that waiters take over, cancelled and late reads, changes, and eviction. Each thread has a frame
/// of its own, which is in use while a transfer fills it or the tree has it.
struct OnePage {
    in_flight: InFlight,
    /// The exclusive latch of the parent.
    parent: Mutex<()>,
    /// The frame that the swip names; `EVICTED` otherwise.
    swip: AtomicU64,
    frames: [AtomicU64; 3],
    stored: AtomicU64,
    /// Number of changes made.
    changes: AtomicU64,
}

const EVICTED: u64 = u64::MAX;
/// The latch is held, so that nothing validates.
const LATCHED: u64 = u64::MAX - 1;
const PAGE: PageId = PageId(9);

impl OnePage {
    /// Changes the page once, from a thread whose frame is `own`.
    fn change(&self, own: FrameId) {
        let mut waits_for = None;
        loop {
            let seen = self.swip.load(Relaxed);
            if seen == LATCHED {
                crate::sync::yield_now();
                continue;
            }
            if seen != EVICTED {
                let _latch = self.parent.lock();
                if self.swip.load(Relaxed) == seen {
                    let content = &self.frames[seen as usize];
                    assert_eq!(content.load(Relaxed), self.changes.load(Relaxed), "a stale page");
                    content.fetch_add(1, Relaxed);
                    self.changes.fetch_add(1, Relaxed);
                    return;
                }
                continue;
            }
            let still = || if self.swip.load(Relaxed) == EVICTED { Ok(()) } else { Err(Restart) };
            match self.in_flight.look(PAGE, TreeId(1), still) {
                Err(Restart) => {}
                Ok(LookOutcome::Read(number)) => self.read(own, number),
                Ok(LookOutcome::Loaded(frame)) => self.swizzle(frame),
                Ok(LookOutcome::Reading) => {
                    let waker = Waker::noop();
                    match self.in_flight.wait(PAGE, &mut waits_for, waker, WaiterKind::Timed) {
                        WaitOutcome::Over => waits_for = None,
                        WaitOutcome::Registered(_) => crate::sync::yield_now(),
                        WaitOutcome::Join(number, _) => self.read(own, number),
                    }
                }
            }
        }
    }

    /// Reads into the thread's own frame, if that is free, as the reader `number`.
    fn read(&self, own: FrameId, number: u64) {
        if self.swip.load(Relaxed) == u64::from(own.0) || shuttle::rand::thread_rng().gen_bool(0.2)
        {
            return self.in_flight.leave(PAGE, number);
        }
        let content = self.stored.load(Relaxed);
        for _ in 0..shuttle::rand::thread_rng().gen_range(0..30) {
            crate::sync::interleave();
        }
        let frame = &self.frames[own.0 as usize];
        let load = || {
            assert_ne!(self.swip.load(Relaxed), u64::from(own.0), "the frame is in use");
            frame.store(content, Relaxed);
        };
        self.in_flight.publish(PAGE, number, own, load);
    }

    fn swizzle(&self, frame: FrameId) {
        let _latch = self.parent.lock();
        if self.swip.load(Relaxed) == EVICTED {
            self.swip.store(LATCHED, Relaxed);
            let taken = self.in_flight.reclaim(PAGE, frame);
            self.swip.store(if taken { u64::from(frame.0) } else { EVICTED }, Relaxed);
        }
    }

    fn evict(&self) {
        let _latch = self.parent.lock();
        let frame = self.swip.load(Relaxed);
        if frame != EVICTED {
            self.stored.store(self.frames[frame as usize].load(Relaxed), Relaxed);
            self.swip.store(EVICTED, Relaxed);
        }
    }
}

#[test]
fn a_page_that_several_read_and_others_evict_never_goes_back_in_time() {
    explore(6000, || {
        let page = Arc::new(OnePage {
            in_flight: InFlight::new(),
            parent: Mutex::default(),
            swip: AtomicU64::new(EVICTED),
            frames: Default::default(),
            stored: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        });
        page.in_flight.impatient.store(true, Relaxed);
        let threads: Vec<_> = (0..3)
            .map(|own| {
                let page = page.clone();
                thread::spawn(move || {
                    for _ in 0..3 {
                        page.change(FrameId(own));
                        page.evict();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(page.stored.load(Relaxed), 9, "a change was lost");
        page.in_flight.discard(PAGE);
        assert_eq!(page.in_flight.len(), 0);
    });
}

/// A parent with one child, whose page comes and goes in a pool without swizzling.
struct Family {
    latch: Latch,
    page: PageId,
    /// The frame of the child plus one, 0 without; changes only under the latch.
    frame: AtomicU64,
}

/// Three families whose pages share a bucket, in a pool of three frames, so that walks go astray.
struct Village {
    table: PageTable,
    free: Mutex<Vec<FrameId>>,
    families: Vec<Family>,
}

impl Village {
    fn new() -> Village {
        let table = PageTable::new(3);
        let bucket = table.bucket(PageId(4));
        let pages = (4..).map(PageId).filter(|page| table.bucket(*page) == bucket).take(3);
        let family = |page| Family { latch: Latch::default(), page, frame: AtomicU64::new(0) };
        let families = pages.map(family).collect();
        Village { table, free: Mutex::new((0..3).map(FrameId).collect()), families }
    }

    /// Brings the child into a frame, or evicts it.
    fn change(&self, family: &Family) {
        let version = family.latch.exclusive();
        match family.frame.load(Relaxed) {
            0 => {
                let Some(frame) = self.free.lock().pop() else {
                    return family.latch.release(version, false);
                };
                self.table.insert(family.page, frame);
                family.frame.store(u64::from(frame.0) + 1, Relaxed);
            }
            frame => {
                let frame = FrameId(frame as u32 - 1);
                self.table.remove(family.page, frame);
                family.frame.store(0, Relaxed);
                self.free.lock().push(frame);
            }
        }
        family.latch.release(version, true);
    }

    /// Looks the child up, as a descent does.
    fn look(&self, family: &Family) {
        let version = family.latch.optimistic();
        let found = self.table.find(family.page);
        let frame = family.frame.load(Relaxed);
        if family.latch.validate(version).is_ok() {
            let found = found.map_or(0, |frame| u64::from(frame.0) + 1);
            assert_eq!(found, frame, "page {} in the page table", family.page);
        }
    }
}

#[test]
fn a_look_up_in_the_page_table_that_validates_gives_the_frame_of_the_page() {
    explore(5000, || {
        let village = Arc::new(Village::new());
        village.change(&village.families[0]);
        let movers = (0..3).map(|family| {
            let village = village.clone();
            thread::spawn(move || {
                // The first child stays for a while, the others come and go.
                let turns = if family == 0 { 2 } else { 4 };
                (0..turns).for_each(|_| village.change(&village.families[family]));
            })
        });
        let mut threads: Vec<_> = movers.collect();
        for family in [0, 0, 1] {
            let village = village.clone();
            threads.push(thread::spawn(move || {
                (0..3).for_each(|_| village.look(&village.families[family]));
            }));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        village.families.iter().for_each(|family| village.look(family));
        assert_eq!(village.table.len() + village.free.lock().len(), 3);
    });
}
