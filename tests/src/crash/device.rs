//! A simulated device that takes crash images of itself while it is used.
//!
//! Invariant: an image holds at least what was acknowledged when it was taken, and nothing that was
//! not begun: the marks are read around the picture, in the order that makes the bounds too wide
//! rather than too narrow.

use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};
use wattle::io::{Cut, LogStorage, PageWrite, ReadTarget, SimStorage, Storage, Zeroes};
use wattle_buffer::{Gsn, PageId, PageImage, page::header};

/// Events of one line of a workload: how many are acknowledged, how many were begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Events up to this one must be there.
    pub acked: u64,
    /// No event after this one is possible.
    pub issued: u64,
}

#[derive(Default)]
struct Mark {
    acked: AtomicU64,
    issued: AtomicU64,
}

/// The contents after a power cut, and the events that they must include.
pub struct Image {
    /// The device.
    pub sim: SimStorage,
    /// For each line of the workload.
    pub bounds: Vec<Bounds>,
    /// When it was taken.
    pub point: &'static str,
    /// The part that the power cut spared.
    pub cut: Cut,
    /// Seed of the power cut.
    pub seed: u64,
    /// The last operation on the device.
    pub trail: Vec<Act>,
    /// The device has synced the log: what the process before had only written is safe.
    pub log_synced: bool,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Image { bounds, point, cut, seed, .. } = self;
        write!(f, "image {cut:?} {seed:#x} taken {point}, events {bounds:?}")?;
        if std::env::var_os("WATTLE_CRASH_TRAIL").is_some() {
            write!(f, ", after {:?}", self.trail)?;
        }
        Ok(())
    }
}

/// Something that was done to the device.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// A page was written, with the number of its last change.
    Page(u64, Gsn),
    /// All pages were synced.
    Sync,
    /// A segment was written, so many bytes at an offset.
    Log(u64, u64, usize),
    /// A segment was synced.
    LogSync(u64),
    /// A segment was made.
    Create(u64),
    /// A segment was removed.
    Remove(u64),
}

/// Acts that an image remembers.
const TRAIL: usize = 200;

/// How images are taken.
#[derive(Clone, Copy, Debug)]
pub struct Camera {
    /// One moment in this many is taken; 0: none.
    pub one_in: u64,
    /// Most images that wait for being looked at.
    pub most: usize,
    /// Pages are never torn.
    pub whole_pages: bool,
}

/// See the module documentation.
pub struct Capturing {
    sim: Arc<SimStorage>,
    camera: Mutex<Camera>,
    dice: AtomicU64,
    marks: Vec<Mark>,
    images: Mutex<Vec<Image>>,
    trail: Mutex<VecDeque<Act>>,
    log_synced: AtomicBool,
}

impl Capturing {
    /// Takes images of `sim` for a workload of `lines` lines.
    pub fn new(sim: Arc<SimStorage>, lines: usize, seed: u64, camera: Camera) -> Arc<Capturing> {
        Arc::new(Capturing {
            sim,
            camera: Mutex::new(camera),
            dice: AtomicU64::new(seed),
            marks: (0..lines).map(|_| Mark::default()).collect(),
            images: Mutex::default(),
            trail: Mutex::default(),
            log_synced: AtomicBool::new(false),
        })
    }

    fn note(&self, act: Act) {
        let mut trail = self.trail.lock();
        if trail.len() == TRAIL {
            trail.pop_front();
        }
        trail.push_back(act);
    }

