//! Whether an engine takes changes: one word, which every change reads before it begins.
//!
//! | bits 7..1 | bit 0 | meaning                                                       |
//! |-----------|-------|---------------------------------------------------------------|
//! | 0         | 0     | takes changes                                                 |
//! | level     | 0     | takes changes, which wait: versions are above their limit      |
//! | any       | 1     | refuses changes: poisoned, abandoned, or opened read-only     |
//!
//! Bit 0 is never cleared. A child of `fork` is refused every change, regardless of the word.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use wattle_buffer::{Error, Process, Result};

const POISONED: u8 = 1;
const THROTTLE_SHIFT: u32 = 1;

/// Largest level of [`Liveness::set_throttle`].
pub(crate) const MAX_THROTTLE: u8 = u8::MAX >> THROTTLE_SHIFT;

/// See the module documentation.
pub(crate) struct Liveness {
    word: AtomicU8,
    /// The first reason.
    why: Mutex<Option<String>>,
    read_only: bool,
    /// The process that opened the engine.
    process: Process,
}

impl Liveness {
    /// An engine that takes changes until it is sealed.
    pub fn new(read_only: bool, process: Process) -> Liveness {
        Liveness { word: AtomicU8::new(0), why: Mutex::default(), read_only, process }
    }

    /// Changes are taken, and need not wait.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.word.load(Ordering::Relaxed) == 0 && !self.process.is_other()
    }

    /// Changes are taken.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::ReadOnly`], [`Error::Forked`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.word.load(Ordering::Relaxed) & POISONED {
            0 if !self.process.is_other() => Ok(()),
            _ => Err(self.refusal()),
        }
    }

    #[cold]
    fn refusal(&self) -> Error {
        if self.process.is_other() {
            return Error::Forked;
        }
        match self.why.lock().clone() {
            None if self.read_only => Error::ReadOnly,
            why => Error::Poisoned(why.unwrap_or_default()),
        }
    }

    /// Refuses changes from now on if the engine was opened read-only.
    pub fn seal(&self) {
        if self.read_only {
            self.word.fetch_or(POISONED, Ordering::Relaxed);
        }
    }

    /// Refuses changes from now on.
    pub fn poison(&self, why: &str) {
        tracing::error!(why, "the engine is poisoned");
        self.why.lock().get_or_insert_with(|| why.to_string());
        self.word.fetch_or(POISONED, Ordering::Relaxed);
    }

    /// Refuses changes from now on, without a failure: the owner ends the engine while it is in
    /// use.
    pub fn abandon(&self) {
        self.why.lock().get_or_insert_with(|| "the engine was abandoned".to_string());
        self.word.fetch_or(POISONED, Ordering::SeqCst);
    }

    /// How long changes wait, a level of the keeper; 0: not at all.
    #[inline]
    pub fn throttle(&self) -> u8 {
        self.word.load(Ordering::Relaxed) >> THROTTLE_SHIFT
    }

    /// Changes wait from now on as this level says, 0 to [`MAX_THROTTLE`].
    pub fn set_throttle(&self, level: u8) {
        debug_assert!(level <= MAX_THROTTLE);
        if self.throttle() != level {
            let set = |word: u8| Some(word & POISONED | level << THROTTLE_SHIFT);
            let _was = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poisoned_engine_stays_so_whatever_the_throttle() {
        let liveness = Liveness::new(false, Process::current());
        assert!(liveness.is_free() && liveness.check().is_ok() && liveness.throttle() == 0);
        liveness.set_throttle(MAX_THROTTLE);
        assert!(!liveness.is_free() && liveness.check().is_ok());
        assert_eq!(liveness.throttle(), MAX_THROTTLE);
        liveness.poison("first");
        liveness.poison("second");
        liveness.set_throttle(0);
        assert!(!liveness.is_free() && liveness.throttle() == 0);
        assert!(matches!(liveness.check(), Err(Error::Poisoned(why)) if why == "first"));
    }

    #[test]
    fn an_engine_that_only_reads_takes_changes_until_it_is_sealed() {
        let liveness = Liveness::new(true, Process::current());
        assert!(liveness.check().is_ok());
        liveness.seal();
        assert!(matches!(liveness.check(), Err(Error::ReadOnly)));
    }
}
