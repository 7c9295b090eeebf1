//! Options of transactions: isolation, durability, and which commits reads see.

use wattle_wal::Urgency;

/// How transactions are isolated from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Snapshot isolation: a transaction reads from one consistent snapshot, and of two
    /// transactions that change the same record one fails. Two transactions that each read a record
    /// which the other one changes may both commit (write skew).
    #[default]
    Snapshot,
    /// Transactions behave as if they ran one after the other. At commit all reads, ranges
    /// included, are repeated and must be unchanged ("High-Performance Concurrency Control
    /// Mechanisms for Main-Memory Databases", Larson et al., VLDB 2011). Holds among transactions
    /// that all use it.
    Serializable,
}

/// The durability that a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Its records are durable. The log is flushed at once, together with all commits up to then.
    #[default]
    Sync,
    /// As `Sync`, but the flush begins a little later, so that more commits share it.
    Group,
    /// Nothing. The log is written in the background; a crash loses the last commits, never half of
    /// a transaction.
    None,
}

impl Durability {
    /// How soon a commit wants the log to be flushed.
    pub(crate) fn urgency(self) -> Option<Urgency> {
        match self {
            Durability::Sync => Some(Urgency::Now),
            Durability::Group => Some(Urgency::Soon),
            Durability::None => None,
        }
    }
}

/// Which commits of other sessions auto-committed reads and read-only transactions see. Other
/// transactions always read the newest commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reads {
    /// Only durable commits: a read waits for nothing and shows nothing that a crash could take
    /// back. A commit with [`Durability::None`], or whose ticket has not been waited for, becomes
    /// visible to other sessions when its records are flushed, 100 ms later at most; its own
    /// session sees it at once. Versions of records are kept until the change that replaced them is
    /// durable.
    Durable,
    /// Every commit that has returned, from every session, with any durability. A crash may take
    /// back a change that a read has shown, if its commit had [`Durability::None`] or its ticket
    /// was not waited for. A caller that must rely on the reads of a read-only transaction calls
    /// [`crate::Transaction::commit`], which waits until they are durable. A commit that depends on
    /// such a change is durable only together with it.
    #[default]
    Newest,
}

/// How to begin a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TxnOptions {
    /// Default: snapshot isolation.
    pub isolation: Isolation,
    /// Changes are refused. With [`Reads::Durable`] reads are of the newest commit that is durable,
    /// so that the commit waits for nothing; otherwise, as in other transactions that change
    /// nothing, they are of the newest commit, and the commit waits until the pages that were read
    /// are durable.
    pub read_only: bool,
    /// Instead of the durability of the engine.
    pub durability: Option<Durability>,
}
