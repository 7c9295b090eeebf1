//! What the version index answers to readers.

/// What a reader sees of a record. `ts` is the commit time of the change that made it so, 0 when
/// that is no longer known (before every snapshot that is open, and durable) or the reader's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// What the page holds.
    Page {
        /// Commit time or 0.
        ts: u64,
    },
    /// The value that was appended to the reader's buffer.
    Value {
        /// The flag given with the value.
        special: bool,
        /// Commit time or 0.
        ts: u64,
    },
    /// No record.
    Absent {
        /// Commit time or 0.
        ts: u64,
    },
    /// A transaction that is just committing decides. Look again in a moment, without latches.
    Wait,
}

/// Whether others changed a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "the answers read as the question is put")]
pub(crate) enum Changed {
    /// No.
    Unchanged,
    /// Yes.
    Changed,
    /// A transaction that is just committing may have. Ask again in a moment.
    Undecided,
}
