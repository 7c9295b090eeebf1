//! Stock-Level (clause 2.8): how many items of the last twenty orders of a district run short.

use std::ops::ControlFlow;

use super::request::StockLevel;
use super::rows::{district, order_line, stock};
use super::schema::{Key, Table, Tables};
use super::workload::{Halt, Outcome, missing};
use crate::driver::store::{Direction, Txn};

/// Orders that are looked at.
const ORDERS: u32 = 20;

/// Runs the transaction, which only reads; `items` is memory to use.
pub async fn run<X: Txn>(
    txn: &X,
    tables: &Tables<X::Table>,
    &StockLevel { w, d, threshold }: &StockLevel,
    items: &mut Vec<u32>,
) -> Result<Outcome, Halt> {
    let key = Key::district(w, d);
    let next = |row: &[u8]| district::NEXT_O_ID.get(row);
    let next = txn.read(tables.get(Table::District), &key, next).await?;
    let next = next.ok_or_else(|| missing(Table::District, &key))?;

    items.clear();
    let visit = |_: &[u8], row: &[u8]| {
        items.push(order_line::I_ID.get(row));
        ControlFlow::Continue(())
    };
    let (low, high) = (Key::order(w, d, next - ORDERS), Key::order(w, d, next));
    txn.scan(tables.get(Table::OrderLine), &low, &high, Direction::Forward, visit).await?;
    items.sort_unstable();
    items.dedup();

    let mut short = 0;
    for &item in &*items {
        let key = Key::stock(w, item);
        let look = |row: &[u8]| stock::QUANTITY.get(row) < threshold;
        let is_short = txn.read(tables.get(Table::Stock), &key, look).await?;
        short += u32::from(is_short.ok_or_else(|| missing(Table::Stock, &key))?);
    }
    // What the terminal shows.
    std::hint::black_box(short);
    Ok(Outcome::Commit)
}
