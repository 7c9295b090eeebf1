//! What every suite needs: lengths, options of small pools, verification, and a watchdog.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use wattle::{Engine, MIN_POOL_BYTES, Options};

/// Bytes of a frame: the page and its header.
const FRAME: u64 = MIN_POOL_BYTES / 48;

/// Multiplier of the length of all suites, from `WATTLE_ROUNDS`.
pub fn rounds() -> u64 {
    std::env::var("WATTLE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Options of a pool of that many frames (at least the minimum) that gives up soon.
pub fn small_pool(frames: u64) -> Options {
    Options::default()
        .pool_bytes((frames * FRAME).max(MIN_POOL_BYTES))
        .write_concurrency(8)
        .stall_timeout(Duration::from_secs(1))
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
            let mut last = (Instant::now(), 0);
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
                let now = seen.load(Ordering::Relaxed);
                if now != last.1 {
                    last = (Instant::now(), now);
                } else if last.0.elapsed() > limit {
                    eprintln!("{what} hangs: no progress for {limit:?} after step {now}");
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
