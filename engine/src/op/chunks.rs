//! Reads of the bytes of a large value, which lie in chunks in a tree of their own.

use crate::{
    catalog::{LargeStore, OpenTree},
    session::{resolve::Resolve, step::run},
    tree::Tree,
    txn::Txn,
};
use std::ops::Range;
use wattle_btree::{CHUNK, ChunkReader, LargeValue};
use wattle_buffer::{Error, Result};

fn large_store(tree: &OpenTree) -> Result<&LargeStore> {
    tree.large.get().ok_or_else(|| {
        Error::corruption(
            tree.tree.root_page(),
            "a record of its tree has a large value, but the tree has no large values",
        )
    })
}

/// Appends some bytes of a large value to `value`, all from one version of it. False: a chunk is
/// missing, so the value was replaced meanwhile, unless a snapshot keeps it.
pub(super) async fn read_some<R: Resolve>(
    session: &R,
    tree: &Tree,
    large: LargeValue,
    bytes: Range<u64>,
    value: &mut Vec<u8>,
) -> Result<bool> {
    let chunks = &large_store(&tree.open)?.tree;
    let len = bytes.end - bytes.start;
    usize::try_from(len).ok().and_then(|len| value.try_reserve_exact(len).ok()).ok_or_else(
        || Error::Limit(format!("there is no memory for {len} bytes of a large value")),
    )?;
    let (mut reader, mut read) = (ChunkReader::new(large, bytes), value.len());
    loop {
        let step = |_| {
            chunks.chunks_step(&mut reader, value).inspect_err(|stop| {
                let beside = reader.reads_beside(chunks, stop);
                if !beside.is_empty() {
                    session.read_ahead(beside);
                }
            })
        };
        if !run(session, step).await? {
            return Ok(false);
        }
        if reader.is_done() {
            return Ok(true);
        }
        session.next_turn((value.len() - read) / CHUNK).await;
        read = value.len();
    }
}

/// As [`read_some`], of a value that the snapshot of the transaction keeps.
///
/// # Errors
/// [`Error::SnapshotTooOld`] when the snapshot was cancelled.
pub(crate) async fn read_kept<R: Resolve>(
    session: &R,
    txn: &Txn,
    tree: &Tree,
    large: LargeValue,
    bytes: Range<u64>,
    value: &mut Vec<u8>,
) -> Result<()> {
    if read_some(session, tree, large, bytes, value).await? {
        return Ok(());
    }
    if txn.slot.is_cancelled() {
        return Err(session.system().too_old());
    }
    let what = format!("a chunk of the large value {} is missing", large.id);
    Err(Error::corruption(large_store(&tree.open)?.tree.root_page(), what))
}
