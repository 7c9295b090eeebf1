//! Checks of whole warehouses: WAREHOUSE, STOCK, ITEM, and rows that belong to no warehouse.

use std::sync::atomic::Ordering;

use super::reader::{Reader, whole};
use crate::driver::store::{Txn, TxnResult};
use crate::report::figures::plural;
use crate::tpcc::conditions::{Findings, Rule};
use crate::tpcc::rows::{district, is_whole, stock, warehouse};
use crate::tpcc::schema::{DISTRICTS, ITEMS, Key, Table, item_at_end};

/// Valid values of S_QUANTITY: New-Order adds 91 if fewer than 10 would be left.
const QUANTITIES: std::ops::RangeInclusive<i16> = 10..=100;

impl<T> Reader<'_, T> {
    /// The stock of a warehouse is complete; its counters go into the sums.
    pub(super) async fn stock<X: Txn<Table = T>>(
        &self,
        txn: &X,
        w: u16,
        findings: &mut Findings,
    ) -> TxnResult<()> {
        let mut count = 0;
        let visit = |key: &[u8], row: &[u8]| {
            if whole(findings, Table::Stock, key, row) {
                count += 1;
                let quantity = stock::QUANTITY.get(row);
                findings.expect(Rule::Counters, QUANTITIES.contains(&quantity), || {
                    let key = key.escape_ascii();
                    format!("the stock row with the key {key} has S_QUANTITY {quantity}")
                });
                let item = item_at_end(key).filter(|i| (1..=ITEMS).contains(i));
                if let Some(i) = item {
                    self.sums.supplied(w, i).stocked(row);
                }
            }
        };
        let bounds = (Key::stock(w, 1), Key::stock(w, ITEMS + 1));
        self.scan(txn, Table::Stock, bounds, visit).await?;
        findings.expect(Rule::Rows, count == ITEMS, || {
            format!("warehouse {w} has {}", plural(count.into(), "stock row"))
        });
        Ok(())
    }

    /// No table has rows outside of the key ranges of its warehouses, districts and items, where no
    /// other scan reads them.
    pub(super) async fn strays<X: Txn<Table = T>>(
        &self,
        txn: &X,
        findings: &mut Findings,
    ) -> TxnResult<()> {
        let warehouses = || 1..=self.warehouses;
        for table in Table::ALL {
            // The key ranges of valid rows, in order.
            let places: Vec<(Key, Key)> = match table {
                Table::Item => vec![(Key::item(1), Key::item(ITEMS + 1))],
                Table::Warehouse => vec![(Key::warehouse(1), Key::warehouse(self.warehouses + 1))],
                Table::Stock => {
                    warehouses().map(|w| (Key::stock(w, 1), Key::stock(w, ITEMS + 1))).collect()
                }
                _ => warehouses()
                    .map(|w| (Key::district(w, 1), Key::district(w, DISTRICTS + 1)))
                    .collect(),
            };
            let lows = std::iter::once(Key::first()).chain(places.iter().map(|(_, high)| *high));
            let highs = places.iter().map(|(low, _)| *low).chain([Key::last()]);
            for gap in lows.zip(highs) {
                let visit = |key: &[u8], _: &[u8]| {
                    findings.expect(Rule::Rows, false, || {
                        let (name, key) = (table.name(), key.escape_ascii());
                        format!("{name} has a row with the key {key}, which belongs nowhere")
                    });
                };
                self.scan(txn, table, gap, visit).await?;
            }
        }
        Ok(())
    }

    /// The items are complete, and conditions 1 and 8 of all warehouses.
    pub(super) async fn items<X: Txn<Table = T>>(
        &self,
        txn: &X,
        findings: &mut Findings,
    ) -> TxnResult<()> {
        let mut count = 0;
        let visit = |key: &[u8], row: &[u8]| {
            if whole(findings, Table::Item, key, row) {
                count += 1;
            }
        };
        self.scan(txn, Table::Item, (Key::item(1), Key::item(ITEMS + 1)), visit).await?;
        findings.expect(Rule::Rows, count == ITEMS, || {
            format!("ITEM has {}", plural(count.into(), "row"))
        });
        self.strays(txn, findings).await?;
        // The rows that are read one by one below, and others between them.
        for table in [Table::Warehouse, Table::District] {
            let visit = |key: &[u8], row: &[u8]| _ = whole(findings, table, key, row);
            self.scan(txn, table, (Key::warehouse(1), Key::warehouse(self.warehouses + 1)), visit)
                .await?;
        }
        for w in 1..=self.warehouses {
            let first = usize::from(w - 1) * usize::from(DISTRICTS);
            let districts = &self.sums.received[first..first + usize::from(DISTRICTS)];
            let received: i64 = districts.iter().map(|sum| sum.load(Ordering::Relaxed)).sum();
            let mut district_ytd = 0;
            for d in 1..=DISTRICTS {
                let look = |row: &[u8]| {
                    if is_whole(Table::District, row) { district::YTD.get(row) } else { 0 }
                };
                let key = Key::district(w, d);
                let ytd = txn.read(self.tables.get(Table::District), &key, look).await?;
                district_ytd = i64::wrapping_add(district_ytd, ytd.unwrap_or(0));
            }
            let look =
                |row: &[u8]| is_whole(Table::Warehouse, row).then(|| warehouse::YTD.get(row));
            let key = Key::warehouse(w);
            let ytd = txn.read(self.tables.get(Table::Warehouse), &key, look).await?.flatten();
            findings.expect(Rule::Rows, ytd.is_some(), || format!("warehouse {w} has no row"));
            let ytd = ytd.unwrap_or(0);
            findings.expect(Rule::WarehouseYtd, ytd == district_ytd, || {
                format!("warehouse {w} has W_YTD {ytd}, and its districts {district_ytd}, in cents")
            });
            findings.expect(Rule::WarehouseHistory, ytd == received, || {
                format!("warehouse {w} has W_YTD {ytd} but received {received}, in cents")
            });
        }
        Ok(())
    }
}
