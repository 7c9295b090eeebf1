//! Looks at crash images: opens each, compares what it holds with the history, verifies it, goes on
//! with some of them, and looks at images of that in turn.

use super::{
    device::{Bounds, Camera, Capturing, Image},
    driver::Driver,
    history::{History, State},
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::sync::Arc;
use wattle::{
    Durability, Engine, MIN_LOG_BYTES, MIN_POOL_BYTES, Options, PageImages,
    io::{FaultPlan, SimStorage},
};

/// Images of images of images.
const DEEPEST: u32 = 3;

/// The devices under a workload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// Pages are never torn.
    pub whole_pages: bool,
    /// Bytes that the device has for the log, if that is less than the log wants. For workloads
    /// that take it when a change is refused.
    pub log_room: Option<u64>,
}

impl Setting {
    /// The plan of its device.
    pub fn plan(self, seed: u64) -> FaultPlan {
        let plan = FaultPlan::new(seed);
        match self.log_room {
            Some(bytes) => plan.log_limit(bytes),
            None => plan,
        }
    }
}

/// Options of a store, chosen by `seed`: small pools, most often the shortest log.
pub fn options(seed: u64, setting: Setting) -> Options {
    let mut random = SmallRng::seed_from_u64(seed ^ 0x6f70_7469_6f6e);
    let pool = [MIN_POOL_BYTES, MIN_POOL_BYTES * 2, MIN_POOL_BYTES * 8][random.random_range(0..3)];
    let durability = [Durability::Sync, Durability::Group][random.random_range(0..2)];
    let log_bytes = [MIN_LOG_BYTES, MIN_LOG_BYTES, 16 << 20][random.random_range(0..3)];
    let images = [PageImages::Plain, PageImages::Compressed][random.random_range(0..2)];
    let direct = [0, 4 << 10, 12_000][random.random_range(0..3)];
    Options::default()
        .direct_value_bytes(direct)
        .page_images(images)
        .pool_bytes(pool)
        .write_concurrency(8)
        .evictors(1)
        .log_bytes(if setting.log_room.is_some() { MIN_LOG_BYTES } else { log_bytes })
        .durability(durability)
        .atomic_page_writes(setting.whole_pages)
}

/// Opens a store on a device.
///
/// # Errors
/// What the engine says.
pub fn open(device: &Arc<Capturing>, options: &Options) -> wattle::Result<Engine> {
    Engine::open_on(device.clone(), device.clone(), options.clone())
}

/// Looks at images of one workload.
pub struct Checker {
    /// Seed of the workload, for messages.
    pub seed: u64,
    /// Options of the store.
    pub options: Options,
    /// The devices under it.
    pub setting: Setting,
    /// Images looked at.
    pub checked: u64,
    random: SmallRng,
}

impl Checker {
    /// For the workload with this seed.
    pub fn new(seed: u64, setting: Setting) -> Checker {
        let options = options(seed, setting);
        let random = SmallRng::seed_from_u64(!seed);
        Checker { seed, options, setting, checked: 0, random }
    }

    /// Looks at an image, and goes on with it now and then.
    ///
    /// # Panics
    /// If it is not what it should be.
    pub fn check(&mut self, image: Image, history: &Arc<History>) {
        self.check_deep(image, history, 1);
    }

    fn one_in(&mut self, many: u32) -> bool {
        self.random.random_range(0..many) == 0
    }

    fn check_deep(&mut self, image: Image, history: &Arc<History>, depth: u32) {
        self.checked += 1;
        let what = format!("seed {}, depth {depth}: {image:?}", self.seed);
        let bounds = image.bounds[0];
        // 1. Open it, perhaps with images of that.
        let again = depth < DEEPEST && self.one_in(8);
        let one_in = if again { 4 } else { 0 };
        let camera = Camera { one_in, most: 6, whole_pages: self.setting.whole_pages };
        let device = Capturing::new(Arc::new(image.sim), 1, image.seed, camera);
        device.set(&[bounds]);
        let options = self.options.clone();
        let engine = open(&device, &options)
            .unwrap_or_else(|error| panic!("{what}: it cannot be opened: {error}"));
        // 2. Compare.
        let number = compare(&engine, history, bounds, &what);
        let exact = Bounds { acked: number, issued: number };
        device.set(&[exact]);
        verify(&engine, &what);
        let mut history = history.clone();
        // 3. Go on.
        let mut last = number;
        if again || self.one_in(10) {
            let opened = device.take();
            self.check_all(opened, &history, depth);
            history = history.branch(number);
            let seed = self.random.random();
            let mut driver = Driver::new(engine, device.clone(), history.clone(), seed);
            for _ in 0..self.random.random_range(0..12) {
                driver.step();
            }
            close(driver.finish(), &what);
            last = history.newest();
            let left = device.take();
            self.check_all(left, &history, depth);
        } else {
            close(engine, &what);
        }
        // 4. A store that was closed is opened again.
        if again || self.one_in(4) {
            let engine = open(&device, &options)
                .unwrap_or_else(|error| panic!("{what}: it cannot be opened again: {error}"));
            compare(&engine, &history, Bounds { acked: last, issued: last }, &what);
            verify(&engine, &what);
            close(engine, &what);
            let left = device.take();
            self.check_all(left, &history, depth);
        }
    }

    fn check_all(&mut self, images: Vec<Image>, history: &Arc<History>, depth: u32) {
        for image in images {
            self.check_deep(image, history, depth + 1);
        }
    }
}

fn compare(engine: &Engine, history: &History, bounds: Bounds, what: &str) -> u64 {
    let found = State::read(engine).unwrap_or_else(|error| panic!("{what}: {error}"));
    history.find(&found, bounds).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Nothing is wrong with a store.
///
/// # Panics
/// If something is.
pub fn verify(engine: &Engine, what: &str) {
    let report = engine.verify(&mut |_| {}).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(report.problems.is_empty(), "{what}: {:#?}", report.problems);
}

/// Closes a store.
///
/// # Panics
/// If that fails.
pub fn close(engine: Engine, what: &str) {
    engine.close().unwrap_or_else(|error| panic!("{what}: it cannot be closed: {error}"));
}

/// One workload with all its images; gives how many were looked at. Half way the store is closed
/// and opened again.
///
/// # Panics
/// If anything is wrong.
pub fn run(seed: u64, steps: u64, one_in: u64, setting: Setting) -> u64 {
    let mut checker = Checker::new(seed, setting);
    let sim = Arc::new(SimStorage::new(setting.plan(seed)));
    let camera = Camera { one_in, most: 64, whole_pages: setting.whole_pages };
    let device = Capturing::new(sim, 1, seed, camera);
    let history = History::from(0, State::default());
    let what = format!("seed {seed}");
    for half in 0..2 {
        let engine = open(&device, &checker.options).unwrap_or_else(|e| panic!("{what}: {e}"));
        let newest = history.newest();
        compare(&engine, &history, Bounds { acked: newest, issued: newest }, &what);
        let mut driver = Driver::new(engine, device.clone(), history.clone(), seed * 2 + half);
        for step in 0..steps / 2 {
            driver.step();
            if step % 8 == 7 {
                device.take().into_iter().for_each(|image| checker.check(image, &history));
            }
        }
        let engine = driver.finish();
        verify(&engine, &what);
        close(engine, &what);
        device.take().into_iter().for_each(|image| checker.check(image, &history));
    }
    checker.checked
}
