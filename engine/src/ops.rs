//! The operations of sessions, written once for both kinds. What differs is how a session waits
//! ([`Resolve`]): a blocking session blocks the thread, so that its futures are ready at the first
//! poll; an asynchronous one awaits.
//!
//! Each operation comes in two forms: as part of a transaction, and as a transaction of its own
//! (*auto*). An auto operation on one leaf commits under the latch of the leaf and is one record of
//! the log; one that needs more steps runs in a transaction of its own.
//!
//! A value that does not fit a leaf is written as chunks under a new id, then the record with the
//! descriptor follows. The chunks of the value before are listed in the catalog, by the same
//! transaction, and cleared away when no snapshot can see them.

use crate::{
    catalog::{LargeStore, OpenTree},
    garbage::Garbage,
    limits::limit,
    mvcc::Savepoint,
    session::{
        conflict_wait::{Waits, persist},
        resolve::Resolve,
        step::{run, run_again},
    },
    tree::Tree,
    txn::{
        self, AutoAuthor, AutoView, Begun, Done, SystemAuthor, Ticket, Txn, TxnAuthor, TxnOptions,
        rollback,
    },
};
use std::{sync::Arc, time::Instant};
use wattle_btree::{
    self as btree, CHUNK, Cursor, Found, LargeValue, MAX_KEY, MAX_VALUE, MULTI_GET, Mode, Progress,
    Step, Stop, Taken, Tree as BTree, Value, View, Written, fits_inline,
};
use wattle_buffer::{Error, Result};

fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= MAX_KEY {
        return Ok(());
    }
    Err(Error::KeyTooLong { len: key.len(), max: MAX_KEY })
}

fn check_value(value: &[u8]) -> Result<()> {
    if value.len() as u64 <= MAX_VALUE {
        return Ok(());
    }
    Err(Error::ValueTooLong { len: value.len() as u64, max: MAX_VALUE })
}

/// The ticket of an auto operation that changed something.
#[inline]
fn auto_ticket<R: Resolve>(session: &R, Done { time, epoch, stored }: Done) -> Ticket {
    session.committed(time, &[stored]);
    let core = session.core();
    match (session.log(), core.txns.durability.urgency()) {
        (Some(log), Some(urgency)) => Ticket::new(log, epoch, time, urgency),
        _ => Ticket::done(),
    }
}

/// The ticket of an auto operation that changed nothing, because of a commit that a crash could take back
/// if it `relies_on_log`: what it says is true when that is durable.
#[inline]
fn unchanged_ticket<R: Resolve>(session: &R, relies_on_log: bool) -> Ticket {
    let core = session.core();
    match (session.log(), core.txns.durability.urgency()) {
        (Some(log), Some(urgency)) if relies_on_log => {
            Ticket::new(log, log.0.epoch(), core.txns.clock.now(), urgency)
        }
        _ => Ticket::done(),
    }
}

/// Writes one record as a transaction of its own; gives whether there was one before.
#[inline]
pub(crate) async fn write<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    value: &[u8],
    mode: Mode,
) -> Result<(bool, Ticket)> {
    session.core().admit(session, tree).await?;
    check_key(key)?;
    if !fits_inline(key.len(), value.len()) {
        check_value(value)?;
        let waits = Waits::of(tree, key);
        return auto_txn(session, &waits, async |txn| {
            write_large_in(session, txn, tree, key, value, mode, Some(&waits)).await
        })
        .await;
    }
    let written = auto_record(session, tree, key, Value::Inline(value), mode).await?;
    match written {
        Auto::Done(existed, ticket) => Ok((existed, ticket)),
        // The value before is large.
        Auto::NeedsTransaction => {
            auto_txn(session, &Waits::of(tree, key), async |txn| {
                write_in(session, txn, tree, key, value, mode).await
            })
            .await
        }
    }
}

/// Outcome of an auto operation on one leaf.
enum Auto {
    /// Whether there was a record, and the ticket.
    Done(bool, Ticket),
    /// More than one leaf is concerned.
    NeedsTransaction,
}

