//! Changes of many records in a transaction: either all of them are made, or none.
//!
//! Puts and removals first bring the leaves of the next [`MULTI_GET`] records into memory, with
//! many reads at once, and then change one record after the other. An insert does not: keys that
//! are added together mostly lie together.

use super::{
    check::{check_changes_in, check_key, check_value, note_point, noted},
    large::{discard_in, write_large_in},
    read::prefetch_keys,
    whole::whole,
    write::{ModifyRecord, RecordChange, remove_checked_in},
};
use crate::{
    catalog::OpenTree,
    limits::limit,
    session::{
        conflict_wait::{Waits, persist},
        resolve::Resolve,
        step,
    },
    tree::Tree,
    txn::{Begun, Ticket, Txn, TxnAuthor, TxnOptions},
};
use std::sync::Arc;
use wattle_btree::{MULTI_GET, Mode, Progress, Value, fits_inline};
use wattle_buffer::Result;

/// Records that are changed under one latch, at most.
const RUN: usize = limit(16, 4);

/// Adds several records in a transaction: all of them, or none.
pub(crate) async fn insert_many<R: Resolve, K: AsRef<[u8]>, V: AsRef<[u8]>>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    records: &[(K, V)],
) -> Result<()> {
    write_many(session, txn, tree, records, Mode::Insert).await
}

/// Sets the values of several keys in a transaction: of all of them, or of none.
pub(crate) async fn put_many<R: Resolve, K: AsRef<[u8]>, V: AsRef<[u8]>>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    records: &[(K, V)],
) -> Result<()> {
    write_many(session, txn, tree, records, Mode::Put).await
}

/// Removes several records in a transaction: all that exist, or none. Gives how many existed.
pub(crate) async fn remove_many<R: Resolve, K: AsRef<[u8]>>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    keys: &[K],
) -> Result<usize> {
    check_changes_in(session, txn, tree, keys)?;
    let mark = txn.savepoint();
    whole(session, txn, mark, async |txn: &mut Txn| {
        let mut removed = 0;
        for batch in keys.chunks(MULTI_GET) {
            prefetch_keys(session, tree, batch.iter().map(AsRef::as_ref)).await?;
            for key in batch {
                removed += usize::from(remove_checked_in(session, txn, tree, key.as_ref()).await?);
            }
            session.next_turn(batch.len()).await;
        }
        Ok(removed)
    })
    .await
}

/// [`put_many`] as a transaction of its own.
pub(crate) async fn put_many_auto<R: Resolve, K: AsRef<[u8]>, V: AsRef<[u8]>>(
    session: &R,
    tree: &Tree,
    records: &[(K, V)],
) -> Result<Ticket> {
    let keys = || records.iter().map(|(key, _)| key.as_ref());
    let put = async |txn: &mut Txn| put_many(session, txn, tree, records).await;
    many_auto(session, tree, keys, put).await.map(|((), ticket)| ticket)
}

/// [`remove_many`] as a transaction of its own.
pub(crate) async fn remove_many_auto<R: Resolve, K: AsRef<[u8]>>(
    session: &R,
    tree: &Tree,
    keys: &[K],
) -> Result<(usize, Ticket)> {
    let remove = async |txn: &mut Txn| remove_many(session, txn, tree, keys).await;
    many_auto(session, tree, || keys.iter().map(AsRef::as_ref), remove).await
}

/// Runs a change of the records with these keys in a transaction of its own, again while it meets
/// conflicts.
async fn many_auto<'k, R: Resolve, T, I: Iterator<Item = &'k [u8]>>(
    session: &R,
    tree: &'k Tree,
    keys: impl Fn() -> I,
    mut change: impl AsyncFnMut(&mut Txn) -> Result<T>,
) -> Result<(T, Ticket)> {
    session.core().admit(session, tree).await?;
    let waits = Waits::of(tree, &[]);
    persist(session, &waits, async || {
        let mut txn = Begun::new(session, TxnOptions::default())?;
        match change(txn.txn()).await {
            Ok(changed) => Ok((changed, txn.commit().await?)),
            Err(error) => {
                txn.abort().await?;
                waits.turn_to_held(session.system(), keys());
                Err(error)
            }
        }
    })
    .await
}

