//! The figures of a probed device, kept in a small file beside the store: `wattle probe` writes it,
//! and opening the store reads it.
//!
//! Format, version 2: lines of ASCII text, each a name, a space and a value. Version 1, which has
//! no rates, is read as well.
//!
//! ```text
//! wattle-device 2
//! device 65024            identity of the file system (st_dev), decimal
//! probed 1764342000       seconds since 1970, UTC
//! k_r 32                  reads in flight for 95 % of the most, 1 to 1024
//! k_w 16                  the same for writes
//! asymmetry 1.3           reads for the price of a write
//! reads 24100             highest rate of reads, pages per second, at least 1
//! writes 18500            the same for writes
//! checksum 89abcdef       CRC-32C of all bytes before this line, hexadecimal
//! ```
//!
//! The file is a hint. A store opens without it; one that is damaged, or of another device, is
//! reported and not used. It is replaced by renaming, so it is whole or absent after a power cut.

use super::{
    directory::{Directory, FileId},
    probe::{MAX_DEPTH, ProbeReport, highest},
};
use crc_fast::crc32_iscsi;
use std::{
    io::{self, Read, Write},
    time::{SystemTime, UNIX_EPOCH},
};

/// Name of the file in the directory of a store.
pub const DEVICE_FILE: &str = "device";
const NEW_FILE: &str = "device.new";
const FIRST_LINE: &str = "wattle-device 2";
const FIRST_LINE_1: &str = "wattle-device 1";
/// Upper bound on the length of the file.
const MAX_BYTES: u64 = 1024;
/// Upper bound on the asymmetry.
const MAX_ASYMMETRY: f64 = 1e6;

/// The figures of a probed device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceRecord {
    /// Reads in flight for 95 % of the highest rate of reads.
    pub k_r: usize,
    /// Writes in flight for 95 % of the highest rate of writes.
    pub k_w: usize,
    /// Reads for the price of a write.
    pub asymmetry: f64,
    /// When the device was probed, in seconds since 1970.
    pub probed: u64,
    /// The highest rates; files of version 1 do not have them.
    pub rates: Option<DeviceRates>,
}

/// The highest rates of a probed device: random reads alone, and random writes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRates {
    /// Pages read per second, at least 1.
    pub reads: u64,
    /// Pages written per second, at least 1.
    pub writes: u64,
}

impl From<&ProbeReport> for DeviceRecord {
    /// The figures of a probe that has just ended.
    fn from(report: &ProbeReport) -> DeviceRecord {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let rate = |points| highest(points).round().max(1.0) as u64;
        let rates = DeviceRates { reads: rate(&report.reads), writes: rate(&report.writes) };
        DeviceRecord {
            k_r: report.k_r,
            k_w: report.k_w,
            asymmetry: report.alpha,
            probed: since.map_or(0, |since| since.as_secs()),
            rates: Some(rates),
        }
    }
}

impl DeviceRecord {
    /// Replaces the file in the directory of a store.
    ///
    /// # Errors
    /// Failed I/O; the old file is there then, or none.
    pub fn write(&self, directory: &Directory) -> io::Result<()> {
        let mut file = directory.create_file_anew(NEW_FILE)?;
        file.write_all(self.encode(device_of(directory)?).as_bytes())?;
        file.sync_all()?;
        directory.rename(NEW_FILE, DEVICE_FILE)?;
        directory.sync()
    }

    /// Reads the file in the directory of a store, if there is one.
    ///
    /// # Errors
    /// Failed I/O; `InvalidData` says what is wrong with the file.
    pub fn read(directory: &Directory) -> io::Result<Option<DeviceRecord>> {
        if directory.find(DEVICE_FILE)?.is_none() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        directory.open_regular(DEVICE_FILE)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        DeviceRecord::decode(&bytes, device_of(directory)?).map(Some).map_err(invalid)
    }

    fn encode(&self, device: u64) -> String {
        let DeviceRecord { k_r, k_w, asymmetry, probed, rates } = self;
        let first = if rates.is_some() { FIRST_LINE } else { FIRST_LINE_1 };
        let rates =
            rates.map(|DeviceRates { reads, writes }| format!("reads {reads}\nwrites {writes}\n"));
        let text = format!(
            "{first}\ndevice {device}\nprobed {probed}\nk_r {k_r}\nk_w {k_w}\nasymmetry \
             {asymmetry}\n{}",
            rates.unwrap_or_default()
        );
        let checksum = crc32_iscsi(text.as_bytes());
        format!("{text}checksum {checksum:08x}\n")
    }

