//! `--record-trace`: the page accesses of a run, written to a file that `wattle simulate` replays.
//!
//! One line for each access, in the order of `wattle::PageTrace`, compressed by zstd if the name of
//! the file ends in `.zst`: `page,R,leaf,0,tree` or `page,W,inner,level,tree`, where the level
//! counts from the leaves. It has the accesses of the warm-up and of the measured part, not of the
//! load. It is complete when the run has ended. If the file cannot be
//! written the run ends.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wattle::{PageAccess, PageTrace, TraceSink};

use super::common::RunFlags;
use super::exit::{Exit, failed};
use crate::breakdown::profile::Profiler;
use crate::driver::control::Phase;
use crate::driver::failure::Failure;
use crate::driver::measure::{Measurement, Observer, Sample};

/// Level of compression. Higher ones take more time than they save: the text is mostly digits.
const ZSTD_LEVEL: i32 = 1;

/// The recording of a run, if the user asked for one: of its page accesses, or of its processor
/// time.
#[derive(Debug)]
pub struct Recording {
    asked: Option<(PathBuf, PageTrace)>,
    profiler: Option<Arc<Profiler>>,
}

impl Recording {
    /// The recording that `flags` ask for.
    pub fn new(flags: &RunFlags) -> Self {
        let asked = flags.record_trace.as_ref().map(|path| (path.clone(), PageTrace::new()));
        Self { asked, profiler: None }
    }

    /// Only the processor time of the measured part.
    pub fn of_time(profiler: Option<Arc<Profiler>>) -> Self {
        Self { asked: None, profiler }
    }

    /// The run has come to this phase.
    pub fn enter(&self, phase: Phase) {
        match (&self.profiler, phase) {
            (Some(profiler), Phase::Measured) => profiler.begin(),
            (Some(profiler), Phase::Stop) => profiler.end(),
            _ => {}
        }
    }

    /// No recording.
    pub fn none() -> Self {
        Self { asked: None, profiler: None }
    }

    /// The trace in which the engine records accesses.
    pub fn trace(&self) -> Option<PageTrace> {
        self.asked.as_ref().map(|(_, trace)| trace.clone())
    }

    /// Creates the file before the long work, so that a wrong path is reported at once.
    pub fn create(&self) -> Result<Option<TraceFile>, Exit> {
        let Some((path, _)) = &self.asked else { return Ok(None) };
        let file = TraceFile::create(path).map_err(|error| {
            let shown = path.display();
            Exit::Usage(format!("--record-trace {shown} cannot be created: {error}"))
        })?;
        Ok(Some(file))
    }

    /// Records the accesses of `run` into `file`. The observer that `run` gets stops it if the file
    /// cannot be written.
    pub fn during(
        &self,
        file: Option<TraceFile>,
        observer: Observer<'_>,
        run: impl FnOnce(Observer<'_>) -> Measurement,
    ) -> Result<Measurement, Exit> {
        let (Some((path, trace)), Some(file)) = (&self.asked, file) else {
            return Ok(run(observer));
        };
        trace.start(Box::new(file)).map_err(failed("recording page accesses"))?;
        let broken = |error: &dyn std::fmt::Display| {
            Failure::Store(format!("writing the page trace {}: {error}", path.display()).into())
        };
        let mut watched = |sample: &Sample| match trace.has_failed() {
            true => Err(broken(&"it was ended")),
            false => observer(sample),
        };
        let mut measurement = run(&mut watched);
        match trace.finish() {
            Ok(accesses) => measurement.trace_accesses = Some(accesses),
            // If the run ended early, this is the reason.
            Err(error) => measurement.failure = Some(broken(&error)),
        }
        Ok(measurement)
    }
}

/// The file of a recording.
pub struct TraceFile {
    output: Output,
    text: Vec<u8>,
}

enum Output {
    Plain(BufWriter<File>),
    Compressed(zstd::Encoder<'static, BufWriter<File>>),
}

impl TraceFile {
    /// Creates or replaces the file at `path`.
    fn create(path: &Path) -> io::Result<Self> {
        let file = BufWriter::with_capacity(1 << 17, File::create(path)?);
        let compressed = path.extension().is_some_and(|extension| extension == "zst");
        let output = match compressed {
            true => Output::Compressed(zstd::Encoder::new(file, ZSTD_LEVEL)?),
            false => Output::Plain(file),
        };
        Ok(Self { output, text: Vec::new() })
    }
}

impl TraceSink for TraceFile {
    fn write(&mut self, accesses: &[PageAccess]) -> io::Result<()> {
        self.text.clear();
        for access in accesses {
            write_line(access, &mut self.text);
        }
        match &mut self.output {
            Output::Plain(file) => file.write_all(&self.text),
            Output::Compressed(encoder) => encoder.write_all(&self.text),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match &mut self.output {
            Output::Plain(file) => file.flush(),
            Output::Compressed(encoder) => {
                encoder.do_finish()?;
                encoder.get_mut().flush()
            }
        }
    }
}

/// One line of the file.
fn write_line(access: &PageAccess, text: &mut Vec<u8>) {
    number(access.page.0, text);
    text.extend_from_slice(if access.write { b",W," } else { b",R," });
    text.extend_from_slice(if access.level > 0 { b"inner," } else { b"leaf," });
    number(u64::from(access.level), text);
    text.push(b',');
    number(u64::from(access.tree.0), text);
    text.push(b'\n');
}

/// The digits of a number.
fn number(mut left: u64, text: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[first..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::kinds::Kind;
    use crate::simulate::trace::Trace;
    use wattle::{PageId, TreeId};

    #[test]
    fn the_simulator_reads_the_recorded_accesses() {
        let folder = tempfile::tempdir().unwrap();
        let pages = [0, 7, 10, 1_000_000, u64::MAX >> 1];
        let accesses: Vec<PageAccess> = (0..10_000)
            .map(|i: usize| PageAccess {
                page: PageId(pages[i % 5]),
                write: i.is_multiple_of(3),
                tree: TreeId(7),
                level: (i % 5 == 4) as u8,
            })
            .collect();
        for name in ["t.csv", "t.csv.zst"] {
            let path = folder.path().join(name);
            let mut file = TraceFile::create(&path).unwrap();
            accesses.chunks(777).for_each(|part| file.write(part).unwrap());
            file.finish().unwrap();
            drop(file);
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes.starts_with(b"0,W,leaf,0,7\n7,R,leaf,0,7\n"), name == "t.csv");
            let trace = Trace::read(&path).unwrap();
            let read: Vec<_> =
                trace.accesses().map(|access| (trace.id(access.page), access.write)).collect();
            let written: Vec<_> =
                accesses.iter().map(|access| (access.page.0, access.write)).collect();
            assert_eq!(read, written);
            let kinds = trace.kinds().unwrap();
            assert!((0..4).all(|page| kinds[page] == Kind::BelowRoot), "{kinds:?}");
            assert_eq!(kinds[4], Kind::Root);
        }
    }
}
