//! The load phase of a benchmark: all workers load items in parallel, [`Benchmark::BATCH`] in each
//! transaction.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::Benchmark;
use crate::driver::control::{Control, Interrupt, Phase};
use crate::driver::crew::{self, Crew, Job, Worker};
use crate::driver::failure::Failure;
use crate::driver::load::LoadEnd;
use crate::driver::store::{Access, Client, Stop, Store, Txn};

/// Tasks of each loading thread: some fill pages while others wait for the log.
const TASKS: usize = 16;

/// Loads the items of `bench` into `tables` with at most `threads` threads.
pub fn load<S: Store, B: Benchmark>(
    store: &S,
    tables: &[S::Table],
    bench: &B,
    threads: usize,
    interrupt: &Interrupt,
    progress: &ProgressBar,
) -> LoadEnd<Duration> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let crew = Crew { threads: threads.min(cores), tasks: TASKS, pinned: false };
    let control = Control::new(crew.threads, interrupt);
    let job = Load { tables, bench, crew, control: &control, progress };
    let start = Instant::now();
    crew::run(store, crew, &control, &job, || control.supervise());
    LoadEnd::of(&control, || start.elapsed())
}

struct Load<'a, B, T> {
    tables: &'a [T],
    bench: &'a B,
    crew: Crew,
    control: &'a Control,
    progress: &'a ProgressBar,
}

impl<T: Sync, C: Client<Table = T>, B: Benchmark> Job<C> for Load<'_, B, T> {
    type Local = ();

    fn local(&self, _thread: usize) {}

    async fn work(&self, (): &(), worker: Worker, client: C) -> Result<(), Failure> {
        let (items, workers) = (self.bench.items(), self.crew.workers() as u128);
        let share = |number: usize| (u128::from(items) * number as u128 / workers) as u64;
        let (mut item, end) = (share(worker.number), share(worker.number + 1));
        while item < end && self.control.signal().phase() != Phase::Stop {
            let next = end.min(item + B::BATCH);
            let mut txn = client.begin(Access::ReadWrite).await?;
            let loaded = match self.bench.load(self.tables, item..next, &mut txn).await {
                Ok(()) => txn.commit().await,
                Err(stop) => Err(stop),
            };
            match loaded {
                Ok(()) => {
                    self.progress.inc(next - item);
                    item = next;
                }
                Err(Stop::Conflict) => client.pause().await,
                Err(Stop::Failed(error)) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn finish(&self, (): ()) {}
}
