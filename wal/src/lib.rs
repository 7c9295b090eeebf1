//! Write-ahead log.
#![forbid(unsafe_code)]

mod append;
mod block;
mod flusher;
mod log;
mod reader;
pub mod record;
mod segment;
mod stats;
mod wait;

pub use append::{Appender, GSN_COUNTER_BITS, Section, epoch_of};
pub use log::{Log, LogOptions, LogStart, Urgency};
pub use reader::{Flush, LogEnd, LogReader};
pub use record::{AUTO, Kind, MAX_RECORD};
pub use stats::LogStats;
pub use wait::NextFlush;
