//! Back end `sim`: a device in memory that fails by plan and can lose power.
//!
//! For tests. The device outlives the engine that uses it: keep the `Arc`, close or drop the
//! engine, and open another one on it. [`SimStorage::crash`] returns a state that a power cut may
//! leave.
//!
//! Model: writes go to a volatile cache that reads see at once; a sync moves it to the medium. A
//! power cut keeps everything that was synced. Of every page written since, it keeps any mixture,
//! by 512-byte sectors, of the content at the last sync and the later writes. A sync that fails
//! moves nothing, and with [`Fault::Unsettled`] its writes never become durable.
//!
//! The same device holds the segments of the log, under the same lock (`sim_log`), so that a crash
//! is one instant of both.
//!
//! Invariants: all decisions follow from the seed of the plan (see [`super::faults`]). Memory is at
//! most twice the pages, plus [`super::KEPT_VERSIONS`] per page written since the last sync.

use super::{
    faults::{Fault, FaultPlan, Injector, Op, Verdict},
    file::offset_of,
    medium::{Cut, Medium, zeroes},
    sim_segment::{self, SimSegment},
    storage::{PageWrite, ReadTarget, Storage},
};
use crate::{
    ids::PageId,
    page::{PAGE_SIZE, PageImage},
    random::SeededRandom,
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, fmt, io, sync::Arc, thread, time::Duration};

/// A simulated device.
pub struct SimStorage {
    pub(super) state: Mutex<SimState>,
}

pub(super) struct SimState {
    pub(super) medium: Medium,
    /// Segments of the log by number.
    pub(super) log: BTreeMap<u64, SimSegment>,
    /// Segments whose creation or removal a power cut would undo, with their state before it.
    pub(super) unsettled: BTreeMap<u64, Option<SimSegment>>,
    /// Segments that were passed on.
    pub(super) log_spares: Vec<SimSegment>,
    pub(super) injector: Injector,
    pub(super) counters: SimCounters,
    /// Reads that have a latency and have not ended.
    slow_reads: u64,
}

/// Operations since the device was made, failed ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounters {
    /// Pages read.
    pub reads: u64,
    /// Pages written.
    pub writes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Reservations.
    pub reservations: u64,
    /// Pages of the log read.
    pub log_reads: u64,
    /// Pages of the log written.
    pub log_writes: u64,
    /// Syncs of segments of the log.
    pub log_syncs: u64,
    /// Segments of the log created.
    pub log_creations: u64,
    /// Segments of the log removed.
    pub log_removals: u64,
    /// Operations that had a fault, latency aside.
    pub faults: u64,
    /// The most reads of pages that were under way at one time since the plan was set.
    pub reads_at_once: u64,
}

impl SimCounters {
    /// Orders two writes, of pages or of the log.
    pub(super) fn order(&self) -> u64 {
        self.writes + self.log_writes
    }
}

impl SimStorage {
    /// An empty device with the faults of `plan`.
    pub fn new(plan: FaultPlan) -> SimStorage {
        SimStorage::with_media(Medium::default(), BTreeMap::new(), plan)
    }

    fn with_media(medium: Medium, log: BTreeMap<u64, SimSegment>, plan: FaultPlan) -> SimStorage {
        let (injector, counters) = (Injector::new(plan), SimCounters::default());
        let (unsettled, log_spares) = (BTreeMap::new(), Vec::new());
        let slow_reads = 0;
        let state = SimState { medium, log, unsettled, log_spares, injector, counters, slow_reads };
        SimStorage { state: Mutex::new(state) }
    }

    /// Replaces the faults; the counts that rules refer to start again.
    pub fn set_plan(&self, plan: FaultPlan) {
        let state = &mut *self.state.lock();
        state.injector = Injector::new(plan);
        state.counters.reads_at_once = state.slow_reads;
    }

    /// Turns off all faults and the limit. Their effects on the medium stay.
    pub fn heal(&self) {
        let seed = self.seed();
        self.set_plan(FaultPlan::new(seed));
    }

    /// The seed of the plan, for the message of a failing test.
    pub fn seed(&self) -> u64 {
        self.state.lock().injector.plan().seed()
    }

