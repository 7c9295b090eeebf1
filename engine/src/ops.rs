//! The operations of sessions, written once for both kinds. What differs is how a fault is
//! resolved ([`Resolve`]): a blocking session blocks the thread, so that its futures are ready at
//! the first poll; an asynchronous one awaits.
//!
//! A value that does not fit a leaf is written in three steps: its chunks under a new id, then the
//! record with the descriptor, then the chunks of the value before are removed. A reader that meets
//! a missing chunk looks the key up again; the same descriptor twice is damage.

use crate::{
    catalog::LargeStore,
    engine::{Core, Tree},
};
use std::future::Future;
use wattle_btree::{
    self as btree, CHUNK, Cursor, Found, LargeValue, MAX_KEY, MAX_VALUE, MULTI_GET, Mode, Step,
    Stop, Value, Written, fits_inline,
};
use wattle_buffer::{Error, Fault, Result, Worker};

/// How a session waits for what an operation needs.
pub(crate) trait Resolve {
    fn core(&self) -> &Core;
    fn worker(&self) -> &Worker;
    fn resolve(&self, fault: Fault) -> impl Future<Output = Result<()>>;
}

/// Runs a step until it ends in a value or an error.
#[inline(always)]
pub(crate) async fn run<R: Resolve, T>(
    session: &R,
    mut step: impl FnMut(u32) -> Step<T>,
) -> Result<T> {
    match step(0) {
        Ok(value) => {
            session.worker().counters().hits.add(1);
            Ok(value)
        }
        Err(stop) => run_again(session, stop, step).await,
    }
}

/// The part of [`run`] after a first step that did not end in a value.
#[cold]
pub(crate) async fn run_again<R: Resolve, T>(
    session: &R,
    mut stop: Stop,
    mut step: impl FnMut(u32) -> Step<T>,
) -> Result<T> {
    let mut restarts = 0u32;
    loop {
        match stop {
            Stop::Restart => btree::restarted(session.worker(), &mut restarts),
            Stop::Fault(fault) => session.resolve(fault).await?,
            Stop::Error(error) => return Err(error),
        }
        match step(restarts) {
            Ok(value) => return Ok(value),
            Err(next) => stop = next,
        }
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= MAX_KEY {
        return Ok(());
    }
    Err(Error::KeyTooLong { len: key.len(), max: MAX_KEY })
}

/// Writes one record.
pub(crate) async fn write<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    value: &[u8],
    mode: Mode,
) -> Result<bool> {
    session.core().check_tree(tree)?;
    check_key(key)?;
    if fits_inline(key.len(), value.len()) {
        let written = write_record(session, tree, key, Value::Inline(value), mode).await?;
        return finish(session, tree, written).await;
    }
    if value.len() as u64 > MAX_VALUE {
        return Err(Error::ValueTooLong { len: value.len() as u64, max: MAX_VALUE });
    }
    // Before writing gigabytes for nothing.
    if mode != Mode::Put {
        let mut bytes = Vec::new();
        let found = run(session, |_| {
            bytes.clear();
            tree.open.tree.get_step(key, &mut bytes)
        })
        .await?;
        match (found, mode) {
            (Some(_), Mode::Insert) => return Err(Error::KeyExists),
            (None, Mode::Update) => return Ok(false),
            _ => {}
        }
    }
    let store = session.core().catalog.large(session.core(), &tree.open)?;
    reclaim(session, store).await;
    let large = LargeValue { id: store.next_id(), len: value.len() as u64 };
    let chunks = Orphan::new(store, large);
    let stored = write_chunks(session, store, large, value).await;
    let written = match stored {
        Ok(()) => write_record(session, tree, key, Value::Large(large), mode).await,
        Err(error) => Err(error),
    };
    match written {
        Ok(written) if written.existed || mode != Mode::Update => {
            chunks.adopt();
            finish(session, tree, written).await
        }
        Ok(_) => {
            chunks.remove(session).await;
            Ok(false)
        }
        Err(error) => {
            chunks.remove(session).await;
            Err(error)
        }
    }
}

/// Chunks that no record refers to. Dropped before they are removed, by an error or because the
/// operation was cancelled, it leaves them to [`reclaim`].
struct Orphan<'s> {
    store: &'s LargeStore,
    large: LargeValue,
    armed: bool,
}

