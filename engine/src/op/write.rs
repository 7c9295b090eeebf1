//! Changes of one record in a transaction. Each kind is a [`RecordChange`]; [`drive`] and
//! [`drive_now`] carry it out for tasks and for threads.

use super::{
    check::{check_change_in, check_value},
    large::{discard_in, write_large_in},
    read::value_in,
    record::{change_in, change_on, change_once, write_step},
    whole::whole,
};
use crate::{
    session::resolve::{Resolve, now},
    tree::Tree,
    txn::{Mark, Txn, TxnAuthor},
};
use wattle_btree::{Mode, Step, Value, Written, fits_inline};
use wattle_buffer::Result;

/// The outcome of the first attempt of a change.
pub(crate) enum Once<T> {
    /// It is made. Whether there was a record before.
    Done(bool),
    /// The rest takes more steps.
    Begun(T),
}

/// A change of one record.
pub(crate) trait RecordChange {
    /// State that a first attempt passes on to [`RecordChange::finish`].
    type Begun;

    /// The first attempt, nearly always the only one. It is not a future: the results of a future
    /// would be copied several times.
    fn attempt<R: Resolve>(&mut self, session: &R, txn: &mut Txn) -> Step<Once<Self::Begun>>;

    /// The rest, after a first attempt that stopped or has only begun.
    async fn finish<R: Resolve>(
        self,
        session: &R,
        txn: &mut Txn,
        first: Step<Self::Begun>,
    ) -> Result<bool>;
}

/// Makes a change; gives whether there was a record before.
pub(crate) async fn drive<R: Resolve, C: RecordChange>(
    session: &R,
    txn: &mut Txn,
    mut change: C,
) -> Result<bool> {
    match change.attempt(session, txn) {
        Ok(Once::Done(existed)) => Ok(existed),
        Ok(Once::Begun(begun)) => change.finish(session, txn, Ok(begun)).await,
        Err(stop) => change.finish(session, txn, Err(stop)).await,
    }
}

/// As [`drive`], for a session that blocks its thread.
#[inline]
pub(crate) fn drive_now<R: Resolve, C: RecordChange>(
    session: &R,
    txn: &mut Txn,
    mut change: C,
) -> Result<bool> {
    match change.attempt(session, txn) {
        Ok(Once::Done(existed)) => Ok(existed),
        Ok(Once::Begun(begun)) => rest_now(session, txn, change, Ok(begun)),
        Err(stop) => rest_now(session, txn, change, Err(stop)),
    }
}

#[cold]
fn rest_now<R: Resolve, C: RecordChange>(
    session: &R,
    txn: &mut Txn,
    change: C,
    first: Step<C::Begun>,
) -> Result<bool> {
    now(change.finish(session, txn, first))
}

/// Writes a record.
pub(crate) struct WriteRecord<'w> {
    pub tree: &'w Tree,
    pub key: &'w [u8],
    pub value: &'w [u8],
    pub mode: Mode,
}

/// A record was written over a large value, which is still to be discarded.
pub(crate) struct Orphaned {
    mark: Mark,
    written: Written,
}

impl RecordChange for WriteRecord<'_> {
    /// `None`: the value is large.
    type Begun = Option<Orphaned>;

    #[inline]
    fn attempt<R: Resolve>(&mut self, session: &R, txn: &mut Txn) -> Step<Once<Self::Begun>> {
        let WriteRecord { tree, key, value, mode } = *self;
        check_change_in(session, txn, tree, key)?;
        if !fits_inline(key.len(), value.len()) {
            return Ok(Once::Begun(None));
        }
        let mark = txn.savepoint();
        let mut step = write_step(session, &tree.open, key, Value::Inline(value), mode);
        let written = change_once(session, txn, &tree.open, key, &mut step)?;
        Ok(match written.orphan {
            None => Once::Done(written.existed),
            Some(_) => Once::Begun(Some(Orphaned { mark, written })),
        })
    }

    async fn finish<R: Resolve>(
        self,
        session: &R,
        txn: &mut Txn,
        first: Step<Self::Begun>,
    ) -> Result<bool> {
        let WriteRecord { tree, key, value, mode } = self;
        let Orphaned { mark, written } = match first {
            Ok(Some(orphaned)) => orphaned,
            Ok(None) => {
                check_value(value)?;
                return write_large_in(session, txn, tree, key, value, mode, None).await;
            }
            Err(stop) => {
                let mark = txn.savepoint();
                let step = write_step(session, &tree.open, key, Value::Inline(value), mode);
                let written = change_on(session, txn, &tree.open, key, stop, step).await?;
                Orphaned { mark, written }
            }
        };
        discard_orphan(session, txn, tree, mark, written).await?;
        Ok(written.existed)
    }
}

/// Discards the large value that a change of a record has replaced, if there was one.
async fn discard_orphan<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    mark: Mark,
    written: Written,
) -> Result<()> {
    if written.orphan.is_none() {
        return Ok(());
    }
    let discard = async |txn: &mut Txn| discard_in(session, txn, tree, written.orphan).await;
    whole(session, txn, mark, discard).await
}

/// Removes one record in a transaction; gives whether there was one.
pub(crate) async fn remove_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
) -> Result<bool> {
    check_change_in(session, txn, tree, key)?;
    remove_checked_in(session, txn, tree, key).await
}

/// [`remove_in`] after the checks, perhaps in the middle of an operation.
pub(super) async fn remove_checked_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
) -> Result<bool> {
    let mark = txn.savepoint();
    let step = write_step(session, &tree.open, key, Value::Ghost, Mode::Update);
    let written = change_in(session, txn, &tree.open, key, step).await?;
    if written.existed {
        txn.add_ghost(&tree.open, key);
    }
    discard_orphan(session, txn, tree, mark, written).await?;
    Ok(written.existed)
}

/// Changes a value in place: `change` gets the position of the key in its batch, and the value.
pub(crate) struct ModifyRecord<'m> {
    pub tree: &'m Tree,
    pub key: &'m [u8],
    pub buffer: &'m mut Vec<u8>,
    pub change: &'m mut dyn FnMut(usize, &mut [u8]),
}

impl RecordChange for ModifyRecord<'_> {
    /// The value is large.
    type Begun = ();

    #[inline]
    fn attempt<R: Resolve>(&mut self, session: &R, txn: &mut Txn) -> Step<Once<()>> {
        let ModifyRecord { tree, key, buffer, change } = self;
        let (cx, open) = (session.cx(), &tree.open);
        check_change_in(session, txn, tree, key)?;
        let mut step = |author: &mut TxnAuthor<'_>, restarts| {
            open.tree.modify_step(cx, key, buffer, *change, author, restarts)
        };
        let modified = change_once(session, txn, open, key, &mut step)?;
        Ok(modified.map_or(Once::Begun(()), Once::Done))
    }

    async fn finish<R: Resolve>(self, session: &R, txn: &mut Txn, first: Step<()>) -> Result<bool> {
        let ModifyRecord { tree, key, buffer, change } = self;
        let (cx, open) = (session.cx(), &tree.open);
        if let Err(stop) = first {
            let step = |author: &mut TxnAuthor<'_>, restarts| {
                open.tree.modify_step(cx, key, buffer, change, author, restarts)
            };
            if let Ok(found) = change_on(session, txn, open, key, stop, step).await? {
                return Ok(found);
            }
        }
        buffer.clear();
        if !value_in(session, txn, tree, key, buffer).await? {
            return Ok(false);
        }
        change(0, buffer);
        let value = std::mem::take(buffer);
        write_large_in(session, txn, tree, key, &value, Mode::Update, None).await
    }
}
