//! Rows of comma-separated values as RFC 4180 defines them, with the numbers of their lines.
//!
//! The crate `csv` reads everything: a quote that is never closed swallows the rest of the file
//! as one value, and `"ab"cd` becomes `abcd`. It has no strict mode, and its line numbers skip the
//! line feed after a carriage return. Here such a row is an error, because the bytes of a wrong
//! value would be stored. Each field has a limit ([`Rows::limit`]), so that such a quote fills no
//! more memory than the longest field may take. The crate remains the reference of the tests.

use std::io::{self, BufRead, ErrorKind};

const BOM: &[u8; 3] = b"\xef\xbb\xbf";

/// Reads rows, one at a time. Lines without a byte are skipped, and so is a byte order mark before
/// the first row.
pub(super) struct Rows<'i> {
    input: &'i mut dyn BufRead,
    row: Row,
    begun: bool,
}

/// Why there is no row.
#[derive(Debug)]
pub(super) enum NoRow {
    /// It is not as RFC 4180 says, or too long.
    Bad(String),
    /// The input cannot be read.
    Io(io::Error),
}

impl<'i> Rows<'i> {
    /// Rows of at most `longest` bytes, without quotes and commas.
    pub(super) fn new(input: &'i mut dyn BufRead, longest: u64) -> Self {
        let row = Row {
            at: At::FieldStart,
            bytes: Vec::new(),
            ends: Vec::new(),
            quote: None,
            first_line: 1,
            lines: 0,
            longest,
            fields: Vec::new(),
            others: u64::MAX,
        };
        Rows { input, row, begun: false }
    }

    /// The fields of the following rows have at most so many bytes each, and `others` the fields
    /// after them. The names are for messages.
    pub(super) fn limit(&mut self, fields: Vec<(&'static str, u64)>, others: u64) {
        let sum: u64 = fields.iter().map(|(_, most)| most).sum();
        (self.row.longest, self.row.others) = (sum + others, others);
        self.row.fields = fields;
    }

    /// Reads the next row; gives whether there is one.
    pub(super) fn read(&mut self) -> Result<bool, NoRow> {
        self.row.begin();
        if !self.begun {
            self.begun = true;
            self.skip_byte_order_mark()?;
        }
        loop {
            let chunk = chunk(self.input).map_err(NoRow::Io)?;
            if chunk.is_empty() {
                return self.row.end_of_input().map_err(NoRow::Bad);
            }
            let (used, is_whole) = self.row.take(chunk).map_err(NoRow::Bad)?;
            self.input.consume(used);
            if is_whole {
                return Ok(true);
            }
        }
    }

    fn skip_byte_order_mark(&mut self) -> Result<(), NoRow> {
        for (held, byte) in BOM.iter().enumerate() {
            if chunk(self.input).map_err(NoRow::Io)?.first() != Some(byte) {
                self.row.take(&BOM[..held]).map_err(NoRow::Bad)?;
                break;
            }
            self.input.consume(1);
        }
        Ok(())
    }

    /// The fields of the row that was read last.
    pub(super) fn fields(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.row.ends.iter().copied());
        begins.zip(&self.row.ends).map(|(begin, end)| &self.row.bytes[begin..*end])
    }

    /// Number of fields of the row that was read last.
    pub(super) fn width(&self) -> usize {
        self.row.ends.len()
    }

    /// Number of the line where the row that was read last begins, from 1.
    pub(super) fn first_line(&self) -> u64 {
        self.row.first_line
    }

    /// Number of the line where the row that was read last ends, from 1.
    pub(super) fn last_line(&self) -> u64 {
        self.row.lines
    }
}

/// The next bytes of `input`; none at its end.
fn chunk(input: &mut dyn BufRead) -> io::Result<&[u8]> {
    // In two steps, because a loop that gives the bytes back would borrow `input` in each round.
    while let Err(error) = input.fill_buf() {
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
    input.fill_buf()
}

/// The end of the bytes so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// Nothing, or a comma.
    FieldStart,
    /// A byte of a field without quotes.
    Plain,
    /// A byte within quotes.
    Quoted,
    /// A quote within quotes: it closes them, or is the first of two that stand for one.
    MaybeClosed,
    /// A carriage return outside quotes.
    Return,
}

