//! The format of a snapshot file.
//!
//! | part | bytes |
//! |---|---|
//! | header | `WTLRAFT1`, length of the meta data (u32), meta data, CRC-32C of all before (u32) |
//! | each record | length of the key (u32), length of the value (u32), key, value |
//! | end | `FFFFFFFF`, records (u64), length of the file (u64), CRC-32C of all bytes before (u32) |
//!
//! Integers are little-endian. A file is written and read record by record: only one record is in
//! memory. A reader checks each length against the file before it allocates.

use crc_fast::{CrcAlgorithm, Digest};
use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
};
use wattle::MAX_KEY;

/// CRC-32C.
const CHECKSUM: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;
const MAGIC: &[u8; 8] = b"WTLRAFT1";
/// In place of the length of a key.
const END: u32 = u32::MAX;
/// Bytes of the end.
const END_BYTES: u64 = 4 + 8 + 8 + 4;
/// Bytes of the buffer of a file.
const BUFFER: usize = 256 << 10;

fn damaged(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn checksum(digest: &Digest) -> u32 {
    digest.finalize() as u32
}

fn length(bytes: usize) -> io::Result<u32> {
    match u32::try_from(bytes) {
        Ok(length) if length != END => Ok(length),
        _ => Err(io::Error::other(format!("{bytes} bytes do not fit into a record"))),
    }
}

/// Writes a snapshot.
pub struct Writer {
    file: BufWriter<File>,
    digest: Digest,
    bytes: u64,
    records: u64,
}

impl Writer {
    /// Begins a file with this meta data.
    pub fn new(file: File, meta: &[u8]) -> io::Result<Writer> {
        let file = BufWriter::with_capacity(BUFFER, file);
        let mut writer = Writer { file, digest: Digest::new(CHECKSUM), bytes: 0, records: 0 };
        writer.write(MAGIC)?;
        writer.write(&length(meta.len())?.to_le_bytes())?;
        writer.write(meta)?;
        writer.write(&checksum(&writer.digest).to_le_bytes())?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    /// Adds a record.
    pub fn record(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.write(&length(key.len())?.to_le_bytes())?;
        self.write(&length(value.len())?.to_le_bytes())?;
        self.write(key)?;
        self.write(value)?;
        self.records += 1;
        Ok(())
    }

    /// Ends the file and makes it durable, but not its name.
    pub fn finish(mut self) -> io::Result<()> {
        let length = self.bytes + END_BYTES;
        self.write(&END.to_le_bytes())?;
        self.write(&self.records.to_le_bytes())?;
        self.write(&length.to_le_bytes())?;
        self.write(&checksum(&self.digest).to_le_bytes())?;
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }
}

/// Reads a snapshot and verifies it.
pub struct Reader {
    file: BufReader<File>,
    digest: Digest,
    length: u64,
    read: u64,
    records: u64,
}

impl Reader {
    /// The verified meta data of a file, and its records, from the first on.
    pub fn new(mut file: File) -> io::Result<(Vec<u8>, Reader)> {
        file.seek(SeekFrom::Start(0))?;
        let length = file.metadata()?.len();
        let file = BufReader::with_capacity(BUFFER, file);
        let mut reader =
            Reader { file, digest: Digest::new(CHECKSUM), length, read: 0, records: 0 };
        let mut magic = [0; 8];
        reader.read(&mut magic)?;
        if magic != *MAGIC {
            return Err(damaged(format!("it begins with {magic:?}, not with {MAGIC:?}")));
        }
        let mut meta = Vec::new();
        let bytes = reader.u32()?;
        reader.fill(&mut meta, bytes)?;
        let checksum = checksum(&reader.digest);
        match reader.u32()? {
            written if written == checksum => Ok((meta, reader)),
            written => Err(damaged(format!(
                "the checksum of its header is {checksum:#x}, not {written:#x}"
            ))),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact(bytes)?;
        self.digest.update(bytes);
        self.read += bytes.len() as u64;
        Ok(())
    }

    fn u32(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.read(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn u64(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn fill(&mut self, into: &mut Vec<u8>, bytes: u32) -> io::Result<()> {
        if u64::from(bytes) > self.length.saturating_sub(self.read) {
            return Err(damaged(format!("{bytes} bytes at {} are beyond its end", self.read)));
        }
        into.resize(bytes as usize, 0);
        self.read(into)
    }

    /// Reads the next record. False at the end, when the whole file has been verified.
    pub fn next(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> io::Result<bool> {
        let bytes = self.u32()?;
        if bytes == END {
            return self.end().map(|()| false);
        }
        if bytes as usize > MAX_KEY {
            return Err(damaged(format!("a key of {bytes} bytes at {}", self.read)));
        }
        let value_bytes = self.u32()?;
        self.fill(key, bytes)?;
        self.fill(value, value_bytes)?;
        self.records += 1;
        Ok(true)
    }

    fn end(&mut self) -> io::Result<()> {
        let (records, length) = (self.u64()?, self.u64()?);
        let checksum = checksum(&self.digest);
        let written = self.u32()?;
        if (records, length, written) == (self.records, self.length, checksum)
            && self.read == self.length
        {
            return Ok(());
        }
        Err(damaged(format!(
            "it has {} records, {} bytes and checksum {checksum:#x}, and says {records}, {length} \
             and {written:#x}",
            self.records, self.length
        )))
    }

    /// Reads all records, and so verifies the file.
    pub fn verify(&mut self) -> io::Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while self.next(&mut key, &mut value)? {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> (tempfile::NamedTempFile, Vec<u8>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = Writer::new(file.reopen().unwrap(), b"meta").unwrap();
        writer.record(b"a", b"1").unwrap();
        writer.record(b"", &[7; 1000]).unwrap();
        writer.finish().unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        (file, bytes)
    }

    fn verify(file: &tempfile::NamedTempFile) -> io::Result<Vec<u8>> {
        let (meta, mut reader) = Reader::new(file.reopen()?)?;
        reader.verify().map(|()| meta)
    }

    #[test]
    fn damage_at_any_byte_and_any_cut_is_found() {
        let (file, bytes) = written();
        assert_eq!(verify(&file).unwrap(), b"meta");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            std::fs::write(file.path(), &damaged).unwrap();
            assert!(verify(&file).is_err(), "byte {at} was changed");
            std::fs::write(file.path(), &bytes[..at]).unwrap();
            assert!(verify(&file).is_err(), "cut at {at}");
        }
        std::fs::write(file.path(), [&bytes[..], b"x"].concat()).unwrap();
        assert!(verify(&file).is_err(), "a byte too many");
        std::fs::write(file.path(), &bytes).unwrap();
        assert_eq!(verify(&file).unwrap(), b"meta");
    }
}
