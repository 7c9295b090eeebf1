#![doc = include_str!("../README.md")]

mod error;
mod ids;
pub mod io;
pub mod page;
mod racy;
pub mod sync;

pub use error::{Error, Result};
pub use ids::{FrameId, Gsn, PageId, TreeId};
pub use page::{PAGE_SIZE, PageImage, PageKind, PageMut, PageRef, Restart};
