//! Page traces in memory, and their readers.
//!
//! Formats, by the ending of the file name:
//! - `page,R` or `page,W` per line: the format of the lab and of the engine;
//! - `.lis`: the format of the ARC authors (Megiddo and Modha, FAST 2003): `start count ignored
//!   request` per line stands for reads of the pages `start` to `start + count - 1`;
//! - either of them with the further ending `.zst`: compressed by zstd.
//!
//! Pages are renumbered 0, 1, 2, ... in the order of first touch.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;
use std::sync::OnceLock;

use super::policy::Access;
use super::pool::Page;

/// Bit of a stored access that is set for a write.
const WRITE: u32 = 1 << 31;

/// Most different pages and most accesses that a trace may have.
pub const MAX_PAGES: usize = (WRITE - 1) as usize;

/// Most pages of one request in a `.lis` file.
const MOST_OF_A_REQUEST: u64 = 1 << 24;

/// The position that stands for no access.
pub const NEVER: u32 = u32::MAX;

/// A trace.
#[derive(Debug, Default)]
pub struct Trace {
    name: String,
    accesses: Vec<u32>,
    /// Page numbers as they are in the file.
    ids: Vec<u64>,
    writes: usize,
    next_use: OnceLock<Vec<u32>>,
}

/// Builds a trace access by access.
#[derive(Debug, Default)]
pub struct Builder {
    numbers: HashMap<u64, u32>,
    /// Numbers of small page ids, so that most traces need no hashing.
    small: Vec<u32>,
    trace: Trace,
}

/// Page ids below this are numbered through an array.
const SMALL: u64 = 1 << 22;

impl Builder {
    /// An empty trace with `name`.
    pub fn new(name: &str) -> Self {
        let trace = Trace { name: name.to_owned(), ..Trace::default() };
        Self { trace, ..Self::default() }
    }

    /// Adds an access; `false` if the trace has no room for it.
    pub fn push(&mut self, id: u64, write: bool) -> bool {
        let next = self.trace.ids.len() as u32;
        let number = if id < SMALL {
            let at = id as usize;
            if at >= self.small.len() {
                self.small.resize((at + 1).next_power_of_two(), NEVER);
            }
            &mut self.small[at]
        } else {
            self.numbers.entry(id).or_insert(NEVER)
        };
        if *number == NEVER {
            *number = next;
            self.trace.ids.push(id);
        }
        self.trace.accesses.push(*number | if write { WRITE } else { 0 });
        self.trace.writes += usize::from(write);
        self.trace.accesses.len() < MAX_PAGES
    }

    /// The trace.
    pub fn finish(self) -> Trace {
        self.trace
    }
}

