//! The load phase by a bulk load: the store gets all records in the order of their keys.
//!
//! Keys are hashes of record numbers, so the numbers are sorted by hash, in groups that fit into
//! memory: a group has the hashes of one part of the key space. Each group takes one pass over all
//! numbers; hashing a number takes a few nanoseconds, much less than its record, so there is no
//! sort on disk. Threads write the records of a group in batches, which the store takes in order.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};
use indicatif::ProgressBar;

use super::load_plan::LoadPlan;
use crate::driver::control::Interrupt;
use crate::driver::failure::Failure;
use crate::driver::load::LoadEnd;
use crate::driver::store::Store;
use crate::key::fnv1a;
use crate::rng::Rng;

/// Records that are sorted at a time, about; each takes 16 bytes.
const GROUP: u64 = 1 << 24;

/// Bytes of records in a batch, about.
const BATCH_BYTES: usize = 256 << 10;

/// Batches that each thread may be ahead of the store.
const AHEAD: usize = 4;

/// Record numbers with their hashes, sorted by hash, which is the order of their keys.
type Sorted = Arc<Vec<(u64, u32)>>;

/// Records to write, and the number of their batch.
struct Order {
    sorted: Sorted,
    range: Range<usize>,
    number: u64,
}

/// Records that were written: keys and values in turns.
struct Batch {
    bytes: Vec<u8>,
    /// Back to the thread that wrote it, which uses its memory again.
    home: Sender<Vec<u8>>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        // The thread has ended if there is nothing more to write.
        _ = self.home.send(std::mem::take(&mut self.bytes));
    }
}

/// A key or a value in a batch.
struct Piece {
    batch: Arc<Batch>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.batch.bytes[self.range.clone()]
    }
}

/// Fills the empty `table` with the records of `plan`.
pub(super) fn load<S: Store>(
    store: &S,
    table: &S::Table,
    plan: LoadPlan,
    interrupt: &Interrupt,
    progress: &ProgressBar,
) -> LoadEnd<Duration> {
    let start = Instant::now();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = plan.crew.threads.min(cores);
    let filled = std::thread::scope(|scope| {
        let writers = (0..threads).map(|_| {
            let (orders, ordered) = bounded(AHEAD);
            let (batches, written) = bounded(AHEAD);
            scope.spawn(move || write_batches(plan, &ordered, &batches));
            Writer { orders, written }
        });
        let batches = Batches::new(plan, writers.collect());
        let stride = plan.keys.bytes() + plan.shape.value_bytes();
        let pairs = batches.take_while(|_| !interrupt.requested()).flat_map(|batch| {
            let records = batch.bytes.len() / stride;
            progress.inc(records as u64);
            (0..records).map(move |record| {
                let (start, value) = (record * stride, record * stride + plan.keys.bytes());
                let piece = |range| Piece { batch: batch.clone(), range };
                (piece(start..value), piece(value..start + stride))
            })
        });
        store.fill(table, pairs)
    });
    match filled {
        Err(error) => LoadEnd::Failed(Failure::Store(error)),
        Ok(()) if interrupt.requested() => LoadEnd::Interrupted,
        Ok(()) => LoadEnd::Loaded(start.elapsed()),
    }
}

/// Body of a thread that writes records. It ends when there are no more orders, or when the load
/// has failed and takes no more batches.
fn write_batches(plan: LoadPlan, orders: &Receiver<Order>, batches: &Sender<Arc<Batch>>) {
    let LoadPlan { keys, shape, seed, .. } = plan;
    let mut key = Vec::with_capacity(keys.bytes());
    let (home, free) = unbounded();
    for Order { sorted, range, number } in orders {
        let mut rng = Rng::new(seed, number);
        let mut bytes: Vec<u8> = free.try_recv().unwrap_or_default();
        bytes.clear();
        bytes.reserve(range.len() * (keys.bytes() + shape.value_bytes()));
        for (_, record) in &sorted[range] {
            keys.write(u64::from(*record), &mut key);
            bytes.extend_from_slice(&key);
            let start = bytes.len();
            bytes.resize(start + shape.value_bytes(), 0);
            shape.write(&key, &mut rng, &mut bytes[start..]);
        }
        if batches.send(Arc::new(Batch { bytes, home: home.clone() })).is_err() {
            return;
        }
    }
}

/// A thread that writes records.
struct Writer {
    orders: Sender<Order>,
    written: Receiver<Arc<Batch>>,
}

/// All batches of a load in the order of their keys.
struct Batches {
    plan: LoadPlan,
    writers: Vec<Writer>,
    /// Groups, and the next one to sort.
    groups: u64,
    group: u64,
    sorted: Sorted,
    /// The first record of `sorted` that is not ordered yet.
    next: usize,
    /// Number of the next batch to order. Writers take turns.
    number: u64,
    /// Writers of the batches that were ordered and not taken yet.
    ordered: VecDeque<usize>,
}

impl Batches {
    fn new(plan: LoadPlan, writers: Vec<Writer>) -> Self {
        Self {
            plan,
            writers,
            groups: plan.records.div_ceil(GROUP),
            group: 0,
            sorted: Sorted::default(),
            next: 0,
            number: 0,
            ordered: VecDeque::new(),
        }
    }

    /// Orders the next batch. Returns `false` if all are ordered.
    fn order(&mut self) -> bool {
        while self.next == self.sorted.len() {
            if self.group == self.groups {
                return false;
            }
            self.sorted = Arc::new(sort_group(self.plan.records, self.group, self.groups));
            (self.group, self.next) = (self.group + 1, 0);
        }
        let stride = self.plan.keys.bytes() + self.plan.shape.value_bytes();
        let end = self.sorted.len().min(self.next + (BATCH_BYTES / stride).max(1));
        let writer = (self.number % self.writers.len() as u64) as usize;
        let range = self.next..end;
        let order = Order { sorted: self.sorted.clone(), range, number: self.number };
        if self.writers[writer].orders.send(order).is_err() {
            return false;
        }
        (self.next, self.number) = (end, self.number + 1);
        self.ordered.push_back(writer);
        true
    }
}

impl Iterator for Batches {
    type Item = Arc<Batch>;

    fn next(&mut self) -> Option<Arc<Batch>> {
        while self.ordered.len() < AHEAD * self.writers.len() && self.order() {}
        let writer = self.ordered.pop_front()?;
        Some(self.writers[writer].written.recv().expect("a writer answers each order"))
    }
}

/// The record numbers of one group, sorted by their hashes.
fn sort_group(records: u64, group: u64, groups: u64) -> Vec<(u64, u32)> {
    let belongs = |hash: u64| (u128::from(hash) * u128::from(groups)) >> 64 == u128::from(group);
    let numbers = (0..records).map(|number| (fnv1a(number), number as u32));
    let mut sorted: Vec<_> = numbers.filter(|(hash, _)| belongs(*hash)).collect();
    sorted.sort_unstable();
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_all_records_once_in_key_order_and_about_the_same_size() {
        let records = 100_000;
        let groups: Vec<_> = (0..7).map(|group| sort_group(records, group, 7)).collect();
        for group in &groups {
            assert!((12_000..17_000).contains(&group.len()), "{}", group.len());
        }
        let all: Vec<_> = groups.concat();
        assert!(all.is_sorted_by(|a, b| a.0 < b.0));
        let mut numbers: Vec<_> = all.into_iter().map(|(_, number)| number).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..records as u32));
    }
}