    /// Operations since the device was created.
    pub fn counters(&self) -> SimCounters {
        self.state.lock().counters
    }

    /// A device without faults in a state that a power cut now may leave. Each `seed` gives one of
    /// the possible states; this device is not affected.
    pub fn crash(&self, seed: u64) -> SimStorage {
        self.crash_as(seed, Cut::Sectors)
    }

    /// As [`SimStorage::crash`], with a choice of how much is left.
    pub fn crash_as(&self, seed: u64, cut: Cut) -> SimStorage {
        let state = self.state.lock();
        let last = match cut {
            Cut::Prefix => {
                let log = state.log.values().flat_map(|segment| segment.medium.unsynced_orders());
                let mut orders: Vec<u64> = state.medium.unsynced_orders().chain(log).collect();
                orders.sort_unstable();
                let kept = SeededRandom::new(seed).below(orders.len() as u64 + 1) as usize;
                kept.checked_sub(1).map_or(0, |at| orders[at])
            }
            _ => 0,
        };
        let left = state.medium.after_power_cut(seed, cut, last);
        let mut segments = state.log.clone();
        if cut != Cut::Process {
            for (&number, before) in &state.unsettled {
                match before {
                    Some(segment) => segments.insert(number, segment.clone()),
                    None => segments.remove(&number),
                };
            }
        }
        let log = sim_segment::after_power_cut(&segments, seed, cut, last);
        let image = SimStorage::with_media(left, log, FaultPlan::new(seed));
        if cut == Cut::Process {
            let mut image = image.state.lock();
            // Later writes come after those that stay in the cache.
            image.counters = state.counters;
            image.unsettled = state.unsettled.clone();
        }
        image
    }

    /// A copy of the device without faults, as reads see it and all durable: the state after an
    /// orderly shutdown.
    pub fn clone_at_rest(&self) -> SimStorage {
        let state = self.state.lock();
        let (mut medium, mut log) = (state.medium.clone(), state.log.clone());
        medium.settle();
        log.values_mut().for_each(|segment| segment.medium.settle());
        SimStorage::with_media(medium, log, FaultPlan::new(state.injector.plan().seed()))
    }

    /// The bytes of `page` as reads see them, if it was ever written.
    pub fn raw_page(&self, page: PageId) -> Option<[u8; PAGE_SIZE]> {
        self.state.lock().medium.pages.get(&page.0)?.current().map(|bytes| **bytes)
    }

    /// Changes the bytes of `page` on the medium and in the cache, bypassing faults and counters,
    /// as decay would. A page that was never written starts as zeroes.
    pub fn modify_raw(&self, page: PageId, change: impl FnOnce(&mut [u8; PAGE_SIZE])) {
        let medium = &mut self.state.lock().medium;
        medium.capacity = medium.capacity.max(page.0.saturating_add(1));
        medium.synced_capacity = medium.synced_capacity.max(page.0.saturating_add(1));
        let page = medium.pages.entry(page.0).or_default();
        let mut bytes = **page.current().unwrap_or(zeroes());
        change(&mut bytes);
        page.set_synced(Arc::new(bytes));
    }

    /// The pages that were written, ascending.
    pub fn pages(&self) -> Vec<PageId> {
        let state = self.state.lock();
        let written = state.medium.pages.iter().filter(|(_, page)| page.current().is_some());
        written.map(|(&number, _)| PageId(number)).collect()
    }

    /// Pages with writes that a power cut may take.
    pub fn unsynced_pages(&self) -> Vec<PageId> {
        let state = self.state.lock();
        let unsynced = state.medium.pages.iter().filter(|(_, page)| !page.unsynced.is_empty());
        unsynced.map(|(&number, _)| PageId(number)).collect()
    }

    /// Reads without sleeping; the caller waits for the latency, see [`SimStorage::end_slow_read`].
    fn read(&self, page: PageId, into: &mut [u8; PAGE_SIZE]) -> (Duration, io::Result<()>) {
        let state = &mut *self.state.lock();
        state.counters.reads += 1;
        let verdict = state.judge(Op::Read, page.0);
        if !verdict.latency.is_zero() {
            state.slow_reads += 1;
            state.counters.reads_at_once = state.counters.reads_at_once.max(state.slow_reads);
        }
        (verdict.latency, state.medium.read(page, into, verdict))
    }

