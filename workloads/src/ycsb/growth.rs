//! Tracks which records exist while workers insert new ones.
//!
//! New records get numbers in order, but their inserts may end in any order. Requests must only
//! name records that exist, so a number counts when it and all numbers before it are acknowledged
//! (like `AcknowledgedCounterGenerator` of the core package).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam::utils::CachePadded;

/// The growing set of record numbers `0..present`.
pub struct Growth {
    next: CachePadded<AtomicU64>,
    present: CachePadded<AtomicU64>,
    /// One flag for each number in flight, at the number modulo the size.
    acknowledged: Box<[AtomicBool]>,
    /// The worker that advances `present` holds it.
    advancing: Mutex<()>,
    /// Whether a claimed number will never be acknowledged.
    broken: AtomicBool,
}

/// A number for a new record. Dropping it without acknowledging it, because the insert failed,
/// breaks the set: it cannot grow past the number.
pub struct Claim<'a> {
    growth: &'a Growth,
    number: u64,
}

/// Flags for each worker: an insert shares a flag only after each worker has finished this many
/// later ones.
const FLAGS_PER_WORKER: usize = 256;

impl Growth {
    /// Records `0..records` exist, and at most `workers` inserts are in flight at a time.
    pub fn new(records: u64, workers: usize) -> Self {
        let flags = (workers * FLAGS_PER_WORKER).next_power_of_two();
        Self {
            next: CachePadded::new(AtomicU64::new(records)),
            present: CachePadded::new(AtomicU64::new(records)),
            acknowledged: (0..flags).map(|_| AtomicBool::new(false)).collect(),
            advancing: Mutex::new(()),
            broken: AtomicBool::new(false),
        }
    }

    /// Number of records: all numbers below this one exist.
    #[inline]
    pub fn present(&self) -> u64 {
        self.present.load(Ordering::Acquire)
    }

    /// A number for a new record.
    pub fn claim(&self) -> Claim<'_> {
        Claim { growth: self, number: self.next.fetch_add(1, Ordering::Relaxed) }
    }

    /// Whether every claimed number was acknowledged, so that there is no gap.
    pub fn is_whole(&self) -> bool {
        self.present() == self.next.load(Ordering::Relaxed)
    }

    /// Whether an insert failed, so that others must not wait for it.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    fn acknowledge(&self, number: u64) {
        self.flag(number).store(true, Ordering::SeqCst);
        // The holder of the lock reads the flags again after it released the lock, so it sees a
        // flag that was set while it held the lock.
        loop {
            let Ok(advancing) = self.advancing.try_lock() else { return };
            let mut present = self.present.load(Ordering::Relaxed);
            while self.flag(present).swap(false, Ordering::SeqCst) {
                present += 1;
            }
            self.present.store(present, Ordering::Release);
            drop(advancing);
            if !self.flag(present).load(Ordering::SeqCst) {
                return;
            }
        }
    }

    fn flag(&self, number: u64) -> &AtomicBool {
        &self.acknowledged[number as usize & (self.acknowledged.len() - 1)]
    }
}

impl Claim<'_> {
    /// The number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it may be acknowledged. If not, all flags are in use because an older insert is
    /// late, and the worker must wait for that one.
    pub fn has_room(&self) -> bool {
        self.number - self.growth.present() < self.growth.acknowledged.len() as u64
    }

    /// The record exists now.
    pub fn acknowledge(self) {
        assert!(self.has_room(), "the flag of an older insert would be overwritten");
        self.growth.acknowledge(self.number);
        std::mem::forget(self);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.growth.broken.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_holds_back_what_comes_after_it() {
        let growth = Growth::new(10, 1);
        let (a, b, c) = (growth.claim(), growth.claim(), growth.claim());
        assert_eq!((a.number(), b.number(), c.number()), (10, 11, 12));
        c.acknowledge();
        b.acknowledge();
        assert_eq!(growth.present(), 10);
        a.acknowledge();
        assert_eq!(growth.present(), 13);
        assert!(!growth.is_broken());
    }

    #[test]
    fn flags_run_out_only_far_ahead_of_a_late_insert() {
        let growth = Growth::new(0, 1);
        let late = growth.claim();
        for _ in 1..FLAGS_PER_WORKER {
            let claim = growth.claim();
            assert!(claim.has_room());
            claim.acknowledge();
        }
        let ahead = growth.claim();
        assert!(!ahead.has_room());
        late.acknowledge();
        assert!(ahead.has_room());
    }

    #[test]
    fn waiters_see_that_an_insert_failed() {
        let growth = Growth::new(0, 1);
        drop(growth.claim());
        assert!(growth.is_broken());
    }

    #[test]
    fn many_threads_leave_no_gap() {
        let growth = Growth::new(100, 4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50_000 {
                        let claim = growth.claim();
                        while !claim.has_room() {
                            std::thread::yield_now();
                        }
                        claim.acknowledge();
                    }
                });
            }
        });
        assert_eq!(growth.present(), 200_100);
        assert!(growth.is_whole());
    }
}
