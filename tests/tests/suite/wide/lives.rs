//! The lives of one store: it is opened, compared, used for a while, and then closed, or the power
//! is cut. The rest is opened again, perhaps with a power cut during recovery.

use super::{
    Counts, Mode,
    data::{Id, Sizes},
    state::{Found, History, State, read_all},
    world::{Place, SESSIONS, Setting, World},
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use wattle::{
    Durability, Engine, Error, MIN_LOG_BYTES, MIN_POOL_BYTES, Options, Reads, Session,
    io::{Cut, Fault, FaultPlan, Op, SimStorage},
};
use wattle_tests::crash::{
    check::{close, open, verify},
    device::{Bounds, Camera, Capturing, Image},
};

/// Power cuts while a store is opened, one after the other.
const DEEPEST: u32 = 4;
/// The smallest limit of versions that is tried, bytes: without small limits, what the engine takes
/// at least.
const MIN_VERSION_BYTES: u64 = if cfg!(small_limits) { 1 << 12 } else { 1 << 20 };

/// The facts about a store that pass from life to life.
pub struct Lives<'c> {
    seed: u64,
    mode: Mode,
    random: SmallRng,
    counts: &'c mut Counts,
    options: Options,
    /// The device writes pages whole.
    whole_pages: bool,
    /// Reads take a while now and then.
    latency: bool,
    never_durable: bool,
    reads: Reads,
    life: u64,
    next_tree: Id,
    history: History,
    /// Which states may be there.
    bounds: Bounds,
    /// The last life ended without a power cut.
    clean: bool,
}

