//! Runs the transactions: a worker is a terminal without keying and think times.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::hints::Hints;
use super::mix::{Deck, Mix};
use super::outcome::{Halt, Outcome};
use super::random::{Constants, between};
use super::request::{Inputs, Request};
use super::schema::{DISTRICTS, Tables};
use super::{delivery, new_order, order_status, payment, read_ahead, stock_level};
use crate::driver::failure::Failure;
use crate::driver::measure::{Done, Workload};
use crate::driver::store::{Access, Client, Place, Queue, Stop, Turn, Txn};
use crate::rng::Rng;

/// Streams of random numbers below this belong to the load phase.
const FIRST_RUN_STREAM: u64 = 1 << 32;

/// Each conflict in a row doubles the number of pauses before the next try, up to two to this
/// power: some milliseconds for a task. The conflicting transaction may be waiting for pages.
const MAX_DOUBLINGS: u32 = 6;

/// TPC-C on populated tables.
pub struct Tpcc<'a, T> {
    /// The tables.
    pub tables: &'a Tables<T>,
    /// Number of warehouses.
    pub warehouses: u16,
    /// The transactions to run.
    pub mix: Mix,
    /// With a number of workers, each of them stays at one warehouse, its home. Otherwise each
    /// transaction draws a warehouse.
    pub homes_of: Option<usize>,
    /// Constants of NURand.
    pub constants: Constants,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Hints that the store gets.
    pub hints: Hints,
    /// Queues of Deliveries, one for each warehouse ([`Tpcc::queues`]). Without them Deliveries run
    /// in parallel, and all but one of those that take the same orders meet a conflict.
    pub deliveries: Option<Box<[Queue]>>,
    /// Districts in which a committed Delivery found no order.
    pub skipped: AtomicU64,
}

/// State that one worker keeps between transactions.
pub struct Terminal {
    rng: Rng,
    deck: Deck,
    number: u16,
    home: Option<u16>,
    /// The district of Stock-Level, if the terminal stays at one warehouse.
    district: Option<u8>,
    /// Number of transactions, for unique keys of HISTORY.
    payments: u16,
    customers: Vec<u16>,
    items: Vec<u32>,
}

impl<T: Sync, C: Client<Table = T>> Workload<C> for Tpcc<'_, T> {
    type State = Terminal;

    fn state(&self, number: usize) -> Terminal {
        Terminal {
            rng: Rng::new(self.seed, FIRST_RUN_STREAM + number as u64),
            deck: Deck::new(self.mix),
            number: number as u16,
            home: self.homes_of.map(|workers| home_of(number, workers, self.warehouses)),
            district: self.homes_of.map(|_| district_of(number)),
            payments: 0,
            customers: Vec::with_capacity(256),
            items: Vec::with_capacity(512),
        }
    }

    #[inline]
    async fn step(&self, terminal: &mut Terminal, client: &C) -> Result<Done, Failure> {
        let (kind, which) = terminal.deck.next(&mut terminal.rng);
        let anywhere = || between(&mut terminal.rng, 1, self.warehouses.into()) as u16;
        let w = terminal.home.unwrap_or_else(anywhere);
        let inputs = Inputs { constants: self.constants, warehouses: self.warehouses };
        let mut request = inputs.draw(&mut terminal.rng, which, w);
        if let (Request::StockLevel(request), Some(d)) = (&mut request, terminal.district) {
            request.d = d;
        }
        terminal.payments = terminal.payments.wrapping_add(1);
        let date = now();
        let mut conflicts = 0;
        let place = match (&request, &self.deliveries) {
            (Request::Delivery(delivery), Some(queues)) => {
                Some(client.enter(&queues[usize::from(delivery.w) - 1]).await)
            }
            _ => None,
        };
        if self.hints == Hints::Prefetch && client.is_paging() && !request.only_reads() {
            let ahead = place.as_ref().map_or(0, Place::ahead);
            self.read_ahead(&request, ahead, terminal, client).await?;
        }
        let mut turn = None;
        if let Some(place) = place {
            turn = Some(client.turn(place).await);
        }
        loop {
            match self.attempt(&request, date, terminal, client, &mut turn).await {
                Ok(outcome) => {
                    let rolled_back = outcome == Outcome::RollBack;
                    return Ok(Done { kind, conflicts, rolled_back });
                }
                Err(Halt::Stop(Stop::Conflict)) => {
                    // The conflicting transaction needs some time to end.
                    for _ in 0..1 << conflicts.min(MAX_DOUBLINGS) {
                        client.pause().await;
                    }
                    conflicts += 1;
                }
                Err(Halt::Stop(Stop::Failed(error))) => return Err(error.into()),
                Err(Halt::Wrong(sentence)) => return Err(Failure::Wrong(sentence)),
            }
        }
    }
}

