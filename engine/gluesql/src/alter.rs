//! `ALTER TABLE`: changes the record of the table, and no row ([`crate::table`]).

use crate::{storage::WattleStorage, table::Table};
use gluesql_core::{
    ast::ColumnDef,
    data::Value,
    error::{AlterError, AlterTableError, Result},
    executor::evaluate_stateless,
    plan::plan_scalar_expr,
    store::AlterTable,
};

fn columns(table: &mut Table) -> Result<&mut Vec<ColumnDef>> {
    let name = table.schema.table_name.clone();
    let columns = table.schema.column_defs.as_mut();
    columns.ok_or_else(|| AlterTableError::SchemalessTableFound(name).into())
}

fn position(table: &mut Table, column: &str) -> Result<Option<usize>> {
    Ok(columns(table)?.iter().position(|def| def.name == column))
}

impl AlterTable for WattleStorage {
    /// Foreign keys that refer to the table follow it.
    fn rename_schema(&mut self, table_name: &str, new_table_name: &str) -> Result<()> {
        let mut table = self.altered(table_name)?;
        if self.table(new_table_name)?.is_some() {
            return Err(AlterError::TableAlreadyExists(new_table_name.to_owned()).into());
        }
        self.remove_table(table_name)?;
        new_table_name.clone_into(&mut table.schema.table_name);
        self.put_table(&table)?;
        for mut table in self.all_tables()? {
            let mut refers = false;
            for key in &mut table.schema.foreign_keys {
                if key.referenced_table_name == table_name {
                    new_table_name.clone_into(&mut key.referenced_table_name);
                    refers = true;
                }
            }
            if refers {
                self.put_table(&table)?;
            }
        }
        Ok(())
    }

    fn rename_column(&mut self, table_name: &str, old: &str, new: &str) -> Result<()> {
        let mut table = self.altered(table_name)?;
        if position(&mut table, new)?.is_some() {
            return Err(AlterTableError::AlreadyExistingColumn(new.to_owned()).into());
        }
        let at = position(&mut table, old)?.ok_or(AlterTableError::RenamingColumnNotFound)?;
        new.clone_into(&mut columns(&mut table)?[at].name);
        self.put_table(&table)
    }

    fn add_column(&mut self, table_name: &str, column: &ColumnDef) -> Result<()> {
        let mut table = self.altered(table_name)?;
        let default = match &column.default {
            Some(default) => {
                evaluate_stateless(None, &plan_scalar_expr(default.clone()))?.try_into()?
            }
            None if column.nullable => Value::Null,
            None => return Err(AlterTableError::DefaultValueRequired(column.clone()).into()),
        };
        if position(&mut table, &column.name)?.is_some() {
            return Err(AlterTableError::AlreadyExistingColumn(column.name.clone()).into());
        }
        table.add_column(column, default);
        self.put_table(&table)
    }

    fn drop_column(&mut self, table_name: &str, column: &str, if_exists: bool) -> Result<()> {
        let mut table = self.altered(table_name)?;
        match position(&mut table, column)? {
            Some(at) => {
                table.remove_column(at);
                self.put_table(&table)
            }
            None if if_exists => Ok(()),
            None => Err(AlterTableError::DroppingColumnNotFound(column.to_owned()).into()),
        }
    }
}
