//! Hints to the store, which `--hints prefetch` turns on: they are no part of TPC-C, and a store may ignore them.
//!
//! - Within a transaction, the rows that it will use next are named together ([`Hints::prefetch`]).
//! - Before a transaction, while the store reads pages, its rows are read in a throw-away read-only transaction
//!   ([`read_ahead`]). Under snapshot isolation a transaction fails when a row that it changes was changed by
//!   another after its snapshot was taken, and all Payments to a warehouse change one row. A transaction that waits
//!   for the device between its snapshot and that change hardly ever wins, and makes others fail while it waits
//!   with rows changed. With its rows in memory it takes microseconds.

use clap::ValueEnum;
use serde::Serialize;

use super::delivery::oldest_order;
use super::new_order::{FEW, far_apart};
use super::payment::find_customer;
use super::request::{Delivery, NewOrder, Payment, Request};
use super::rows::order;
use super::schema::{DISTRICTS, Key, LINES, Table, Tables};
use super::workload::Halt;
use crate::driver::store::{Txn, TxnResult};

/// Whether the store is told which rows a transaction will use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hints {
    /// It is not.
    #[default]
    None,
    /// Before they are needed.
    Prefetch,
}

impl Hints {
    /// Names the rows that `txn` will use next.
    #[inline]
    pub async fn prefetch<'t, X: Txn, const N: usize>(
        self,
        txn: &X,
        rows: impl FnOnce() -> [(&'t X::Table, Key); N],
        len: usize,
    ) -> TxnResult<()>
    where
        X::Table: 't,
    {
        match self {
            Hints::None => Ok(()),
            Hints::Prefetch => txn.prefetch(&rows()[..len]).await,
        }
    }
}

/// Reads the rows that `request` will change, if it changes any, once `ahead` others of its kind and
/// warehouse have run; `found` is memory to use. The transaction itself reports rows that are missing.
pub async fn read_ahead<X: Txn>(
    txn: &X,
    tables: &Tables<X::Table>,
    request: &Request,
    ahead: usize,
    found: &mut Vec<u16>,
) -> Result<(), Halt> {
    match request {
        Request::NewOrder(request) => new_order(txn, tables, request).await,
        Request::Payment(request) => payment(txn, tables, request, found).await,
        Request::Delivery(request) => delivery(txn, tables, request, ahead).await,
        Request::OrderStatus(_) | Request::StockLevel(_) => Ok(()),
    }
}

async fn new_order<X: Txn>(
    txn: &X,
    tables: &Tables<X::Table>,
    request: &NewOrder,
) -> Result<(), Halt> {
    let items = request.lines().iter().map(|line| (tables.get(Table::Item), Key::item(line.item)));
    let items: Vec<_> = items.collect();
    txn.prefetch(&items).await?;
    txn.prefetch(&far_apart(tables, request)[..FEW + items.len()]).await?;
    Ok(())
}

async fn payment<X: Txn>(
    txn: &X,
    tables: &Tables<X::Table>,
    request: &Payment,
    found: &mut Vec<u16>,
) -> Result<(), Halt> {
    let &Payment { c_w, c_d, .. } = request;
    let c = find_customer(txn, tables, (c_w, c_d), &request.customer, found).await?;
    txn.read(tables.get(Table::Customer), &Key::customer(c_w, c_d, c), |_| ()).await?;
    Ok(())
}

async fn delivery<X: Txn>(
    txn: &X,
    tables: &Tables<X::Table>,
    &Delivery { w, .. }: &Delivery,
    ahead: usize,
) -> Result<(), Halt> {
    // All districts at once: what has to be read from the device, is read at the same time.
    let mut orders = Vec::with_capacity(DISTRICTS.into());
    for d in 1..=DISTRICTS {
        orders.extend(oldest_order(txn, tables, (w, d), ahead).await?.map(|o| (d, o)));
    }
    let keys: Vec<_> = orders.iter().map(|&(d, o)| Key::order(w, d, o)).collect();
    let mut customers = Vec::with_capacity(keys.len());
    let look = |i: usize, row: Option<&[u8]>| {
        customers.extend(row.map(|row| Key::customer(w, orders[i].0, order::C_ID.get(row))));
    };
    txn.read_many(tables.get(Table::Order), &keys, look).await?;
    // The lines of an order are in one leaf or two.
    let ends = |&(d, o)| [1, LINES.1].map(|line| Key::order_line(w, d, o, line));
    let lines = orders.iter().flat_map(ends).map(|key| (tables.get(Table::OrderLine), key));
    let customers = customers.into_iter().map(|key| (tables.get(Table::Customer), key));
    let rows: Vec<_> = lines.chain(customers).collect();
    txn.prefetch(&rows).await?;
    Ok(())
}