impl<'c> Lives<'c> {
    /// The store of a seed.
    pub fn new(seed: u64, mode: Mode, counts: &'c mut Counts) -> Lives<'c> {
        let mut random = SmallRng::seed_from_u64(seed);
        let whole_pages = random.random_range(0..4) == 0;
        let durabilities = [Durability::Sync, Durability::Group, Durability::None];
        let durability = durabilities[random.random_range(0..3)];
        let version_bytes = [1 << 12, 1 << 14, 1 << 16, 1 << 20, 1 << 26];
        let reads = [Reads::Durable, Reads::Newest][random.random_range(0..2)];
        let stall_timeout = match mode {
            Mode::FullDevice => Duration::from_millis(60),
            Mode::Plain | Mode::FailingReads => Duration::from_secs(20),
        };
        let options = Options::default()
            .write_concurrency(8)
            .evictors(1)
            .version_bytes(version_bytes[random.random_range(0..5)].max(MIN_VERSION_BYTES))
            .durability(durability)
            .reads(reads)
            .stall_timeout(stall_timeout);
        Lives {
            seed,
            mode,
            options,
            whole_pages,
            latency: random.random(),
            never_durable: durability == Durability::None,
            reads,
            random,
            counts,
            life: 0,
            next_tree: 0,
            history: History::new(1, Rc::new(State::default())),
            bounds: Bounds { acked: 1, issued: 1 },
            clean: true,
        }
    }

    /// All lives, and a last look at what is there.
    pub fn run(mut self) {
        let mut sim = SimStorage::new(FaultPlan::new(self.seed));
        let lives = self.random.random_range(1..5);
        while self.life < lives {
            let settled = self.bounds.acked == self.bounds.issued && self.clean;
            let may_be_unlogged = self.mode == Mode::Plain && settled;
            let logged = self.random.random_range(0..6) != 0 || !may_be_unlogged;
            self.counts.unlogged += u64::from(!logged);
            let (engine, device) = self.open(sim, logged);
            self.compare(&engine, &device);
            let crash = self.live(&engine, &device, logged);
            sim = self.end(engine, &device, crash);
            self.life += 1;
        }
        let (engine, device) = self.open(sim, true);
        self.compare(&engine, &device);
        close(engine, &self.what("after the last life"));
    }

    fn what(&self, when: &str) -> String {
        format!("seed {}, life {}, {when}", self.seed, self.life)
    }

    fn camera(&self, one_in: u64) -> Camera {
        Camera { one_in, most: 24, whole_pages: self.whole_pages }
    }

    /// The options of a life: pool and log may be of another size each time.
    fn life_options(&mut self, logged: bool) -> Options {
        let pools = [MIN_POOL_BYTES, MIN_POOL_BYTES * 2, MIN_POOL_BYTES * 6];
        let log_bytes = match self.mode {
            Mode::FullDevice => MIN_LOG_BYTES,
            Mode::Plain | Mode::FailingReads => MIN_LOG_BYTES * self.random.random_range(1..=2),
        };
        let options = self.options.clone().log(logged).log_bytes(log_bytes);
        options
            .pool_bytes(pools[self.random.random_range(0..3)])
            .atomic_page_writes(self.whole_pages && self.random.random())
    }

    /// Opens the store, perhaps after power cuts while it was being opened.
    fn open(&mut self, mut sim: SimStorage, logged: bool) -> (Engine, Arc<Capturing>) {
        let options = self.life_options(logged);
        let mut deep = 0;
        loop {
            let seed = self.random.random();
            let device = Capturing::new(Arc::new(sim), 1, seed, self.camera(6));
            device.set(&[self.bounds]);
            let what = self.what(&format!("after {deep} power cuts while it was opened"));
            let engine = open(&device, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut images = device.take();
            let again = logged && deep < DEEPEST && self.random.random_range(0..3) == 0;
            if !again || images.is_empty() {
                return (engine, device);
            }
            deep += 1;
            self.counts.crashes_while_opening += 1;
            sim = images.swap_remove(self.random.random_range(0..images.len())).sim;
        }
    }

    /// The contents must be one of the possible states, which becomes the first one of this life.
    fn compare(&mut self, engine: &Engine, device: &Capturing) {
        let what = self.what("after it was opened");
        let found = read_all(engine).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut may_be = (self.bounds.acked..=self.bounds.issued).rev();
        let number =
            may_be.find(|number| self.history.at(*number).is(&found)).unwrap_or_else(|| {
                let differences = self.history.differences(&found);
                panic!("{what}: what is there is none of {:?}:\n{differences}", self.bounds);
            });
        verify(engine, &what);
        self.history = History::new(number, self.history.at(number).clone());
        self.bounds = Bounds { acked: number, issued: number };
        device.set(&[self.bounds]);
        device.take();
    }

    /// The failures of this life.
    fn plan(&self) -> FaultPlan {
        let seed = self.seed ^ self.life;
        let mut plan = FaultPlan::new(seed);
        if self.latency {
            plan = plan.sometimes(Op::Read, 0.2, Fault::Latency(Duration::from_micros(5)));
        }
        match self.mode {
            Mode::Plain => plan,
            Mode::FailingReads => {
                plan.sometimes(Op::Read, 0.01, Fault::Error(std::io::ErrorKind::TimedOut))
            }
            Mode::FullDevice => {
                let mut random = SmallRng::seed_from_u64(seed);
                plan = plan.limit(random.random_range(257..420));
                match random.random::<bool>() && self.sizes() == Sizes::Large {
                    true => plan.log_limit(random.random_range(2_200_000..2_900_000)),
                    false => plan,
                }
            }
        }
    }

    /// Huge values are kept away from a device that is full for the log, too: together they can
    /// take more than the reserve of the log, which fails then (`log_room` tests that).
    fn sizes(&self) -> Sizes {
        match self.mode {
            Mode::FullDevice if self.seed.is_multiple_of(5) => Sizes::Huge,
            Mode::FullDevice => Sizes::Large,
            Mode::Plain | Mode::FailingReads if self.seed.is_multiple_of(5) => Sizes::Large,
            Mode::Plain | Mode::FailingReads => Sizes::Small,
        }
    }

    /// Uses the store. Gives whether the power is cut at one of the moments of which the device has
    /// an image.
    fn live(&mut self, engine: &Engine, device: &Arc<Capturing>, logged: bool) -> bool {
        let plan = self.plan();
        let one_in = self.random.random_range(1..60);
        device.aim(self.camera(one_in));
        let steps = self.random.random_range(5..260);
        let sessions: Vec<Session> =
            (0..SESSIONS).map(|_| engine.session().expect("a session")).collect();
        let never_durable = self.never_durable || !logged;
        let setting = Setting {
            mode: self.mode,
            never_durable,
            sees_newest: never_durable || self.reads == Reads::Newest,
            logged,
            sizes: self.sizes(),
        };
        let place = Place {
            engine,
            device,
            sessions: &sessions,
            next_tree: &mut self.next_tree,
            history: &mut self.history,
            counts: self.counts,
        };
        let random = SmallRng::seed_from_u64(self.random.random());
        // 1. There is something to use.
        device.sim().set_plan(plan.clone());
        let mut world = World::new(place, setting, random);
        if world.has_no_trees() {
            device.sim().heal();
            world.create_tree();
            world.create_tree();
            device.sim().set_plan(plan);
        }
        // 2. Use it.
        for step in 0..steps {
            world.tell(|| format!("step {step}"));
            world.step();
        }
        // 3. Perhaps the power is cut now, or at one of the moments before, or while transactions
        //    are rolled back.
        let crash = logged && self.random.random_range(0..4) != 0;
        if crash {
            let cuts =
                [Cut::Sectors, Cut::Pages, Cut::Prefix, Cut::Nothing, Cut::All, Cut::Process];
            let cut = match cuts[self.random.random_range(0..cuts.len())] {
                Cut::Sectors if self.whole_pages => Cut::Pages,
                cut => cut,
            };
            device.shoot("at the end", cut);
        }
        device.sim().heal();
        if self.random.random() {
            world.end_all();
        }
        world.finish();
        crash
    }

    /// Ends a life; gives what is left of the store.
    fn end(&mut self, engine: Engine, device: &Arc<Capturing>, crash: bool) -> SimStorage {
        let mut images = device.take();
        self.clean = !crash || images.is_empty();
        if self.clean {
            return self.close(engine, device);
        }
        let at = match self.random.random() {
            true => images.len() - 1,
            false => self.random.random_range(0..images.len()),
        };
        self.crash(engine, images.swap_remove(at))
    }

    fn crash(&mut self, engine: Engine, image: Image) -> SimStorage {
        self.counts.crashes += 1;
        let [Bounds { acked, issued }] = image.bounds[..] else { panic!("one line") };
        self.bounds = Bounds {
            acked: acked.max(self.history.first()),
            // A cancelled operation was begun, and is no event.
            issued: issued.min(self.history.newest()),
        };
        if self.random.random_range(0..4) == 0 {
            let what = self.what("before the power cut");
            verify(&engine, &what);
            close(engine, &what);
        }
        image.sim
    }

    fn close(&mut self, engine: Engine, device: &Capturing) -> SimStorage {
        self.counts.closes += 1;
        let what = self.what("at the end");
        engine.sync().expect("sync");
        let found = read_in_time(&engine, &what);
        let now = self.history.now();
        assert!(now.is(&found), "{what}: {}", now.differences(&found));
        verify(&engine, &what);
        close(engine, &what);
        let newest = self.history.newest();
        self.bounds = Bounds { acked: newest, issued: newest };
        device.sim().clone_at_rest()
    }
}

/// The whole contents of a store. Abandoned transactions are still being rolled back for a while,
/// which may take all the memory of versions.
fn read_in_time(engine: &Engine, what: &str) -> BTreeMap<String, Found> {
    for _ in 0..1000 {
        match read_all(engine) {
            Err(Error::SnapshotTooOld(_)) => std::thread::sleep(Duration::from_millis(2)),
            found => return found.unwrap_or_else(|error| panic!("{what}: {error}")),
        }
    }
    panic!("{what}: the memory of versions stays full");
}
