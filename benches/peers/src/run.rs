//! One process: the case that it measures, and threads that run an operation for a time.

use crate::{
    data::Rng,
    store::{Config, Result, Session, Store},
};
use std::{
    path::PathBuf,
    process::{Child, Output},
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// A measurement of one process with one engine.
#[derive(Clone)]
pub struct Case {
    /// Name of the engine.
    pub engine: String,
    /// Directory of its store.
    pub dir: PathBuf,
    /// Records of the store.
    pub records: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Bytes of the engine's cache.
    pub cache_bytes: u64,
    /// Whether the data are larger than that.
    pub larger: bool,
    /// Seconds of a row.
    pub seconds: f64,
    /// Seed of the random numbers; one for each repetition.
    pub seed: u64,
}

impl Case {
    /// How to open the store.
    pub fn config(&self, durable: bool, threads: usize) -> Config {
        Config {
            dir: self.dir.clone(),
            cache_bytes: self.cache_bytes,
            durable,
            threads,
            larger: self.larger,
        }
    }

    /// Another store of the same engine, of values of another length.
    pub fn with_values(&self, records: u64, value_bytes: usize) -> Self {
        let dir = self.dir.with_extension(value_bytes.to_string());
        Self { dir, records, value_bytes, ..self.clone() }
    }

    /// Removes the store.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn clear(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(std::fs::create_dir_all(&self.dir)?),
        }
    }
}

/// The output of a process that ends within `limit`. It must print less than a pipe holds, 64 KiB.
///
/// # Errors
/// It had to be killed, or those of the system.
pub fn ended(mut process: Child, limit: Duration) -> Result<Output> {
    let deadline = Instant::now() + limit;
    while process.try_wait()?.is_none() {
        if Instant::now() > deadline {
            process.kill()?;
            process.wait()?;
            return Err(format!("not done after {limit:?}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(process.wait_with_output()?)
}

/// Runs `operation` in `threads` sessions for the seconds of a row; what it returned, per second.
///
/// # Errors
/// The first one of any thread.
pub fn timed<F>(case: &Case, store: &dyn Store, threads: usize, operation: F) -> Result<f64>
where
    F: Fn(&mut dyn Session, &mut Rng) -> Result<u64> + Sync,
{
    let (ended, start) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let work = |thread: u64| -> Result<u64> {
        let session = store.session();
        let mut rng = Rng::new(case.seed * 1000 + thread);
        // Also threads without a session come to the start, which the others wait for.
        start.wait();
        let mut session = session?;
        let mut done = 0;
        while !ended.load(Ordering::Relaxed) {
            done += operation(&mut *session, &mut rng)?;
        }
        Ok(done)
    };
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> =
            (0..threads as u64).map(|thread| scope.spawn(move || work(thread))).collect();
        start.wait();
        let started = Instant::now();
        std::thread::sleep(Duration::from_secs_f64(case.seconds));
        ended.store(true, Ordering::Relaxed);
        let mut done = 0;
        for worker in workers {
            done += worker.join().expect("operations do not panic")?;
        }
        Ok(done as f64 / started.elapsed().as_secs_f64())
    })
}

/// Runs `operation` in two sessions before a measurement, for the seconds of a row.
///
/// # Errors
/// The first one of any thread.
pub fn warm_up<F>(case: &Case, store: &dyn Store, operation: F) -> Result<()>
where
    F: Fn(&mut dyn Session, &mut Rng) -> Result<u64> + Sync,
{
    timed(&Case { seed: case.seed + 77, ..case.clone() }, store, 2, operation).map(drop)
}
