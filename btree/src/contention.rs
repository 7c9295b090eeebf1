//! Contention split: a leaf whose latch writers of different records contend for is split in two
//! ("Contention and Space Management in B-Trees", section 3). Each write calls
//! [`Tree::sample_contention`] at its end.

use crate::{
    journal::Context,
    node::{NodeRef, Search},
    split::RESERVE,
    tree::Tree,
};
use wattle_buffer::Exclusive;

/// One write in this many is sampled: tracking must not become contention itself.
const SAMPLE_EVERY: u64 = 128;
/// Sampled writes after which a leaf is judged.
const PERIOD: u16 = 128;
/// A leaf is split when at least this share of the sampled writes was contended, percent.
const CONTENDED_PERCENT: u32 = 1;

impl Tree {
    /// Samples one write in [`SAMPLE_EVERY`]. When enough writes of a period met another writer at
    /// a different record, splits the leaf between the two. Releases the leaf.
    #[inline(always)]
    pub(crate) fn sample_contention(
        &self,
        cx: &Context,
        leaf: Exclusive<'_>,
        key: &[u8],
        search: Search,
        restarts: u32,
    ) {
        if cx.worker.random().is_multiple_of(SAMPLE_EVERY) {
            self.sampled_write(cx, leaf, key, search, restarts);
        }
    }

    #[cold]
    fn sampled_write(
        &self,
        cx: &Context,
        leaf: Exclusive<'_>,
        key: &[u8],
        search: Search,
        restarts: u32,
    ) {
        let header = leaf.header();
        let last = header.sample_write(search.position, restarts > 0);
        if header.write_samples() < PERIOD {
            return;
        }
        let (samples, contended) = header.take_write_samples();
        let count = NodeRef::from(leaf.page()).count();
        let share = u32::from(contended) * 100 / u32::from(samples.max(1));
        if share < CONTENDED_PERCENT || last == search.position || count < 3 {
            return;
        }
        drop(leaf);
        // The write is done, so the split may fail for any reason. Do not wait for pages: most
        // writers hold none in reserve.
        if !cx.worker.try_reserve(RESERVE) {
            return;
        }
        let between = last.max(search.position).min(count - 1);
        if self.contention_split_step(cx, key, between).is_ok() {
            cx.worker.counters().contention_splits.add(1);
        }
    }
}