impl<'s> Orphan<'s> {
    fn new(store: &'s LargeStore, large: LargeValue) -> Orphan<'s> {
        Orphan { store, large, armed: true }
    }

    /// A record refers to the chunks now.
    fn adopt(mut self) {
        self.armed = false;
    }

    /// Removes the chunks; gives whether that succeeded. The operation that left them is done
    /// either way, so a failure is none of its own.
    async fn remove<R: Resolve>(mut self, session: &R) -> bool {
        match remove_chunks(session, self.store, self.large).await {
            Ok(()) => self.armed = false,
            Err(error) => tracing::warn!(%error, "chunks of a large value are left for later"),
        }
        !self.armed
    }
}

impl Drop for Orphan<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.store.leave_orphan(self.large);
        }
    }
}

/// Removes what operations that failed or were cancelled left behind, as far as that succeeds.
async fn reclaim<R: Resolve>(session: &R, store: &LargeStore) {
    while let Some(large) = store.take_orphan() {
        if !Orphan::new(store, large).remove(session).await {
            return;
        }
    }
}

async fn write_record<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    value: Value<'_>,
    mode: Mode,
) -> Result<Written> {
    let worker = session.worker();
    run(session, |restarts| tree.open.tree.write_step(worker, key, value, mode, restarts)).await
}

/// Removes the chunks that a write left without a record.
async fn finish<R: Resolve>(session: &R, tree: &Tree, written: Written) -> Result<bool> {
    if let Some(orphan) = written.orphan {
        Orphan::new(large_store(tree)?, orphan).remove(session).await;
    }
    Ok(written.existed)
}

fn large_store(tree: &Tree) -> Result<&LargeStore> {
    tree.open.large.get().ok_or_else(|| {
        Error::corruption(
            tree.open.tree.root_page(),
            "a record of its tree has a large value, but the tree has no large values",
        )
    })
}

async fn write_chunks<R: Resolve>(
    session: &R,
    store: &LargeStore,
    large: LargeValue,
    value: &[u8],
) -> Result<()> {
    let worker = session.worker();
    for (chunk, bytes) in value.chunks(CHUNK).enumerate() {
        let key = large.chunk_key(chunk as u64);
        run(session, |restarts| {
            store.tree.write_step(worker, &key, Value::Inline(bytes), Mode::Insert, restarts)
        })
        .await?;
    }
    Ok(())
}

async fn remove_chunks<R: Resolve>(
    session: &R,
    store: &LargeStore,
    large: LargeValue,
) -> Result<()> {
    for chunk in 0..large.chunks() {
        remove_record(session, &store.tree, &large.chunk_key(chunk)).await?;
    }
    Ok(())
}

async fn remove_record<R: Resolve>(session: &R, tree: &btree::Tree, key: &[u8]) -> Result<()> {
    let (_, underfull) = run(session, |_| tree.remove_step(key)).await?;
    if underfull {
        merge(session, tree, key).await;
    }
    Ok(())
}

/// Merges the leaf that a remove left underfull. The record is gone already: a merge that fails
/// only leaves a leaf emptier.
async fn merge<R: Resolve>(session: &R, tree: &btree::Tree, key: &[u8]) {
    let worker = session.worker();
    if let Err(error) = run(session, |_| tree.merge_step(worker, key, 0)).await {
        tracing::warn!(%error, "a leaf could not be merged");
    }
}

/// Removes one record; gives whether there was one.
pub(crate) async fn remove<R: Resolve>(session: &R, tree: &Tree, key: &[u8]) -> Result<bool> {
    session.core().check_tree(tree)?;
    check_key(key)?;
    let (written, underfull) = run(session, |_| tree.open.tree.remove_step(key)).await?;
    // Before anything that can be cancelled.
    let orphan = match written.orphan {
        Some(large) => Some(Orphan::new(large_store(tree)?, large)),
        None => None,
    };
    if underfull {
        merge(session, &tree.open.tree, key).await;
    }
    if let Some(orphan) = orphan {
        orphan.remove(session).await;
    }
    Ok(written.existed)
}

/// Reads the value of `key` to the end of `value`; gives whether there is one.
#[inline(always)]
pub(crate) async fn get<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    value: &mut Vec<u8>,
) -> Result<bool> {
    session.core().check_tree(tree)?;
    check_key(key)?;
    let start = value.len();
    let found = run(session, |_| {
        value.truncate(start);
        tree.open.tree.get_step(key, value)
    })
    .await?;
    match found {
        None => Ok(false),
        Some(Found::Inline) => Ok(true),
        Some(Found::Large(large)) => get_large(session, tree, key, large, value).await,
    }
}

