//! Crashes around every write, sync, creation and removal of segments, and during the recoveries
//! from them, again and again: a record that was durable once is always there afterwards, and no
//! torn flush comes back. Each test prints its seed when it fails.

mod common;

use common::*;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};
use std::{io, sync::Arc};
use wattle_buffer::io::{Cut, Fault, FaultPlan, LogStorage, Op, SimStorage, Zeroes};
use wattle_wal::{LogReader, LogStart};

/// Crashes of recoveries of recoveries.
const DEEPEST: u32 = 3;

/// The note of a checkpoint: where reading begins, and which records are there then.
#[derive(Clone, Copy, Debug)]
struct Noted {
    segment: u64,
    /// Index of the first record that must be there.
    first: usize,
    /// A flush that was durable.
    flush: u64,
}

/// The records that must be on the device.
#[derive(Clone, Copy, Debug)]
struct Known {
    noted: Noted,
    /// Number of durable records.
    durable: usize,
}

struct Shot {
    device: SimStorage,
    known: Known,
    point: &'static str,
    cut: Cut,
}

/// A device that takes images of itself around every call.
struct Camera {
    device: Arc<SimStorage>,
    known: Mutex<Known>,
    random: Mutex<StdRng>,
    one_in: u32,
    most: usize,
    shots: Mutex<Vec<Shot>>,
}

impl Camera {
    fn new(device: SimStorage, known: Known, seed: u64, one_in: u32, most: usize) -> Arc<Camera> {
        Arc::new(Camera {
            device: Arc::new(device),
            known: Mutex::new(known),
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            one_in,
            most,
            shots: Mutex::default(),
        })
    }

    fn moment(&self, point: &'static str) {
        let mut random = self.random.lock();
        if self.one_in == 0 || !random.random_ratio(1, self.one_in) {
            return;
        }
        let mut shots = self.shots.lock();
        if shots.len() >= self.most {
            return;
        }
        let cut = match random.random_range(0..8) {
            0..3 => Cut::Sectors,
            3 => Cut::Pages,
            4 => Cut::Prefix,
            5 => [Cut::Nothing, Cut::All][random.random_range(0..2)],
            _ => Cut::Process,
        };
        // No note and no acknowledgement comes between this and the image.
        let known = self.known.lock();
        let device = self.device.crash_as(random.random(), cut);
        shots.push(Shot { device, known: *known, point, cut });
    }

    fn making(&self, make: impl FnOnce(&SimStorage) -> io::Result<()>) -> io::Result<()> {
        self.moment("before a segment is made");
        let result = make(&self.device);
        self.moment("after a segment was made");
        result
    }

    fn take(&self) -> Vec<Shot> {
        std::mem::take(&mut self.shots.lock())
    }
}

impl LogStorage for Camera {
    fn segments(&self) -> io::Result<Vec<(u64, u64)>> {
        self.device.segments()
    }

    fn create(&self, segment: u64, bytes: u64) -> io::Result<()> {
        self.making(|device| device.create(segment, bytes))
    }

