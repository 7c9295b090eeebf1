//! TATP, the telecommunication application transaction processing benchmark (Neuvonen, Wolski, Manner and
//! Raatikka, "Telecom Application Transaction Processing Benchmark", 2009): the home location register of a
//! mobile network, four tables and seven short transactions.
//!
//! Subscribers are drawn non-uniformly (section "Key value generation"): with the parameter A of the
//! specification for the number P of subscribers, `(rand(0, A) | rand(1, P)) % P + 1`.
//!
//! Some transactions look for what need not be there, or insert what may be there: they end
//! *unsuccessfully*, which is no failure. Such transactions are complete operations, with latencies of
//! their own: each kind that may end so is reported twice.
//!
//! | transaction | share | successful |
//! |---|---|---|
//! | GET_SUBSCRIBER_DATA | 35 % | all |
//! | GET_NEW_DESTINATION | 10 % | 23.9 % (14.8 % by the rules of the population) |
//! | GET_ACCESS_DATA | 35 % | 62.5 % |
//! | UPDATE_SUBSCRIBER_DATA | 2 % | 62.5 % |
//! | UPDATE_LOCATION | 14 % | all |
//! | INSERT_CALL_FORWARDING | 2 % | 31.25 % |
//! | DELETE_CALL_FORWARDING | 2 % | 31.25 % |
//!
//! Those of the last two are what the specification gives; they depend on how insertions and deletions
//! balance.

mod check;
pub mod rows;
mod transactions;

use std::ops::Range;

use crate::bench::{Benchmark, Ended};
use crate::driver::control::Interrupt;
use crate::driver::failure::Failure;
use crate::driver::measure::Done;
use crate::driver::store::{Client, Txn, TxnResult};
use crate::report::Condition;
use crate::rng::Rng;
use rows::{AccessInfo, CallForwarding, SpecialFacility, Subscriber};
use transactions::Transaction;

/// Largest number of subscribers.
pub const MAX_SUBSCRIBERS: u64 = 1 << 32;

/// Streams of random numbers of runs begin here; those below are of subscribers that are loaded.
const FIRST_RUN_STREAM: u64 = 1 << 33;

/// Positions in [`Benchmark::TABLES`].
mod table {
    pub const SUBSCRIBER: usize = 0;
    pub const NUMBER: usize = 1;
    pub const ACCESS_INFO: usize = 2;
    pub const SPECIAL_FACILITY: usize = 3;
    pub const CALL_FORWARDING: usize = 4;
}

/// The benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Tatp {
    /// Subscribers, P.
    pub subscribers: u64,
    /// Where randomness comes from.
    pub seed: u64,
}

/// What one worker keeps between transactions.
pub struct State {
    rng: Rng,
}

/// What a subscriber is loaded with.
#[derive(Clone, Debug)]
pub struct Population {
    /// Its row.
    pub subscriber: Subscriber,
    /// One to four rows.
    pub access_info: Vec<AccessInfo>,
    /// One to four rows.
    pub special_facilities: Vec<SpecialFacility>,
    /// None to three for each special facility.
    pub call_forwardings: Vec<CallForwarding>,
}

/// A number from `low` to `high`, both included.
fn between(rng: &mut Rng, low: u64, high: u64) -> u64 {
    low + rng.below(high - low + 1)
}

/// `count` different ones of `values`, ascending.
fn some<const N: usize>(rng: &mut Rng, count: usize, mut values: [u8; N]) -> Vec<u8> {
    for i in 0..count {
        let other = i + rng.below((N - i) as u64) as usize;
        values.swap(i, other);
    }
    let mut chosen = values[..count].to_vec();
    chosen.sort_unstable();
    chosen
}

impl Tatp {
    /// The parameter A of the choice of subscribers.
    fn spread(&self) -> u64 {
        match self.subscribers {
            ..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        }
    }

    /// Draws a subscriber.
    pub fn subscriber(&self, rng: &mut Rng) -> u64 {
        let (spread, uniform) = (rng.below(self.spread() + 1), between(rng, 1, self.subscribers));
        (spread | uniform) % self.subscribers + 1
    }

