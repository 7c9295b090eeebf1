//! The operations of sessions, written once for blocking and asynchronous ones. Sessions differ
//! only in how they wait ([`crate::session::resolve::Resolve`]): a blocking session blocks its
//! thread, so its futures are ready at the first poll; the futures of an asynchronous session are
//! pending meanwhile.
//!
//! | file | content | uses |
//! |---|---|---|
//! | `check` | checks of keys, values and transactions; notes reads of serializable ones | |
//! | `record` | one record of a leaf, changed in a transaction | `check` |
//! | `whole` | operations of several steps, made as a whole or not at all; savepoints | |
//! | `chunks` | the bytes of large values | |
//! | `read` | look-ups | `check`, `chunks` |
//! | `part` | parts of values | `read` |
//! | `write_chunks` | the bytes of a large value, through the log | |
//! | `direct` | the bytes of a large value, past the log | `write_chunks` |
//! | `large` | large values | `direct`, `read`, `record`, `whole` |
//! | `write` | changes of one record in a transaction | all above |
//! | `many` | changes of many records, in a transaction or as one | `write` |
//! | `auto` | auto-committed changes of one record | `write` |
//! | `scan` | the next entry of a range | `read` |
//! | `range`, `visit` | ranges, read entry by entry or by a closure | `scan` |
//! | `update` | changes that depend on the value of their record | `auto` |
//! | `delete` | removal of a range | `many`, `scan` |
//! | `extent` | estimates of how much a range has | `range` |
//! | `trees` | trees by name, created, dropped and renamed in a transaction | `check` |
//! | `ends` | the first and the last record, read or taken out | `range`, `write` |

pub(crate) mod auto;
mod check;
mod chunks;
pub(crate) mod delete;
mod direct;
pub(crate) mod ends;
pub(crate) mod extent;
mod large;
pub(crate) mod many;
pub(crate) mod part;
pub(crate) mod range;
pub(crate) mod read;
mod record;
pub(crate) mod scan;
pub(crate) mod trees;
pub(crate) mod update;
pub(crate) mod visit;
pub(crate) mod whole;
pub(crate) mod write;
mod write_chunks;
