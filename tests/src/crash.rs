//! Crash images: a workload runs on a simulated device, and before and after what it does to the
//! device pictures are taken of what a power cut would leave at that moment. Each is opened and
//! compared with what had been acknowledged.
//!
//! - [`device`] takes the images.
//! - [`history`] knows what every state between two acknowledgements holds.
//! - [`driver`] makes the events, one after the other.
//! - [`check`] opens an image, compares, verifies, goes on with it, and looks at the images of
//!   that.
//! - [`backup`] copies a store meanwhile.
//! - [`crowd`] is a second workload, of several threads at once.

pub mod backup;
pub mod check;
pub mod crowd;
pub mod device;
pub mod driver;
pub mod history;
