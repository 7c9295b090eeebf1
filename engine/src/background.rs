//! One background thread of the engine: how it starts, sleeps, is woken, and ends.
//!
//! Users: the keeper, the janitor and the checkpoint thread. The caller says what the thread does.
//!
//! **No wake-up is lost.** [`BackgroundThread::wake`] takes the lock under which a sleeping thread
//! decides how long it sleeps. A caller that stores work first and wakes afterwards is therefore
//! seen by that decision, or wakes the sleep that follows it.

use parking_lot::{Condvar, Mutex};
use std::{
    thread::JoinHandle,
    time::{Duration, Instant},
};
use wattle_buffer::{Error, Result};

/// See the module documentation.
pub(crate) struct BackgroundThread {
    name: &'static str,
    is_stopping: Mutex<bool>,
    wake: Condvar,
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl BackgroundThread {
    /// A thread that has not started yet.
    pub fn new(name: &'static str) -> BackgroundThread {
        let (is_stopping, handle) = (Mutex::new(false), Mutex::new(None));
        BackgroundThread { name, is_stopping, wake: Condvar::new(), handle }
    }

    /// Starts the thread. `work` returns soon after [`BackgroundThread::stop`] was called.
    pub fn start(&self, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(self.name.to_string());
        let thread = thread.spawn(work).map_err(|error| Error::io("start a thread", error))?;
        *self.handle.lock() = Some(thread);
        Ok(())
    }

    /// Tells the thread to end, and does not wait. Several threads end together if all are told
    /// before the first one is waited for.
    pub fn begin_stop(&self) {
        *self.is_stopping.lock() = true;
        self.wake.notify_all();
    }

    /// Ends the thread and waits until it has ended. Without a thread it only makes every later
    /// sleep return at once.
    pub fn stop(&self) {
        self.begin_stop();
        let thread = self.handle.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(thread = self.name, "a background thread ended by a panic");
        }
    }

    /// Whether the thread must end.
    pub fn is_stopping(&self) -> bool {
        *self.is_stopping.lock()
    }

    /// Ends a sleep of the thread in [`BackgroundThread::wait`], if it sleeps.
    pub fn wake(&self) {
        let _decided = self.is_stopping.lock();
        self.wake.notify_all();
    }

    /// Sleeps as long as `decide` says, or until [`BackgroundThread::wake`]; `None`: not at all.
    /// False: the thread must end.
    pub fn wait(&self, decide: impl FnOnce() -> Option<Duration>) -> bool {
        let mut is_stopping = self.is_stopping.lock();
        if !*is_stopping && let Some(time) = decide() {
            self.wake.wait_for(&mut is_stopping, time);
        }
        !*is_stopping
    }

    /// Sleeps for this time; [`BackgroundThread::wake`] does not shorten it. False: the thread must
    /// end.
    pub fn sleep(&self, time: Duration) -> bool {
        let mut is_stopping = self.is_stopping.lock();
        let deadline = Instant::now() + time;
        while !*is_stopping && !self.wake.wait_until(&mut is_stopping, deadline).timed_out() {}
        !*is_stopping
    }
}

#[cfg(test)]
mod tests {
    use super::BackgroundThread;
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
        time::{Duration, Instant},
    };

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_thread_that_sleeps_sees_work_and_its_end_at_once() {
        let thread = Arc::new(BackgroundThread::new("test"));
        let (work, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let ours = (thread.clone(), work.clone(), done.clone());
        let begun = Instant::now();
        thread
            .start(move || {
                let (thread, work, done) = ours;
                let is_idle = || work.load(Ordering::Relaxed) == done.load(Ordering::Relaxed);
                while thread.wait(|| is_idle().then_some(LONG)) {
                    done.store(work.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            })
            .expect("a thread");
        for _ in 0..1000 {
            let wanted = work.fetch_add(1, Ordering::Relaxed) + 1;
            thread.wake();
            while done.load(Ordering::Relaxed) < wanted {
                std::thread::yield_now();
            }
        }
        thread.stop();
        assert!(begun.elapsed() < LONG / 2, "a wake-up was lost");
        assert!(!thread.sleep(LONG) && !thread.wait(|| Some(LONG)) && thread.is_stopping());
    }
}
