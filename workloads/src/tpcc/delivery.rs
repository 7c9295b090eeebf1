//! Delivery (clause 2.7): delivers the oldest undelivered order of each district of a warehouse,
//! all ten in one transaction. With `--delivery-queue on`, Deliveries to one warehouse run one
//! after the other ([`super::workload::Tpcc::queues`]), and latencies include the wait.

use std::ops::ControlFlow;

use super::hints::Hints;
use super::outcome::{Halt, Outcome, missing, wrong};
use super::request::Delivery;
use super::rows::{customer, order, order_line};
use super::schema::{DISTRICTS, Key, LINES, Table, Tables, order_of};
use crate::driver::store::{Direction, Txn};

/// Runs the transaction at `date`; returns also the number of districts without an order.
///
/// Rows of NEW-ORDER, for which Deliveries compete, are removed last.
pub async fn run<X: Txn>(
    txn: &mut X,
    tables: &Tables<X::Table>,
    &Delivery { w, carrier }: &Delivery,
    date: u64,
    hints: Hints,
) -> Result<(Outcome, u32), Halt> {
    let mut delivered = [None; DISTRICTS as usize];
    for (d, delivered) in (1..).zip(&mut delivered) {
        *delivered = oldest_order(txn, tables, (w, d), 0).await?;
    }
    // Orders, their lines and customers lie far apart from district to district.
    let rows = || {
        let mut rows = [(tables.get(Table::Order), Key::district(w, 1)); 2 * DISTRICTS as usize];
        for ((d, o), [order, lines]) in orders(&delivered).zip(rows.as_chunks_mut().0) {
            *order = (tables.get(Table::Order), Key::order(w, d, o));
            *lines = (tables.get(Table::OrderLine), Key::order_line(w, d, o, 1));
        }
        rows
    };
    hints.prefetch(txn, rows, 2 * DISTRICTS as usize).await?;
    let mut customers = [(0, 0); DISTRICTS as usize];
    for ((d, o), customer) in orders(&delivered).zip(&mut customers) {
        *customer = assign(txn, tables, (w, d, o), carrier).await?;
    }
    let rows = || {
        let mut rows = [(tables.get(Table::Customer), Key::district(w, 1)); DISTRICTS as usize];
        for ((d, _), ((c, _), row)) in orders(&delivered).zip(customers.iter().zip(&mut rows)) {
            *row = (tables.get(Table::Customer), Key::customer(w, d, *c));
        }
        rows
    };
    hints.prefetch(txn, rows, DISTRICTS.into()).await?;
    for ((d, o), (c, lines)) in orders(&delivered).zip(customers) {
        hand_over(txn, tables, (w, d, o), (c, lines), date).await?;
    }
    let mut skipped = 0;
    for (d, delivered) in (1..).zip(delivered) {
        let Some(o) = delivered else {
            skipped += 1;
            continue;
        };
        let key = Key::order(w, d, o);
        if !txn.remove(tables.get(Table::NewOrder), &key).await? {
            return Err(missing(Table::NewOrder, &key));
        }
    }
    Ok((Outcome::Commit, skipped))
}

/// Districts that have an order, and its number.
fn orders(delivered: &[Option<u32>]) -> impl Iterator<Item = (u8, u32)> {
    (1..).zip(delivered).filter_map(|(d, o)| Some((d, (*o)?)))
}

/// The oldest undelivered order of a district, after `ahead` older ones have been delivered.
pub async fn oldest_order<X: Txn>(
    txn: &X,
    tables: &Tables<X::Table>,
    (w, d): (u16, u8),
    mut ahead: usize,
) -> Result<Option<u32>, Halt> {
    let mut oldest = None;
    let visit = |key: &[u8], _: &[u8]| {
        if ahead > 0 {
            ahead -= 1;
            return ControlFlow::Continue(());
        }
        oldest = order_of(key);
        ControlFlow::Break(())
    };
    let (low, high) = Key::of_district(w, d);
    txn.scan(tables.get(Table::NewOrder), &low, &high, Direction::Forward, visit).await?;
    Ok(oldest)
}

/// Assigns the carrier to an order; returns its customer and its number of lines.
async fn assign<X: Txn>(
    txn: &mut X,
    tables: &Tables<X::Table>,
    (w, d, o): (u16, u8, u32),
    carrier: u8,
) -> Result<(u16, u8), Halt> {
    let key = Key::order(w, d, o);
    let mut customer_and_lines = (0, 0);
    let assign = |row: &mut [u8]| {
        customer_and_lines = (order::C_ID.get(row), order::OL_CNT.get(row));
        order::CARRIER_ID.set(row, carrier);
    };
    if !txn.modify(tables.get(Table::Order), &key, assign).await? {
        return Err(missing(Table::Order, &key));
    }
    Ok(customer_and_lines)
}

/// Marks the lines of an order as delivered, and adds their amount to the balance of the customer.
async fn hand_over<X: Txn>(
    txn: &mut X,
    tables: &Tables<X::Table>,
    (w, d, o): (u16, u8, u32),
    (c, lines): (u16, u8),
    date: u64,
) -> Result<(), Halt> {
    let mut amounts = [None; LINES.1 as usize];
    let keys: [Key; LINES.1 as usize] =
        std::array::from_fn(|line| Key::order_line(w, d, o, line as u8 + 1));
    let keys = keys.get(..lines.into());
    let keys = keys.ok_or_else(|| wrong(format!("order {o} of district {d} has {lines} lines")))?;
    let hand_over = |line: usize, row: &mut [u8]| {
        amounts[line] = Some(order_line::AMOUNT.get(row));
        order_line::DELIVERY_D.set(row, date);
    };
    if txn.modify_many(tables.get(Table::OrderLine), keys, hand_over).await? < keys.len() {
        let absent = keys.iter().zip(amounts).find(|(_, amount)| amount.is_none());
        return Err(missing(Table::OrderLine, absent.map_or(&keys[0], |(key, _)| key)));
    }
    let total: i64 = amounts.into_iter().flatten().map(i64::from).sum();
    let key = Key::customer(w, d, c);
    let charge = |row: &mut [u8]| {
        customer::BALANCE.add(row, total);
        customer::DELIVERY_CNT.add(row, 1);
    };
    if !txn.modify(tables.get(Table::Customer), &key, charge).await? {
        return Err(missing(Table::Customer, &key));
    }
    Ok(())
}
