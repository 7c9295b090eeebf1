//! ACE around any policy that orders pages: dirty victims are written in batches of n_w = k_w, the
//! number of writes that the device serves in the time of one.
//!
//! Source: Papon, Athanassoulis, "ACEing the bufferpool management paradigm for modern storage
//! devices", ICDE 2023, section IV and Algorithm 1. Clustered order: Dubs et al., "FBARC: I/O
//! asymmetry aware buffer replacement strategy", ADMS 2013, section 3 (GRID clustering).
//!
//! **What an evictor does with dirty victims.** A victim is a page at or below the threshold of a
//! round.
//!
//! | | `off` | `writer` | `full` |
//! |---|---|---|---|
//! | written | each victim alone, as soon as it is found | n_w at once, the coldest ones of those found | as `writer` |
//! | evicted after the write | each | the coldest one (the paper's top page) | all: n_e = n_w |
//! | the other pages of the batch | - | stay as clean pages, and are the next victims | - |
//! | default of the write concurrency | 16 to 128, by the size of the pool | the same, or k_w of a device that was probed | as `writer` |
//!
//! `off` is a queue: the writer threads take what is there. It keeps a device busy, but it does not
//! know the device. With few victims it writes one or two pages at a time; with many the device
//! gets more writes than it serves at once, and reads wait for them. `writer` searches for further
//! dirty victims until it has n_w ([`SEARCH`] samples at most), and the writer threads, which have
//! n_w writes in flight together, share the batch. Where the paper's thread waits for the batch and
//! then reads, here a batch runs beside the reads of other threads: a thread waits only if no frame
//! is free.
//!
//! **Which pages a batch has.** A policy that compares values has the order of its samples: every
//! page of a batch has a value at or below the threshold of its round, as a page that `off` writes
//! has. A policy with an order of its own, as a list or a hand, is asked for further victims, and
//! the dirty ones among them fill the batch. Hence both write about the same pages as `off`. Clean
//! pages that were proposed on the way wait beside those of the batch, as the next victims: a hand
//! has passed them, and would come to others first.
//!
//! **Why nothing is lost.** A batch is a set of claims like those of `off`. The same writer copies
//! each image under the shared latch, makes the log durable up to its newest change, and writes it.
//! A page that stays is clean only if its change number is still that of the image. The list of
//! written pages ([`DirtyVictims::written`]) is a hint: [`evict`](crate::evict::evict) checks under
//! the latch that the frame holds a clean page of at most that value, whichever page it is.
//!
//! **Why nothing hangs.** A round that finds a dirty victim queues at least that one, unless the
//! queue is full; then a batch is on the device, and its end wakes the evictor. Collected victims
//! are not claimed: they are no promise, and they are dropped when they change.

use crate::{
    counters::{Counters, Refusal},
    evict::{evict, obstacle},
    frame::FrameState,
    ids::FrameId,
    pool::Pool,
    random::SeededRandom,
    replacement::{Frames, Order, Replacement},
    write_options::{Ace, WriteOrder},
    write_queue::Claim,
    writeback::claim_write,
};
use std::collections::VecDeque;

/// Samples of [`SAMPLE`] frames in which a round searches for further dirty victims.
const SEARCH: usize = 32;
/// Frames of a sample, whose headers are prefetched together.
const SAMPLE: usize = 16;
/// Pages that an order is asked for when a batch is not full.
const FURTHER: usize = 64;
/// Threshold of a page that an order proposed.
pub(crate) const ORDERED: f32 = 0.0;
/// Pages of a region of the file: the smallest cluster of FBARC's Figure 16, whose size hardly
/// matters there.
const REGION_PAGES: u64 = 1024;
/// With clustered order, victims are collected until there are so many batches of them.
const COLLECTED_BATCHES: usize = 8;

/// A dirty page at or below the threshold of a round.
#[derive(Clone, Copy, Debug)]
struct Victim {
    frame: FrameId,
    value: f32,
    /// Place in the file.
    page: u64,
}

/// A clean page, or one that is being written, that later rounds evict.
#[derive(Clone, Copy, Debug)]
struct Staying {
    frame: FrameId,
    /// It leaves if its value is at most this.
    threshold: f32,
    was_dirty: bool,
}

/// The dirty victims of one evictor.
pub(crate) struct DirtyVictims {
    ace: Ace,
    order: WriteOrder,
    /// Pages of a batch.
    n_w: usize,
    random: SeededRandom,
    found: Vec<Victim>,
    /// Pages of batches that stay until frames are needed, and clean ones that were proposed with
    /// them.
    written: VecDeque<Staying>,
    batch: Vec<Claim>,
    /// Frames that an order proposed beyond those that a round needs.
    further: Vec<FrameId>,
}

