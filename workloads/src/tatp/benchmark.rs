//! The benchmark: its tables, its load, and its transactions.

use std::ops::Range;

use super::population::population;
use super::transactions::Transaction;
use super::{check, rows, table};
use crate::bench::{Benchmark, Ended};
use crate::driver::control::Interrupt;
use crate::driver::failure::Failure;
use crate::driver::measure::Done;
use crate::driver::store::{Client, Txn, TxnResult};
use crate::report::Condition;
use crate::rng::Rng;

/// Largest number of subscribers.
pub const MAX_SUBSCRIBERS: u64 = 1 << 32;

/// First stream of random numbers of runs; those below belong to subscribers that are loaded.
const FIRST_RUN_STREAM: u64 = 1 << 33;

/// The benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Tatp {
    /// Subscribers, P.
    pub subscribers: u64,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// TatpWorker that one worker keeps between transactions.
pub struct TatpWorker {
    rng: Rng,
}

impl Benchmark for Tatp {
    const NAME: &'static str = "tatp";
    const TITLE: &'static str = "TATP";
    const UNIT: &'static str = "subscriber";
    const TABLES: &'static [&'static str] =
        &["subscriber", "sub-nbr", "access-info", "special-facility", "call-forwarding"];
    const KINDS: &'static [&'static str] = Transaction::NAMES;
    const BATCH: u64 = 16;

    type State = TatpWorker;

    const MAX_SIZE: u64 = MAX_SUBSCRIBERS;

    fn with_size(subscribers: u64) -> Self {
        Self { subscribers, seed: 0 }
    }

    fn size(&self) -> u64 {
        self.subscribers
    }

    fn items(&self) -> u64 {
        self.subscribers
    }

    fn loaded(&self) -> (u64, u64) {
        // On average 2.5 rows of access info, 2.5 special facilities, and 1.5 call forwardings for
        // each special facility.
        let rows = self.subscribers * (8 + 5 + 15) / 4 + self.subscribers * 3 / 4;
        (rows, self.subscribers * rows::MEAN_BYTES)
    }

    async fn load<X: Txn>(
        &self,
        tables: &[X::Table],
        items: Range<u64>,
        txn: &mut X,
    ) -> TxnResult<()> {
        for id in items.map(|item| item + 1) {
            let all = population(self.seed, id);
            let key = rows::subscriber_key(id);
            txn.insert(&tables[table::SUBSCRIBER], &key, &all.subscriber.encode()).await?;
            txn.insert(&tables[table::NUMBER], &rows::number_of(id), &rows::number_row(id)).await?;
            for row in &all.access_info {
                txn.insert(&tables[table::ACCESS_INFO], &row.key(), &row.encode()).await?;
            }
            for row in &all.special_facilities {
                txn.insert(&tables[table::SPECIAL_FACILITY], &row.key(), &row.encode()).await?;
            }
            for row in &all.call_forwardings {
                txn.insert(&tables[table::CALL_FORWARDING], &row.key(), &row.encode()).await?;
            }
        }
        Ok(())
    }

    fn state(&self, run: u64, worker: usize) -> TatpWorker {
        TatpWorker { rng: Rng::new(self.seed, FIRST_RUN_STREAM * (run + 1) + worker as u64) }
    }

    async fn step<C: Client>(
        &self,
        tables: &[C::Table],
        state: &mut TatpWorker,
        client: &C,
    ) -> Result<Done, Failure> {
        let transaction = Transaction::draw(self.subscribers, &mut state.rng);
        let mut conflicts = 0;
        loop {
            match transaction.run(tables, client).await {
                Ok(successful) => {
                    let kind = transaction.kind(successful);
                    return Ok(Done { kind, conflicts, ..Done::default() });
                }
                Err(Ended::Failed(failure)) => return Err(failure),
                Err(Ended::Conflict) => {
                    conflicts += 1;
                    client.pause().await;
                }
            }
        }
    }

    async fn check<C: Client>(
        &self,
        tables: &[C::Table],
        client: &C,
        interrupt: &Interrupt,
    ) -> Result<Vec<Condition>, Failure> {
        check::conditions(self.subscribers, tables, client, interrupt).await
    }
}
