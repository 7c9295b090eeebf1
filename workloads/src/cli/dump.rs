//! `wattle dump` and `wattle load`: all pairs as lines of text, and back.
//!
//! Neither holds more than a batch of pairs in memory, so stores of any size go through a pipe.

use std::io::{self, BufRead, BufWriter, IsTerminal, Write};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::common::StoreFlags;
use super::exit::{Exit, failed};
use crate::driver::backend::Backend;
use crate::driver::crew::at_once;
use crate::driver::store::{Client, Store};

const FORMAT: &str = "A line is TREE<tab>KEY<tab>VALUE. Printable ASCII characters and blanks stand \
for themselves, except that a backslash is written \\\\; every other byte is \\x and two \
hexadecimal digits. A line with a tree alone stands for a tree without pairs.";

/// Text of a batch before it is written out.
const BATCH_BYTES: usize = 1 << 20;
const MAX_BATCH_PAIRS: usize = 4096;

/// Flags of `dump`.
#[derive(Args, Debug)]
#[command(after_help = FORMAT)]
pub struct DumpFlags {
    /// The store.
    #[command(flatten)]
    pub store: StoreFlags,

    /// Only this tree. Default: all of them, by name.
    #[arg(long, value_name = "TREE")]
    pub tree: Option<String>,
}

/// Flags of `load`.
#[derive(Args, Debug)]
#[command(after_help = FORMAT)]
pub struct LoadFlags {
    /// The store, created if absent. A pair whose key exists replaces the old one.
    #[command(flatten)]
    pub store: StoreFlags,
}

/// Writes the pairs of a store to `out`.
pub fn dump<B: Backend>(flags: &DumpFlags, out: &mut dyn Write) -> Result<(), Exit> {
    flags.store.must_exist()?;
    let path = &flags.store.path;
    let store =
        B::open(path, &flags.store.options()).map_err(|error| Exit::Usage(error.to_string()))?;
    let mut names = store.table_names().map_err(failed("listing the trees"))?;
    names.sort();
    if let Some(tree) = &flags.tree {
        if !names.contains(tree) {
            return Err(Exit::Usage(format!(
                "{} has no tree \"{tree}\"; it has {}",
                path.display(),
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            )));
        }
        names = vec![tree.clone()];
    }
    let progress = spinner("dumping");
    let mut out = BufWriter::new(out);
    for name in names {
        dump_tree(&store, &name, &mut out, &progress)?;
    }
    out.flush().map_err(output_failed)?;
    drop(out);
    progress.finish_and_clear();
    store.close().map_err(failed("closing the store"))
}

fn dump_tree<S: Store>(
    store: &S,
    name: &str,
    out: &mut impl Write,
    progress: &ProgressBar,
) -> Result<(), Exit> {
    let table = store.table(name).map_err(failed("opening the tree"))?;
    let session = store.session().map_err(failed("opening a session"))?;
    let mut prefix = Vec::new();
    escape(name.as_bytes(), &mut prefix);
    let (mut from, mut last, mut batch) = (Vec::new(), Vec::new(), Vec::new());
    let (mut pairs, mut total) = (1, 0);
    loop {
        batch.clear();
        let visit = |key: &[u8], value: &[u8]| {
            batch.extend_from_slice(&prefix);
            batch.push(b'\t');
            escape(key, &mut batch);
            batch.push(b'\t');
            escape(value, &mut batch);
            batch.push(b'\n');
            last.clear();
            last.extend_from_slice(key);
        };
        let found = at_once(session.scan(&table, &from, pairs, visit))
            .map_err(failed(format_args!("reading tree {name}")))?;
        out.write_all(&batch).map_err(output_failed)?;
        total += found;
        progress.inc(found as u64);
        if found < pairs {
            break;
        }
        // The next key that there can be is the last one and a zero byte.
        from.clear();
        from.extend_from_slice(&last);
        from.push(0);
        // Values may be of any size: as many pairs as make a batch of about the right one.
        pairs = match batch.len() {
            small if small < BATCH_BYTES => (pairs * 2).min(MAX_BATCH_PAIRS),
            _ => (pairs / 2).max(1),
        };
    }
    if total == 0 {
        out.write_all(&prefix).and_then(|()| out.write_all(b"\n")).map_err(output_failed)?;
    }
    Ok(())
}

/// Reads lines from `input` and stores their pairs.
pub fn load<B: Backend>(flags: &LoadFlags, input: &mut dyn BufRead) -> Result<(), Exit> {
    let store = B::open(&flags.store.path, &flags.store.options())
        .map_err(|error| Exit::Usage(error.to_string()))?;
    let loaded = load_lines(&store, input);
    let closed = store.close().map_err(failed("closing the store"));
    loaded.and(closed)
}

