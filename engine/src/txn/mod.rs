//! Transactions: the part that blocking and asynchronous ones share.
//!
//! A transaction reads the commits up to its snapshot and its own changes. It changes records in
//! place; earlier versions stay readable in the version index ([`crate::mvcc`]). The first
//! transaction that changes a record wins; a second one gets [`wattle_buffer::Error::Conflict`].
//!
//! | file | content |
//! |---|---|
//! | `options` | isolation, durability, reads |
//! | `system` | [`TxnSystem`], shared by the transactions of an engine |
//! | `name_times` | when names of trees were changed |
//! | `tree_changes` | trees that a transaction has created, dropped or renamed |
//! | `tree_handles` | handles of trees that sessions keep between transactions |
//! | `read_set` | the reads of a serializable transaction |
//! | `ticket` | waiting for a commit to be durable |
//! | `lifecycle` | [`Txn`]: begin, commit, end |
//! | `view` | reads of a transaction, and auto-committed reads |
//! | `author`, `auto_author`, `system_author`, `undo_author` | checks and bookkeeping of a change, under the latch of its leaf |
//! | `validate` | serializability |
//! | `rollback` | undoing all changes, or those after a savepoint |
//! | `begun` | [`Begun`]: the transaction of a session, from its begin to its end |

mod author;
mod auto_author;
mod begun;
mod lifecycle;
mod name_times;
mod options;
mod read_set;
mod rollback;
mod savepoint;
mod system;
mod system_author;
mod ticket;
mod tree_changes;
mod tree_handles;
mod undo_author;
mod validate;
mod view;

pub use options::{Durability, Isolation, Reads, TxnOptions};
pub use savepoint::Savepoint;
pub use ticket::Ticket;

pub(crate) use author::{TxnAuthor, check_record};
pub(crate) use auto_author::{AutoAuthor, AutoOutcome};
pub(crate) use begun::{Begun, give_to_engine};
pub(crate) use lifecycle::{BoxedTxn, Mark, Txn};
pub(crate) use name_times::NameTimes;
pub(crate) use read_set::ReadSet;
pub(crate) use rollback::rollback;
pub(crate) use savepoint::{check_savepoint, savepoint};
pub(crate) use system::TxnSystem;
pub(crate) use system_author::SystemAuthor;
pub(crate) use ticket::LogHandle;
pub(crate) use tree_changes::{TreeChanges, TreeOutcome};
pub(crate) use tree_handles::TreeHandles;
pub(crate) use undo_author::UndoAuthor;
pub(crate) use validate::validate;
pub(crate) use view::AutoView;