/// Writes several records in a transaction: all of them, or none.
async fn write_many<R: Resolve, K: AsRef<[u8]>, V: AsRef<[u8]>>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    records: &[(K, V)],
    mode: Mode,
) -> Result<()> {
    session.core().check_tree(tree)?;
    txn.check_write()?;
    for (key, value) in records {
        check_key(key.as_ref())?;
        check_value(value.as_ref())?;
        note_point(txn, tree, key.as_ref());
    }
    let mark = txn.savepoint();
    whole(session, txn, mark, async |txn: &mut Txn| {
        // The leaves of so many records of the rest are prefetched.
        let (mut rest, mut prefetched) =
            (records, if mode == Mode::Insert { usize::MAX } else { 0 });
        while let [(key, value), behind @ ..] = rest {
            if prefetched == 0 {
                prefetch_keys(session, tree, rest.iter().map(|(key, _)| key.as_ref())).await?;
                prefetched = MULTI_GET;
            }
            let (key, value) = (key.as_ref(), value.as_ref());
            if !fits_inline(key.len(), value.len()) {
                write_large_in(session, txn, tree, key, value, mode, None).await?;
                (rest, prefetched) = (behind, prefetched - 1);
                session.next_turn(1).await;
                continue;
            }
            let mut run = [(key, Value::Inline(value)); RUN];
            let pairs = rest.iter().take(prefetched);
            let pairs = pairs.map(|(key, value)| (key.as_ref(), value.as_ref()));
            let pairs = pairs.take_while(|(key, value)| fits_inline(key.len(), value.len()));
            let mut len = 0;
            for ((key, value), place) in pairs.zip(&mut run) {
                *place = (key, Value::Inline(value));
                len += 1;
            }
            write_run(session, txn, tree, &run[..len], mode).await?;
            (rest, prefetched) = (&rest[len..], prefetched - len);
            if !rest.is_empty() {
                session.next_turn(len).await;
            }
        }
        Ok(())
    })
    .await
}

/// Writes records that fit leaves. When it fails at one, the records before that one have been
/// written.
pub(super) async fn write_run<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    run: &[(&[u8], Value<'_>)],
    mode: Mode,
) -> Result<()> {
    let (core, cx, open) = (session.core(), session.cx(), &tree.open);
    let mut done = 0;
    while done < run.len() {
        let mut author = TxnAuthor::new(&core.txns, txn, open, run[done].0);
        let mut outcome = Ok(None);
        // A write over a large value ends its step: that value is discarded without an author.
        while done < run.len() && matches!(outcome, Ok(None)) {
            let step = |restarts| {
                open.tree.write_run_step(cx, run, mode, &mut author, restarts, &mut done)
            };
            outcome = step::run(session, step).await.map(|written| written.orphan);
        }
        let outcome = author.finish().and(outcome);
        let orphan = noted(txn, outcome)?;
        if orphan.is_some() {
            discard_in(session, txn, tree, orphan).await?;
        }
    }
    Ok(())
}

/// Changes the values of several keys in place, in a transaction: of all keys that exist, or none.
/// Gives how many exist.
pub(crate) async fn modify_many<R: Resolve, K: AsRef<[u8]>>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    keys: &[K],
    buffer: &mut Vec<u8>,
    change: &mut dyn FnMut(usize, &mut [u8]),
) -> Result<usize> {
    check_changes_in(session, txn, tree, keys)?;
    let mark = txn.savepoint();
    whole(session, txn, mark, async |txn: &mut Txn| {
        let (mut done, mut found) = (0, 0);
        while let rest @ [key, ..] = &keys[done..] {
            let mut run = [key.as_ref(); RUN];
            run.iter_mut().zip(rest).for_each(|(place, key)| *place = key.as_ref());
            let (run, first) = (&run[..rest.len().min(RUN)], done);
            let mut change_one = |at: usize, value: &mut [u8]| change(first + at, value);
            let all = modify_run(session, txn, &tree.open, run, buffer, &mut change_one);
            let (progress, large) = all.await?;
            done += progress.done;
            found += progress.found;
            if large {
                let (key, at) = (run[progress.done], done);
                let mut change = |_: usize, value: &mut [u8]| change(at, value);
                let one = ModifyRecord { tree, key, buffer, change: &mut change };
                let existed = one.finish(session, txn, Ok(())).await?;
                done += 1;
                found += usize::from(existed);
            }
            if done < keys.len() {
                session.next_turn(done - first).await;
            }
        }
        Ok(found)
    })
    .await
}

/// Changes values in place, up to the first large one; gives how many keys it has passed, and
/// whether it met a large value. When it fails at one, the values before that one have been
/// changed.
async fn modify_run<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Arc<OpenTree>,
    run: &[&[u8]],
    buffer: &mut Vec<u8>,
    change: &mut dyn FnMut(usize, &mut [u8]),
) -> Result<(Progress, bool)> {
    let (core, cx) = (session.core(), session.cx());
    let mut author = TxnAuthor::new(&core.txns, txn, tree, run[0]);
    let mut progress = Progress::default();
    let mut outcome = Ok(false);
    while progress.done < run.len() && matches!(outcome, Ok(false)) {
        let step = |restarts| {
            let (author, progress) = (&mut author, &mut progress);
            tree.tree.modify_run_step(cx, run, buffer, change, author, restarts, progress)
        };
        outcome = step::run(session, step).await.map(|all| all.is_err());
    }
    let outcome = author.finish().and(outcome);
    noted(txn, outcome).map(|large| (progress, large))
}