    fn note_pages(&self, batch: &[PageWrite<'_>]) {
        for write in batch {
            self.note(Act::Page(write.page.0, Gsn(write.image.u64_at(header::GSN))));
        }
    }

    /// Event `number` of a line begins.
    pub fn issue(&self, line: usize, number: u64) {
        self.marks[line].issued.store(number, SeqCst);
    }

    /// All events of a line up to `number` are durable.
    pub fn ack(&self, line: usize, number: u64) {
        self.marks[line].acked.store(number, SeqCst);
    }

    /// The events of a line that are acknowledged and begun now.
    pub fn bounds(&self, line: usize) -> Bounds {
        let mark = &self.marks[line];
        Bounds { acked: mark.acked.load(SeqCst), issued: mark.issued.load(SeqCst) }
    }

    /// Sets both ends of all lines.
    pub fn set(&self, bounds: &[Bounds]) {
        for (line, bounds) in bounds.iter().enumerate() {
            // The wider bounds first.
            self.ack(line, bounds.acked.min(self.marks[line].acked.load(SeqCst)));
            self.issue(line, bounds.issued);
            self.ack(line, bounds.acked);
        }
    }

    /// The images taken since the last call.
    pub fn take(&self) -> Vec<Image> {
        std::mem::take(&mut self.images.lock())
    }

    /// Takes more or fewer images from now on.
    pub fn aim(&self, camera: Camera) {
        *self.camera.lock() = camera;
    }

    /// The device itself.
    pub fn sim(&self) -> &Arc<SimStorage> {
        &self.sim
    }

    /// The next number of a fixed sequence, shared by all callers.
    fn dice(&self) -> u64 {
        let mut mixed = self.dice.fetch_add(0x9e37_79b9_7f4a_7c15, SeqCst);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A moment at which the power may be cut.
    pub fn moment(&self, point: &'static str) {
        let camera = *self.camera.lock();
        if camera.one_in == 0 || !self.dice().is_multiple_of(camera.one_in) {
            return;
        }
        if self.images.lock().len() >= camera.most {
            return;
        }
        let cut = match self.dice() % 16 {
            0..7 if !camera.whole_pages => Cut::Sectors,
            0..9 => Cut::Pages,
            9..12 => Cut::Prefix,
            12 => Cut::Nothing,
            13 => Cut::All,
            _ => Cut::Process,
        };
        self.shoot(point, cut);
    }

    /// Takes an image now.
    pub fn shoot(&self, point: &'static str, cut: Cut) {
        let seed = self.dice();
        let log_synced = self.log_synced.load(SeqCst);
        let acked: Vec<u64> = self.marks.iter().map(|mark| mark.acked.load(SeqCst)).collect();
        let sim = self.sim.crash_as(seed, cut);
        let lines = acked.into_iter().zip(&self.marks);
        let bounds =
            lines.map(|(acked, mark)| Bounds { acked, issued: mark.issued.load(SeqCst) }).collect();
        let trail = self.trail.lock().iter().copied().collect();
        self.images.lock().push(Image { sim, bounds, point, cut, seed, trail, log_synced });
    }

    fn making(
        &self,
        segment: u64,
        make: impl FnOnce(&SimStorage) -> io::Result<()>,
    ) -> io::Result<()> {
        self.moment("before a segment is made");
        let result = make(&self.sim);
        self.note(Act::Create(segment));
        self.moment("after a segment was made");
        result
    }
}

impl Storage for Capturing {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn read_page(&self, target: &mut ReadTarget) -> io::Result<()> {
        self.sim.read_page(target)
    }

    fn start_read(self: Arc<Self>, target: ReadTarget) {
        self.sim.clone().start_read(target);
    }

    fn read_image(&self, page: PageId, image: &mut PageImage) -> io::Result<()> {
        self.sim.read_image(page, image)
    }

    fn write_pages(&self, batch: &[PageWrite<'_>], results: &mut Vec<io::Result<()>>) {
        self.moment("before a write of pages");
        let middle = self.dice() as usize % (batch.len() + 1);
        self.note_pages(&batch[..middle]);
        self.sim.write_pages(&batch[..middle], results);
        if middle != 0 && middle != batch.len() {
            self.moment("in the middle of a write of pages");
        }
        self.note_pages(&batch[middle..]);
        self.sim.write_pages(&batch[middle..], results);
        self.moment("after a write of pages");
    }

    fn sync(&self) -> io::Result<()> {
        self.moment("before a sync of pages");
        let result = Storage::sync(&*self.sim);
        self.note(Act::Sync);
        self.moment("after a sync of pages");
        result
    }

    fn capacity_pages(&self) -> u64 {
        self.sim.capacity_pages()
    }

    fn reserve(&self, pages: u64) -> io::Result<()> {
        self.moment("before a reservation");
        let result = self.sim.reserve(pages);
        self.moment("after a reservation");
        result
    }

    fn shrink(&self, pages: u64) -> io::Result<()> {
        self.moment("before the device shrinks");
        let result = self.sim.shrink(pages);
        self.moment("after the device shrank");
        result
    }
}

impl LogStorage for Capturing {
    fn segments(&self) -> io::Result<Vec<(u64, u64)>> {
        self.sim.segments()
    }

    fn create(&self, segment: u64, bytes: u64) -> io::Result<()> {
        self.making(segment, |sim| sim.create(segment, bytes))
    }

    fn create_beside(
        &self,
        segment: u64,
        bytes: u64,
        zeroes: Zeroes,
        pace: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> io::Result<()> {
        self.making(segment, |sim| sim.create_beside(segment, bytes, zeroes, pace))
    }

    fn pass_on(&self, segment: u64) -> io::Result<()> {
        self.moment("before a segment is passed on");
        let result = self.sim.pass_on(segment);
        self.note(Act::Remove(segment));
        self.moment("after a segment was passed on");
        result
    }

    fn give_back(&self, all: bool) -> io::Result<bool> {
        self.sim.give_back(all)
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        self.moment("before a segment is removed");
        let result = self.sim.remove(segment);
        self.note(Act::Remove(segment));
        self.moment("after a segment was removed");
        result
    }

    fn read(&self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<()> {
        LogStorage::read(&*self.sim, segment, offset, into)
    }

    fn write(&self, segment: u64, writes: &[(u64, &[u8])]) -> io::Result<()> {
        self.moment("before a write of the log");
        let middle = self.dice() as usize % (writes.len() + 1);
        LogStorage::write(&*self.sim, segment, &writes[..middle])?;
        if middle != 0 && middle != writes.len() {
            self.moment("in the middle of a write of the log");
        }
        LogStorage::write(&*self.sim, segment, &writes[middle..])?;
        for (offset, bytes) in writes {
            self.note(Act::Log(segment, *offset, bytes.len()));
        }
        self.moment("after a write of the log");
        Ok(())
    }

    fn sync(&self, segment: u64) -> io::Result<()> {
        self.moment("before a sync of the log");
        let result = LogStorage::sync(&*self.sim, segment);
        self.note(Act::LogSync(segment));
        if result.is_ok() {
            self.log_synced.store(true, SeqCst);
        }
        self.moment("after a sync of the log");
        result
    }
}
