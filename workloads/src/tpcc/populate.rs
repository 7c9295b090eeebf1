//! The rows of the initial population (clause 4.3.3.1). Each function appends one row.

use super::random::{self, LastName, between, digits, letters, string};
use super::rows::{customer, district, history, item, order, order_line, stock, warehouse};
use super::schema::{FIRST_UNDELIVERED, ITEMS, LINES, ORDERS};
use crate::rng::Rng;

/// Cents of a dollar.
const CENTS: i64 = 100;
/// W_YTD in cents.
const WAREHOUSE_YTD: i64 = 300_000 * CENTS;
/// D_YTD in cents.
const DISTRICT_YTD: i64 = 30_000 * CENTS;
/// First payment of every customer, in cents: H_AMOUNT, C_YTD_PAYMENT, and the negative of
/// C_BALANCE.
const FIRST_PAYMENT: i64 = 10 * CENTS;
/// C_CREDIT_LIM in cents.
const CREDIT_LIMIT: i64 = 50_000 * CENTS;

/// State and zip code (clause 4.3.2.7).
fn state_zip(rng: &mut Rng, row: &mut Vec<u8>) {
    letters(rng, 2, row);
    digits(rng, 4, row);
    row.extend_from_slice(b"11111");
}

/// Two streets and a city.
fn address(rng: &mut Rng, row: &mut Vec<u8>) {
    for _ in 0..3 {
        string(rng, 10, 20, row);
    }
}

fn tax(rng: &mut Rng) -> u16 {
    between(rng, 0, 2000) as u16
}

/// A row of ITEM.
pub fn item(rng: &mut Rng, original: bool, row: &mut Vec<u8>) {
    row.resize(item::STRINGS, 0);
    item::IM_ID.set(row, between(rng, 1, 10_000) as u32);
    item::PRICE.set(row, between(rng, 100, 10_000) as u32);
    string(rng, 14, 24, row);
    random::data(rng, original, row);
}

/// A row of WAREHOUSE.
pub fn warehouse(rng: &mut Rng, row: &mut Vec<u8>) {
    row.resize(warehouse::STATE_ZIP, 0);
    warehouse::YTD.set(row, WAREHOUSE_YTD);
    warehouse::TAX.set(row, tax(rng));
    state_zip(rng, row);
    string(rng, 6, 10, row);
    address(rng, row);
}

/// A row of DISTRICT.
pub fn district(rng: &mut Rng, row: &mut Vec<u8>) {
    row.resize(district::STATE_ZIP, 0);
    district::YTD.set(row, DISTRICT_YTD);
    district::NEXT_O_ID.set(row, ORDERS + 1);
    district::TAX.set(row, tax(rng));
    state_zip(rng, row);
    string(rng, 6, 10, row);
    address(rng, row);
}

/// A row of STOCK.
pub fn stock(rng: &mut Rng, original: bool, row: &mut Vec<u8>) {
    row.resize(stock::DIST, 0);
    stock::QUANTITY.set(row, between(rng, 10, 100) as i16);
    letters(rng, stock::STRINGS - stock::DIST, row);
    random::data(rng, original, row);
}

/// C_LAST of customer `c` of a district: each of the thousand names once, then random ones.
pub fn last_name(rng: &mut Rng, constant: u64, c: u16) -> LastName {
    LastName::of(match c {
        1..=1000 => u64::from(c) - 1,
        _ => random::nurand(rng, 255, constant, 0, 999),
    })
}

/// A row of CUSTOMER.
pub fn customer(rng: &mut Rng, last: LastName, bad_credit: bool, date: u64, row: &mut Vec<u8>) {
    row.resize(customer::FIXED, 0);
    customer::BALANCE.set(row, -FIRST_PAYMENT);
    customer::YTD_PAYMENT.set(row, FIRST_PAYMENT);
    customer::PAYMENT_CNT.set(row, 1);
    customer::DISCOUNT.set(row, between(rng, 0, 5000) as u16);
    customer::CREDIT.set(row, if bad_credit { customer::BAD } else { customer::GOOD });
    customer::CREDIT_LIM.set(row, CREDIT_LIMIT);
    customer::SINCE.set(row, date);
    row.extend_from_slice(b"OE");
    state_zip(rng, row);
    digits(rng, 16, row);
    string(rng, 8, 16, row);
    row.push(last.as_bytes().len() as u8);
    row.extend_from_slice(last.as_bytes());
    address(rng, row);
    let data = between(rng, 300, customer::MAX_DATA as u64) as u16;
    row.extend_from_slice(&data.to_le_bytes());
    let start = row.len();
    letters(rng, data.into(), row);
    if bad_credit {
        row.resize(start + customer::MAX_DATA, b' ');
    }
}

