//! `wattle dump`: all pairs as lines of text. It holds one pair in memory at a time, so it works
//! for stores of any size.

use std::io::{self, BufWriter, IsTerminal, Write};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use wattle::Engine;

use super::common::StoreFlags;
use super::exit::{Exit, failed};
use crate::driver::control::Interrupt;

pub(super) const FORMAT: &str = "A line is TREE<tab>KEY<tab>VALUE. Printable ASCII characters and \
blanks stand for themselves, except that a backslash is written \\\\; every other byte is \\x and \
two hexadecimal digits. A line with a tree alone stands for a tree without pairs.";

/// Pairs between two checks for an interrupt.
pub(super) const BATCH: u64 = 256;

/// Flags of `dump`.
#[derive(Args, Debug)]
#[command(after_help = FORMAT)]
pub struct DumpFlags {
    /// The store.
    #[command(flatten)]
    pub store: StoreFlags,

    /// Only this tree. Default: all trees, ordered by name.
    #[arg(long, value_name = "TREE")]
    pub tree: Option<String>,
}

/// Writes the pairs of a store to `out`.
pub fn dump(flags: &DumpFlags, out: &mut dyn Write, interrupt: &Interrupt) -> Result<(), Exit> {
    let engine = flags.store.open_read_only(interrupt)?;
    let mut names = engine.trees().map_err(failed("listing the trees"))?;
    if let Some(tree) = &flags.tree {
        if !names.contains(tree) {
            return Err(Exit::Usage(format!(
                "{} has no tree \"{tree}\"; it has {}",
                flags.store.path.display(),
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            )));
        }
        names = vec![tree.clone()];
    }
    let progress =
        if io::stdout().is_terminal() { ProgressBar::hidden() } else { spinner("dumping") };
    let dumped = dump_trees(&engine, &names, out, &progress, interrupt);
    progress.finish_and_clear();
    let closed = engine.close().map_err(failed("closing the store"));
    match dumped {
        Err(End::Read) | Ok(()) => closed,
        Err(End::Failed(exit)) => Err(exit),
    }
}

/// Why a dump ends early.
enum End {
    /// The reader closed the pipe early, as `head` does: that is a success.
    Read,
    /// It failed.
    Failed(Exit),
}

impl From<Exit> for End {
    fn from(exit: Exit) -> Self {
        End::Failed(exit)
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => End::Read,
            _ => End::Failed(Exit::Failed(format!("writing the pairs: {error}"))),
        }
    }
}

fn dump_trees(
    engine: &Engine,
    names: &[String],
    out: &mut dyn Write,
    progress: &ProgressBar,
    interrupt: &Interrupt,
) -> Result<(), End> {
    let mut out = BufWriter::new(out);
    let dumped =
        names.iter().try_for_each(|name| dump_tree(engine, name, &mut out, progress, interrupt));
    // Pairs read before a failure are printed as well. The first failure is reported.
    dumped.and(out.flush().map_err(End::from))
}

fn dump_tree(
    engine: &Engine,
    name: &str,
    out: &mut impl Write,
    progress: &ProgressBar,
    interrupt: &Interrupt,
) -> Result<(), End> {
    let read_failed = || failed(format!("reading tree {name}"));
    let tree = engine.tree(name).map_err(read_failed())?;
    let session = engine.session().map_err(read_failed())?;
    let mut records = session.scan(&tree).map_err(read_failed())?;
    let mut prefix = Vec::new();
    escape(name.as_bytes(), &mut prefix);
    let (mut line, mut pairs) = (Vec::new(), 0);
    while let Some((key, value)) = records.next_entry().map_err(read_failed())? {
        line.clear();
        line.extend_from_slice(&prefix);
        line.push(b'\t');
        escape(key, &mut line);
        line.push(b'\t');
        escape(value, &mut line);
        line.push(b'\n');
        out.write_all(&line)?;
        pairs += 1;
        if pairs % BATCH == 0 {
            progress.inc(BATCH);
            if interrupt.requested() {
                return Err(Exit::Interrupted("interrupted while dumping".to_owned()).into());
            }
        }
    }
    if pairs == 0 {
        prefix.push(b'\n');
        out.write_all(&prefix)?;
    }
    Ok(())
}

/// A key and a value.
pub(super) type Pair = (Vec<u8>, Vec<u8>);

/// The pair in a line.
pub(super) struct Line {
    pub(super) tree: Vec<u8>,
    pub(super) pair: Option<Pair>,
}

impl Line {
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let columns: Vec<&[u8]> = text.split(|byte| *byte == b'\t').take(4).collect();
        let pair = match columns[..] {
            [_] => None,
            [_, key, value] => Some((unescape(key)?, unescape(value)?)),
            _ => {
                return Err("a tree, a key and a value, or a tree alone, are accepted, with tabs \
                            between"
                    .to_owned());
            }
        };
        Ok(Self { tree: unescape(columns[0])?, pair })
    }
}

/// A progress bar of work of unknown length.
pub(super) fn spinner(doing: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} pairs: {human_pos}, {per_sec}")
        .expect("the template is a constant that indicatif accepts");
    ProgressBar::no_length().with_style(style).with_message(doing)
}

/// Appends `bytes` to `text` in the format of dumps.
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

/// The bytes that `text` encodes.
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

/// The bytes that pairs of hexadecimal digits encode.
pub(super) fn unescape_hex(text: &[u8]) -> Result<Vec<u8>, String> {
    let digit = |letter: u8| char::from(letter).to_digit(16);
    let pairs = text.chunks(2).map(|pair| match *pair {
        [high, low] => Some((digit(high)? * 16 + digit(low)?) as u8),
        _ => None,
    });
    pairs
        .collect::<Option<_>>()
        .ok_or_else(|| "pairs of hexadecimal digits are accepted".to_owned())
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
