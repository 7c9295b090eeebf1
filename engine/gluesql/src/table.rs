//! The record of a table, and its rows as bytes.
//!
//! A row begins with the number of its *shape*: the list of the columns that the table had when the
//! row was written. `ALTER TABLE` adds a shape and rewrites no row. A row of an older shape is read
//! with the default values of newer columns, and without the columns that were dropped. So a row
//! stays readable that a transaction inserts while another one alters the table.

use crate::error::{damaged, message, not_stored};
use gluesql_core::{
    ast::ColumnDef,
    chrono::{NaiveDateTime, Utc},
    data::{Schema, Value},
    error::Result,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The number of a column. It belongs to no other column of the table, before or later.
type Column = u32;

#[derive(Clone, Serialize, Deserialize)]
pub struct Table {
    /// Begins the keys of its rows. No other table has it, before or later.
    pub id: u64,
    pub created: NaiveDateTime,
    /// The last one is that of new rows. Empty ones for a table without a schema.
    shapes: Vec<Vec<Column>>,
    /// Values of columns for rows that are older than the column.
    defaults: BTreeMap<Column, Value>,
    pub schema: Schema,
}

impl Table {
    pub fn new(id: u64, schema: &Schema) -> Table {
        let columns = schema.column_defs.as_ref().map_or(0, Vec::len);
        let shape = (0..).take(columns).collect();
        let created = Utc::now().naive_utc();
        Table {
            id,
            created,
            shapes: vec![shape],
            defaults: BTreeMap::new(),
            schema: schema.clone(),
        }
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Table> {
        let table: Table = postcard::from_bytes(bytes).map_err(damaged)?;
        if table.shapes.is_empty() {
            return Err(damaged("a table without a shape"));
        }
        Ok(table)
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        postcard::to_stdvec(self).map_err(not_stored)
    }

    /// Whether rows of the table fit this schema.
    pub fn has_columns_of(&self, schema: &Schema) -> bool {
        let count = |schema: &Schema| schema.column_defs.as_ref().map(Vec::len);
        count(schema) == count(&self.schema)
    }

    /// Adds a column after all others. Rows that exist have `default` in it.
    pub fn add_column(&mut self, column: &ColumnDef, default: Value) {
        let number = self.shapes.iter().flatten().max().map_or(0, |last| last + 1);
        let mut shape = self.shape().to_vec();
        shape.push(number);
        self.shapes.push(shape);
        self.defaults.insert(number, default);
        self.schema.column_defs.get_or_insert_default().push(column.clone());
    }

    /// Takes the column at this position away.
    pub fn remove_column(&mut self, at: usize) {
        let mut shape = self.shape().to_vec();
        shape.remove(at);
        self.shapes.push(shape);
        self.schema.column_defs.get_or_insert_default().remove(at);
    }

    pub fn row_to_bytes(&self, row: &[Value]) -> Result<Vec<u8>> {
        let columns = self.schema.column_defs.as_ref().map_or(1, Vec::len);
        if row.len() != columns {
            let (name, found) = (&self.schema.table_name, row.len());
            return Err(message(format_args!("a row of {name} has {columns} values, not {found}")));
        }
        postcard::to_stdvec(&(self.shapes.len() - 1, row)).map_err(not_stored)
    }

    pub fn row_from_bytes(&self, bytes: &[u8]) -> Result<Vec<Value>> {
        let (number, values): (usize, Vec<Value>) = postcard::from_bytes(bytes).map_err(damaged)?;
        let shape = self.shapes.get(number).ok_or_else(|| damaged("a row of an unknown shape"))?;
        if number == self.shapes.len() - 1 {
            return Ok(values);
        }
        if shape.len() != values.len() {
            return Err(damaged("a row of another length than its shape"));
        }
        let mut values: BTreeMap<_, _> = shape.iter().zip(values).collect();
        let columns = self.shape().iter();
        let value = |column| values.remove(column).or_else(|| self.defaults.get(column).cloned());
        columns.map(value).collect::<Option<_>>().ok_or_else(|| damaged("a row without a column"))
    }

    fn shape(&self) -> &[Column] {
        self.shapes.last().map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gluesql_core::data::{Interval, Point};

    fn table() -> Table {
        let schema = Schema::from_ddl("CREATE TABLE t (a INT, b INT)").expect("a schema");
        Table::new(7, &schema)
    }

    fn column(name: &str) -> ColumnDef {
        let ddl = format!("CREATE TABLE t ({name} INT NULL)");
        let schema = Schema::from_ddl(&ddl).expect("a schema");
        schema.column_defs.expect("columns").remove(0)
    }

    /// A column that is dropped and added again is another column.
    #[test]
    fn a_row_of_an_older_shape_gets_the_columns_of_the_table() {
        let mut table = table();
        let old = table.row_to_bytes(&[Value::I64(1), Value::I64(2)]).expect("a row");
        table.add_column(&column("c"), Value::I64(30));
        table.remove_column(0);
        table.add_column(&column("a"), Value::Null);
        let table = Table::from_bytes(&table.to_bytes().expect("bytes")).expect("a table");
        let names = table.schema.column_defs.iter().flatten().map(|column| column.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["b", "c", "a"]);
        let row = table.row_from_bytes(&old).expect("a row");
        assert!(matches!(row[..], [Value::I64(2), Value::I64(30), Value::Null]), "{row:?}");
        let new = [Value::I64(5), Value::I64(6), Value::I64(7)];
        let row = table.row_to_bytes(&new).and_then(|row| table.row_from_bytes(&row));
        assert_eq!(format!("{:?}", row.expect("a row")), format!("{new:?}"));
    }

    #[test]
    fn rows_that_do_not_fit_and_damaged_ones_are_refused() {
        let table = table();
        assert!(table.row_to_bytes(&[Value::I64(1)]).is_err());
        let row = table.row_to_bytes(&[Value::I64(1), Value::I64(2)]).expect("a row");
        assert!(table.row_from_bytes(&row[..row.len() - 1]).is_err());
        assert!(table.row_from_bytes(&[1, 0]).is_err(), "of an unknown shape");
    }

    /// If the bytes change, stores that exist become unreadable. Then the version of the format
    /// has to change, too.
    #[test]
    fn values_keep_their_bytes() {
        let list = Value::List(vec![Value::Bool(true), Value::Null]);
        let map = Value::Map(BTreeMap::from([("k".to_string(), Value::U8(1))]));
        let values = [
            (Value::Bool(true), &[0, 1][..]),
            (Value::I64(-2), &[4, 3]),
            (Value::I128(-1), &[5, 1]),
            (Value::U128(300), &[10, 172, 2]),
            (Value::F64(1.0), &[12, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]),
            (Value::Decimal("1.50".parse().expect("a decimal")), b"\x0d\x041.50"),
            (Value::Str("ab".into()), b"\x0e\x02ab"),
            (Value::Bytea(vec![9]), &[15, 1, 9]),
            (Value::Date(NaiveDateTime::default().date()), b"\x11\x0a1970-01-01"),
            (Value::Interval(Interval::Month(1)), &[20, 0, 2]),
            (Value::Uuid(1), &[21, 1]),
            (map, &[22, 1, 1, b'k', 6, 1]),
            (list, &[23, 2, 0, 1, 25]),
            (
                Value::Point(Point::new(0.0, 0.0)),
                &[24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            ),
            (Value::Null, &[25]),
        ];
        for (value, bytes) in values {
            assert_eq!(postcard::to_stdvec(&value).expect("bytes"), bytes, "{value:?}");
            let decoded: Value = postcard::from_bytes(bytes).expect("a value");
            assert_eq!(format!("{decoded:?}"), format!("{value:?}"));
        }
    }
}
