//! Transactions: what blocking and asynchronous ones have in common.
//!
//! A transaction reads the newest commits as of its snapshot and its own changes. It changes records
//! in place; the version before stays reachable for others in the version index ([`crate::mvcc`]).
//! The first to change a record wins: a second one gets [`wattle_buffer::Error::Conflict`].
//!
//! | file | what |
//! |---|---|
//! | `options` | isolation, durability, reads |
//! | `core` | [`Txn`]: begin, commit, end |
//! | `author` | what a change does under the latch of its leaf |
//! | `view` | what a reader sees |
//! | `rollback` | putting everything back |
//! | `validate` | serializability |
//! | `ticket` | waiting for a commit to be durable |

mod author;
mod core;
mod handles;
mod options;
mod rollback;
mod ticket;
mod validate;
mod view;

pub use options::{Durability, Isolation, Reads, TxnOptions};
pub use ticket::Ticket;

pub(crate) use ticket::LogHandle;

pub(crate) use self::core::{BoxedTxn, Garbage, Txn};
pub(crate) use author::{AutoAuthor, Done, SystemOf, TxnAuthor};
pub(crate) use handles::Registry;
pub(crate) use rollback::{UndoAuthor, rollback};
pub(crate) use validate::{ReadSet, validate};
pub(crate) use view::{AutoView, too_old};
