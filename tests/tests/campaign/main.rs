//! A campaign on real files: everything that once hung or grew without bound, at the same time, in
//! a pool of a fraction of the data.
//!
//! | actors | what they do |
//! |---|---|
//! | churn | insert, overwrite and remove small records, auto-committed and in transactions that may abort |
//! | pairs | change two records in one transaction; held snapshots must see both or neither |
//! | large | overwrite a few large values again and again |
//! | trees | create, fill, rename and drop trees, more than the pool can have open |
//! | tasks | futures that are polled once and kept, cancelled or finished; blocking calls beside them |
//!
//! Meanwhile the device is full for a while, again and again. A supervisor checks that
//! - no operation takes longer than twice the stall timeout,
//! - resident memory stays within the pool, 64 MiB, the limit of versions, and the models of the
//!   test,
//! - the pages in use stay within a multiple of the live data.
//!
//! At the end every record is compared with the models, the store is compacted and its file
//! measured, verified, closed, opened, and compared again. `WATTLE_CAMPAIGN_SECONDS` sets the
//! length; the default is a short form. Ten minutes:
//!
//! ```text
//! WATTLE_CAMPAIGN_SECONDS=600 cargo test --release -p wattle-tests --test campaign -- --nocapture
//! ```

mod actors;
mod device;
mod tasks;
mod world;

use device::Device;
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};
use wattle::{Durability, Engine, IoKind, Options};
use wattle_tests::harness::{Context, assert_verified, memory, seed};
use world::World;

/// Bytes of the pool.
const POOL: u64 = 8 << 20;
/// Limit of the memory of versions.
const VERSIONS: u64 = 8 << 20;
/// Memory that the engine may take beside the pool.
const REST: u64 = 64 << 20;
/// Memory of the models, the values under way and the stacks of the actors.
const OWN: u64 = 32 << 20;
/// Space beyond three times the live data: bitmaps, space reserved ahead, and values that wait for
/// the janitor.
const SPACE: u64 = 64 << 20;
const STALL: Duration = Duration::from_secs(3);
/// How long the device has room, and how long it has none.
const ROOM: Duration = Duration::from_secs(6);
const NO_ROOM: Duration = Duration::from_millis(1500);

fn options(durability: Durability) -> Options {
    Options::default()
        .pool_bytes(POOL)
        .version_bytes(VERSIONS)
        .log_bytes(32 << 20)
        .durability(durability)
        .stall_timeout(STALL)
}

/// Runs until the time is over, or until an actor fails.
fn supervise(world: &World, device: &Device, length: Duration) {
    let (began, before) = (Instant::now(), memory("VmRSS"));
    let mut told = Instant::now();
    while began.elapsed() < length && !world.stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
        let cycle = ROOM + NO_ROOM;
        let place = began.elapsed().as_millis() % cycle.as_millis();
        device.set_full(place >= ROOM.as_millis());
        world.check_beats(2 * STALL);
        let (stats, resident) = (world.engine.stats(), memory("VmRSS"));
        let limit = before + POOL + REST + VERSIONS + OWN;
        assert!(resident <= limit, "{} MiB resident, the limit is {}", resident >> 20, limit >> 20);
        let (used, live) = (stats.used_pages * 4096, world.live_bytes());
        assert!(
            used <= 3 * live + VERSIONS + SPACE,
            "{} MiB of pages in use for {} MiB of live data: {stats:?}",
            used >> 20,
            live >> 20
        );
        if told.elapsed() >= Duration::from_secs(10) {
            told = Instant::now();
            println!(
                "{:3} s: {} MiB resident, versions {} KiB, pages in use {} MiB, live {} MiB\n{}",
                began.elapsed().as_secs(),
                resident >> 20,
                stats.version_bytes >> 10,
                used >> 20,
                live >> 20,
                world.progress()
            );
        }
    }
    device.set_full(false);
}

#[test]
fn everything_that_hung_or_grew_at_the_same_time() {
    let seconds = std::env::var("WATTLE_CAMPAIGN_SECONDS").ok().and_then(|n| n.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(12));
    let seed = seed();
    let _seed = Context(format!("WATTLE_TEST_SEED={seed}"));
    let directory = tempfile::tempdir().expect("temporary directory");
    let device = Device::open(IoKind::Uring, directory.path());
    let engine = device.start(options(Durability::Group)).expect("open");
    let world = World::new(engine, seed);
    std::thread::scope(|scope| {
        actors::start(scope, &world);
        tasks::start(scope, &world);
        let guard = world.stop_at_panic();
        supervise(&world, &device, length);
        drop(guard);
        world.stop.store(true, Ordering::Relaxed);
    });
    println!("{}", world.progress());
    let live = world.live_bytes();
    let checks = world.into_checks();
    let compare = |engine: &Engine| checks.iter().for_each(|check| check.compare(engine));
    let engine = device.start(options(Durability::Sync)).expect("open again");
    compare(&engine);
    assert_verified(&engine);
    engine.checkpoint().expect("checkpoint");
    engine.compact().expect("compact");
    compare(&engine);
    assert_verified(&engine);
    engine.close().expect("close");
    let file = std::fs::metadata(directory.path().join("data")).expect("data file").len();
    println!("{} KiB of file for {} KiB of live data", file >> 10, live >> 10);
    assert!(file <= 3 * live + (1 << 20), "{file} bytes of file for {live} bytes of live data");
    let engine = device.start(options(Durability::Sync)).expect("open a third time");
    compare(&engine);
    engine.close().expect("close");
}
