//! Keys and rows of TPC-B.
//!
//! | table | key | row |
//! |---|---|---|
//! | branches, tellers, accounts | number, 8 bytes big-endian | balance (8 bytes), number of the branch (4), filler that follows from kind and number (76), seal (4) |
//! | history | run, worker (4 bytes each), sequence (8), big-endian | teller (4), branch (4), account (8), amount (8), time in microseconds since 1970 (8), filler (14), seal (4) |
//!
//! Numbers in rows are little-endian. A balance is a whole number of the smallest unit of money,
//! and has room for more than the ten digits that clause 3.2 requires.

use super::input::{ACCOUNTS, Input, TELLERS};
use crate::bench::seal;

/// Bytes of a key of all tables except the history.
pub const KEY_BYTES: usize = 8;
/// Bytes of a row of all tables except the history: 100 with the key.
pub const ROW_BYTES: usize = 92;
/// Bytes of a history row.
pub const ENTRY_BYTES: usize = 50;

/// The tables that have balances, by their positions among the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// A branch.
    Branch = 0,
    /// A teller.
    Teller = 1,
    /// An account.
    Account = 2,
}

impl RowKind {
    /// Its name in sentences.
    pub fn name(self) -> &'static str {
        match self {
            RowKind::Branch => "branch",
            RowKind::Teller => "teller",
            RowKind::Account => "account",
        }
    }

    /// The branch of row `number`.
    pub fn branch(self, number: u64) -> u64 {
        match self {
            RowKind::Branch => number,
            RowKind::Teller => number / TELLERS,
            RowKind::Account => number / ACCOUNTS,
        }
    }
}

/// A branch, a teller or an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its kind.
    pub kind: RowKind,
    /// Its number, from 0.
    pub number: u64,
    /// Its balance.
    pub balance: i64,
}

impl Row {
    /// Its bytes.
    pub fn encode(&self) -> [u8; ROW_BYTES] {
        let mut bytes = [0; ROW_BYTES];
        self.write(&mut bytes);
        bytes
    }

    /// Writes it to `bytes`.
    pub fn write(&self, bytes: &mut [u8]) {
        let branch = self.kind.branch(self.number) as u32;
        bytes[..8].copy_from_slice(&self.balance.to_le_bytes());
        bytes[8..12].copy_from_slice(&branch.to_le_bytes());
        bytes[12..ROW_BYTES - seal::BYTES].fill(self.filler());
        seal::close(&self.number.to_be_bytes(), bytes);
    }

    /// Row `number` of `kind`, if `bytes` are that row.
    pub fn decode(kind: RowKind, number: u64, bytes: &[u8]) -> Option<Row> {
        if !seal::holds(&number.to_be_bytes(), bytes, ROW_BYTES) {
            return None;
        }
        let row = Row { kind, number, balance: i64::from_le_bytes(*bytes.first_chunk()?) };
        let branch = kind.branch(number) as u32;
        let filled = bytes[12..ROW_BYTES - seal::BYTES].iter().all(|byte| *byte == row.filler());
        (bytes[8..12] == branch.to_le_bytes() && filled).then_some(row)
    }

    fn filler(&self) -> u8 {
        (self.kind as u8) << 6 | (self.number % 61) as u8
    }
}

/// Key of a history row. It is unique, because runs of a store have different numbers.
#[derive(Clone, Copy, Debug)]
pub struct HistoryKey {
    /// Number of the run of the store.
    pub run: u32,
    /// Number of the worker.
    pub worker: u32,
    /// Number of the transaction.
    pub sequence: u64,
}

impl HistoryKey {
    /// Its bytes.
    pub fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.run.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.worker.to_be_bytes());
        bytes[8..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }
}

/// A row of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryRow {
    /// The input of the transaction.
    pub input: Input,
    /// The time, microseconds since 1970.
    pub time_us: u64,
}

impl HistoryRow {
    /// Its bytes with the key `key`.
    pub fn encode(&self, key: &[u8]) -> [u8; ENTRY_BYTES] {
        let mut bytes = [b'h'; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&(self.input.teller as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.input.branch as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.input.account.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.input.delta.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.time_us.to_le_bytes());
        seal::close(key, &mut bytes);
        bytes
    }

    /// The row in `bytes`, if they are a row with the key `key`.
    pub fn decode(key: &[u8], bytes: &[u8]) -> Option<HistoryRow> {
        if !seal::holds(key, bytes, ENTRY_BYTES) {
            return None;
        }
        let word = |at: usize| Some(u64::from_le_bytes(*bytes[at..].first_chunk()?));
        let half = |at: usize| Some(u64::from(u32::from_le_bytes(*bytes[at..].first_chunk()?)));
        let (teller, branch, account) = (half(0)?, half(4)?, word(8)?);
        let input = Input { account, teller, branch, delta: word(16)? as i64 };
        Some(HistoryRow { input, time_us: word(24)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_and_belong_to_their_key_only() {
        for (kind, number) in
            [(RowKind::Branch, 7), (RowKind::Teller, 71), (RowKind::Account, 712_345)]
        {
            let row = Row { kind, number, balance: -5_000_000_000 };
            let bytes = row.encode();
            assert_eq!(Row::decode(kind, number, &bytes), Some(row));
            assert_eq!(Row::decode(kind, number + 1, &bytes), None);
            assert_eq!(Row::decode(kind, number, &bytes[1..]), None);
        }
        let teller = Row { kind: RowKind::Teller, number: 3, balance: 0 }.encode();
        assert_eq!(Row::decode(RowKind::Account, 3, &teller), None);
        let input = Input { account: 123_456, teller: 15, branch: 1, delta: -42 };
        let entry = HistoryRow { input, time_us: 1 << 50 };
        let key = HistoryKey { run: 1, worker: 2, sequence: 3 }.bytes();
        assert_eq!(HistoryRow::decode(&key, &entry.encode(&key)), Some(entry));
        assert_eq!(HistoryRow::decode(b"other", &entry.encode(&key)), None);
    }
}
