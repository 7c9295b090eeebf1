//! The benchmark: its tables, its load, and one transaction.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use super::check;
use super::input::{ACCOUNTS, HISTORY, Input, MAX_SCALE, TELLERS};
use super::rows::{self, HistoryRow, Row, RowKind};
use crate::bench::{Benchmark, Ended, wrong};
use crate::driver::control::Interrupt;
use crate::driver::failure::Failure;
use crate::driver::measure::Done;
use crate::driver::store::{Access, Client, Txn, TxnResult};
use crate::report::Condition;
use crate::rng::Rng;

/// Streams of random numbers of runs begin here.
const FIRST_RUN_STREAM: u64 = 1 << 32;

/// The benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Tpcb {
    /// Branches.
    pub scale: u64,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// TpcbWorker that one worker keeps between transactions.
pub struct TpcbWorker {
    rng: Rng,
    /// Key of the next history row of the worker.
    history: rows::HistoryKey,
}

impl Tpcb {
    /// One try of a transaction. Returns the new balance of the account.
    async fn transfer<C: Client>(
        &self,
        tables: &[C::Table],
        input: Input,
        history: &rows::HistoryKey,
        client: &C,
    ) -> Result<i64, Ended> {
        let mut txn = client.begin(Access::ReadWrite).await?;
        let balance = add(&mut txn, tables, RowKind::Account, input.account, input.delta).await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let entry = HistoryRow { input, time_us: now.as_micros() as u64 };
        let key = history.bytes();
        txn.insert(&tables[HISTORY], &key, &entry.encode(&key)).await?;
        add(&mut txn, tables, RowKind::Teller, input.teller, input.delta).await?;
        add(&mut txn, tables, RowKind::Branch, input.branch, input.delta).await?;
        txn.commit().await?;
        Ok(balance)
    }
}

/// Adds `delta` to a balance and returns the new one.
async fn add<X: Txn>(
    txn: &mut X,
    tables: &[X::Table],
    kind: RowKind,
    number: u64,
    delta: i64,
) -> Result<i64, Ended> {
    let key = number.to_be_bytes();
    let mut changed = None;
    let change = |bytes: &mut [u8]| {
        changed = Row::decode(kind, number, bytes).map(|row| {
            let row = Row { balance: row.balance + delta, ..row };
            row.write(bytes);
            row.balance
        });
    };
    let found = txn.modify(&tables[kind as usize], &key, change).await?;
    match changed {
        _ if !found => Err(wrong(format!("{} {number} is missing", kind.name())).into()),
        None => Err(wrong(format!("the row of {} {number} is damaged", kind.name())).into()),
        Some(balance) => Ok(balance),
    }
}

impl Benchmark for Tpcb {
    const NAME: &'static str = "tpcb";
    const TITLE: &'static str = "TPC-B";
    const UNIT: &'static str = "branch";
    const TABLES: &'static [&'static str] = &["branches", "tellers", "accounts", "history"];
    const KINDS: &'static [&'static str] = &["transfer"];
    const BATCH: u64 = 100;

    type State = TpcbWorker;

    const MAX_SIZE: u64 = MAX_SCALE;

    fn with_size(scale: u64) -> Self {
        Self { scale, seed: 0 }
    }

    fn size(&self) -> u64 {
        self.scale
    }

    /// The accounts. The first one of each branch also loads the branch and its tellers.
    fn items(&self) -> u64 {
        self.scale * ACCOUNTS
    }

    fn loaded(&self) -> (u64, u64) {
        let rows = self.scale * (1 + TELLERS + ACCOUNTS);
        (rows, rows * (rows::KEY_BYTES + rows::ROW_BYTES) as u64)
    }

    async fn load<X: Txn>(
        &self,
        tables: &[X::Table],
        items: Range<u64>,
        txn: &mut X,
    ) -> TxnResult<()> {
        for account in items {
            let branch = account / ACCOUNTS;
            let mut rows = vec![(RowKind::Account, account)];
            if account % ACCOUNTS == 0 {
                rows.push((RowKind::Branch, branch));
                rows.extend(
                    (0..TELLERS).map(|teller| (RowKind::Teller, branch * TELLERS + teller)),
                );
            }
            for (kind, number) in rows {
                let row = Row { kind, number, balance: 0 }.encode();
                txn.insert(&tables[kind as usize], &number.to_be_bytes(), &row).await?;
            }
        }
        Ok(())
    }

    fn state(&self, run: u64, worker: usize) -> TpcbWorker {
        let stream = FIRST_RUN_STREAM * (run + 1) + worker as u64;
        TpcbWorker {
            rng: Rng::new(self.seed, stream),
            history: rows::HistoryKey { run: run as u32, worker: worker as u32, sequence: 0 },
        }
    }

    async fn step<C: Client>(
        &self,
        tables: &[C::Table],
        state: &mut TpcbWorker,
        client: &C,
    ) -> Result<Done, Failure> {
        let input = Input::draw(&mut state.rng, self.scale);
        let mut done = Done::default();
        loop {
            match self.transfer(tables, input, &state.history, client).await {
                Ok(_) => {
                    state.history.sequence += 1;
                    return Ok(done);
                }
                Err(Ended::Failed(failure)) => return Err(failure),
                Err(Ended::Conflict) => {
                    done.conflicts += 1;
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
        check::conditions(self.scale, tables, client, interrupt).await
    }
}
