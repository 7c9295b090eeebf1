//! `wattle evict-phase`: workers fill the pool in a work phase, then evictors alone free a share of
//! it (WATT, section 6.4). Nothing else runs in the second phase, so it shows how evictors scale.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::common::RunFlags;
use super::exit::{Exit, failed, print};
use super::record::Recording;
use super::run::{Measuring, Scenario};
use super::stage::Home;
use crate::adapter::store::EngineStore;
use crate::driver::backend::Backend;
use crate::driver::control::Interrupt;
use crate::driver::description::Found;
use crate::driver::measure::{Length, Plan};
use crate::driver::store::Store;
use crate::report::per;

/// Rounds of an evictor, of 64 candidates each, between two looks at the goal.
const LOOK: u32 = 4;

/// Flags of `evict-phase`.
#[derive(Args, Clone, Copy, Debug)]
pub struct EvictPhaseFlags {
    /// Evictors of the second phase.
    #[arg(long = "threads", value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=256))]
    pub evictors: u64,

    /// Share of the frames to free, percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=90))]
    pub share: u64,
}

/// The object that it prints.
#[derive(Serialize)]
struct Phase {
    frames: u64,
    used_frames: u64,
    evictions: u64,
    /// Frames that the evictors looked at.
    candidates: u64,
    pages_written: u64,
    seconds: f64,
    evictions_per_second: f64,
    writes_per_second: f64,
}

/// Runs `scenario` for the warm-up time of `run`, then the evictors, at most for its duration.
///
/// # Errors
/// [`Exit::Failed`] if the work fails, or nothing is evicted.
pub fn run<W: Scenario>(
    scenario: &W,
    flags: &EvictPhaseFlags,
    run: &RunFlags,
    interrupt: &Interrupt,
) -> Result<(), Exit> {
    let home = Home::new(run.db.as_deref())?;
    let recording = Recording::new(run);
    let backend = run.wattle(recording.trace(), interrupt);
    let options = run.store_options(&home.path, scenario.tables(), run.reads(W::NAME != "ycsb"));
    backend.check(&options)?;
    let store = backend.open(&options)?;
    let mut data = match scenario.find(&store).map_err(failed("reading the store"))? {
        Found::Data(data) => data,
        Found::Nothing => scenario.load(&store, run, interrupt)?.0,
        Found::OtherSize(why) | Found::Unusable(why) => return Err(Exit::Usage(why)),
    };
    let plan = Plan {
        crew: run.crew(),
        warm_up: Duration::ZERO,
        length: Length::Time(run.warmup.max(Duration::from_millis(1))),
        kinds: scenario.kinds(),
    };
    let measuring = Measuring::quiet(plan, &recording, interrupt);
    let (worked, _) = scenario.measure(&store, &mut data, measuring)?;
    if let Some(failure) = worked.failure {
        return Err(Exit::Failed(format!("the work phase: {failure}")));
    }
    let limit = match run.length() {
        Length::Time(time) => time,
        Length::Operations(_) => Duration::MAX,
    };
    let phase = evict(&store, flags, limit, interrupt);
    drop(data);
    store.close().map_err(failed("closing the store"))?;
    if interrupt.requested() {
        return Err(Exit::Interrupted("interrupted while evicting".to_owned()));
    }
    if phase.evictions == 0 {
        return Err(Exit::Failed("no page could be evicted".to_owned()));
    }
    let text = serde_json::to_string_pretty(&phase).expect("a phase consists of plain numbers");
    print(&(text + "\n"))
}

/// Lets evictors work until they have freed the share, or `limit` has passed.
fn evict(
    store: &EngineStore,
    flags: &EvictPhaseFlags,
    limit: Duration,
    interrupt: &Interrupt,
) -> Phase {
    let pool = store.engine().pool();
    let before = store.counters().buffer;
    let candidates = pool.counters().candidates;
    let used_frames = before.frames - before.free_frames;
    let goal = before.evictions + used_frames * flags.share / 100;
    let ended = AtomicBool::new(false);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for evictor in 0..flags.evictors {
            let (ended, began) = (&ended, &began);
            // Pages that were dirty are evicted by writers, so all evictions count.
            let is_over = move || {
                let over = pool.counters().evictions >= goal
                    || began.elapsed() > limit
                    || interrupt.requested();
                if over {
                    ended.store(true, Ordering::Relaxed);
                }
                ended.load(Ordering::Relaxed)
            };
            scope.spawn(move || {
                let mut rounds = 0_u32;
                // It comes back early while all candidates are being written.
                while !is_over() {
                    pool.evict_while(evictor, |_| {
                        rounds = rounds.wrapping_add(1);
                        !rounds.is_multiple_of(LOOK) || !is_over()
                    });
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let after = store.counters().buffer;
    let evictions = after.evictions - before.evictions;
    let pages_written = after.pages_written - before.pages_written;
    Phase {
        frames: before.frames,
        used_frames,
        evictions,
        candidates: pool.counters().candidates - candidates,
        pages_written,
        seconds,
        evictions_per_second: per(evictions as f64, seconds),
        writes_per_second: per(pages_written as f64, seconds),
    }
}
