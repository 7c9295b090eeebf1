//! How many processors this process may use.

use std::{sync::OnceLock, thread};

/// Processors that this process may use, at least 1: as the system said at the first call. It reads
/// the files of a control group to know, some 20 system calls, and an engine that is opened asks at
/// several places.
pub fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}