    /// What subscriber `id` is loaded with (section "Database population").
    pub fn population(&self, id: u64) -> Population {
        let mut rng = Rng::new(self.seed, id);
        let rng = &mut rng;
        let subscriber = Subscriber::draw(id, rng);
        let count = between(rng, 1, 4) as usize;
        let types = some(rng, count, [1, 2, 3, 4]);
        let access_info =
            types.into_iter().map(|ai_type| AccessInfo::draw(id, ai_type, rng)).collect();
        let count = between(rng, 1, 4) as usize;
        let mut call_forwardings = Vec::new();
        let types = some(rng, count, [1, 2, 3, 4]);
        let facility = |sf_type: u8| {
            let facility = SpecialFacility::draw(id, sf_type, rng);
            let count = between(rng, 0, 3) as usize;
            for start in some(rng, count, rows::START_TIMES) {
                call_forwardings.push(CallForwarding::draw(id, sf_type, start, rng));
            }
            facility
        };
        let special_facilities = types.into_iter().map(facility).collect();
        Population { subscriber, access_info, special_facilities, call_forwardings }
    }
}

impl Benchmark for Tatp {
    const NAME: &'static str = "tatp";
    const TITLE: &'static str = "TATP";
    const UNIT: &'static str = "subscriber";
    const TABLES: &'static [&'static str] =
        &["subscriber", "sub-nbr", "access-info", "special-facility", "call-forwarding"];
    const KINDS: &'static [&'static str] = Transaction::NAMES;
    const BATCH: u64 = 16;

    type State = State;

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
        // On average 2.5 rows of access info and special facilities, and 1.5 call forwardings of each
        // of the latter.
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
            let all = self.population(id);
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

    fn state(&self, run: u64, worker: usize) -> State {
        State { rng: Rng::new(self.seed, FIRST_RUN_STREAM * (run + 1) + worker as u64) }
    }

    async fn step<C: Client>(
        &self,
        tables: &[C::Table],
        state: &mut State,
        client: &C,
    ) -> Result<Done, Failure> {
        let transaction = Transaction::draw(self, &mut state.rng);
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
        check::conditions(self, tables, client, interrupt).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_population_has_the_published_shares() {
        let bench = Tatp { subscribers: 20_000, seed: 5 };
        let (mut infos, mut facilities, mut active, mut forwardings) =
            ([0u32; 5], [0u32; 5], 0, [0u32; 4]);
        for id in 1..=bench.subscribers {
            let all = bench.population(id);
            infos[all.access_info.len()] += 1;
            facilities[all.special_facilities.len()] += 1;
            for facility in &all.special_facilities {
                active += u32::from(facility.is_active);
                let of_it = |row: &&CallForwarding| row.sf_type == facility.sf_type;
                forwardings[all.call_forwardings.iter().filter(of_it).count()] += 1;
            }
            for row in &all.call_forwardings {
                assert!(rows::START_TIMES.contains(&row.start_time));
                assert!((1..=8).contains(&(row.end_time - row.start_time)));
            }
        }
        for counts in [&infos[..], &facilities[..]] {
            assert_eq!(counts[0], 0);
            assert!(counts[1..].iter().all(|count| count.abs_diff(5_000) < 300), "{counts:?}");
        }
        let all: u32 = forwardings.iter().sum();
        assert!((f64::from(active) / f64::from(all) - 0.85).abs() < 0.01);
        let quarter = all / 4;
        assert!(forwardings.iter().all(|count| count.abs_diff(quarter) < 600), "{forwardings:?}");
    }

    #[test]
    fn subscribers_are_drawn_by_the_formula() {
        let bench = Tatp { subscribers: 100_000, seed: 1 };
        let mut rng = Rng::new(2, 2);
        let mut bits = 0u32;
        for _ in 0..100_000 {
            let id = bench.subscriber(&mut rng);
            assert!((1..=100_000).contains(&id));
            bits += ((id - 1) & 0xff).count_ones();
        }
        // Before the remainder each low bit of the disjunction is set with probability 3/4, of a uniform
        // number with 1/2. The remainder leaves much of that: 100,000 is a multiple of 32.
        assert!(bits > 100_000 * 8 * 6 / 10, "{bits} bits");
        for (subscribers, spread) in
            [(1_000_000, 65_535), (1_000_001, 1_048_575), (10_000_001, 2_097_151)]
        {
            assert_eq!(Tatp { subscribers, seed: 1 }.spread(), spread);
        }
    }
}
