//! Formats of trace files, and how a file is recognised.
//!
//! Compression (gzip, zstd) is recognised by the first bytes. The format comes from the name
//! (`.lis`, `oracleGeneral`) or from the first lines. A request of several pages becomes one access
//! for each: offsets and sizes in bytes are rounded outwards to pages of 4 KiB. Volumes, disks and
//! files of one trace have pages of their own.

mod kind;
mod lines;

use std::io::{BufRead, ErrorKind, Read};

use kind::names;
pub use kind::{ALL, Format};
pub use lines::{DEVICE as VOLUME, Request};
use lines::{Line, Parser};

use super::kinds::Place;

/// Bytes of a record of oracleGeneral.
const RECORD: usize = 24;
/// Lines that may come before the first access, such as comments and headers.
const HEAD_LINES: usize = 64;

/// The counts of a file that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read4K {
    /// Requests whose offset or size was no multiple of a page.
    pub uneven: u64,
}

/// Opens the stream of a file named `name`: decompressed, by its first bytes. A name that ends in
/// `.zst` or `.gz` must be what it says. Returns the name without that ending as well.
pub fn decompressed<'a>(
    mut file: impl BufRead + 'a,
    name: &str,
) -> std::io::Result<(Box<dyn Read + 'a>, String)> {
    const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    let first = file.fill_buf()?;
    let (is_zstd, is_gzip) = (first.starts_with(&ZSTD), first.starts_with(&GZIP));
    Ok(if is_zstd || name.ends_with(".zst") {
        let decoder = zstd::Decoder::with_buffer(file)?;
        (Box::new(decoder), name.trim_end_matches(".zst").to_owned())
    } else if is_gzip || name.ends_with(".gz") {
        let decoder = flate2::bufread::MultiGzDecoder::new(file);
        (Box::new(decoder), name.trim_end_matches(".gz").to_owned())
    } else {
        (Box::new(file), name.to_owned())
    })
}

/// Reads a trace in `format`, or in the one that is recognised; `name` is that of the file. Calls
/// `push` with each page, whether it is written, and its place, until `push` returns false.
///
/// # Errors
/// A sentence that names the line, or the formats that were tried and the first line.
pub fn read(
    mut reader: impl BufRead,
    name: &str,
    format: Option<Format>,
    push: &mut dyn FnMut(u64, bool, Option<Place>) -> bool,
) -> Result<Read4K, String> {
    let format = match format {
        Some(format) => format,
        None if name.ends_with(".lis") => Format::Arc,
        None if name.contains("oracleGeneral") => Format::OracleGeneral,
        None => match recognise(&mut reader)? {
            Some(format) => format,
            None => return Ok(Read4K::default()),
        },
    };
    let mut sink = Sink { push, accesses: 0, counts: Read4K::default() };
    match format {
        Format::OracleGeneral => read_records(reader, &mut sink)?,
        _ => read_lines(reader, Parser::new(format), &mut sink)?,
    }
    Ok(sink.counts)
}

/// Takes the pages of requests.
struct Sink<'a> {
    push: &'a mut dyn FnMut(u64, bool, Option<Place>) -> bool,
    accesses: u64,
    counts: Read4K,
}

impl Sink<'_> {
    fn take(&mut self, request: Request) -> Result<(), String> {
        self.counts.uneven += u64::from(request.uneven);
        for index in 0..request.pages {
            let page = match request.object {
                // The pages of an object have no order that its number could tell.
                true if index > 0 => {
                    crate::rng::mix(request.first ^ index.wrapping_mul(crate::rng::GOLDEN))
                }
                true => request.first,
                false => request.first + index,
            };
            self.accesses += 1;
            if !(self.push)(page, request.write, request.place) {
                return Err(format!("more than {} accesses", self.accesses));
            }
        }
        Ok(())
    }

    /// The end of the sentence about a file that ends in the middle.
    fn so_far(&self) -> String {
        format!("{} accesses were read before", self.accesses)
    }
}

/// The first bytes of a stream that `fill_buf` gives, as text up to the last whole line.
fn recognise(reader: &mut impl BufRead) -> Result<Option<Format>, String> {
    let head = reader
        .fill_buf()
        .map_err(|error| format!("line 1: {error}; 0 accesses were read before"))?;
    if head.is_empty() {
        return Ok(None);
    }
    let binary = head.contains(&0);
    if binary && plausible_records(head) {
        return Ok(Some(Format::OracleGeneral));
    }
    let text = String::from_utf8_lossy(head);
    let whole = text.rfind('\n').map_or(&*text, |end| &text[..end]);
    let text_formats = ALL.iter().filter(|(_, format)| *format != Format::OracleGeneral);
    for (_, format) in text_formats {
        let mut parser = Parser::new(*format);
        for line in whole.lines().take(HEAD_LINES) {
            match parser.line(line) {
                Ok(Line::Request(_)) => return Ok(Some(*format)),
                Ok(Line::Skip) => {}
                Err(_) => break,
            }
        }
    }
    if text.chars().any(|letter| letter == char::REPLACEMENT_CHARACTER) {
        return Err(format!(
            "line 1 is not text; a compressed trace is gzip or zstd (.gz, .zst); tried {}",
            names()
        ));
    }
    let first: String = text.lines().next().unwrap_or("").chars().take(80).collect();
    Err(format!("line 1: {first:?} is of no known format; tried {}", names()))
}

