//! Back end `sim` with service times: a device in memory that takes as long as a model says.
//!
//! For experiments whose result must not depend on the device and on its other users. Source of
//! the parameters: Papon, Athanassoulis, "A parametric I/O model for modern storage devices",
//! DaMoN 2021, and the ACE paper, section II: a read takes `read_us`, a write `asymmetry` times as
//! long; up to `kr` reads or `kw` writes are served in the time of one.
//!
//! **Model.** The device is one resource. A read in service takes 1/kr of it and a write 1/kw, so 8
//! writes fill a device with kw = 8, and half of it is left for reads beside 4 writes. An operation
//! starts when the room that it needs is free and every operation that came before it has started:
//! first come, first served. So a read that comes after 64 queued writes waits for 8 rounds of
//! writes, as on a device whose dies are busy. Syncs take no time.
//!
//! **Time.** The schedule is computed, not measured: an operation knows its end when it begins, and
//! its thread sleeps until then. Processors that are too slow make an operation late, but the
//! device is not busy meanwhile.
//!
//! A page has its new content when its write has ended, and a read copies the page when it ends.

use super::{
    memory::MemoryStorage,
    storage::{PageWrite, ReadTarget, Storage},
};
use crate::{
    error::{Error, Result},
    ids::PageId,
    page::PageImage,
    thread::{be_punctual, sleep_until},
};
use parking_lot::{Condvar, Mutex};
use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    fmt, io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The parameters of a device with service times.
///
/// ```
/// use wattle_buffer::io::DeviceModel;
/// let device = DeviceModel::parse("asymmetry=2.8,kw=8").unwrap();
/// assert_eq!((device.read_us, device.write_us, device.kr, device.kw), (100, 280, 80, 8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceModel {
    /// Microseconds that one read takes, 1 to 1000000.
    pub read_us: u32,
    /// Microseconds that one write takes, 1 to 1000000.
    pub write_us: u32,
    /// Reads that are served in the time of one, 1 to 1024.
    pub kr: u32,
    /// Writes that are served in the time of one, 1 to 1024.
    pub kw: u32,
}

impl Default for DeviceModel {
    /// The PCIe SSD of the ACE paper (Table I): asymmetry 2.8, 80 reads, 8 writes.
    fn default() -> Self {
        DeviceModel { read_us: 100, write_us: 280, kr: 80, kw: 8 }
    }
}

/// Upper bound on the microseconds of an operation.
const MAX_US: f64 = 1e6;
/// Upper bound on the concurrency of a device.
const MAX_CONCURRENCY: f64 = 1024.0;

impl DeviceModel {
    /// Parses `key=value,..`: `read_us` (default 100), `asymmetry` (2.8, up to 1000), `kr` (80) and
    /// `kw` (8).
    ///
    /// # Errors
    /// [`Error::InvalidOption`] names the keys and their ranges.
    pub fn parse(text: &str) -> Result<DeviceModel> {
        let (mut model, mut asymmetry) = (DeviceModel::default(), 2.8);
        for parameter in text.split(',').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let most = match key {
                "read_us" => MAX_US,
                "asymmetry" => 1000.0,
                _ => MAX_CONCURRENCY,
            };
            let number = value.parse::<f64>().ok().filter(|number| *number > 0.0);
            let number = number.filter(|number| *number <= most);
            let whole = number.filter(|number| *number >= 1.0 && number.fract() == 0.0);
            match (key, number, whole.map(|whole| whole as u32)) {
                ("read_us", _, Some(us)) => model.read_us = us,
                ("asymmetry", Some(ratio), _) => asymmetry = ratio,
                ("kr", _, Some(reads)) => model.kr = reads,
                ("kw", _, Some(writes)) => model.kw = writes,
                _ => {
                    return Err(Error::InvalidOption(format!(
                        "a simulated device does not take {parameter:?}: known are read_us, 1 to \
                         1000000; asymmetry, above 0 and up to 1000; kr and kw, 1 to 1024"
                    )));
                }
            }
        }
        model.write_us = (f64::from(model.read_us) * asymmetry).round().clamp(1.0, MAX_US) as u32;
        Ok(model)
    }
}

