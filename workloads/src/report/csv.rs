//! Samples as rows of a CSV file: one for each second of the measured part.
//!
//! Each row is written when its sample is taken, so a run that ends early leaves its rows. New
//! columns are added at the end.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::driver::counters::EvictorCounters;
use crate::driver::measure::Sample;

const HEADER: &str = "seconds,operations,throughput,hits,faults,pages_read,pages_written,evictions,\
                      evictions_dirty,free_frames,evictor_cpu_seconds,p50_us,p95_us,p99_us,\
                      p999_us,max_us,epoch,threshold,candidates,queued,no_page,pinned,\
                      hot_children,being_written,hotter,latched,parent_latched,changed,\
                      queue_full,swizzles,unswizzles,queued_writes";

/// The file of `--samples`.
pub struct SampleFile {
    file: File,
}

impl SampleFile {
    /// Creates the file with its header, and replaces an existing one.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = File::create(path)?;
        writeln!(file, "{HEADER}")?;
        Ok(Self { file })
    }

    /// Adds one row.
    pub fn write(&mut self, sample: &Sample) -> io::Result<()> {
        self.file.write_all(row(sample).as_bytes())
    }
}

fn row(sample: &Sample) -> String {
    let Sample { at_seconds, operations, counters, latency, .. } = sample;
    let counters = &counters.buffer;
    let EvictorCounters { epoch, threshold, candidates, queued, refused, .. } = &counters.evictor;
    let refused = refused.reasons().map(|(_, count)| count.to_string()).join(",");
    format!(
        "{at_seconds:.3},{operations},{:.1},{},{},{},{},{},{},{},{:.3},{:.3},{:.3},{:.3},{:.3},\
         {:.3},{epoch},{threshold:.6},{candidates},{queued},{refused},{},{},{}\n",
        sample.throughput(),
        counters.hits,
        counters.faults,
        counters.pages_read,
        counters.pages_written,
        counters.evictions,
        counters.evictions_dirty,
        counters.free_frames,
        counters.evictor_cpu_seconds,
        latency.p50,
        latency.p95,
        latency.p99,
        latency.p999,
        latency.max,
        counters.evictor.swizzles,
        counters.evictor.unswizzles,
        counters.evictor.queued_writes,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_columns_of_the_header() {
        let report = crate::report::tests::example();
        let row = row(&report.details.samples[1]);
        assert_eq!(row.split(',').count(), HEADER.split(',').count());
        assert!(row.starts_with("2.000,1000,1000.0,0,10,0,5,"), "{row}");
    }

    #[test]
    fn the_file_grows_row_by_row() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.csv");
        let mut file = SampleFile::create(&path).unwrap();
        for sample in &crate::report::tests::example().details.samples {
            file.write(sample).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 4);
        assert_eq!(text.lines().next(), Some(HEADER));
    }
}
