//! Waiting for the log: for a durable epoch, for a flush to empty the buffers, for a checkpoint to
//! begin. Threads sleep on conditions, tasks leave their waker.
//!
//! A flush must not wake the threads that wait for the next one: on a busy log half of all threads
//! wait for one flush and half for the other. So a thread that waits for an epoch sleeps on the
//! condition of its parity.
//!
//! Each wait has a limit, because a device may never answer: twice as long as a flush waits for
//! room before the log fails. Threads watch the time themselves; for tasks the thread that makes
//! segments watches it, and wakes them. A wait that ends so does not mean that the log has failed:
//! the epoch may still become durable.
//!
//! Invariants: each waiter is woken by the flush, the failure or the end that decides its wait;
//! wakers are called with no lock held.

use crate::{
    epochs::{Cut, Epochs},
    gate::Gate,
    requests::FlushRequests,
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Poll, Waker},
    time::{Duration, Instant},
};
use wattle_buffer::{Error, Process, Result};

/// Recent wakers that a new one is compared with, in case a task polls again and again.
const SAME_WAKER: usize = 32;

/// The event for which a task waits that found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoomWait {
    /// No event: the task tries again.
    Over,
    /// The next flush.
    ForFlush,
    /// Room for the next segment; the flush that it waited for has ended.
    ForRoom,
}

/// See the module documentation.
pub(crate) struct Waits {
    /// The process that has the flusher.
    process: Process,
    /// Taken before the lock of the flush requests ([`FlushRequests::committer_waits`]).
    waiters: Mutex<Waiters>,
    /// Committers that waited for a durable epoch when the last flush ended. Outside of `waiters`,
    /// because it is read under locks that are taken while that is held.
    last_group: AtomicUsize,
    /// Longest wait.
    limit: Duration,
    /// An epoch of this parity became durable.
    durable: [Condvar; 2],
    /// Anything else changed.
    changed: Condvar,
}

#[derive(Default)]
struct Waiters {
    /// Tasks that wait for a durable epoch, each with that epoch.
    durable: Vec<(u64, Waker)>,
    /// Threads that wait for a durable epoch, by its parity. Threads that were woken do not count,
    /// although they may not have run yet.
    sleeping: [usize; 2],
    /// Tasks that wait for room, each with the number of the flush since which its operation waits.
    room: Vec<(u64, Waker)>,
    /// How often the flusher took the buffers.
    taken: u64,
    /// Image epoch of the last checkpoint whose cut is durable.
    checkpoint: u64,
    /// Since when tasks wait without a flush.
    since: Option<Instant>,
    /// They have waited for longer than the limit.
    stalled: bool,
    poisoned: Option<String>,
    /// Records up to this epoch may be durable although the log failed.
    unknown: u64,
    ended: bool,
}