impl DirtyVictims {
    /// `None` if dirty victims are queued one by one.
    pub(crate) fn new(pool: &Pool, seed: u64) -> Option<DirtyVictims> {
        let (ace, order) = (pool.options.ace, pool.options.write_order);
        if ace == Ace::Off && order == WriteOrder::Value {
            return None;
        }
        let n_w = pool.options.write_concurrency;
        let found = Vec::with_capacity(COLLECTED_BATCHES * n_w);
        let (written, batch) = (VecDeque::with_capacity(2 * n_w), Vec::with_capacity(n_w));
        let random = SeededRandom::new(seed).mix(1);
        let further = Vec::with_capacity(FURTHER);
        Some(DirtyVictims { ace, order, n_w, random, found, written, batch, further })
    }

    /// Evicts up to `most` of the pages that stayed for this: they are clean, and were the coldest.
    /// Adds their frames to `freed`. Gives their number, and how many of them were written before.
    pub(crate) fn evict_written(
        &mut self,
        pool: &Pool,
        counters: &Counters,
        most: usize,
        freed: &mut Vec<FrameId>,
    ) -> (usize, usize) {
        let (mut evicted, mut written) = (0, 0);
        self.written.retain(|page| {
            if evicted == most || pool.header(page.frame).is_writing() {
                return true;
            }
            if evict(pool, counters, page.frame, page.threshold) {
                evicted += 1;
                written += usize::from(page.was_dirty);
                freed.push(page.frame);
            }
            // One that is in use again, or dirty, is no longer a victim.
            false
        });
        (evicted, written)
    }

    /// Adds a dirty victim that a round has found.
    pub(crate) fn add(&mut self, pool: &Pool, frame: FrameId, value: f32) {
        if !self.found.iter().any(|victim| victim.frame == frame) {
            let page = pool.header(frame).page_id().0;
            self.found.push(Victim { frame, value, page });
        }
    }

    /// Queues one batch of the victims found, or none. Gives its number of pages.
    pub(crate) fn write<P: Replacement>(
        &mut self,
        pool: &Pool,
        counters: &Counters,
        policy: &P,
        threshold: f32,
    ) -> usize {
        if self.found.is_empty() || pool.writes.is_full() {
            self.keep_only_collected();
            return 0;
        }
        self.search(pool, policy, threshold, self.wanted());
        if self.order == WriteOrder::Value {
            self.found.sort_by(|a, b| a.value.total_cmp(&b.value));
        }
        let queued = self.write_batch(pool, counters, threshold, |_| ());
        self.keep_only_collected();
        queued
    }

    /// As [`DirtyVictims::write`], with a policy that proposes its victims. `proposed`: those of
    /// this round, whose dirty pages were added. Victims that do not fit the batch stay for the
    /// next one: a hand has passed them.
    pub(crate) fn write_in_order(
        &mut self,
        pool: &Pool,
        counters: &Counters,
        (order, frames): (&dyn Order, &dyn Frames),
        proposed: &[FrameId],
    ) -> usize {
        if self.found.is_empty() || pool.writes.is_full() {
            return 0;
        }
        if self.found.len() < self.wanted() {
            let mut further = std::mem::take(&mut self.further);
            further.clear();
            order.propose(frames, FURTHER, &mut further);
            for frame in further.iter().filter(|frame| !proposed.contains(frame)) {
                if pool.header(*frame).is_dirty() {
                    self.add(pool, *frame, ORDERED);
                } else {
                    let (frame, threshold) = (*frame, ORDERED);
                    self.written.push_back(Staying { frame, threshold, was_dirty: false });
                }
            }
            self.further = further;
        }
        let refuse = |victim: Victim| {
            let header = pool.header(victim.frame);
            if header.page_id().0 == victim.page {
                order.refused(victim.frame, &header.tracker);
            }
        };
        self.write_batch(pool, counters, ORDERED, refuse)
    }

    /// Victims that are looked for.
    fn wanted(&self) -> usize {
        match self.order {
            WriteOrder::Value => self.n_w,
            WriteOrder::Clustered => COLLECTED_BATCHES * self.n_w,
        }
    }

    /// Victims that are not queued yet.
    pub(crate) fn found(&self) -> usize {
        self.found.len()
    }

    /// Pages that are being written, or are clean, and that the next rounds evict.
    pub(crate) fn staying(&self) -> usize {
        self.written.len()
    }