/// Writes one record of a leaf, unless its value is large.
#[inline]
async fn auto_record<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    value: Value<'_>,
    mode: Mode,
) -> Result<Auto> {
    let (core, cx) = (session.core(), session.cx());
    let mut author =
        AutoAuthor::new(&core.txns, &tree.open, key, session.own(), session.take_before());
    let mut waits = None;
    let outcome = loop {
        let outcome = run(session, |restarts| {
            tree.open.tree.write_step(cx, key, value, mode, &mut author, restarts)
        })
        .await;
        match outcome {
            Err(Error::Conflict(_))
                if Waits::in_place(&mut waits, tree, key).wait(session).await => {}
            outcome => break outcome,
        }
    };
    let (done, large, relies) = (author.outcome, author.met_large, author.relies_on_log);
    session.give_before(author.into_buffer());
    match outcome {
        Err(_) if large => Ok(Auto::NeedsTransaction),
        Err(Error::KeyExists) => {
            session.wait_ticket(unchanged_ticket(session, relies)).await?;
            Err(Error::KeyExists)
        }
        Err(error) => Err(error),
        Ok(written) if done.time == 0 => {
            Ok(Auto::Done(written.existed, unchanged_ticket(session, relies)))
        }
        Ok(written) => Ok(Auto::Done(written.existed, auto_ticket(session, done))),
    }
}

/// Removes one record as a transaction of its own; gives whether there was one.
pub(crate) async fn remove<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
) -> Result<(bool, Ticket)> {
    session.core().admit(session, tree).await?;
    check_key(key)?;
    match auto_record(session, tree, key, Value::Ghost, Mode::Update).await? {
        Auto::Done(existed, ticket) => {
            if existed {
                let ghost = Garbage::Ghost(tree.open.tag.clone(), key.to_vec());
                session.system().garbage.add(session.own(), vec![ghost]);
            }
            Ok((existed, ticket))
        }
        Auto::NeedsTransaction => {
            auto_txn(session, &Waits::of(tree, key), async |txn| {
                remove_in(session, txn, tree, key).await
            })
            .await
        }
    }
}

/// Changes a value in place, as a transaction of its own.
pub(crate) async fn modify<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    buffer: &mut Vec<u8>,
    change: &mut dyn FnMut(usize, &mut [u8]),
) -> Result<(bool, Ticket)> {
    session.core().admit(session, tree).await?;
    check_key(key)?;
    let (core, cx) = (session.core(), session.cx());
    let mut author =
        AutoAuthor::new(&core.txns, &tree.open, key, session.own(), session.take_before());
    let modified = persist(session, &Waits::of(tree, key), async || {
        run(session, |restarts| {
            tree.open.tree.modify_step(cx, key, buffer, change, &mut author, restarts)
        })
        .await
    })
    .await;
    let (done, large, relies) = (author.outcome, author.met_large, author.relies_on_log);
    session.give_before(author.into_buffer());
    match modified {
        Ok(Ok(found)) if done.time == 0 => Ok((found, unchanged_ticket(session, relies))),
        Ok(Ok(found)) => Ok((found, auto_ticket(session, done))),
        Err(error) if !large => Err(error),
        Ok(Err(_)) | Err(_) => {
            auto_txn(session, &Waits::of(tree, key), async |txn| {
                modify_in(session, txn, tree, key, buffer, change).await
            })
            .await
        }
    }
}

/// Runs an operation in a transaction of its own, again while it meets conflicts.
async fn auto_txn<R: Resolve, T>(
    session: &R,
    waits: &Waits<'_>,
    mut operation: impl AsyncFnMut(&mut Txn) -> Result<T>,
) -> Result<(T, Ticket)> {
    persist(session, waits, async || {
        let mut txn = Begun::new(session, TxnOptions::default())?;
        let outcome = operation(txn.txn()).await;
        match outcome {
            Ok(value) => Ok((value, txn.commit().await?)),
            Err(error) => {
                txn.abort().await?;
                if let Error::KeyExists = error {
                    // This acknowledges that it does, perhaps by a commit that a crash could take back.
                    session.wait_ticket(unchanged_ticket(session, true)).await?;
                }
                Err(error)
            }
        }
    })
    .await
}

/// An error after which a transaction can only be aborted is remembered.
fn noted<T>(txn: &mut Txn, outcome: Result<T>) -> Result<T> {
    if let Err(error @ (Error::Conflict(_) | Error::SnapshotTooOld(_))) = &outcome {
        txn.must_abort = Some(error.to_string());
    }
    outcome
}

