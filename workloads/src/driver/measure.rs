//! The measured run of a workload: warm-up, measured part, one sample a second.
//!
//! The calling thread supervises: it starts the phases, and once a second it reads the counters of
//! the store and the threads, asks the threads to hand over their latencies, and shows the sample
//! to an observer. The other threads only run operations.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::control::{Control, Interrupt, Phase, Signal};
use super::counters::Counters;
use super::crew::{self, Crew, Job, Worker};
use super::failure::Failure;
use super::recorder::{Ends, Recorder, Slot};
use super::store::{Client, Pending, Store};
use crate::histogram::{LatencySummary, LatencyTotal};
use crate::instructions::Instructions;
use crate::machine::CpuTimes;

/// Time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// How long the threads have to hand over their latencies. Those of a thread in a longer operation
/// are in the next sample.
const HAND_OVER_TIME: Duration = Duration::from_millis(20);

/// A workload: a stream of operations for every worker.
#[allow(async_fn_in_trait, reason = "workers stay on their thread, so futures need not be Send")]
pub trait Workload<C: Client>: Sync {
    /// State that one worker keeps between operations.
    type State;

    /// The state of worker `number`.
    fn state(&self, number: usize) -> Self::State;

    /// Draws the next operation, if that was not done yet; the time for that is not part of its
    /// latency. Returns whether it drew one.
    #[inline]
    fn prepare(&self, _state: &mut Self::State) -> bool {
        false
    }

    /// Runs the next operation to its end. It retries a transaction that meets a conflict until it
    /// succeeds, so the latency covers all tries.
    async fn step(&self, state: &mut Self::State, client: &C) -> Result<Done, Failure>;
}

/// A finished operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Its kind, an index into [`Plan::kinds`].
    pub kind: usize,
    /// Tries that met a conflict.
    pub conflicts: u32,
    /// Whether it rolled back on purpose. Such an operation is counted separately, not in latencies
    /// and throughput.
    pub rolled_back: bool,
}

impl From<usize> for Done {
    /// An operation of this kind that succeeded at the first try.
    fn from(kind: usize) -> Self {
        Self { kind, ..Self::default() }
    }
}

/// How long the measured part lasts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// This time.
    Time(Duration),
    /// This many operations of all workers together.
    Operations(u64),
}

/// A run to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The workers.
    pub crew: Crew,
    /// Time before the measured part.
    pub warm_up: Duration,
    /// The measured part.
    pub length: Length,
    /// Names of the kinds of operations.
    pub kinds: Vec<&'static str>,
}

/// The counts of about one second.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Whether it belongs to the measured part.
    pub measured: bool,
    /// End of the sample, in seconds since its phase began.
    pub at_seconds: f64,
    /// Length of the sample.
    pub seconds: f64,
    /// Operations finished.
    pub operations: u64,
    /// Counters of the store.
    pub counters: Counters,
    /// Latencies of all kinds of operations together.
    pub latency: LatencySummary,
}

impl Sample {
    /// A count per second.
    pub fn rate(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }

    /// Operations per second.
    pub fn throughput(&self) -> f64 {
        self.rate(self.operations)
    }
}

/// The results of a run.
#[derive(Debug)]
pub struct Measurement {
    /// Length of the measured part.
    pub seconds: f64,
    /// Latencies of each kind of operation.
    pub latencies: Vec<(&'static str, LatencyTotal)>,
    /// Conflicts and roll-backs of each kind of operation.
    pub ends: Vec<Ends>,
    /// Counters of the store over the measured part.
    pub counters: Counters,
    /// Processor time of the process in the measured part.
    pub cpu: CpuTimes,
    /// The samples of the measured part.
    pub samples: Vec<Sample>,
    /// Instructions of the workers in user mode in the measured part, if the system counts them.
    pub instructions: Option<u64>,
    /// Page accesses recorded, warm-up included, if recording was asked for.
    pub trace_accesses: Option<u64>,
    /// Whether the user ended the run early.
    pub interrupted: bool,
    /// Why the run ended early, if something failed.
    pub failure: Option<Failure>,
}

impl Measurement {
    /// Operations of all kinds.
    pub fn operations(&self) -> u64 {
        self.latencies.iter().map(|(_, total)| total.count()).sum()
    }

