//! Reads of a part of a value: only the chunks that contain it are read.

use super::{
    check::{check_key, note_point},
    chunks::{read_kept, read_some},
    read::{begin_reading, look_up},
};
use crate::{
    session::{
        conflict_wait::{Waits, persist},
        resolve::Resolve,
    },
    tree::Tree,
    txn::{AutoView, Begun, Txn},
};
use std::ops::{Bound, Range, RangeBounds};
use wattle_btree::{Found, LargeValue};
use wattle_buffer::Result;

/// A range of the bytes of a value, before its length is known.
#[derive(Clone, Copy)]
pub(crate) struct Bytes {
    from: u64,
    to: u64,
}

impl Bytes {
    pub(crate) fn of(range: &impl RangeBounds<u64>) -> Bytes {
        let from = match range.start_bound() {
            Bound::Included(from) => *from,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(to) => *to,
            Bound::Unbounded => u64::MAX,
        };
        Bytes { from, to }
    }

    /// Those that a value of this length has.
    fn within(self, len: u64) -> Range<u64> {
        let from = self.from.min(len);
        from..self.to.clamp(from, len)
    }
}

/// A part of a value that a read wants.
pub(crate) trait Wanted {
    /// Takes it from a value that lies in `buffer` from `start` on.
    fn take_inline(&mut self, buffer: &mut Vec<u8>, start: usize);
    /// The bytes to read of a large value of this length.
    fn of_large(&mut self, len: u64) -> Range<u64>;
}

impl Wanted for Bytes {
    fn take_inline(&mut self, buffer: &mut Vec<u8>, start: usize) {
        let Range { start: from, end } = self.within((buffer.len() - start) as u64);
        buffer.truncate(start + end as usize);
        buffer.drain(start..start + from as usize);
    }

    fn of_large(&mut self, len: u64) -> Range<u64> {
        self.within(len)
    }
}

/// The length of a value.
#[derive(Default)]
pub(crate) struct Length(pub u64);

impl Wanted for Length {
    fn take_inline(&mut self, buffer: &mut Vec<u8>, start: usize) {
        self.0 = (buffer.len() - start) as u64;
        buffer.truncate(start);
    }

    fn of_large(&mut self, len: u64) -> Range<u64> {
        self.0 = len;
        0..0
    }
}

/// Appends what is wanted of the value of `key` to `buffer`, auto-committed; gives whether the key
/// exists.
pub(crate) async fn get_part<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    wanted: &mut impl Wanted,
    buffer: &mut Vec<u8>,
) -> Result<bool> {
    session.core().check_tree(tree)?;
    check_key(key)?;
    let mut view = AutoView::new(session.system(), &tree.open, session.own());
    let start = buffer.len();
    match look_up(session, &tree.open.tree, key, &mut view, buffer).await? {
        None => return Ok(false),
        Some(Found::Inline) => {
            wanted.take_inline(buffer, start);
            return Ok(true);
        }
        Some(Found::Large(large)) => {
            let bytes = wanted.of_large(large.len);
            if read_some(session, tree, large, bytes, buffer).await? {
                return Ok(true);
            }
        }
    }
    // The value was replaced meanwhile. A snapshot keeps that of the next attempt.
    persist(session, &Waits::of(tree, key), async || {
        buffer.truncate(start);
        let txn = begin_reading(session, tree).await?;
        get_part_in(session, txn.get(), tree, key, wanted, buffer).await
    })
    .await
}

/// As [`get_part`], in a transaction.
pub(crate) async fn get_part_in<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    key: &[u8],
    wanted: &mut impl Wanted,
    buffer: &mut Vec<u8>,
) -> Result<bool> {
    session.core().check_tree(tree)?;
    txn.check()?;
    check_key(key)?;
    note_point(txn, tree, key);
    let mut view = txn.view(session.system(), &tree.open);
    let start = buffer.len();
    match look_up(session, &tree.open.tree, key, &mut view, buffer).await? {
        None => return Ok(false),
        Some(Found::Inline) => wanted.take_inline(buffer, start),
        Some(Found::Large(large)) => {
            let bytes = wanted.of_large(large.len);
            read_kept(session, txn, tree, large, bytes, buffer).await?;
        }
    }
    Ok(true)
}

/// The transaction that keeps a value.
enum Source<'s, R: Resolve> {
    /// One of the user.
    Txn(&'s Txn),
    /// One of its own.
    Own(Begun<'s, R>),
}

impl<R: Resolve> Source<'_, R> {
    fn txn(&self) -> &Txn {
        match self {
            Source::Txn(txn) => txn,
            Source::Own(begun) => begun.get(),
        }
    }
}

/// A value of one snapshot, to be read piece by piece.
pub(crate) struct KeptValue<'s, R: Resolve> {
    session: &'s R,
    source: Source<'s, R>,
    tree: &'s Tree,
    value: Kept,
}

enum Kept {
    Inline(Vec<u8>),
    Large(LargeValue),
}

impl<'s, R: Resolve> KeptValue<'s, R> {
    /// The value that a transaction sees.
    pub async fn in_txn(
        session: &'s R,
        txn: &'s Txn,
        tree: &'s Tree,
        key: &[u8],
    ) -> Result<Option<Self>> {
        Self::find(session, Source::Txn(txn), tree, key).await
    }

    /// The newest value, kept by a snapshot of its own.
    pub async fn auto(session: &'s R, tree: &'s Tree, key: &[u8]) -> Result<Option<Self>> {
        session.core().check_tree(tree)?;
        check_key(key)?;
        persist(session, &Waits::of(tree, key), async || {
            let begun = begin_reading(session, tree).await?;
            Self::find(session, Source::Own(begun), tree, key).await
        })
        .await
    }

    async fn find(
        session: &'s R,
        source: Source<'s, R>,
        tree: &'s Tree,
        key: &[u8],
    ) -> Result<Option<Self>> {
        session.core().check_tree(tree)?;
        let txn = source.txn();
        txn.check()?;
        check_key(key)?;
        note_point(txn, tree, key);
        let (mut view, mut bytes) = (txn.view(session.system(), &tree.open), Vec::new());
        let found = look_up(session, &tree.open.tree, key, &mut view, &mut bytes).await?;
        let value = match found {
            None => return Ok(None),
            Some(Found::Inline) => Kept::Inline(bytes),
            Some(Found::Large(large)) => Kept::Large(large),
        };
        Ok(Some(KeptValue { session, source, tree, value }))
    }

    pub fn len(&self) -> u64 {
        match &self.value {
            Kept::Inline(bytes) => bytes.len() as u64,
            Kept::Large(large) => large.len,
        }
    }

    /// Appends some bytes of it, within its length, to `buffer`.
    pub async fn read(&self, bytes: Range<u64>, buffer: &mut Vec<u8>) -> Result<()> {
        match &self.value {
            Kept::Inline(value) => {
                buffer.extend_from_slice(&value[bytes.start as usize..bytes.end as usize]);
                Ok(())
            }
            Kept::Large(large) => {
                let txn = self.source.txn();
                read_kept(self.session, txn, self.tree, *large, bytes, buffer).await
            }
        }
    }
}
