//! Payment (clause 2.5): a customer pays at a warehouse. Also finds customers by name.

use std::io::Write;
use std::ops::ControlFlow;

use super::outcome::{Halt, Outcome, missing};
use super::request::{CustomerBy, Payment};
use super::rows::{customer, district, history, string, warehouse};
use super::schema::{Key, Table, Tables, customer_at_end};
use crate::driver::store::{Direction, Txn};

/// Finds a customer of a district by number or last name. Of several customers with one last name
/// it is the one in the middle, rounded up, ordered by first name (clause 2.5.2.2). `found` is a
/// buffer.
pub async fn find_customer<X: Txn>(
    txn: &X,
    tables: &Tables<X::Table>,
    (w, d): (u16, u8),
    customer: &CustomerBy,
    found: &mut Vec<u16>,
) -> Result<u16, Halt> {
    let name = match customer {
        CustomerBy::Number(c) => return Ok(*c),
        CustomerBy::Name(name) => name,
    };
    found.clear();
    let (low, high) = Key::customers_named(w, d, name.as_bytes());
    let visit = |key: &[u8], _: &[u8]| {
        found.extend(customer_at_end(key));
        ControlFlow::Continue(())
    };
    txn.scan(tables.get(Table::CustomerName), &low, &high, Direction::Forward, visit).await?;
    match found.len() {
        0 => Err(missing(Table::CustomerName, &low)),
        count => Ok(found[(count - 1) / 2]),
    }
}

/// The text to put before C_DATA of a customer with bad credit: at most 36 characters.
fn bad_credit_note(request: &Payment, c: u16) -> ([u8; 48], usize) {
    let &Payment { w, d, c_w, c_d, amount, .. } = request;
    let mut text = [0; 48];
    let mut rest = &mut text[..];
    let (units, cents) = (amount / 100, amount % 100);
    write!(rest, "{c} {c_d} {c_w} {d} {w} {units}.{cents:02} ")
        .expect("numbers of these sizes take 37 bytes at most");
    let left = rest.len();
    (text, text.len() - left)
}

/// Runs the transaction at `date`. `tie` makes the key of its row of HISTORY unique among rows of
/// the same date; `found` is a buffer.
///
/// The customer, whose page may have to be read from the device, comes first; then the district and
/// the warehouse, for which Payments compete.
pub async fn run<X: Txn>(
    txn: &mut X,
    tables: &Tables<X::Table>,
    request: &Payment,
    (date, tie): (u64, u32),
    found: &mut Vec<u16>,
) -> Result<Outcome, Halt> {
    let &Payment { w, d, c_w, c_d, amount, .. } = request;
    let c = find_customer(txn, tables, (c_w, c_d), &request.customer, found).await?;
    let key = Key::customer(c_w, c_d, c);
    let mut balance = 0;
    let pay = |row: &mut [u8]| {
        balance = customer::BALANCE.add(row, -i64::from(amount));
        customer::YTD_PAYMENT.add(row, amount.into());
        customer::PAYMENT_CNT.add(row, 1);
        if customer::CREDIT.get(row) == customer::BAD {
            let (text, len) = bad_credit_note(request, c);
            customer::prepend_data(row, &text[..len]);
        }
    };
    if !txn.modify(tables.get(Table::Customer), &key, pay).await? {
        return Err(missing(Table::Customer, &key));
    }

    // H_DATA: both names, separated by four blanks.
    let mut row = [0; history::STRINGS + 1 + 24];
    let data = history::STRINGS + 1;
    let (mut d_name, mut w_name) = (([0; 10], 0), ([0; 10], 0));
    let key = Key::district(w, d);
    let receive = |row: &mut [u8]| {
        district::YTD.add(row, amount.into());
        d_name = name_of(string(row, district::STRINGS, 0));
    };
    if !txn.modify(tables.get(Table::District), &key, receive).await? {
        return Err(missing(Table::District, &key));
    }
    let key = Key::warehouse(w);
    let receive = |row: &mut [u8]| {
        warehouse::YTD.add(row, amount.into());
        w_name = name_of(string(row, warehouse::STRINGS, 0));
    };
    if !txn.modify(tables.get(Table::Warehouse), &key, receive).await? {
        return Err(missing(Table::Warehouse, &key));
    }

    history::AMOUNT.set(&mut row, amount);
    history::C_W_ID.set(&mut row, c_w);
    history::C_D_ID.set(&mut row, c_d);
    history::C_ID.set(&mut row, c);
    let mut end = data;
    for part in [&w_name.0[..w_name.1], b"    ", &d_name.0[..d_name.1]] {
        row[end..end + part.len()].copy_from_slice(part);
        end += part.len();
    }
    row[history::STRINGS] = (end - data) as u8;
    txn.insert(tables.get(Table::History), &Key::history(w, d, date, tie), &row[..end]).await?;
    // The output of the terminal.
    std::hint::black_box(balance);
    Ok(Outcome::Commit)
}

/// Copies a name of a warehouse or district, of at most ten characters.
fn name_of(name: &[u8]) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let len = name.len().min(bytes.len());
    bytes[..len].copy_from_slice(&name[..len]);
    (bytes, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_on_a_bad_customer_has_the_six_fields_of_clause_2_5_2_2() {
        let customer = CustomerBy::Number(3000);
        let payment = Payment { w: 65535, d: 10, c_w: 65534, c_d: 9, customer, amount: 500_000 };
        let (text, len) = bad_credit_note(&payment, 3000);
        assert_eq!(&text[..len], b"3000 9 65534 10 65535 5000.00 ");
        let (text, len) = bad_credit_note(&Payment { amount: 1_05, ..payment }, 7);
        assert_eq!(&text[..len], b"7 9 65534 10 65535 1.05 ");
    }
}
