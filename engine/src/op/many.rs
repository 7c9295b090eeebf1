//! Changes of many records in a transaction: either all of them are made, or none.

use super::{
    check::{check_key, check_value, note_point, noted},
    large::write_large_in,
    whole::whole,
    write::{ModifyRecord, RecordChange},
};
use crate::{
    catalog::OpenTree,
    limits::limit,
    session::{resolve::Resolve, step},
    tree::Tree,
    txn::{Txn, TxnAuthor},
};
use std::sync::Arc;
use wattle_btree::{Mode, Progress, Value, fits_inline};
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
    session.core().check_tree(tree)?;
    txn.check_write()?;
    for (key, value) in records {
        check_key(key.as_ref())?;
        check_value(value.as_ref())?;
        note_point(txn, tree, key.as_ref());
    }
    let mark = txn.savepoint();
    whole(session, txn, mark, async |txn: &mut Txn| {
        let mut rest = records;
        while let [(key, value), behind @ ..] = rest {
            let (key, value) = (key.as_ref(), value.as_ref());
            if !fits_inline(key.len(), value.len()) {
                write_large_in(session, txn, tree, key, value, Mode::Insert, None).await?;
                rest = behind;
                continue;
            }
            let mut run = [(key, Value::Inline(value)); RUN];
            let pairs = rest.iter().map(|(key, value)| (key.as_ref(), value.as_ref()));
            let pairs = pairs.take_while(|(key, value)| fits_inline(key.len(), value.len()));
            let mut len = 0;
            for ((key, value), place) in pairs.zip(&mut run) {
                *place = (key, Value::Inline(value));
                len += 1;
            }
            insert_run(session, txn, &tree.open, &run[..len]).await?;
            rest = &rest[len..];
            if !rest.is_empty() {
                session.next_turn().await;
            }
        }
        Ok(())
    })
    .await
}

/// Adds records that fit leaves. When it fails at one, the records before that one have been added.
async fn insert_run<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Arc<OpenTree>,
    run: &[(&[u8], Value<'_>)],
) -> Result<()> {
    let (core, cx) = (session.core(), session.cx());
    let mut author = TxnAuthor::new(&core.txns, txn, tree, run[0].0);
    let (mut done, mut outcome) = (0, Ok(()));
    while done < run.len() && outcome.is_ok() {
        let step = |restarts| {
            tree.tree.write_run_step(cx, run, Mode::Insert, &mut author, restarts, &mut done)
        };
        outcome = step::run(session, step).await.map(|_| ());
    }
    let outcome = author.finish().and(outcome);
    noted(txn, outcome)
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
    session.core().check_tree(tree)?;
    txn.check_write()?;
    for key in keys {
        check_key(key.as_ref())?;
        note_point(txn, tree, key.as_ref());
    }
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
                session.next_turn().await;
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