    /// The record in `bytes`, if it is one of this `device`; otherwise what is wrong.
    fn decode(bytes: &[u8], device: u64) -> Result<DeviceRecord, String> {
        if bytes.len() as u64 > MAX_BYTES {
            return Err(format!("it is longer than {MAX_BYTES} bytes"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "it is no text".to_string())?;
        let at = text.find("checksum ").ok_or("it has no checksum")?;
        let checksum = format!("checksum {:08x}\n", crc32_iscsi(&bytes[..at]));
        if text[at..] != checksum {
            return Err("its checksum is wrong".to_string());
        }
        let mut lines = text[..at].lines();
        let has_rates = match lines.next() {
            Some(FIRST_LINE) => true,
            Some(FIRST_LINE_1) => false,
            other => return Err(format!("it begins with {other:?}, not with {FIRST_LINE:?}")),
        };
        let mut value = |name: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name));
            let value = line.and_then(|value| value.strip_prefix(' '));
            value.ok_or_else(|| format!("its line {name:?} is missing"))
        };
        let whole = |name: &str, text: &str| {
            text.parse::<u64>().map_err(|_| format!("its {name} is {text:?}, which is no number"))
        };
        let found = whole("device", value("device")?)?;
        if found != device {
            return Err(format!("it is about device {found}, and the store is on {device}"));
        }
        let probed = whole("date", value("probed")?)?;
        let mut depth = |name: &str| {
            let depth = whole(name, value(name)?)?;
            let depth = usize::try_from(depth).ok().filter(|d| (1..=MAX_DEPTH).contains(d));
            depth.ok_or_else(|| format!("its {name} is not between 1 and {MAX_DEPTH}"))
        };
        let (k_r, k_w) = (depth("k_r")?, depth("k_w")?);
        let asymmetry = value("asymmetry")?.parse::<f64>().ok();
        let asymmetry = asymmetry.filter(|ratio| (0.0..=MAX_ASYMMETRY).contains(ratio));
        let asymmetry = asymmetry.ok_or("its asymmetry is no ratio")?;
        let mut rate = |name: &str| match whole(name, value(name)?)? {
            0 => Err(format!("its {name} are 0")),
            rate => Ok(rate),
        };
        let rates = match has_rates {
            true => Some(DeviceRates { reads: rate("reads")?, writes: rate("writes")? }),
            false => None,
        };
        Ok(DeviceRecord { k_r, k_w, asymmetry, probed, rates })
    }
}

/// Identity of the file system that a directory is on.
fn device_of(directory: &Directory) -> io::Result<u64> {
    directory.find(".").map(|found| found.map_or(0, |found| FileId::device(found.id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: DeviceRecord = DeviceRecord {
        k_r: 32,
        k_w: 16,
        asymmetry: 1.25,
        probed: 1_764_342_000,
        rates: Some(DeviceRates { reads: 24_100, writes: 18_500 }),
    };

    #[test]
    fn a_record_is_read_as_it_was_written_and_replaced_by_the_next() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = Directory::open(place.path()).expect("a directory");
        assert_eq!(DeviceRecord::read(&directory).expect("none"), None);
        for k_w in [16, 4] {
            let record = DeviceRecord { k_w, ..RECORD };
            record.write(&directory).expect("written");
            assert_eq!(DeviceRecord::read(&directory).expect("read"), Some(record));
        }
        assert_eq!(directory.names().expect("names").len(), 1);
    }

    #[test]
    fn damage_of_any_byte_and_records_of_other_devices_are_named() {
        let text = RECORD.encode(7);
        assert_eq!(DeviceRecord::decode(text.as_bytes(), 7), Ok(RECORD));
        let first = DeviceRecord { rates: None, ..RECORD };
        let text_1 = first.encode(7);
        assert!(text_1.starts_with("wattle-device 1\ndevice 7\n"), "{text_1}");
        assert_eq!(DeviceRecord::decode(text_1.as_bytes(), 7), Ok(first));
        let error = DeviceRecord::decode(text.as_bytes(), 8).unwrap_err();
        assert!(error.contains("about device 7"), "{error}");
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(DeviceRecord::decode(&bytes, 7).is_err(), "byte {at}");
            assert!(DeviceRecord::decode(&bytes[..at], 7).is_err(), "cut at {at}");
        }
        let zero = DeviceRecord { k_w: 0, ..RECORD }.encode(7);
        assert!(DeviceRecord::decode(zero.as_bytes(), 7).unwrap_err().contains("k_w"));
        assert!(DeviceRecord::decode(&[b'x'; 2000], 7).unwrap_err().contains("longer"));
    }
}
