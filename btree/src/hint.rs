//! The version hint of a page: the time from which on all of its records are visible in their
//! newest version.
//!
//! | bits 63, 62 | rest | meaning |
//! |---|---|---|
//! | 0 0 | time | all changes are committed; the newest committed at this time |
//! | 0 1 | transaction | the newest change is by this transaction, which may still be undecided; all other changes are committed, at earlier times than it will get |
//! | 1 0 | transaction | there may be changes by any transaction up to this one, committed or not |
//!
//! The hint is written under the exclusive latch of the page. A hint of the second or third kind is
//! also replaced without the latch, by compare-and-swap, when its transaction, or all its
//! transactions, have ended. This is safe because the word itself says which changes it is about.

const KIND: u64 = 0b11 << 62;
const TXN: u64 = 0b01 << 62;
const UNKNOWN: u64 = 0b10 << 62;

/// A version hint, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// All changes are committed, at this time at the latest.
    Committed(u64),
    /// The newest change is by this transaction.
    Txn(u64),
    /// There may be changes by any transaction up to this one.
    Unknown(u64),
}

const _: () = assert!(TXN & UNKNOWN == 0 && TXN | UNKNOWN == KIND);

impl Hint {
    /// Decodes a word.
    #[inline(always)]
    pub fn of(word: u64) -> Hint {
        match word & KIND {
            0 => Hint::Committed(word),
            TXN => Hint::Txn(word & !KIND),
            _ => Hint::Unknown(word & !KIND),
        }
    }

    /// The word.
    #[inline(always)]
    pub fn word(self) -> u64 {
        let (Hint::Committed(number) | Hint::Txn(number) | Hint::Unknown(number)) = self;
        debug_assert!(number & KIND == 0, "the number {number:#x} is too large for a hint");
        match self {
            Hint::Committed(time) => time,
            Hint::Txn(id) => id | TXN,
            Hint::Unknown(time) => time | UNKNOWN,
        }
    }

    /// The hint for a page that takes over records of two pages. `draw` gives a number larger than
    /// those of all transactions so far and of all hints: a reader that is about to replace the
    /// earlier hint, because its writers have ended, must not take this one for it. The records
    /// that were taken over may be of a commit after the time that the reader has looked up.
    pub fn joined(a: u64, b: u64, draw: impl FnOnce() -> u64) -> u64 {
        match (Hint::of(a), Hint::of(b)) {
            (Hint::Committed(a), Hint::Committed(b)) => a.max(b),
            _ => Hint::Unknown(draw()).word(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_survive_a_round_trip() {
        for hint in [Hint::Committed(0), Hint::Committed(7), Hint::Txn(1), Hint::Unknown(9)] {
            assert_eq!(Hint::of(hint.word()), hint);
        }
    }

    #[test]
    fn a_page_that_takes_over_uncommitted_records_is_of_unknown_times() {
        let (one, two) = (Hint::Committed(1).word(), Hint::Committed(2).word());
        assert_eq!(Hint::of(Hint::joined(one, two, || 5)), Hint::Committed(2));
        assert_eq!(Hint::of(Hint::joined(one, Hint::Txn(3).word(), || 5)), Hint::Unknown(5));
        let unknown = Hint::Unknown(5).word();
        assert_ne!(Hint::joined(one, unknown, || 6), unknown, "a reader may be replacing it");
    }
}
