//! Shared by all suites: lengths, options of small pools, verification, and a watchdog.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    io::{self, Write},
    ops::Not,
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};
use wattle::{
    Engine, IoKind, LOG_DIRECTORY, LogStorage, MIN_POOL_BYTES, Options, Result, Storage,
    Transaction, Tree,
    io::{MemoryLog, MemoryStorage, PageWrite, ReadTarget, SimStorage},
};
use wattle_buffer::{PageId, PageImage};

/// Bytes of a frame: the page and its header.
const FRAME: u64 = MIN_POOL_BYTES / 48;

/// A value that tells its version at each place.
pub fn value_of_version(version: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).flat_map(|at| {
        let word = (version << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (word ^ word >> 29).to_le_bytes()
    });
    words.take(len).collect()
}

/// Bytes of a line of /proc/self/status, such as `VmRSS` (resident now) or `VmHWM` (at the peak).
///
/// # Panics
/// If there is no such line.
pub fn memory(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with(what)).expect("the line");
    let kib = line.split_whitespace().nth(1).expect("a number");
    kib.parse::<u64>().expect("a number") << 10
}

/// Multiplier of the length of all suites, from `WATTLE_ROUNDS`.
pub fn rounds() -> u64 {
    std::env::var("WATTLE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// The seed that a suite is to run alone, from `WATTLE_CRASH_SEED`.
pub fn one_seed() -> Option<u64> {
    std::env::var("WATTLE_CRASH_SEED").ok().and_then(|seed| seed.parse().ok())
}

/// Whether pools swizzle; `WATTLE_TEST_SWIZZLING=off` runs all suites without.
fn swizzling() -> bool {
    std::env::var("WATTLE_TEST_SWIZZLING").is_ok_and(|value| value == "off").not()
}

/// From how many bytes on values are written directly; 0: none. `WATTLE_TEST_DIRECT=4096` runs all
/// suites so.
fn direct_value_bytes() -> u64 {
    std::env::var("WATTLE_TEST_DIRECT").ok().and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// Those of the back ends that this build has.
pub fn built<const N: usize>(kinds: [IoKind; N]) -> impl Iterator<Item = IoKind> {
    kinds.into_iter().filter(|io| io.check().is_ok())
}

/// Options of a pool of that many frames (at least the minimum) that gives up soon.
pub fn small_pool(frames: u64) -> Options {
    Options::default()
        .swizzling(swizzling())
        .direct_value_bytes(direct_value_bytes())
        .pool_bytes((frames * FRAME).max(MIN_POOL_BYTES))
        .write_concurrency(8)
        .stall_timeout(Duration::from_secs(1))
}

/// As [`small_pool`], without a log.
pub fn unlogged_pool(frames: u64) -> Options {
    small_pool(frames).log(false)
}

/// The device of a test's store: storages for its pages and for its log.
#[derive(Clone)]
pub struct Device {
    /// Pages.
    pub pages: Arc<dyn Storage>,
    /// Log.
    pub log: Arc<dyn LogStorage>,
}

impl Device {
    /// In memory.
    pub fn memory() -> Device {
        Device { pages: Arc::new(MemoryStorage::new()), log: Arc::new(MemoryLog::default()) }
    }

    /// On a simulated device, which holds both.
    pub fn sim(storage: &Arc<SimStorage>) -> Device {
        Device { pages: storage.clone(), log: storage.clone() }
    }

    /// In files of a directory.
    pub fn files(io: IoKind, directory: &Path) -> Device {
        let log = directory.join(LOG_DIRECTORY);
        std::fs::create_dir_all(&log).expect("directory of the log");
        let pages = wattle::io::open(io, &directory.join("data")).expect("open storage");
        Device { pages, log: wattle::io::open_log(io, &log).expect("open the storage of the log") }
    }

    /// Opens the store on it.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open(&self, options: Options) -> Result<Engine> {
        Engine::open_on(self.pages.clone(), self.log.clone(), options)
    }
}

/// The seed of a test that depends on chance, from `WATTLE_TEST_SEED` or from the time. A failing
/// test prints it.
pub fn seed() -> u64 {
    let given = std::env::var("WATTLE_TEST_SEED").ok().and_then(|n| n.parse().ok());
    given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_nanos() as u64 % (1 << 32))
    })
}

/// SplitMix64: small, and the same on every machine.
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// Waits for something that others bring about.
///
/// # Panics
/// If it does not come within 20 s.
pub fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Verifies the whole store.
///
/// # Panics
/// If anything is wrong.
pub fn assert_verified(engine: &Engine) {
    let report = engine.verify(&mut |_| {}).expect("verify");
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
}

/// Says on a panic what was being done, for loops whose every turn is a test of its own.
pub struct Context<T: std::fmt::Debug>(pub T);

impl<T: std::fmt::Debug> Drop for Context<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("while testing {:?}", self.0);
        }
    }
}

/// Polls a future until it is ready or was pending `polls` times, then drops it.
pub async fn give_up_after<T>(polls: u32, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        Poll::Pending
    })
    .await
}

