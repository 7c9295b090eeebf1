//! A store whose process ends without notice: what was acknowledged is there when it is opened again,
//! however often recovery itself is interrupted, whatever a power cut leaves of writes that were not
//! durable. Each device is a simulated one that holds pages and log, so that a crash is one instant
//! of both.

use std::{sync::Arc, time::Duration};
use wattle::{
    Engine, MIN_LOG_BYTES, Options,
    io::{FaultPlan, SimStorage},
};
use wattle_tests::{
    harness::{Context, Watchdog, assert_verified, rounds, small_pool},
    model::{Client, Keys, Plan},
};

/// Frames of the pools: much less than the data.
const FRAMES: u64 = 48;

fn options() -> Options {
    small_pool(FRAMES).log_bytes(MIN_LOG_BYTES)
}

fn open(device: &Arc<SimStorage>, options: Options) -> wattle::Result<Engine> {
    Engine::open_on(device.clone(), device.clone(), options)
}

fn device(seed: u64) -> Arc<SimStorage> {
    Arc::new(SimStorage::new(FaultPlan::new(seed)))
}

fn plan() -> Plan {
    Plan {
        keys: Keys::Random,
        universe: 4000,
        value: 600,
        large_every: 0,
        large: 0,
        client: 0,
        clients: 1,
    }
}

/// Opens a store after a crash and compares it with what was acknowledged.
fn check(device: &Arc<SimStorage>, options: Options, client: &Client) -> Engine {
    let engine = open(device, options).expect("open after the crash");
    {
        let (session, tree) = (engine.session().expect("session"), engine.tree("t").expect("tree"));
        client.check_all(&session, &tree);
    }
    assert_verified(&engine);
    engine
}

#[test]
fn what_was_acknowledged_survives_a_power_cut() {
    let watchdog = Watchdog::start("power cut", Duration::from_secs(60));
    for seed in 0..3 * rounds() {
        let _context = Context(("seed", seed));
        let mut current = device(seed);
        let mut client = Client::new(plan(), seed);
        for turn in 0..4 {
            let engine = open(&current, options()).expect("open");
            {
                let session = engine.session().expect("session");
                let tree = engine.tree("t").expect("tree");
                client.check_all(&session, &tree);
                for step in 0..6000 {
                    client.step(&session, &tree);
                    if step % 1500 == 1499 {
                        let left = Arc::new(current.crash(seed * 100 + turn * 10 + step / 1500));
                        drop(check(&left, options(), &client));
                        watchdog.step();
                    }
                }
            }
            let left = Arc::new(current.crash(seed * 100 + turn));
            drop(engine);
            current = left;
        }
    }
}
