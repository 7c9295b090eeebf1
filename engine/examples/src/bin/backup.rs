//! A backup of a store in use. The backup is a store: it opens like one after a crash, and has
//! every commit that returned before the backup ended its copy of the log.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};
use wattle::{Durability, Engine, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let (path, _temporary) = wattle_examples::store_path()?;
    let target = path.with_extension("backup");
    let options = Options::default().pool_bytes(64 << 20).durability(Durability::Group);
    let engine = Engine::open(&path, options.clone())?;
    let events = engine.tree("events")?;

    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU32::new(0));
    let (before, report) = std::thread::scope(|scope| -> wattle::Result<_> {
        let writer = scope.spawn(|| -> wattle::Result<()> {
            let session = engine.session()?;
            let mut number = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                session.put(&events, &number.to_be_bytes(), &[7; 200])?;
                number += 1;
                acknowledged.store(number, Ordering::Release);
            }
            Ok(())
        });
        while acknowledged.load(Ordering::Acquire) < 100 && !writer.is_finished() {
            std::thread::yield_now();
        }
        let before = acknowledged.load(Ordering::Acquire);
        let report = engine.backup(&target);
        stop.store(true, Ordering::Relaxed);
        match writer.join() {
            Ok(written) => written.and(report).map(|report| (before, report)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    println!("{} pages, {} bytes of log", report.pages, report.log_bytes);
    drop(events);
    engine.close()?;

    let copy = Engine::open(&target, options)?;
    let damage = copy.verify(&mut |_| ())?.problems;
    let events = copy.open_tree("events")?.ok_or("the backup has no tree")?;
    let found = copy.session()?.scan(&events)?.count() as u32;
    println!("{found} events in the backup, {before} were acknowledged before it began");
    drop(events);
    copy.close()?;
    if found < before || !damage.is_empty() {
        return Err(format!("the backup lacks records or is damaged: {damage:?}").into());
    }
    Ok(())
}
