//! Waiting for the log: for a durable epoch, for a flush to make room, for a checkpoint to begin.
//! Threads sleep on conditions, tasks leave their waker.
//!
//! Those who wait for the next epoch must not be woken by the flush before it: on a busy log half of
//! all threads wait for one and half for the other. So a thread that waits for an epoch sleeps on the
//! condition of its parity.
//!
//! No wait is without a limit: twice as long as a flush waits for room before the log fails. A device may never
//! answer. Threads look at the time themselves; for tasks the thread that makes segments does, and wakes
//! them. The log has not failed then: what was waited for may still come.
//!
//! Invariants: nobody sleeps past the flush, the failure or the end that decides what they wait
//! for; wakers are called with nothing locked.

use crate::{
    append::Appender,
    log::{Log, Urgency},
    shared::Cut,
};
use parking_lot::{Condvar, Mutex};
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use wattle_buffer::{Error, Process, Result};

/// Wakers looked at before another one is added, in case a task polls again and again.
const SAME_WAKER: usize = 32;

/// Those who wait.
pub(crate) struct Waits {
    /// The one that has the flusher.
    process: Process,
    /// Those who hold it may take the lock of the signal (`Shared::came`), not the other way round.
    state: Mutex<State>,
    /// How many waited for a durable epoch when the last flush was. Beside `state`, because it is asked for under
    /// locks that are taken while that is held.
    company: AtomicUsize,
    /// How long anybody waits.
    limit: Duration,
    /// An epoch of this parity is durable.
    durable: [Condvar; 2],
    /// Anything else has happened.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Tasks, each with the epoch that it needs.
    durable: Vec<(u64, Waker)>,
    /// Threads that wait for a durable epoch, by its parity. Those who were let go do not count,
    /// although they may not run yet.
    sleeping: [usize; 2],
    /// Tasks that need room, each with the number of the flush since which its operation waits.
    room: Vec<(u64, Waker)>,
    /// How often the buffers were taken.
    taken: u64,
    /// Image epoch of the last checkpoint whose cut is durable.
    checkpoint: u64,
    /// Since when tasks wait without a flush.
    since: Option<Instant>,
    /// That is longer than they should.
    stalled: bool,
    poisoned: Option<String>,
    /// Records up to this epoch may be durable although the log failed.
    unknown: u64,
    ended: bool,
}

impl Waits {
    pub(crate) fn new(image_epoch: u64, limit: Duration) -> Waits {
        let state = State { checkpoint: image_epoch, ..State::default() };
        Waits {
            process: Process::current(),
            state: Mutex::new(state),
            company: AtomicUsize::new(0),
            limit,
            durable: Default::default(),
            changed: Condvar::new(),
        }
    }

    /// The process that started the log.
    pub(crate) fn process(&self) -> Process {
        self.process
    }

    pub(crate) fn poisoned(&self) -> Option<String> {
        self.state.lock().poisoned.clone()
    }

