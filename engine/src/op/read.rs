//! Look-ups of one record and of many, auto-committed and in a transaction.

use super::{
    check::{check_key, note_point},
    chunks::{read_kept, read_some},
};
use crate::{
    session::{
        conflict_wait::{Waits, persist},
        resolve::{Resolve, now},
        step::{run, run_again},
    },
    tree::Tree,
    txn::{AutoView, Begun, Isolation, Txn, TxnOptions},
};
use wattle_btree::{self as btree, Found, LargeValue, MULTI_GET, Stop, Tree as BTree, View};
use wattle_buffer::{Error, Result};

/// Looks `key` up in a tree, and appends what its leaf has of its value to `value`.
pub(super) async fn look_up<R: Resolve, V: View>(
    session: &R,
    tree: &btree::Tree,
    key: &[u8],
    view: &mut V,
    value: &mut Vec<u8>,
) -> Result<Option<Found>> {
    let start = value.len();
    run(session, |_| {
        value.truncate(start);
        tree.get_step(key, view, value)
    })
    .await
}

/// The rest of a look-up, after its first attempt.
enum Left {
    /// It stopped.
    Stop(Stop),
    /// It was refused before it looked.
    Refused(Error),
    /// The bytes of this value are to be read.
    Large(LargeValue),
}

impl From<Stop> for Left {
    #[inline(always)]
    fn from(stop: Stop) -> Left {
        Left::Stop(stop)
    }
}

impl From<Error> for Left {
    fn from(error: Error) -> Left {
        Left::Refused(error)
    }
}

/// The first attempt, nearly always the only one; gives whether the key exists. It is not `async`:
/// a future that several functions await is a function of its own, whose call takes 50
/// instructions.
#[inline(always)]
fn once<R: Resolve, V: View>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    mut view: V,
    value: &mut Vec<u8>,
) -> Result<bool, Left> {
    let found = tree.open.tree.get_step(key, &mut view, value)?;
    session.cx().worker.counters().hits.add(1);
    match found {
        None => Ok(false),
        Some(Found::Inline) => Ok(true),
        Some(Found::Large(large)) => Err(Left::Large(large)),
    }
}

/// The rest of a look-up, but for the bytes of a large value.
async fn found_at_last<R: Resolve, V: View>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    mut view: V,
    value: &mut Vec<u8>,
    left: Left,
) -> Result<Option<Found>> {
    let stop = match left {
        Left::Stop(stop) => stop,
        Left::Refused(error) => return Err(error),
        Left::Large(large) => return Ok(Some(Found::Large(large))),
    };
    let start = value.len();
    run_again(session, stop, |_| {
        value.truncate(start);
        tree.open.tree.get_step(key, &mut view, value)
    })
    .await
}

/// Ends a look-up of a blocking session that its first attempt has not ended.
#[cold]
#[inline(never)]
fn ended(rest: impl Future<Output = Result<bool>>) -> Result<bool> {
    now(rest)
}

/// Appends the value of `key` to `value`, auto-committed; gives whether the key exists.
#[inline(always)]
pub(crate) async fn get<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    value: &mut Vec<u8>,
) -> Result<bool> {
    match get_once(session, tree, key, value) {
        Ok(found) => Ok(found),
        // Boxed: its state would take room in every look-up.
        Err(left) => Box::pin(get_on(session, tree, key, value, left)).await,
    }
}

/// As [`get`], in a blocking session, nearly always without a future.
pub(crate) fn get_now<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    value: &mut Vec<u8>,
) -> Result<bool> {
    match get_once(session, tree, key, value) {
        Ok(found) => Ok(found),
        Err(left) => ended(get_on(session, tree, key, value, left)),
    }
}

/// The first attempt of [`get`].
#[inline(always)]
fn get_once<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    value: &mut Vec<u8>,
) -> Result<bool, Left> {
    session.core().check_tree(tree)?;
    check_key(key)?;
    let view = AutoView::new(session.system(), &tree.open, session.own());
    once(session, tree, key, view, value)
}

