//! A wide model: nearly everything that an engine can be asked for, chosen by chance, in stores
//! that are closed and opened again, or lose their power, a few times.
//!
//! One thread does everything, so that the result of each operation is known, even among several
//! open transactions. In each life of a store ([`lives`]) there are up to four transactions that
//! change something, with futures that may be cancelled half way and without, at both levels of
//! isolation and of any durability, with savepoints ([`writers`]); as many that only read
//! ([`readers`]); auto-committed changes, trees that come and go, bulk loads, backups ([`events`]);
//! and checkpoints. Compared are:
//! - every answer of a transaction with a map of what it sees, every other read with the states
//!   that it may see;
//! - every change and commit with what is in its way: it may conflict for no reason that is seen
//!   here, but it must where there is one;
//! - the whole store, when it is closed and after every power cut, with the states between the last
//!   event that was acknowledged and the last one that was begun: it is one of them. Then it is
//!   verified.
//!
//! `WATTLE_ROUNDS` multiplies the number of seeds; `WATTLE_CRASH_SEED` runs one alone, and tells
//! what it does. Most of what the engine does otherwise with many records needs thousands of them,
//! unless its limits are small. A campaign:
//!
//! ```text
//! RUSTFLAGS="--cfg small_limits" CARGO_TARGET_DIR=target/small WATTLE_ROUNDS=50 \
//!     cargo test -p wattle-tests --test suite wide::
//! ```

mod data;
mod events;
mod lives;
mod readers;
mod state;
mod world;
mod writers;

use lives::Lives;
use std::time::{Duration, Instant};
use wattle_tests::harness::{Context, Watchdog, one_seed, rounds};

/// The possible failures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Nothing.
    Plain,
    /// One read of a page in a hundred.
    FailingReads,
    /// Whatever needs room: the device has little for pages, or for the log.
    FullDevice,
}

impl Mode {
    /// Seeds of its test. On a full device much of the time is spent waiting for room.
    fn seeds(self) -> u64 {
        match self {
            Mode::Plain | Mode::FailingReads => 25,
            Mode::FullDevice => 10,
        }
    }
}

/// Counts over all stores of a test.
#[derive(Default)]
struct Counts {
    steps: u64,
    commits: u64,
    aborts: u64,
    conflicts: u64,
    /// Those of them that were not expected.
    unexpected: u64,
    /// Snapshots that were cancelled for lack of memory.
    too_old: u64,
    /// Futures that were cancelled.
    given_up: u64,
    /// Operations that failed with the device.
    faults: u64,
    backups: u64,
    closes: u64,
    crashes: u64,
    crashes_while_opening: u64,
    /// Lives without a log.
    unlogged: u64,
}

impl Counts {
    fn conflict(&mut self, expected: bool) {
        self.conflicts += 1;
        self.unexpected += u64::from(!expected);
    }

    /// Prints them all. None of those that are sure to happen may be missing.
    fn assert_and_print(&self, mode: Mode, began: Instant) {
        let all = [
            ("steps", self.steps, true),
            ("commits", self.commits, true),
            ("aborts", self.aborts, true),
            ("conflicts", self.conflicts, true),
            ("of them not expected", self.unexpected, false),
            ("snapshots too old", self.too_old, false),
            ("futures cancelled", self.given_up, true),
            ("faults", self.faults, mode == Mode::FullDevice),
            ("backups", self.backups, mode == Mode::Plain),
            ("closes", self.closes, true),
            ("power cuts", self.crashes, true),
            ("of them while opening", self.crashes_while_opening, true),
            ("lives without a log", self.unlogged, mode == Mode::Plain),
        ];
        println!("in {:.1} s:", began.elapsed().as_secs_f64());
        for (what, count, expected) in all {
            println!("{count:>9} {what}");
            assert!(count > 0 || !expected || one_seed().is_some(), "no {what}");
        }
    }
}

fn run(mode: Mode) {
    let watchdog = Watchdog::start("the wide model", Duration::from_secs(60));
    let began = Instant::now();
    let mut counts = Counts::default();
    for seed in one_seed().map_or(0..mode.seeds() * rounds(), |seed| seed..seed + 1) {
        let _context = Context(("seed", seed));
        Lives::new(seed, mode, &mut counts).run();
        watchdog.step();
    }
    counts.assert_and_print(mode, began);
}

#[test]
fn whatever_is_done_a_store_holds_what_the_model_holds() {
    run(Mode::Plain);
}

#[test]
fn where_reads_fail_a_store_holds_what_the_model_holds() {
    run(Mode::FailingReads);
}

#[test]
fn on_a_full_device_a_store_holds_what_the_model_holds() {
    run(Mode::FullDevice);
}