/// Before a change in a transaction.
#[inline]
fn check_change_in<R: Resolve>(session: &R, txn: &Txn, tree: &Tree, key: &[u8]) -> Result<()> {
    session.core().check_tree(tree)?;
    txn.check_write()?;
    check_key(key)?;
    note_point(txn, tree, key);
    Ok(())
}

/// Writes one record in a transaction; gives whether there was one before.
pub(crate) async fn write_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    value: &[u8],
    mode: Mode,
) -> Result<bool> {
    match write_once(session, txn, tree, key, value, mode) {
        Ok(Once::Done(existed)) => Ok(existed),
        other => write_on(session, txn, tree, key, value, mode, other).await,
    }
}

/// What came of the first attempt of a change.
pub(crate) enum Once<T> {
    /// It is made.
    Done(bool),
    /// The rest takes more steps.
    Begun(T),
}

/// The first attempt of [`write_in`], which mostly is the only one: a blocking session needs no future
/// for it, whose results are copied from one place to the next. [`write_on`] takes what it gives.
#[inline]
pub(crate) fn write_once<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    value: &[u8],
    mode: Mode,
) -> Step<Once<Option<Orphaned>>> {
    check_change_in(session, txn, tree, key)?;
    if !fits_inline(key.len(), value.len()) {
        return Ok(Once::Begun(None));
    }
    let mark = txn.savepoint();
    let written = record_once(session, txn, &tree.open, key, Value::Inline(value), mode)?;
    Ok(match written.orphan {
        None => Once::Done(written.existed),
        Some(_) => Once::Begun(Some(Orphaned { mark, written })),
    })
}

/// A record was written over a large value, which is still to be discarded.
pub(crate) struct Orphaned {
    mark: (Savepoint, usize),
    written: Written,
}

/// The rest of a write.
#[cold]
pub(crate) async fn write_on<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    value: &[u8],
    mode: Mode,
    first: Step<Once<Option<Orphaned>>>,
) -> Result<bool> {
    let Orphaned { mark, written } = match first {
        Ok(Once::Done(existed)) => return Ok(existed),
        Ok(Once::Begun(Some(orphaned))) => orphaned,
        Ok(Once::Begun(None)) => {
            check_value(value)?;
            return write_large_in(session, txn, tree, key, value, mode, None).await;
        }
        Err(stop) => {
            let (mark, value) = (txn.savepoint(), Value::Inline(value));
            let written = record_on(session, txn, &tree.open, key, value, mode, stop).await?;
            Orphaned { mark, written }
        }
    };
    if written.orphan.is_some() {
        let discard = async |txn: &mut Txn| discard_in(session, txn, tree, written.orphan).await;
        whole(session, txn, mark, discard).await?;
    }
    Ok(written.existed)
}

/// The rest of an operation of several steps that began at `mark`: when it fails, all of the
/// operation is taken back; when it is given up half way, the transaction can only be aborted. The
/// operation may be a part of another one.
async fn whole<R: Resolve, T>(
    session: &R,
    txn: &mut Txn,
    (mark, garbage): (Savepoint, usize),
    rest: impl AsyncFnOnce(&mut Txn) -> Result<T>,
) -> Result<T> {
    let was = std::mem::replace(&mut txn.half_done, true);
    let outcome = rest(txn).await;
    if outcome.is_err() && txn.must_abort.is_none() {
        txn.garbage.truncate(garbage);
        // The error of the operation is the one to tell.
        if rollback(session, txn, Some(mark)).await.is_err() {
            return outcome;
        }
    }
    txn.half_done = was;
    outcome
}

/// Takes back everything after a savepoint.
pub(crate) async fn rollback_to<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    savepoint: &txn::Savepoint,
) -> Result<()> {
    txn::check_savepoint(txn, savepoint)?;
    let was = std::mem::replace(&mut txn.half_done, true);
    txn.rolled_back_to(savepoint.mark);
    txn.garbage.truncate(savepoint.garbage);
    rollback(session, txn, Some(savepoint.mark)).await?;
    txn.half_done = was;
    Ok(())
}

/// A write tells its caller whether there was a record: that is a read.
fn note_point(txn: &Txn, tree: &Tree, key: &[u8]) {
    if let Some(reads) = &txn.reads {
        reads.borrow_mut().point(&tree.open, key);
    }
}

