//! Replays one trace with one policy, and counts the cost.
//!
//! Counting: the cache starts empty; every access to a page that is not cached is a miss and a
//! read, whether it reads or writes. A page leaves only when no frame is free. An access `W` makes
//! its page dirty; a dirty page that leaves is one write, and so is each page that is dirty at the
//! end of the trace.

use std::time::Duration;

use super::ace::Ace;
use super::pins::Pins;
use super::policy::{Access, Policy};
use super::pool::{Page, Pool};
use super::trace::Trace;

/// The counts of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Accesses.
    pub accesses: u64,
    /// Accesses to pages that were not cached.
    pub misses: u64,
    /// Pages read: misses and pages read ahead.
    pub reads: u64,
    /// Pages written while the trace ran.
    pub writes: u64,
    /// Pages that were dirty at the end.
    pub writes_at_end: u64,
    /// Read requests to the device: pages read together count once.
    pub read_requests: u64,
    /// Write requests to the device, those at the end included.
    pub write_requests: u64,
    /// Runs of neighbouring pages that were written one after the other, those at the end included.
    pub write_runs: u64,
    /// Processor time of the replay.
    pub cpu: Duration,
    /// Memory of the policy for each cached page, in bytes.
    pub bytes_per_page: f64,
}

/// The costs of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// Time to read a page, in microseconds.
    pub read_us: f64,
    /// Time to write a page, in microseconds.
    pub write_us: f64,
    /// Time to write a page right after the page before it, in microseconds.
    pub sequential_write_us: f64,
    /// Time of a write divided by the time of a read on the emulated device (ACE, section II).
    pub asymmetry: f64,
    /// Pages that the emulated device reads or writes in the time of one page.
    pub concurrency: usize,
}

impl Default for Device {
    /// The flash chip of FOR's Table 5, and the concurrency of ACE's PCIe device.
    fn default() -> Self {
        Self {
            read_us: 100.0,
            write_us: 800.0,
            sequential_write_us: 800.0,
            asymmetry: 8.0,
            concurrency: 8,
        }
    }
}

impl Counts {
    /// Share of accesses that found their page.
    pub fn hit_ratio(&self) -> f64 {
        1.0 - self.misses as f64 / self.accesses as f64
    }

    /// All writes.
    pub fn all_writes(&self) -> u64 {
        self.writes + self.writes_at_end
    }

    /// Cost of all reads and writes one by one, in microseconds (FOR, equation 1).
    pub fn cost(&self, device: &Device) -> f64 {
        self.reads as f64 * device.read_us + self.all_writes() as f64 * device.write_us
    }

    /// Time that the emulated device is busy (ACE, Figure 10 h): a request takes the time of one
    /// page, for any number of pages.
    pub fn device_seconds(&self, device: &Device) -> f64 {
        let reads = self.read_requests as f64 + self.write_requests as f64 * device.asymmetry;
        reads * device.read_us / 1e6
    }

    /// Processor time and device time of all reads and writes, of which the pages of a run after
    /// its first one are sequential (FBARC, section 4.2.3).
    pub fn combined_seconds(&self, device: &Device) -> f64 {
        let sequential = self.all_writes().saturating_sub(self.write_runs);
        let writes = self.write_runs as f64 * device.write_us
            + sequential as f64 * device.sequential_write_us;
        self.cpu.as_secs_f64() + (self.reads as f64 * device.read_us + writes) / 1e6
    }

    /// Processor time for each access.
    pub fn cpu_ns_per_access(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.accesses as f64
    }
}

/// Takes what reaches the device, in order.
pub trait IoSink {
    /// The page with this number in the file of the trace is read.
    fn read(&mut self, number: u64);
    /// `pages` neighbouring pages from this one on are written at once.
    fn write(&mut self, number: u64, pages: u64);
}

/// A pool, its policy and the counts so far.
pub struct Replay<'a> {
    /// The pool.
    pub pool: Pool,
    /// The counts so far, without processor time.
    pub counts: Counts,
    policy: &'a mut dyn Policy,
    evicts_early: bool,
    victims: Vec<Page>,
    /// Number of next victims that cannot leave.
    refusals: usize,
    pins: Option<Pins>,
    trace: &'a Trace,
    ace: Option<Ace>,
    /// Dirty pages that left or are cleaned, until they are written.
    dirty: Vec<Page>,
    /// The page after the last one that was written.
    after_write: Option<u64>,
    sink: Option<&'a mut dyn IoSink>,
}

impl<'a> Replay<'a> {
    /// An empty pool of `capacity` frames for `policy`, which must be new.
    pub fn new(trace: &'a Trace, capacity: usize, policy: &'a mut dyn Policy) -> Self {
        Self {
            pool: Pool::new(trace.pages(), capacity),
            counts: Counts::default(),
            evicts_early: policy.evicts_early(),
            policy,
            victims: Vec::new(),
            refusals: 0,
            pins: None,
            trace,
            ace: None,
            dirty: Vec::new(),
            after_write: None,
            sink: None,
        }
    }