impl fmt::Display for DeviceModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asymmetry = f64::from(self.write_us) / f64::from(self.read_us);
        let DeviceModel { read_us, kr, kw, .. } = self;
        write!(f, "read_us={read_us},asymmetry={asymmetry},kr={kr},kw={kw}")
    }
}

/// When operations start and end.
struct Schedule {
    model: DeviceModel,
    /// Ends of the operations in service, and the room that each takes.
    in_service: BinaryHeap<Reverse<(Instant, u32)>>,
    used: u32,
    /// When the operation that came last starts.
    last_start: Instant,
}

impl Schedule {
    fn new(model: DeviceModel) -> Schedule {
        let last_start = Instant::now();
        Schedule { model, in_service: BinaryHeap::new(), used: 0, last_start }
    }

    /// The end of an operation that comes now, after all that came before.
    fn end(&mut self, now: Instant, is_write: bool) -> Instant {
        let DeviceModel { read_us, write_us, kr, kw } = self.model;
        // Room is counted in parts of 1 / (kr * kw) of the device.
        let (room, us) = if is_write { (kr, write_us) } else { (kw, read_us) };
        let mut start = now.max(self.last_start);
        while let Some(Reverse((end, taken))) = self.in_service.peek().copied() {
            if end > start && self.used + room <= kr * kw {
                break;
            }
            self.in_service.pop();
            self.used -= taken;
            start = start.max(end);
        }
        let end = start + Duration::from_micros(us.into());
        self.in_service.push(Reverse((end, room)));
        (self.used, self.last_start) = (self.used + room, start);
        end
    }
}

/// A read that the thread of the device ends.
struct Pending {
    end: Instant,
    target: ReadTarget,
}

impl PartialEq for Pending {
    fn eq(&self, other: &Pending) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pending {}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Pending) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pending {
    fn cmp(&self, other: &Pending) -> Ordering {
        self.end.cmp(&other.end)
    }
}

#[derive(Default)]
struct PendingReads {
    reads: BinaryHeap<Reverse<Pending>>,
    stopping: bool,
}

struct Shared {
    pages: MemoryStorage,
    schedule: Mutex<Schedule>,
    pending: Mutex<PendingReads>,
    /// The first end may have changed.
    changed: Condvar,
}

impl Shared {
    /// Body of the thread that ends reads.
    fn serve(&self) {
        be_punctual();
        let mut pending = self.pending.lock();
        loop {
            let now = Instant::now();
            match pending.reads.peek() {
                Some(Reverse(first)) if first.end <= now => {
                    let Some(Reverse(Pending { mut target, .. })) = pending.reads.pop() else {
                        continue;
                    };
                    drop(pending);
                    let result = self.pages.read_page(&mut target);
                    target.end(result);
                    pending = self.pending.lock();
                }
                Some(Reverse(first)) => {
                    let end = first.end;
                    self.changed.wait_until(&mut pending, end);
                }
                None if pending.stopping => return,
                None => self.changed.wait(&mut pending),
            }
        }
    }
}

/// A device in memory with the service times of a [`DeviceModel`]. See the module documentation.
pub struct TimedStorage {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl TimedStorage {
    /// An empty device.
    pub fn new(model: DeviceModel) -> TimedStorage {
        let shared = Shared {
            pages: MemoryStorage::new(),
            schedule: Mutex::new(Schedule::new(model)),
            pending: Mutex::default(),
            changed: Condvar::new(),
        };
        TimedStorage { shared: Arc::new(shared), thread: Mutex::default() }
    }

    /// Gives the device other service times from now on, for example after a store was loaded.
    pub fn set_model(&self, model: DeviceModel) {
        *self.shared.schedule.lock() = Schedule::new(model);
    }

    fn end(&self, is_write: bool) -> Instant {
        self.shared.schedule.lock().end(Instant::now(), is_write)
    }