async fn record_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Arc<OpenTree>,
    key: &[u8],
    value: Value<'_>,
    mode: Mode,
) -> Result<Written> {
    match record_once(session, txn, tree, key, value, mode) {
        Ok(written) => Ok(written),
        Err(stop) => record_on(session, txn, tree, key, value, mode, stop).await,
    }
}

#[inline]
fn record_once<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Arc<OpenTree>,
    key: &[u8],
    value: Value<'_>,
    mode: Mode,
) -> Step<Written> {
    let (core, cx) = (session.core(), session.cx());
    let mut author = TxnAuthor::new(&core.txns, txn, tree, key);
    let written = tree.tree.write_step(cx, key, value, mode, &mut author, 0)?;
    cx.worker.counters().hits.add(1);
    Ok(written)
}

/// The rest of [`record_in`], after a first step that stopped.
#[cold]
async fn record_on<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Arc<OpenTree>,
    key: &[u8],
    value: Value<'_>,
    mode: Mode,
    stop: Stop,
) -> Result<Written> {
    let cx = session.cx();
    change_on(session, txn, tree, key, stop, |author, restarts| {
        tree.tree.write_step(cx, key, value, mode, author, restarts)
    })
    .await
}

/// A transaction in the middle of an operation that takes its undo entry back when it is dropped.
struct HalfDone<'t> {
    txn: &'t mut Txn,
    was: bool,
}

impl<'t> HalfDone<'t> {
    fn begin(txn: &'t mut Txn) -> HalfDone<'t> {
        let was = std::mem::replace(&mut txn.half_done, true);
        HalfDone { txn, was }
    }
}

impl Drop for HalfDone<'_> {
    fn drop(&mut self) {
        self.txn.half_done = self.was;
    }
}

/// Goes on with a change of one record whose first step stopped.
async fn change_on<R: Resolve, T>(
    session: &R,
    txn: &mut Txn,
    tree: &Arc<OpenTree>,
    key: &[u8],
    stop: Stop,
    mut step: impl FnMut(&mut TxnAuthor<'_>, u32) -> Step<T>,
) -> Result<T> {
    let outcome = match stop {
        Stop::Error(error) => Err(error),
        stop => {
            // A future that is leaked here may leave the undo entry of a change that it has not made.
            let open = HalfDone::begin(txn);
            let mut author = TxnAuthor::new(session.system(), open.txn, tree, key);
            let outcome = run_again(session, stop, |restarts| step(&mut author, restarts)).await;
            author.finish().and(outcome)
        }
    };
    noted(txn, outcome)
}

/// Removes one record in a transaction; gives whether there was one.
pub(crate) async fn remove_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
) -> Result<bool> {
    check_change_in(session, txn, tree, key)?;
    let mark = txn.savepoint();
    let written = record_in(session, txn, &tree.open, key, Value::Ghost, Mode::Update).await?;
    if written.existed {
        txn.add_ghost(&tree.open, key);
    }
    if written.orphan.is_some() {
        let discard = async |txn: &mut Txn| discard_in(session, txn, tree, written.orphan).await;
        whole(session, txn, mark, discard).await?;
    }
    Ok(written.existed)
}

/// Changes a value in place, in a transaction.
pub(crate) async fn modify_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    buffer: &mut Vec<u8>,
    change: &mut dyn FnMut(usize, &mut [u8]),
) -> Result<bool> {
    match modify_once(session, txn, tree, key, buffer, change) {
        Ok(Once::Done(found)) => Ok(found),
        other => modify_on(session, txn, tree, key, buffer, change, other).await,
    }
}

/// The first attempt of [`modify_in`]; see [`write_once`]. It has begun when the value is large.
#[inline]
pub(crate) fn modify_once<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    buffer: &mut Vec<u8>,
    change: &mut dyn FnMut(usize, &mut [u8]),
) -> Step<Once<()>> {
    check_change_in(session, txn, tree, key)?;
    let (core, cx) = (session.core(), session.cx());
    let mut author = TxnAuthor::new(&core.txns, txn, &tree.open, key);
    let modified = tree.open.tree.modify_step(cx, key, buffer, change, &mut author, 0)?;
    cx.worker.counters().hits.add(1);
    Ok(modified.map_or(Once::Begun(()), Once::Done))
}

