//! A power cut at any moment leaves every acknowledged transaction, no half of another one, and a
//! store that verifies: crash images are taken while workloads run, and each is opened and compared.
//!
//! `WATTLE_ROUNDS` multiplies the length, `WATTLE_CRASH_SEED` runs one seed alone.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};
use wattle_tests::{
    crash::{backup, check, crowd},
    harness::{Watchdog, rounds},
};

/// Images that a default run of the suite looks at, at least.
const LEAST_IMAGES: u64 = 10_000;
/// Threads that look at images.
const THREADS: u64 = 2;

fn one_seed() -> Option<u64> {
    std::env::var("WATTLE_CRASH_SEED").ok().and_then(|seed| seed.parse().ok())
}

/// Runs seeds, each a workload of its own, in two threads until enough images were looked at.
fn run_seeds(least: u64, watchdog: &Watchdog, run: impl Fn(u64) -> u64 + Sync) -> u64 {
    if let Some(seed) = one_seed() {
        return run(seed);
    }
    let (checked, next) = (AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let work = || {
            while checked.load(Ordering::Relaxed) < least {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                checked.fetch_add(run(seed), Ordering::Relaxed);
                watchdog.step();
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                // The others stop soon.
                checked.store(u64::MAX / 2, Ordering::Relaxed);
                std::panic::resume_unwind(panic);
            }
        }
    });
    let checked = checked.into_inner();
    let seeds = next.into_inner();
    println!("{checked} images of {seeds} seeds in {:.1} s", begun.elapsed().as_secs_f64());
    checked
}

#[test]
fn a_power_cut_at_any_moment_leaves_what_was_acknowledged_and_nothing_half() {
    let watchdog = Watchdog::start("crash images", Duration::from_secs(120));
    let least = LEAST_IMAGES * rounds();
    let checked = run_seeds(least, &watchdog, |seed| check::run(seed, 400, 16, false));
    assert!(one_seed().is_some() || checked >= least, "only {checked} images");
}

#[test]
fn of_several_threads_each_transaction_is_there_as_a_whole() {
    let watchdog = Watchdog::start("crash images of a crowd", Duration::from_secs(120));
    let least = LEAST_IMAGES * rounds() / 10;
    let checked = run_seeds(least, &watchdog, |seed| crowd::run(seed, 12, 24));
    assert!(one_seed().is_some() || checked >= least, "only {checked} images");
}

#[test]
fn a_device_that_writes_pages_whole_needs_no_images_in_the_log() {
    let watchdog = Watchdog::start("crash images of whole pages", Duration::from_secs(120));
    let least = LEAST_IMAGES * rounds() / 10;
    let checked = run_seeds(least, &watchdog, |seed| check::run(1000 + seed, 300, 30, true));
    assert!(one_seed().is_some() || checked >= least, "only {checked} images");
}

#[test]
fn a_backup_is_the_store_of_a_moment_and_an_unfinished_one_is_no_store() {
    let watchdog = Watchdog::start("crash images of backups", Duration::from_secs(120));
    let least = LEAST_IMAGES * rounds() / 20;
    let checked = run_seeds(least, &watchdog, |seed| {
        let (images, backups) = backup::run(seed, 6);
        assert_eq!(backups, 6);
        images
    });
    assert!(one_seed().is_some() || checked >= least, "only {checked} images");
}