    /// Puts ACE around the policy.
    pub fn with_ace(self, ace: Ace) -> Self {
        Self { ace: Some(ace), ..self }
    }

    /// Holds some pages for a while.
    pub fn with_pins(self, pins: Pins) -> Self {
        Self { pins: Some(pins), ..self }
    }

    /// Reports what reaches the device to `sink`.
    pub fn with_sink(self, sink: &'a mut dyn IoSink) -> Self {
        Self { sink: Some(sink), ..self }
    }

    /// Counts the read of `page`.
    fn read(&mut self, page: Page) {
        self.counts.reads += 1;
        if let Some(sink) = &mut self.sink {
            sink.read(self.trace.id(page));
        }
    }

    /// Writes the dirty pages that were collected: neighbours are one run, also with the page that
    /// was written before them.
    fn write_out(&mut self) {
        let trace = self.trace;
        self.dirty.sort_unstable_by_key(|page| trace.id(*page));
        let next = |page: Page| trace.id(page).wrapping_add(1);
        for run in self.dirty.chunk_by(|a, b| next(*a) == trace.id(*b)) {
            let first = trace.id(run[0]);
            self.counts.write_runs += u64::from(self.after_write != Some(first));
            self.after_write = run.last().map(|page| next(*page));
            if let Some(sink) = &mut self.sink {
                sink.write(first, run.len() as u64);
            }
        }
        self.dirty.clear();
    }

    /// The next access of the trace.
    #[inline]
    pub fn access(&mut self, access: Access) {
        let Access { page, write } = access;
        self.counts.accesses += 1;
        if let Some(ace) = &mut self.ace {
            ace.follow(page);
        }
        if self.pool.holds(page) {
            self.policy.hit(access, &self.pool);
            if write {
                self.pool.soil(page);
            }
            self.evict_early();
        } else {
            self.counts.misses += 1;
            self.counts.read_requests += 1;
            if !self.policy.miss(access, &self.pool) {
                // The page is read, and perhaps changed and written, without the cache.
                self.read(page);
                self.counts.writes += u64::from(write);
                self.counts.write_requests += u64::from(write);
                self.dirty.extend(write.then_some(page));
                self.write_out();
                return;
            }
            self.evict_early();
            let mut ahead = self.pool.capacity() - self.pool.len().min(self.pool.capacity());
            if self.pool.is_full() {
                ahead = self.make_room();
            }
            self.read(page);
            self.pool.insert(page, write);
            self.policy.fetch(access, &self.pool);
            if self.ace.is_some() {
                self.read_ahead(page, ahead);
            }
        }
        self.policy.unfix(page, &self.pool);
    }

    #[inline]
    fn evict_early(&mut self) {
        if self.evicts_early {
            self.victims.clear();
            self.policy.leaving(&mut self.victims);
            let dirty = self.evict_victims();
            self.write(dirty);
        }
    }

    /// Writes `dirty` victims, with ACE also the next dirty pages.
    fn write(&mut self, dirty: usize) {
        match self.ace.as_ref().map(|ace| ace.settings.nw) {
            Some(at_once) if dirty > 0 => {
                let others = self.clean_others(at_once.saturating_sub(dirty));
                self.count_writes(dirty + others, at_once);
            }
            _ => self.count_writes(dirty, 1),
        }
    }

    /// Frees one or more frames; returns how many of them ACE fills by reading ahead.
    fn make_room(&mut self) -> usize {
        let mut held = 0;
        loop {
            self.victims.clear();
            self.policy.select(&self.pool, &mut self.victims);
            assert!(!self.victims.is_empty() || self.evicts_early, "a full pool has a victim");
            let refused = self.refusals.min(self.victims.len());
            self.refusals -= refused;
            for page in self.victims.drain(..refused) {
                self.policy.cannot_evict(page, &self.pool);
            }
            let asked = self.victims.len();
            self.spare_pinned(&mut held);
            let (evicted, refused) = (self.victims.len(), refused + asked - self.victims.len());
            // They leave the pool before ACE asks the policy for more, so that it cannot name them
            // again.
            let dirty = self.evict_victims();
            self.write(dirty);
            let ahead = match self.ace.as_ref().map(|ace| ace.settings.ne) {
                Some(most) if dirty > 0 => {
                    self.evict_more(evicted, most.min(self.pool.capacity() / 2)) - 1
                }
                _ => 0,
            };
            if refused == 0 || !self.pool.is_full() {
                return ahead;
            }
        }
    }

    /// Gives victims that are pinned back to the policy, and counts them in `held`, unless that are
    /// too many already.
    fn spare_pinned(&mut self, held: &mut usize) {
        let Some(pins) = self.pins else { return };
        let (policy, pool, now) = (&mut self.policy, &self.pool, self.counts.accesses);
        self.victims.retain(|page| {
            let stays = *held < pins.most && pins.hold(*page, now);
            if stays {
                *held += 1;
                policy.cannot_evict(*page, pool);
            }
            !stays
        });
    }