/// A row, as far as it is read.
struct Row {
    at: At,
    /// The fields, one after the other.
    bytes: Vec<u8>,
    /// Where each field ends in `bytes`.
    ends: Vec<usize>,
    /// Line of the quote that opened last.
    quote: Option<u64>,
    first_line: u64,
    /// Lines that have ended since the beginning of the input.
    lines: u64,
    longest: u64,
    /// Name of each field, and its bytes at most.
    fields: Vec<(&'static str, u64)>,
    /// Bytes of each further field, at most.
    others: u64,
}

impl Row {
    fn begin(&mut self) {
        self.at = At::FieldStart;
        self.bytes.clear();
        self.ends.clear();
        self.quote = None;
        self.first_line = self.lines + 1;
    }

    /// Reads from `chunk` until the row ends. Gives the bytes used, and whether the row has ended.
    fn take(&mut self, chunk: &[u8]) -> Result<(usize, bool), String> {
        let mut used = 0;
        while let Some(&byte) = chunk.get(used) {
            let run = match self.at {
                At::FieldStart | At::Plain => {
                    run(&chunk[used..], |byte| matches!(byte, b',' | b'"' | b'\r' | b'\n'))
                }
                At::Quoted => run(&chunk[used..], |byte| matches!(byte, b'"' | b'\n')),
                At::MaybeClosed | At::Return => &[],
            };
            if !run.is_empty() {
                self.bytes.extend_from_slice(run);
                used += run.len();
                if self.at == At::FieldStart {
                    self.at = At::Plain;
                }
            } else {
                used += 1;
                if self.step(byte)? {
                    return Ok((used, true));
                }
            }
            self.check_length()?;
        }
        Ok((used, false))
    }

    /// Refuses a row that is too long before more of it is read.
    fn check_length(&self) -> Result<(), String> {
        let len = (self.bytes.len() - self.ends.last().unwrap_or(&0)) as u64;
        let (name, most) = self.fields.get(self.ends.len()).copied().unwrap_or(("", self.others));
        if len > most {
            let never = match (self.at, self.quote) {
                (At::Quoted, Some(line)) => {
                    format!("; perhaps the quote that opens in line {line} is never closed")
                }
                _ => String::new(),
            };
            return Err(match name {
                "" => format!("field {} has more than {most} bytes{never}", self.ends.len() + 1),
                name => format!("\"{name}\" has more than {most} bytes{never}"),
            });
        }
        if (self.bytes.len() + self.ends.len()) as u64 > self.longest {
            return Err(format!("a row of more than {} bytes", self.longest));
        }
        Ok(())
    }

    /// Reads a byte that has a meaning; gives whether the row has ended.
    fn step(&mut self, byte: u8) -> Result<bool, String> {
        let line = self.lines + 1;
        self.at = match (self.at, byte) {
            (At::FieldStart, b'"') => {
                self.quote = Some(line);
                At::Quoted
            }
            (At::Quoted, b'"') => At::MaybeClosed,
            (At::MaybeClosed, b'"') => {
                self.bytes.push(b'"');
                At::Quoted
            }
            (At::Quoted, byte) => {
                self.lines += u64::from(byte == b'\n');
                self.bytes.push(byte);
                At::Quoted
            }
            (_, b'\n') => {
                self.lines += 1;
                if self.is_blank() {
                    self.begin();
                    return Ok(false);
                }
                self.ends.push(self.bytes.len());
                return Ok(true);
            }
            (At::Return, _) => return Err(lone_return(line)),
            (_, b',') => {
                self.ends.push(self.bytes.len());
                At::FieldStart
            }
            (_, b'\r') => At::Return,
            (At::MaybeClosed, other) => {
                return Err(format!(
                    "\"{}\" follows a closing quote in line {line}; a comma or the end of the line \
                     is accepted, and two quotes within quotes stand for one",
                    other.escape_ascii()
                ));
            }
            (At::FieldStart | At::Plain, _) => {
                return Err(format!(
                    "a quote within a field in line {line}; such a field is accepted within \
                     quotes, where two quotes stand for one"
                ));
            }
        };
        Ok(false)
    }

