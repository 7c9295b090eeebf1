#![doc = include_str!("../README.md")]

mod codec;
mod log;
mod machine;

pub use log::LogStore;
pub use machine::{Apply, StateMachine};
