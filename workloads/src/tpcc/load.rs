//! The load phase: all workers load the initial population in parallel.
//!
//! The work is divided into parts: the items, the stock of a warehouse, the customers or the orders
//! of a district. Within a part every table is filled in key order. The content of a part depends
//! only on the seed and on its number, not on the worker that loads it. Each transaction inserts up
//! to [`BATCH`] rows.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::populate;
use super::random::{Tenth, permutation};
use super::rows;
use super::schema::{CUSTOMERS, DISTRICTS, ITEMS, Key, ORDERS, Table, Tables};
use crate::driver::control::{Control, Interrupt, Phase};
use crate::driver::crew::{self, Crew, Job, Worker};
use crate::driver::failure::Failure;
use crate::driver::load::LoadEnd;
use crate::driver::store::{Access, Client, Stop, Store, Txn, TxnResult};
use crate::rng::Rng;

/// Rows of a transaction.
const BATCH: usize = 256;

/// Tasks of each loading thread: some generate rows while others wait for their commits.
const TASKS: usize = 8;

/// Mean number of rows and index entries of a warehouse; 300,000 are lines of orders.
pub const ROWS_PER_WAREHOUSE: u64 = 559_011;

/// The population to load.
#[derive(Clone, Copy, Debug)]
pub struct LoadPlan {
    /// The workers of the run. The load uses at most one thread for each core.
    pub crew: Crew,
    /// Number of warehouses.
    pub warehouses: u16,
    /// The constant C of NURand for C_LAST.
    pub last_name_constant: u64,
    /// Seed of all random numbers.
    pub seed: u64,
    /// All dates of the population, microseconds since 1970.
    pub date: u64,
}

/// The result of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// How long it took.
    pub time: Duration,
    /// Rows and index entries.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// Fills the empty `tables`.
pub fn load<S: Store>(
    store: &S,
    tables: &Tables<S::Table>,
    plan: LoadPlan,
    interrupt: &Interrupt,
    progress: &ProgressBar,
) -> LoadEnd<Loaded> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let crew = Crew {
        threads: plan.crew.threads.min(cores),
        tasks: plan.crew.tasks.max(TASKS),
        pinned: false,
    };
    let control = Control::new(crew.threads, interrupt);
    let parts = parts(plan.warehouses);
    let job = Load {
        tables,
        plan,
        control: &control,
        progress,
        parts: &parts,
        next: AtomicUsize::new(0),
        records: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    };
    let start = Instant::now();
    crew::run(store, crew, &control, &job, || control.supervise());
    LoadEnd::of(&control, || Loaded {
        time: start.elapsed(),
        records: job.records.into_inner(),
        bytes: job.bytes.into_inner(),
    })
}

/// A part of the population.
#[derive(Clone, Copy, Debug)]
enum Part {
    Items,
    Warehouse(u16),
    Customers(u16, u8),
    Orders(u16, u8),
}

impl Part {
    /// The random numbers of the part.
    fn rng(self, seed: u64) -> Rng {
        let (kind, w, d) = match self {
            Part::Items => (0, 0, 0),
            Part::Warehouse(w) => (1, w, 0),
            Part::Customers(w, d) => (2, w, d),
            Part::Orders(w, d) => (3, w, d),
        };
        Rng::new(seed, u64::from(w) << 16 | u64::from(d) << 8 | kind)
    }
}

fn parts(warehouses: u16) -> Vec<Part> {
    let of_warehouse = |w| {
        let customers = (1..=DISTRICTS).map(move |d| Part::Customers(w, d));
        let orders = (1..=DISTRICTS).map(move |d| Part::Orders(w, d));
        std::iter::once(Part::Warehouse(w)).chain(customers).chain(orders)
    };
    std::iter::once(Part::Items).chain((1..=warehouses).flat_map(of_warehouse)).collect()
}

struct Load<'a, T> {
    tables: &'a Tables<T>,
    plan: LoadPlan,
    control: &'a Control,
    progress: &'a ProgressBar,
    parts: &'a [Part],
    next: AtomicUsize,
    records: AtomicU64,
    bytes: AtomicU64,
}

impl<T: Sync, C: Client<Table = T>> Job<C> for Load<'_, T> {
    type Local = ();

    fn local(&self, _thread: usize) {}

    async fn work(&self, (): &(), _worker: Worker, client: C) -> Result<(), Failure> {
        let mut sink = Sink { load: self, client, batch: Batch::default(), row: Vec::new() };
        while let Some(&part) = self.parts.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let mut rng = part.rng(self.plan.seed);
            match part {
                Part::Items => sink.items(&mut rng).await?,
                Part::Warehouse(w) => sink.warehouse(w, &mut rng).await?,
                Part::Customers(w, d) => sink.customers(w, d, &mut rng).await?,
                Part::Orders(w, d) => sink.orders(w, d, &mut rng).await?,
            }
            sink.flush().await?;
            if self.control.signal().phase() == Phase::Stop {
                return Ok(());
            }
        }
        Ok(())
    }

    fn finish(&self, (): ()) {}
}

/// Rows of one transaction.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// The table of each row, and the ends of its key and its value in `bytes`.
    rows: Vec<(Table, usize, usize)>,
}

/// Collects the rows of a worker and inserts them.
struct Sink<'a, T, C> {
    load: &'a Load<'a, T>,
    client: C,
    batch: Batch,
    row: Vec<u8>,
}

