//! Shared by the actors: the engine, their models, and the time that each has spent in its
//! operation.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use wattle::{Engine, Error};
use wattle_tests::harness::Random;

/// The current operation of an actor, and the number of those before it.
pub struct Beat {
    actor: String,
    now: Mutex<Option<(&'static str, Instant)>>,
    done: AtomicU64,
    /// By reason, see [`REASONS`].
    refused: [AtomicU64; REASONS.len()],
    longest_us: AtomicU64,
}

/// Why operations are refused that have changed nothing.
const REASONS: [&str; 6] = ["conflict", "full", "no frame", "too old", "must abort", "limit"];

/// The place of an error among [`REASONS`].
fn reason(error: &Error) -> Option<usize> {
    Some(match error {
        Error::Conflict(_) => 0,
        Error::DiskFull { .. } => 1,
        Error::PoolExhausted { .. } => 2,
        Error::SnapshotTooOld(_) => 3,
        Error::MustAbort(_) => 4,
        Error::Limit(_) => 5,
        _ => return None,
    })
}

impl Beat {
    /// Notes that the actor is at `what` until the result is dropped.
    pub fn at(&self, what: &'static str) -> At<'_> {
        *self.now.lock() = Some((what, Instant::now()));
        At(self)
    }

    /// Runs an operation that may be refused; gives its result unless it was. A refused operation
    /// has changed nothing.
    ///
    /// # Panics
    /// If it fails for a reason that no actor should meet.
    pub fn attempt<T>(
        &self,
        what: &'static str,
        run: impl FnOnce() -> wattle::Result<T>,
    ) -> Option<T> {
        let at = self.at(what);
        let result = run();
        drop(at);
        self.accept(what, result)
    }

    /// The result unless the operation was refused.
    ///
    /// # Panics
    /// As [`Beat::attempt`].
    pub fn accept<T>(&self, what: &'static str, result: wattle::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => match reason(&error) {
                Some(reason) => {
                    self.refused[reason].fetch_add(1, Ordering::Relaxed);
                    None
                }
                None => panic!("{} at {what}: {error}", self.actor),
            },
        }
    }
}

/// See [`Beat::at`].
pub struct At<'b>(&'b Beat);

impl Drop for At<'_> {
    fn drop(&mut self) {
        let began = self.0.now.lock().take();
        let us = began.map_or(0, |(_, began)| began.elapsed().as_micros() as u64);
        self.0.longest_us.fetch_max(us, Ordering::Relaxed);
        self.0.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// A value made of its number, so that models need not keep values: the number, then bytes that
/// follow from it.
pub fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![number as u8 ^ 0x5a; bytes.max(8)];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// The number of a value.
///
/// # Panics
/// If it is not the value of any number.
pub fn number_of(bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    assert!(bytes[8..].iter().all(|byte| *byte == number as u8 ^ 0x5a), "a mixed value");
    number
}

/// The contents that a tree, or a part of it, must have when all actors have ended.
pub struct Check {
    /// Name of the tree.
    pub tree: String,
    /// All keys of the part begin with it, and no others do.
    pub prefix: Vec<u8>,
    /// Numbers of the values, and their lengths.
    pub records: BTreeMap<Vec<u8>, (u64, usize)>,
}

impl Check {
    /// Compares the part with the store.
    pub fn compare(&self, engine: &Engine) {
        let tree = engine.open_tree(&self.tree).expect("open a tree");
        let tree = tree.unwrap_or_else(|| panic!("tree {} is gone", self.tree));
        let session = engine.session().expect("session");
        let mut expected = self.records.iter();
        for entry in session.prefix(&tree, &self.prefix).expect("range") {
            let (key, bytes) = entry.expect("entry");
            let (known, (number, len)) = expected.next().expect("no record too many");
            assert_eq!(&key, known, "tree {}", self.tree);
            assert_eq!((number_of(&bytes), bytes.len()), (*number, *len), "record {key:?}");
        }
        assert_eq!(expected.next(), None, "tree {} lacks a record", self.tree);
    }

    fn bytes(&self) -> u64 {
        self.records.iter().map(|(key, (_, len))| (key.len() + len) as u64).sum()
    }
}

pub struct World {
    pub engine: Engine,
    pub seed: u64,
    pub stop: AtomicBool,
    /// Live data, as the actors know it.
    pub live: AtomicU64,
    beats: Mutex<Vec<Arc<Beat>>>,
    checks: Mutex<Vec<Check>>,
}

impl World {
    pub fn new(engine: Engine, seed: u64) -> World {
        World {
            engine,
            seed,
            stop: AtomicBool::new(false),
            live: AtomicU64::new(0),
            beats: Mutex::default(),
            checks: Mutex::default(),
        }
    }

    /// Registers an actor.
    pub fn beat(&self, actor: impl Into<String>) -> Arc<Beat> {
        let beat = Arc::new(Beat {
            actor: actor.into(),
            now: Mutex::new(None),
            done: AtomicU64::new(0),
            refused: Default::default(),
            longest_us: AtomicU64::new(0),
        });
        self.beats.lock().push(beat.clone());
        beat
    }

    pub fn random(&self, actor: u64) -> Random {
        Random::new(self.seed.wrapping_mul(1000).wrapping_add(actor))
    }

    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Bytes of one more record, or of one less.
    pub fn grow(&self, before: usize, after: usize) {
        self.live.fetch_add(after as u64, Ordering::Relaxed);
        self.live.fetch_sub(before as u64, Ordering::Relaxed);
    }

    pub fn live_bytes(&self) -> u64 {
        match self.checks.lock().as_slice() {
            [] => self.live.load(Ordering::Relaxed),
            checks => checks.iter().map(Check::bytes).sum(),
        }
    }

    /// The result of an actor.
    pub fn add_check(&self, check: Check) {
        self.checks.lock().push(check);
    }

    /// Closes the engine and gives what must be in the store.
    pub fn into_checks(self) -> Vec<Check> {
        self.engine.close().expect("close");
        self.checks.into_inner()
    }

    /// No actor is at one operation for longer than that.
    pub fn check_beats(&self, limit: Duration) {
        for beat in self.beats.lock().iter() {
            if let Some((what, began)) = *beat.now.lock() {
                let took = began.elapsed();
                assert!(took <= limit, "{} has been at {what} for {took:?}", beat.actor);
            }
        }
    }

    pub fn progress(&self) -> String {
        let beats = self.beats.lock();
        let one = |beat: &Arc<Beat>| {
            let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let refused = REASONS.iter().zip(&beat.refused).filter(|(_, n)| of(n) > 0);
            let refused = refused.map(|(why, n)| format!(", {} {why}", of(n))).collect::<String>();
            let longest = of(&beat.longest_us) / 1000;
            format!("  {}: {}{refused}; {longest} ms at most", beat.actor, of(&beat.done))
        };
        beats.iter().map(one).collect::<Vec<_>>().join("\n")
    }

    /// Ends all actors when the thread that has it panics.
    pub fn stop_at_panic(&self) -> StopAtPanic<'_> {
        StopAtPanic(self)
    }
}

/// See [`World::stop_at_panic`].
pub struct StopAtPanic<'w>(&'w World);

impl Drop for StopAtPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop.store(true, Ordering::Relaxed);
        }
    }
}
