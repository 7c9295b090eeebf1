//! The formats that `wattle load` reads: lines of a dump, JSON lines, and CSV.

use std::{
    borrow::Cow,
    io::{BufRead, Read},
};

use clap::ValueEnum;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use wattle::{MAX_KEY, MAX_VALUE};

use super::dump::{Line, Pair, unescape_hex};
use super::exit::{Exit, failed};
use super::load_csv::{NoRow, Rows};

/// A byte order mark, which some programs write before the first line.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// The format of an input.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadFormat {
    /// The lines of `wattle dump`.
    Lines,
    /// One JSON object in each line, with the fields of the columns of csv.
    Jsonl,
    /// Comma-separated values with a header.
    Csv,
}

/// Bytes of everything but key and value in a line or row, at most.
const OTHERS: u64 = 1 << 16;

/// Reads an input line by line.
pub(super) struct Input<'i> {
    source: Source<'i>,
    /// The tree of records that name none.
    tree: Option<String>,
    /// Number of the line where the record that was read last begins, from 1.
    pub(super) number: u64,
    /// Lines up to the end of this record.
    pub(super) lines: u64,
    /// Bytes of a line, at most.
    longest: u64,
}

enum Source<'i> {
    /// Lines or JSON lines.
    Text(&'i mut dyn BufRead, LoadFormat),
    Csv(Csv<'i>),
}

struct Csv<'i> {
    rows: Rows<'i>,
    /// From the header; read with the first record.
    columns: Option<Vec<Column>>,
}

/// The contents of a column or field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Tree,
    Key,
    KeyHex,
    Value,
    ValueHex,
}

impl Column {
    /// Its name, and the bytes of a field at most, where two quotes that stand for one count as
    /// one. The store refuses a name or a key that is shorter than this and still too long, and
    /// tells its length.
    fn limit(self) -> (&'static str, u64) {
        match self {
            Column::Tree => ("tree", OTHERS),
            Column::Key => ("key", OTHERS),
            Column::KeyHex => ("key_hex", OTHERS),
            Column::Value => ("value", MAX_VALUE),
            Column::ValueHex => ("value_hex", 2 * MAX_VALUE),
        }
    }
}

impl<'i> Input<'i> {
    pub(super) fn new(
        input: &'i mut dyn BufRead,
        format: LoadFormat,
        tree: Option<String>,
    ) -> Result<Self, Exit> {
        if format == LoadFormat::Lines && tree.is_some() {
            let sentence = "--tree has no meaning with --format lines, where each line names its \
                            tree; it goes with jsonl or csv";
            return Err(Exit::Usage(sentence.to_owned()));
        }
        let longest = longest(format);
        let source = match format {
            LoadFormat::Lines | LoadFormat::Jsonl => Source::Text(input, format),
            LoadFormat::Csv => Source::Csv(Csv { rows: Rows::new(input, longest), columns: None }),
        };
        Ok(Self { source, tree, number: 0, lines: 0, longest })
    }

    /// The next record; `None` after the last one.
    pub(super) fn next(&mut self) -> Result<Option<Line>, Exit> {
        let tree = self.tree.as_deref();
        let parsed = match &mut self.source {
            Source::Csv(csv) => {
                let read = csv.next(tree);
                (self.number, self.lines) = (csv.rows.first_line(), csv.rows.last_line());
                match read {
                    Ok(line) => return Ok(line),
                    Err(NoRow::Bad(why)) => Err(why),
                    Err(NoRow::Io(error)) => return Err(failed("reading the input")(error)),
                }
            }
            Source::Text(input, format) => loop {
                let text = next_line(*input, self.longest).map_err(failed("reading the lines"))?;
                let Some(text) = text else { return Ok(None) };
                self.number += 1;
                self.lines = self.number;
                match text {
                    Err(why) => break Err(why),
                    Ok(text) if *format == LoadFormat::Lines => break Line::parse(&text),
                    Ok(text) => {
                        let begins = self.number == 1;
                        let text = text.strip_prefix(BOM).filter(|_| begins).unwrap_or(&text);
                        if !text.trim_ascii().is_empty() {
                            break of_json(text, tree);
                        }
                    }
                }
            },
        };
        parsed.map(Some).map_err(|why| refused(self.number, why))
    }
}

/// Bytes of a line that can hold the longest key and value, or of the header of csv, at most.
/// Names, blanks, and the name of the tree have [`OTHERS`].
fn longest(format: LoadFormat) -> u64 {
    let per_byte = match format {
        // \xff
        LoadFormat::Lines => 4,
        // \u00ff
        LoadFormat::Jsonl => 6,
        // The fields of a row have limits of their own.
        LoadFormat::Csv => 0,
    };
    per_byte * (MAX_KEY as u64 + MAX_VALUE) + OTHERS
}

