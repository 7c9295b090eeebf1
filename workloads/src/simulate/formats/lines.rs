//! One line of each text format.

use std::collections::HashMap;

use super::kind::Format;
use crate::simulate::kinds::{Holds, Place};

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Most pages of one request.
const MOST_OF_A_REQUEST: u64 = 1 << 24;

/// Pages of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The first page, or the number of an object.
    pub first: u64,
    /// Number of pages, at least 1.
    pub pages: u64,
    /// Whether they are written.
    pub write: bool,
    /// Whether `first` is the number of an object, whose pages have no order.
    pub object: bool,
    /// Whether the request was no whole number of pages.
    pub uneven: bool,
    /// The place of the page in its tree, if the line says it.
    pub place: Option<Place>,
}

impl Request {
    /// A request of `bytes` bytes at `offset` of a device; `None` if it is too large.
    fn bytes(device: u64, offset: u64, bytes: u64, write: bool) -> Option<Self> {
        let last = offset.checked_add(bytes.max(1) - 1)? / PAGE;
        let first = offset / PAGE;
        let pages = last - first + 1;
        let fits = pages <= MOST_OF_A_REQUEST && last < DEVICE && device < u64::MAX / DEVICE;
        fits.then_some(Self {
            first: device * DEVICE + first,
            pages,
            write,
            object: false,
            uneven: !offset.is_multiple_of(PAGE) || !bytes.is_multiple_of(PAGE) || bytes == 0,
            place: None,
        })
    }

    /// An access to an object of `bytes` bytes; `None` if it is too large.
    pub(super) fn object(number: u64, bytes: u64, write: bool) -> Option<Self> {
        let pages = bytes.div_ceil(PAGE).max(1);
        let uneven = !bytes.is_multiple_of(PAGE) || bytes == 0;
        let request = Self { first: number, pages, write, object: true, uneven, place: None };
        (pages <= MOST_OF_A_REQUEST).then_some(request)
    }
}

/// Pages from the first one of a device to that of the next: as many as have an offset in bytes.
pub const DEVICE: u64 = 1 << 52;
/// Bytes of a sector of SPC and blkparse.
const SECTOR: u64 = 512;

/// The meaning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// A request.
    Request(Request),
    /// A comment, a header or an event that is no access.
    Skip,
}

/// The columns of a CSV file.
#[derive(Clone, Copy, Debug)]
struct Columns {
    object: usize,
    size: Option<usize>,
    operation: Option<usize>,
}

/// Reads lines of one format, and remembers what earlier lines said.
pub struct Parser {
    format: Format,
    lines: u64,
    columns: Columns,
    /// The numbers of hosts, disks and files.
    devices: HashMap<String, u64>,
    /// The event of blkparse that counts: the first one that stands for a request.
    event: Option<char>,
    /// Version of a fio iolog.
    version: u32,
}

