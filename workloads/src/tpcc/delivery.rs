//! Delivery (clause 2.7): the oldest order of each district of a warehouse that is not delivered yet.
//! All ten are one transaction. Those to one warehouse are run one after the other
//! ([`super::workload::Tpcc::queues`]), and latencies include the wait.

use std::ops::ControlFlow;

use super::request::Delivery;
use super::rows::{customer, order, order_line};
use super::schema::{DISTRICTS, Key, Table, Tables, order_of};
use super::workload::{Halt, Outcome, missing};
use crate::driver::store::{Direction, Txn};

/// Runs the transaction at `date`; gives also how many districts had nothing to deliver.
///
/// The rows of NEW-ORDER, where Deliveries meet, go last.
pub async fn run<X: Txn>(
    txn: &mut X,
    tables: &Tables<X::Table>,
    &Delivery { w, carrier }: &Delivery,
    date: u64,
) -> Result<(Outcome, u32), Halt> {
    let mut delivered = [None; DISTRICTS as usize];
    for (d, delivered) in (1..).zip(&mut delivered) {
        *delivered = oldest_order(txn, tables, (w, d), 0).await?;
        if let Some(o) = *delivered {
            deliver(txn, tables, (w, d, o), carrier, date).await?;
        }
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

/// The oldest order of a district that is not delivered yet, once so many `ahead` of it are.
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

/// Delivers one order, all but its row in NEW-ORDER.
async fn deliver<X: Txn>(
    txn: &mut X,
    tables: &Tables<X::Table>,
    (w, d, o): (u16, u8, u32),
    carrier: u8,
    date: u64,
) -> Result<(), Halt> {
    let key = Key::order(w, d, o);
    let (mut c, mut lines) = (0, 0);
    let assign = |row: &mut [u8]| {
        (c, lines) = (order::C_ID.get(row), order::OL_CNT.get(row));
        order::CARRIER_ID.set(row, carrier);
    };
    if !txn.modify(tables.get(Table::Order), &key, assign).await? {
        return Err(missing(Table::Order, &key));
    }
    let mut total = 0;
    for line in 1..=lines {
        let key = Key::order_line(w, d, o, line);
        let mut amount = 0;
        let hand_over = |row: &mut [u8]| {
            amount = order_line::AMOUNT.get(row);
            order_line::DELIVERY_D.set(row, date);
        };
        if !txn.modify(tables.get(Table::OrderLine), &key, hand_over).await? {
            return Err(missing(Table::OrderLine, &key));
        }
        total += i64::from(amount);
    }
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
