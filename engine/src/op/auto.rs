//! Auto-committed changes. A change of a single leaf commits under the latch of the leaf and is one
//! log record. A change that needs more steps runs in a transaction of its own.

use super::{
    check::{check_key, check_value},
    large::write_large_in,
    write::{ModifyRecord, WriteRecord, drive, remove_in},
};
use crate::{
    garbage::Garbage,
    session::{
        conflict_wait::{Waits, persist},
        resolve::Resolve,
        step::run,
    },
    tree::Tree,
    txn::{AutoAuthor, AutoOutcome, Begun, Ticket, Txn, TxnOptions},
};
use wattle_btree::{Mode, Value, fits_inline};
use wattle_buffer::{Error, Result};

/// The ticket of an auto operation that changed something.
#[inline]
fn auto_ticket<R: Resolve>(
    session: &R,
    AutoOutcome { time, epoch, stored }: AutoOutcome,
) -> Ticket {
    session.committed(time, &[stored]);
    let core = session.core();
    match (session.log(), core.txns.durability.urgency()) {
        (Some(log), Some(urgency)) => Ticket::new(log, epoch, time, urgency),
        _ => Ticket::done(),
    }
}

/// The ticket of an auto operation that changed nothing, and acknowledges a commit that may not be
/// durable if it `relies_on_log`: the ticket waits for that commit.
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
                drive(session, txn, WriteRecord { tree, key, value, mode }).await
            })
            .await
        }
    }
}

/// Outcome of an auto-committed operation on one leaf.
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
                drive(session, txn, ModifyRecord { tree, key, buffer, change }).await
            })
            .await
        }
    }
}

/// Runs an operation in a transaction of its own, again while it meets conflicts.
pub(super) async fn auto_txn<R: Resolve, T>(
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
                    // This acknowledges that it does, perhaps by a commit that a crash could take
                    // back.
                    session.wait_ticket(unchanged_ticket(session, true)).await?;
                }
                Err(error)
            }
        }
    })
    .await
}