impl Trace {
    /// Reads the file at `path`. The error is a sentence with file and line.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let unread = |error: std::io::Error| format!("{shown}: {error}");
        let file = File::open(path).map_err(unread)?;
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let (reader, inner): (Box<dyn Read>, _) = match name.strip_suffix(".zst") {
            Some(inner) => (Box::new(zstd::Decoder::new(file).map_err(unread)?), inner),
            None => (Box::new(file), &*name),
        };
        let stem = inner.rsplit_once('.').map_or(inner, |(stem, _)| stem);
        let stem = if stem.is_empty() { inner } else { stem };
        let parse = if inner.ends_with(".lis") { lis_line } else { page_line };
        let trace = read_lines(BufReader::with_capacity(1 << 16, reader), stem, parse)
            .map_err(|problem| format!("{shown}: {problem}"))?;
        if trace.is_empty() {
            return Err(format!(
                "{shown}: the trace has no access; give one `page,R` or `page,W` \
                                per line"
            ));
        }
        Ok(trace)
    }

    /// A trace of given accesses, for tests and generators.
    pub fn of(name: &str, accesses: impl IntoIterator<Item = (u64, bool)>) -> Self {
        let mut builder = Builder::new(name);
        accesses.into_iter().for_each(|(page, write)| {
            assert!(builder.push(page, write), "the trace is too long");
        });
        builder.finish()
    }

    /// Its name: the name of the file without folder and endings.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives it another name.
    pub fn rename(&mut self, name: String) {
        self.name = name;
    }

    /// Number of accesses.
    pub fn len(&self) -> usize {
        self.accesses.len()
    }

    /// Whether it has no access.
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }

    /// Number of different pages.
    pub fn pages(&self) -> usize {
        self.ids.len()
    }

    /// The number of each page in the file.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// The number of `page` in the file.
    pub fn id(&self, page: Page) -> u64 {
        self.ids[page.0 as usize]
    }

    /// Number of accesses that are writes.
    pub fn writes(&self) -> usize {
        self.writes
    }

    /// All accesses in order.
    #[inline]
    pub fn accesses(&self) -> impl ExactSizeIterator<Item = Access> + Clone {
        let unpack =
            |packed: &u32| Access { page: Page(packed & !WRITE), write: packed & WRITE != 0 };
        self.accesses.iter().map(unpack)
    }

    /// For each access the position of the next access to its page, or [`NEVER`].
    pub fn next_use(&self) -> &[u32] {
        self.next_use.get_or_init(|| {
            let mut coming = vec![NEVER; self.pages()];
            let mut next = vec![NEVER; self.len()];
            for (at, packed) in self.accesses.iter().enumerate().rev() {
                let page = (packed & !WRITE) as usize;
                next[at] = std::mem::replace(&mut coming[page], at as u32);
            }
            next
        })
    }
}

/// First page, number of pages, and whether they are written.
type Line = (u64, u64, bool);

fn read_lines(
    mut reader: impl BufRead,
    name: &str,
    parse: fn(&str) -> Result<Line, &'static str>,
) -> Result<Trace, String> {
    let (mut builder, mut line, mut number) = (Builder::new(name), String::new(), 0u64);
    loop {
        number += 1;
        line.clear();
        let read = reader.read_line(&mut line).map_err(|error| match error.kind() {
            ErrorKind::InvalidData => format!(
                "line {number} is not text; a compressed trace has a name that ends in .zst"
            ),
            _ => format!("line {number}: {error}"),
        })?;
        if read == 0 {
            return Ok(builder.finish());
        }
        let text = line.trim_end_matches(['\n', '\r']);
        let refused = |expected| {
            let shown: String = text.chars().take(40).collect();
            format!("line {number}: {shown:?} is not {expected}")
        };
        let (first, count, write) = parse(text).map_err(refused)?;
        for page in first..first + count {
            if !builder.push(page, write) {
                return Err(format!("line {number}: more than {MAX_PAGES} accesses"));
            }
        }
    }
}

fn page_line(text: &str) -> Result<Line, &'static str> {
    const EXPECTED: &str = "an access; write `page,R` or `page,W` with a page number";
    let (page, kind) = text.split_once(',').ok_or(EXPECTED)?;
    let page = digits(page).ok_or(EXPECTED)?;
    match kind {
        "R" => Ok((page, 1, false)),
        "W" => Ok((page, 1, true)),
        _ => Err(EXPECTED),
    }
}

fn lis_line(text: &str) -> Result<Line, &'static str> {
    const EXPECTED: &str =
        "a request; write `start count ignored request`, with at most 2^24 pages";
    let mut fields = text.split_ascii_whitespace().map(digits);
    match (fields.next(), fields.next(), fields.next(), fields.next(), fields.next()) {
        (Some(Some(first)), Some(Some(count)), Some(Some(_)), Some(Some(_)), None)
            if (1..=MOST_OF_A_REQUEST).contains(&count) && first.checked_add(count).is_some() =>
        {
            Ok((first, count, false))
        }
        _ => Err(EXPECTED),
    }
}