    /// Tries of all kinds that met a conflict.
    pub fn conflicts(&self) -> u64 {
        self.ends.iter().map(|ends| ends.conflicts).sum()
    }
}

/// Receives every sample when it is taken; an error ends the run.
pub type Observer<'a> = &'a mut dyn FnMut(&Sample) -> Result<(), Failure>;

/// Told when the measured part begins and ends, on the thread that supervises the run.
pub type OnPhase<'a> = &'a dyn Fn(Phase);

/// Runs `workload` on `store` by `plan`.
pub fn run<S, W>(
    store: &S,
    workload: &W,
    plan: &Plan,
    interrupt: &Interrupt,
    observer: Observer<'_>,
    on_phase: OnPhase<'_>,
) -> Measurement
where
    S: Store,
    W: Workload<S::Session> + Workload<S::Task>,
{
    // Without a warm-up, operations before all threads are ready count as one.
    let control = Control::new(plan.crew.threads, interrupt);
    let slots: Vec<Slot> = (0..plan.crew.threads).map(|_| Slot::new(plan.kinds.len())).collect();
    let job = Stream { workload, plan, control: &control, slots: &slots };

    // Before the workers start, which it counts.
    let mut counted = Instructions::new();
    let mut supervisor = Supervisor { store, plan, control: &control, slots: &slots, observer };
    let (mut watch, started, instructions) = crew::run(store, plan.crew, &control, &job, || {
        supervisor.warm_up();
        let mut watch = Watch::new(store, &slots, plan.kinds.len(), true);
        let started = CpuTimes::of_process();
        on_phase(Phase::Measured);
        counted.begin();
        control.enter(Phase::Measured);
        let limit = match plan.length {
            Length::Time(time) => Some(time),
            Length::Operations(_) => None,
        };
        supervisor.watch(&mut watch, limit);
        on_phase(Phase::Stop);
        control.enter(Phase::Stop);
        (watch, started, counted.count())
    });
    // All threads are done and have handed over their records: the last sample has the rest.
    let last = watch.sample(store, &slots, Instant::now());
    let seen = (supervisor.observer)(&last);
    watch.samples.push(last);
    if let Err(failure) = seen {
        control.fail(failure);
    }
    Measurement {
        seconds: watch.last_at.duration_since(watch.began_at).as_secs_f64(),
        latencies: plan.kinds.iter().copied().zip(watch.totals).collect(),
        ends: watch.ends,
        counters: watch.last_counters.since(&watch.began_counters),
        cpu: CpuTimes::of_process().since(started),
        samples: watch.samples,
        instructions,
        trace_accesses: None,
        interrupted: interrupt.requested(),
        failure: control.take_failure(),
    }
}

/// The part of the calling thread in a run.
struct Supervisor<'a, S> {
    store: &'a S,
    plan: &'a Plan,
    control: &'a Control,
    slots: &'a [Slot],
    observer: Observer<'a>,
}

impl<S: Store> Supervisor<'_, S> {
    fn warm_up(&mut self) {
        if !self.plan.warm_up.is_zero() {
            let mut watch = Watch::new(self.store, self.slots, self.plan.kinds.len(), false);
            self.watch(&mut watch, Some(self.plan.warm_up));
        }
    }

    /// Takes a sample every second until `limit` has passed or the run is over. The caller takes
    /// the sample of the last part of a second.
    fn watch(&mut self, watch: &mut Watch, limit: Option<Duration>) {
        let end = limit.map(|limit| watch.began_at + limit);
        let mut next = watch.began_at + SAMPLE_INTERVAL;
        loop {
            let until = end.map_or(next, |end| next.min(end));
            self.wait(until);
            if self.control.is_over() || end.is_some_and(|end| end <= Instant::now()) {
                return;
            }
            let now = Instant::now();
            let finished = Watch::finished(self.slots);
            let counters = self.store.counters();
            self.control.ask_for_records();
            self.wait(now + HAND_OVER_TIME);
            let sample = watch.close(self.slots, now, finished, counters);
            if let Err(failure) = (self.observer)(&sample) {
                self.control.fail(failure);
            }
            watch.samples.push(sample);
            // If the supervisor was delayed for seconds, it takes one long sample instead of many
            // empty ones.
            while next <= Instant::now() {
                next += SAMPLE_INTERVAL;
            }
        }
    }

    /// Sleeps until `until`, or until the run is over.
    fn wait(&self, until: Instant) {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.control.is_over() {
                return;
            }
            std::thread::park_timeout(left);
        }
    }
}

