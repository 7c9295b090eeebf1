//! Order-Status (clause 2.6): the newest order of a customer and its lines.

use std::ops::ControlFlow;

use super::outcome::{Halt, Outcome, missing, wrong};
use super::payment::find_customer;
use super::request::OrderStatus;
use super::rows::{customer, order, order_line, string};
use super::schema::{Key, Table, Tables, order_at_end};
use crate::driver::store::{Direction, Txn};
use crate::report::figures::plural;

/// Runs the transaction, which only reads. `found` is a buffer.
pub async fn run<X: Txn>(
    txn: &X,
    tables: &Tables<X::Table>,
    request: &OrderStatus,
    found: &mut Vec<u16>,
) -> Result<Outcome, Halt> {
    let &OrderStatus { w, d, .. } = request;
    let c = find_customer(txn, tables, (w, d), &request.customer, found).await?;
    let key = Key::customer(w, d, c);
    let look = |row: &[u8]| {
        let names = [0, 1].map(|name| string(row, customer::STRINGS, name).len());
        (customer::BALANCE.get(row), names)
    };
    let shown = txn.read(tables.get(Table::Customer), &key, look).await?;
    let shown = shown.ok_or_else(|| missing(Table::Customer, &key))?;

    let mut newest = None;
    let visit = |key: &[u8], _: &[u8]| {
        newest = order_at_end(key);
        ControlFlow::Break(())
    };
    let (low, high) = (Key::customer(w, d, c), Key::customer(w, d, c + 1));
    txn.scan(tables.get(Table::OrderCustomer), &low, &high, Direction::Forward, visit).await?;
    let o = newest.ok_or_else(|| missing(Table::OrderCustomer, &low))?;

    let key = Key::order(w, d, o);
    let look = |row: &[u8]| {
        let lines = order::OL_CNT.get(row);
        (order::C_ID.get(row), lines, order::ENTRY_D.get(row), order::CARRIER_ID.get(row))
    };
    let found = txn.read(tables.get(Table::Order), &key, look).await?;
    let (customer, lines, entered, carrier) = found.ok_or_else(|| missing(Table::Order, &key))?;
    if customer != c {
        return Err(wrong(format!(
            "order {o} of district {d} of warehouse {w} is of customer {customer}, and the index \
             has {c}"
        )));
    }
    let (mut seen, mut total) = (0, 0);
    let visit = |_: &[u8], row: &[u8]| {
        seen += 1;
        total += u64::from(order_line::AMOUNT.get(row));
        std::hint::black_box((
            order_line::I_ID.get(row),
            order_line::SUPPLY_W_ID.get(row),
            order_line::QUANTITY.get(row),
            order_line::DELIVERY_D.get(row),
        ));
        ControlFlow::Continue(())
    };
    let (low, high) = (Key::order(w, d, o), Key::order(w, d, o + 1));
    txn.scan(tables.get(Table::OrderLine), &low, &high, Direction::Forward, visit).await?;
    if seen != u32::from(lines) {
        return Err(wrong(format!(
            "order {o} of district {d} of warehouse {w} has {}, and says that it has {lines}",
            plural(seen.into(), "line")
        )));
    }
    // The output of the terminal.
    std::hint::black_box((shown, entered, carrier, total));
    Ok(Outcome::Commit)
}
