//! Where a trace comes from: a file, or a generator.

use std::path::Path;

use super::generate;
use super::trace::Trace;

/// Reads the trace in the file `path`; `gen:NAME` generates a synthetic one instead.
///
/// # Errors
/// A sentence that names the file and the line, or the part of `NAME` that is not known.
pub fn open(path: &Path) -> Result<Trace, String> {
    match path.to_str().and_then(|text| text.strip_prefix("gen:")) {
        Some(name) => generate::parse(name),
        None => Trace::read(path),
    }
}