    /// ACE's Writer: up to `most` of the next dirty pages in the policy's order become clean and
    /// stay. Returns their number.
    fn clean_others(&mut self, most: usize) -> usize {
        let pool = &mut self.pool;
        let most = most.min(pool.dirty_pages());
        let mut others = Vec::with_capacity(most);
        if most > 0 {
            self.policy.upcoming(pool, &mut |page| {
                if pool.is_dirty(page) {
                    others.push(page);
                }
                others.len() < most
            });
        }
        for page in &others {
            pool.clean(*page);
            self.dirty.push(*page);
            self.policy.cleaned(*page, pool);
        }
        others.len()
    }

    /// ACE's Evictor: after the `evicted` pages evicts more, until there are `most` or the next
    /// victim is dirty or pinned. Returns the number of all.
    fn evict_more(&mut self, mut evicted: usize, most: usize) -> usize {
        let mut clean = true;
        while clean && evicted < most {
            self.victims.clear();
            self.policy.select(&self.pool, &mut self.victims);
            clean = !self.victims.is_empty();
            let (policy, pool) = (&mut self.policy, &self.pool);
            let (pins, now) = (self.pins, self.counts.accesses);
            self.victims.retain(|page| {
                let pinned = pins.is_some_and(|pins| pins.hold(*page, now));
                let stays = pinned || pool.is_dirty(*page);
                if stays {
                    policy.cannot_evict(*page, pool);
                    clean = false;
                }
                !stays
            });
            evicted += self.victims.len();
            self.evict_victims();
        }
        evicted
    }

    /// Counts pages that are written `at_once` in a request.
    fn count_writes(&mut self, pages: usize, at_once: usize) {
        self.counts.writes += pages as u64;
        self.counts.write_requests += match &self.ace {
            Some(ace) => ace.requests(pages, at_once),
            None => pages as u64,
        };
        self.write_out();
    }

    /// ACE's Reader: fills up to `frames` free frames with pages that are likely to follow `page`.
    fn read_ahead(&mut self, page: Page, frames: usize) {
        let Some(ace) = &mut self.ace else { return };
        let free = self.pool.capacity().saturating_sub(self.pool.len());
        let most = frames.min(ace.settings.ne - 1).min(free);
        if most == 0 {
            return;
        }
        let number = self.trace.id(page);
        let ahead = ace.ahead(page, number, most, |page| self.pool.holds(page));
        let last = ahead.last().map_or(number, |page| self.trace.id(*page));
        ace.read_up_to(last);
        // The page itself was counted as a separate request.
        self.counts.read_requests += ace.requests(1 + ahead.len(), ace.concurrency) - 1;
        for page in ahead {
            self.read(page);
            self.pool.insert(page, false);
            self.policy.prefetched(page, &self.pool);
        }
    }

    /// Lets the next `number` victims stay, as if they were in use.
    pub fn refuse(&mut self, number: usize) {
        self.refusals = number;
    }

    /// Removes the victims from the pool; returns how many of them are dirty.
    fn evict_victims(&mut self) -> usize {
        let before = self.dirty.len();
        self.dirty.extend(self.victims.drain(..).filter(|victim| self.pool.evict(*victim)));
        self.dirty.len() - before
    }

    /// Drops a cached page without the policy and without a write, as if its contents were deleted.
    pub fn drop_page(&mut self, page: Page) {
        self.policy.remove(page, &self.pool);
        self.pool.evict(page);
    }

    /// Writes back pages that are dirty at the end; returns the counts.
    pub fn finish(mut self) -> Counts {
        self.counts.writes_at_end = self.pool.dirty_pages() as u64;
        self.counts.write_requests += match &self.ace {
            Some(ace) => ace.requests(self.pool.dirty_pages(), ace.settings.nw),
            None => self.counts.writes_at_end,
        };
        self.dirty.extend(self.pool.pages().filter(|page| self.pool.is_dirty(*page)));
        self.write_out();
        self.counts.bytes_per_page = self.policy.bytes_per_page();
        self.counts
    }
}

/// Replays the whole of `trace`. Returns `None` if `keep_going`, which it calls now and then,
/// returns false.
pub fn replay(
    trace: &Trace,
    capacity: usize,
    policy: &mut dyn Policy,
    keep_going: impl FnMut(usize) -> bool,
) -> Option<Counts> {
    run(trace, Replay::new(trace, capacity, policy), keep_going)
}

/// Replays all of `trace` in `replay`.
pub(super) fn run(
    trace: &Trace,
    mut replay: Replay,
    mut keep_going: impl FnMut(usize) -> bool,
) -> Option<Counts> {
    /// Accesses between two calls of `keep_going`: few, because some policies are slow.
    const STRIDE: usize = 1 << 8;
    let started = cpu_time();
    let mut accesses = trace.accesses();
    while accesses.len() > 0 {
        let stride = accesses.len().min(STRIDE);
        accesses.by_ref().take(stride).for_each(|access| replay.access(access));
        if !keep_going(stride) {
            return None;
        }
    }
    let cpu = cpu_time().saturating_sub(started);
    Some(Counts { cpu, ..replay.finish() })
}

/// Processor time of this thread.
pub(super) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
