#![doc = include_str!("../README.md")]

mod alter;
mod catalog;
mod error;
mod function;
mod key;
mod rows;
mod storage;
mod table;

pub use error::is_conflict;
pub use storage::WattleStorage;
