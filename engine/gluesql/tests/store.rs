//! What GlueSQL's own tests leave out: stores that are opened again, transactions that are rolled
//! back, several connections, and tables that do not fit into memory.

use gluesql_core::prelude::{Glue, Payload, Value};
use std::path::Path;
use tempfile::TempDir;
use wattle::{Durability, Engine, Isolation, MIN_LOG_BYTES, Options, TxnOptions};
use wattle_gluesql::{WattleStorage, is_conflict};

const POOL: u64 = 2 << 20;

fn open(dir: &Path) -> Engine {
    let options =
        Options::default().pool_bytes(POOL).log_bytes(MIN_LOG_BYTES).durability(Durability::None);
    Engine::open(dir.join("store"), options).expect("an engine")
}

fn new_store() -> (TempDir, Engine) {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path());
    (dir, engine)
}

fn connect(engine: &Engine) -> Glue<WattleStorage> {
    Glue::new(WattleStorage::new(engine).expect("a connection"))
}

fn serializable(engine: &Engine) -> Glue<WattleStorage> {
    let options = TxnOptions { isolation: Isolation::Serializable, ..Default::default() };
    Glue::new(WattleStorage::with_options(engine, options).expect("a connection"))
}

#[track_caller]
fn run(glue: &mut Glue<WattleStorage>, sql: &str) -> Vec<Payload> {
    glue.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// The rows of a query, a line of text for each.
#[track_caller]
fn rows(glue: &mut Glue<WattleStorage>, sql: &str) -> Vec<String> {
    let payloads = run(glue, sql);
    let [Payload::Select { rows, .. }] = &payloads[..] else { panic!("{sql}: {payloads:?}") };
    let line = |row: &Vec<Value>| row.iter().map(String::from).collect::<Vec<_>>().join(" ");
    rows.iter().map(line).collect()
}

#[track_caller]
fn fails(glue: &mut Glue<WattleStorage>, sql: &str) -> gluesql_core::error::Error {
    match glue.execute(sql) {
        Ok(payloads) => panic!("{sql} gave {payloads:?}"),
        Err(error) => error,
    }
}

/// Rows in the store, of dropped tables too.
fn stored_rows(engine: &Engine) -> usize {
    let tree = engine.tree("sql-rows").expect("a tree");
    let session = engine.session().expect("a session");
    session.scan(&tree).expect("a range").keys().count()
}

#[test]
fn commits_survive_reopening() {
    commits_survive(|engine| engine.close().expect("closed"));
}

#[test]
fn commits_survive_a_crash() {
    commits_survive(|engine| engine.abandon().expect("abandoned"));
}

fn commits_survive(end: impl FnOnce(Engine)) {
    let (dir, engine) = new_store();
    let mut glue = connect(&engine);
    run(&mut glue, "CREATE TABLE t (id INT PRIMARY KEY, v TEXT); CREATE TABLE log (v TEXT)");
    run(&mut glue, "CREATE FUNCTION twice (x INT) RETURN x * 2");
    run(&mut glue, "INSERT INTO t VALUES (2, 'b'), (-1, 'a')");
    run(&mut glue, "BEGIN; INSERT INTO log VALUES ('one'), ('two'); COMMIT");
    run(&mut glue, "ALTER TABLE t ADD COLUMN n INT DEFAULT 7");
    run(&mut glue, "BEGIN; INSERT INTO t VALUES (3, 'open', 1)");
    drop(glue);
    end(engine);

    let engine = open(dir.path());
    let mut glue = connect(&engine);
    assert_eq!(rows(&mut glue, "SELECT id, v, n FROM t"), ["-1 a 7", "2 b 7"]);
    assert_eq!(rows(&mut glue, "SELECT v FROM log"), ["one", "two"]);
    assert_eq!(rows(&mut glue, "SELECT twice(id) FROM t"), ["-2", "4"]);
    run(&mut glue, "CREATE TABLE new (id INT PRIMARY KEY)");
    assert!(rows(&mut glue, "SELECT * FROM new").is_empty(), "it has a number of its own");
}

#[test]
fn a_transaction_that_is_rolled_back_leaves_nothing() {
    let (dir, engine) = new_store();
    let mut glue = connect(&engine);
    run(&mut glue, "CREATE TABLE t (id INT PRIMARY KEY, v TEXT); INSERT INTO t VALUES (1, 'a')");
    run(&mut glue, "CREATE TABLE kept (id INT PRIMARY KEY); INSERT INTO kept VALUES (5)");
    run(&mut glue, "BEGIN");
    run(&mut glue, "INSERT INTO t VALUES (2, 'b'); UPDATE t SET v = 'c'");
    run(&mut glue, "ALTER TABLE t ADD COLUMN n INT DEFAULT 7; ALTER TABLE t DROP COLUMN v");
    run(&mut glue, "ALTER TABLE t RENAME TO u; INSERT INTO u VALUES (3, 8)");
    run(&mut glue, "CREATE TABLE new (id INT); INSERT INTO new VALUES (1); DROP TABLE kept");
    run(&mut glue, "CREATE FUNCTION twice (x INT) RETURN x * 2");
    assert_eq!(rows(&mut glue, "SELECT twice(id), n FROM u"), ["2 7", "4 7", "6 8"]);
    run(&mut glue, "ROLLBACK");
    for _ in 0..2 {
        assert_eq!(rows(&mut glue, "SELECT * FROM t"), ["1 a"]);
        assert_eq!(rows(&mut glue, "SELECT * FROM kept"), ["5"]);
        for gone in ["SELECT * FROM u", "SELECT * FROM new", "SELECT twice(1) FROM t"] {
            fails(&mut glue, gone);
        }
        assert_eq!(stored_rows(&engine), 2);
        // Once more on a new connection.
        glue = connect(&engine);
    }
    // As dropped connections do.
    run(&mut glue, "BEGIN; DELETE FROM t");
    drop(glue);
    assert_eq!(rows(&mut connect(&engine), "SELECT * FROM t"), ["1 a"]);
    engine.close().expect("closed");
    assert_eq!(rows(&mut connect(&open(dir.path())), "SELECT * FROM t"), ["1 a"]);
}

#[test]
fn of_two_connections_that_change_a_row_one_gets_an_error() {
    let (_dir, engine) = new_store();
    let (mut a, mut b) = (connect(&engine), connect(&engine));
    run(&mut a, "CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 0), (2, 0)");
    run(&mut a, "BEGIN; UPDATE t SET v = 1 WHERE id = 1");
    run(&mut b, "BEGIN; UPDATE t SET v = 2 WHERE id = 2");
    assert_eq!(rows(&mut b, "SELECT v FROM t"), ["0", "2"], "a has not committed");
    let error = fails(&mut b, "UPDATE t SET v = 2 WHERE id = 1");
    assert!(is_conflict(&error), "{error}");
    run(&mut a, "COMMIT");
    let error = fails(&mut b, "COMMIT");
    assert!(!is_conflict(&error), "{error}");
    assert_eq!(rows(&mut b, "SELECT v FROM t"), ["1", "0"], "nothing of b is committed");
    run(&mut b, "ROLLBACK; BEGIN; UPDATE t SET v = v + 2; COMMIT");
    assert_eq!(rows(&mut a, "SELECT v FROM t"), ["3", "2"]);

    // A statement of its own is rolled back at once.
    run(&mut a, "BEGIN; INSERT INTO t VALUES (3, 1)");
    let error = fails(&mut b, "INSERT INTO t VALUES (3, 2)");
    assert!(is_conflict(&error), "{error}");
    run(&mut a, "COMMIT");
    let error = fails(&mut b, "INSERT INTO t VALUES (3, 2)");
    assert!(!is_conflict(&error), "{error}");
    assert_eq!(rows(&mut b, "SELECT v FROM t WHERE id = 3"), ["1"]);
}

#[test]
fn transactions_that_create_the_same_table_or_function_meet_a_conflict() {
    let (_dir, engine) = new_store();
    let (mut a, mut b) = (connect(&engine), connect(&engine));
    for sql in ["CREATE TABLE t (id INT)", "CREATE FUNCTION f (x INT) RETURN x"] {
        run(&mut a, &format!("BEGIN; {sql}"));
        let error = fails(&mut b, sql);
        assert!(is_conflict(&error), "{error}");
        run(&mut b, "CREATE TABLE other (id INT); DROP TABLE other");
        run(&mut a, "COMMIT");
    }
    assert_eq!(rows(&mut b, "SELECT COUNT(*) FROM t"), ["0"]);
}

#[test]
fn threads_that_run_again_after_a_conflict_lose_no_change() {
    const THREADS: usize = 3;
    const CHANGES: usize = 30;
    let (_dir, engine) = new_store();
    let start = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for id in 0..THREADS {
            let (engine, start) = (&engine, &start);
            scope.spawn(move || {
                // All of them open the new store, and one creates the table.
                let mut glue = connect(engine);
                again(&mut glue, "CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, v INT)");
                again(&mut glue, &format!("INSERT INTO t VALUES ({id}, 0)"));
                start.wait();
                for _ in 0..CHANGES {
                    again(&mut glue, "BEGIN; UPDATE t SET v = v + 1; COMMIT");
                }
            });
        }
    });
    let all = (THREADS * CHANGES).to_string();
    assert_eq!(rows(&mut connect(&engine), "SELECT v FROM t"), vec![all; THREADS]);
}

