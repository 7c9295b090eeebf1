//! How a transaction behaves: isolation, durability, and what reads see.

use wattle_wal::Urgency;

/// What a transaction must not see of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Snapshot isolation: everything is read as of one moment, and of two transactions that change
    /// the same record one fails. Two that read what the other changes may both commit (write skew).
    #[default]
    Snapshot,
    /// As if transactions ran one after the other. At commit everything that was read, ranges
    /// included, is looked at again and must be unchanged ("High-Performance Concurrency Control
    /// Mechanisms for Main-Memory Databases", Larson et al., VLDB 2011). Holds among transactions
    /// that all use it.
    Serializable,
}

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// That its records are durable; the log is flushed at once, together with whatever others
    /// committed by then.
    #[default]
    Sync,
    /// The same, but the flush begins a moment later, so that more commits share it.
    Group,
    /// Nothing. The log is written in the background; a crash takes the last moments, never half of
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

/// What auto-committed reads and read-only transactions see of the commits of other sessions. (Other transactions
/// read the newest commits in any case.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reads {
    /// Only what is durable: a read waits for nothing and shows nothing that a crash could take back. A commit
    /// with [`Durability::None`], or whose ticket has not been waited for, becomes visible to other sessions
    /// when its records are flushed, 100 ms later at most; its own session sees it at once. Versions of records
    /// are kept until the change that replaced them is durable.
    Durable,
    /// Every commit that has returned, from every session, whatever its durability. A crash may take back what a
    /// read has shown, if it came with [`Durability::None`] or before its ticket was waited for. A read-only
    /// transaction whose caller must rely on what it has read calls [`crate::Transaction::commit`], which waits
    /// until that is durable; and a commit that depends on such a change is durable only together with it.
    #[default]
    Newest,
}

/// How to begin a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TxnOptions {
    /// Default: snapshot isolation.
    pub isolation: Isolation,
    /// Changes are refused. With [`Reads::Durable`] reads are of the newest commit that is durable, so that
    /// the commit waits for nothing; otherwise, as in other transactions that change nothing, they are of the
    /// newest commit, and the commit waits until the pages that were read are durable.
    pub read_only: bool,
    /// Instead of the durability of the engine.
    pub durability: Option<Durability>,
}
