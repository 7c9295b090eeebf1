//! One life of a store: its sessions, what is open in them, and what is known of it.
//!
//! Everything goes on in one thread, so that what is there after each operation is known. Each
//! event (a commit, a tree that is made) has a number and a state of the [`History`]. The device is
//! told before an event begins and when it is acknowledged; an image of a crash lies between the
//! two.

use super::{
    Counts, Mode,
    data::{Id, Key, Sizes, UNIVERSE},
    readers::Reader,
    state::{History, State},
    writers::Writer,
};
use rand::{RngExt, rngs::SmallRng, seq::IndexedRandom};
use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
    time::Duration,
};
use wattle::{AsyncSession, Engine, Error, Session, Ticket, Tree};
use wattle_tests::{crash::device::Capturing, harness::one_seed};

/// Sessions without futures. The one with futures has the next number after them.
pub const SESSIONS: usize = 3;
/// Transactions that change something, at a time.
const WRITERS: usize = 4;
/// Tickets that may wait for their commits to be durable.
pub const TICKETS: usize = 6;

/// The beginning of a life.
pub struct Setting {
    /// The possible failures.
    pub mode: Mode,
    /// Nothing is acknowledged as durable.
    pub never_durable: bool,
    /// Reads see the newest commits.
    pub sees_newest: bool,
    /// There is a log.
    pub logged: bool,
    /// Of values.
    pub sizes: Sizes,
}

/// See the module documentation.
pub struct World<'s> {
    pub(super) engine: &'s Engine,
    pub(super) device: &'s Capturing,
    pub(super) sessions: &'s [Session],
    pub(super) async_session: AsyncSession,
    pub(super) setting: Setting,
    /// Operations may fail.
    pub(super) faulty: bool,
    pub(super) random: SmallRng,
    pub(super) trees: BTreeMap<Id, Tree>,
    pub(super) next_tree: &'s mut Id,
    pub(super) history: &'s mut History,
    /// The newest event that is known to be durable.
    pub(super) acked: u64,
    /// The newest event of each session.
    pub(super) own: [u64; SESSIONS + 1],
    /// The last event that changed a record.
    pub(super) last: BTreeMap<(Id, Key), u64>,
    pub(super) writers: Vec<Option<Writer<'s>>>,
    pub(super) readers: Vec<Reader<'s>>,
    pub(super) tickets: VecDeque<(u64, Ticket)>,
    pub(super) counts: &'s mut Counts,
    tells: bool,
}

/// The stage of a life.
pub struct Place<'s> {
    /// The engine.
    pub engine: &'s Engine,
    /// Its device.
    pub device: &'s Arc<Capturing>,
    /// Its sessions without futures.
    pub sessions: &'s [Session],
    /// Number of the next tree.
    pub next_tree: &'s mut Id,
    /// The state at its beginning.
    pub history: &'s mut History,
    /// Counters.
    pub counts: &'s mut Counts,
}

impl<'s> World<'s> {
    /// Opens all trees.
    pub fn new(place: Place<'s>, setting: Setting, random: SmallRng) -> World<'s> {
        let Place { engine, device, sessions, next_tree, history, counts } = place;
        let mut world = World {
            engine,
            device,
            sessions,
            async_session: engine.async_session().expect("an asynchronous session"),
            faulty: setting.mode != Mode::Plain,
            setting,
            random,
            trees: BTreeMap::new(),
            next_tree,
            acked: history.first(),
            history,
            own: [0; SESSIONS + 1],
            last: BTreeMap::new(),
            writers: (0..WRITERS).map(|_| None).collect(),
            readers: Vec::new(),
            tickets: VecDeque::new(),
            counts,
            tells: one_seed().is_some(),
        };
        for (name, tree) in &world.now().names {
            let opened = world.open_tree(name);
            world.trees.insert(*tree, opened);
        }
        world
    }

    fn open_tree(&mut self, name: &str) -> Tree {
        loop {
            match self.engine.open_tree(name) {
                Ok(tree) => return tree.expect("it is there"),
                Err(error) => self.expect_fault(&error, "open a tree"),
            }
        }
    }

    /// Whether the store is new.
    pub fn has_no_trees(&self) -> bool {
        self.trees.is_empty()
    }

    /// Tells those who run one seed alone what it does.
    pub fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells {
            println!("{}", what());
        }
    }

    /// The newest state.
    pub fn now(&self) -> Rc<State> {
        self.history.now().clone()
    }

