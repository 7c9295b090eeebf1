//! The exported functions: the only files of this crate with `unsafe`.

pub(crate) mod engine;
pub(crate) mod pointers;
pub(crate) mod session;
pub(crate) mod txn;