/// The rest of a change in place.
#[cold]
pub(crate) async fn modify_on<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    buffer: &mut Vec<u8>,
    change: &mut dyn FnMut(usize, &mut [u8]),
    first: Step<Once<()>>,
) -> Result<bool> {
    let cx = session.cx();
    let modified = match first {
        Ok(Once::Done(found)) => return Ok(found),
        Ok(Once::Begun(())) => None,
        Err(stop) => change_on(session, txn, &tree.open, key, stop, |author, restarts| {
            tree.open.tree.modify_step(cx, key, buffer, change, author, restarts)
        })
        .await?
        .ok(),
    };
    if let Some(found) = modified {
        return Ok(found);
    }
    buffer.clear();
    if !value_in(session, txn, tree, key, buffer).await? {
        return Ok(false);
    }
    change(0, buffer);
    let value = std::mem::take(buffer);
    write_large_in(session, txn, tree, key, &value, Mode::Update, None).await
}

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

/// Adds records that fit leaves. When it fails, those in front of the one that it failed at are there.
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
        outcome = self::run(session, step).await.map(|_| ());
    }
    let outcome = author.finish().and(outcome);
    noted(txn, outcome)
}

/// Changes several values in place, in a transaction: all that there are, or none. Gives how many that was.
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
                let begun = Ok(Once::Begun(()));
                let existed =
                    modify_on(session, txn, tree, key, buffer, &mut change, begun).await?;
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

/// Changes values in place, as far as the first large one; gives how far that was, and whether there is one.
/// When it fails, those in front of the one that it failed at are changed.
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
        outcome = self::run(session, step).await.map(|all| all.is_err());
    }
    let outcome = author.finish().and(outcome);
    noted(txn, outcome).map(|large| (progress, large))
}

/// Writes a record whose value does not fit a leaf. `alone`: nothing else belongs to the transaction, and
/// the value does not depend on anything that it has read; how long it has waited for others.
async fn write_large_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    value: &[u8],
    mode: Mode,
    alone: Option<&Waits<'_>>,
) -> Result<bool> {
    let mark = txn.savepoint();
    let write =
        async |txn: &mut Txn| write_large_steps(session, txn, tree, key, value, mode, alone).await;
    whole(session, txn, mark, write).await
}

/// The record of a large value. Whoever writes nothing else waits here for others that change it, and
/// takes a later snapshot: with the whole operation done again, its chunks too, others would always be
/// first.
async fn large_record_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Arc<OpenTree>,
    key: &[u8],
    value: Value<'_>,
    mode: Mode,
    alone: Option<&Waits<'_>>,
) -> Result<Written> {
    loop {
        match record_in(session, txn, tree, key, value, mode).await {
            Err(Error::Conflict(_) | Error::SnapshotTooOld(_))
                if let Some(waits) = alone
                    && waits.wait(session).await =>
            {
                txn.must_abort = None;
                txn.renew_snapshot(session.system());
            }
            outcome => return outcome,
        }
    }
}

async fn write_large_steps<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    value: &[u8],
    mut mode: Mode,
    alone: Option<&Waits<'_>>,
) -> Result<bool> {
    let mut known = None;
    // Before writing gigabytes for nothing.
    if mode != Mode::Put {
        let mut bytes = Vec::new();
        let found = look_up(session, &tree.open.tree, key, &mut btree::Newest, &mut bytes).await?;
        if found.is_some() == (mode == Mode::Insert) {
            // The leaf says no, unless others are about to change that: a small write finds out.
            let probe = Value::Inline(&[]);
            let written =
                large_record_in(session, txn, &tree.open, key, probe, mode, alone).await?;
            if mode == Mode::Update && !written.existed {
                return Ok(false);
            }
            discard_in(session, txn, tree, written.orphan).await?;
            known = Some(written.existed);
            mode = Mode::Put;
        }
    }
    session.core().make_room_for_large(session, &tree.open, alone.is_some()).await;
    let store = session.core().catalog.large(session.system(), session.cx(), &tree.open)?;
    let large = LargeValue { id: store.next_id(), len: value.len() as u64 };
    txn.start_writing(session.system(), &tree.open);
    write_chunks(session, txn, store, large, value).await?;
    let (new, alone) = (Value::Large(large), alone.filter(|_| known.is_none()));
    let written = large_record_in(session, txn, &tree.open, key, new, mode, alone).await?;
    if !written.existed && mode == Mode::Update {
        // It was removed meanwhile, within what this transaction may see: the chunks are for nobody.
        discard_in(session, txn, tree, Some(large)).await?;
        return Ok(false);
    }
    discard_in(session, txn, tree, written.orphan).await?;
    Ok(known.unwrap_or(written.existed))
}

