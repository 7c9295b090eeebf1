//! How the supervising thread and the workers of a run communicate.
//!
//! Workers read one shared word before every operation. The supervisor writes it at most once a
//! second, so it stays in every core's cache. Deadlines, samples and interrupts cost a worker one
//! relaxed load and one comparison.
//!
//! | bits | meaning |
//! |---|---|
//! | 0-1 | phase: 0 warm-up, 1 measured part, 2 stop |
//! | 2-63 | number of hand-overs asked for so far |

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::failure::Failure;

/// How often [`Control::supervise`] checks whether the work is done, if nothing wakes it.
const SUPERVISION: Duration = Duration::from_millis(20);

/// Signals within this time of the first one count as the same interrupt: `timeout` sends one to
/// the process and one to its group, and Ctrl-C reaches both a script and the process that it runs.
const ONE_INTERRUPT: Duration = Duration::from_millis(100);

/// Exit code of a process that was interrupted, the one that shells use for Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Work; these operations do not count.
    WarmUp,
    /// Work; these operations count.
    Measured,
    /// Finish the current operation and return.
    Stop,
}

/// The shared word as a worker read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(u64);

const PHASE_BITS: u32 = 2;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;

impl Signal {
    /// The phase that it asks for.
    #[inline]
    pub fn phase(self) -> Phase {
        match self.0 & PHASE_MASK {
            0 => Phase::WarmUp,
            1 => Phase::Measured,
            _ => Phase::Stop,
        }
    }
}

/// The state shared by the supervisor and the workers of one run.
pub struct Control {
    word: CachePadded<AtomicU64>,
    working: AtomicUsize,
    failure: Mutex<Option<Failure>>,
    supervisor: Thread,
    interrupt: Interrupt,
}

impl Control {
    /// Control over `workers` threads in the warm-up, supervised by the calling thread.
    pub fn new(workers: usize, interrupt: &Interrupt) -> Self {
        Self {
            word: CachePadded::new(AtomicU64::new(0)),
            working: AtomicUsize::new(workers),
            failure: Mutex::new(None),
            supervisor: std::thread::current(),
            interrupt: interrupt.clone(),
        }
    }

    /// The current value of the shared word.
    #[inline]
    pub fn signal(&self) -> Signal {
        Signal(self.word.load(Ordering::Relaxed))
    }

    /// Asks every worker to hand over its records.
    pub fn ask_for_records(&self) {
        self.word.fetch_add(1 << PHASE_BITS, Ordering::Relaxed);
    }

    /// Starts a phase. Workers then hand over their records of the previous one. [`Phase::Stop`] is
    /// final.
    pub fn enter(&self, phase: Phase) {
        let bits = match phase {
            Phase::WarmUp => 0,
            Phase::Measured => 1,
            Phase::Stop => 2,
        };
        let change = |word: u64| {
            (Signal(word).phase() != Phase::Stop)
                .then_some(((word & !PHASE_MASK) + (1 << PHASE_BITS)) | bits)
        };
        // `Err` means that the run was stopped already; it stays stopped.
        let _stopped =
            self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_err();
    }

    /// Records a worker's failure, unless another one came first, and stops all workers.
    pub fn fail(&self, failure: Failure) {
        let mut slot = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(failure);
        drop(slot);
        self.enter(Phase::Stop);
        self.supervisor.unpark();
    }

    /// The first failure of a worker.
    pub fn take_failure(&self) -> Option<Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A thread reports that its work is done.
    pub fn thread_done(&self) {
        self.working.fetch_sub(1, Ordering::Release);
        self.supervisor.unpark();
    }

    /// Supervises work without phases and samples: returns when the work is done or has failed. If
    /// the user interrupts it, tells the threads to stop.
    pub fn supervise(&self) {
        while !self.is_over() {
            std::thread::park_timeout(SUPERVISION);
        }
        if self.interrupt.requested() {
            self.enter(Phase::Stop);
        }
    }

    /// Whether the run is over: all threads are done, one failed, or the user interrupted it.
    pub fn is_over(&self) -> bool {
        self.working.load(Ordering::Acquire) == 0
            || self.signal().phase() == Phase::Stop
            || self.interrupt.requested()
    }
}

/// Prints a line on standard error. An error is ignored, so that the work goes on if the reader of
/// the pipe has gone or the device is full.
pub fn say(line: impl std::fmt::Display) {
    // One write, so that lines of other threads do not come in between.
    let line = format!("{line}\n");
    _ = std::io::stderr().write_all(line.as_bytes());
}

/// The flag that says whether the user asked for an early end. All clones share it.
#[derive(Clone, Default)]
pub struct Interrupt {
    shared: Arc<InterruptState>,
}

#[derive(Default)]
struct InterruptState {
    requested: Arc<AtomicBool>,
    waiting: Mutex<Option<Thread>>,
}

/// Directories to remove when a second interrupt ends the process.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Tries to remove a directory: other threads may create files in it at the same time.
const TRIES: usize = 20;

fn temporary() -> MutexGuard<'static, Vec<PathBuf>> {
    TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a directory: a second interrupt removes it before it ends the process.
