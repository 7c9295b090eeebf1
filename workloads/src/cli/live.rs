//! The output of a running workload once a second: a line on standard error, and a row of the CSV
//! file.

use std::io::IsTerminal;

use super::common::Format;
use crate::driver::control::say;
use crate::driver::failure::Failure;
use crate::driver::measure::Sample;
use crate::report::csv::SampleFile;
use crate::report::figures::{rate, significant};

/// The outputs of samples.
pub struct Live {
    lines: bool,
    file: Option<SampleFile>,
}

impl Live {
    /// Lines on standard error, unless a program reads the result, and rows in `file`.
    pub fn new(format: Format, file: Option<SampleFile>) -> Self {
        Self { lines: format == Format::Text || std::io::stderr().is_terminal(), file }
    }

    /// No output.
    pub fn none() -> Self {
        Self { lines: false, file: None }
    }

    /// Shows `sample`.
    pub fn show(&mut self, sample: &Sample) -> Result<(), Failure> {
        if self.lines {
            say(line(sample));
        }
        match &mut self.file {
            Some(file) if sample.measured => file
                .write(sample)
                .map_err(|error| Failure::Store(format!("writing --samples: {error}").into())),
            _ => Ok(()),
        }
    }
}

fn line(sample: &Sample) -> String {
    format!(
        "{:>7} {:6.1} s  {:>11} operations/s  {:>9} faults/s  {:>9} writes/s  p99 {:>7} us",
        if sample.measured { "run" } else { "warm-up" },
        sample.at_seconds,
        rate(sample.throughput()),
        rate(sample.rate(sample.counters.buffer.faults)),
        rate(sample.rate(sample.counters.buffer.pages_written)),
        significant(sample.latency.p99),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_figures_of_its_second() {
        let line = line(&crate::report::tests::example().details.samples[0]);
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>().join(" "),
            "run 1.0 s 1,000 operations/s 10.0 faults/s 5.00 writes/s p99 99.3 us"
        );
    }
}
