//! TPC-B (TPC Benchmark B, Standard Specification, revision 2.0): branches, tellers, accounts and a
//! history, and one transaction, which moves money into an account (clause 1.2).
//!
//! Sizes are those of clause 4.2: for each branch (`--scale`) 10 tellers and 100,000 accounts, rows of
//! 100 bytes, history rows of 50, keys included, but for the key of the history, which the specification
//! does not have. All balances are 0 after the load and the history is empty, as with pgbench.
//!
//! The profile is clause 1.2 in its order: account, history, teller, branch, with the new balance of the
//! account as the answer. The teller is drawn from all, the branch is that of the teller, the account is
//! one of this branch in 85 of 100 transactions and else one of another (clause 5.3.5), unless there is
//! only one. The amount is between -999,999 and 999,999 (clause 5.3.6). There is no terminal and no
//! think time.

mod check;
pub mod rows;

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::bench::{Benchmark, Ended, wrong};
use crate::driver::control::Interrupt;
use crate::driver::failure::Failure;
use crate::driver::measure::Done;
use crate::driver::store::{Access, Client, Txn, TxnResult};
use crate::report::Condition;
use crate::rng::Rng;
use rows::{Entry, Kind, Row};

/// Tellers of a branch.
pub const TELLERS: u64 = 10;
/// Accounts of a branch.
pub const ACCOUNTS: u64 = 100_000;
/// Share of transactions whose account belongs to the branch of the teller, percent.
pub const LOCAL_PERCENT: u64 = 85;
/// Largest amount.
pub const MAX_DELTA: i64 = 999_999;
/// Largest scale: numbers of accounts stay below 2^36.
pub const MAX_SCALE: u64 = 100_000;

/// Streams of random numbers of runs begin here.
const FIRST_RUN_STREAM: u64 = 1 << 32;

/// The benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Tpcb {
    /// Branches.
    pub scale: u64,
    /// Where randomness comes from.
    pub seed: u64,
}

/// What one worker keeps between transactions.
pub struct State {
    rng: Rng,
    /// Key of its next history row.
    history: rows::HistoryKey,
}

/// What a transaction is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// The account.
    pub account: u64,
    /// The teller.
    pub teller: u64,
    /// The branch of the teller.
    pub branch: u64,
    /// What is added to the balances.
    pub delta: i64,
}

impl Input {
    /// Draws a transaction on `scale` branches.
    pub fn draw(rng: &mut Rng, scale: u64) -> Input {
        let teller = rng.below(scale * TELLERS);
        let branch = teller / TELLERS;
        let local = scale == 1 || rng.below(100) < LOCAL_PERCENT;
        let home = match local {
            true => branch,
            // One of the others, alike.
            false => (branch + 1 + rng.below(scale - 1)) % scale,
        };
        let account = home * ACCOUNTS + rng.below(ACCOUNTS);
        let delta = rng.below(2 * MAX_DELTA as u64 + 1) as i64 - MAX_DELTA;
        Input { account, teller, branch, delta }
    }
}

impl Tpcb {
    /// One try of a transaction. Gives the new balance of the account.
    async fn transfer<C: Client>(
        &self,
        tables: &[C::Table],
        input: Input,
        history: &rows::HistoryKey,
        client: &C,
    ) -> Result<i64, Ended> {
        let mut txn = client.begin(Access::ReadWrite).await?;
        let balance = add(&mut txn, tables, Kind::Account, input.account, input.delta).await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let entry = Entry { input, time_us: now.as_micros() as u64 };
        let key = history.bytes();
        txn.insert(&tables[HISTORY], &key, &entry.encode(&key)).await?;
        add(&mut txn, tables, Kind::Teller, input.teller, input.delta).await?;
        add(&mut txn, tables, Kind::Branch, input.branch, input.delta).await?;
        txn.commit().await?;
        Ok(balance)
    }
}

/// Positions in [`Benchmark::TABLES`]; those of the others are their [`Kind`]s.
const HISTORY: usize = 3;

/// Adds `delta` to a balance and gives the new one.
async fn add<X: Txn>(
    txn: &mut X,
    tables: &[X::Table],
    kind: Kind,
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

    type State = State;

    const MAX_SIZE: u64 = MAX_SCALE;

    fn with_size(scale: u64) -> Self {
        Self { scale, seed: 0 }
    }

    fn size(&self) -> u64 {
        self.scale
    }

    /// The accounts; the first of each branch brings the branch and its tellers.
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
            let mut rows = vec![(Kind::Account, account)];
            if account % ACCOUNTS == 0 {
                rows.push((Kind::Branch, branch));
                rows.extend((0..TELLERS).map(|teller| (Kind::Teller, branch * TELLERS + teller)));
            }
            for (kind, number) in rows {
                let row = Row { kind, number, balance: 0 }.encode();
                txn.insert(&tables[kind as usize], &number.to_be_bytes(), &row).await?;
            }
        }
        Ok(())
    }

    fn state(&self, run: u64, worker: usize) -> State {
        let stream = FIRST_RUN_STREAM * (run + 1) + worker as u64;
        State {
            rng: Rng::new(self.seed, stream),
            history: rows::HistoryKey { run: run as u32, worker: worker as u32, sequence: 0 },
        }
    }

    async fn step<C: Client>(
        &self,
        tables: &[C::Table],
        state: &mut State,
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
        check::conditions(self, tables, client, interrupt).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_have_the_shares_of_the_specification() {
        let (scale, draws) = (20, 400_000);
        let mut rng = Rng::new(3, 4);
        let mut tellers = vec![0u32; (scale * TELLERS) as usize];
        let mut homes = vec![0u32; scale as usize];
        let (mut local, mut sum, mut extremes) = (0, 0i64, (0, 0));
        for _ in 0..draws {
            let input = Input::draw(&mut rng, scale);
            assert_eq!(input.branch, input.teller / TELLERS);
            assert!(input.account < scale * ACCOUNTS && input.delta.abs() <= MAX_DELTA);
            tellers[input.teller as usize] += 1;
            homes[(input.account / ACCOUNTS) as usize] += 1;
            local += u32::from(input.account / ACCOUNTS == input.branch);
            sum += input.delta;
            extremes = (input.delta.min(extremes.0), input.delta.max(extremes.1));
        }
        let share = f64::from(local) / f64::from(draws);
        assert!((share - 0.85).abs() < 0.005, "{share} are local");
        for (counts, parts) in [(&tellers, 200.0), (&homes, 20.0)] {
            let mean = f64::from(draws) / parts;
            assert!(counts.iter().all(|count| (f64::from(*count) / mean - 1.0).abs() < 0.15));
        }
        assert!((sum as f64 / f64::from(draws)).abs() < 5_000.0, "amounts are around 0");
        assert!(extremes.0 < -990_000 && extremes.1 > 990_000);
        let mut rng = Rng::new(1, 1);
        assert!((0..1000).all(|_| Input::draw(&mut rng, 1).account < ACCOUNTS));
    }
}