fn load_lines<S: Store>(store: &S, input: &mut dyn BufRead) -> Result<(), Exit> {
    let progress = spinner("loading");
    let session = store.session().map_err(failed("opening a session"))?;
    let mut line = Vec::new();
    let mut current: Option<(Vec<u8>, S::Table)> = None;
    for number in 1u64.. {
        line.clear();
        let read = input.read_until(b'\n', &mut line).map_err(failed("reading the lines"))?;
        if read == 0 {
            break;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        let at = || format!("line {number} of the input");
        let refused =
            |why: String| Exit::Failed(format!("{}: {why}; the lines before it are stored", at()));
        let mut columns = line.split(|byte| *byte == b'\t');
        let (tree, key, value, more) =
            (columns.next(), columns.next(), columns.next(), columns.next());
        let tree = unescape(tree.unwrap_or_default()).map_err(refused)?;
        if current.as_ref().is_none_or(|(name, _)| *name != tree) {
            let name = std::str::from_utf8(&tree)
                .map_err(|_| refused("the name of the tree is not UTF-8".to_owned()))?;
            let table = store.table(name).map_err(failed(at()))?;
            current = Some((tree, table));
        }
        let Some((_, table)) = &current else { continue };
        match (key, value, more) {
            (None, ..) => {}
            (Some(key), Some(value), None) => {
                let (key, value) =
                    (unescape(key).map_err(refused)?, unescape(value).map_err(refused)?);
                at_once(session.put(table, &key, &value)).map_err(failed(at()))?;
                progress.inc(1);
            }
            _ => {
                return Err(refused(
                    "a tree, a key and a value, or a tree alone, are accepted, with tabs between"
                        .to_owned(),
                ));
            }
        }
    }
    progress.finish_and_clear();
    Ok(())
}

/// Progress of work whose end is not known. Not shown where it would run into the output.
fn spinner(doing: &'static str) -> ProgressBar {
    if io::stdout().is_terminal() && doing == "dumping" {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {human_pos} pairs, {per_sec}")
        .expect("the template is a constant that indicatif accepts");
    ProgressBar::no_length().with_style(style).with_message(doing)
}

/// A reader that has seen enough, such as `head`, is no failure to tell about.
fn output_failed(error: io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Exit::Reported,
        _ => Exit::Failed(format!("writing the pairs: {error}")),
    }
}

/// Appends `bytes` to `text` as the format says.
fn escape(bytes: &[u8], text: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for &byte in bytes {
        match byte {
            b'\\' => text.extend_from_slice(b"\\\\"),
            b' '..=b'~' => text.push(byte),
            _ => {
                let digits = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
                text.extend_from_slice(b"\\x");
                text.extend_from_slice(&digits);
            }
        }
    }
}

/// The bytes that `text` stands for.
fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        (rest, _) = match (byte, after) {
            (b'\\', [b'\\', after @ ..]) => (after, bytes.push(b'\\')),
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digit = |letter: &u8| char::from(*letter).to_digit(16);
                let (Some(high), Some(low)) = (digit(high), digit(low)) else {
                    return Err(bad_escape(rest));
                };
                (after, bytes.push((high * 16 + low) as u8))
            }
            (b'\\', _) => return Err(bad_escape(rest)),
            (b' '..=b'~', _) => (after, bytes.push(byte)),
            _ => return Err(format!("byte {byte:#04x} must be written as \\x{byte:02x}")),
        };
    }
    Ok(bytes)
}

fn bad_escape(text: &[u8]) -> String {
    let text = &text[..text.len().min(4)];
    format!(
        "\"{}\" is not an escape; \\\\ and \\x with two hexadecimal digits are accepted",
        text.escape_ascii().to_string().replace("\\\\", "\\")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_the_text_form() {
        let bytes: Vec<u8> = (0..=255).chain(*b"\\x41\\").collect();
        let mut text = Vec::new();
        escape(&bytes, &mut text);
        assert!(text.iter().all(|byte| (b' '..=b'~').contains(byte)));
        assert_eq!(unescape(&text), Ok(bytes));
    }

    #[test]
    fn what_is_not_an_escape_is_refused() {
        for text in [r"\", r"\n", r"\x4", r"\xzz", "a\x01b", "\u{e9}"] {
            let sentence = unescape(text.as_bytes()).unwrap_err();
            assert!(sentence.contains("\\x"), "{sentence}");
        }
    }
}
