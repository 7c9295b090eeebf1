#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod append;
mod block;
mod classes;
mod core;
mod epochs;
mod error;
mod flusher;
mod gate;
mod gsn;
mod log;
mod options;
mod pacing;
mod position;
mod read;
pub mod record;
mod requests;
mod room;
mod segment;
mod slot;
mod slots;
mod stats;
mod waits;

pub use append::{Appender, Section};
pub use block::blank;
pub use classes::{CLASSES, Classes, class_of};
pub use gsn::{GSN_COUNTER_BITS, MAX_EPOCH, epoch_of};
pub use log::{Log, NextFlush};
pub use options::{LogOptions, Urgency};
pub use pacing::{FlushPolicy, IDLE_FLUSH};
pub use position::{LogEnd, LogStart};
pub use read::{
    flush::{Chunk, Flush},
    heads::MAX_NUMBER,
    owner::store_of,
    reader::{LogReader, sync_segments},
};
pub use record::{AUTO, Kind, MAX_OPS, MAX_RECORD};
pub use segment::prepare::segment_for;
pub use slots::{BUFFER_BYTES, MAX_BUFFER, MIN_BUFFER};
pub use stats::{LogStats, RECENT_SYNCS};

/// The numbers of the format on disk, see `FORMAT.md`.
pub mod format {
    pub use crate::{
        block::{
            BLOCK_ALIGN, BLOCK_HEADER, BLOCK_MAGIC, CHUNK_HEADER, FORMAT_VERSION, MAX_BLOCK,
            MAX_PAYLOAD, MAX_SECTORS, OLDEST_VERSION, SALT, SECTOR, SEGMENT_HEADER, SEGMENT_MAGIC,
            TRAILER,
        },
        options::{MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES},
        record::{LONG_OP_HEADER, LONG_RECORD_HEADER, MAX_RECORD, OP_HEADER, RECORD_HEADER},
    };
}
