//! Transactions: what blocking and asynchronous ones have in common.
//!
//! A transaction reads the newest commits as of its snapshot and its own changes. It changes records
//! in place; the version before stays reachable for others in the version index ([`crate::mvcc`]).
//! The first to change a record wins: a second one gets [`wattle_buffer::Error::Conflict`].
//!
//! | file | content |
//! |---|---|
//! | `options` | isolation, durability, reads |
//! | `system` | [`TxnSystem`]: what the transactions of an engine share |
//! | `tree_handles` | handles of trees that sessions keep between transactions |
//! | `read_set` | what a serializable transaction has read |
//! | `ticket` | waiting for a commit to be durable |
//! | `lifecycle` | [`Txn`]: begin, commit, end |
//! | `view` | what a reader sees |
//! | `author`, `auto_author`, `system_author`, `undo_author` | what a change does under the latch of its leaf |
//! | `validate` | serializability |
//! | `rollback` | putting everything back |
//! | `begun` | [`Begun`]: the transaction of a session, from its begin to its end |

mod author;
mod auto_author;
mod begun;
mod lifecycle;
mod options;
mod read_set;
mod rollback;
mod savepoint;
mod system;
mod system_author;
mod ticket;
mod tree_handles;
mod undo_author;
mod validate;
mod view;

pub use options::{Durability, Isolation, Reads, TxnOptions};
pub use savepoint::Savepoint;
pub use ticket::Ticket;

pub(crate) use author::TxnAuthor;
pub(crate) use auto_author::{AutoAuthor, Done};
pub(crate) use begun::{Begun, give_to_engine};
pub(crate) use lifecycle::{BoxedTxn, Txn};
pub(crate) use read_set::ReadSet;
pub(crate) use rollback::rollback;
pub(crate) use savepoint::{check_savepoint, savepoint};
pub(crate) use system::TxnSystem;
pub(crate) use system_author::SystemAuthor;
pub(crate) use ticket::LogHandle;
pub(crate) use tree_handles::TreeHandles;
pub(crate) use undo_author::UndoAuthor;
pub(crate) use validate::validate;
pub(crate) use view::AutoView;