    /// A number below another.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.random.random_range(0..bound)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, many: u32) -> bool {
        self.below(many) == 0
    }

    /// Number of polls before a future is cancelled: small once in so many times, otherwise without
    /// limit.
    pub fn patience(&mut self, one_in: u32) -> u32 {
        if self.one_in(one_in) { self.below(4) } else { u32::MAX }
    }

    /// One of the trees.
    pub fn any_tree(&mut self) -> (Id, Tree) {
        let trees: Vec<Id> = self.trees.keys().copied().collect();
        let id = *trees.choose(&mut self.random).expect("there is at least one");
        (id, self.trees[&id].clone())
    }

    /// One of the sessions without futures.
    pub fn any_session(&mut self) -> usize {
        self.random.random_range(0..SESSIONS)
    }

    /// The number of a record; a few are chosen more often.
    pub fn any_number(&mut self) -> u32 {
        match self.below(3) {
            0 => self.below(12) * 20,
            _ => self.below(UNIVERSE),
        }
    }

    /// The last event that changed a record in this life, or 0.
    pub fn last_change(&self, tree: Id, key: &[u8]) -> u64 {
        self.last.get(&(tree, key.to_vec())).copied().unwrap_or(0)
    }

    /// Whether another transaction than this one has changed a record and not ended.
    pub fn is_owned(&self, tree: Id, key: &[u8], but: Option<usize>) -> bool {
        let record = (tree, key.to_vec());
        let others = self.writers.iter().enumerate().filter(|(who, _)| Some(*who) != but);
        others.filter_map(|(_, writer)| writer.as_ref()).any(|writer| writer.own.contains(&record))
    }

    /// The next event begins.
    pub fn issue(&mut self) -> u64 {
        let number = self.history.newest() + 1;
        self.device.issue(0, number);
        number
    }

    /// The event that has begun is none.
    pub fn take_back(&mut self) {
        self.device.issue(0, self.history.newest());
    }

    /// All events up to this one are durable.
    pub fn ack(&mut self, number: u64) {
        self.acked = self.acked.max(number);
        self.device.ack(0, self.acked);
    }

    /// As [`World::ack`], if anything is durable in this life.
    pub fn ack_if_durable(&mut self, number: u64) {
        if !self.setting.never_durable {
            self.ack(number);
        }
    }

    /// Waits for tickets until so many are left.
    pub fn wait_for_tickets(&mut self, left: usize) {
        while self.tickets.len() > left {
            let (number, ticket) = self.tickets.pop_front().expect("there are more");
            if self.one_in(3) {
                block_on(ticket).expect("a ticket");
            } else {
                ticket.wait().expect("a ticket");
            }
            self.ack(number);
        }
    }

    /// Whether the device may be the reason.
    pub fn is_fault(&mut self, error: &Error) -> bool {
        let is_of_device = matches!(
            error,
            Error::Io { .. } | Error::DiskFull { .. } | Error::PoolExhausted { .. }
        );
        let is_fault = self.faulty && is_of_device;
        self.counts.faults += u64::from(is_fault);
        is_fault
    }

    /// The device must be the reason.
    pub fn expect_fault(&mut self, error: &Error, what: &str) {
        assert!(self.is_fault(error), "{what}: {error}");
    }

    /// The device must be the reason, or the memory of versions is full.
    pub fn expect_failed_read(&mut self, error: &Error, what: &str) {
        match error {
            Error::SnapshotTooOld(_) => self.counts.too_old += 1,
            error => self.expect_fault(error, what),
        }
    }

    /// Does something.
    pub fn step(&mut self) {
        self.counts.steps += 1;
        let who = self.random.random_range(0..WRITERS);
        match self.below(100) {
            0..26 => self.write(who),
            26..32 => self.write_many(who),
            32..37 => self.write_neighbours(who),
            37..46 => self.use_savepoint(who),
            46..56 => self.end(who),
            56..68 => self.change_alone(),
            68..76 => self.check_writer(who),
            76..82 => self.check_reader(),
            82..85 => self.begin_or_end_reader(),
            85..90 => self.check_session(),
            90..94 if !self.faulty => self.change_trees(),
            94 => self.checkpoint(),
            95 => self.sync(),
            96 => std::thread::sleep(Duration::from_micros(1500)),
            97 => self.end_all(),
            98 => self.write_much(who),
            99 if self.counts.steps.is_multiple_of(3) && !self.faulty && self.setting.logged => {
                self.back_up();
            }
            _ => self.readers.clear(),
        }
    }

    fn checkpoint(&mut self) {
        if let Err(error) = self.engine.checkpoint() {
            self.expect_fault(&error, "a checkpoint");
        }
    }

    fn sync(&mut self) {
        self.engine.sync().expect("sync");
        self.wait_for_tickets(0);
        self.ack(self.history.newest());
    }

    /// Ends all transactions that change something.
    pub fn end_all(&mut self) {
        (0..WRITERS).for_each(|who| self.end(who));
    }

    /// The device has healed: nothing fails from now on, and every ticket completes.
    pub fn finish(mut self) {
        self.faulty = false;
        self.wait_for_tickets(0);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future until it is ready, every few milliseconds even without a wake-up: this suite
/// looks for lost records, not for lost wake-ups.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park_timeout(Duration::from_millis(2)),
        }
    }
}
