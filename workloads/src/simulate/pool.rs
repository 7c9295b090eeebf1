//! The simulated buffer pool: the cached pages, their frames, and their dirty flags.
//!
//! Pages are dense numbers (see `trace`), so all data about a page are array elements and no access
//! needs a hash look-up. A page keeps its frame until it leaves. `replay` owns the pool; policies
//! only read it.

use std::ops::{Index, IndexMut};

use crate::rng::{GOLDEN, Rng};

/// A page of the trace, numbered in the order of first touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page(pub u32);

/// A frame of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame(pub u32);

/// One value for each page of the trace.
#[derive(Clone, Debug)]
pub struct PerPage<T>(Vec<T>);

impl<T: Clone> PerPage<T> {
    /// `value` for each of `pages` pages.
    pub fn new(pages: usize, value: T) -> Self {
        Self(vec![value; pages])
    }
}

impl<T> Index<Page> for PerPage<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, page: Page) -> &T {
        &self.0[page.0 as usize]
    }
}

impl<T> IndexMut<Page> for PerPage<T> {
    #[inline(always)]
    fn index_mut(&mut self, page: Page) -> &mut T {
        &mut self.0[page.0 as usize]
    }
}

/// One value for each frame of the pool.
#[derive(Debug)]
pub struct PerFrame<T>(Vec<T>);

impl<T> PerFrame<T> {
    /// A result of `value` for each of `frames` frames.
    pub fn new(frames: usize, value: impl FnMut() -> T) -> Self {
        Self(std::iter::repeat_with(value).take(frames).collect())
    }
}

impl<T> Index<Frame> for PerFrame<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, frame: Frame) -> &T {
        &self.0[frame.0 as usize]
    }
}

impl<T> IndexMut<Frame> for PerFrame<T> {
    #[inline(always)]
    fn index_mut(&mut self, frame: Frame) -> &mut T {
        &mut self.0[frame.0 as usize]
    }
}

const NOWHERE: u32 = u32::MAX;

/// The cached pages.
#[derive(Debug)]
pub struct Pool {
    frame_of: Vec<u32>,
    page_in: Vec<u32>,
    dirty: Vec<bool>,
    dirty_pages: usize,
    free: Vec<u32>,
    capacity: usize,
}

impl Pool {
    /// An empty pool of `capacity` frames for a trace of `pages` pages.
    pub fn new(pages: usize, capacity: usize) -> Self {
        assert!(capacity > 0, "a pool without frames caches nothing");
        Self {
            frame_of: vec![NOWHERE; pages],
            page_in: Vec::with_capacity(capacity),
            dirty: vec![false; pages],
            dirty_pages: 0,
            free: Vec::new(),
            capacity,
        }
    }

    /// Number of frames.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of cached pages.
    pub fn len(&self) -> usize {
        self.page_in.len() - self.free.len()
    }

    /// Whether no page is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a page must leave before another one can come in.
    pub fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// Whether `page` is cached.
    #[inline(always)]
    pub fn holds(&self, page: Page) -> bool {
        self.frame_of[page.0 as usize] != NOWHERE
    }

    /// The frame of a cached page.
    #[inline(always)]
    pub fn frame(&self, page: Page) -> Frame {
        Frame(self.frame_of[page.0 as usize])
    }

    /// The page in `frame`, if there is one.
    #[inline(always)]
    pub fn page(&self, frame: Frame) -> Option<Page> {
        self.page_in.get(frame.0 as usize).filter(|page| **page != NOWHERE).map(|page| Page(*page))
    }

    /// Whether `page` is cached and differs from its image on the device.
    #[inline(always)]
    pub fn is_dirty(&self, page: Page) -> bool {
        self.dirty[page.0 as usize]
    }

    /// Number of dirty pages.
    pub fn dirty_pages(&self) -> usize {
        self.dirty_pages
    }

    /// All cached pages, in the order of their frames.
    pub fn pages(&self) -> impl Iterator<Item = Page> {
        self.page_in.iter().filter(|page| **page != NOWHERE).map(|page| Page(*page))
    }

    /// A cached page drawn uniformly; the pool must not be empty.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> Page {
        loop {
            let page = self.page_in[rng.below(self.page_in.len() as u64) as usize];
            if page != NOWHERE {
                return Page(page);
            }
        }
    }

    /// The next frame with a page, spread evenly over the pool: `at`, which is any number at first,
    /// moves by the golden ratio. The pool must not be empty.
    #[inline]
    pub fn spread_frame(&self, at: &mut u64) -> Frame {
        loop {
            *at = at.wrapping_add(GOLDEN);
            let frame = (u128::from(*at) * self.page_in.len() as u128) >> 64;
            let frame = Frame(frame as u32);
            if self.free.is_empty() || self.page(frame).is_some() {
                return frame;
            }
        }
    }

    /// A frame with a page, drawn uniformly; the pool must not be empty.
    #[inline]
    pub fn draw_frame(&self, rng: &mut Rng) -> Frame {
        loop {
            let frame = Frame(rng.below(self.page_in.len() as u64) as u32);
            if self.free.is_empty() || self.page(frame).is_some() {
                return frame;
            }
        }
    }

    /// Puts `page` into a free frame, or into one beyond the capacity.
    pub(super) fn insert(&mut self, page: Page, dirty: bool) {
        assert!(!self.holds(page), "a page has one frame");
        let frame = self.free.pop().unwrap_or(self.page_in.len() as u32);
        if frame as usize == self.page_in.len() {
            self.page_in.push(page.0);
        } else {
            self.page_in[frame as usize] = page.0;
        }
        self.frame_of[page.0 as usize] = frame;
        if dirty {
            self.soil(page);
        }
    }

    /// Removes `page`; returns whether it was dirty.
    pub(super) fn evict(&mut self, page: Page) -> bool {
        assert!(self.holds(page), "only a cached page can be evicted");
        let frame = std::mem::replace(&mut self.frame_of[page.0 as usize], NOWHERE);
        self.page_in[frame as usize] = NOWHERE;
        self.free.push(frame);
        self.clean(page)
    }

    /// Marks `page` as changed.
    #[inline(always)]
    pub(super) fn soil(&mut self, page: Page) {
        let dirty = &mut self.dirty[page.0 as usize];
        self.dirty_pages += usize::from(!*dirty);
        *dirty = true;
    }

    /// Marks `page` as equal to its image on the device; returns whether it was dirty.
    pub(super) fn clean(&mut self, page: Page) -> bool {
        let was_dirty = std::mem::take(&mut self.dirty[page.0 as usize]);
        self.dirty_pages -= usize::from(was_dirty);
        was_dirty
    }
}