    /// Queues the first victims, coldest first, or those of the fullest region. Calls `refused` for
    /// those that cannot be written. Gives the number of queued ones.
    fn write_batch(
        &mut self,
        pool: &Pool,
        counters: &Counters,
        threshold: f32,
        mut refused: impl FnMut(Victim),
    ) -> usize {
        if self.order == WriteOrder::Clustered {
            self.gather_region();
        }
        let coldest = self.found.iter().take(self.n_w).map(|victim| victim.value);
        let coldest = coldest.fold(f32::INFINITY, f32::min);
        let mut top_page = self.ace == Ace::Writer;
        self.batch.clear();
        let count = self.n_w.min(self.found.len());
        for victim in self.found.drain(..count) {
            let value = pool.policy.value(&pool.header(victim.frame).tracker, pool.epoch());
            let claimed = match value > threshold {
                true => Err(Refusal::Hotter),
                false => claim_write(pool, victim.frame),
            };
            if let Err(why) = claimed {
                counters.refuse(why);
                refused(victim);
                continue;
            }
            let is_top = top_page && victim.value == coldest;
            top_page &= !is_top;
            let leaves = is_top || self.ace != Ace::Writer;
            if !leaves {
                let frame = victim.frame;
                self.written.push_back(Staying { frame, threshold, was_dirty: true });
            }
            let value = if leaves { threshold } else { f32::NEG_INFINITY };
            self.batch.push(Claim { frame: victim.frame, threshold: value });
        }
        pool.writes.push_batch(&self.batch);
        self.batch.len()
    }

    /// By value each round starts again. Clustered victims stay.
    fn keep_only_collected(&mut self) {
        if self.order == WriteOrder::Value {
            self.found.clear();
        }
    }

    /// Samples frames until there are `wanted` dirty victims (the paper's
    /// `populate_pages_to_writeback`), for a limited time.
    fn search<P: Replacement>(&mut self, pool: &Pool, policy: &P, threshold: f32, wanted: usize) {
        let (frames, epoch) = (pool.frames() as u64, pool.epoch());
        for _ in 0..SEARCH {
            if self.found.len() >= wanted {
                return;
            }
            let sample: [FrameId; SAMPLE] =
                std::array::from_fn(|_| FrameId(self.random.below(frames) as u32));
            for frame in sample {
                pool.prefetch_evict_candidate(frame);
            }
            for frame in sample {
                let header = pool.header(frame);
                if header.state() != FrameState::Hot
                    || !header.is_dirty()
                    || obstacle(header).is_some()
                {
                    continue;
                }
                let value = policy.value(&header.tracker, epoch);
                if value <= threshold {
                    self.add(pool, frame, value);
                }
            }
        }
    }

    /// Puts the victims of the fullest region first, then those of regions nearby, all in the order
    /// of the file.
    fn gather_region(&mut self) {
        self.found.sort_by_key(|victim| victim.page);
        let same_region = |a: &Victim, b: &Victim| a.page / REGION_PAGES == b.page / REGION_PAGES;
        let (mut at, mut best) = (0, (0, 0));
        for region in self.found.chunk_by(same_region) {
            if region.len() > best.1 {
                best = (at, region.len());
            }
            at += region.len();
        }
        // A batch that the region does not fill goes on after it, or ends with it.
        let first = best.0.min(self.found.len().saturating_sub(self.n_w));
        self.found.rotate_left(first);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn victims(order: WriteOrder, n_w: usize, pages: &[u64]) -> DirtyVictims {
        let found = pages.iter().map(|page| Victim { frame: FrameId(0), value: 0.0, page: *page });
        DirtyVictims {
            ace: Ace::Writer,
            order,
            n_w,
            random: SeededRandom::new(1),
            found: found.collect(),
            written: VecDeque::new(),
            batch: Vec::new(),
            further: Vec::new(),
        }
    }

    fn first_pages(victims: &DirtyVictims) -> Vec<u64> {
        victims.found.iter().take(victims.n_w).map(|victim| victim.page).collect()
    }

    #[test]
    fn the_fullest_region_of_the_file_is_written_first_in_the_order_of_the_file() {
        let region = 5 * REGION_PAGES;
        let pages = [region + 9, 3, region + 1, 9 * REGION_PAGES, region + 2, 2 * REGION_PAGES];
        let mut some = victims(WriteOrder::Clustered, 3, &pages);
        some.gather_region();
        assert_eq!(first_pages(&some), [region + 1, region + 2, region + 9]);
        // A larger batch goes on after the region.
        let mut more = victims(WriteOrder::Clustered, 4, &pages);
        more.gather_region();
        assert_eq!(first_pages(&more), [region + 1, region + 2, region + 9, 9 * REGION_PAGES]);
        // Or before it, where nothing comes after.
        let mut last = victims(WriteOrder::Clustered, 4, &[0, 1 << 30, 7, (1 << 30) + 1]);
        last.gather_region();
        assert_eq!(first_pages(&last), [0, 7, 1 << 30, (1 << 30) + 1]);
    }
}
