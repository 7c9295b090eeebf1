//! The answers of the version index to readers.

/// The version of a record that a reader sees. `ts` is the commit time of the change that made it;
/// 0 if the change is the reader's own, or older than every open snapshot and durable, so that its
/// time is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visible {
    /// The one in the page.
    Page {
        /// Commit time or 0.
        ts: u64,
    },
    /// An older one, which is in the reader's buffer.
    Value {
        /// Its special flag.
        special: bool,
        /// Commit time or 0.
        ts: u64,
    },
    /// None: there is no record.
    Absent {
        /// Commit time or 0.
        ts: u64,
    },
    /// It depends on a transaction that is committing. Look again soon, without latches.
    Wait,
}

/// Whether other transactions changed a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "the answers read as the question is put")]
pub(crate) enum Changed {
    /// No.
    Unchanged,
    /// Yes.
    Changed,
    /// A transaction that is committing may have. Ask again soon.
    Undecided,
}