/// Runs a transaction until it meets no conflict.
fn again(glue: &mut Glue<WattleStorage>, sql: &str) {
    while let Err(error) = glue.execute(sql) {
        assert!(is_conflict(&error), "{sql}: {error}");
        glue.execute("ROLLBACK").expect("rolled back");
    }
}

#[test]
fn a_store_that_is_open_read_only_is_read() {
    let (dir, engine) = new_store();
    let mut glue = connect(&engine);
    run(&mut glue, "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)");
    run(&mut glue, "CREATE TABLE dropped (id INT PRIMARY KEY); DROP TABLE dropped");
    drop(glue);
    engine.close().expect("closed");
    let options = Options::default().pool_bytes(POOL).read_only(true);
    let engine = Engine::open(dir.path().join("store"), options).expect("an engine");
    let mut glue = connect(&engine);
    assert_eq!(rows(&mut glue, "SELECT id FROM t"), ["1"]);
    let error = fails(&mut glue, "INSERT INTO t VALUES (2)");
    assert!(error.to_string().contains("read-only"), "{error}");
    let read_only = TxnOptions { read_only: true, ..Default::default() };
    let storage = WattleStorage::with_options(&engine, read_only).expect("a connection");
    assert_eq!(rows(&mut Glue::new(storage), "SELECT id FROM t"), ["1"]);
}