#[cold]
async fn get_large<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    mut large: LargeValue,
    value: &mut Vec<u8>,
) -> Result<bool> {
    let start = value.len();
    loop {
        if read_chunks(session, tree, large, value).await? {
            return Ok(true);
        }
        value.truncate(start);
        let found = run(session, |_| {
            value.truncate(start);
            tree.open.tree.get_step(key, value)
        })
        .await?;
        match found {
            None => return Ok(false),
            Some(Found::Inline) => return Ok(true),
            Some(Found::Large(now)) if now != large => large = now,
            Some(Found::Large(_)) => return Err(lost_chunk(tree, large)),
        }
    }
}

pub(crate) fn lost_chunk(tree: &Tree, large: LargeValue) -> Error {
    Error::corruption(
        tree.open.tree.root_page(),
        format_args!(
            "a chunk of the large value {} of tree {:?} is missing",
            large.id,
            tree.name()
        ),
    )
}

/// Appends all chunks of a large value; false when one is missing.
pub(crate) async fn read_chunks<R: Resolve>(
    session: &R,
    tree: &Tree,
    large: LargeValue,
    value: &mut Vec<u8>,
) -> Result<bool> {
    let store = large_store(tree)?;
    value.try_reserve_exact(large.len as usize).map_err(|_| {
        Error::Limit(format!("there is no memory for a value of {} bytes", large.len))
    })?;
    for chunk in 0..large.chunks() {
        let (key, start) = (large.chunk_key(chunk), value.len());
        let found = run(session, |_| {
            value.truncate(start);
            store.tree.get_step(&key, value)
        })
        .await?;
        if found != Some(Found::Inline) || value.len() - start != large.chunk_len(chunk) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Changes a value in place.
pub(crate) async fn modify<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    buffer: &mut Vec<u8>,
    mut change: impl FnMut(&mut [u8]),
) -> Result<bool> {
    session.core().check_tree(tree)?;
    check_key(key)?;
    let worker = session.worker();
    let modified = run(session, |restarts| {
        tree.open.tree.modify_step(worker, key, buffer, &mut change, restarts)
    })
    .await?;
    match modified {
        Ok(found) => Ok(found),
        Err(_) => {
            buffer.clear();
            if !get(session, tree, key, buffer).await? {
                return Ok(false);
            }
            change(buffer);
            write(session, tree, key, buffer, Mode::Update).await
        }
    }
}

/// Looks many keys up, interleaved.
pub(crate) async fn multi_get<R: Resolve, K: AsRef<[u8]>>(
    session: &R,
    tree: &Tree,
    keys: &[K],
    buffer: &mut Vec<u8>,
    mut report: impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    session.core().check_tree(tree)?;
    for key in keys {
        check_key(key.as_ref())?;
    }
    for (batch, keys) in keys.chunks(MULTI_GET).enumerate() {
        let (mut done, mut large) = (0, Vec::new());
        run(session, |_| {
            tree.open.tree.multi_get_step(keys, &mut done, buffer, &mut |i, found| match found {
                Some((Found::Large(value), _)) => large.push((i, value)),
                found => report(batch * MULTI_GET + i, found.map(|(_, bytes)| bytes)),
            })
        })
        .await?;
        for (i, value) in large {
            buffer.clear();
            let found = get_large(session, tree, keys[i].as_ref(), value, buffer).await?;
            report(batch * MULTI_GET + i, found.then_some(buffer.as_slice()));
        }
    }
    Ok(())
}

/// Makes the next entry of a scan ready to be taken; false at the end.
pub(crate) async fn advance<R: Resolve>(
    session: &R,
    tree: &Tree,
    cursor: &mut Cursor,
) -> Result<bool> {
    while !cursor.is_loaded() {
        if cursor.is_at_end() {
            return Ok(false);
        }
        run(session, |_| cursor.load_step(&tree.open.tree)).await?;
    }
    Ok(true)
}

/// Reads the large value of a scanned entry; false when the entry was replaced meanwhile and is
/// gone now.
pub(crate) async fn scanned_large<R: Resolve>(
    session: &R,
    tree: &Tree,
    key: &[u8],
    large: LargeValue,
    value: &mut Vec<u8>,
) -> Result<bool> {
    value.clear();
    get_large(session, tree, key, large, value).await
}

/// Removes the chunks of a large value that no record refers to, now or later.
pub(crate) async fn remove_large<R: Resolve>(session: &R, store: &LargeStore, large: LargeValue) {
    Orphan::new(store, large).remove(session).await;
}
