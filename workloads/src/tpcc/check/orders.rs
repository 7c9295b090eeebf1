//! Checks of the orders of a district: ORDER, NEW-ORDER, ORDER-LINE, and the index by customer.

use super::reader::{Reader, whole};
use super::sums::SLOTS;
use crate::driver::store::{Txn, TxnResult};
use crate::report::figures::plural;
use crate::tpcc::conditions::{Findings, Rule};
use crate::tpcc::rows::{order, order_line};
use crate::tpcc::schema::{CUSTOMERS, ITEMS, Key, ORDERS, Table, order_at_end, order_of};

/// Delivered orders of a district after the load (condition 11).
const DELIVERED: u64 = 2_100;

/// Largest O_CARRIER_ID.
const CARRIERS: u8 = 10;

/// An order in ORDER, and its rows in other tables.
pub(super) struct Order {
    pub(super) o: u32,
    pub(super) c: u16,
    count: u8,
    pub(super) has_carrier: bool,
    is_new: bool,
    all_local: u8,
    lines: u32,
    remote_lines: u32,
}

impl<T> Reader<'_, T> {
    /// The orders of a district, by number.
    pub(super) async fn orders<X: Txn<Table = T>>(
        &self,
        txn: &X,
        (w, d): (u16, u8),
        findings: &mut Findings,
    ) -> TxnResult<Vec<Order>> {
        let mut orders = Vec::new();
        let visit = |key: &[u8], row: &[u8]| {
            let whole = whole(findings, Table::Order, key, row);
            if let (true, Some(o)) = (whole, order_of(key)) {
                let c = order::C_ID.get(row);
                findings.expect(Rule::Rows, (1..=CUSTOMERS).contains(&c), || {
                    format!("order {o} of district {d} of warehouse {w} is of customer {c}")
                });
                orders.push(Order {
                    o,
                    c,
                    count: order::OL_CNT.get(row),
                    has_carrier: order::CARRIER_ID.get(row) != 0,
                    is_new: false,
                    all_local: order::ALL_LOCAL.get(row),
                    lines: 0,
                    remote_lines: 0,
                });
                let carrier = order::CARRIER_ID.get(row);
                findings.expect(Rule::Counters, carrier <= CARRIERS, || {
                    format!("order {o} of district {d} of warehouse {w} has the carrier {carrier}")
                });
            }
        };
        self.scan(txn, Table::Order, Key::of_district(w, d), visit).await?;
        Ok(orders)
    }

    /// Conditions 2, 3, 5 and 11.
    pub(super) async fn new_orders<X: Txn<Table = T>>(
        &self,
        txn: &X,
        (w, d): (u16, u8),
        orders: &mut [Order],
        next_order: u32,
        findings: &mut Findings,
    ) -> TxnResult<()> {
        let place = || format!("district {d} of warehouse {w}");
        let (mut count, mut range) = (0u64, None);
        let visit = |key: &[u8], row: &[u8]| {
            let whole = whole(findings, Table::NewOrder, key, row);
            let (true, Some(o)) = (whole, order_of(key)) else { return };
            count += 1;
            range = Some((range.map_or(o, |(first, _)| first), o));
            let order = orders.binary_search_by_key(&o, |order| order.o);
            findings.expect(Rule::CarrierOfNewOrder, order.is_ok(), || {
                format!("{}: NEW-ORDER has order {o}, and ORDER does not", place())
            });
            if let Ok(order) = order {
                orders[order].is_new = true;
            }
        };
        self.scan(txn, Table::NewOrder, Key::of_district(w, d), visit).await?;

        let last = orders.last().map_or(0, |order| order.o);
        // If NEW-ORDER is empty it has no maximum to compare.
        let last_new = range.map_or(last, |(_, last)| last);
        let holds = next_order == last + 1 && last == last_new;
        findings.expect(Rule::NextOrder, holds, || {
            format!("{}: {next_order}, {last} and {last_new}", place())
        });
        let spanned = range.map_or(0, |(first, last)| u64::from(last - first) + 1);
        findings.expect(Rule::NewOrderRange, spanned == count, || {
            format!("{}: {}, numbers that span {spanned}", place(), plural(count, "row"))
        });
        for Order { o, has_carrier, is_new, .. } in &*orders {
            findings.expect(Rule::CarrierOfNewOrder, has_carrier != is_new, || {
                let (with, has) =
                    (if *has_carrier { "a" } else { "no" }, if *is_new { "" } else { "not " });
                format!("{}: order {o} has {with} carrier and is {has}in NEW-ORDER", place())
            });
        }
        let delivered = (orders.len() as u64).wrapping_sub(count);
        findings.expect(Rule::Undelivered, delivered == DELIVERED, || {
            format!("{}: {delivered}", place())
        });
        Ok(())
    }

    /// Conditions 4, 6 and 7; returns the amount delivered to each customer, in cents.
    pub(super) async fn lines<X: Txn<Table = T>>(
        &self,
        txn: &X,
        (w, d): (u16, u8),
        orders: &mut [Order],
        findings: &mut Findings,
    ) -> TxnResult<Vec<i64>> {
        let place = || format!("district {d} of warehouse {w}");
        let mut delivered = vec![0; SLOTS];
        let (mut at, mut count) = (0, 0);
        let visit = |key: &[u8], row: &[u8]| {
            let whole = whole(findings, Table::OrderLine, key, row);
            let (true, Some(o)) = (whole, order_of(key)) else { return };
            count += 1;
            while orders.get(at).is_some_and(|order| order.o < o) {
                at += 1;
            }
            let order = orders.get_mut(at).filter(|order| order.o == o);
            findings.expect(Rule::LinesOfOrder, order.is_some(), || {
                format!("{}: there is a line of order {o}, and no such order", place())
            });
            let Some(order) = order else { return };
            order.lines += 1;
            let (line, i) = (u32::from(key[6]), order_line::I_ID.get(row));
            let supplier = order_line::SUPPLY_W_ID.get(row);
            let sound = line == order.lines
                && (1..=ITEMS).contains(&i)
                && (1..=self.warehouses).contains(&supplier);
            findings.expect(Rule::Rows, sound, || {
                format!(
                    "{}: line {} of order {o} has the number {line}, item {i} and supplier \
                     {supplier}",
                    place(),
                    order.lines
                )
            });
            let quantity = order_line::QUANTITY.get(row);
            findings.expect(Rule::Counters, (1..=10).contains(&quantity), || {
                format!("{}: line {line} of order {o} has the quantity {quantity}", place())
            });
            order.remote_lines += u32::from(supplier != w);
            if sound && o > ORDERS {
                self.sums.supplied(supplier, i).ordered(quantity.into(), supplier != w);
            }
            let is_delivered = order_line::DELIVERY_D.get(row) != 0;
            findings.expect(Rule::DeliveryDate, is_delivered == order.has_carrier, || {
                let with =
                    |yes: bool, what: &str| format!("{} {what}", if yes { "a" } else { "no" });
                let (date, carrier) =
                    (with(is_delivered, "date"), with(order.has_carrier, "carrier"));
                format!("{}: a line of order {o} has {date}, and the order {carrier}", place())
            });
            if let (true, Some(sum)) = (is_delivered, delivered.get_mut(usize::from(order.c))) {
                *sum += i64::from(order_line::AMOUNT.get(row));
            }
        };
        self.scan(txn, Table::OrderLine, Key::of_district(w, d), visit).await?;
        let expected: u64 = orders.iter().map(|order| u64::from(order.count)).sum();
        findings.expect(Rule::LinesOfDistrict, count == expected, || {
            format!("{}: orders say {}, and {count} found", place(), plural(expected, "line"))
        });
        for Order { o, count, lines, all_local, remote_lines, .. } in &*orders {
            findings.expect(Rule::LinesOfOrder, *lines == u32::from(*count), || {
                let says = plural(u64::from(*count), "line");
                format!("{}: order {o} says {says}, and {lines} found", place())
            });
            findings.expect(Rule::Counters, *all_local == u8::from(*remote_lines == 0), || {
                let remote = plural((*remote_lines).into(), "line");
                format!(
                    "{}: order {o} has O_ALL_LOCAL {all_local} and {remote} from elsewhere",
                    place()
                )
            });
        }
        Ok(delivered)
    }

    /// The index by customer has one entry for each order.
    pub(super) async fn order_index<X: Txn<Table = T>>(
        &self,
        txn: &X,
        (w, d): (u16, u8),
        orders: &[Order],
        findings: &mut Findings,
    ) -> TxnResult<()> {
        let mut entries = 0;
        let visit = |key: &[u8], row: &[u8]| {
            entries += 1;
            whole(findings, Table::OrderCustomer, key, row);
            let c = key.get(3..5).map(|c| u16::from_be_bytes([c[0], c[1]]));
            let o = order_at_end(key);
            let place = o.and_then(|o| orders.binary_search_by_key(&o, |order| order.o).ok());
            let agrees = place.is_some_and(|place| Some(orders[place].c) == c);
            findings.expect(Rule::Indexes, agrees, || {
                let number = |number: Option<u32>| number.map_or("?".to_owned(), |n| n.to_string());
                format!(
                    "the index has order {} of district {d} of warehouse {w} for customer {}",
                    number(o),
                    number(c.map(u32::from))
                )
            });
        };
        self.scan(txn, Table::OrderCustomer, Key::of_district(w, d), visit).await?;
        findings.expect(Rule::Indexes, entries == orders.len(), || {
            let orders = plural(orders.len() as u64, "order");
            format!("district {d} of warehouse {w} has {orders} and {entries} in the index")
        });
        Ok(())
    }
}
