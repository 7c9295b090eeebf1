//! The interface of a replacement policy: the events of Gilbert, "Bottlenecks Uncovered" (2020),
//! section 1.2, as one trait.
//!
//! For a cached page: `hit`, `unfix`. For another page: `miss`; then, if no frame is free, `select`
//! until one is; then `fetch`, `unfix`. A victim that cannot leave comes back by `cannot_evict`,
//! and a page that is dropped without the policy is reported by `remove`. The pool in an event has
//! the state before it, except for `fetch`, when the page has its frame.

use super::pool::{Page, Pool};

/// One access of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The page.
    pub page: Page,
    /// Whether the access changes it.
    pub write: bool,
}

/// A replacement policy with its state.
pub trait Policy: Send {
    /// A cached page is accessed.
    fn hit(&mut self, access: Access, pool: &Pool);

    /// A page that is not cached is accessed, before any eviction for it. `false` makes the access
    /// bypass the cache.
    fn miss(&mut self, _access: Access, _pool: &Pool) -> bool {
        true
    }

    /// Chooses one or more victims, forgets them, and adds them to `victims`, which is empty.
    fn select(&mut self, pool: &Pool, victims: &mut Vec<Page>);

    /// Whether `leaving` must be called after each `hit` and `miss`. Such a policy may choose no
    /// victim in `select`; the pool then holds one page above its capacity.
    fn evicts_early(&self) -> bool {
        false
    }

    /// Adds the pages that left on the last `hit` or `miss` to `victims`, which is empty.
    fn leaving(&mut self, _victims: &mut Vec<Page>) {}

    /// The page of the last `miss` is in its frame.
    fn fetch(&mut self, access: Access, pool: &Pool);

    /// A page was read ahead and is in its frame. Policies with a cold end put it there; for others
    /// it is a page like any other.
    fn prefetched(&mut self, page: Page, pool: &Pool) {
        let access = Access { page, write: false };
        if self.miss(access, pool) {
            self.fetch(access, pool);
        }
    }

    /// The use of `page` ended.
    fn unfix(&mut self, _page: Page, _pool: &Pool) {}

    /// The last victim cannot leave now; it is cached as before.
    fn cannot_evict(&mut self, page: Page, pool: &Pool);

    /// A cached page was dropped, or its contents with it: forget it.
    fn remove(&mut self, page: Page, pool: &Pool);

    /// A dirty page was written back and stays.
    fn cleaned(&mut self, _page: Page, _pool: &Pool) {}

    /// Calls `take` for cached pages in the order in which they will leave, until it returns
    /// `false`: for ACE, which writes them early. A page that is written again before it leaves was
    /// written in vain, so pages that stay are not offered, and a policy without an order draws its
    /// next victims now and keeps to them ([`Plan`](super::upcoming::Plan)).
    fn upcoming(&mut self, pool: &Pool, take: &mut dyn FnMut(Page) -> bool);

    /// Bytes of the state for each cached page, that of remembered pages included, in an
    /// implementation with 8-byte pointers and page ids and 4-byte counters (WATT, section 3.2).
    fn bytes_per_page(&self) -> f64;
}

/// Offers the cached pages by frame, from a given one on.
pub fn by_frame(pool: &Pool, from: usize, take: &mut dyn FnMut(Page) -> bool) {
    let frames = pool.capacity();
    (0..frames)
        .map(|step| super::pool::Frame(((from + step) % frames) as u32))
        .filter_map(|frame| pool.page(frame))
        .all(take);
}
