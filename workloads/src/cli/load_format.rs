//! The formats that `wattle load` reads: lines of a dump, JSON lines, and CSV.

use std::io::BufRead;

use clap::ValueEnum;
use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};
use serde::Deserialize;

use super::dump::{Line, Pair, unescape_hex};
use super::exit::{Exit, failed};

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

/// Reads an input line by line.
pub(super) struct Input<'i> {
    source: Source<'i>,
    /// The tree of records that name none.
    tree: Option<String>,
    /// Number of the line where the record that was read last begins, from 1.
    pub(super) number: u64,
}

enum Source<'i> {
    Lines(&'i mut dyn BufRead),
    Jsonl(&'i mut dyn BufRead),
    Csv(Box<Csv<'i>>),
}

struct Csv<'i> {
    reader: Reader<&'i mut dyn BufRead>,
    /// From the header; read with the first record.
    columns: Option<Vec<Column>>,
    record: ByteRecord,
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
        let source = match format {
            LoadFormat::Lines => Source::Lines(input),
            LoadFormat::Jsonl => Source::Jsonl(input),
            LoadFormat::Csv => Source::Csv(Box::new(Csv {
                reader: ReaderBuilder::new().from_reader(input),
                columns: None,
                record: ByteRecord::new(),
            })),
        };
        Ok(Self { source, tree, number: 0 })
    }

    /// The next record; `None` after the last one.
    pub(super) fn next(&mut self) -> Result<Option<Line>, Exit> {
        let parsed = match &mut self.source {
            Source::Lines(input) => match next_line(*input, &mut self.number)? {
                Some(text) => Line::parse(&text),
                None => return Ok(None),
            },
            Source::Jsonl(input) => loop {
                let Some(text) = next_line(*input, &mut self.number)? else { return Ok(None) };
                if !text.trim_ascii().is_empty() {
                    break of_json(&text, self.tree.as_deref());
                }
            },
            Source::Csv(csv) => match csv.next(self.tree.as_deref(), &mut self.number) {
                Ok(Some(line)) => Ok(line),
                Ok(None) => return Ok(None),
                Err(CsvEnd::Record(why)) => Err(why),
                Err(CsvEnd::Io(error)) => return Err(failed("reading the input")(error)),
            },
        };
        parsed.map(Some).map_err(|why| refused(self.number, why))
    }
}

/// A failure at a line.
pub(super) fn refused(number: u64, why: impl std::fmt::Display) -> Exit {
    Exit::Failed(format!("line {number} of the input: {why}; the lines before it are stored"))
}

fn next_line(input: &mut dyn BufRead, number: &mut u64) -> Result<Option<Vec<u8>>, Exit> {
    let mut text = Vec::new();
    if input.read_until(b'\n', &mut text).map_err(failed("reading the lines"))? == 0 {
        return Ok(None);
    }
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    *number += 1;
    Ok(Some(text))
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
            (None, None) => None,
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
struct JsonLine {
    tree: Option<String>,
    key: Option<String>,
    key_hex: Option<String>,
    value: Option<serde_json::Value>,
    value_hex: Option<String>,
}

fn bytes(text: &Option<String>) -> Option<&[u8]> {
    text.as_deref().map(str::as_bytes)
}

fn of_json(text: &[u8], tree: Option<&str>) -> Result<Line, String> {
    // An array would be taken for the fields in their order.
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err("a JSON object is accepted".to_owned());
    }
    let line: JsonLine = serde_json::from_slice(text).map_err(|error| {
        // Its own line number counts within this line.
        let sentence = error.to_string();
        let reason = sentence.split(" at line ").next().unwrap_or(&sentence);
        format!("{reason}, at column {}", error.column())
    })?;
    let value = line.value.map(|value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    });
    Fields {
        tree: bytes(&line.tree),
        key: bytes(&line.key),
        key_hex: bytes(&line.key_hex),
        value: bytes(&value),
        value_hex: bytes(&line.value_hex),
    }
    .line(tree)
}

/// Why reading CSV ends early.
enum CsvEnd {
    Record(String),
    Io(std::io::Error),
}

impl Csv<'_> {
    fn next(&mut self, tree: Option<&str>, number: &mut u64) -> Result<Option<Line>, CsvEnd> {
        if self.columns.is_none() {
            *number = 1;
            let header = self.reader.byte_headers().map_err(CsvEnd::of)?;
            self.columns = Some(columns(header).map_err(CsvEnd::Record)?);
        }
        let read = self.reader.read_byte_record(&mut self.record);
        let position = match &read {
            Err(error) => error.position(),
            Ok(_) => self.record.position(),
        };
        *number = position.map_or(*number + 1, csv::Position::line);
        if !read.map_err(CsvEnd::of)? {
            return Ok(None);
        }
        let mut fields = Fields::default();
        let columns = self.columns.iter().flatten();
        for (column, field) in columns.zip(&self.record) {
            match column {
                Column::Tree => fields.tree = Some(field),
                Column::Key => fields.key = Some(field),
                Column::KeyHex => fields.key_hex = Some(field),
                Column::Value => fields.value = Some(field),
                Column::ValueHex => fields.value_hex = Some(field),
            }
        }
        fields.line(tree).map(Some).map_err(CsvEnd::Record)
    }
}

impl CsvEnd {
    fn of(error: csv::Error) -> CsvEnd {
        match error.into_kind() {
            ErrorKind::Io(error) => CsvEnd::Io(error),
            ErrorKind::UnequalLengths { expected_len, len, .. } => {
                CsvEnd::Record(format!("{len} fields, where the header has {expected_len}"))
            }
            other => CsvEnd::Record(format!("not CSV: {other:?}")),
        }
    }
}

fn columns(header: &ByteRecord) -> Result<Vec<Column>, String> {
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
