//! `wattle load`: stores the pairs of lines that `wattle dump` wrote, or another program, also as
//! JSON lines or CSV.
//!
//! Pairs in key order that come first into a tree of a new store are bulk-loaded. All others are
//! put in transactions of [`PAIRS`] pairs or [`BYTES`] bytes. The command holds at most the pairs
//! of one transaction in memory.

use std::io::BufRead;

use clap::Args;
use indicatif::ProgressBar;
use wattle::{Engine, MAX_KEY, MAX_VALUE, Session, Tree};

use super::common::StoreFlags;
use super::dump::{BATCH, FORMAT, Line, Pair, spinner};
use super::exit::{Exit, failed};
use super::load_format::{Input, LoadFormat, refused};
use crate::driver::control::{Interrupt, say};

/// Pairs of a transaction, at most: one sync of the log for all of them.
const PAIRS: usize = 1000;
/// Bytes of keys and values of a transaction, unless one pair alone has more.
const BYTES: usize = 1 << 20;

const FORMATS: &str = "jsonl: an object in each line, as {\"tree\": \"t\", \"key\": \"k\", \
\"value\": \"v\"}. csv, as in RFC 4180: a header with these names, then a row for each pair. \
Without tree, --tree names it. key_hex and value_hex hold hexadecimal digits instead. A JSON value \
that is not a string is stored as its text, byte for byte.";

/// Flags of `load`.
#[derive(Args, Debug)]
#[command(after_help = format!("{FORMAT}\n\n{FORMATS}"))]
pub struct LoadFlags {
    /// The store, created if absent. A pair whose key exists replaces the old one.
    #[command(flatten)]
    pub store: StoreFlags,

    /// Format of the input.
    #[arg(long, value_enum, default_value_t = LoadFormat::Lines)]
    pub format: LoadFormat,

    /// With jsonl and csv: the tree of records that name none.
    #[arg(long, value_name = "TREE")]
    pub tree: Option<String>,
}

/// Reads lines from `input` and stores their pairs.
pub fn load(flags: &LoadFlags, input: &mut dyn BufRead, interrupt: &Interrupt) -> Result<(), Exit> {
    let input = Input::new(input, flags.format, flags.tree.clone())?;
    let engine = flags.store.open(interrupt)?;
    let progress = spinner("loading");
    let mut lines = Lines { input, interrupt, progress: &progress, read: 0, end: Ok(()) };
    let loaded = load_lines(&engine, &mut lines);
    let end = loaded.and(lines.end);
    progress.finish_and_clear();
    end.and(engine.close().map_err(failed("closing the store")))
}

/// The lines of the input, up to the first bad one or an interrupt.
struct Lines<'i> {
    input: Input<'i>,
    interrupt: &'i Interrupt,
    progress: &'i ProgressBar,
    /// Records read.
    read: u64,
    /// Why the lines ended, unless all were read.
    end: Result<(), Exit>,
}

impl Lines<'_> {
    fn next(&mut self) -> Option<Line> {
        if self.read > 0 && self.read.is_multiple_of(BATCH) {
            self.progress.inc(BATCH);
            if self.interrupt.requested() {
                let lines = self.input.lines;
                let sentence = format!("interrupted; the first {lines} lines are stored");
                self.end = Err(Exit::Interrupted(sentence));
                return None;
            }
        }
        self.read += 1;
        self.input.next().unwrap_or_else(|end| {
            self.end = Err(end);
            None
        })
    }

    /// Number of the line read last, from 1.
    fn number(&self) -> u64 {
        self.input.number
    }
}

fn load_lines(engine: &Engine, lines: &mut Lines<'_>) -> Result<(), Exit> {
    let session = engine.session().map_err(failed("opening a session"))?;
    // An emptied tree may still have records that no reader sees, which a bulk load refuses.
    let is_new = engine.trees().map_err(failed("listing the trees"))?.is_empty();
    let mut next = lines.next();
    while let Some(Line { tree: name, pair }) = next {
        let number = lines.number();
        let tree = std::str::from_utf8(&name)
            .map_err(|_| refused(number, "the name of the tree is not UTF-8"))?;
        let tree = engine.tree(tree).map_err(|error| refused(number, error))?;
        let Some(pair) = pair else {
            next = lines.next();
            continue;
        };
        let mut pairs = Pairs { lines: &mut *lines, name, pair: Some((number, pair)), after: None };
        if is_new && is_empty(&session, &tree).map_err(|error| refused(number, error))? {
            bulk_load(&session, &tree, &mut pairs)?;
        }
        while put(&session, &tree, &mut pairs)? {}
        next = pairs.after;
    }
    Ok(())
}

fn is_empty(session: &Session, tree: &Tree) -> wattle::Result<bool> {
    Ok(session.scan(tree)?.next_entry()?.is_none())
}

/// The pairs of successive lines with the same tree.
struct Pairs<'l, 'i> {
    lines: &'l mut Lines<'i>,
    name: Vec<u8>,
    /// The next pair and the number of its line.
    pair: Option<(u64, Pair)>,
    /// The first line after these.
    after: Option<Line>,
}

impl Pairs<'_, '_> {
    fn take(&mut self) -> Option<(u64, Pair)> {
        let taken = self.pair.take()?;
        match self.lines.next() {
            Some(Line { tree, pair: Some(pair) }) if tree == self.name => {
                self.pair = Some((self.lines.number(), pair));
            }
            after => self.after = after,
        }
        Some(taken)
    }
}

/// Loads the first pairs, as long as their keys ascend.
fn bulk_load(session: &Session, tree: &Tree, pairs: &mut Pairs<'_, '_>) -> Result<(), Exit> {
    let first = pairs.pair.as_ref().map_or(0, |(number, _)| *number);
    let mut last: Option<Vec<u8>> = None;
    let ascending = std::iter::from_fn(|| {
        let (_, (key, value)) = pairs.pair.as_ref()?;
        // A pair that is refused must not undo the load of those before it: `put` names its line.
        let fits = key.len() <= MAX_KEY && value.len() as u64 <= MAX_VALUE;
        if !fits || last.as_ref().is_some_and(|last| last >= key) {
            return None;
        }
        let (_, (key, value)) = pairs.take()?;
        match &mut last {
            Some(last) => last.clone_from(&key),
            None => last = Some(key.clone()),
        }
        Some((key, value))
    });
    let loaded = session.bulk_load(tree, ascending);
    loaded.map(drop).map_err(|error| {
        let sentence = format!(
            "the pairs from line {first} of the input on: {error}; the lines before it are stored"
        );
        Exit::Failed(sentence)
    })
}

/// Puts the next pairs as one transaction; gives whether there were any.
fn put(session: &Session, tree: &Tree, pairs: &mut Pairs<'_, '_>) -> Result<bool, Exit> {
    let (mut batch, mut numbers, mut bytes) = (Vec::new(), Vec::new(), 0);
    while batch.len() < PAIRS
        && bytes < BYTES
        && let Some((number, (key, value))) = pairs.take()
    {
        bytes += key.len() + value.len();
        numbers.push(number);
        batch.push((key, value));
    }
    if batch.is_empty() {
        return Ok(false);
    }
    let Err(error) = session.put_many(tree, &batch) else { return Ok(true) };
    // Nothing of the batch is stored. One pair after the other, to find the line that failed.
    for ((key, value), number) in batch.iter().zip(numbers) {
        session.put(tree, key, value).map_err(|error| refused(number, error))?;
    }
    say(format_args!("warning: some pairs were stored one by one: {error}"));
    Ok(true)
}