async fn write_chunks<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    store: &LargeStore,
    large: LargeValue,
    value: &[u8],
) -> Result<()> {
    let (core, cx) = (session.core(), session.cx());
    for (chunk, bytes) in value.chunks(CHUNK).enumerate() {
        let key = large.chunk_key(chunk as u64);
        let mut author = SystemAuthor::new(&core.txns, store.tree.id(), Some(txn));
        run(session, |restarts| {
            let value = Value::Inline(bytes);
            store.tree.write_step(cx, &key, value, Mode::Insert, &mut author, restarts)
        })
        .await?;
    }
    Ok(())
}

/// A large value that the transaction replaced is listed in the catalog, to be cleared away.
async fn discard_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    orphan: Option<LargeValue>,
) -> Result<()> {
    let Some(large) = orphan else { return Ok(()) };
    let (core, cx) = (session.core(), session.cx());
    let (catalog, key) = core.catalog.garbage_key(&tree.open, large)?;
    let mut author = SystemAuthor::new(&core.txns, catalog.id(), Some(txn));
    let value = large.len.to_le_bytes();
    run(session, |restarts| {
        catalog.write_step(cx, &key, Value::Inline(&value), Mode::Put, &mut author, restarts)
    })
    .await?;
    drop(author);
    txn.garbage.push(Garbage::Large(tree.open.tag.clone(), large));
    Ok(())
}

fn large_store(tree: &OpenTree) -> Result<&LargeStore> {
    tree.large.get().ok_or_else(|| {
        Error::corruption(
            tree.tree.root_page(),
            "a record of its tree has a large value, but the tree has no large values",
        )
    })
}

#[inline(always)]
async fn look_up<R: Resolve, V: View>(
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

/// Reads the value of `key` to the end of `value`, by itself; gives whether there is one.
#[inline(always)]
pub(crate) async fn get<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    value: &mut Vec<u8>,
) -> Result<bool> {
    session.core().check_tree(tree)?;
    check_key(key)?;
    let mut view = AutoView::new(session.system(), &tree.open, session.own());
    let start = value.len();
    match look_up(session, &tree.open.tree, key, &mut view, value).await? {
        None => Ok(false),
        Some(Found::Inline) => Ok(true),
        // Its chunks stay only as long as a snapshot sees them.
        Some(Found::Large(_)) => {
            persist(session, &Waits::of(tree, key), async || {
                value.truncate(start);
                let txn = begin_reading(session, tree).await?;
                get_in(session, txn.get(), tree, key, value).await
            })
            .await
        }
    }
}

/// A transaction that only reads.
pub(crate) const READ: TxnOptions =
    TxnOptions { isolation: crate::Isolation::Snapshot, read_only: true, durability: None };

/// Begins to read a tree, for an operation by itself. Behind the commit of a transaction that was too large
/// for versions it waits until that is durable: nobody can be told what was there before.
pub(crate) async fn begin_reading<'s, R: Resolve>(
    session: &'s R,
    tree: &Tree,
) -> Result<Begun<'s, R>> {
    session.core().check_tree(tree)?;
    let (closed, mut log_since) = (&tree.open.closed, None);
    loop {
        let txn = Begun::new(session, READ)?;
        // While one is active, reading says so.
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
    session.core().check_tree(tree)?;
    txn.check()?;
    check_key(key)?;
    note_point(txn, tree, key);
    value_in(session, txn, tree, key, value).await
}

/// [`get_in`] in the middle of an operation.
async fn value_in<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    key: &[u8],
    value: &mut Vec<u8>,
) -> Result<bool> {
    let mut view = txn.view(session.system(), &tree.open);
    match look_up(session, &tree.open.tree, key, &mut view, value).await? {
        None => Ok(false),
        Some(Found::Inline) => Ok(true),
        Some(Found::Large(large)) => {
            read_chunks(session, txn, tree, large, value).await?;
            Ok(true)
        }
    }
}