/// The rest of [`get`], after its first attempt.
#[cold]
async fn get_on<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    value: &mut Vec<u8>,
    left: Left,
) -> Result<bool> {
    let view = AutoView::new(session.system(), &tree.open, session.own());
    match found_at_last(session, tree, key, view, value, left).await? {
        None => Ok(false),
        Some(Found::Inline) => Ok(true),
        Some(Found::Large(large)) => get_large(session, tree, key, large, value).await,
    }
}

/// The rest of [`get`] of a large value.
async fn get_large<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    large: LargeValue,
    value: &mut Vec<u8>,
) -> Result<bool> {
    let start = value.len();
    if read_some(session, tree, large, 0..large.len, value).await? {
        return Ok(true);
    }
    // It was replaced meanwhile. A snapshot keeps the value of the next attempt.
    persist(session, &Waits::of(tree, key), async || {
        value.truncate(start);
        let txn = begin_reading(session, tree).await?;
        get_in(session, txn.get(), tree, key, value).await
    })
    .await
}

/// A transaction that only reads.
pub(crate) const READ: TxnOptions =
    TxnOptions { isolation: Isolation::Snapshot, read_only: true, durability: None };

/// Begins a read-only transaction for an auto-committed read of a tree. After the commit of an
/// owner of the tree it waits until that commit is durable: there are no versions from before it.
pub(crate) async fn begin_reading<'s, R: Resolve>(
    session: &'s R,
    tree: &Tree,
) -> Result<Begun<'s, R>> {
    session.core().check_tree(tree)?;
    let (closed, mut log_since) = (&tree.open.closed, None);
    loop {
        let txn = Begun::new(session, READ)?;
        // While the tree has an owner, the read reports it.
        if closed.is_closed_to(0) || closed.hidden_since(txn.get().snapshot).is_none() {
            return Ok(txn);
        }
        drop(txn);
        session.wait_log(&mut log_since).await?;
    }
}

/// Reads the value of `key` to the end of `value`, in a transaction; gives whether there is one.
#[inline]
pub(crate) async fn get_in<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    key: &[u8],
    value: &mut Vec<u8>,
) -> Result<bool> {
    match get_in_once(session, txn, tree, key, value) {
        Ok(found) => Ok(found),
        Err(left) => Box::pin(get_in_on(session, txn, tree, key, value, left)).await,
    }
}

/// As [`get_in`], in a blocking session, nearly always without a future.
pub(crate) fn get_in_now<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    key: &[u8],
    value: &mut Vec<u8>,
) -> Result<bool> {
    match get_in_once(session, txn, tree, key, value) {
        Ok(found) => Ok(found),
        Err(left) => ended(get_in_on(session, txn, tree, key, value, left)),
    }
}

/// The first attempt of [`get_in`].
#[inline(always)]
fn get_in_once<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    key: &[u8],
    value: &mut Vec<u8>,
) -> Result<bool, Left> {
    session.core().check_tree(tree)?;
    txn.check()?;
    check_key(key)?;
    note_point(txn, tree, key);
    once(session, tree, key, txn.view(session.system(), &tree.open), value)
}

/// The rest of [`get_in`], after its first attempt.
#[cold]
async fn get_in_on<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    key: &[u8],
    value: &mut Vec<u8>,
    left: Left,
) -> Result<bool> {
    let view = txn.view(session.system(), &tree.open);
    match found_at_last(session, tree, key, view, value, left).await? {
        None => Ok(false),
        Some(Found::Inline) => Ok(true),
        Some(Found::Large(large)) => {
            read_kept(session, txn, tree, large, 0..large.len, value).await?;
            Ok(true)
        }
    }
}

/// [`get_in`] in the middle of an operation.
pub(super) async fn value_in<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    key: &[u8],
    value: &mut Vec<u8>,
) -> Result<bool> {
    match once(session, tree, key, txn.view(session.system(), &tree.open), value) {
        Ok(found) => Ok(found),
        Err(left) => Box::pin(get_in_on(session, txn, tree, key, value, left)).await,
    }
}