    /// Starts the thread that ends reads, once.
    fn start_thread(&self) -> io::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = self.shared.clone();
            let body = move || shared.serve();
            *thread = Some(thread::Builder::new().name("wattle-sim".into()).spawn(body)?);
        }
        Ok(())
    }
}

impl Storage for TimedStorage {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn read_page(&self, target: &mut ReadTarget) -> io::Result<()> {
        sleep_until(self.end(false));
        self.shared.pages.read_page(target)
    }

    fn start_read(self: Arc<Self>, target: ReadTarget) {
        if let Err(error) = self.start_thread() {
            return target.end(Err(error));
        }
        let end = self.end(false);
        self.shared.pending.lock().reads.push(Reverse(Pending { end, target }));
        self.shared.changed.notify_one();
    }

    fn read_image(&self, page: PageId, image: &mut PageImage) -> io::Result<()> {
        sleep_until(self.end(false));
        self.shared.pages.read_image(page, image)
    }

    fn write_pages(&self, batch: &[PageWrite<'_>], results: &mut Vec<io::Result<()>>) {
        let ends = {
            let (mut schedule, now) = (self.shared.schedule.lock(), Instant::now());
            batch.iter().map(|_| schedule.end(now, true)).max()
        };
        if let Some(end) = ends {
            sleep_until(end);
        }
        self.shared.pages.write_pages(batch, results);
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.pages.sync()
    }

    fn capacity_pages(&self) -> u64 {
        self.shared.pages.capacity_pages()
    }

    fn reserve(&self, pages: u64) -> io::Result<()> {
        self.shared.pages.reserve(pages)
    }

    fn shrink(&self, pages: u64) -> io::Result<()> {
        self.shared.pages.shrink(pages)
    }
}

impl Drop for TimedStorage {
    fn drop(&mut self) {
        self.shared.pending.lock().stopping = true;
        self.shared.changed.notify_all();
        let Some(thread) = self.thread.lock().take() else { return };
        // The last owner may be a read that the thread itself ends.
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::error!("the thread of a simulated device panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: DeviceModel = DeviceModel { read_us: 100, write_us: 300, kr: 40, kw: 8 };

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn as_many_operations_as_the_device_serves_take_the_time_of_one() {
        let mut schedule = Schedule::new(MODEL);
        let now = schedule.last_start;
        for _ in 0..8 {
            assert_eq!(schedule.end(now, true), now + us(300));
        }
        assert_eq!(schedule.end(now, true), now + us(600));
        // The device is full until then, also for reads, which come after the queued write.
        assert_eq!(schedule.end(now, false), now + us(400));
        let later = now + us(10_000);
        for _ in 0..4 {
            assert_eq!(schedule.end(later, true), later + us(300));
        }
        for _ in 0..20 {
            assert_eq!(schedule.end(later, false), later + us(100));
        }
        assert_eq!(schedule.end(later, false), later + us(200));
    }

    #[test]
    fn a_saturated_device_has_the_rates_of_its_model() {
        for (is_write, at_once, service) in [(true, 8, 300), (false, 40, 100)] {
            let mut schedule = Schedule::new(MODEL);
            let now = schedule.last_start;
            let last = (0..800).map(|_| schedule.end(now, is_write)).max();
            assert_eq!(last, Some(now + us(800 / at_once * service)));
        }
    }

    #[test]
    fn parameters_are_parsed_and_wrong_ones_are_named_with_their_ranges() {
        assert_eq!(DeviceModel::parse("").unwrap(), DeviceModel::default());
        let model = DeviceModel::parse("read_us=50,asymmetry=4,kr=3,kw=2").unwrap();
        assert_eq!(model, DeviceModel { read_us: 50, write_us: 200, kr: 3, kw: 2 });
        assert_eq!(DeviceModel::parse(&model.to_string()).unwrap(), model);
        for bad in ["kw=0", "kw=2000", "kr=1.5", "read_us=", "asymmetry=-1", "depth=3", "asymmetry"]
        {
            let message = DeviceModel::parse(bad).unwrap_err().to_string();
            assert!(message.contains(bad) && message.contains("1 to 1024"), "{message}");
        }
    }
}
