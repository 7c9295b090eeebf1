//! Large values whose bytes go to the data file at once, and not through the log
//! ([`crate::Options::direct_value_bytes`]). `docs/large-values.md` argues why a crash loses
//! nothing.
//!
//! The last chunk or two go through the log. So do all that are left as soon as a backup or a
//! compaction begins or waits, or the device is full.

use super::write_chunks::write_chunks;
use crate::{
    catalog::LargeStore,
    core::Core,
    garbage::ListedValue,
    limits::limit,
    session::{resolve::Resolve, step::run},
    tree::Tree,
    txn::Txn,
};
use wattle_btree::LargeValue;
use wattle_buffer::{Error, Result};

/// Leaves that are written before one sync, and that keep a backup waiting: 16 MiB.
const PIECE: u64 = limit(4096, 7) as u64;
/// Entries of the list that a writer helps to take off, so that the list stays short.
const HELP: usize = 2;

impl Core {
    /// Whether there should be a checkpoint because of pages that are of no use before it.
    pub fn needs_freed_pages(&self) -> bool {
        self.unlogged_pages.direct.least != u64::MAX
            && self.pool.allocator().recently_freed() >= self.unlogged_pages.direct.freed_pages
    }

    /// Whether this session writes a value of `len` bytes directly.
    fn writes_directly<R: Resolve>(&self, session: &R, len: u64) -> bool {
        len >= self.unlogged_pages.direct.least
            && session.may_block()
            && self.log.is_some()
            && self.pool.check_may_wait().is_ok()
            && self.pool.allocator().recently_freed() <= 2 * self.unlogged_pages.direct.freed_pages
    }
}

/// Writes a large value that the record `key` will refer to directly, in part at least, and lists
/// it. False: nothing has changed, and it is to go through the log.
pub(super) async fn write_directly<R: Resolve>(
    session: &R,
    txn: &mut Txn,
    tree: &Tree,
    store: &LargeStore,
    key: &[u8],
    (large, value): (LargeValue, &[u8]),
) -> Result<bool> {
    let (core, cx) = (session.core(), session.cx());
    if !core.writes_directly(session, large.len) {
        return Ok(false);
    }
    if let Err(error) = core.take_off_list(cx, 0, HELP) {
        tracing::warn!(%error, "large values in use stay listed for a while");
    }
    let mut done = 0;
    while large.whole_leaves(done) > 0 {
        // 1. No backup misses the pages, and none begins before they are in the tree.
        let Some(_no_backup) = core.unlogged_pages.write() else { break };
        // The engine may have been abandoned meanwhile, and the file may belong to another one.
        core.check_alive()?;
        // 2. Pages.
        let leaves = large.whole_leaves(done).min(PIECE) as usize;
        let mut ready = match store.tree.write_leaves(large, value, done, leaves) {
            Err(Error::DiskFull { .. }) => break,
            outcome => outcome?,
        };
        // 3. Durable.
        core.sync_written_pages()?;
        // 4. Listed, before a record names a page of it. From here on the janitor takes the value
        //    away if the transaction does not commit.
        if done == 0 {
            core.catalog.list_garbage(cx, &tree.open, key, large)?;
            let (tag, chunks) = (tree.open.tag.clone(), store.tree.id());
            txn.adopted.push(ListedValue { tag, chunks, large });
        }
        // 5. In the tree.
        while !run(session, |_| store.tree.adopt_step(cx, &mut ready)).await? {}
        done = ready.end();
    }
    if done == 0 {
        return Ok(false);
    }
    write_chunks(session, None, store, (large, value), done).await?;
    Ok(true)
}
