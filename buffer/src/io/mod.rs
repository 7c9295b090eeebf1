//! Storage: where pages live outside memory. One trait, five back ends.
//!
//! | back end | reads of blocking sessions | reads of asynchronous sessions | writes |
//! |---|---|---|---|
//! | `uring` | `pread`, O_DIRECT | tokio-uring | tokio-uring, a batch at a time |
//! | `buffered` | as `uring`, through the page cache | tokio-uring | tokio-uring |
//! | `threads` | `pread`, O_DIRECT where possible | a small pool of threads | a small pool of threads |
//! | `memory` | copy | copy | copy |
//! | `sim` | copy, with faults | copy, with faults | copy, with faults |
//!
//! `uring`, and the rings of `buffered`, need the feature `async` ([`IoKind::check`]).
//!
//! The log has a trait of its own, [`LogStorage`], with the same back ends ([`open_log`]).
//!
//! Memory that the kernel uses belongs to the operation ([`ReadTarget`]) until it completes. A read
//! that a task starts ends without that task ([`Storage::start_read`]): the back end tells the
//! owner of the memory.
//!
//! Locks in this module are real in every build, because the model checker schedules neither these
//! threads nor the kernel.

mod device_record;
mod directory;
#[cfg(test)]
mod directory_tests;
mod faults;
mod file;
mod log;
mod log_file;
mod log_read_only;
#[cfg(feature = "async")]
mod log_ring;
#[cfg(test)]
mod log_tests;
mod medium;
mod memory;
#[cfg(not(feature = "async"))]
mod no_ring;
mod open;
mod overlay;
pub mod probe;
mod probe_load;
#[cfg(feature = "async")]
mod probe_ring;
#[cfg(feature = "async")]
mod ring;
#[cfg(all(test, feature = "async"))]
mod ring_tests;
#[cfg(feature = "async")]
mod runtime;
#[cfg(all(test, feature = "async"))]
mod runtime_tests;
mod segment_file;
mod sim;
mod sim_log;
#[cfg(test)]
mod sim_log_tests;
mod sim_segment;
#[cfg(test)]
mod sim_tests;
mod storage;
#[cfg(test)]
mod tests;
mod threads;
mod timed;
#[cfg(feature = "async")]
mod uring;

pub use device_record::{DEVICE_FILE, DeviceRates, DeviceRecord};
pub use directory::{Directory, FileId, Found, Place, look_at, try_lock, try_lock_shared, unlock};
pub use faults::{Fault, FaultPlan, Op, Unit};
pub use log::{LogBuffer, LogStorage, MemoryLog, Zeroes};
pub use log_read_only::open_log_read_only_in;
pub use medium::{Cut, KEPT_VERSIONS};
pub use memory::{MAX_MEMORY_PAGES, MemoryStorage};
#[cfg(not(feature = "async"))]
use no_ring as ring;
pub use open::{IoKind, open, open_in, open_log, open_log_in, open_read_only_in};
pub use overlay::{FrozenLog, Overlay};
pub(crate) use ring::reads_on_this_thread;
#[cfg(feature = "async")]
pub use runtime::{breathe, start_runtime};
pub use sim::{SimCounters, SimStorage};
pub use storage::{PageWrite, ReadTarget, Storage, TargetOwner};
pub use threads::{MAX_THREADS, ThreadStorage};
pub use timed::{DeviceModel, TimedStorage};
#[cfg(feature = "async")]
pub use uring::{UringStorage, WRITES_IN_FLIGHT};
