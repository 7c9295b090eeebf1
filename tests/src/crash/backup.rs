//! Backups of a store while a workload changes it, with images of the unfinished copy.

use super::{
    check::{Checker, Setting, close, open, verify},
    device::{Bounds, Camera, Capturing, Image},
    driver::Driver,
    history::{History, State},
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};
use wattle::io::{FaultPlan, SimStorage};

/// One workload with some backups, all of their images, and images of the store meanwhile; gives
/// how many were looked at, and how many backups were made.
///
/// # Panics
/// If anything is wrong.
pub fn run(seed: u64, backups: u64, setting: Setting) -> (u64, u64) {
    let mut checker = Checker::new(seed, setting);
    let sim = Arc::new(SimStorage::new(setting.plan(seed)));
    let quiet = Camera { one_in: 0, most: 24, whole_pages: setting.whole_pages };
    let device = Capturing::new(sim, 1, seed, quiet);
    let history = History::from(0, State::default());
    let what = format!("backup, seed {seed}");
    let engine = open(&device, &checker.options).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut driver = Driver::new(engine, device.clone(), history.clone(), seed);
    let mut finished = Vec::new();
    for backup in 0..backups {
        (0..20).for_each(|_| driver.step());
        let target = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        let camera = Camera { one_in: 5, ..quiet };
        let target = Capturing::new(target, 1, seed + backup, camera);
        device.aim(Camera { one_in: 12, ..quiet });
        // The workload goes on while the copy is made.
        let (done, begun, ended) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let engine = driver.engine().clone();
        std::thread::scope(|scope| {
            let copying = scope.spawn(|| {
                begun.store(device.bounds(0).acked, SeqCst);
                let report = engine.backup_on(target.clone(), target.clone());
                ended.store(device.bounds(0).issued, SeqCst);
                done.store(true, SeqCst);
                report.unwrap_or_else(|error| panic!("{what}: {error}"))
            });
            while !done.load(SeqCst) && !copying.is_finished() {
                driver.step_without_bulk_load();
            }
            copying.join().expect("the backup");
        });
        device.aim(quiet);
        let bounds = Bounds { acked: begun.into_inner(), issued: ended.into_inner() };
        // 1. After a power cut, an unfinished copy is either no store or a whole one.
        for image in target.take() {
            checker.checked += 1;
            check_unfinished(image, &checker, &history, bounds, &what);
        }
        // 2. The store itself.
        device.take().into_iter().for_each(|image| checker.check(image, &history));
        finished.push((target, bounds));
    }
    // 3. The copies, whatever became of the store. A backup is durable when it returns.
    for (target, bounds) in &finished {
        target.aim(quiet);
        target.set(&[*bounds]);
        target.shoot("after the backup", wattle::io::Cut::Nothing);
        target.take().into_iter().for_each(|image| checker.check(image, &history));
    }
    let engine = driver.finish();
    verify(&engine, &what);
    close(engine, &what);
    (checker.checked, finished.len() as u64)
}

/// An unfinished copy is refused, or new and empty, or it is the whole store: its superblock is
/// written last.
fn check_unfinished(
    image: Image,
    checker: &Checker,
    history: &History,
    bounds: Bounds,
    what: &str,
) {
    let what = format!("{what}, copy: {image:?}");
    let camera = Camera { one_in: 0, most: 0, whole_pages: checker.setting.whole_pages };
    let device = Capturing::new(Arc::new(image.sim), 1, 0, camera);
    let Ok(engine) = open(&device, &checker.options) else { return };
    let found = State::read(&engine).unwrap_or_else(|error| panic!("{what}: {error}"));
    if !found.trees.is_empty() {
        history.find(&found, bounds).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    verify(&engine, &what);
    close(engine, &what);
}
