//! Changes of one record that depend on its value.

use super::{
    auto::auto_txn,
    check::check_value,
    read::get_in,
    write::{WriteRecord, drive, remove_in},
};
use crate::{
    session::{conflict_wait::Waits, resolve::Resolve},
    tree::Tree,
    txn::{Ticket, Txn},
};
use wattle_btree::Mode;
use wattle_buffer::Result;

/// A compare-and-swap has changed nothing, because the key had another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompareFailed {
    /// The value of the key; `None`: there is no such key.
    pub current: Option<Vec<u8>>,
}

impl std::fmt::Display for CompareFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.current {
            Some(value) => write!(f, "the key has another value, of {} bytes", value.len()),
            None => f.write_str("there is no such key"),
        }
    }
}

impl std::error::Error for CompareFailed {}

/// Makes a new value of the value of a key; `None` is no record. With an error nothing is changed.
pub(crate) type Update<'u> = dyn FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>> + 'u;

/// The outcome of a compare-and-swap.
pub(crate) type Swapped = std::result::Result<(), CompareFailed>;

async fn value_of<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    key: &[u8],
) -> Result<Option<Vec<u8>>> {
    let mut value = Vec::new();
    Ok(get_in(session, txn, tree, key, &mut value).await?.then_some(value))
}

/// Gives a key a value, or removes it.
async fn set_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    value: Option<&[u8]>,
) -> Result<()> {
    match value {
        Some(value) => {
            drive(session, txn, WriteRecord { tree, key, value, mode: Mode::Put }).await?;
        }
        None => {
            remove_in(session, txn, tree, key).await?;
        }
    }
    Ok(())
}

/// Replaces the value of a key, if it is `expected`, in a transaction. `None` is no record.
pub(crate) async fn swap_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    expected: Option<&[u8]>,
    new: Option<&[u8]>,
) -> Result<Swapped> {
    txn.check_write()?;
    new.map_or(Ok(()), check_value)?;
    let current = value_of(session, txn, tree, key).await?;
    if current.as_deref() != expected {
        return Ok(Err(CompareFailed { current }));
    }
    if expected.is_some() || new.is_some() {
        // Also without a difference: the record must not change before the commit.
        set_in(session, txn, tree, key, new).await?;
    }
    Ok(Ok(()))
}

/// As [`swap_in`], as a transaction of its own.
pub(crate) async fn swap_auto<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    expected: Option<&[u8]>,
    new: Option<&[u8]>,
) -> Result<(Swapped, Ticket)> {
    session.core().admit(session, tree).await?;
    auto_txn(session, &Waits::of(tree, key), async |txn| {
        swap_in(session, txn, tree, key, expected, new).await
    })
    .await
}

/// Replaces the value of a key by what `update` makes of it, in a transaction; gives the value
/// before. `None` is no record.
pub(crate) async fn fetch_update_in<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    key: &[u8],
    update: &mut Update<'_>,
) -> Result<Option<Vec<u8>>> {
    txn.check_write()?;
    let before = value_of(session, txn, tree, key).await?;
    let after = update(before.as_deref())?;
    if before.is_some() || after.is_some() {
        after.as_deref().map_or(Ok(()), check_value)?;
        set_in(session, txn, tree, key, after.as_deref()).await?;
    }
    Ok(before)
}

/// As [`fetch_update_in`], as a transaction of its own.
pub(crate) async fn fetch_update_auto<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    update: &mut Update<'_>,
) -> Result<(Option<Vec<u8>>, Ticket)> {
    session.core().admit(session, tree).await?;
    auto_txn(session, &Waits::of(tree, key), async |txn| {
        fetch_update_in(session, txn, tree, key, update).await
    })
    .await
}
