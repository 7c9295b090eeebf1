//! Transactions that create, drop and rename trees: names and contents against a model, conflicts,
//! savepoints, crash images, small pools and devices that fail.

mod outcomes;
mod state;
mod threads;
mod unfinished;
mod world;

use state::of_engine;
use std::{io::ErrorKind, sync::Arc, time::Duration};
use wattle::{
    Durability, Engine, Error, MIN_LOG_BYTES, Options,
    io::{Fault, FaultPlan, Op, SimStorage},
};
use wattle_tests::{
    crash::device::{Camera, Capturing, Image},
    harness::{Context, Device, Watchdog, assert_verified, rounds, small_pool},
};
use world::World;

fn options(frames: u64) -> Options {
    small_pool(frames)
        .log_bytes(MIN_LOG_BYTES)
        .conflict_wait(Duration::ZERO)
        .stall_timeout(Duration::from_secs(10))
}

/// Pages of all trees; every page in use is one of them.
fn pages_of_trees(engine: &Engine) -> u64 {
    let report = engine.verify(&mut |_| {}).expect("verify");
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    report.pages
}

#[test]
fn names_and_contents_are_those_of_a_model() {
    let watchdog = Watchdog::start("trees in transactions", Duration::from_secs(60));
    let (mut commits, mut conflicts, mut stale, mut dropped) = (0, 0, 0, 0);
    for seed in 0..20 * rounds() {
        let _context = Context(("seed", seed));
        let frames = [48, 64, 256][seed as usize % 3];
        let options = options(frames).durability(Durability::None);
        let options = if seed % 4 == 0 { options.log(false) } else { options };
        let device = Device::memory();
        let engine = device.open(options.clone()).expect("open");
        let pages = pages_of_trees(&engine);
        let mut world = World::new(engine, seed, None);
        for _ in 0..4 {
            for _ in 0..400 {
                world.step();
            }
            world.check();
            watchdog.step();
            world.engine.close().expect("close");
            world.engine = device.open(options.clone()).expect("open again");
            world.check();
        }
        world.check_that_space_is_given_back(pages);
        commits += world.seen.commits;
        conflicts += world.seen.conflicts;
        stale += world.seen.stale_names;
        dropped += world.seen.dropped_trees;
    }
    println!("{commits} commits, {conflicts} conflicts, {stale} stale names, {dropped} dropped");
    assert!(commits > 0 && conflicts > 0 && stale > 0 && dropped > 0, "something was never met");
}

/// Opens an image, and compares it with the states that are possible.
fn look_at(image: Image, world: &World, options: &Options) {
    let context = Context(format!("{image:?}"));
    let engine = Device::sim(&Arc::new(image.sim)).open(options.clone()).expect("open");
    let bounds = image.bounds[0];
    let found = of_engine(&engine);
    let last = (bounds.issued as usize).min(world.states.len() - 1);
    let mut possible = world.states[bounds.acked as usize..=last].iter();
    assert!(possible.any(|state| state.by_name() == found), "{found:?}");
    assert_verified(&engine);
    // Everything that was not committed was freed.
    let mut txn = engine.begin().expect("begin");
    found.keys().for_each(|name| txn.drop_tree(name).expect("drop"));
    txn.create_tree("new").expect("create");
    txn.commit().expect("commit");
    assert_verified(&engine);
    assert_eq!(engine.trees().expect("names"), ["new"]);
    drop((engine, context));
}

#[test]
fn a_power_cut_leaves_each_transaction_with_all_of_its_trees_or_none() {
    let watchdog = Watchdog::start("crash images of trees", Duration::from_secs(60));
    let mut images = 0;
    for seed in 0..8 * rounds() {
        let _context = Context(("seed", seed));
        let options = options([48, 64][seed as usize % 2]);
        let sim = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        let camera = Camera { one_in: 6, most: 20, whole_pages: false };
        let device = Capturing::new(sim, 1, seed, camera);
        let engine = Engine::open_on(device.clone(), device.clone(), options.clone());
        let mut world = World::new(engine.expect("open"), seed, Some(device.clone()));
        for _ in 0..40 {
            for _ in 0..20 {
                world.step();
            }
            for image in device.take() {
                look_at(image, &world, &options);
                images += 1;
            }
            watchdog.step();
        }
        world.check();
    }
    println!("{images} images");
    assert!(images > 0, "no image was taken");
}

#[test]
fn failed_reads_leave_names_and_contents_as_they_were() {
    let watchdog = Watchdog::start("trees on a failing device", Duration::from_secs(60));
    let mut errors = 0;
    for seed in 0..12 * rounds() {
        let _context = Context(("seed", seed));
        let sim = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        let options = options(48).durability(Durability::None);
        let engine = Device::sim(&sim).open(options.clone()).expect("open");
        let mut world = World::new(engine, seed, None);
        for turn in 0..6 {
            // Enough that neither the catalog nor the trees stay in memory.
            let filler = world.engine.tree("filler").expect("filler");
            let session = world.engine.session().expect("session");
            for number in 0..600_u32 {
                let key = (number * 6 + turn).to_be_bytes();
                session.put(&filler, &key, &[turn as u8; 400]).expect("put");
            }
            drop((session, filler));
            sim.set_plan(FaultPlan::new(seed * 100 + u64::from(turn)).sometimes(
                Op::Read,
                0.1,
                Fault::Error(ErrorKind::Other),
            ));
            world.fails = true;
            for _ in 0..200 {
                world.step();
            }
            world.end_all();
            sim.heal();
            world.fails = false;
            let filler = world.engine.tree("filler").expect("filler");
            drop(world.engine.drop_tree(filler));
            world.check();
            watchdog.step();
        }
        errors += world.seen.errors;
    }
    println!("{errors} transactions met an error");
    assert!(errors > 0, "no transaction met a failed read");
}

#[test]
fn a_device_without_room_refuses_trees_and_keeps_the_others() {
    let sim = Arc::new(SimStorage::new(FaultPlan::new(1).limit(300)));
    let engine = Device::sim(&sim).open(options(64)).expect("open");
    let (session, kept) = (engine.session().expect("session"), engine.tree("kept").expect("tree"));
    session.put(&kept, b"key", b"value").expect("put");
    let refused = (0..10_000).find_map(|number| {
        let mut txn = session.begin().expect("begin");
        let created = txn.create_tree(&format!("{number}")).and_then(|tree| {
            (0..20_u32).try_for_each(|key| txn.put(&tree, &key.to_be_bytes(), &[1; 1500]))
        });
        created.and_then(|()| txn.commit()).err()
    });
    let refused = refused.expect("the device is full");
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused:?}");
    assert_eq!(session.get(&kept, b"key").expect("get").as_deref(), Some(&b"value"[..]));
    sim.heal();
    drop((session, kept));
    assert_verified(&engine);
    engine.close().expect("close");
}
