//! The log on the simulated device: each segment has its own medium and volatile cache, with the
//! same model of pages and sectors as the data.
//!
//! Creating and removing segments is durable at once, except under [`Fault::Unsettled`]. The bytes
//! of a segment that was passed on appear in the next segment of the same size; until then they
//! take no room of the device. [`LogStorage::sync`] makes the writes to one segment durable and
//! nothing else. Reads and writes are judged page by page, and the lock is free between two pages,
//! so a crash can come in the middle of a batch.

use super::{
    faults::{Fault, Op, Verdict, log_page},
    log::{LogStorage, Zeroes, absent, assert_whole_pages, exists, range_within},
    sim::{SimState, SimStorage, sleep},
    sim_segment::SimSegment,
};
use crate::{
    ids::PageId,
    page::{PAGE_SIZE, PageImage},
};
use std::{io, sync::Arc, time::Duration};

impl SimStorage {
    /// The bytes of a segment of the log as reads see them, bypassing faults and counters.
    pub fn raw_segment(&self, segment: u64) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let segment = state.log.get(&segment)?;
        let mut bytes = vec![0; segment.medium.capacity as usize * PAGE_SIZE];
        for (&number, page) in &segment.medium.pages {
            if let Some(current) = page.current() {
                let at = number as usize * PAGE_SIZE;
                bytes[at..at + PAGE_SIZE].copy_from_slice(&current[..]);
            }
        }
        bytes.truncate(segment.bytes as usize);
        Some(bytes)
    }

    /// Makes `bytes`, of any length, the durable contents of a segment, which may be new.
    pub fn set_raw_segment(&self, segment: u64, bytes: Vec<u8>) {
        let mut new = SimSegment::zeroed(bytes.len() as u64);
        for (chunk, number) in bytes.chunks(PAGE_SIZE).zip(0..) {
            if chunk != &[0; PAGE_SIZE][..chunk.len()] {
                let mut page = [0; PAGE_SIZE];
                page[..chunk.len()].copy_from_slice(chunk);
                new.medium.pages.entry(number).or_default().synced = Some(Arc::new(page));
            }
        }
        self.state.lock().log.insert(segment, new);
    }

    /// Segments of the log with writes that a power cut may take.
    pub fn unsynced_segments(&self) -> Vec<u64> {
        let state = self.state.lock();
        let unsynced = state.log.iter().filter(|(_, segment)| {
            segment.medium.pages.values().any(|page| !page.unsynced.is_empty())
        });
        unsynced.map(|(&number, _)| number).collect()
    }

    fn read_log_page(
        &self,
        segment: u64,
        page: u64,
        into: &mut [u8; PAGE_SIZE],
    ) -> (Duration, io::Result<()>) {
        let state = &mut *self.state.lock();
        state.counters.log_reads += 1;
        let verdict = state.judge(Op::LogRead, log_page(segment, page));
        let latency = verdict.latency;
        let result = match state.log.get(&segment) {
            Some(found) => found.medium.read(PageId(page), into, verdict),
            None => Err(absent(segment)),
        };
        (latency, result)
    }

    fn write_log_page(
        &self,
        segment: u64,
        page: u64,
        image: &PageImage,
    ) -> (Duration, io::Result<()>) {
        let state = &mut *self.state.lock();
        state.counters.log_writes += 1;
        let verdict = state.judge(Op::LogWrite, log_page(segment, page));
        let (latency, order) = (verdict.latency, state.counters.order());
        let result = match state.log.get_mut(&segment) {
            Some(found) => found.medium.write(PageId(page), image, verdict, order),
            None => Err(absent(segment)),
        };
        (latency, result)
    }

    /// Creates a segment of zeroes, or from one that was passed on.
    fn make(
        &self,
        segment: u64,
        bytes: u64,
        spare: impl FnOnce(&mut Vec<SimSegment>) -> Option<SimSegment>,
    ) -> io::Result<()> {
        assert_whole_pages(0, bytes as usize);
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.counters.log_creations += 1;
        let verdict = state.judge(Op::LogCreate, log_page(segment, 0));
        let used: u64 = state.log.values().map(|segment| segment.bytes).sum();
        let limit = state.injector.log_limit();
        let result = match verdict.fault {
            Some(Fault::Error(kind)) => Err(io::Error::new(kind, verdict.name())),
            _ if state.log.contains_key(&segment) => Err(exists(segment)),
            _ if used.saturating_add(bytes) > limit => {
                let what = format!("the simulated device has {limit} bytes for the log, all used");
                Err(io::Error::new(io::ErrorKind::StorageFull, what))
            }
            _ => {
                let made = spare(&mut state.log_spares);
                state.log.insert(segment, made.unwrap_or_else(|| SimSegment::zeroed(bytes)));
                state.settle_directory(segment, None, &verdict)
            }
        };
        drop(guard);
        sleep(verdict.latency);
        result
    }

    /// Removes a segment; `then` gets it once that is durable.
    fn give_up(&self, segment: u64, then: impl FnOnce(SimSegment)) -> io::Result<()> {
        let mut state = self.state.lock();
        state.counters.log_removals += 1;
        let verdict = state.judge(Op::LogRemove, log_page(segment, 0));
        let result = match verdict.fault {
            Some(Fault::Error(kind)) => Err(io::Error::new(kind, verdict.name())),
            _ => match state.log.remove(&segment) {
                Some(before) => {
                    let settled = state.settle_directory(segment, Some(before.clone()), &verdict);
                    settled.map(|()| before)
                }
                None => Err(absent(segment)),
            },
        };
        drop(state);
        sleep(verdict.latency);
        result.map(then)
    }

    fn log_bytes(&self, segment: u64) -> io::Result<u64> {
        let state = self.state.lock();
        state.log.get(&segment).map(|found| found.bytes).ok_or_else(|| absent(segment))
    }
}