    /// The buffers were taken: there is room.
    pub(crate) fn buffers_taken(&self) {
        let mut state = self.state.lock();
        state.taken += 1;
        let mut wakers = std::mem::take(&mut state.room);
        state.goes_on();
        drop(state);
        self.changed.notify_all();
        // Whoever finds a buffer full has mostly filled it, before others who need it too look again. Woken
        // first, it would fill it each time.
        wakers.sort_by_key(|(since, _)| *since);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// The log is full, and changes are refused; or is not full any more: whoever waits for room asks again.
    pub(crate) fn room_changed(&self) {
        let wakers = std::mem::take(&mut self.state.lock().room);
        self.changed.notify_all();
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    pub(crate) fn publish(&self, cut: &Cut, durable_epoch: &AtomicU64) {
        let mut state = self.state.lock();
        let before = durable_epoch.swap(cut.epoch, Ordering::Release);
        self.company.store(state.waiting(), Ordering::Relaxed);
        // Usually it is one epoch, and one parity.
        let mut reached = [false; 2];
        for epoch in (before + 1..=cut.epoch).rev().take(2) {
            reached[parity(epoch)] = true;
            state.sleeping[parity(epoch)] = 0;
        }
        if cut.checkpoint {
            state.checkpoint = cut.epoch + 1;
        }
        let wakers: Vec<_> =
            state.durable.extract_if(.., |(epoch, _)| *epoch <= cut.epoch).collect();
        state.goes_on();
        drop(state);
        self.durable.iter().zip(reached).filter(|(_, reached)| *reached).for_each(|(all, _)| {
            all.notify_all();
        });
        if cut.checkpoint {
            self.changed.notify_all();
        }
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    pub(crate) fn poison(&self, why: String, unknown: u64) {
        let mut state = self.state.lock();
        if state.poisoned.is_none() {
            (state.poisoned, state.unknown) = (Some(why), unknown);
        }
        self.wake_all(state);
    }

    /// The flusher has ended in order.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        self.wake_all(state);
    }

    fn wake_all(&self, mut state: parking_lot::MutexGuard<'_, State>) {
        let durable = std::mem::take(&mut state.durable);
        let room = std::mem::take(&mut state.room);
        drop(state);
        self.durable.iter().chain([&self.changed]).for_each(|all| _ = all.notify_all());
        durable.into_iter().for_each(|(_, waker)| waker.wake());
        room.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// How many wait for a durable epoch, and how many did when the last flush was.
    pub(crate) fn company(&self) -> (usize, usize) {
        (self.state.lock().waiting(), self.waited())
    }

    /// How many waited for a durable epoch when the last flush was. Takes no lock.
    pub(crate) fn waited(&self) -> usize {
        self.company.load(Ordering::Relaxed)
    }

    pub(crate) fn for_checkpoint(&self, before: u64) -> Result<u64> {
        self.process.check()?;
        let until = self.until();
        let mut state = self.state.lock();
        while state.checkpoint <= before {
            state.check()?;
            if Instant::now() >= until {
                return Err(Error::io("begin a checkpoint", self.in_vain()));
            }
            self.changed.wait_until(&mut state, until);
        }
        Ok(state.checkpoint)
    }

    /// When who begins to wait now has waited for too long.
    fn until(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.limit).unwrap_or(now + Duration::from_secs(u32::MAX.into()))
    }

    /// Why somebody waits no more.
    fn in_vain(&self) -> std::io::Error {
        let what = format!("no flush of the log has ended within {} s", self.limit.as_secs());
        std::io::Error::new(std::io::ErrorKind::TimedOut, what)
    }

    /// Now and then: wakes tasks that have waited for too long.
    pub(crate) fn look(&self) {
        let mut state = self.state.lock();
        if state.since.is_some_and(|since| since.elapsed() >= self.limit) {
            state.stalled = true;
            self.wake_all(state);
        }
    }
}

impl State {
    fn waiting(&self) -> usize {
        self.sleeping[0] + self.sleeping[1] + self.durable.len()
    }

    /// Something was flushed.
    fn goes_on(&mut self) {
        let waiting = !self.durable.is_empty() || !self.room.is_empty();
        (self.stalled, self.since) = (false, waiting.then(Instant::now));
    }

    /// Fails when nothing will happen any more.
    fn check(&self) -> Result<()> {
        match &self.poisoned {
            Some(why) => Err(Error::Poisoned(why.clone())),
            None if self.ended => Err(Error::Closed),
            None => Ok(()),
        }
    }

    /// The same for a record of `epoch`. `waited`: since before the failure.
    fn check_record(&self, epoch: u64, waited: bool) -> Result<()> {
        match &self.poisoned {
            Some(why) if waited || epoch <= self.unknown => Err(Error::CommitUnknown(why.clone())),
            _ => self.check(),
        }
    }
}

fn parity(epoch: u64) -> usize {
    epoch as usize % 2
}

impl Log {
    /// Blocks until all records of `epoch` are durable. Somebody must have asked for it
    /// ([`Log::request`]).
    ///
    /// Fails with `CommitUnknown` when the log fails, or failed after records of that epoch were
    /// appended, or no flush ends for too long; with `Poisoned` when it failed before, and nothing of that epoch
    /// is durable.
    pub fn wait_durable(&self, epoch: u64) -> Result<()> {
        if self.durable_epoch() >= epoch {
            return Ok(());
        }
        let waits = &self.shared().waits;
        waits.process.check()?;
        let mut state = waits.state.lock();
        if self.durable_epoch() >= epoch {
            return Ok(());
        }
        state.check_record(epoch, false)?;
        state.sleeping[parity(epoch)] += 1;
        self.shared().came(state.waiting());
        let until = waits.until();
        loop {
            waits.durable[parity(epoch)].wait_until(&mut state, until);
            if self.durable_epoch() >= epoch {
                return Ok(());
            }
            let in_vain = || Err(Error::CommitUnknown(waits.in_vain().to_string()));
            let late = Instant::now() >= until;
            let waits_on = if late { in_vain() } else { Ok(()) };
            if let Err(error) = state.check_record(epoch, true).and(waits_on) {
                let sleeping = &mut state.sleeping[parity(epoch)];
                *sleeping = sleeping.saturating_sub(1);
                return Err(error);
            }
        }
    }

    /// The same for a task: `waker` is called when it is worth to ask again.
    pub fn poll_durable(&self, epoch: u64, waker: &Waker) -> Poll<Result<()>> {
        if self.durable_epoch() >= epoch {
            return Poll::Ready(Ok(()));
        }
        if let Err(error) = self.shared().waits.process.check() {
            return Poll::Ready(Err(error));
        }
        let mut state = self.shared().waits.state.lock();
        if self.durable_epoch() >= epoch {
            return Poll::Ready(Ok(()));
        }
        if let Err(error) = state.check_record(epoch, false) {
            return Poll::Ready(Err(error));
        }
        if state.stalled {
            let why = self.shared().waits.in_vain().to_string();
            return Poll::Ready(Err(Error::CommitUnknown(why)));
        }
        state.since.get_or_insert_with(Instant::now);
        let entry = (epoch, waker.clone());
        let mut recent = state.durable.iter().rev().take(SAME_WAKER);
        if !recent.any(|(other, known)| *other == epoch && known.will_wake(waker)) {
            state.durable.push(entry);
            self.shared().came(state.waiting());
        }
        Poll::Pending
    }

    /// How often the buffers were taken, for [`Log::poll_flush`].
    pub fn buffers_taken(&self) -> u64 {
        self.shared().waits.state.lock().taken
    }

    /// Blocks until the next flush has taken the buffers, which it asks for, and while the log is full; or
    /// changes are refused.
    pub fn wait_flush(&self) -> Result<()> {
        self.shared().waits.process.check()?;
        let seen = self.buffers_taken();
        self.request(self.epoch(), Urgency::Now);
        let waits = &self.shared().waits;
        let until = waits.until();
        let mut state = waits.state.lock();
        while !self.shared().goes_on(state.taken != seen) {
            state.check()?;
            if Instant::now() >= until {
                return Err(Error::io("make room in the buffers of the log", waits.in_vain()));
            }
            waits.changed.wait_until(&mut state, until);
        }
        Ok(())
    }

    /// The same for a task: ready when the buffers were taken more often than `seen`, which is
    /// [`Log::buffers_taken`] of before the first call, and the log is not full; or changes are refused.
    /// Of several tasks the one is woken first that waits for the longest time: `since` is that number when
    /// it first found no room.
    pub fn poll_flush(&self, seen: u64, since: u64, waker: &Waker) -> Poll<Result<()>> {
        if let Err(error) = self.shared().waits.process.check() {
            return Poll::Ready(Err(error));
        }
        let mut state = self.shared().waits.state.lock();
        let taken = state.taken > seen;
        if self.shared().goes_on(taken) {
            return Poll::Ready(Ok(()));
        }
        if let Err(error) = state.check() {
            return Poll::Ready(Err(error));
        }
        if state.stalled {
            let why = self.shared().waits.in_vain();
            return Poll::Ready(Err(Error::io("make room in the buffers of the log", why)));
        }
        state.since.get_or_insert_with(Instant::now);
        let mut recent = state.room.iter().rev().take(SAME_WAKER);
        if !recent.any(|(_, known)| known.will_wake(waker)) {
            state.room.push((since, waker.clone()));
        }
        drop(state);
        // Each flush wakes who waits: while the log is full, another one would be asked for without end. When
        // it is not any more, whoever waits is woken as well.
        if !taken && !self.is_full() {
            self.request(self.epoch(), Urgency::Now);
        }
        Poll::Pending
    }

    /// A future of [`Log::poll_flush`]. Whoever still finds no room afterwards gives the same `since`, which
    /// is none at first.
    pub fn next_flush(self: &Arc<Self>, since: &mut Option<u64>) -> NextFlush {
        let seen = self.buffers_taken();
        NextFlush { log: Arc::clone(self), seen, since: *since.get_or_insert(seen) }
    }

    /// Ready when `appender` has room for another operation.
    pub fn poll_room(&self, appender: &Appender, waker: &Waker) -> Poll<Result<()>> {
        loop {
            let seen = self.buffers_taken();
            if appender.check_room()? {
                return Poll::Ready(Ok(()));
            }
            match self.poll_flush(seen, seen, waker) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        }
    }
}

/// Completes when the next flush has taken the buffers and the log is not full, or changes are refused.
pub struct NextFlush {
    log: Arc<Log>,
    seen: u64,
    since: u64,
}

impl Future for NextFlush {
    type Output = Result<()>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.log.poll_flush(self.seen, self.since, cx.waker())
    }
}
