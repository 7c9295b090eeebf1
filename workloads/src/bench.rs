//! The frame of benchmarks of transactions on several tables: TPC-B and TATP.
//!
//! A [`Benchmark`] has tables, a load, transactions, and conditions that hold while no transaction
//! runs. The load phase ([`load`]), the run ([`Running`]) and the description of the data
//! ([`meta`]) are the same for all of them.

pub mod load;
pub mod meta;
pub mod scan;

use std::ops::Range;

use crate::driver::control::Interrupt;
use crate::driver::failure::Failure;
use crate::driver::measure::{Done, Workload};
use crate::driver::store::{Client, Stop, StoreError, Txn, TxnResult};
use crate::report::Condition;

/// A workload of transactions.
#[allow(async_fn_in_trait, reason = "workers stay on their thread, so futures need not be Send")]
pub trait Benchmark: Sized + Sync {
    /// Its name as a subcommand, and the prefix of the names of its tables.
    const NAME: &'static str;
    /// Its name in sentences.
    const TITLE: &'static str;
    /// The unit of its size, in the singular.
    const UNIT: &'static str;
    /// The tables.
    const TABLES: &'static [&'static str];
    /// Names of the kinds of transactions.
    const KINDS: &'static [&'static str];
    /// Items that are loaded in one transaction.
    const BATCH: u64;

    /// State that one worker keeps between transactions.
    type State;

    /// The benchmark of this size, to check data.
    fn with_size(size: u64) -> Self;

    /// The largest size.
    const MAX_SIZE: u64;

    /// Its size, in [`Benchmark::UNIT`].
    fn size(&self) -> u64;

    /// Items to load.
    fn items(&self) -> u64;

    /// Approximate number of rows, and bytes of keys and values.
    fn loaded(&self) -> (u64, u64);

    /// Loads `items` in `txn`.
    async fn load<X: Txn>(
        &self,
        tables: &[X::Table],
        items: Range<u64>,
        txn: &mut X,
    ) -> TxnResult<()>;

    /// The state of worker `worker` in run `run` of the store, both from 0. No two runs of a store
    /// have the same number.
    fn state(&self, run: u64, worker: usize) -> Self::State;

    /// Draws a transaction and runs it. After a conflict it retries the same transaction.
    async fn step<C: Client>(
        &self,
        tables: &[C::Table],
        state: &mut Self::State,
        client: &C,
    ) -> Result<Done, Failure>;

    /// Checks the conditions that hold while no transaction runs. Fails with
    /// [`Failure::Interrupted`] if the user interrupts it.
    async fn check<C: Client>(
        &self,
        tables: &[C::Table],
        client: &C,
        interrupt: &Interrupt,
    ) -> Result<Vec<Condition>, Failure>;
}

/// A benchmark on open tables, as a workload.
pub struct Running<'a, B, T> {
    /// The benchmark.
    pub bench: &'a B,
    /// Its tables.
    pub tables: &'a [T],
    /// The number of this run of the store.
    pub run: u64,
}

impl<T: Sync, C: Client<Table = T>, B: Benchmark> Workload<C> for Running<'_, B, T> {
    type State = B::State;

    fn state(&self, number: usize) -> B::State {
        self.bench.state(self.run, number)
    }

    #[inline]
    async fn step(&self, state: &mut B::State, client: &C) -> Result<Done, Failure> {
        self.bench.step(self.tables, state, client).await
    }
}

/// Why a try of a transaction failed.
#[derive(Debug)]
pub enum Ended {
    /// It met a conflict; retry it.
    Conflict,
    /// The run cannot go on.
    Failed(Failure),
}

impl From<Stop> for Ended {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Conflict => Ended::Conflict,
            Stop::Failed(error) => Ended::Failed(error.into()),
        }
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Ended::Failed(failure)
    }
}

impl From<StoreError> for Ended {
    fn from(error: StoreError) -> Self {
        Ended::Failed(error.into())
    }
}

/// The failure of a store that returned data which were not written.
#[cold]
pub fn wrong(what: impl std::fmt::Display) -> Failure {
    Failure::Wrong(what.to_string())
}

/// A condition; `problem` is the first case in which it does not hold.
pub fn condition(name: &str, problem: Option<String>) -> Condition {
    Condition { name: name.to_owned(), passed: problem.is_none(), detail: problem }
}

/// The seal in the last four bytes of a row: a hash of the key and of all other bytes. It reveals a
/// row that is damaged or torn, or that belongs to another key.
pub mod seal {
    use crate::rng::{GOLDEN, mix};

    /// Bytes of the seal.
    pub const BYTES: usize = 4;

    fn of(key: &[u8], row: &[u8]) -> [u8; BYTES] {
        let mut hash = GOLDEN ^ (key.len() as u64) << 32 ^ row.len() as u64;
        for part in [key, row] {
            for chunk in part.chunks(8) {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                hash = mix(hash ^ u64::from_le_bytes(word)).wrapping_add(GOLDEN);
            }
        }
        ((hash >> 32) as u32).to_le_bytes()
    }

    /// Writes the seal into the last bytes of `row`.
    pub fn close(key: &[u8], row: &mut [u8]) {
        let (content, seal) = row.split_at_mut(row.len() - BYTES);
        seal.copy_from_slice(&of(key, content));
    }

    /// Whether `row` has `bytes` bytes and its seal is right.
    pub fn holds(key: &[u8], row: &[u8], bytes: usize) -> bool {
        row.len() == bytes && row[bytes - BYTES..] == of(key, &row[..bytes - BYTES])
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn every_changed_bit_of_key_and_row_breaks_the_seal() {
            let (key, mut row) = (*b"key 12", *b"content of a row....");
            super::close(&key, &mut row);
            assert!(super::holds(&key, &row, 20) && !super::holds(&key, &row, 19));
            for bit in 0..row.len() * 8 {
                let mut damaged = row;
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(!super::holds(&key, &damaged, 20), "bit {bit}");
            }
            assert!(!super::holds(b"key 13", &row, 20));
        }
    }
}