impl SimState {
    /// Makes the set of segments durable. If that fails, a power cut restores the state `before`.
    fn settle_directory(
        &mut self,
        segment: u64,
        before: Option<SimSegment>,
        verdict: &Verdict,
    ) -> io::Result<()> {
        let Some(Fault::Unsettled(kind)) = verdict.fault else {
            self.unsettled.clear();
            return Ok(());
        };
        self.unsettled.entry(segment).or_insert(before);
        Err(io::Error::new(kind, verdict.name()))
    }
}

impl LogStorage for SimStorage {
    fn segments(&self) -> io::Result<Vec<(u64, u64)>> {
        let state = self.state.lock();
        Ok(state.log.iter().map(|(&number, segment)| (number, segment.bytes)).collect())
    }

    fn create(&self, segment: u64, bytes: u64) -> io::Result<()> {
        self.make(segment, bytes, |_| None)
    }

    fn create_beside(
        &self,
        segment: u64,
        bytes: u64,
        _: Zeroes,
        _: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> io::Result<()> {
        self.make(segment, bytes, |spares| {
            let at = spares.iter().position(|spare| spare.bytes == bytes)?;
            let mut spare = spares.swap_remove(at);
            spare.medium.pages.remove(&0);
            Some(spare)
        })
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        self.give_up(segment, drop)
    }

    fn pass_on(&self, segment: u64) -> io::Result<()> {
        self.give_up(segment, |before| self.state.lock().log_spares.push(before))
    }

    fn give_back(&self, all: bool) -> io::Result<bool> {
        let spares = &mut self.state.lock().log_spares;
        let some = all && !spares.is_empty();
        if some {
            spares.clear();
        }
        Ok(some)
    }

    fn read(&self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<()> {
        range_within(segment, offset, into.len(), self.log_bytes(segment)?)?;
        let (mut done, mut longest, mut result) = (0, Duration::ZERO, Ok(()));
        let mut image = PageImage::zeroed();
        while done < into.len() && result.is_ok() {
            let at = offset + done as u64;
            let skip = (at % PAGE_SIZE as u64) as usize;
            let len = (PAGE_SIZE - skip).min(into.len() - done);
            let (latency, outcome) =
                self.read_log_page(segment, at / PAGE_SIZE as u64, &mut image.0);
            into[done..done + len].copy_from_slice(&image.0[skip..skip + len]);
            (longest, result) = (longest.max(latency), outcome);
            done += len;
        }
        sleep(longest);
        result
    }

    fn write(&self, segment: u64, writes: &[(u64, &[u8])]) -> io::Result<()> {
        let bytes = self.log_bytes(segment)?;
        let (mut longest, mut result) = (Duration::ZERO, Ok(()));
        let mut image = PageImage::zeroed();
        for &(offset, piece) in writes {
            assert_whole_pages(offset, piece.len());
            range_within(segment, offset, piece.len(), bytes)?;
            for (page, number) in piece.chunks(PAGE_SIZE).zip(offset / PAGE_SIZE as u64..) {
                if result.is_ok() {
                    image.0.copy_from_slice(page);
                    let (latency, outcome) = self.write_log_page(segment, number, &image);
                    (longest, result) = (longest.max(latency), outcome);
                }
            }
        }
        sleep(longest);
        result
    }

    fn sync(&self, segment: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.counters.log_syncs += 1;
        let verdict = state.judge(Op::LogSync, log_page(segment, 0));
        let result = match (verdict.fault, state.log.get_mut(&segment)) {
            (Some(Fault::Error(kind)), _) => Err(io::Error::new(kind, verdict.name())),
            (Some(Fault::Unsettled(kind)), Some(found)) => {
                found.medium.give_up_unsynced();
                Err(io::Error::new(kind, verdict.name()))
            }
            (_, Some(found)) => {
                found.medium.sync();
                Ok(())
            }
            (_, None) => Err(absent(segment)),
        };
        drop(state);
        sleep(verdict.latency);
        result
    }
}
