//! A prompt for SQL.
//!
//! `cargo run --example repl -- STORE` reads statements from the terminal or from a pipe, each up
//! to its `;`, and prints what they give. A statement that fails ends nothing but itself. Lines
//! that begin with a dot are commands of the prompt: `.help`.

use gluesql_core::prelude::{Glue, Payload, PayloadVariable, Value};
use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fmt::Write as _,
    io::{self, BufRead, IsTerminal, Write},
    process::ExitCode,
};
use wattle::{Engine, Options};
use wattle_gluesql::WattleStorage;

const HELP: &str = "\
Statements end with ; and may have many lines. BEGIN, COMMIT and ROLLBACK are statements.
.tables  the names of the tables
.help    this text
.quit    ends the prompt, as the end of the input does; an open transaction is rolled back
";

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let (Some(store), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: repl STORE");
        return ExitCode::from(2);
    };
    let ran = || -> Result<(), Box<dyn Error>> {
        let engine = Engine::open(&store, Options::default())?;
        Prompt::new(&engine)?.run()?;
        Ok(engine.close()?)
    };
    match ran() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Prompt {
    glue: Glue<WattleStorage>,
    /// Whether a person types.
    asks: bool,
}

impl Prompt {
    fn new(engine: &Engine) -> Result<Self, Box<dyn Error>> {
        let glue = Glue::new(WattleStorage::new(engine)?);
        Ok(Prompt { glue, asks: io::stdin().is_terminal() })
    }

    fn run(mut self) -> io::Result<()> {
        let mut pending = Statements::default();
        self.ask("> ")?;
        for line in io::stdin().lock().lines() {
            let line = line?;
            match line.trim() {
                ".quit" if pending.is_empty() => return Ok(()),
                ".help" if pending.is_empty() => print(HELP)?,
                ".tables" if pending.is_empty() => self.execute("SHOW TABLES")?,
                command if command.starts_with('.') && pending.is_empty() => {
                    print(&format!("error: no command {command}; .help names them\n"))?;
                }
                _ => {
                    pending.add(&line);
                    while let Some(statement) = pending.next() {
                        self.execute(&statement)?;
                    }
                }
            }
            self.ask(if pending.is_empty() { "> " } else { "  " })?;
        }
        match pending.is_empty() {
            true => Ok(()),
            false => print("error: the input ends within a statement, which did not run\n"),
        }
    }

    fn ask(&self, prompt: &str) -> io::Result<()> {
        if self.asks { print(prompt) } else { Ok(()) }
    }

    fn execute(&mut self, statement: &str) -> io::Result<()> {
        // Errors count lines from the first.
        match self.glue.execute(statement.trim_start()) {
            Ok(payloads) => payloads.iter().try_for_each(|payload| print(&text(payload))),
            Err(error) => {
                let error = error.to_string();
                let lines: Vec<_> = error.lines().map(str::trim).collect();
                print(&format!("error: {}\n", lines.join(" ")))
            }
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Text that was typed, of which some statements are complete.
#[derive(Default)]
struct Statements {
    text: String,
    /// Bytes that were looked at: no statement ends in them.
    seen: usize,
    /// What `seen` ends in.
    within: Within,
    /// Whether `seen` has more than spaces and comments.
    has_words: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Within {
    #[default]
    Statement,
    /// Quotation marks of this kind.
    Quotes(char),
    /// A comment up to the end of the line.
    Line,
    /// A comment up to `*/`.
    Comment,
}

impl Statements {
    /// Nothing but spaces and complete comments is left, once [`Statements::next`] gave None.
    fn is_empty(&self) -> bool {
        !self.has_words && self.within != Within::Comment
    }

    fn add(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Takes the first complete statement, without its `;`.
    fn next(&mut self) -> Option<String> {
        while let Some(first) = self.text[self.seen..].chars().next() {
            let rest = &self.text[self.seen..];
            let (within, bytes) = match (self.within, first) {
                (Within::Statement, ';') => {
                    let statement = self.text[..self.seen].to_owned();
                    self.text.drain(..=self.seen);
                    (self.seen, self.has_words) = (0, false);
                    return Some(statement);
                }
                (Within::Statement, quote @ ('\'' | '"' | '`')) => (Within::Quotes(quote), 1),
                (Within::Statement, _) if rest.starts_with("--") => (Within::Line, 2),
                (Within::Statement, _) if rest.starts_with("/*") => (Within::Comment, 2),
                // Two quotation marks in quotes are one of the text, and end and begin quotes here.
                (Within::Quotes(quote), _) if quote == first => (Within::Statement, 1),
                (Within::Line, '\n') => (Within::Statement, 1),
                (Within::Comment, _) if rest.starts_with("*/") => (Within::Statement, 2),
                (within, _) => (within, first.len_utf8()),
            };
            self.has_words |= within != Within::Line
                && within != Within::Comment
                && self.within != Within::Comment
                && !first.is_whitespace();
            (self.within, self.seen) = (within, self.seen + bytes);
        }
        None
    }
}

fn text(payload: &Payload) -> String {
    match payload {
        Payload::Select { labels, rows } => {
            let rows: Vec<Vec<_>> =
                rows.iter().map(|row| row.iter().map(value).collect()).collect();
            table(labels, &rows)
        }
        Payload::SelectMap(rows) => {
            let row = |row: &BTreeMap<String, Value>| {
                row.iter().map(|(name, it)| format!("{name}: {}", value(it))).collect::<Vec<_>>()
            };
            let rows: Vec<_> = rows.iter().map(|fields| vec![row(fields).join(", ")]).collect();
            table(&["row".into()], &rows)
        }
        Payload::ShowColumns(columns) => {
            let rows: Vec<_> =
                columns.iter().map(|(name, kind)| vec![name.clone(), kind.to_string()]).collect();
            table(&["column".into(), "type".into()], &rows)
        }
        Payload::ShowVariable(
            PayloadVariable::Tables(names) | PayloadVariable::Functions(names),
        ) => names.iter().map(|name| format!("{name}\n")).collect(),
        Payload::ShowVariable(PayloadVariable::Version(version)) => format!("{version}\n"),
        Payload::Insert(rows) => format!("inserted: {rows}\n"),
        Payload::Update(rows) => format!("updated: {rows}\n"),
        Payload::Delete(rows) => format!("deleted: {rows}\n"),
        _ => "done\n".into(),
    }
}

/// A value in one line.
fn value(value: &Value) -> String {
    String::from(value).replace('\n', "\\n")
}

/// Columns of equal width under their names.
fn table(labels: &[String], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([labels[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..labels.len()).map(width).collect();
    let line = |cells: &[String]| {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            write!(line, "{cell:width$}  ").expect("a string takes all");
        }
        format!("{}\n", line.trim_end())
    };
    let rule: Vec<_> = widths.iter().map(|&width| "-".repeat(width)).collect();
    let mut table = line(labels) + &line(&rule);
    table.extend(rows.iter().map(|row| line(row)));
    let rows = rows.len();
    table + &format!("{rows} {}\n", if rows == 1 { "row" } else { "rows" })
}