/// The samples of one phase, and the state at the end of the last one.
struct Watch {
    phase: Phase,
    began_at: Instant,
    began_counters: Counters,
    last_at: Instant,
    last_counters: Counters,
    last_finished: u64,
    totals: Vec<LatencyTotal>,
    ends: Vec<Ends>,
    samples: Vec<Sample>,
}

impl Watch {
    fn new<S: Store>(store: &S, slots: &[Slot], kinds: usize, measured: bool) -> Self {
        let (now, counters) = (Instant::now(), store.counters());
        Self {
            phase: if measured { Phase::Measured } else { Phase::WarmUp },
            began_at: now,
            began_counters: counters,
            last_at: now,
            last_counters: counters,
            last_finished: Self::finished(slots),
            totals: vec![LatencyTotal::default(); kinds],
            ends: vec![Ends::default(); kinds],
            samples: Vec::new(),
        }
    }

    fn finished(slots: &[Slot]) -> u64 {
        slots.iter().map(Slot::finished).sum()
    }

    fn sample<S: Store>(&mut self, store: &S, slots: &[Slot], now: Instant) -> Sample {
        self.close(slots, now, Self::finished(slots), store.counters())
    }

    /// The sample that ends at `now`, with the records that the threads have handed over.
    fn close(&mut self, slots: &[Slot], now: Instant, finished: u64, counters: Counters) -> Sample {
        let mut recent = vec![LatencyTotal::default(); self.totals.len()];
        for slot in slots {
            slot.collect(self.phase, &mut recent, &mut self.ends);
        }
        let mut all = LatencyTotal::default();
        for (total, recent) in self.totals.iter_mut().zip(&recent) {
            total.merge(recent);
            all.merge(recent);
        }
        let sample = Sample {
            measured: self.phase == Phase::Measured,
            at_seconds: now.duration_since(self.began_at).as_secs_f64(),
            seconds: now.duration_since(self.last_at).as_secs_f64(),
            operations: finished - self.last_finished,
            counters: counters.since(&self.last_counters),
            latency: all.summary(),
        };
        (self.last_at, self.last_counters, self.last_finished) = (now, counters, finished);
        sample
    }
}

/// The part of the worker threads in a run.
struct Stream<'a, W> {
    workload: &'a W,
    plan: &'a Plan,
    control: &'a Control,
    slots: &'a [Slot],
}

/// The recorder that the tasks of a thread share, and the last signal that the thread has followed.
struct Records<'a> {
    recorder: Recorder<'a>,
    followed: Signal,
}

impl Records<'_> {
    /// Records an operation that began under the signal `began`. An operation that began in the
    /// warm-up and ended in the measured part belongs to neither.
    #[inline]
    fn record(&mut self, began: Signal, kind: usize, time: Duration) {
        if self.counts(began) {
            self.recorder.record(kind, time.as_nanos() as u64);
        }
    }

    /// Records the conflicts and the roll-back of an operation.
    #[inline]
    fn note(&mut self, began: Signal, done: Done) {
        if (done.conflicts > 0 || done.rolled_back) && self.counts(began) {
            self.recorder.note(done.kind, done.conflicts, done.rolled_back);
        }
    }

    #[inline]
    fn counts(&self, began: Signal) -> bool {
        let warm_up = |signal: Signal| signal.phase() == Phase::WarmUp;
        !warm_up(began) || warm_up(self.followed)
    }

    /// Hands over the records of the last signal, unless another task of the thread has done so.
    fn follow(&mut self, signal: Signal) {
        if signal != self.followed {
            self.recorder.hand_over(self.followed.phase());
            self.followed = signal;
        }
    }
}