impl<T: Sync, C: Client<Table = T>> Sink<'_, T, C> {
    async fn items(&mut self, rng: &mut Rng) -> Result<(), Failure> {
        let mut original = Tenth::of(ITEMS.into());
        for i in 1..=ITEMS {
            let chosen = original.next(rng);
            self.put(Table::Item, &Key::item(i), |row| populate::item(rng, chosen, row)).await?;
        }
        Ok(())
    }

    async fn warehouse(&mut self, w: u16, rng: &mut Rng) -> Result<(), Failure> {
        let key = Key::warehouse(w);
        self.put(Table::Warehouse, &key, |row| populate::warehouse(rng, row)).await?;
        for d in 1..=DISTRICTS {
            let key = Key::district(w, d);
            self.put(Table::District, &key, |row| populate::district(rng, row)).await?;
        }
        let mut original = Tenth::of(ITEMS.into());
        for i in 1..=ITEMS {
            let chosen = original.next(rng);
            self.put(Table::Stock, &Key::stock(w, i), |row| populate::stock(rng, chosen, row))
                .await?;
        }
        Ok(())
    }

    async fn customers(&mut self, w: u16, d: u8, rng: &mut Rng) -> Result<(), Failure> {
        let LoadPlan { last_name_constant, date, .. } = self.load.plan;
        let mut bad_credit = Tenth::of(CUSTOMERS.into());
        let mut names = Vec::with_capacity(CUSTOMERS.into());
        for c in 1..=CUSTOMERS {
            let last = populate::last_name(rng, last_name_constant, c);
            let bad = bad_credit.next(rng);
            let name = |row: &mut Vec<u8>| {
                populate::customer(rng, last, bad, date, row);
                let first = rows::string(row, rows::customer::STRINGS, 0);
                names.push(Key::customer_name(w, d, last.as_bytes(), first, c));
            };
            self.put(Table::Customer, &Key::customer(w, d, c), name).await?;
            let key = Key::history(w, d, date, c.into());
            self.put(Table::History, &key, |row| populate::history(rng, (w, d, c), row)).await?;
        }
        names.sort_unstable_by(|a, b| a[..].cmp(&b[..]));
        for name in names {
            self.put(Table::CustomerName, &name, |_| ()).await?;
        }
        Ok(())
    }

    async fn orders(&mut self, w: u16, d: u8, rng: &mut Rng) -> Result<(), Failure> {
        let date = self.load.plan.date;
        let customers = permutation(rng, CUSTOMERS);
        let mut by_customer = Vec::with_capacity(customers.len());
        for (o, c) in (1..=ORDERS).zip(customers) {
            let mut lines = 0;
            let order = |row: &mut Vec<u8>| lines = populate::order(rng, o, c, date, row);
            self.put(Table::Order, &Key::order(w, d, o), order).await?;
            for line in 1..=lines {
                let key = Key::order_line(w, d, o, line);
                let line = |row: &mut Vec<u8>| populate::order_line(rng, w, o, date, row);
                self.put(Table::OrderLine, &key, line).await?;
            }
            if !populate::is_delivered(o) {
                self.put(Table::NewOrder, &Key::order(w, d, o), |_| ()).await?;
            }
            by_customer.push(Key::order_customer(w, d, c, o));
        }
        by_customer.sort_unstable_by(|a, b| a[..].cmp(&b[..]));
        for key in by_customer {
            self.put(Table::OrderCustomer, &key, |_| ()).await?;
        }
        Ok(())
    }

    /// Adds a row, whose value `fill` appends to an empty vector.
    async fn put(
        &mut self,
        table: Table,
        key: &[u8],
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Failure> {
        self.row.clear();
        fill(&mut self.row);
        self.batch.bytes.extend_from_slice(key);
        let key_end = self.batch.bytes.len();
        self.batch.bytes.extend_from_slice(&self.row);
        self.batch.rows.push((table, key_end, self.batch.bytes.len()));
        if self.batch.rows.len() >= BATCH {
            self.flush().await?;
        }
        Ok(())
    }

    /// Inserts the rows of the batch, unless the load was stopped.
    async fn flush(&mut self) -> Result<(), Failure> {
        if self.load.control.signal().phase() == Phase::Stop {
            self.batch.rows.clear();
        }
        while !self.batch.rows.is_empty() {
            match self.try_flush().await {
                Ok(()) => break,
                Err(Stop::Conflict) => self.client.pause().await,
                Err(Stop::Failed(error)) => return Err(error.into()),
            }
        }
        let Batch { bytes, rows } = &mut self.batch;
        self.load.progress.inc(rows.len() as u64);
        self.load.records.fetch_add(rows.len() as u64, Ordering::Relaxed);
        self.load.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        bytes.clear();
        rows.clear();
        Ok(())
    }

    async fn try_flush(&self) -> TxnResult<()> {
        let Batch { bytes, rows } = &self.batch;
        let mut txn = self.client.begin(Access::ReadWrite).await.map_err(Stop::Failed)?;
        let (mut start, mut pairs) = (0, Vec::with_capacity(BATCH));
        for rows in rows.chunk_by(|row, next| row.0 == next.0) {
            pairs.clear();
            for &(_, key_end, end) in rows {
                pairs.push((&bytes[start..key_end], &bytes[key_end..end]));
                start = end;
            }
            let table = self.load.tables.get(rows[0].0);
            if let Err(stop) = txn.insert_many(table, &pairs).await {
                txn.abort().await.map_err(Stop::Failed)?;
                return Err(stop);
            }
        }
        txn.commit().await
    }
}
