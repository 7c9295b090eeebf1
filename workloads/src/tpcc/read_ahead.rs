//! Reads the rows of a transaction before it begins ([`super::hints`]).

use super::delivery::oldest_order;
use super::new_order::{FEW, far_apart};
use super::outcome::Halt;
use super::payment::find_customer;
use super::request::{Delivery, NewOrder, Payment, Request};
use super::rows::order;
use super::schema::{DISTRICTS, Key, LINES, Table, Tables};
use crate::driver::store::Txn;

/// Reads the rows that `request` will change, after `ahead` others of its kind and warehouse have
/// run. `found` is a buffer. The transaction itself reports missing rows.
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
    // All districts at once, so that the device reads their pages in parallel.
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
    // The lines of an order lie in one or two leaves.
    let ends = |&(d, o)| [1, LINES.1].map(|line| Key::order_line(w, d, o, line));
    let lines = orders.iter().flat_map(ends).map(|key| (tables.get(Table::OrderLine), key));
    let customers = customers.into_iter().map(|key| (tables.get(Table::Customer), key));
    let rows: Vec<_> = lines.chain(customers).collect();
    txn.prefetch(&rows).await?;
    Ok(())
}
