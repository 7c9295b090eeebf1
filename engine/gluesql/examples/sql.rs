//! Accounts in SQL: a table, a transaction that runs again after a conflict, a report.
//!
//! `cargo run --example sql -- STORE`; without an argument it uses a temporary store.

use gluesql_core::{error::Result, prelude::Glue};
use std::{env, error::Error, path::PathBuf};
use wattle::{Engine, Options};
use wattle_gluesql::{WattleStorage, is_conflict};

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let temporary = tempfile::tempdir()?;
    let path = env::args_os().nth(1).map_or(temporary.path().join("store"), PathBuf::from);
    let engine = Engine::open(&path, Options::default())?;
    let mut glue = Glue::new(WattleStorage::new(&engine)?);
    glue.execute("CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, balance INT)")?;
    if glue.execute("SELECT name FROM account LIMIT 1")?[0].select().is_none_or(|r| r.count() == 0)
    {
        glue.execute("INSERT INTO account VALUES ('ada', 100), ('bob', 20)")?;
    }
    transfer(&mut glue, "ada", "bob", 30)?;
    let report = glue.execute("SELECT name, balance FROM account")?;
    for row in report[0].select().into_iter().flatten() {
        println!("{} has {}", String::from(row["name"]), String::from(row["balance"]));
    }
    // The engine cannot be closed while a connection to it is open.
    drop(glue);
    engine.close()?;
    Ok(())
}

/// Moves an amount, as one transaction.
fn transfer(glue: &mut Glue<WattleStorage>, from: &str, to: &str, amount: i64) -> Result<()> {
    let sql = format!(
        "BEGIN;
         UPDATE account SET balance = balance - {amount} WHERE name = '{from}';
         UPDATE account SET balance = balance + {amount} WHERE name = '{to}';
         COMMIT"
    );
    loop {
        match glue.execute(&sql) {
            Ok(_) => return Ok(()),
            Err(error) => {
                glue.execute("ROLLBACK")?;
                if !is_conflict(&error) {
                    return Err(error);
                }
            }
        }
    }
}