impl Waits {
    pub(crate) fn new(image_epoch: u64, limit: Duration) -> Waits {
        let waiters = Waiters { checkpoint: image_epoch, ..Waiters::default() };
        Waits {
            process: Process::current(),
            waiters: Mutex::new(waiters),
            last_group: AtomicUsize::new(0),
            limit,
            durable: Default::default(),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn poisoned(&self) -> Option<String> {
        self.waiters.lock().poisoned.clone()
    }

    /// The flusher took the buffers: there is room in them.
    pub(crate) fn buffers_taken(&self) {
        let mut waiters = self.waiters.lock();
        waiters.taken += 1;
        let mut wakers = std::mem::take(&mut waiters.room);
        waiters.progress();
        drop(waiters);
        self.changed.notify_all();
        // Wake tasks in order of waiting time; otherwise the task that filled the buffer would win
        // every time.
        wakers.sort_by_key(|(since, _)| *since);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// The log refuses changes because it is full, or it has room again: changes that wait for room
    /// try again.
    pub(crate) fn room_changed(&self) {
        let wakers = std::mem::take(&mut self.waiters.lock().room);
        self.changed.notify_all();
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Makes the epoch of a cut durable, and wakes the waiters that it reaches.
    pub(crate) fn publish(&self, cut: &Cut, epochs: &Epochs) {
        let mut waiters = self.waiters.lock();
        let before = epochs.publish(cut.epoch);
        self.last_group.store(waiters.waiting(), Ordering::Relaxed);
        // Usually it is one epoch, and one parity.
        let mut reached = [false; 2];
        for epoch in (before + 1..=cut.epoch).rev().take(2) {
            reached[parity(epoch)] = true;
            waiters.sleeping[parity(epoch)] = 0;
        }
        if !cut.checkpoint.is_empty() {
            waiters.checkpoint = cut.epoch + 1;
        }
        let wakers: Vec<_> =
            waiters.durable.extract_if(.., |(epoch, _)| *epoch <= cut.epoch).collect();
        waiters.progress();
        drop(waiters);
        self.durable.iter().zip(reached).filter(|(_, reached)| *reached).for_each(|(all, _)| {
            all.notify_all();
        });
        if !cut.checkpoint.is_empty() {
            self.changed.notify_all();
        }
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// The log failed: records of epochs after `unknown` are not durable.
    pub(crate) fn poison(&self, why: String, unknown: u64) {
        let mut waiters = self.waiters.lock();
        if waiters.poisoned.is_none() {
            (waiters.poisoned, waiters.unknown) = (Some(why), unknown);
        }
        self.wake_all(waiters);
    }

    /// The flusher has ended in order.
    pub(crate) fn end(&self) {
        let mut waiters = self.waiters.lock();
        waiters.ended = true;
        self.wake_all(waiters);
    }

    /// Called now and then: wakes tasks that have waited for longer than the limit.
    pub(crate) fn wake_stalled(&self) {
        let mut waiters = self.waiters.lock();
        if waiters.since.is_some_and(|since| since.elapsed() >= self.limit) {
            waiters.stalled = true;
            self.wake_all(waiters);
        }
    }

    fn wake_all(&self, mut waiters: MutexGuard<'_, Waiters>) {
        let durable = std::mem::take(&mut waiters.durable);
        let room = std::mem::take(&mut waiters.room);
        drop(waiters);
        self.durable.iter().chain([&self.changed]).for_each(|all| _ = all.notify_all());
        durable.into_iter().for_each(|(_, waker)| waker.wake());
        room.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Committers that wait for a durable epoch now.
    pub(crate) fn group(&self) -> usize {
        self.waiters.lock().waiting()
    }

    /// Committers that waited when the last flush ended. Takes no lock.
    pub(crate) fn last_group(&self) -> usize {
        self.last_group.load(Ordering::Relaxed)
    }

    /// How often the flusher took the buffers.
    pub(crate) fn taken(&self) -> u64 {
        self.waiters.lock().taken
    }

    /// Blocks until a checkpoint after that of epoch `before` has its cut.
    pub(crate) fn wait_checkpoint(&self, before: u64) -> Result<u64> {
        self.process.check()?;
        let until = self.until();
        let mut waiters = self.waiters.lock();
        while waiters.checkpoint <= before {
            waiters.check()?;
            if Instant::now() >= until {
                return Err(Error::io("begin a checkpoint", self.too_long()));
            }
            self.changed.wait_until(&mut waiters, until);
        }
        Ok(waiters.checkpoint)
    }

    /// See [`crate::Log::wait_durable`].
    pub(crate) fn wait_durable(
        &self,
        epoch: u64,
        epochs: &Epochs,
        requests: &FlushRequests,
    ) -> Result<()> {
        self.process.check()?;
        let mut waiters = self.waiters.lock();
        if epochs.durable() >= epoch {
            return Ok(());
        }
        waiters.check_record(epoch, false)?;
        waiters.sleeping[parity(epoch)] += 1;
        requests.committer_waits(waiters.waiting());
        let until = self.until();
        loop {
            self.durable[parity(epoch)].wait_until(&mut waiters, until);
            if epochs.durable() >= epoch {
                return Ok(());
            }
            let late = Instant::now() >= until;
            let too_long = || Err(Error::CommitUnknown(self.too_long().to_string()));
            let on_time = if late { too_long() } else { Ok(()) };
            if let Err(error) = waiters.check_record(epoch, true).and(on_time) {
                let sleeping = &mut waiters.sleeping[parity(epoch)];
                *sleeping = sleeping.saturating_sub(1);
                return Err(error);
            }
        }
    }

    /// See [`crate::Log::poll_durable`].
    pub(crate) fn poll_durable(
        &self,
        epoch: u64,
        waker: &Waker,
        epochs: &Epochs,
        requests: &FlushRequests,
    ) -> Poll<Result<()>> {
        if let Err(error) = self.process.check() {
            return Poll::Ready(Err(error));
        }
        let mut waiters = self.waiters.lock();
        if epochs.durable() >= epoch {
            return Poll::Ready(Ok(()));
        }
        if let Err(error) = waiters.check_record(epoch, false) {
            return Poll::Ready(Err(error));
        }
        if waiters.stalled {
            let why = self.too_long().to_string();
            return Poll::Ready(Err(Error::CommitUnknown(why)));
        }
        waiters.since.get_or_insert_with(Instant::now);
        let mut recent = waiters.durable.iter().rev().take(SAME_WAKER);
        if !recent.any(|(other, known)| *other == epoch && known.will_wake(waker)) {
            waiters.durable.push((epoch, waker.clone()));
            requests.committer_waits(waiters.waiting());
        }
        Poll::Pending
    }

    /// Fails in another process than the one that has the flusher.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.process.check()
    }

    /// Blocks until the buffers were taken more often than `seen`, and while the log is full; or
    /// changes are refused.
    pub(crate) fn wait_room(&self, seen: u64, gate: &Gate) -> Result<()> {
        let until = self.until();
        let mut waiters = self.waiters.lock();
        while !gate.ends_wait(waiters.taken != seen) {
            waiters.check()?;
            if Instant::now() >= until {
                return Err(self.no_flush());
            }
            self.changed.wait_until(&mut waiters, until);
        }
        Ok(())
    }

    /// The same for a task; see [`crate::Log::poll_flush`].
    pub(crate) fn poll_room(
        &self,
        seen: u64,
        since: u64,
        waker: &Waker,
        gate: &Gate,
    ) -> Result<RoomWait> {
        self.process.check()?;
        let mut waiters = self.waiters.lock();
        let taken = waiters.taken > seen;
        if gate.ends_wait(taken) {
            return Ok(RoomWait::Over);
        }
        waiters.check()?;
        if waiters.stalled {
            return Err(self.no_flush());
        }
        waiters.since.get_or_insert_with(Instant::now);
        let mut recent = waiters.room.iter().rev().take(SAME_WAKER);
        if !recent.any(|(_, known)| known.will_wake(waker)) {
            waiters.room.push((since, waker.clone()));
        }
        Ok(if taken { RoomWait::ForRoom } else { RoomWait::ForFlush })
    }

    /// When a wait that begins now reaches the limit.
    fn until(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.limit).unwrap_or(now + Duration::from_secs(u32::MAX.into()))
    }

    fn too_long(&self) -> io::Error {
        let what = format!("no flush of the log has ended within {} s", self.limit.as_secs());
        io::Error::new(io::ErrorKind::TimedOut, what)
    }

    fn no_flush(&self) -> Error {
        Error::io("make room in the buffers of the log", self.too_long())
    }
}

impl Waiters {
    fn waiting(&self) -> usize {
        self.sleeping[0] + self.sleeping[1] + self.durable.len()
    }

    /// Notes that the flusher made progress: the tasks that still wait get the full time again.
    fn progress(&mut self) {
        let waiting = !self.durable.is_empty() || !self.room.is_empty();
        (self.stalled, self.since) = (false, waiting.then(Instant::now));
    }

    /// Fails if the flusher makes no further progress.
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
