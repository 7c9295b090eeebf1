//! The load phase: a bulk load, or inserts by all workers in parallel.
//!
//! With inserts, every worker inserts a contiguous range of record numbers. Keys are hashes, so the
//! inserts of each worker are spread over the whole table.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::bulk;
use super::load_plan::{LoadMethod, LoadPlan};
use crate::driver::control::{Control, Interrupt, Phase};
use crate::driver::crew::{self, Crew, Job, Worker};
use crate::driver::failure::Failure;
use crate::driver::load::LoadEnd;
use crate::driver::store::{Client, Store};
use crate::rng::Rng;

/// Inserts between two reads of the control word and updates of the progress bar.
const BATCH: u64 = 64;

/// Tasks of each loading thread. Keys are in random order, so a load larger than memory waits for a
/// page with every insert: only many inserts at a time use the device.
const TASKS: usize = 32;

/// Loads the records of `plan` into the empty `table`.
pub fn load<S: Store>(
    store: &S,
    table: &S::Table,
    plan: LoadPlan,
    interrupt: &Interrupt,
    progress: &ProgressBar,
) -> LoadEnd<Duration> {
    if plan.method == LoadMethod::Bulk {
        return bulk::load(store, table, plan, interrupt, progress);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let crew = Crew {
        threads: plan.crew.threads.min(cores),
        tasks: plan.crew.tasks.max(TASKS),
        pinned: false,
    };
    let plan = LoadPlan { crew, ..plan };
    let control = Control::new(plan.crew.threads, interrupt);
    let job = Load { table, plan, control: &control, progress };
    let start = Instant::now();
    crew::run(store, plan.crew, &control, &job, || control.supervise());
    LoadEnd::of(&control, || start.elapsed())
}

struct Load<'a, T> {
    table: &'a T,
    plan: LoadPlan,
    control: &'a Control,
    progress: &'a ProgressBar,
}

impl<T: Sync, C: Client<Table = T>> Job<C> for Load<'_, T> {
    type Local = ();

    fn local(&self, _thread: usize) {}

    async fn work(&self, (): &(), worker: Worker, client: C) -> Result<(), Failure> {
        let LoadPlan { records, keys, shape, seed, crew, .. } = self.plan;
        let share =
            |number: usize| (u128::from(records) * number as u128 / crew.workers() as u128) as u64;
        let mut rng = Rng::new(seed, worker.number as u64);
        let mut key = Vec::with_capacity(keys.bytes());
        let mut value = vec![0; shape.value_bytes()];
        let (mut number, end) = (share(worker.number), share(worker.number + 1));
        while number < end && self.control.signal().phase() != Phase::Stop {
            let batch = BATCH.min(end - number);
            for number in number..number + batch {
                keys.write(number, &mut key);
                shape.write(&key, &mut rng, &mut value);
                client.insert(self.table, &key, &value).await?;
            }
            number += batch;
            self.progress.inc(batch);
        }
        Ok(())
    }

    fn finish(&self, (): ()) {}
}