impl Parser {
    /// At the beginning of a file.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            lines: 0,
            columns: Columns { object: 1, size: Some(2), operation: None },
            devices: HashMap::new(),
            event: None,
            version: 0,
        }
    }

    /// The next line, without its end. The error says what was expected.
    pub fn line(&mut self, text: &str) -> Result<Line, &'static str> {
        self.lines += 1;
        match self.format {
            Format::Pages => page(text),
            Format::Arc => arc(text),
            Format::Csv => self.csv(text),
            Format::Msr => self.msr(text),
            Format::Spc => spc(text),
            Format::Fio => self.fio(text),
            Format::Blkparse => self.blkparse(text),
            Format::Plain => plain(text),
            Format::OracleGeneral => Err("text: oracleGeneral is binary"),
        }
    }

    fn device(&mut self, name: &str) -> u64 {
        if let Some(number) = self.devices.get(name) {
            return *number;
        }
        let number = self.devices.len() as u64;
        self.devices.insert(name.to_owned(), number);
        number
    }

    fn csv(&mut self, text: &str) -> Result<Line, &'static str> {
        const EXPECTED: &str = "an access of libCacheSim; write `time,object,size`, or a header \
                                with columns obj_id, obj_size and op";
        if text.starts_with('#') {
            // A header may follow.
            self.lines -= 1;
            return Ok(Line::Skip);
        }
        let fields: Vec<&str> = text.split([',', ';']).map(str::trim).collect();
        if self.lines == 1
            && let Some(columns) = header(&fields)
        {
            self.columns = columns;
            return Ok(Line::Skip);
        }
        let Columns { object, size, operation } = self.columns;
        if fields.len() < 3 && size == Some(2) {
            return Err(EXPECTED);
        }
        let object = fields.get(object).and_then(|text| digits(text)).ok_or(EXPECTED)?;
        let bytes = match size {
            Some(size) => fields.get(size).and_then(|text| digits(text)).ok_or(EXPECTED)?,
            None => PAGE,
        };
        let write = operation.and_then(|at| fields.get(at)).is_some_and(|text| {
            let lower = text.to_ascii_lowercase();
            ["w", "write", "set", "put", "add", "replace", "2a", "8a"].contains(&&*lower)
        });
        Request::object(object, bytes, write).map(Line::Request).ok_or(EXPECTED)
    }

    fn msr(&mut self, text: &str) -> Result<Line, &'static str> {
        const EXPECTED: &str =
            "a request of MSR; write `timestamp,host,disk,Read|Write,offset,size,response`";
        let fields: Vec<&str> = text.split(',').collect();
        let [time, host, disk, kind, offset, size, _] = fields[..] else { return Err(EXPECTED) };
        let write = match kind {
            "Read" => false,
            "Write" => true,
            _ if self.lines == 1 && time.starts_with(char::is_alphabetic) => {
                return Ok(Line::Skip);
            }
            _ => return Err(EXPECTED),
        };
        let (Some(offset), Some(size)) = (digits(offset), digits(size)) else {
            return Err(EXPECTED);
        };
        let device = self.device(&format!("{host},{disk}"));
        Request::bytes(device, offset, size, write).map(Line::Request).ok_or(EXPECTED)
    }

    fn fio(&mut self, text: &str) -> Result<Line, &'static str> {
        const EXPECTED: &str = "a line of a fio iolog; write `fio version 2 iolog` first, then \
                                `file read|write offset length`";
        let mut fields = text.split_ascii_whitespace();
        if self.version == 0 {
            self.version = match text.trim() {
                "fio version 2 iolog" => 2,
                "fio version 3 iolog" => 3,
                _ => return Err(EXPECTED),
            };
            return Ok(Line::Skip);
        }
        if self.version == 3 {
            fields.next();
        }
        let (Some(file), Some(action)) = (fields.next(), fields.next()) else {
            return if text.trim().is_empty() { Ok(Line::Skip) } else { Err(EXPECTED) };
        };
        let write = match action {
            "read" => false,
            "write" => true,
            "add" | "open" | "close" | "sync" | "datasync" | "trim" | "wait"
            | "sync_file_range" => {
                return Ok(Line::Skip);
            }
            _ => return Err(EXPECTED),
        };
        let (Some(offset), Some(length)) =
            (fields.next().and_then(digits), fields.next().and_then(digits))
        else {
            return Err(EXPECTED);
        };
        let device = self.device(file);
        Request::bytes(device, offset, length, write).map(Line::Request).ok_or(EXPECTED)
    }

    fn blkparse(&mut self, text: &str) -> Result<Line, &'static str> {
        const EXPECTED: &str = "a line of blkparse; write `major,minor cpu sequence time pid \
                                action rwbs sector + sectors [process]`";
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let device = fields.first().copied().unwrap_or("");
        let is_device = device
            .split_once(',')
            .is_some_and(|(major, minor)| digits(major).is_some() && digits(minor).is_some());
        if !is_device || fields.len() < 6 {
            // The summary after the events.
            return if self.event.is_some() { Ok(Line::Skip) } else { Err(EXPECTED) };
        }
        let (action, kind) = (fields[5], fields.get(6).copied().unwrap_or(""));
        let accesses = kind.contains(['R', 'W']) && !kind.contains('D');
        let Some(action) = action.chars().next().filter(|action| "QDC".contains(*action)) else {
            return Ok(Line::Skip);
        };
        let (Some(sector), Some(&"+"), Some(sectors)) = (
            fields.get(7).and_then(|text| digits(text)),
            fields.get(8),
            fields.get(9).and_then(|text| digits(text)),
        ) else {
            return Ok(Line::Skip);
        };
        if !accesses || *self.event.get_or_insert(action) != action || sectors == 0 {
            return Ok(Line::Skip);
        }
        let (Some(offset), Some(bytes)) = (sector.checked_mul(SECTOR), sectors.checked_mul(SECTOR))
        else {
            return Err(EXPECTED);
        };
        let device = self.device(device);
        let request = Request::bytes(device, offset, bytes, kind.contains('W'));
        request.map(Line::Request).ok_or(EXPECTED)
    }
}