/// A row that was inserted with the earlier columns gets those of the table.
#[test]
fn a_table_is_altered_while_another_connection_changes_it() {
    let (_dir, engine) = new_store();
    let (mut a, mut b) = (connect(&engine), connect(&engine));
    run(&mut a, "CREATE TABLE t (id INT PRIMARY KEY, v TEXT, w TEXT)");
    run(&mut a, "INSERT INTO t VALUES (1, 'a', 'x'), (2, 'b', 'y')");
    run(&mut b, "BEGIN; INSERT INTO t VALUES (3, 'c', 'z')");
    run(&mut a, "ALTER TABLE t ADD COLUMN n INT DEFAULT 7; ALTER TABLE t DROP COLUMN v");
    run(&mut a, "ALTER TABLE t RENAME TO u; INSERT INTO u VALUES (4, 'q', 8)");
    run(&mut b, "UPDATE t SET v = 'd' WHERE id = 2");
    assert_eq!(rows(&mut b, "SELECT * FROM t"), ["1 a x", "2 d y", "3 c z"]);
    run(&mut b, "COMMIT");
    for glue in [&mut a, &mut b] {
        assert_eq!(rows(glue, "SELECT * FROM u"), ["1 x 7", "2 y 7", "3 z 7", "4 q 8"]);
        fails(glue, "SELECT * FROM t");
    }
}

#[test]
fn foreign_keys_follow_a_table_that_is_renamed() {
    let (_dir, engine) = new_store();
    let mut glue = connect(&engine);
    run(&mut glue, "CREATE TABLE p (id INT PRIMARY KEY); CREATE TABLE q (id INT)");
    run(&mut glue, "CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (id))");
    fails(&mut glue, "ALTER TABLE q RENAME TO c");
    run(&mut glue, "ALTER TABLE p RENAME TO parent; INSERT INTO parent VALUES (1)");
    run(&mut glue, "INSERT INTO c VALUES (1)");
    fails(&mut glue, "INSERT INTO c VALUES (2)");
    fails(&mut glue, "DELETE FROM parent");
    assert_eq!(rows(&mut glue, "SELECT p FROM c"), ["1"]);
}