/// Looks many keys up, interleaved, each auto-committed.
pub(crate) async fn multi_get<R: Resolve, K: AsRef<[u8]>>(
    session: &R,
    tree: &Tree,
    keys: &[K],
    buffer: &mut Vec<u8>,
    report: impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    session.core().check_tree(tree)?;
    let view = AutoView::new(session.system(), &tree.open, session.own());
    multi_get_by(session, tree, keys, view, buffer, report, async |key, buffer| {
        get(session, tree, key, buffer).await
    })
    .await
}

/// Looks many keys up, interleaved, in a transaction.
pub(crate) async fn multi_get_in<R: Resolve, K: AsRef<[u8]>>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    keys: &[K],
    buffer: &mut Vec<u8>,
    report: impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    session.core().check_tree(tree)?;
    txn.check()?;
    keys.iter().for_each(|key| note_point(txn, tree, key.as_ref()));
    let view = txn.view(session.system(), &tree.open);
    multi_get_by(session, tree, keys, view, buffer, report, async |key, buffer| {
        get_in(session, txn, tree, key, buffer).await
    })
    .await
}

/// Prefetches records, batch by batch.
pub(crate) async fn prefetch<R: Resolve, K: AsRef<[u8]>>(
    session: &R,
    records: &[(&Tree, K)],
) -> Result<()> {
    for (tree, key) in records {
        session.core().check_tree(tree)?;
        check_key(key.as_ref())?;
    }
    for records in records.chunks(MULTI_GET) {
        let mut wanted = [(&records[0].0.open.tree, &[][..]); MULTI_GET];
        for (wanted, (tree, key)) in wanted.iter_mut().zip(records) {
            *wanted = (&tree.open.tree, key.as_ref());
        }
        let (wanted, mut done) = (&wanted[..records.len()], 0);
        run(session, |_| BTree::prefetch_step(wanted, &mut done)).await?;
        session.next_turn(records.len()).await;
    }
    Ok(())
}

/// Prefetches the leaves of some keys of a tree, at most [`MULTI_GET`].
pub(super) async fn prefetch_keys<'k, R: Resolve>(
    session: &R,
    tree: &Tree,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<()> {
    let (mut wanted, mut len) = ([(&tree.open.tree, &[][..]); MULTI_GET], 0);
    for (place, key) in wanted.iter_mut().zip(keys) {
        place.1 = key;
        len += 1;
    }
    let mut done = 0;
    run(session, |_| BTree::prefetch_step(&wanted[..len], &mut done)).await
}

async fn multi_get_by<R: Resolve, K: AsRef<[u8]>, V: View>(
    session: &R,
    tree: &Tree,
    keys: &[K],
    mut view: V,
    buffer: &mut Vec<u8>,
    mut report: impl FnMut(usize, Option<&[u8]>),
    mut one: impl AsyncFnMut(&[u8], &mut Vec<u8>) -> Result<bool>,
) -> Result<()> {
    for key in keys {
        check_key(key.as_ref())?;
    }
    for (batch, keys) in keys.chunks(MULTI_GET).enumerate() {
        let (mut done, mut large) = (0, Vec::new());
        run(session, |_| {
            let report = &mut |i, found: Option<(Found, &[u8])>| match found {
                Some((Found::Large(_), _)) => large.push(i),
                found => report(batch * MULTI_GET + i, found.map(|(_, bytes)| bytes)),
            };
            tree.open.tree.multi_get_step(keys, &mut view, &mut done, buffer, report)
        })
        .await?;
        for i in large {
            buffer.clear();
            let found = one(keys[i].as_ref(), buffer).await?;
            report(batch * MULTI_GET + i, found.then_some(buffer.as_slice()));
        }
        session.next_turn(keys.len()).await;
    }
    Ok(())
}