/// Most commits of one thread that may be under way at a time.
const MAX_WAITING: usize = 4096;

/// An operation whose commit is not durable yet.
struct Waiting<P> {
    commit: P,
    began: Signal,
    kind: usize,
    start: Instant,
}

/// State that the workers of a thread share.
pub struct Local<'a, P> {
    records: RefCell<Records<'a>>,
    /// Finished operations whose commits are not durable yet, of all workers, in order. Any worker
    /// records those that have become durable.
    waiting: RefCell<VecDeque<Waiting<P>>>,
}

impl<P: Pending> Local<'_, P> {
    /// Records the operations whose commits have become durable.
    #[inline]
    fn look(&self, now: Instant) {
        let mut waiting = self.waiting.borrow_mut();
        while waiting.front().is_some_and(|first| first.commit.is_durable()) {
            let first = waiting.pop_front().expect("the front was just read");
            self.records.borrow_mut().record(first.began, first.kind, now - first.start);
        }
    }

    /// Waits for the oldest commits until at most `most` are under way, and records them.
    async fn wait_for_all_but(&self, most: usize) -> Result<(), Failure> {
        let oldest = || {
            let mut waiting = self.waiting.borrow_mut();
            if waiting.len() > most { waiting.pop_front() } else { None }
        };
        while let Some(first) = oldest() {
            first.commit.wait().await?;
            self.records.borrow_mut().record(first.began, first.kind, first.start.elapsed());
        }
        Ok(())
    }
}

impl<W> Stream<'_, W> {
    /// Most operations that worker `number` does in `phase`.
    fn quota(&self, number: usize, phase: Phase) -> u64 {
        match (self.plan.length, phase) {
            (Length::Operations(all), Phase::Measured) => {
                let workers = self.plan.crew.workers() as u64;
                all / workers + u64::from((number as u64) < all % workers)
            }
            _ => u64::MAX,
        }
    }
}

impl<'a, C: Client, W: Workload<C>> Job<C> for Stream<'a, W> {
    type Local = Local<'a, C::Pending>;

    fn local(&self, thread: usize) -> Self::Local {
        let records = Records {
            recorder: Recorder::new(&self.slots[thread], self.plan.kinds.len()),
            followed: self.control.signal(),
        };
        Local { records: RefCell::new(records), waiting: RefCell::default() }
    }

    async fn work(&self, local: &Self::Local, worker: Worker, client: C) -> Result<(), Failure> {
        let mut state = self.workload.state(worker.number);
        // Records belong to the signal that the thread follows, so a worker starts with that one.
        let mut seen = local.records.borrow().followed;
        let mut left = self.quota(worker.number, seen.phase());
        let mut start = Instant::now();
        loop {
            let signal = self.control.signal();
            if signal != seen {
                local.records.borrow_mut().follow(signal);
                if signal.phase() != seen.phase() {
                    left = self.quota(worker.number, signal.phase());
                }
                seen = signal;
                start = Instant::now();
            }
            if seen.phase() == Phase::Stop || left == 0 {
                return local.wait_for_all_but(0).await;
            }
            if self.workload.prepare(&mut state) {
                start = Instant::now();
            }
            let done = self.workload.step(&mut state, &client).await?;
            let kind = done.kind;
            // An operation starts when the last one ended, so the clock is read once for each.
            let end = Instant::now();
            local.records.borrow_mut().note(seen, done);
            match client.take_pending() {
                _ if done.rolled_back => {}
                None => local.records.borrow_mut().record(seen, kind, end - start),
                Some(commit) => {
                    let waiting = Waiting { commit, began: seen, kind, start };
                    local.waiting.borrow_mut().push_back(waiting);
                }
            }
            local.look(end);
            start = end;
            if local.waiting.borrow().len() > MAX_WAITING {
                local.wait_for_all_but(MAX_WAITING).await?;
                start = Instant::now();
            }
            left -= u64::from(!done.rolled_back);
        }
    }

    fn finish(&self, local: Self::Local) {
        let mut records = local.records.into_inner();
        records.recorder.hand_over(records.followed.phase());
    }
}
