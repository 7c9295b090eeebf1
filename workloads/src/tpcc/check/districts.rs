//! Checks of a district: HISTORY, its row, its customers, and the index on names.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::reader::{Reader, whole};
use super::sums::SLOTS;
use crate::driver::store::{Txn, TxnResult};
use crate::report::figures::plural;
use crate::tpcc::conditions::{Findings, Rule};
use crate::tpcc::rows::{customer, district, history, is_whole, string};
use crate::tpcc::schema::{CUSTOMERS, DISTRICTS, FIRST_UNDELIVERED, Key, Table, customer_at_end};

impl<T> Reader<'_, T> {
    /// Adds up the payments that a district received.
    pub(super) async fn history<X: Txn<Table = T>>(
        &self,
        txn: &X,
        (w, d): (u16, u8),
        number: usize,
        findings: &mut Findings,
    ) -> TxnResult<()> {
        let mut received = 0;
        let visit = |key: &[u8], row: &[u8]| {
            if !whole(findings, Table::History, key, row) {
                return;
            }
            let amount = i64::from(history::AMOUNT.get(row));
            received += amount;
            let customer =
                (history::C_W_ID.get(row), history::C_D_ID.get(row), history::C_ID.get(row));
            let paid = self.sums.payments_of(customer.0, customer.1, customer.2);
            findings.expect(Rule::Rows, paid.is_some(), || {
                format!(
                    "a row of HISTORY of district {d} of warehouse {w} has customer {customer:?}"
                )
            });
            if let Some((paid, payments)) = paid {
                paid.fetch_add(amount, Ordering::Relaxed);
                payments.fetch_add(1, Ordering::Relaxed);
            }
        };
        self.scan(txn, Table::History, Key::of_district(w, d), visit).await?;
        self.sums.received[number].store(received, Ordering::Relaxed);
        Ok(())
    }

    /// Checks all rows of a district except HISTORY; for the last district also the stock of the
    /// warehouse.
    pub(super) async fn district<X: Txn<Table = T>>(
        &self,
        txn: &X,
        (w, d): (u16, u8),
        number: usize,
        findings: &mut Findings,
    ) -> TxnResult<()> {
        let place = || format!("district {d} of warehouse {w}");
        let ytd_and_next = |row: &[u8]| {
            let whole = is_whole(Table::District, row);
            whole.then(|| (district::YTD.get(row), district::NEXT_O_ID.get(row)))
        };
        let key = Key::district(w, d);
        let row = txn.read(self.tables.get(Table::District), &key, ytd_and_next).await?.flatten();
        findings.expect(Rule::Rows, row.is_some(), || format!("{} has no row", place()));
        let (ytd, next_order) = row.unwrap_or_default();
        let received = self.sums.received[number].load(Ordering::Relaxed);
        findings.expect(Rule::DistrictHistory, ytd == received, || {
            format!("{} has D_YTD {ytd} but received {received}, in cents", place())
        });

        let mut orders = self.orders(txn, (w, d), findings).await?;
        self.new_orders(txn, (w, d), &mut orders, next_order, findings).await?;
        let delivered = self.lines(txn, (w, d), &mut orders, findings).await?;
        self.order_index(txn, (w, d), &orders, findings).await?;
        let mut deliveries = vec![0; SLOTS];
        for order in &orders {
            if let (true, true, Some(count)) = (
                order.has_carrier,
                order.o >= FIRST_UNDELIVERED,
                deliveries.get_mut(usize::from(order.c)),
            ) {
                *count += 1;
            }
        }
        drop(orders);
        self.customers(txn, (w, d), &delivered, &deliveries, findings).await?;
        if d == DISTRICTS {
            self.stock(txn, w, findings).await?;
        }
        Ok(())
    }

    /// Conditions 10 and 12, the counters of customers, and the index on names.
    pub(super) async fn customers<X: Txn<Table = T>>(
        &self,
        txn: &X,
        (w, d): (u16, u8),
        delivered: &[i64],
        deliveries: &[u32],
        findings: &mut Findings,
    ) -> TxnResult<()> {
        let mut count = 0;
        // The key of each customer in the index on names.
        let mut names = BTreeMap::new();
        let visit = |key: &[u8], row: &[u8]| {
            let whole = whole(findings, Table::Customer, key, row);
            let (true, Some(c)) = (whole, customer_at_end(key)) else { return };
            count += 1;
            findings.expect(Rule::Rows, (1..=CUSTOMERS).contains(&c), || {
                format!("district {d} of warehouse {w} has a customer {c}")
            });
            let sums = delivered.get(usize::from(c)).zip(self.sums.payments_of(w, d, c));
            let Some((&delivered, (paid, paid_times))) = sums else { return };
            let paid = paid.load(Ordering::Relaxed);
            let balance = customer::BALANCE.get(row);
            findings.expect(Rule::Balance, balance == delivered - paid, || {
                format!(
                    "customer {c} of district {d} of warehouse {w} has C_BALANCE {balance}, got \
                     goods of {delivered} and paid {paid}, in cents"
                )
            });
            let payments = customer::YTD_PAYMENT.get(row);
            let holds = balance.wrapping_add(payments) == delivered;
            findings.expect(Rule::BalanceAndPayments, holds, || {
                format!(
                    "customer {c} of district {d} of warehouse {w} has C_BALANCE {balance}, \
                     C_YTD_PAYMENT {payments} and got goods of {delivered}, in cents"
                )
            });
            let (times, paid_times) =
                (customer::PAYMENT_CNT.get(row), paid_times.load(Ordering::Relaxed));
            let (got, deliveries) = (customer::DELIVERY_CNT.get(row), deliveries[usize::from(c)]);
            let agree = times == paid_times && got == deliveries;
            findings.expect(Rule::Counters, agree, || {
                format!(
                    "customer {c} of district {d} of warehouse {w} has C_PAYMENT_CNT {times} and \
                     C_DELIVERY_CNT {got}, but paid {paid_times} times and got {deliveries} orders"
                )
            });
            let credit = customer::CREDIT.get(row);
            let known = [customer::GOOD, customer::BAD].contains(&credit);
            findings.expect(Rule::Counters, known, || {
                format!(
                    "customer {c} of district {d} of warehouse {w} has the credit {credit:#06x}"
                )
            });
            let name = |number| string(row, customer::STRINGS, number);
            names.insert(c, Key::customer_name(w, d, name(1), name(0), c));
        };
        self.scan(txn, Table::Customer, Key::of_district(w, d), visit).await?;
        findings.expect(Rule::Rows, count == CUSTOMERS, || {
            format!("district {d} of warehouse {w} has {}", plural(count.into(), "customer"))
        });
        self.customer_names(txn, (w, d), &names, count, findings).await
    }

    /// The index on names has one entry for each of the `count` customers; `names` are their keys.
    async fn customer_names<X: Txn<Table = T>>(
        &self,
        txn: &X,
        (w, d): (u16, u8),
        names: &BTreeMap<u16, Key>,
        count: u16,
        findings: &mut Findings,
    ) -> TxnResult<()> {
        let mut entries = 0;
        let visit = |key: &[u8], row: &[u8]| {
            entries += 1;
            whole(findings, Table::CustomerName, key, row);
            let c = customer_at_end(key);
            let named = c.and_then(|c| names.get(&c)).is_some_and(|name| **name == *key);
            findings.expect(Rule::Indexes, named, || {
                format!("the index on names has {}, which is no customer", key.escape_ascii())
            });
        };
        self.scan(txn, Table::CustomerName, Key::of_district(w, d), visit).await?;
        findings.expect(Rule::Indexes, entries == count, || {
            let customers = plural(count.into(), "customer");
            format!("district {d} of warehouse {w} has {customers} and {entries} in the index")
        });
        Ok(())
    }
}
