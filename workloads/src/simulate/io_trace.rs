//! The requests of a replay to the device, as a fio iolog of version 2 (for `fio --read_iolog`).
//!
//! A page is 4 KiB at the offset of its number in the file of the trace. Neighbouring pages that
//! are written together are one request. The first failed write of the file is kept until the end.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::replay::IoSink;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Writes an iolog.
#[derive(Debug)]
pub struct IoTrace<W: Write> {
    output: W,
    device: String,
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
        write!(output, "fio version 2 iolog\n{device} add\n{device} open\n")?;
        Ok(Self { output, device, failure: None })
    }

    fn request(&mut self, action: &str, number: u64, pages: u64) {
        if self.failure.is_none() {
            // Offsets wrap beyond 2^64, as numbers of other programs may.
            let (offset, length) = (number.wrapping_mul(PAGE), pages * PAGE);
            let line = writeln!(self.output, "{} {action} {offset} {length}", self.device);
            self.failure = line.err();
        }
    }

    /// Ends the log, and returns its output.
    ///
    /// # Errors
    /// The first error of the output.
    pub fn finish(mut self) -> io::Result<W> {
        match self.failure {
            Some(error) => Err(error),
            None => {
                writeln!(self.output, "{} close", self.device)?;
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
