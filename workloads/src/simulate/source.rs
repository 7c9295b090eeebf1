//! Where a trace comes from: a file, or a generator.

use std::path::Path;

use super::formats::Format;
use super::generate;
use super::trace::Trace;

/// Reads the trace in the file `path` in `format`, or in the one that is recognised; `gen:NAME`
/// generates a synthetic one instead, from `seed` if the name gives none.
///
/// # Errors
/// A sentence that names the file and the line, or the part of `NAME` that is not known.
pub fn open(path: &Path, format: Option<Format>, seed: u64) -> Result<Trace, String> {
    match path.to_str().and_then(|text| text.strip_prefix("gen:")) {
        Some(name) => generate::parse_seeded(name, seed),
        None => Trace::read_as(path, format),
    }
}