    fn create_beside(
        &self,
        segment: u64,
        bytes: u64,
        zeroes: Zeroes,
        pace: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> io::Result<()> {
        self.making(|device| device.create_beside(segment, bytes, zeroes, pace))
    }

    fn pass_on(&self, segment: u64) -> io::Result<()> {
        self.moment("before a segment is passed on");
        let result = self.device.pass_on(segment);
        self.moment("after a segment was passed on");
        result
    }

    fn give_back(&self, all: bool) -> io::Result<bool> {
        self.device.give_back(all)
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        self.moment("before a segment is removed");
        let result = LogStorage::remove(&*self.device, segment);
        self.moment("after a segment was removed");
        result
    }

    fn read(&self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<()> {
        LogStorage::read(&*self.device, segment, offset, into)
    }

    fn write(&self, segment: u64, writes: &[(u64, &[u8])]) -> io::Result<()> {
        self.moment("before a write");
        // All of them are in flight at once, so any may be the first.
        let mut pieces: Vec<_> = (writes.iter())
            .flat_map(|(at, piece)| (*at..).step_by(16 << 10).zip(piece.chunks(16 << 10)))
            .collect();
        pieces.shuffle(&mut *self.random.lock());
        for piece in pieces {
            LogStorage::write(&*self.device, segment, &[piece])?;
            self.moment("in the middle of a write");
        }
        Ok(())
    }

    fn sync(&self, segment: u64) -> io::Result<()> {
        self.moment("before a sync");
        let result = LogStorage::sync(&*self.device, segment);
        self.moment("after a sync");
        result
    }
}

/// Appends to the log of a device, flushes, and retires old segments; `ids` has all records that
/// were ever appended. Ends when the log fails.
fn use_log(
    camera: &Arc<Camera>,
    begin: LogStart,
    plan: FaultPlan,
    ids: &mut Vec<u64>,
    random: &mut StdRng,
    turns: u32,
) {
    let storage: Arc<dyn LogStorage> = camera.clone();
    let log = start(&storage, begin);
    camera.device.set_plan(plan);
    let appender = log.appender();
    let base = random.random_range(1..1u64 << 40) << 20;
    let mut epochs = Vec::new();
    let first_here = ids.len();
    for _ in 0..turns {
        let (count, len) = match random.random_range(0..8) {
            // More than a segment.
            0 => (random.random_range(3..7), 50_000),
            1..4 => (random.random_range(1..4), random.random_range(0..30_000)),
            _ => (random.random_range(0..6), random.random_range(0..4_000)),
        };
        for _ in 0..count {
            let id = base + ids.len() as u64;
            ids.push(id);
            epochs.push(append(&appender, id, len).0 >> 20);
        }
        if random.random_ratio(1, 8) && log.begin_checkpoint().is_err() {
            return;
        }
        if random.random_ratio(2, 3) {
            if log.flush_now().is_err() {
                return;
            }
            camera.known.lock().durable = ids.len();
        }
        let durable = camera.known.lock().durable;
        if random.random_ratio(1, 6) && durable > first_here {
            let first = random.random_range(first_here..durable);
            let segment = {
                let mut known = camera.known.lock();
                let segment = log.segment_of(epochs[first - first_here]);
                if segment >= known.noted.segment && first >= known.noted.first {
                    known.noted = Noted { segment, first, flush: log.durable_flush() };
                }
                known.noted.segment
            };
            log.truncate_before(segment);
        }
    }
    drop(appender);
    if log.close().is_ok() {
        camera.known.lock().durable = ids.len();
    }
}

struct Checker {
    seed: u64,
    random: StdRng,
    checked: u64,
    /// Images in which the segment after the last head is not empty.
    headless: u64,
    /// Images in which segments have the content of earlier ones.
    used: u64,
}

impl Checker {
    fn new(seed: u64) -> Checker {
        Checker { seed, random: StdRng::seed_from_u64(!seed), checked: 0, headless: 0, used: 0 }
    }

    /// Reads the log of a device. Gives how many of `ids` are there, and where the log goes on.
    fn recover(
        &mut self,
        storage: &Arc<dyn LogStorage>,
        known: Known,
        ids: &[u64],
        what: &str,
    ) -> Option<(usize, LogStart)> {
        let reader = LogReader::open(Arc::clone(storage), STORE, known.noted.segment);
        let mut reader = reader.unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut flushes = Vec::new();
        while let Some(flush) = reader.next_flush().unwrap_or_else(|e| panic!("{what}: {e}")) {
            flushes.push(flush);
        }
        let found: Vec<u64> = records(&flushes).iter().map(|found| found.id).collect();
        let begins = match found.first() {
            Some(first) => ids.iter().position(|id| id == first).expect("an id that was appended"),
            None => known.noted.first,
        };
        let there = begins + found.len();
        assert!(begins <= known.noted.first, "{what}: it begins with record {begins}");
        assert_eq!(found, &ids[begins..there.min(ids.len())], "{what}: records are mixed up");
        assert!(
            there >= known.durable,
            "{what}: {there} records, {} are lost",
            known.durable - there
        );
        // The device may fail now.
        let end = reader.settle(0).ok()?;
        assert!(end.flush >= known.noted.flush, "{what}: the log ends with flush {}", end.flush);
        Some((there, LogStart::after(end)))
    }

    fn check(&mut self, shot: Shot, ids: &[u64], depth: u32) {
        self.checked += 1;
        let Shot { device, mut known, point, cut } = shot;
        let what = format!("seed {}, depth {depth}, {cut:?} {point}, {known:?}", self.seed);
        let (headless, used) = remains(&device);
        self.headless += u64::from(headless);
        self.used += u64::from(used);
        let one_in = if depth < DEEPEST { 3 } else { 0 };
        let seed = self.random.random();
        let mut camera = Camera::new(device, known, seed, one_in, 3);
        // 1. Making the end durable may fail, and then the power goes.
        for _ in 0..2 {
            let fault = match self.random.random_range(0..6) {
                0 => {
                    FaultPlan::new(seed).always(Op::LogSync, Fault::Unsettled(io::ErrorKind::Other))
                }
                1 => FaultPlan::new(seed).always(Op::LogSync, Fault::Error(io::ErrorKind::Other)),
                2 => FaultPlan::new(seed).nth(Op::LogWrite, 1, Fault::Error(io::ErrorKind::Other)),
                _ => break,
            };
            camera.device.set_plan(fault);
            let storage: Arc<dyn LogStorage> = camera.clone();
            let _ = self.recover(&storage, known, ids, &format!("{what}, which fails"));
            camera.device.heal();
            let cut = [Cut::Process, Cut::Sectors, Cut::Nothing][self.random.random_range(0..3)];
            let left = camera.device.crash_as(self.random.random(), cut);
            camera = Camera::new(left, known, self.random.random(), one_in, 3);
        }
        // 2. Then recovery relies on it.
        let storage: Arc<dyn LogStorage> = camera.clone();
        let Some((there, begin)) = self.recover(&storage, known, ids, &what) else {
            panic!("{what}: it cannot be made durable");
        };
        let early = camera.take();
        known.durable = there;
        *camera.known.lock() = known;
        // 3. The log goes on, and crashes.
        let mut longer = ids[..there].to_vec();
        let (mut random, turns) = (StdRng::seed_from_u64(seed), self.random.random_range(0..6));
        use_log(&camera, begin, FaultPlan::new(seed), &mut longer, &mut random, turns);
        let later = camera.take();
        let known = *camera.known.lock();
        let closed = self.recover(&storage, known, &longer, &format!("{what}, closed"));
        assert_eq!(closed.map(|(there, _)| there), Some(longer.len()), "{what}, closed");
        early.into_iter().for_each(|shot| self.check(shot, ids, depth + 1));
        later.into_iter().for_each(|shot| self.check(shot, &longer, depth + 1));
    }
}

/// Whether the segment after the last head has any block, and whether a segment has the content of
/// an earlier one.
fn remains(device: &SimStorage) -> (bool, bool) {
    let segments = LogStorage::segments(device).expect("segments");
    let (mut headless, mut used) = (false, false);
    for (number, _) in segments {
        let bytes = device.raw_segment(number).expect("a segment");
        let empty = bytes[..4096].iter().all(|byte| *byte == 0);
        for sector in bytes[4096..].chunks(512) {
            match u32::from_le_bytes(sector[504..508].try_into().expect("4 bytes")) {
                0 => {}
                trailer if u64::from(trailer) == number => headless |= empty,
                _ => used = true,
            }
        }
    }
    (headless, used)
}

#[test]
fn whenever_the_power_goes_and_however_often_nothing_durable_is_lost() {
    let (mut checked, mut headless, mut used) = (0, 0, 0);
    for seed in 0..4 * rounds() {
        let mut random = StdRng::seed_from_u64(seed);
        let nothing = Known { noted: Noted { segment: 1, first: 0, flush: 0 }, durable: 0 };
        let unsettled = Fault::Unsettled(io::ErrorKind::Other);
        let plan = match seed % 4 {
            0 => FaultPlan::new(seed).sometimes(Op::LogCreate, 0.3, unsettled),
            1 => FaultPlan::new(seed).sometimes(Op::LogRemove, 0.5, unsettled),
            2 => FaultPlan::new(seed).nth(Op::LogSync, random.random_range(5..40), unsettled),
            _ => FaultPlan::new(seed),
        };
        let device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        let mut ids = Vec::new();
        // A log that never flushed has acknowledged no record.
        let storage: Arc<dyn LogStorage> = device.clone();
        start(&storage, LogStart::default()).begin_checkpoint().expect("a flush");
        let camera = Camera::new(device.clone_at_rest(), nothing, seed, 24, 13);
        let storage: Arc<dyn LogStorage> = camera.clone();
        let (_, begin) = Checker::new(seed).recover(&storage, nothing, &ids, "new").expect("a log");
        use_log(&camera, begin, plan, &mut ids, &mut random, 60);
        camera.device.heal();
        let mut checker = Checker::new(seed);
        camera.take().into_iter().for_each(|shot| checker.check(shot, &ids, 1));
        checked += checker.checked;
        headless += checker.headless;
        used += checker.used;
    }
    assert!(used > 10, "{used} of {checked} images have segments made of used ones");
    assert!(headless > 10, "{headless} of {checked} images have remains after the last head");
}