/// Whether the first records of oracleGeneral make sense: times do not fall, objects have a size,
/// and the next access is after this one or never.
fn plausible_records(head: &[u8]) -> bool {
    let mut last = 0;
    let mut records = head.chunks_exact(RECORD).take(16).enumerate().peekable();
    records.peek().is_some()
        && records.all(|(index, record)| {
            let record = record_of(record);
            let next = record.next == -1 || record.next == i64::MAX || record.next > index as i64;
            let holds = record.time >= last && record.size > 0 && next;
            last = record.time;
            holds
        })
}

struct Record {
    time: u32,
    object: u64,
    size: u32,
    next: i64,
}

fn record_of(bytes: &[u8]) -> Record {
    let field = |at: usize, length: usize| {
        let mut value = [0; 8];
        value[..length].copy_from_slice(&bytes[at..at + length]);
        u64::from_le_bytes(value)
    };
    Record {
        time: field(0, 4) as u32,
        object: field(4, 8),
        size: field(12, 4) as u32,
        next: field(16, 8) as i64,
    }
}

fn read_records(mut reader: impl Read, sink: &mut Sink) -> Result<(), String> {
    let mut record = [0; RECORD];
    for number in 1u64.. {
        let mut filled = 0;
        while filled < RECORD {
            match reader.read(&mut record[filled..]) {
                Ok(0) if filled == 0 => return Ok(()),
                Ok(0) => {
                    return Err(format!(
                        "record {number} ends after {filled} of {RECORD} bytes; {}",
                        sink.so_far()
                    ));
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("record {number}: {error}; {}", sink.so_far())),
            }
        }
        let Record { object, size, .. } = record_of(&record);
        let request = Request::object(object, u64::from(size), false)
            .ok_or_else(|| format!("record {number}: an object of {size} bytes is too large"))?;
        sink.take(request).map_err(|problem| format!("record {number}: {problem}"))?;
    }
    Ok(())
}