#[test]
fn the_rows_of_a_dropped_table_are_removed() {
    let (dir, engine) = new_store();
    let (mut a, mut b) = (connect(&engine), connect(&engine));
    run(&mut a, "CREATE TABLE t (id INT PRIMARY KEY); CREATE TABLE kept (id INT)");
    run(&mut a, "INSERT INTO kept VALUES (1)");
    // More than are removed at once.
    let values: Vec<_> = (0..2500).map(|id| format!("({id})")).collect();
    run(&mut a, &format!("INSERT INTO t VALUES {}", values.join(",")));
    run(&mut b, "BEGIN; INSERT INTO t VALUES (5000)");
    assert_eq!(stored_rows(&engine), 2501);
    run(&mut a, "DROP TABLE t");
    assert_eq!(rows(&mut b, "SELECT COUNT(*) FROM t"), ["2501"], "its snapshot has the table");
    run(&mut b, "COMMIT");
    assert_eq!(stored_rows(&engine), 2, "one row came after its table was dropped");
    fails(&mut b, "SELECT * FROM t");
    drop((a, b));
    engine.close().expect("closed");

    let engine = open(dir.path());
    let mut a = connect(&engine);
    assert_eq!(stored_rows(&engine), 1);
    run(&mut a, "CREATE TABLE t (id INT PRIMARY KEY)");
    assert_eq!(rows(&mut a, "SELECT COUNT(*) FROM t"), ["0"]);
    assert_eq!(rows(&mut a, "SELECT id FROM kept"), ["1"]);
}

#[test]
fn constraints_hold_between_serializable_transactions() {
    let (_dir, engine) = new_store();
    for (mut a, mut b, is_kept) in [
        (connect(&engine), connect(&engine), false),
        (serializable(&engine), serializable(&engine), true),
    ] {
        run(&mut a, "CREATE TABLE t (id INT PRIMARY KEY, name TEXT UNIQUE)");
        run(&mut a, "BEGIN; INSERT INTO t VALUES (1, 'a')");
        run(&mut b, "BEGIN; INSERT INTO t VALUES (2, 'a')");
        run(&mut a, "COMMIT");
        if is_kept {
            let error = fails(&mut b, "COMMIT");
            assert!(is_conflict(&error), "{error}");
        } else {
            run(&mut b, "COMMIT");
        }
        let count = if is_kept { "1" } else { "2" };
        assert_eq!(rows(&mut b, "SELECT COUNT(*) FROM t"), [count]);
        run(&mut a, "DROP TABLE t");
    }
}

/// Such a transaction owns the tree of all rows.
#[test]
fn a_transaction_that_is_too_large_for_versions_is_rolled_back_or_committed_as_a_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let options =
        Options::default().pool_bytes(POOL).version_bytes(1 << 20).durability(Durability::None);
    let engine = Engine::open(dir.path().join("store"), options).expect("an engine");
    let (mut a, mut b) = (connect(&engine), connect(&engine));
    run(&mut a, "CREATE TABLE t (id INT PRIMARY KEY, v TEXT); CREATE TABLE u (id INT PRIMARY KEY)");
    let values: Vec<_> = (0..20_000).map(|id| format!("({id}, 'old')")).collect();
    let insert = format!("INSERT INTO t VALUES {}", values.join(","));
    run(&mut a, &insert);
    for (end, value) in [("ROLLBACK", "old"), ("COMMIT", "new")] {
        run(&mut a, "BEGIN; UPDATE t SET v = 'new'");
        let error = fails(&mut b, "INSERT INTO u VALUES (1)");
        assert!(is_conflict(&error), "{error}");
        run(&mut a, end);
        let count = format!("SELECT COUNT(*) FROM t WHERE v = '{value}'");
        assert_eq!(rows(&mut b, &count), ["20000"]);
    }
    run(&mut b, "INSERT INTO u VALUES (1)");
    run(&mut b, "DROP TABLE t");
    assert_eq!(stored_rows(&engine), 1);
}

/// Keys whose bytes GlueSQL itself would confuse or refuse.
#[test]
fn keys_of_all_types_stay_apart_and_in_order() {
    let (_dir, engine) = new_store();
    let mut glue = connect(&engine);
    for (kind, keys) in [
        ("DECIMAL", ["-1.5", "1.05", "1.5"]),
        ("DATE", ["'0001-01-01'", "'1970-01-01'", "'2026-11-29'"]),
        ("TEXT", ["''", "'a'", "'ab'"]),
        ("INT8", ["-128", "0", "127"]),
        ("INET", ["'9.0.0.1'", "'10.0.0.1'", "'::1'"]),
    ] {
        run(&mut glue, &format!("CREATE TABLE t (k {kind} PRIMARY KEY, v INT)"));
        for (at, key) in keys.iter().enumerate().rev() {
            run(&mut glue, &format!("INSERT INTO t VALUES ({key}, {at})"));
            fails(&mut glue, &format!("INSERT INTO t VALUES ({key}, 9)"));
        }
        assert_eq!(rows(&mut glue, "SELECT v FROM t"), ["0", "1", "2"], "{kind}");
        run(&mut glue, "DELETE FROM t WHERE v = 1; UPDATE t SET v = v + 10");
        assert_eq!(rows(&mut glue, "SELECT v FROM t"), ["10", "12"], "{kind}");
        run(&mut glue, "DROP TABLE t");
    }
}