/// A row of HISTORY: the first payment of a customer.
pub fn history(rng: &mut Rng, (w, d, c): (u16, u8, u16), row: &mut Vec<u8>) {
    row.resize(history::STRINGS, 0);
    history::AMOUNT.set(row, FIRST_PAYMENT as u32);
    history::C_W_ID.set(row, w);
    history::C_D_ID.set(row, d);
    history::C_ID.set(row, c);
    string(rng, 12, 24, row);
}

/// Whether order `o` of the population is delivered.
pub fn is_delivered(o: u32) -> bool {
    o < FIRST_UNDELIVERED
}

/// A row of ORDER; returns the number of its lines.
pub fn order(rng: &mut Rng, o: u32, c: u16, date: u64, row: &mut Vec<u8>) -> u8 {
    let lines = between(rng, LINES.0.into(), LINES.1.into()) as u8;
    let carrier = between(rng, 1, 10) as u8;
    row.resize(order::BYTES, 0);
    order::CARRIER_ID.set(row, if is_delivered(o) { carrier } else { 0 });
    order::OL_CNT.set(row, lines);
    order::ALL_LOCAL.set(row, 1);
    order::C_ID.set(row, c);
    order::ENTRY_D.set(row, date);
    lines
}

/// A row of ORDER-LINE.
pub fn order_line(rng: &mut Rng, w: u16, o: u32, date: u64, row: &mut Vec<u8>) {
    row.resize(order_line::DIST_INFO, 0);
    let delivered = is_delivered(o);
    order_line::DELIVERY_D.set(row, if delivered { date } else { 0 });
    order_line::I_ID.set(row, between(rng, 1, ITEMS.into()) as u32);
    order_line::SUPPLY_W_ID.set(row, w);
    order_line::QUANTITY.set(row, 5);
    let amount = between(rng, 1, 999_999) as u32;
    order_line::AMOUNT.set(row, if delivered { 0 } else { amount });
    letters(rng, stock::DIST_BYTES, row);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::rows::{I64, U16, is_original, string};

    #[test]
    fn rows_have_the_fields_of_clause_4_3_3_1() {
        let mut rng = Rng::new(1, 1);
        for round in 0..500 {
            let bad = round % 2 == 0;
            let mut row = Vec::new();
            customer(&mut rng, LastName::of(round), bad, 77, &mut row);
            let at = customer::data_at(&row);
            let data = usize::from(U16(at).get(&row));
            assert!((300..=500).contains(&data));
            assert_eq!(row.len(), at + 2 + if bad { 500 } else { data });
            assert_eq!(string(&row, customer::STRINGS, 1), LastName::of(round).as_bytes());
            assert!((8..=16).contains(&string(&row, customer::STRINGS, 0).len()));
            assert!(customer::DISCOUNT.get(&row) <= 5000);
            assert_eq!(&row[customer::FIXED..][..2], b"OE");
            assert_eq!(&row[customer::FIXED + 8..][..5], b"11111");
            assert_eq!((customer::BALANCE.get(&row), customer::SINCE.get(&row)), (-1000, 77));

            let mut row = Vec::new();
            stock(&mut rng, bad, &mut row);
            assert!((10..=100).contains(&stock::QUANTITY.get(&row)));
            assert_eq!(is_original(string(&row, stock::STRINGS, 0)), bad);
            assert!(stock::dist(&row, 10).iter().all(u8::is_ascii));

            for (row, ytd) in [(&mut Vec::new(), WAREHOUSE_YTD), (&mut Vec::new(), DISTRICT_YTD)] {
                let strings = if ytd == WAREHOUSE_YTD {
                    warehouse(&mut rng, row);
                    assert!(warehouse::TAX.get(row) <= 2000);
                    warehouse::STRINGS
                } else {
                    district(&mut rng, row);
                    assert_eq!(district::NEXT_O_ID.get(row), 3001);
                    district::STRINGS
                };
                assert_eq!(I64(0).get(row), ytd);
                assert!((6..=10).contains(&string(row, strings, 0).len()));
                assert!((10..=20).contains(&string(row, strings, 3).len()));
            }
        }
    }

    #[test]
    fn orders_from_2101_on_are_not_delivered() {
        let mut rng = Rng::new(2, 1);
        for o in 1..=3000 {
            let (mut order, mut line) = (Vec::new(), Vec::new());
            let lines = super::order(&mut rng, o, 5, 9, &mut order);
            order_line(&mut rng, 3, o, 9, &mut line);
            assert!((5..=15).contains(&lines) && order::OL_CNT.get(&order) == lines);
            assert_eq!((order.len(), line.len()), (order::BYTES, order_line::BYTES));
            let (carrier, amount) = (order::CARRIER_ID.get(&order), order_line::AMOUNT.get(&line));
            match o < 2101 {
                true => assert!((1..=10).contains(&carrier) && amount == 0),
                false => assert!(carrier == 0 && (1..=999_999).contains(&amount)),
            }
            assert_eq!(order_line::DELIVERY_D.get(&line) == 0, o >= 2101);
        }
    }
}