pub fn remove_at_exit(path: &Path) {
    temporary().push(path.to_owned());
}

/// Unregisters a directory.
pub fn keep_at_exit(path: &Path) {
    temporary().retain(|other| other != path);
}

/// Waits for the end of the process if a second interrupt is ending it: what fails now fails
/// because directories are being removed, and is not to be reported.
pub fn wait_while_ending() {
    drop(temporary());
}

fn remove_all(paths: &mut Vec<PathBuf>) {
    for path in paths.drain(..) {
        let mut last = Ok(());
        for _ in 0..TRIES {
            last = match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                other => other,
            };
            if last.is_ok() {
                break;
            }
        }
        if let Err(error) = last {
            say(format_args!("{} could not be removed: {error}", path.display()));
        }
    }
}

/// The meaning of a signal, given the signals before it.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    /// End early, with the results so far.
    First,
    /// The first interrupt, delivered again.
    Same,
    /// End at once.
    Again,
}

/// The signals that have arrived.
#[derive(Debug, Default)]
struct Signals {
    first: Option<Instant>,
}

impl Signals {
    /// Counts a signal that arrived at `now`.
    fn count(&mut self, now: Instant) -> Meaning {
        match self.first {
            None => {
                self.first = Some(now);
                Meaning::First
            }
            Some(first) if now.saturating_duration_since(first) < ONE_INTERRUPT => Meaning::Same,
            Some(_) => Meaning::Again,
        }
    }
}

impl Interrupt {
    /// The interrupt of this process, raised by SIGINT, SIGTERM or SIGHUP. A second one, at least
    /// [`ONE_INTERRUPT`] later, ends the process at once.
    pub fn of_process() -> Result<Self, String> {
        let interrupt = Self::default();
        interrupt.wake_this_thread();
        let (raised, mut signals) = (interrupt.clone(), Signals::default());
        let failed = |error: std::io::Error| format!("cannot listen for interrupts: {error}");
        let mut arriving =
            signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
        let listen = move || {
            for _signal in arriving.forever() {
                match signals.count(Instant::now()) {
                    Meaning::First => {
                        raised.raise();
                        say("interrupted: finishing; a second time ends the process at once");
                    }
                    Meaning::Same => {}
                    Meaning::Again => {
                        say("interrupted again: ended without closing the store");
                        // Held to the end, see `wait_while_ending`.
                        let mut paths = temporary();
                        remove_all(&mut paths);
                        std::process::exit(INTERRUPTED.into());
                    }
                }
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(listen).map_err(failed)?;
        Ok(interrupt)
    }

    /// Raises the interrupt; returns whether it was raised before.
    pub fn raise(&self) -> bool {
        let before = self.shared.requested.swap(true, Ordering::SeqCst);
        let waiting = self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = waiting.as_ref() {
            thread.unpark();
        }
        before
    }

    /// Whether it was raised.
    pub fn requested(&self) -> bool {
        self.shared.requested.load(Ordering::Relaxed)
    }

    /// The flag itself, for code that polls one.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.shared.requested
    }

    /// Makes the interrupt unpark the calling thread.
    fn wake_this_thread(&self) {
        let mut waiting = self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting = Some(std::thread::current());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hand_over_and_phase_changes_the_signal() {
        let control = Control::new(1, &Interrupt::default());
        let first = control.signal();
        assert_eq!(first.phase(), Phase::WarmUp);
        control.ask_for_records();
        let second = control.signal();
        assert_eq!(second.phase(), Phase::WarmUp);
        control.enter(Phase::Measured);
        let third = control.signal();
        assert_eq!(third.phase(), Phase::Measured);
        assert!(first != second && second != third);
    }

    #[test]
    fn a_stopped_run_stays_stopped() {
        let control = Control::new(2, &Interrupt::default());
        assert!(!control.is_over());
        control.fail(Failure::Wrong("first".into()));
        control.fail(Failure::Wrong("second".into()));
        control.enter(Phase::Measured);
        assert_eq!(control.signal().phase(), Phase::Stop);
        assert_eq!(control.take_failure().unwrap().to_string(), "first");
    }

    #[test]
    fn signals_at_once_are_one_interrupt() {
        let (mut signals, first) = (Signals::default(), Instant::now());
        let at = |milliseconds| first + Duration::from_millis(milliseconds);
        assert_eq!(signals.count(first), Meaning::First);
        assert_eq!(signals.count(first), Meaning::Same);
        assert_eq!(signals.count(at(99)), Meaning::Same);
        assert_eq!(signals.count(at(100)), Meaning::Again);
        assert_eq!(signals.count(at(101)), Meaning::Again);
    }

    #[test]
    fn a_run_is_over_when_all_threads_are_done_or_the_user_interrupts() {
        let interrupt = Interrupt::default();
        let control = Control::new(2, &interrupt);
        control.thread_done();
        assert!(!control.is_over());
        control.thread_done();
        assert!(control.is_over());
        let control = Control::new(2, &interrupt);
        assert!(!interrupt.raise());
        assert!(interrupt.raise() && control.is_over());
    }
}
