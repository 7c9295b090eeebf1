//! Records of a thread about its operations, and how the supervisor gets them.
//!
//! Each thread has its own [`Recorder`] and moves the contents into its [`Slot`] when the control
//! word changes, once a second. Only the count of finished operations is always visible: a plain
//! store to a cache line that no other thread writes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crossbeam::utils::CachePadded;

use super::control::Phase;
use crate::histogram::{Latencies, LatencyTotal};

/// The shared half of a thread's records.
pub struct Slot {
    finished: CachePadded<AtomicU64>,
    handed_over: Mutex<HandedOver>,
}

struct HandedOver {
    warm_up: Vec<KindRecords>,
    measured: Vec<KindRecords>,
}

/// Records of one kind of operation.
#[derive(Clone, Default)]
struct KindRecords {
    latencies: Latencies,
    ends: Ends,
}

/// Tries of one kind of operation that did not end in a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// Tries that met a conflict; another try followed each of them.
    pub conflicts: u64,
    /// Operations that rolled back on purpose.
    pub rollbacks: u64,
}

impl Ends {
    /// Moves the counts of `other` here.
    fn take(&mut self, other: &mut Ends) {
        let Ends { conflicts, rollbacks } = std::mem::take(other);
        self.conflicts += conflicts;
        self.rollbacks += rollbacks;
    }
}

impl Slot {
    /// An empty slot for `kinds` kinds of operations.
    pub fn new(kinds: usize) -> Self {
        let empty = || vec![KindRecords::default(); kinds];
        let handed_over = Mutex::new(HandedOver { warm_up: empty(), measured: empty() });
        Self { finished: CachePadded::new(AtomicU64::new(0)), handed_over }
    }

    /// Operations that the thread has finished since it began, warm-up included.
    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    /// Publishes the number of finished operations. Only the thread of the slot calls this.
    #[inline]
    pub fn publish(&self, finished: u64) {
        self.finished.store(finished, Ordering::Relaxed);
    }

    /// Moves the records of `phase` that were handed over to `totals` and `ends`, one for each
    /// kind.
    pub fn collect(&self, phase: Phase, totals: &mut [LatencyTotal], ends: &mut [Ends]) {
        let mut handed_over = self.handed_over.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = match phase {
            Phase::WarmUp => &mut handed_over.warm_up,
            Phase::Measured | Phase::Stop => &mut handed_over.measured,
        };
        for ((kind, total), ends) in kinds.iter_mut().zip(totals).zip(ends) {
            ends.take(&mut kind.ends);
            if !kind.latencies.is_empty() {
                total.add(&kind.latencies);
                kind.latencies = Latencies::default();
            }
        }
    }
}

/// The private half of a thread's records.
pub struct Recorder<'a> {
    slot: &'a Slot,
    kinds: Vec<KindRecords>,
    finished: u64,
}

impl<'a> Recorder<'a> {
    /// An empty recorder for `kinds` kinds of operations.
    pub fn new(slot: &'a Slot, kinds: usize) -> Self {
        Self { slot, kinds: vec![KindRecords::default(); kinds], finished: 0 }
    }

    /// Records an operation.
    #[inline]
    pub fn record(&mut self, kind: usize, nanoseconds: u64) {
        self.kinds[kind].latencies.record(nanoseconds);
        self.finished += 1;
        self.slot.publish(self.finished);
    }

    /// Records the conflicts and the roll-back of an operation.
    #[cold]
    pub fn note(&mut self, kind: usize, conflicts: u32, rolled_back: bool) {
        let ends = &mut self.kinds[kind].ends;
        ends.conflicts += u64::from(conflicts);
        ends.rollbacks += u64::from(rolled_back);
    }

    /// Hands over all records, which are of `phase`.
    pub fn hand_over(&mut self, phase: Phase) {
        let mut handed_over = self.slot.handed_over.lock().unwrap_or_else(PoisonError::into_inner);
        let to = match phase {
            Phase::WarmUp => &mut handed_over.warm_up,
            Phase::Measured | Phase::Stop => &mut handed_over.measured,
        };
        for (to, from) in to.iter_mut().zip(&mut self.kinds) {
            to.ends.take(&mut from.ends);
            if !from.latencies.is_empty() {
                to.latencies.take(&mut from.latencies);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_are_kept_apart() {
        let slot = Slot::new(2);
        let mut recorder = Recorder::new(&slot, 2);
        recorder.record(0, 1_000);
        recorder.hand_over(Phase::WarmUp);
        recorder.record(1, 2_000);
        recorder.note(1, 3, true);
        recorder.record(1, 2_000);
        recorder.hand_over(Phase::Measured);
        assert_eq!(slot.finished(), 3);
        let counts = |phase| {
            let mut totals = vec![LatencyTotal::default(); 2];
            let mut ends = [Ends::default(); 2];
            slot.collect(phase, &mut totals, &mut ends);
            ([totals[0].count(), totals[1].count()], ends[1])
        };
        let (none, noted) = (Ends::default(), Ends { conflicts: 3, rollbacks: 1 });
        assert_eq!(counts(Phase::Measured), ([0, 2], noted));
        assert_eq!(counts(Phase::Measured), ([0, 0], none), "collecting takes");
        assert_eq!(counts(Phase::WarmUp), ([1, 0], none));
    }
}
