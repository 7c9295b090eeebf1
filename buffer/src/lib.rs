#![doc = include_str!("../README.md")]

mod allocate;
mod brief;
mod caller;
mod error;
mod evictor;
mod fault;
mod frame;
mod free_frames;
mod guard;
mod home;
mod ids;
mod in_flight;
pub mod io;
mod latch;
mod logged_map;
mod memory;
#[cfg(shuttle)]
#[doc(hidden)]
pub mod model;
pub mod page;
mod page_map;
mod pool;
mod racy;
mod renumber;
pub mod replacement;
mod resolve;
mod share;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
mod swip;
pub mod sync;
mod thread;
mod trace;
mod upcalls;
mod worker;
mod writeback;

pub use allocate::PageAllocator;
pub use brief::{BriefGuard, BriefMutex, RawBrief};
pub use caller::{Entered, Inside, Process};
pub use error::{Error, Result};
pub use evictor::Background;
pub use fault::{Fault, ReadTicket};
pub use frame::{FrameHeader, FrameState};
pub use guard::{Exclusive, Moment, Optimistic, Shared};
pub use home::HomeRef;
pub use ids::{FrameId, Gsn, PageId, TreeId};
pub use latch::{Latch, Version};
pub use memory::ImageMemory;
pub use page::{PAGE_SIZE, PageImage, PageKind, PageMut, PageRef, Restart};
pub use page_map::{BITMAP_GROUP, bitmap_page, is_reserved_page};
pub use pool::{MIN_FRAMES, MIN_POOL_BYTES, Pool, PoolOptions};
pub use racy::{For, prefetch, prefetch_write};
pub use share::{Owner, Returned, Share};
pub use swip::{Swip, Target};
pub use thread::ask_for_short_turns;
pub use trace::{PageAccess, PageTrace, TraceSink, Way};
pub use upcalls::{LogBarrier, NoLog, PageOwner};
pub use worker::{Counter, CounterSums, Counters, MAX_RESERVE, Worker};
pub use writeback::Quiet;