    /// Whether there was nothing but an end of line.
    fn is_blank(&self) -> bool {
        self.bytes.is_empty() && self.ends.is_empty() && self.quote.is_none()
    }

    /// Gives whether there is a row.
    fn end_of_input(&mut self) -> Result<bool, String> {
        match self.at {
            At::Quoted => {
                let line = self.quote.unwrap_or(self.first_line);
                Err(format!("the quote that opens in line {line} is never closed"))
            }
            At::Return => Err(lone_return(self.lines + 1)),
            At::FieldStart | At::Plain | At::MaybeClosed if self.is_blank() => Ok(false),
            At::FieldStart | At::Plain | At::MaybeClosed => {
                self.lines += 1;
                self.ends.push(self.bytes.len());
                Ok(true)
            }
        }
    }
}

/// The bytes before the first one that `ends` accepts.
fn run(bytes: &[u8], ends: impl Fn(u8) -> bool) -> &[u8] {
    &bytes[..bytes.iter().position(|byte| ends(*byte)).unwrap_or(bytes.len())]
}

fn lone_return(line: u64) -> String {
    format!("a carriage return without a line feed in line {line}; it is accepted within quotes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::BufReader;

    type Read = Vec<(u64, u64, Vec<Vec<u8>>)>;

    /// The rows with their first and last line, and why they end. The input comes in chunks.
    fn rows(text: &[u8], chunk: usize) -> (Read, Option<String>) {
        let mut input = BufReader::with_capacity(chunk, text);
        let mut rows = Rows::new(&mut input, 1000);
        let mut read = Vec::new();
        loop {
            match rows.read() {
                Ok(true) => {
                    let fields: Vec<_> = rows.fields().map(<[u8]>::to_vec).collect();
                    assert_eq!(fields.len(), rows.width());
                    read.push((rows.first_line(), rows.last_line(), fields));
                }
                Ok(false) => return (read, None),
                Err(NoRow::Bad(why)) => return (read, Some(why)),
                Err(NoRow::Io(error)) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn rows_have_their_lines() {
        let row = |first, last, fields: &[&str]| {
            let fields = fields.iter().map(|field| field.as_bytes().to_vec()).collect();
            (first, last, fields)
        };
        for end in ["\n", "\r\n"] {
            let text =
                "\u{feff}\"a\",b\n\n\nc,\"d\n\n\"\"e\"\n\"\",f\ng,\"1\n2\"".replace('\n', end);
            for chunk in [1, 2, 5, 100] {
                let (read, why) = rows(text.as_bytes(), chunk);
                assert_eq!(why, None);
                let (d, g) = (format!("d{end}{end}\"e"), format!("1{end}2"));
                let expected = [
                    row(1, 1, &["a", "b"]),
                    row(4, 6, &["c", &d]),
                    row(7, 7, &["", "f"]),
                    row(8, 9, &["g", &g]),
                ];
                assert_eq!(read, expected, "{end:?} {chunk}");
            }
        }
    }

    #[test]
    fn what_rfc_4180_does_not_allow_is_refused() {
        for (text, part) in [
            ("a,b\n\"c\",\"d\n,e\nf", "the quote that opens in line 2 is never closed"),
            ("a,b\n\"c\n\",\"", "the quote that opens in line 3 is never closed"),
            ("a,b\n\"ab\"cd,e\n", "\"c\" follows a closing quote in line 2"),
            ("a,b\n\"ab\" ,e\n", "\" \" follows a closing quote in line 2"),
            ("a,b\nc,d\"e\n", "a quote within a field in line 2"),
            ("a,b\nc, \"d\"\n", "a quote within a field in line 2"),
            ("a,b\nc,d\re", "a carriage return without a line feed in line 2"),
            ("a,b\nc,d\r", "a carriage return without a line feed in line 2"),
            ("a,b\nc,\"d\"\r,", "a carriage return without a line feed in line 2"),
        ] {
            for chunk in [1, 3, 100] {
                let (read, why) = rows(text.as_bytes(), chunk);
                assert_eq!(read, [(1, 1, vec![b"a".to_vec(), b"b".to_vec()])], "{text:?}");
                assert!(why.as_ref().is_some_and(|why| why.contains(part)), "{text:?}: {why:?}");
            }
        }
        for long in ["x".repeat(1100), format!("\"{}", "\n".repeat(1100)), ",".repeat(1100)] {
            let (_, why) = rows(long.as_bytes(), 100);
            assert_eq!(why.unwrap(), "a row of more than 1000 bytes");
        }
    }

    #[test]
    fn a_field_that_is_too_long_is_refused_before_more_is_read() {
        let rest = "x,\n".repeat(1000);
        for (begin, part) in [
            ("a,\"b\n", "\"value\" has more than 20 bytes; perhaps the quote that opens in line 3"),
            ("\"a,b\n", "\"key\" has more than 10 bytes; perhaps the quote that opens in line 3"),
            ("a,b,\"c\n", "field 3 has more than 5 bytes; perhaps the quote that opens in line 3"),
            ("abcdefghijklm,b\n", "\"key\" has more than 10 bytes"),
        ] {
            let text = format!("{}\n{}\n{begin}{rest}", "k".repeat(200), "1234567890,v");
            let mut left = text.as_bytes();
            let mut input = BufReader::with_capacity(16, &mut left);
            let mut rows = Rows::new(&mut input, 1000);
            assert!(matches!(rows.read(), Ok(true)));
            rows.limit(vec![("key", 10), ("value", 20)], 5);
            assert!(matches!(rows.read(), Ok(true)));
            let Err(NoRow::Bad(why)) = rows.read() else { panic!("{begin:?} is read") };
            assert!(why.starts_with(part), "{why}");
            assert_eq!(rows.first_line(), 3);
            assert!(left.len() > rest.len() - 64, "{begin:?}: {} bytes are left", left.len());
        }
    }

    fn field() -> impl Strategy<Value = String> {
        "[ab\",\r\n\u{feff} ]{0,6}"
    }

    proptest! {
        /// Rows that the crate csv writes are read as they were.
        #[test]
        fn written_rows_are_read(
            table in prop::collection::vec([field(), field()], 0..8),
            always in any::<bool>(),
            crlf in any::<bool>(),
            chunk in 1_usize..40,
        ) {
            let quotes =
                if always { csv::QuoteStyle::Always } else { csv::QuoteStyle::Necessary };
            let terminator =
                if crlf { csv::Terminator::CRLF } else { csv::Terminator::Any(b'\n') };
            let mut writer = csv::WriterBuilder::new()
                .quote_style(quotes)
                .terminator(terminator)
                .from_writer(b"h,i\n".to_vec());
            for row in &table {
                writer.write_record(row).unwrap();
            }
            let text = writer.into_inner().unwrap();
            let (read, why) = rows(&text, chunk);
            prop_assert_eq!(why, None);
            let lines = text.iter().filter(|byte| **byte == b'\n').count() as u64;
            prop_assert_eq!(read.last().unwrap().1, lines);
            let fields: Vec<_> = read.into_iter().skip(1).map(|(_, _, fields)| fields).collect();
            let expected: Vec<Vec<Vec<u8>>> = table
                .into_iter()
                .map(|row| row.into_iter().map(String::into_bytes).collect())
                .collect();
            prop_assert_eq!(fields, expected);
        }
    }
}
