//! The example `repl` with a script in its input, and again after it has ended.

use std::{
    env,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// The example, built as this test is.
fn program() -> PathBuf {
    let test = env::current_exe().expect("the path of this test");
    let target = test.ancestors().nth(3).expect("target/PROFILE/deps/TEST");
    // A run of this test alone builds no examples. After `cargo test` this finds all done.
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--example", "repl", "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .status();
    assert!(built.expect("cargo starts").success(), "the example is not built");
    target.join("debug/examples/repl")
}

fn run(program: &Path, arguments: &[&Path], script: &str) -> Output {
    let mut process = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = process.stdin.take().expect("it is piped");
    input.write_all(script.as_bytes()).expect("the program reads its input");
    drop(input);
    process.wait_with_output().expect("the program ends")
}

#[track_caller]
fn check(program: &Path, store: &Path, script: &str, expected: &str) {
    let output = run(program, &[store], script);
    let text = String::from_utf8(output.stdout).expect("text");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text, expected, "{errors}");
    assert!(output.status.success(), "{}: {errors}", output.status);
}

#[test]
fn a_script_and_its_tables_after_a_restart() {
    let program = program();
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("shop.wattle");
    let script = "\
.help
-- a comment; with a semicolon
CREATE TABLE item (
    id INT PRIMARY KEY,
    name TEXT NULL
);
INSERT INTO item VALUES (1, 'pen; \"blue\"'), (2, 'it''s ink'), (3, NULL); SELECT * FROM item;
SELECT * FROM nothing;
SELEC 1;
INSERT INTO item VALUES (1, 'again');
.wrong
UPDATE item SET name = 'two
lines' WHERE id = 3;
SELECT name AS what FROM item WHERE id = 3;
/* a comment
.quit
*/ .tables
;
.tables
BEGIN; DELETE FROM item WHERE id = 2; ROLLBACK;
DELETE FROM item WHERE id = 1;
;
SHOW COLUMNS FROM item;
BEGIN;
DELETE FROM item;
.quit
SELECT 'not read';
";
    let expected = "\
Statements end with ; and may have many lines. BEGIN, COMMIT and ROLLBACK are statements.
.tables  the names of the tables
.help    this text
.quit    ends the prompt, as the end of the input does; an open transaction is rolled back
done
inserted: 3
id  name
--  -----------
1   pen; \"blue\"
2   it's ink
3   NULL
3 rows
error: fetch: table not found: nothing
error: parser: ParserError( \"Expected: an SQL statement, found: SELEC at Line: 1, Column: 1\", )
error: validate: duplicate entry 'I64(1)' for primary_key field
error: no command .wrong; .help names them
updated: 1
what
----------
two\\nlines
1 row
error: parser: ParserError( \"Expected: an SQL statement, found: . at Line: 3, Column: 4\", )
item
done
deleted: 1
done
deleted: 1
column  type
------  ----
id      INT
name    TEXT
2 rows
done
deleted: 2
";
    check(&program, &store, script, expected);

    let script = ".tables\nSELECT * FROM item;\nSELECT count(*)\n";
    let expected = "\
item
id  name
--  ----------
2   it's ink
3   two\\nlines
2 rows
error: the input ends within a statement, which did not run
";
    check(&program, &store, script, expected);
}

#[test]
fn wrong_arguments_and_a_store_that_cannot_be_opened() {
    let program = program();
    assert_eq!(run(&program, &[], "").status.code(), Some(2));
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "no store").expect("a file");
    let output = run(&program, &[&file], "");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.starts_with("error: "), "{errors}");
    assert_eq!(output.status.code(), Some(1));
}