fn read_lines(mut reader: impl BufRead, mut parser: Parser, sink: &mut Sink) -> Result<(), String> {
    let (mut line, mut number) = (String::new(), 0u64);
    loop {
        number += 1;
        line.clear();
        let read = reader.read_line(&mut line).map_err(|error| match error.kind() {
            ErrorKind::InvalidData
                if error.get_ref().is_none_or(|inner| inner.to_string().contains("UTF-8")) =>
            {
                format!("line {number} is not text; a compressed trace is gzip or zstd (.gz, .zst)")
            }
            _ => format!("line {number}: {error}; {}", sink.so_far()),
        })?;
        if read == 0 {
            return Ok(());
        }
        let text = line.trim_end_matches(['\n', '\r']);
        match parser.line(text) {
            Ok(Line::Skip) => {}
            Ok(Line::Request(request)) => {
                sink.take(request).map_err(|problem| format!("line {number}: {problem}"))?;
            }
            Err(expected) => {
                let shown: String = text.chars().take(40).collect();
                return Err(format!("line {number}: {shown:?} is not {expected}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Accesses = Vec<(u64, bool)>;

    fn read_all(bytes: &[u8], name: &str) -> Result<(Accesses, u64), String> {
        let mut all = Vec::new();
        let (reader, inner) = decompressed(bytes, name).map_err(|error| error.to_string())?;
        let counts = read(std::io::BufReader::new(reader), &inner, None, &mut |page, write, _| {
            all.push((page, write));
            true
        })?;
        Ok((all, counts.uneven))
    }

    fn oracle(records: &[(u32, u64, u32, i64)]) -> Vec<u8> {
        let bytes = |record: &(u32, u64, u32, i64)| {
            let (time, object, size, next) = record;
            let mut bytes = time.to_le_bytes().to_vec();
            bytes.extend(object.to_le_bytes());
            bytes.extend(size.to_le_bytes());
            bytes.extend(next.to_le_bytes());
            bytes
        };
        records.iter().flat_map(bytes).collect()
    }

    /// The example lines of the README, each recognised by its contents.
    #[test]
    fn every_format_is_recognised_by_its_first_lines() {
        let disk = |number: u64| number << 52;
        let cases: &[(&str, &str, Accesses, u64)] = &[
            ("t.csv", "7,R\n8,W\n", vec![(7, false), (8, true)], 0),
            ("t.lis", "10 3 0 0\n", vec![(10, false), (11, false), (12, false)], 0),
            ("t", "10 2 0 0\n", vec![(10, false), (11, false)], 0),
            (
                "t.csv",
                "128166372003061629,hm,0,Read,8192,4096,1331\n1,hm,1,Write,4095,2,9\n",
                vec![(2, false), (disk(1), true), (disk(1) + 1, true)],
                1,
            ),
            (
                "t.spc",
                "0,16,8192,R,0.55\n1,0,512,w,0.56,extra\n",
                vec![(2, false), (3, false), (disk(1), true)],
                1,
            ),
            (
                "log",
                "fio version 2 iolog\n/dev/a add\n/dev/a open\n/dev/a write 4096 8192\n\
                 /dev/b read 0 4096\n/dev/a close\n",
                vec![(1, true), (2, true), (disk(1), false)],
                0,
            ),
            (
                "log",
                "fio version 3 iolog\n0 /dev/a add\n5 /dev/a read 4096 4096\n",
                vec![(1, false)],
                0,
            ),
            ("t.csv", "# a comment\n1,55,4096\n2,56,4096\n", vec![(55, false), (56, false)], 0),
            ("t.csv", "# a\ntime,op,obj_id,obj_size\n1,write,55,4096\n", vec![(55, true)], 0),
            (
                "t.csv",
                "time,op,obj_id,obj_size\n1,read,55,4096\n2,write,56,100\n",
                vec![(55, false), (56, true)],
                1,
            ),
            (
                "t.blk",
                "  8,0    3        1     0.000000000   697  G   W 16 + 8 [x]\n  \
                 8,0    3        2     0.000001     697  Q   W 16 + 8 [x]\n  \
                 8,0    3        3     0.000002     697  D   W 16 + 8 [x]\n  \
                 8,0    3        4     0.000003     697  Q   R 4 + 8 [x]\n\
                 CPU0 (8,0):\n Reads Queued:  1,  4KiB\n",
                vec![(2, true), (0, false), (1, false)],
                1,
            ),
            ("t", "5\n6\n5\n", vec![(5, false), (6, false), (5, false)], 0),
        ];
        for (name, text, expected, uneven) in cases {
            let found = read_all(text.as_bytes(), name);
            assert_eq!(found, Ok((expected.clone(), *uneven)), "{name} {text}");
        }
        let bytes = oracle(&[(1, 1 << 60, 4096, 3), (1, 9, 4096, -1), (2, 1 << 60, 5000, -1)]);
        for name in ["w.oracleGeneral", "w.bin", "w.oracleGeneral.zst"] {
            let bytes = match name.ends_with(".zst") {
                true => zstd::encode_all(&bytes[..], 1).unwrap(),
                false => bytes.clone(),
            };
            let (found, uneven) = read_all(&bytes, name).unwrap();
            let first: Vec<u64> = found[..3].iter().map(|access| access.0).collect();
            assert_eq!((first, found.len(), uneven), (vec![1 << 60, 9, 1 << 60], 4, 1), "{name}");
            assert!(found[3].0 != 1 << 60 && found.iter().all(|access| !access.1));
        }
    }

    #[test]
    fn a_format_that_is_not_recognised_names_those_that_were_tried_and_the_first_line() {
        let sentence = read_all(b"hello world\n1,R\n", "t.txt").unwrap_err();
        for part in ["hello world", "line 1", "page, arc, oracleGeneral, fio, msr, spc, csv"] {
            assert!(sentence.contains(part), "{sentence}");
        }
        assert!(Format::parse("tar").unwrap_err().contains("auto, page, arc, oracleGeneral"));
        assert_eq!(Format::parse("auto"), Ok(None));
        assert_eq!(Format::parse("msr"), Ok(Some(Format::Msr)));
    }

    #[test]
    fn archives_that_end_early_say_how_many_accesses_were_read() {
        use std::io::Write;
        let text: String = (0..40_000).map(|page| format!("{},R\n", page * 7919 % 9973)).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        let gzip = gzip.finish().unwrap();
        let zst = zstd::encode_all(text.as_bytes(), 1).unwrap();
        for (name, bytes) in [("t.csv.gz", &gzip), ("t.csv.zst", &zst)] {
            assert_eq!(read_all(bytes, name).unwrap().0.len(), 40_000, "{name}");
            let sentence = read_all(&bytes[..bytes.len() / 2], name).unwrap_err();
            let before = sentence.strip_suffix(" accesses were read before").expect(&sentence);
            let number: u64 = before.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(number < 40_000, "{sentence}");
            // A flate stream is decoded as far as it goes, zstd by blocks.
            assert!(number > 0 || name.ends_with(".zst"), "{sentence}");
        }
        let bytes = oracle(&[(1, 5, 4096, -1), (1, 6, 4096, -1)]);
        let sentence = read_all(&bytes[..40], "w.oracleGeneral").unwrap_err();
        assert!(sentence.contains("record 2 ends after 16 of 24 bytes; 1 accesses"), "{sentence}");
    }

    #[test]
    fn requests_beyond_any_device_are_refused() {
        for text in ["0,0,99999999999999999,R,1\n", "0,1,4096,R,1\n0,99999999999999999999,1,R,1\n"]
        {
            let sentence = read_all(text.as_bytes(), "t.spc").unwrap_err();
            assert!(sentence.contains("line"), "{sentence}");
        }
    }
}