impl<T: Sync> Tpcc<'_, T> {
    /// The queues of Deliveries, one for each warehouse. Clause 2.7.2 queues them for deferred
    /// execution, too.
    pub fn queues(warehouses: u16) -> Box<[Queue]> {
        (0..warehouses).map(|_| Queue::default()).collect()
    }

    /// Reads the rows of a transaction before it begins, while `ahead` others of its queue have not
    /// ended.
    async fn read_ahead<C: Client<Table = T>>(
        &self,
        request: &Request,
        ahead: usize,
        terminal: &mut Terminal,
        client: &C,
    ) -> Result<(), Failure> {
        let reads = async {
            let txn = client.begin(Access::ReadOnly).await?;
            let found = &mut terminal.customers;
            let read = read_ahead::read_ahead(&txn, self.tables, request, ahead, found).await;
            txn.abort().await?;
            read
        };
        match reads.await {
            // A row is missing, or the snapshot was cancelled: the transaction itself reports that.
            Ok(()) | Err(Halt::Wrong(_) | Halt::Stop(Stop::Conflict)) => Ok(()),
            Err(Halt::Stop(Stop::Failed(error))) => Err(error.into()),
        }
    }

    /// Tries a transaction once, in its turn if it has one.
    #[inline]
    async fn attempt<C: Client<Table = T>>(
        &self,
        request: &Request,
        date: u64,
        terminal: &mut Terminal,
        client: &C,
        turn: &mut Option<Turn<'_>>,
    ) -> Result<Outcome, Halt> {
        let access = if request.only_reads() { Access::ReadOnly } else { Access::ReadWrite };
        let mut txn = client.begin(access).await?;
        let tie = u32::from(terminal.number) << 16 | u32::from(terminal.payments);
        let tables = self.tables;
        let mut skipped = 0;
        let ended = match request {
            Request::NewOrder(request) => {
                new_order::run(&mut txn, tables, request, date, self.hints).await
            }
            Request::Payment(request) => {
                payment::run(&mut txn, tables, request, (date, tie), &mut terminal.customers).await
            }
            Request::OrderStatus(request) => {
                order_status::run(&txn, tables, request, &mut terminal.customers).await
            }
            Request::Delivery(request) => {
                let done = delivery::run(&mut txn, tables, request, date, self.hints).await;
                done.map(|(outcome, districts)| {
                    skipped = districts;
                    outcome
                })
            }
            Request::StockLevel(request) => {
                stock_level::run(&txn, tables, request, &mut terminal.items).await
            }
        };
        match ended {
            Ok(Outcome::Commit) => txn.commit_in_turn(turn).await?,
            Ok(Outcome::RollBack) | Err(_) => txn.abort().await?,
        }
        if skipped > 0 {
            self.skipped.fetch_add(skipped.into(), Ordering::Relaxed);
        }
        ended
    }
}

/// The home warehouse of worker `number` of `workers`. The workers of one thread have neighbouring
/// numbers, so they share as few warehouses as possible with other threads.
fn home_of(number: usize, workers: usize, warehouses: u16) -> u16 {
    1 + (number * usize::from(warehouses) / workers) as u16
}

/// The district of the Stock-Levels of worker `number`, if it stays at one warehouse: always the
/// same (clause 2.8.1.1), and a different one for each of ten neighbours.
fn district_of(number: usize) -> u8 {
    1 + (number % usize::from(DISTRICTS)) as u8
}

/// Microseconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(1, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::{district_of, home_of};
    use std::collections::HashSet;

    #[test]
    fn homes_are_shared_by_neighbours_and_all_warehouses_are_homes_of_about_as_many() {
        for (workers, warehouses) in [(1, 1), (1, 5), (2, 5), (128, 5), (7, 7), (16, 3)] {
            let homes: Vec<_> = (0..workers).map(|i| home_of(i, workers, warehouses)).collect();
            assert!(homes.is_sorted(), "{homes:?}");
            let least = workers / usize::from(warehouses);
            for w in 1..=warehouses {
                let of_it = homes.iter().filter(|home| **home == w).count();
                assert!((least..=least + 1).contains(&of_it), "{of_it} workers at {w}: {homes:?}");
            }
            assert!(homes.iter().all(|home| (1..=warehouses).contains(home)), "{homes:?}");
            let places = homes.iter().enumerate().map(|(i, w)| (*w, district_of(i)));
            let alone = places.collect::<HashSet<_>>().len();
            assert_eq!(alone, workers.min(10 * usize::from(warehouses)), "{homes:?}");
        }
    }
}
