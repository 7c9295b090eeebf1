//! The requests of a replay to the device, as a fio iolog of version 2 (for `fio --read_iolog`).
//!
//! A page is 4 KiB at the offset of its number in the file of the trace. Volumes of the trace, and
//! numbers from 2^52 on, are files of their own, because offsets have 64 bits: the first one has
//! the name of the device, others have their number after it. Neighbouring pages that are written
//! together are one request. The first failed write of the file is kept until the end.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::formats::VOLUME;
use super::replay::IoSink;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Writes an iolog.
#[derive(Debug)]
pub struct IoTrace<W: Write> {
    output: W,
    device: String,
    /// Whether each volume was added to the log.
    opened: Vec<bool>,
    failure: Option<io::Error>,
}

impl IoTrace<BufWriter<File>> {
    /// Creates the file at `path`; `device` is the file whose pages are read and written.
    pub fn create(path: &Path, device: &str) -> io::Result<Self> {
        Self::new(BufWriter::new(File::create(path)?), device)
    }
}

impl<W: Write> IoTrace<W> {
    /// Begins a log of requests to `device`, whose spaces become underscores.
    pub fn new(mut output: W, device: &str) -> io::Result<Self> {
        let device = device.replace(char::is_whitespace, "_");
        writeln!(output, "fio version 2 iolog")?;
        let opened = vec![false; (u64::MAX / VOLUME) as usize + 1];
        let mut log = Self { output, device, opened, failure: None };
        log.open(0)?;
        Ok(log)
    }

    /// The name of a volume.
    fn name(&self, volume: u64) -> String {
        match volume {
            0 => self.device.clone(),
            volume => format!("{}.{volume}", self.device),
        }
    }

    /// Adds a volume to the log, unless it was added before.
    fn open(&mut self, volume: u64) -> io::Result<()> {
        if !std::mem::replace(&mut self.opened[volume as usize], true) {
            let name = self.name(volume);
            write!(self.output, "{name} add\n{name} open\n")?;
        }
        Ok(())
    }

    /// Logs a request, or one for each volume that it touches.
    fn request(&mut self, action: &str, mut number: u64, mut pages: u64) {
        while pages > 0 && self.failure.is_none() {
            let (volume, first) = (number / VOLUME, number % VOLUME);
            let here = pages.min(VOLUME - first);
            let (offset, length) = (first * PAGE, here * PAGE);
            self.failure = self.line(volume, action, offset, length).err();
            number = number.wrapping_add(here);
            pages -= here;
        }
    }

    fn line(&mut self, volume: u64, action: &str, offset: u64, length: u64) -> io::Result<()> {
        self.open(volume)?;
        let name = self.name(volume);
        writeln!(self.output, "{name} {action} {offset} {length}")
    }

    /// Ends the log, and returns its output.
    ///
    /// # Errors
    /// The first error of the output.
    pub fn finish(mut self) -> io::Result<W> {
        match self.failure {
            Some(error) => Err(error),
            None => {
                for volume in (0..self.opened.len()).filter(|volume| self.opened[*volume]) {
                    let name = self.name(volume as u64);
                    writeln!(self.output, "{name} close")?;
                }
                self.output.flush()?;
                Ok(self.output)
            }
        }
    }
}

impl<W: Write> IoSink for IoTrace<W> {
    fn read(&mut self, number: u64) {
        self.request("read", number, 1);
    }

    fn write(&mut self, number: u64, pages: u64) {
        self.request("write", number, pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::policies::testing::replayed;
    use crate::simulate::registry::Spec;
    use crate::simulate::replay::Device;
    use crate::simulate::trace::Trace;

    #[test]
    fn the_log_has_every_read_and_every_run_of_writes() {
        let (r, w) = (false, true);
        // Pages 5, 6 and 7 are dirty; 9 and 1 evict 5 and 6; 7 is written at the end.
        let trace = Trace::of("t", [(5, w), (6, w), (7, w), (9, r), (1, r)]);
        let mut log = IoTrace::new(Vec::new(), "a b").unwrap();
        let spec = Spec::parse("fifo").unwrap();
        let counts = spec.run_into(&trace, 3, 1, Device::default(), &mut log);
        assert_eq!((counts.all_writes(), counts.write_runs), (3, 1));
        assert_eq!(
            String::from_utf8(log.finish().unwrap()).unwrap(),
            "fio version 2 iolog\na_b add\na_b open\na_b read 20480 4096\na_b read 24576 4096\n\
             a_b read 28672 4096\na_b write 20480 4096\na_b read 36864 4096\n\
             a_b write 24576 4096\na_b read 4096 4096\na_b write 28672 4096\na_b close\n"
        );
    }

    /// Offsets in bytes would wrap: both volumes would be at the beginning of one file.
    #[test]
    fn volumes_are_files_of_their_own() {
        let (r, w) = (false, true);
        let last = VOLUME - 1;
        let trace =
            Trace::of("t", [(1, r), (VOLUME + 1, r), (last, w), (VOLUME, w), (u64::MAX, r)]);
        let mut log = IoTrace::new(Vec::new(), "d").unwrap();
        Spec::parse("fifo").unwrap().run_into(&trace, 5, 1, Device::default(), &mut log);
        let end = last * PAGE;
        assert_eq!(
            String::from_utf8(log.finish().unwrap()).unwrap(),
            format!(
                "fio version 2 iolog\nd add\nd open\nd read 4096 4096\nd.1 add\nd.1 open\n\
                 d.1 read 4096 4096\nd read {end} 4096\nd.1 read 0 4096\nd.4095 add\n\
                 d.4095 open\nd.4095 read {end} 4096\nd write {end} 4096\nd.1 write 0 4096\n\
                 d close\nd.1 close\nd.4095 close\n"
            )
        );
    }

    /// FBARC, section 5.2: clusters of neighbouring pages are written in fewer runs.
    #[test]
    fn fbarc_writes_in_fewer_runs_than_lru_and_is_faster_if_runs_are_cheap() {
        let mut rng = crate::rng::Rng::new(6, 6);
        let trace = Trace::of(
            "t",
            (0..60_000).map(|_| {
                let page = if rng.below(4) > 0 { rng.below(400) } else { rng.below(4000) };
                (page, rng.below(2) == 0)
            }),
        );
        let device = Device { sequential_write_us: 50.0, ..Device::default() };
        let (fbarc, lru) =
            (replayed("fbarc:cluster=64", 300, &trace), replayed("lru", 300, &trace));
        let per_run = |counts: &crate::simulate::replay::Counts| {
            counts.all_writes() as f64 / counts.write_runs as f64
        };
        assert!(per_run(&fbarc) > 1.05 * per_run(&lru), "{} {}", per_run(&fbarc), per_run(&lru));
        let saved = |counts: &crate::simulate::replay::Counts| {
            counts.combined_seconds(&device) / counts.combined_seconds(&Device::default())
        };
        assert!(saved(&fbarc) < saved(&lru), "{} {}", saved(&fbarc), saved(&lru));
    }
}
