//! Reads tables for a check.

use std::ops::ControlFlow;

use super::sums::Sums;
use crate::driver::store::{Direction, Txn, TxnResult};
use crate::report::figures::plural;
use crate::tpcc::conditions::{Findings, Rule};
use crate::tpcc::rows::is_whole;
use crate::tpcc::schema::{Key, Table, Tables};

/// The tables of a population, and the sums over them.
pub(super) struct Reader<'a, T> {
    pub(super) tables: &'a Tables<T>,
    pub(super) warehouses: u16,
    pub(super) sums: &'a Sums,
}

impl<T> Reader<'_, T> {
    /// Calls `visit` with all rows of a table between two keys.
    pub(super) async fn scan<X: Txn<Table = T>>(
        &self,
        txn: &X,
        table: Table,
        (low, high): (Key, Key),
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> TxnResult<()> {
        let visit = |key: &[u8], row: &[u8]| {
            visit(key, row);
            ControlFlow::Continue(())
        };
        txn.scan(self.tables.get(table), &low, &high, Direction::Forward, visit).await
    }
}

/// Notes whether a row and its key have the layout of their table. The fields of a row without it
/// must not be read.
pub(super) fn whole(findings: &mut Findings, table: Table, key: &[u8], row: &[u8]) -> bool {
    let holds = table.key_bytes().is_none_or(|bytes| key.len() == bytes) && is_whole(table, row);
    findings.expect(Rule::Rows, holds, || {
        let (name, key) = (table.name(), key.escape_ascii());
        let bytes = plural(row.len() as u64, "byte");
        format!("the row of {name} with the key {key} has {bytes} and not its fields")
    });
    holds
}
