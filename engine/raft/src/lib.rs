#![doc = include_str!("../README.md")]
// The error is openraft's.
#![allow(clippy::result_large_err)]

mod codec;
mod log;
mod machine;
mod remove;

pub use log::LogStore;
pub use machine::{Apply, StateMachine};
