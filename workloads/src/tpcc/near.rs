//! Brings the rows of a transaction into memory before it begins.
//!
//! Under snapshot isolation a transaction fails when a row that it changes was changed by another
//! after its snapshot was taken, and all Payments to a warehouse change one row. One that waits for
//! the device between its snapshot and that change hardly ever wins, and makes others fail while it
//! waits with rows changed. So with data larger than memory the rows are read first, as of a snapshot
//! that nobody minds; the transaction itself then takes microseconds.

use std::ops::ControlFlow;

use super::delivery::oldest_order;
use super::payment::find_customer;
use super::request::{Delivery, NewOrder, Payment, Request};
use super::rows::order;
use super::schema::{DISTRICTS, Key, Table, Tables};
use super::workload::Halt;
use crate::driver::store::{Direction, Txn};

/// Reads what `request` will change, if it changes anything; `found` is memory to use. Rows that are
/// missing are left to the transaction to find out about.
pub async fn bring_near<X: Txn>(
    txn: &X,
    tables: &Tables<X::Table>,
    request: &Request,
    found: &mut Vec<u16>,
) -> Result<(), Halt> {
    match request {
        Request::NewOrder(request) => new_order(txn, tables, request).await,
        Request::Payment(request) => payment(txn, tables, request, found).await,
        Request::Delivery(request) => delivery(txn, tables, request).await,
        Request::OrderStatus(_) | Request::StockLevel(_) => Ok(()),
    }
}

async fn new_order<X: Txn>(
    txn: &X,
    tables: &Tables<X::Table>,
    request: &NewOrder,
) -> Result<(), Halt> {
    let lines = request.lines();
    txn.read_many(tables.get(Table::Item), &request.item_keys()[..lines.len()], |_, _| ()).await?;
    let stock = &request.stock_keys()[..lines.len()];
    txn.read_many(tables.get(Table::Stock), stock, |_, _| ()).await?;
    let key = Key::customer(request.w, request.d, request.c);
    txn.read(tables.get(Table::Customer), &key, |_| ()).await?;
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
) -> Result<(), Halt> {
    for d in 1..=DISTRICTS {
        let Some(o) = oldest_order(txn, tables, (w, d)).await? else { continue };
        let customer = |row: &[u8]| order::C_ID.get(row);
        let c = txn.read(tables.get(Table::Order), &Key::order(w, d, o), customer).await?;
        let (low, high) = (Key::order(w, d, o), Key::order(w, d, o + 1));
        let visit = |_: &[u8], _: &[u8]| ControlFlow::Continue(());
        txn.scan(tables.get(Table::OrderLine), &low, &high, Direction::Forward, visit).await?;
        if let Some(c) = c {
            txn.read(tables.get(Table::Customer), &Key::customer(w, d, c), |_| ()).await?;
        }
    }
    Ok(())
}
