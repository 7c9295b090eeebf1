//! Stock-Level (clause 2.8): counts the items of the last twenty orders of a district whose stock
//! is below a threshold.

use std::ops::ControlFlow;

use super::outcome::{Halt, Outcome, missing};
use super::request::StockLevel;
use super::rows::{district, order_line, stock};
use super::schema::{Key, Table, Tables};
use crate::driver::store::{Direction, Txn};

/// Orders to look at.
const ORDERS: u32 = 20;
/// Rows of STOCK in one look-up.
const BATCH: usize = 64;

/// Runs the transaction, which only reads. `items` is a buffer.
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

    // The keys of a batch are on the stack.
    let (mut short, mut absent) = (0, None);
    for batch in items.chunks(BATCH) {
        let mut keys = [[0; 5]; BATCH];
        for (key, item) in keys.iter_mut().zip(batch) {
            key.copy_from_slice(&Key::stock(w, *item));
        }
        let look = |number, row: Option<&[u8]>| match row {
            Some(row) => short += u32::from(stock::QUANTITY.get(row) < threshold),
            None => absent = Some(batch[number]),
        };
        txn.read_many(tables.get(Table::Stock), &keys[..batch.len()], look).await?;
    }
    if let Some(item) = absent {
        return Err(missing(Table::Stock, &Key::stock(w, item)));
    }
    // The output of the terminal.
    std::hint::black_box(short);
    Ok(Outcome::Commit)
}