    /// Waits for the latency of a read.
    fn end_slow_read(&self, latency: Duration) {
        if !latency.is_zero() {
            thread::sleep(latency);
            self.state.lock().slow_reads -= 1;
        }
    }
}

impl SimState {
    pub(super) fn judge(&mut self, op: Op, page: u64) -> Verdict {
        let verdict = self.injector.judge(op, page);
        self.counters.faults += u64::from(verdict.fault.is_some());
        verdict
    }

    fn write(&mut self, page: PageId, image: &PageImage) -> (Duration, io::Result<()>) {
        self.counters.writes += 1;
        let verdict = self.judge(Op::Write, page.0);
        let latency = verdict.latency;
        let result = offset_of(page).and_then(|_| {
            within(self.injector.limit(), page.0.saturating_add(1))?;
            self.medium.write(page, image, verdict, self.counters.order())
        });
        (latency, result)
    }
}

fn within(limit: u64, pages: u64) -> io::Result<()> {
    if pages <= limit {
        return Ok(());
    }
    let what = format!("the simulated device is full at {limit} pages, {pages} needed");
    Err(io::Error::new(io::ErrorKind::StorageFull, what))
}

pub(super) fn sleep(latency: Duration) {
    if !latency.is_zero() {
        thread::sleep(latency);
    }
}

impl Storage for SimStorage {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn read_page(&self, target: &mut ReadTarget) -> io::Result<()> {
        let mut image = PageImage::zeroed();
        let result = self.read_image(target.page(), &mut image);
        target.fill(&image.0);
        result
    }

    fn start_read(self: Arc<Self>, mut target: ReadTarget) {
        let mut image = PageImage::zeroed();
        let (latency, result) = self.read(target.page(), &mut image.0);
        target.fill(&image.0);
        if latency.is_zero() {
            return target.end(result);
        }
        // A separate thread sleeps, so that latencies of several reads overlap.
        thread::spawn(move || {
            self.end_slow_read(latency);
            target.end(result);
        });
    }

    fn read_image(&self, page: PageId, image: &mut PageImage) -> io::Result<()> {
        let (latency, result) = self.read(page, &mut image.0);
        self.end_slow_read(latency);
        result
    }

    fn write_pages(&self, batch: &[PageWrite<'_>], results: &mut Vec<io::Result<()>>) {
        let mut longest = Duration::ZERO;
        for write in batch {
            let (latency, result) = self.state.lock().write(write.page, write.image);
            longest = longest.max(latency);
            results.push(result);
        }
        sleep(longest);
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.counters.syncs += 1;
        let verdict = state.judge(Op::Sync, 0);
        let result = match verdict.fault {
            Some(Fault::Error(kind)) => Err(io::Error::new(kind, verdict.name())),
            Some(Fault::Unsettled(kind)) => {
                state.medium.give_up_unsynced();
                Err(io::Error::new(kind, verdict.name()))
            }
            _ => {
                state.medium.sync();
                Ok(())
            }
        };
        drop(state);
        sleep(verdict.latency);
        result
    }

    fn capacity_pages(&self) -> u64 {
        self.state.lock().medium.capacity
    }

    fn reserve(&self, pages: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.counters.reservations += 1;
        let verdict = state.judge(Op::Reserve, pages);
        let result = match verdict.fault {
            Some(Fault::Error(kind)) => Err(io::Error::new(kind, verdict.name())),
            _ => within(state.injector.limit(), pages),
        };
        if result.is_ok() {
            state.medium.capacity = state.medium.capacity.max(pages);
        }
        drop(state);
        sleep(verdict.latency);
        result
    }

    fn shrink(&self, pages: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let verdict = state.judge(Op::Shrink, pages);
        if let Some(Fault::Error(kind)) = verdict.fault {
            return Err(io::Error::new(kind, verdict.name()));
        }
        state.medium.shrink(pages);
        drop(state);
        sleep(verdict.latency);
        Ok(())
    }
}

impl fmt::Debug for SimStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("SimStorage")
            .field("plan", state.injector.plan())
            .field("counters", &state.counters)
            .field("capacity_pages", &state.medium.capacity)
            .finish()
    }
}