/// Appends all chunks of a large value that the transaction sees.
pub(crate) async fn read_chunks<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    large: LargeValue,
    value: &mut Vec<u8>,
) -> Result<()> {
    let store = large_store(&tree.open)?;
    value.try_reserve_exact(large.len as usize).map_err(|_| {
        Error::Limit(format!("there is no memory for a value of {} bytes", large.len))
    })?;
    for chunk in 0..large.chunks() {
        let (key, start) = (large.chunk_key(chunk), value.len());
        let found = look_up(session, &store.tree, &key, &mut btree::Newest, value).await?;
        if found != Some(Found::Inline) || value.len() - start != large.chunk_len(chunk) {
            if txn.slot.is_cancelled() {
                return Err(session.system().too_old());
            }
            let what = format!("a chunk of the large value {} is missing", large.id);
            return Err(Error::corruption(store.tree.root_page(), what));
        }
    }
    Ok(())
}

/// Looks many keys up, interleaved, each by itself.
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

/// Brings records near that will be wanted in a moment, batch by batch.
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
    }
    Ok(())
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
    }
    Ok(())
}

/// Takes the next entry of a scan from the part of a leaf that its cursor holds; `None` when that is used up.
#[inline]
pub(crate) fn next_loaded(cursor: &mut Cursor) -> Result<Option<Taken>> {
    while cursor.is_loaded() {
        if let Some(taken) = cursor.take()? {
            return Ok(Some(taken));
        }
    }
    Ok(None)
}

/// Goes on with a scan after [`next_loaded`], which gave `taken`: reads a large value, or loads leaves up to
/// the next entry. Key and value are then in the cursor, or the value in `whole` when it is large; `None` at
/// the end.
pub(crate) async fn next_entry<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    cursor: &mut Cursor,
    whole: &mut Vec<u8>,
    mut taken: Option<Taken>,
) -> Result<Option<Entry>> {
    loop {
        match taken {
            Some(Taken::Inline) => return Ok(Some(Entry::Inline)),
            Some(Taken::Large(large)) => {
                whole.clear();
                let read = read_chunks(session, txn, tree, large, whole).await;
                if let Err(Error::SnapshotTooOld(_)) = read {
                    cursor.take_again();
                }
                read?;
                return Ok(Some(Entry::Whole));
            }
            None if cursor.is_at_end() => return Ok(None),
            None => {}
        }
        let mut view = txn.view(session.system(), &tree.open);
        let faults = session.cx().worker.counters().faults.get();
        run(session, |_| cursor.load_step(&tree.open.tree, &mut view)).await?;
        if session.cx().worker.counters().faults.get() != faults && cursor.is_long() {
            // An error of read-ahead is reported by the read itself.
            let _ahead = run(session, |_| cursor.ahead_step(&tree.open.tree)).await;
        }
        taken = next_loaded(cursor)?;
    }
}

/// After an error of [`next_entry`] in a scan that stands for itself: when its snapshot was cancelled it takes
/// a new one and goes on at the same place. `since`: none unless it did so already without coming further.
///
/// What such a scan gives is a sequence of pieces, each of one snapshot, the snapshots ascending. The cursor goes
/// on behind the last key that it has looked at, whether or not the snapshot had a record there, so keys ascend
/// (or descend) and none comes twice. A record that was there all the time, from the beginning of the scan to
/// its end, is in every snapshot, so the piece that passes its key has it.
///
/// # Errors
/// `error`, where a new snapshot cannot help.
#[cold]
pub(crate) async fn next_piece<R: Resolve>(
    begun: &mut Begun<'_, R>,
    tree: &Tree,
    error: Error,
    since: &mut Option<Instant>,
) -> Result<()> {
    if !matches!(error, Error::SnapshotTooOld(_)) || !begun.may_renew(tree, since) {
        return Err(error);
    }
    let fresh = begin_reading(begun.session(), tree).await?;
    drop(std::mem::replace(begun, fresh));
    Ok(())
}

/// Where the value of a scanned entry is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// In the cursor.
    Inline,
    /// In the buffer for large values.
    Whole,
}