/// As an executor of another kind may do it; SQL has `ALTER TABLE`.
#[test]
fn a_schema_is_replaced_only_if_the_rows_fit_it() {
    use gluesql_core::store::{Store, StoreMut, Transaction};

    let (_dir, engine) = new_store();
    let mut glue = connect(&engine);
    run(&mut glue, "CREATE TABLE t (id INT); CREATE TABLE wide (a INT, b INT)");
    run(&mut glue, "INSERT INTO t VALUES (1)");
    let schema = |glue: &Glue<WattleStorage>, name| {
        glue.storage.fetch_schema(name).expect("read").expect("a schema")
    };
    let mut wide = schema(&glue, "wide");
    wide.table_name = "t".to_owned();
    glue.storage.begin(false).expect("begun");
    assert!(glue.storage.insert_schema(&wide).is_err());
    let mut renamed = schema(&glue, "t");
    renamed.column_defs.as_mut().expect("columns")[0].name = "n".to_owned();
    glue.storage.insert_schema(&renamed).expect("it fits");
    assert_eq!(rows(&mut glue, "SELECT n FROM t"), ["1"]);
    run(&mut glue, "DELETE FROM t");
    glue.storage.insert_schema(&wide).expect("there are no rows");
    glue.storage.commit().expect("committed");
    run(&mut glue, "INSERT INTO t VALUES (1, 2)");
    assert_eq!(rows(&mut glue, "SELECT a, b FROM t"), ["1 2"]);
}

#[test]
fn what_cannot_be_stored_is_an_error() {
    let (_dir, engine) = new_store();
    let mut glue = connect(&engine);
    run(&mut glue, "CREATE TABLE t (k TEXT PRIMARY KEY)");
    let long = "k".repeat(2000);
    let error = fails(&mut glue, &format!("INSERT INTO t VALUES ('a'), ('{long}')"));
    assert!(error.to_string().contains("1024"), "{error}");
    assert_eq!(rows(&mut glue, "SELECT COUNT(*) FROM t"), ["0"]);
    run(&mut glue, "BEGIN");
    fails(&mut glue, "BEGIN");
    run(&mut glue, "COMMIT");
    fails(&mut glue, "COMMIT");
    fails(&mut glue, "CREATE INDEX i ON t (k)");
}

/// The table is four times the pool, and a row of it comes before the last page is read.
#[test]
fn a_table_larger_than_the_pool_is_scanned_as_a_stream() {
    use gluesql_core::store::Store;

    let (_dir, engine) = new_store();
    let mut glue = connect(&engine);
    run(&mut glue, "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)");
    let value = "v".repeat(2000);
    const ROWS: i64 = 4 * POOL as i64 / 2000;
    for first in (0..ROWS).step_by(100) {
        let row = |id| format!("({id}, '{value}')");
        let rows: Vec<_> = (first..ROWS.min(first + 100)).map(row).collect();
        run(&mut glue, &format!("INSERT INTO t VALUES {}", rows.join(",")));
    }
    let pages = engine.stats().used_pages * wattle::PAGE_SIZE as u64;
    assert!(pages > 4 * POOL, "{pages} bytes");
    let count = rows(&mut glue, "SELECT COUNT(*), MIN(id), MAX(id) FROM t");
    assert_eq!(count, [format!("{ROWS} 0 {}", ROWS - 1)]);
    // In a transaction, and outside.
    for begin in ["BEGIN", "COMMIT"] {
        run(&mut glue, begin);
        let before = engine.stats().pages_read;
        let mut scan = glue.storage.scan_data("t").expect("a scan");
        assert!(scan.next().is_some());
        let read = engine.stats().pages_read - before;
        assert!(read < pages / wattle::PAGE_SIZE as u64 / 2, "{read} pages for one row");
        assert_eq!(scan.filter(|row| row.is_ok()).count(), ROWS as usize - 1);
    }
}