/// A failure at a line.
pub(super) fn refused(number: u64, why: impl std::fmt::Display) -> Exit {
    Exit::Failed(format!("line {number} of the input: {why}; the lines before it are stored"))
}

/// The next line without its line feed, or why it is refused; `None` after the last one.
fn next_line(
    mut input: &mut dyn BufRead,
    longest: u64,
) -> std::io::Result<Option<Result<Vec<u8>, String>>> {
    let mut text = Vec::new();
    // With its line feed. A longer one is not read to its end.
    if (&mut input).take(longest + 1).read_until(b'\n', &mut text)? == 0 {
        return Ok(None);
    }
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    if text.len() as u64 > longest {
        return Ok(Some(Err(format!("a line of more than {longest} bytes"))));
    }
    Ok(Some(Ok(text)))
}

/// A record as its fields say.
#[derive(Default)]
struct Fields<'f> {
    tree: Option<&'f [u8]>,
    key: Option<&'f [u8]>,
    key_hex: Option<&'f [u8]>,
    value: Option<&'f [u8]>,
    value_hex: Option<&'f [u8]>,
}

impl Fields<'_> {
    fn line(&self, tree: Option<&str>) -> Result<Line, String> {
        let tree = match (self.tree, tree) {
            (Some(named), _) => named.to_vec(),
            (None, Some(given)) => given.as_bytes().to_vec(),
            (None, None) => {
                return Err("no tree is named; a field \"tree\" or --tree names it".to_owned());
            }
        };
        let key = one_of("key", self.key, self.key_hex)?;
        let value = one_of("value", self.value, self.value_hex)?;
        let pair: Option<Pair> = match (key, value) {
            (Some(key), Some(value)) => Some((key, value)),
            (None, None) if self.tree.is_some() => None,
            (None, None) => {
                let sentence = "no key and no value; a record of a tree alone must name it itself";
                return Err(sentence.to_owned());
            }
            (Some(_), None) => return Err("a key without a value".to_owned()),
            (None, Some(_)) => return Err("a value without a key".to_owned()),
        };
        Ok(Line { tree, pair })
    }
}

fn one_of(name: &str, text: Option<&[u8]>, hex: Option<&[u8]>) -> Result<Option<Vec<u8>>, String> {
    match (text, hex) {
        (Some(_), Some(_)) => Err(format!("\"{name}\" and \"{name}_hex\" are both there")),
        (Some(text), None) => Ok(Some(text.to_vec())),
        (None, Some(hex)) => {
            unescape_hex(hex).map(Some).map_err(|why| format!("\"{name}_hex\": {why}"))
        }
        (None, None) => Ok(None),
    }
}

/// A line of JSON. The value may be any JSON; a string stands for its characters, anything else for
/// its text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonLine<'t> {
    #[serde(default, deserialize_with = "present")]
    tree: Option<String>,
    #[serde(default, deserialize_with = "present")]
    key: Option<String>,
    #[serde(default, deserialize_with = "present")]
    key_hex: Option<String>,
    #[serde(borrow, default, deserialize_with = "present")]
    value: Option<&'t RawValue>,
    #[serde(default, deserialize_with = "present")]
    value_hex: Option<String>,
}

/// A field that is there. Without this, `null` would be the same as no field.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    field: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(field).map(Some)
}

fn bytes(text: &Option<String>) -> Option<&[u8]> {
    text.as_deref().map(str::as_bytes)
}

fn of_json(text: &[u8], tree: Option<&str>) -> Result<Line, String> {
    // An array would be taken for the fields in their order.
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err("a JSON object is accepted".to_owned());
    }
    let line: JsonLine<'_> = serde_json::from_slice(text)
        .map_err(|error| format!("{}, at column {}", reason(&error), error.column()))?;
    // Only the text itself has every digit and every field of a value.
    let raw = line.value.map(RawValue::get);
    let value = match raw {
        Some(quoted) if quoted.starts_with('"') => {
            let read = serde_json::from_str::<String>(quoted);
            Some(Cow::from(read.map_err(|error| format!("\"value\": {}", reason(&error)))?))
        }
        other => other.map(Cow::from),
    };
    Fields {
        tree: bytes(&line.tree),
        key: bytes(&line.key),
        key_hex: bytes(&line.key_hex),
        value: value.as_deref().map(str::as_bytes),
        value_hex: bytes(&line.value_hex),
    }
    .line(tree)
}

/// The sentence of `error` without its line number, which counts within a line.
fn reason(error: &serde_json::Error) -> String {
    let sentence = error.to_string();
    sentence.split(" at line ").next().unwrap_or(&sentence).to_owned()
}