fn digits(text: &str) -> Option<u64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
        // Ranges of pages need a successor, which the largest number does not have.
        .filter(|number| *number < u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(name: &str, contents: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        File::create(&path).unwrap().write_all(contents).unwrap();
        (folder, path)
    }

    fn numbers(trace: &Trace) -> Vec<(u32, bool)> {
        trace.accesses().map(|access| (access.page.0, access.write)).collect()
    }

    #[test]
    fn plain_and_compressed_traces_are_read_and_renumbered() {
        let text = b"7,R\n99999999999,W\r\n7,W\n3,R";
        let compressed = zstd::encode_all(&text[..], 3).unwrap();
        for (name, contents) in [("a.csv", &text[..]), ("a.csv.zst", &compressed)] {
            let (_folder, path) = file(name, contents);
            let trace = Trace::read(&path).unwrap();
            assert_eq!(numbers(&trace), [(0, false), (1, true), (0, true), (2, false)]);
            assert_eq!((trace.name(), trace.pages(), trace.writes()), ("a", 3, 2));
            assert_eq!(trace.next_use(), [2, NEVER, NEVER, NEVER]);
        }
    }

    #[test]
    fn requests_of_the_arc_traces_become_pages() {
        let (_folder, path) = file("P1.lis", b"10 3 0 0\n12 2 0 1\n");
        let trace = Trace::read(&path).unwrap();
        let pages: Vec<u32> = numbers(&trace).iter().map(|access| access.0).collect();
        assert_eq!((pages, trace.writes()), (vec![0, 1, 2, 2, 3], 0));
    }

    #[test]
    fn malformed_lines_are_named_by_file_and_line() {
        for (name, text, line) in [
            ("x.csv", "1,R\n2,X\n", "line 2"),
            ("x.csv", "1,R\n\n", "line 2"),
            ("x.csv", "page,rw\n", "line 1"),
            ("x.csv", "1,R\n1,R\n-1,R\n", "line 3"),
            ("x.csv", "+1,R", "line 1"),
            ("x.csv", ",R", "line 1"),
            ("x.csv", "18446744073709551615,R", "line 1"),
            ("x.lis", "1 2 3\n", "line 1"),
            ("x.lis", "1 0 0 0\n", "line 1"),
            ("x.lis", "18446744073709551614 2 0 0\n", "line 1"),
            ("x.lis", "1 1 0 0\n1 2000000000 0 0\n", "line 2"),
        ] {
            let (_folder, path) = file(name, text.as_bytes());
            let sentence = Trace::read(&path).unwrap_err();
            assert!(sentence.contains(name) && sentence.contains(line), "{text:?}: {sentence}");
        }
        let (_folder, path) = file("x.csv", &[b'1', b',', 0xFF]);
        let sentence = Trace::read(&path).unwrap_err();
        assert!(sentence.contains("line 1") && sentence.contains(".zst"), "{sentence}");
    }

    #[test]
    fn empty_missing_and_damaged_files_are_refused() {
        let (folder, path) = file("empty.csv", b"");
        assert!(Trace::read(&path).unwrap_err().contains("no access"));
        assert!(Trace::read(&folder.path().join("none")).unwrap_err().contains("none"));
        let (_folder, path) = file("a.csv.zst", b"not compressed");
        assert!(Trace::read(&path).unwrap_err().contains("a.csv.zst"));
        let whole = zstd::encode_all(&b"1,R\n".repeat(10_000)[..], 3).unwrap();
        let (_folder, path) = file("a.csv.zst", &whole[..whole.len() - 4]);
        assert!(Trace::read(&path).unwrap_err().contains("incomplete"));
    }

    #[test]
    fn names_are_those_of_the_files_without_endings() {
        for (name, expected) in [("w106.csv", "w106"), ("zipf0.9.csv", "zipf0.9"), ("x", "x")] {
            let (_folder, path) = file(name, b"1,R");
            assert_eq!(Trace::read(&path).unwrap().name(), expected);
        }
    }
}