/// The columns that a header of a CSV file names; `None` if it is no header.
fn header(fields: &[&str]) -> Option<Columns> {
    let named = |names: &[&str]| {
        fields.iter().position(|field| names.contains(&&*field.to_ascii_lowercase()))
    };
    Some(Columns {
        object: named(&["obj_id", "object", "object_id", "objid", "id", "key", "lbn", "lba"])?,
        size: named(&["obj_size", "size", "object_size", "objsize", "bytes"]),
        operation: named(&["op", "operation", "opcode", "rw", "type"]),
    })
}

fn page(text: &str) -> Result<Line, &'static str> {
    const EXPECTED: &str = "an access; write `page,R` or `page,W` with a page number, and perhaps \
                            after it `,inner|leaf|value` or `,inner|leaf,level,tree`";
    let (page, kind) = text.split_once(',').ok_or(EXPECTED)?;
    let (kind, rest) = kind.split_once(',').map_or((kind, None), |(kind, rest)| (kind, Some(rest)));
    let write = match kind {
        "R" => false,
        "W" => true,
        _ => return Err(EXPECTED),
    };
    let place = rest.map(|rest| place(rest).ok_or(EXPECTED)).transpose()?;
    Ok(Line::Request(Request { place, ..one(digits(page).ok_or(EXPECTED)?, write) }))
}

/// An access to one page.
fn one(first: u64, write: bool) -> Request {
    Request { first, pages: 1, write, object: false, uneven: false, place: None }
}

/// `inner|leaf|value` alone, or with `,level,tree`.
fn place(text: &str) -> Option<Place> {
    let mut fields = text.split(',');
    let holds = Holds::parse(fields.next()?)?;
    let Some(level) = fields.next() else {
        return Some(Place { holds, level: None, tree: 0 });
    };
    let level = u8::try_from(digits(level)?).ok()?;
    let tree = u32::try_from(digits(fields.next()?)?).ok()?;
    // Leaves are at level 0, inner pages above.
    let holds_there = match holds {
        Holds::Inner => level > 0,
        Holds::Leaf | Holds::Value => level == 0,
    };
    (holds_there && fields.next().is_none()).then_some(Place { holds, level: Some(level), tree })
}

fn arc(text: &str) -> Result<Line, &'static str> {
    const EXPECTED: &str =
        "a request; write `start count ignored request`, with at most 2^24 pages";
    let mut fields = text.split_ascii_whitespace().map(digits);
    match (fields.next(), fields.next(), fields.next(), fields.next(), fields.next()) {
        (Some(Some(first)), Some(Some(pages)), Some(Some(_)), Some(Some(_)), None)
            if (1..=MOST_OF_A_REQUEST).contains(&pages) && first.checked_add(pages).is_some() =>
        {
            let request =
                Request { first, pages, write: false, object: false, uneven: false, place: None };
            Ok(Line::Request(request))
        }
        _ => Err(EXPECTED),
    }
}

fn spc(text: &str) -> Result<Line, &'static str> {
    const EXPECTED: &str = "a request of SPC; write `asu,lba,size,R|W,time`";
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    let [asu, block, size, kind, _, ..] = fields[..] else { return Err(EXPECTED) };
    let write = match kind {
        "R" | "r" => false,
        "W" | "w" => true,
        _ => return Err(EXPECTED),
    };
    let (Some(asu), Some(block), Some(size)) = (digits(asu), digits(block), digits(size)) else {
        return Err(EXPECTED);
    };
    let offset = block.checked_mul(SECTOR).ok_or(EXPECTED)?;
    Request::bytes(asu, offset, size, write).map(Line::Request).ok_or(EXPECTED)
}

fn plain(text: &str) -> Result<Line, &'static str> {
    let first = digits(text.trim()).ok_or("a page number")?;
    Ok(Line::Request(one(first, false)))
}

fn digits(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
        // Ranges of pages need a successor, which the largest number does not have.
        .filter(|number| *number < u64::MAX)
}
