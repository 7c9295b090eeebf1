//! Page traces in memory.
//!
//! `formats` reads the files. Pages are renumbered 0, 1, 2, ... in the order of first touch.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::OnceLock;

use super::formats::{self, Format};
use super::kinds::{self, Kind, Place};
use super::policy::Access;
use super::pool::Page;

/// Bit of a stored access that is set for a write.
const WRITE: u32 = 1 << 31;

/// Most different pages and most accesses that a trace may have.
pub const MAX_PAGES: usize = (WRITE - 1) as usize;

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
    /// The place of each page when it was accessed last; empty if the file has none.
    places: Vec<Option<Place>>,
    kinds: OnceLock<Vec<Kind>>,
    uneven: u64,
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
        self.push_at(id, write, None)
    }

    /// Adds an access to a page at a place in its tree, if that is known.
    pub fn push_at(&mut self, id: u64, write: bool, place: Option<Place>) -> bool {
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
        if place.is_some() {
            let at = *number as usize;
            self.trace.places.resize(self.trace.ids.len(), None);
            self.trace.places[at] = place;
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
    /// Reads the file at `path` in the format that is recognised. The error is a sentence with file
    /// and line.
    pub fn read(path: &Path) -> Result<Self, String> {
        Self::read_as(path, None)
    }

    /// Reads the file at `path` in `format`; `None` is the one that is recognised.
    ///
    /// # Errors
    /// A sentence with file and line, or with the formats that were tried and the first line. If a
    /// compressed file ends early it says how many accesses were read.
    pub fn read_as(path: &Path, format: Option<Format>) -> Result<Self, String> {
        let shown = path.display();
        let file = File::open(path).map_err(|error| format!("{shown}: {error}"))?;
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let (reader, inner) = formats::decompressed(BufReader::new(file), &name)
            .map_err(|error| format!("{shown}: {error}"))?;
        let stem = inner.rsplit_once('.').map_or(&*inner, |(stem, _)| stem);
        let mut builder = Builder::new(if stem.is_empty() { &inner } else { stem });
        let reader = BufReader::with_capacity(1 << 16, reader);
        let counts = formats::read(reader, &inner, format, &mut |page, write, place| {
            builder.push_at(page, write, place)
        })
        .map_err(|problem| format!("{shown}: {problem}"))?;
        let mut trace = builder.finish();
        trace.uneven = counts.uneven;
        if trace.is_empty() {
            return Err(format!(
                "{shown}: the trace has no access; give one `page,R` or `page,W` per line, or \
                 another format (--trace-format)"
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

    /// The place of `page` in its tree when it was accessed last, if the file has it.
    pub fn place(&self, page: Page) -> Option<Place> {
        self.places.get(page.0 as usize).copied().flatten()
    }

    /// The kind of each page; `None` if the file has no places.
    pub fn kinds(&self) -> Option<&[Kind]> {
        (!self.places.is_empty()).then(|| {
            &**self.kinds.get_or_init(|| {
                let mut kinds = kinds::kinds(&self.places);
                // Pages that came after the last place.
                kinds.resize(self.pages(), Kind::Other);
                kinds
            })
        })
    }

    /// Requests of the file whose offset or size was no multiple of a page of 4 KiB.
    pub fn uneven(&self) -> u64 {
        self.uneven
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
    fn the_place_of_a_page_is_the_last_one() {
        let text =
            b"1,R,inner,1,7\n2,W,leaf,0,7\n1,R,inner,2,7\n3,R\n4,R,inner,1,7\n5,R,value\n6,R";
        let (_folder, path) = file("t.csv", text);
        let trace = Trace::read(&path).unwrap();
        use Kind::{BelowRoot, Lower, Other, Root};
        assert_eq!(trace.kinds().unwrap(), [Root, Lower, Other, BelowRoot, Other, Other]);
        assert_eq!(trace.place(Page(0)).unwrap().level, Some(2));
        assert!(Trace::of("t", [(1, true)]).kinds().is_none());
    }

    #[test]
    fn malformed_lines_are_named_by_file_and_line() {
        for (name, text, line) in [
            ("x.csv", "1,R\n2,X\n", "line 2"),
            ("x.csv", "1,R\n\n", "line 2"),
            ("x.csv", "page,rw\n", "line 1"),
            ("x.csv", "1,R\n1,R\n-1,R\n", "line 3"),
            ("x.csv", "+1,R", "line 1"),
            ("x.csv", "1,R\n1,R,root\n", "line 2"),
            ("x.csv", "1,R,leaf,1,1\n", "line 1"),
            ("x.csv", "1,R,inner,0,1\n", "line 1"),
            ("x.csv", "1,R,inner,256,1\n", "line 1"),
            ("x.csv", "1,R,inner,1\n", "line 1"),
            ("x.csv", "1,R,inner,1,1,1\n", "line 1"),
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
