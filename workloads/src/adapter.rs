//! Wattle under the drivers: its [`crate::driver::backend::Backend`], its open store, and its two
//! kinds of clients. Nothing else in the drivers knows the engine.

pub mod backend;
pub mod blocking;
mod convert;
pub mod store;
pub mod task;
