//! Redo workers: each owns the pages whose ids hash to it, and applies their records in order.
//!
//! An op is applied to a page whose number is below that of its record, so changes that the page on
//! storage already has are not applied twice. An image is applied without reading the page on
//! storage, which may be torn or newer: the log also has all changes after the image, so the page
//! ends in the same state.

use super::{
    FoundGhosts,
    cache::{Cache, CacheSlot, Counts},
    redo_state::RedoState,
};
use crate::epochs::newer;
use foldhash::fast::RandomState;
use std::{
    collections::HashSet,
    sync::{Arc, mpsc::Receiver},
};
use wattle_btree::record::{self, needs_page};
use wattle_buffer::{Error, Gsn, PageId, Result, TreeId, page::header};
use wattle_wal::{Chunk, epoch_of};

/// Changes in their order, and the parts of the log that they lie in. A batch has a reference to
/// each part, because one for each change would go from the cache of one core to that of another
/// twice.
#[derive(Default)]
pub(super) struct Batch {
    pub items: Vec<PageItem>,
    pub chunks: Vec<Arc<Chunk>>,
}

/// One change of a page in the log.
pub(super) struct PageItem {
    pub page: PageId,
    pub tree: TreeId,
    pub gsn: Gsn,
    pub what: PageChange,
}

pub(super) enum PageChange {
    /// An op of [`record`].
    Op { code: u8, payload: Payload },
    /// The page is no longer in a tree.
    Free,
}

/// Bytes of a chunk of a batch.
pub(super) struct Payload {
    /// Its place in the batch.
    chunk: u32,
    start: u32,
    len: u32,
}

impl Payload {
    /// `bytes` lie in `chunk`, which is at place `at` of the batch.
    pub fn new(at: u32, chunk: &Chunk, bytes: &[u8]) -> Payload {
        let start = bytes.as_ptr() as usize - chunk.bytes.as_ptr() as usize;
        assert!(start + bytes.len() <= chunk.bytes.len(), "a payload lies in its chunk");
        Payload { chunk: at, start: start as u32, len: bytes.len() as u32 }
    }

    fn bytes<'b>(&self, chunks: &'b [Arc<Chunk>]) -> &'b [u8] {
        &chunks[self.chunk as usize].bytes[self.start as usize..][..self.len as usize]
    }
}

/// Runs one worker; gives the counters of its cache, and the ghosts that it met.
pub(super) fn run(
    mut cache: Cache<'_>,
    batches: Receiver<Batch>,
    shared: &RedoState,
) -> (Counts, FoundGhosts) {
    let outcome = (|| {
        while let Ok(batch) = batches.recv() {
            if shared.is_stopped() {
                return Ok(());
            }
            apply(&mut cache, &batch)?;
        }
        // Without an end the log was not read to it.
        let Some(end) = shared.end.get().filter(|_| !shared.is_stopped()) else { return Ok(()) };
        let (gsn, page) = cache.counts.newest;
        if epoch_of(gsn) > end.epoch {
            return Err(Error::corruption(page, newer(epoch_of(gsn), end.epoch)));
        }
        cache.write_all()
    })();
    if let Err(error) = outcome {
        shared.fail(error);
    }
    (cache.counts, std::mem::take(&mut cache.ghosts))
}

/// Prefetch distance in items: of the lines of a page's header, and of the lines of its record.
const PAGE_AHEAD: usize = 16;
const RECORD_AHEAD: usize = 8;

/// Applies a batch in order, in parts whose pages can be read together.
///
/// With random pages most of the time would be cache misses. So the lines of the next items are
/// prefetched.
fn apply(cache: &mut Cache<'_>, Batch { items, chunks }: &Batch) -> Result<()> {
    let mut batch = &items[..];
    let (mut missing, mut known) = (Vec::new(), HashSet::<_, RandomState>::default());
    let mut slots = Vec::with_capacity(batch.len());
    while !batch.is_empty() {
        missing.clear();
        known.clear();
        slots.clear();
        for item in batch {
            let mut slot = None;
            if let PageChange::Op { code, .. } = item.what {
                slot = cache.find(item.page);
                if slot.is_none()
                    && !(needs_page(code).1 && cache.is_lost(item.page))
                    && !known.contains(&item.page)
                {
                    if needs_page(code).1 {
                        if missing.len() == cache.read_batch() {
                            break;
                        }
                        missing.push(item.page);
                    }
                    known.insert(item.page);
                }
            }
            slots.push(slot);
        }
        cache.read_ahead(&mut missing)?;
        let (part, rest) = batch.split_at(slots.len());
        for (at, item) in part.iter().enumerate() {
            if let Some(&Some(slot)) = slots.get(at + PAGE_AHEAD) {
                cache.prefetch(slot);
            }
            if let (Some(&Some(slot)), Some(item)) =
                (slots.get(at + RECORD_AHEAD), part.get(at + RECORD_AHEAD))
                && let PageChange::Op { code, payload } = &item.what
            {
                record::prefetch_record(cache.peek(slot), *code, payload.bytes(chunks));
            }
            apply_one(cache, item, chunks, slots[at])?;
        }
        batch = rest;
    }
    Ok(())
}

/// Applies an item whose page may be in `slot`.
fn apply_one(
    cache: &mut Cache<'_>,
    item: &PageItem,
    chunks: &[Arc<Chunk>],
    slot: Option<CacheSlot>,
) -> Result<()> {
    let &PageItem { page, tree, gsn, ref what } = item;
    let PageChange::Op { code, payload } = what else {
        cache.forget(page);
        return Ok(());
    };
    let needs_page = needs_page(*code).1;
    let mut slot = cache.find_again(page, slot);
    if slot.is_none() && !(needs_page && cache.is_lost(page)) {
        slot = match needs_page {
            false => Some(cache.make(page)?),
            // It was evicted meanwhile to make room for other pages.
            true => {
                cache.read_ahead(&mut [page])?;
                cache.find(page)
            }
        };
    }
    let Some(slot) = slot else {
        assert!(cache.is_lost(page), "a page that was read is there or lost");
        return Ok(());
    };
    let image = cache.get(slot);
    if image.u64_at(header::GSN) >= gsn.0 {
        return Ok(());
    }
    let lacks_tree = |found: u32| {
        Error::corruption(
            page,
            format_args!("it belongs to tree {found}, in the log to tree {tree}"),
        )
    };
    if needs_page && image.u32_at(header::TREE_ID) != tree.0 {
        let why = lacks_tree(image.u32_at(header::TREE_ID));
        cache.lose(page, why);
        return Ok(());
    }
    if let Err(what) = record::redo(image, page, *code, payload.bytes(chunks)) {
        let why = Error::corruption(page, format_args!("{what} (record {gsn})"));
        cache.lose(page, why);
        return Ok(());
    }
    if image.u32_at(header::TREE_ID) != tree.0 {
        return Err(lacks_tree(image.u32_at(header::TREE_ID)));
    }
    image.set_u64(header::GSN, gsn.0);
    cache.set_dirty(slot);
    Ok(())
}
