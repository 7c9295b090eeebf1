#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod append;
mod block;
mod flusher;
mod log;
mod owner;
mod reader;
pub mod record;
mod segment;
mod shared;
mod stats;
mod wait;

pub use append::{Appender, GSN_COUNTER_BITS, Section, epoch_of};
pub use block::blank;
pub use log::{Log, LogOptions, LogStart, Urgency};
pub use owner::store_of;
pub use reader::{Chunk, Flush, LogEnd, LogReader, MAX_EPOCH, MAX_NUMBER};
pub use record::{AUTO, Kind, MAX_OPS, MAX_RECORD};
pub use segment::segment_for;
pub use shared::{BUFFER_BYTES, IDLE_FLUSH, MAX_BUFFER, MIN_BUFFER};
pub use stats::{LogStats, RECENT_SYNCS};
pub use wait::NextFlush;

/// The numbers of the format on disk, see `FORMAT.md`.
pub mod format {
    pub use crate::{
        block::{
            BLOCK_ALIGN, BLOCK_HEADER, BLOCK_MAGIC, CHUNK_HEADER, FORMAT_VERSION, MAX_BLOCK,
            MAX_PAYLOAD, MAX_SECTORS, SALT, SECTOR, SEGMENT_HEADER, SEGMENT_MAGIC, TRAILER,
        },
        log::{MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES},
        record::{LONG_OP_HEADER, LONG_RECORD_HEADER, MAX_RECORD, OP_HEADER, RECORD_HEADER},
    };
}