/// Ends the process when the test makes no step for too long, so that a hang is a failure.
pub struct Watchdog {
    steps: Arc<AtomicU64>,
    done: Arc<AtomicBool>,
}

impl Watchdog {
    /// Starts watching; `what` names the test.
    pub fn start(what: &'static str, limit: Duration) -> Watchdog {
        let (steps, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (seen, ended) = (steps.clone(), done.clone());
        std::thread::spawn(move || {
            // Looks, and not time: the whole process may be stopped for a while.
            let look = Duration::from_millis(100);
            let (mut looks, mut last) = (0, 0);
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(look);
                let now = seen.load(Ordering::Relaxed);
                looks += 1;
                if now != last {
                    (looks, last) = (0, now);
                } else if look * looks > limit {
                    // Not by `eprintln`: the test harness captures its output, and would not print
                    // it.
                    let message =
                        format!("{what} hangs: no progress for {limit:?} after step {now}\n");
                    _ = std::io::stderr().write_all(message.as_bytes());
                    std::process::abort();
                }
            }
        });
        Watchdog { steps, done }
    }

    /// One more step is done.
    pub fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

/// A change of one record.
pub enum Change {
    /// Flips bits of the value, as far as it goes.
    Modify {
        /// The first byte.
        at: usize,
        /// How many bytes.
        len: usize,
        /// Which bits of each.
        mark: u8,
    },
    /// Removes it.
    Remove,
    /// Another value, if there is one.
    Update(Vec<u8>),
    /// Another value.
    Put(Vec<u8>),
}

impl Change {
    /// Makes the change in a transaction that sees `map`, and in `map` unless it is refused.
    ///
    /// # Panics
    /// If the record is there in one of the two only.
    pub fn make(
        self,
        txn: &mut Transaction<'_>,
        tree: &Tree,
        key: &[u8],
        map: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Result<()> {
        let known = map.get(key).cloned();
        let was_there = known.is_some();
        let (outcome, after) = self.try_in(txn, tree, key, known);
        assert_eq!(outcome?, was_there, "record {key:?}");
        match after {
            Some(value) => map.insert(key.to_vec(), value),
            None => map.remove(key),
        };
        Ok(())
    }

    /// Gives whether the record was there, or the error; and what becomes of the one that is known.
    fn try_in(
        self,
        txn: &mut Transaction<'_>,
        tree: &Tree,
        key: &[u8],
        known: Option<Vec<u8>>,
    ) -> (Result<bool>, Option<Vec<u8>>) {
        match self {
            Change::Modify { at, len, mark } => {
                let change = move |value: &mut [u8]| {
                    value.iter_mut().skip(at).take(len).for_each(|byte| *byte ^= mark);
                };
                let outcome = txn.modify(tree, key, change);
                let after = known.map(|mut value| {
                    change(&mut value);
                    value
                });
                (outcome, after)
            }
            Change::Remove => (txn.remove(tree, key), None),
            Change::Update(value) => {
                let outcome = txn.update(tree, key, &value);
                (outcome, known.and(Some(value)))
            }
            Change::Put(value) => {
                let outcome = txn.put(tree, key, &value).map(|()| known.is_some());
                (outcome, Some(value))
            }
        }
    }
}

/// Pages in memory, after something else was asked: a device that is slow or full in its own way.
pub struct Asked {
    /// The pages.
    pub pages: Arc<MemoryStorage>,
    /// Asked before room for so many pages is reserved.
    pub reserve: Box<dyn Fn(u64) -> io::Result<()> + Send + Sync>,
    /// Asked before pages are written.
    pub write: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
}

impl Asked {
    /// Pages of which nothing is asked.
    pub fn nothing() -> Asked {
        let pages = Arc::new(MemoryStorage::new());
        Asked { pages, reserve: Box::new(|_| Ok(())), write: Box::new(|| Ok(())) }
    }
}

impl Storage for Asked {
    fn name(&self) -> &'static str {
        "asked"
    }

    fn read_page(&self, target: &mut ReadTarget) -> io::Result<()> {
        self.pages.read_page(target)
    }

    fn start_read(self: Arc<Self>, target: ReadTarget) {
        self.pages.clone().start_read(target);
    }

    fn read_image(&self, page: PageId, image: &mut PageImage) -> io::Result<()> {
        self.pages.read_image(page, image)
    }

    fn write_pages(&self, batch: &[PageWrite<'_>], results: &mut Vec<io::Result<()>>) {
        match (self.write)() {
            Ok(()) => self.pages.write_pages(batch, results),
            Err(error) => results.extend(batch.iter().map(|_| Err(error.kind().into()))),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.pages.sync()
    }

    fn capacity_pages(&self) -> u64 {
        self.pages.capacity_pages()
    }

    fn reserve(&self, pages: u64) -> io::Result<()> {
        (self.reserve)(pages)?;
        self.pages.reserve(pages)
    }

    fn shrink(&self, pages: u64) -> io::Result<()> {
        self.pages.shrink(pages)
    }
}