/// Draws several different cached pages.
#[derive(Debug)]
pub struct Sampler {
    marks: Vec<u32>,
    round: u32,
}

impl Sampler {
    /// A sampler for a pool of `capacity` frames.
    pub fn new(capacity: usize) -> Self {
        Self { marks: vec![0; capacity], round: 0 }
    }

    /// Puts `number` different cached pages, or all if there are fewer, into `sample`.
    pub fn draw(&mut self, pool: &Pool, rng: &mut Rng, number: usize, sample: &mut Vec<Page>) {
        sample.clear();
        if number >= pool.len() {
            sample.extend(pool.pages());
            return;
        }
        self.begin();
        while sample.len() < number {
            let page = pool.draw(rng);
            if self.mark(pool.frame(page)) {
                sample.push(page);
            }
        }
    }

    /// Puts the frames of `number` different pages, or of all, into `sample`: the next ones of an
    /// even spread over the pool, see [`Pool::spread_frame`].
    #[inline]
    pub fn spread_frames(
        &mut self,
        pool: &Pool,
        at: &mut u64,
        number: usize,
        sample: &mut Vec<Frame>,
    ) {
        sample.clear();
        if number >= pool.len() {
            sample.extend(pool.pages().map(|page| pool.frame(page)));
            return;
        }
        self.begin();
        while sample.len() < number {
            let frame = pool.spread_frame(at);
            if self.mark(frame) {
                sample.push(frame);
            }
        }
    }

    fn begin(&mut self) {
        if self.round == u32::MAX {
            self.marks.fill(0);
            self.round = 0;
        }
        self.round += 1;
    }

    /// Whether `frame` was not drawn before in this round.
    #[inline]
    fn mark(&mut self, frame: Frame) -> bool {
        std::mem::replace(&mut self.marks[frame.0 as usize], self.round) != self.round
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_samples_pass_no_frame_for_long() {
        for frames in [1usize, 2, 9, 50, 1000] {
            let mut pool = Pool::new(frames, frames);
            (0..frames as u32).for_each(|page| pool.insert(Page(page), false));
            let (mut sampler, mut at, mut sample) = (Sampler::new(frames), 77, vec![]);
            let (mut seen, mut draws) = (vec![0; frames], 0);
            while draws < 3 * frames {
                sampler.spread_frames(&pool, &mut at, 8, &mut sample);
                assert_eq!(sample.len(), frames.min(8));
                for frame in &sample {
                    draws += 1;
                    seen[frame.0 as usize] += 1;
                }
            }
            assert!(seen.iter().all(|times| (1..=8).contains(times)), "{frames}: {seen:?}");
        }
    }

    #[test]
    fn pages_keep_their_frames_and_freed_frames_are_used_again() {
        let mut pool = Pool::new(10, 3);
        for page in [4, 5, 6] {
            pool.insert(Page(page), page == 5);
        }
        assert!(pool.is_full() && pool.is_dirty(Page(5)) && pool.dirty_pages() == 1);
        assert!(pool.evict(Page(5)) && !pool.evict(Page(4)));
        pool.insert(Page(9), false);
        assert_eq!((pool.frame(Page(9)), pool.len(), pool.dirty_pages()), (Frame(0), 2, 0));
        assert_eq!(pool.pages().collect::<Vec<_>>(), [Page(9), Page(6)]);
        assert_eq!((pool.page(Frame(1)), pool.page(Frame(2))), (None, Some(Page(6))));
    }

    #[test]
    fn a_sample_has_different_pages() {
        let mut pool = Pool::new(100, 50);
        (0..50).for_each(|page| pool.insert(Page(page), false));
        (10..20).for_each(|page| assert!(!pool.evict(Page(page))));
        let (mut sampler, mut rng, mut sample) = (Sampler::new(50), Rng::new(1, 1), vec![]);
        for number in [1, 8, 39, 40, 60] {
            sampler.draw(&pool, &mut rng, number, &mut sample);
            sample.sort();
            sample.dedup();
            assert_eq!(sample.len(), number.min(40));
            assert!(sample.iter().all(|page| pool.holds(*page)));
        }
    }
}
