//! Shared by the benchmarks: arguments of the form `name=value`, medians, and the distance between
//! cores.

mod place;

use mimalloc::MiMalloc;
pub use place::Place;
use std::{
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

/// The allocator of the `wattle` binary.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The text of argument `name=..`, or a default.
pub fn text(name: &str, default: &str) -> String {
    std::env::args()
        .filter_map(|argument| Some(argument.strip_prefix(name)?.strip_prefix('=')?.to_string()))
        .next()
        .unwrap_or_else(|| default.to_string())
}

/// The directory of argument `dir=..`, or a default. It is created if it does not exist.
///
/// # Panics
/// If it cannot be created.
pub fn directory(default: &str) -> PathBuf {
    let directory = PathBuf::from(text("dir", default));
    std::fs::create_dir_all(&directory)
        .unwrap_or_else(|error| panic!("dir={}: {error}", directory.display()));
    directory
}

/// The number of argument `name=..`, or a default.
///
/// # Panics
/// If it is no number.
pub fn argument(name: &str, default: usize) -> usize {
    let text = text(name, &default.to_string());
    text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}"))
}

/// The middle one of some numbers.
///
/// # Panics
/// If there are none.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Processor time that the host took away, in seconds since the machine started. The host of a
/// virtual machine may do the work of its devices in that time.
pub fn stolen() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = text.split_whitespace().nth(8).and_then(|ticks| ticks.parse::<f64>().ok());
    ticks.unwrap_or(0.0) / 100.0
}

/// Round trips of a cache line in one measurement, which takes a few milliseconds.
const TURNS: u32 = 20_000;
/// Cores of one cache give each other a line within so many nanoseconds.
pub const NEAR_NS: f64 = 100.0;

/// Nanoseconds until another core sees a store of this one: a cache line goes from one thread to
/// another. On a virtual machine this may change from second to second. It bounds the speed of two
/// threads that change the same data.
pub fn line_ns() -> f64 {
    let turn = AtomicU32::new(0);
    let play = |first: u32| {
        for number in (first..2 * TURNS).step_by(2) {
            while turn.load(Ordering::Acquire) != number {
                std::hint::spin_loop();
            }
            turn.store(number + 1, Ordering::Release);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play(1));
        // The other one runs from here on.
        let start = Instant::now();
        play(0);
        start.elapsed().as_nanos() as f64 / f64::from(2 * TURNS)
    })
}
