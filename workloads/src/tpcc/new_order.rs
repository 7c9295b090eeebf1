//! New-Order (clause 2.4): a customer orders 5 to 15 items.

use super::hints::Hints;
use super::outcome::{Halt, Outcome, missing, wrong};
use super::request::NewOrder;
use super::rows::{
    customer, district, is_original, item, order, order_line, stock, string, warehouse,
};
use super::schema::{Key, LAST_ORDER, LINES, Table, Tables};
use crate::driver::store::Txn;

/// A line before the order has a number.
#[derive(Clone, Copy, Default)]
struct Supplied {
    amount: u32,
    dist_info: [u8; stock::DIST_BYTES],
    found: bool,
}

/// Number of rows in [`far_apart`] before those of STOCK.
pub const FEW: usize = 2;

/// Rows of a New-Order that lie far apart, without items and without the ends of tables: [`FEW`]
/// rows, then the stock of each line. Entries after the last line have no meaning.
#[inline]
pub fn far_apart<'t, T>(
    tables: &'t Tables<T>,
    request: &NewOrder,
) -> [(&'t T, Key); FEW + LINES.1 as usize] {
    let &NewOrder { w, d, c, .. } = request;
    let all = request.all_lines();
    std::array::from_fn(|i| match i {
        0 => (tables.get(Table::Customer), Key::customer(w, d, c)),
        // The place of the new entry in the index: before the newest order of the customer.
        1 => (tables.get(Table::OrderCustomer), Key::order_customer(w, d, c, LAST_ORDER)),
        _ => (tables.get(Table::Stock), Key::stock(all[i - FEW].supplier, all[i - FEW].item)),
    })
}

/// Runs the transaction at `date`; returns [`Outcome::RollBack`] if an item does not exist.
///
/// The district, for which New-Orders compete, is changed after all rows that may have to be read
/// from the device. After it come only inserts at the ends of tables.
pub async fn run<X: Txn>(
    txn: &mut X,
    tables: &Tables<X::Table>,
    request: &NewOrder,
    date: u64,
    hints: Hints,
) -> Result<Outcome, Halt> {
    // Long because it is the profile of clause 2.4.2 in one piece: each step uses values of the
    // previous steps.
    let &NewOrder { w, d, c, .. } = request;
    let lines = request.lines();
    let key = Key::warehouse(w);
    let w_tax = txn.read(tables.get(Table::Warehouse), &key, |row| warehouse::TAX.get(row)).await?;
    let w_tax = w_tax.ok_or_else(|| missing(Table::Warehouse, &key))?;
    hints.prefetch(txn, || far_apart(tables, request), FEW + lines.len()).await?;
    let mut items = [None; LINES.1 as usize];
    let look = |line: usize, row: Option<&[u8]>| {
        let original = |row| is_original(string(row, item::STRINGS, 1));
        items[line] = row.map(|row| (item::PRICE.get(row), original(row)));
    };
    txn.read_many(tables.get(Table::Item), &request.item_keys()[..lines.len()], look).await?;
    let key = Key::customer(w, d, c);
    let look = |row: &[u8]| {
        let last = string(row, customer::STRINGS, 1);
        (customer::DISCOUNT.get(row), customer::CREDIT.get(row), last.len())
    };
    let shown = txn.read(tables.get(Table::Customer), &key, look).await?;
    let (discount, credit, name) = shown.ok_or_else(|| missing(Table::Customer, &key))?;

    let mut supplied = [Supplied::default(); LINES.1 as usize];
    let mut branded = 0;
    for (line, (item, supplied)) in lines.iter().zip(items.iter().zip(&mut supplied)) {
        let Some((price, original)) = *item else { continue };
        let key = Key::stock(line.supplier, line.item);
        let mut brand = false;
        let supply = |row: &mut [u8]| {
            let quantity = i16::from(line.quantity);
            let left = stock::QUANTITY.get(row) - quantity;
            stock::QUANTITY.set(row, if left >= 10 { left } else { left + 91 });
            stock::YTD.add(row, line.quantity.into());
            stock::ORDER_CNT.add(row, 1);
            stock::REMOTE_CNT.add(row, u32::from(line.supplier != w));
            supplied.dist_info.copy_from_slice(stock::dist(row, d));
            brand = original && is_original(string(row, stock::STRINGS, 0));
        };
        if !txn.modify(tables.get(Table::Stock), &key, supply).await? {
            return Err(missing(Table::Stock, &key));
        }
        supplied.amount = u32::from(line.quantity) * price;
        supplied.found = true;
        branded += u32::from(brand);
    }

    let key = Key::district(w, d);
    let (mut o, mut d_tax) = (0, 0);
    let take_number = |row: &mut [u8]| {
        d_tax = district::TAX.get(row);
        o = district::NEXT_O_ID.get(row);
        district::NEXT_O_ID.set(row, o + 1);
    };
    if !txn.modify(tables.get(Table::District), &key, take_number).await? {
        return Err(missing(Table::District, &key));
    }
    if o > LAST_ORDER {
        return Err(wrong(format!("district {d} of warehouse {w} is out of order numbers")));
    }

    let mut row = [0; order::BYTES];
    order::OL_CNT.set(&mut row, lines.len() as u8);
    order::ALL_LOCAL.set(&mut row, u8::from(lines.iter().all(|line| line.supplier == w)));
    order::C_ID.set(&mut row, c);
    order::ENTRY_D.set(&mut row, date);
    let key = Key::order(w, d, o);
    txn.insert(tables.get(Table::Order), &key, &row).await?;
    txn.insert(tables.get(Table::NewOrder), &key, &[]).await?;
    let by_customer = Key::order_customer(w, d, c, o);
    txn.insert(tables.get(Table::OrderCustomer), &by_customer, &[]).await?;

    let mut total = 0;
    let mut rows = [(Key::order_line(w, d, o, 0), [0; order_line::BYTES]); LINES.1 as usize];
    let mut count = 0;
    for (number, (line, supplied)) in (1..).zip(lines.iter().zip(&supplied)) {
        if !supplied.found {
            continue;
        }
        let (key, row) = &mut rows[count];
        *key = Key::order_line(w, d, o, number);
        order_line::I_ID.set(row, line.item);
        order_line::AMOUNT.set(row, supplied.amount);
        order_line::SUPPLY_W_ID.set(row, line.supplier);
        order_line::QUANTITY.set(row, line.quantity);
        row[order_line::DIST_INFO..].copy_from_slice(&supplied.dist_info);
        total += u64::from(supplied.amount);
        count += 1;
    }
    txn.insert_many(tables.get(Table::OrderLine), &rows[..count]).await?;
    // In cents, with the discount and both taxes in basis points.
    let total =
        total * u64::from(10_000 - discount) * u64::from(10_000 + w_tax + d_tax) / 100_000_000;
    // The output of the terminal.
    std::hint::black_box((o, total, credit, name, branded));
    match supplied[..lines.len()].iter().all(|line| line.found) {
        true => Ok(Outcome::Commit),
        false => Ok(Outcome::RollBack),
    }
}