impl Csv<'_> {
    fn next(&mut self, tree: Option<&str>) -> Result<Option<Line>, NoRow> {
        if self.columns.is_none() {
            // An input without a header is refused as well.
            self.rows.read()?;
            let columns = columns(self.rows.fields()).map_err(NoRow::Bad)?;
            self.rows.limit(columns.iter().map(|column| column.limit()).collect(), OTHERS);
            self.columns = Some(columns);
        }
        if !self.rows.read()? {
            return Ok(None);
        }
        let columns = self.columns.as_deref().unwrap_or_default();
        let (width, expected) = (self.rows.width(), columns.len());
        if width != expected {
            return Err(NoRow::Bad(format!("{width} fields, where the header has {expected}")));
        }
        let mut fields = Fields::default();
        for (column, field) in columns.iter().zip(self.rows.fields()) {
            match column {
                Column::Tree => fields.tree = Some(field),
                Column::Key => fields.key = Some(field),
                Column::KeyHex => fields.key_hex = Some(field),
                Column::Value => fields.value = Some(field),
                Column::ValueHex => fields.value_hex = Some(field),
            }
        }
        fields.line(tree).map(Some).map_err(NoRow::Bad)
    }
}

fn columns<'h>(header: impl Iterator<Item = &'h [u8]>) -> Result<Vec<Column>, String> {
    const ACCEPTED: &str = "a header with tree (unless --tree names it), key or key_hex, and value \
                            or value_hex is accepted";
    let mut columns = Vec::new();
    for name in header {
        let column = match name.trim_ascii() {
            b"tree" => Column::Tree,
            b"key" => Column::Key,
            b"key_hex" => Column::KeyHex,
            b"value" => Column::Value,
            b"value_hex" => Column::ValueHex,
            other => return Err(format!("column \"{}\": {ACCEPTED}", other.escape_ascii())),
        };
        if columns.contains(&column) {
            return Err(format!("column \"{}\" twice: {ACCEPTED}", name.escape_ascii()));
        }
        columns.push(column);
    }
    let one = |text, hex| columns.contains(&text) != columns.contains(&hex);
    if one(Column::Key, Column::KeyHex) && one(Column::Value, Column::ValueHex) {
        Ok(columns)
    } else {
        Err(format!("the header is not complete: {ACCEPTED}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_refused_before_all_of_it_is_read() {
        for format in [LoadFormat::Lines, LoadFormat::Jsonl] {
            for end in ["", "\n"] {
                let text = format!("{}{end}", "t".repeat(30));
                let mut text = text.as_bytes();
                let mut input = Input::new(&mut text, format, None).unwrap();
                input.longest = 20;
                let Err(Exit::Failed(why)) = input.next() else { panic!("it is read") };
                assert!(why.contains("line 1 of the input: a line of more than 20 bytes"), "{why}");
                assert_eq!(text.len(), 30 + end.len() - 21);
            }
        }
        let mut text = b"12345678901234567890\n".as_slice();
        let mut input = Input::new(&mut text, LoadFormat::Lines, None).unwrap();
        input.longest = 20;
        assert_eq!(input.next().unwrap().unwrap().tree, b"12345678901234567890");
    }

    #[test]
    fn a_quote_that_is_never_closed_is_refused_before_all_is_read() {
        let rest = "more,and more\n".repeat(20_000);
        for (text, why) in [
            ("value,key\n1,\"2\n", "line 2 of the input: \"key\" has more than 65536 bytes"),
            ("key,value\n1,2\n\"3,\n", "line 3 of the input: \"key\" has more than 65536 bytes"),
            ("key,value\n1,2\n3,4,\"", "line 3 of the input: field 3 has more than 65536 bytes"),
            ("\"key,value\n", "line 1 of the input: a row of more than 65536 bytes"),
        ] {
            let text = format!("{text}{rest}");
            let mut left = text.as_bytes();
            let mut read = std::io::BufReader::with_capacity(4096, &mut left);
            let mut input = Input::new(&mut read, LoadFormat::Csv, Some("t".to_owned())).unwrap();
            let refused = loop {
                match input.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("it is read"),
                    Err(Exit::Failed(refused)) => break refused,
                    Err(other) => panic!("{other:?}"),
                }
            };
            assert!(refused.starts_with(why), "{refused}");
            assert!(left.len() > rest.len() / 2, "{} bytes are left", left.len());
        }
    }

    #[test]
    fn lines_are_counted_to_the_end_of_a_record() {
        let csv = "key,value\r\na,\"1\r\n2\"\r\n\r\nb,3";
        let jsonl = "{\"key\":\"a\",\"value\":1}\n\n\n{\"key\":\"b\",\"value\":1}";
        for (format, text, expected) in
            [(LoadFormat::Csv, csv, [(2, 3), (5, 5)]), (LoadFormat::Jsonl, jsonl, [(1, 1), (4, 4)])]
        {
            let mut text = text.as_bytes();
            let mut input = Input::new(&mut text, format, Some("t".to_owned())).unwrap();
            for lines in expected {
                assert!(input.next().unwrap().is_some());
                assert_eq!((input.number, input.lines), lines);
            }
            assert!(input.next().unwrap().is_none());
        }
    }
}
