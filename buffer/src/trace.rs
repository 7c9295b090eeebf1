//! A trace of page accesses: which pages operations visit, in order, while the store runs.
//!
//! An access is one visit of a page by an operation: each page on its way from the root to a leaf
//! and the leaf, when the descent has arrived there, as a read; and each page that it changed, once
//! for each time that it held the page's latch, as a write instead. A leaf that is changed has no
//! read of its own. Splits and merges record what they change. An operation that starts again,
//! because it met a page that another thread changed or that was not in memory, records the visits
//! of each descent that arrived. Pages that hold large values, and pages that are written when the
//! store is opened or closed, do not go through the pool's frames and are no accesses.
//!
//! **Order.** Every access draws a number from one counter. The accesses of a thread have the order
//! in which the thread made them, and the pages of one way down have consecutive numbers. Between
//! threads the order is that in which they drew, which is just after the visit: two accesses that
//! different threads made within some hundred nanoseconds may be in either order.
//!
//! **Cost.** In a pool that was opened without a trace an operation pays one test, where it begins:
//! what records is compiled apart, so that it takes no register from what does not. With a trace, an
//! access takes the lock of a buffer that belongs to its thread, a number and 16 bytes, and each
//! operation descends twice, because the first descent does not remember its way.
//!
//! **Merging.** One thread sweeps: it reads the counter, empties the buffer of every thread, sorts,
//! and hands everything below the number that it read to the sink. Nothing below is missing: a
//! number is drawn under the lock of the buffer that it is written to, so one that is drawn after
//! the sweep passed that buffer is at least the one that the sweep began with. What is above waits
//! for the next sweep. Nothing is ever lost: a thread whose buffer is full waits for the sweep. The
//! sweeping thread takes no latch and waits for nothing but the sink, so it does not matter what is
//! held by those who wait for it.

use crate::{
    error::{Error, Result},
    ids::PageId,
    sync::{AtomicBool, AtomicU64, Builder, Condvar, JoinHandle, Mutex, Ordering},
};
use std::{cell::RefCell, fmt, io, mem, sync::Arc, sync::Weak};

/// Accesses that the buffer of a thread holds. It takes at most three times 16 bytes for each:
/// filled, swept, and on its way to the sink.
const CAPACITY: usize = 8192;
/// Accesses in a buffer that make it worth a sweep.
const SWEEP_AT: usize = CAPACITY / 2;
/// Most inner pages on a way: far more than a tree of the largest store has levels.
const MAX_LEVELS: usize = 31;

/// One visit of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAccess {
    /// The page.
    pub page: PageId,
    /// It was changed.
    pub write: bool,
}

/// Where the accesses go. Called by a thread of the trace.
pub trait TraceSink: Send {
    /// Takes the next accesses, in order.
    ///
    /// # Errors
    /// Ends the trace; [`PageTrace::finish`] returns it.
    fn write(&mut self, accesses: &[PageAccess]) -> io::Result<()>;

    /// Called once after the last access.
    ///
    /// # Errors
    /// As [`TraceSink::write`].
    fn finish(&mut self) -> io::Result<()>;
}

/// A trace of the page accesses of a pool; see the module documentation. It is given to the pool when
/// that is opened, and records from [`PageTrace::start`] to [`PageTrace::finish`]. All clones are one
/// trace.
#[derive(Clone, Default)]
pub struct PageTrace {
    recorder: Arc<Recorder>,
}

#[derive(Default)]
struct Recorder {
    active: AtomicBool,
    /// Number of the next access.
    next: AtomicU64,
    buffers: Mutex<Vec<Arc<ThreadBuffer>>>,
    signal: Mutex<SweepSignal>,
    wake: Condvar,
    sweeper: Mutex<Option<JoinHandle<io::Result<u64>>>>,
}

/// What the sweeping thread is asked to do.
#[derive(Default)]
struct SweepSignal {
    sweep: bool,
    stop: bool,
    started: bool,
}

/// The accesses of one thread that were not swept yet.
struct ThreadBuffer {
    trace: Weak<Recorder>,
    thread: std::thread::ThreadId,
    entries: Mutex<Vec<NumberedAccess>>,
    room: Condvar,
}

#[derive(Clone, Copy)]
struct NumberedAccess {
    number: u64,
    /// The page, doubled, and one more for a write.
    access: u64,
}

thread_local! {
    /// The buffer that this thread used last.
    static BUFFER: RefCell<Option<Arc<ThreadBuffer>>> = const { RefCell::new(None) };
}

impl fmt::Debug for PageTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let active = self.recorder.active.load(Ordering::Relaxed);
        write!(f, "PageTrace({})", if active { "recording" } else { "not recording" })
    }
}

impl PageTrace {
    /// A trace that does not record yet.
    pub fn new() -> PageTrace {
        PageTrace::default()
    }

    /// Begins to record into `sink`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if it was started before, [`Error::Io`] if there is no thread for it.
    pub fn start(&self, sink: Box<dyn TraceSink>) -> Result<()> {
        if mem::replace(&mut self.recorder.signal.lock().started, true) {
            return Err(Error::InvalidOption("a page trace can be started once".to_string()));
        }
        let recorder = self.recorder.clone();
        let sweeper = Builder::new()
            .name("wattle-trace".to_string())
            .spawn(move || recorder.sweep_until_stopped(sink))
            .map_err(|error| Error::io("start the thread of the page trace", error))?;
        *self.recorder.sweeper.lock() = Some(sweeper);
        self.recorder.active.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The trace was ended by an error of the sink; [`PageTrace::finish`] has it.
    pub fn has_failed(&self) -> bool {
        let started = self.recorder.sweeper.lock().is_some();
        started && !self.recorder.active.load(Ordering::Relaxed)
    }

    /// Ends the trace when all that was recorded so far is in the sink. Gives the number of accesses.
    ///
    /// # Errors
    /// The first error of the sink.
    pub fn finish(&self) -> io::Result<u64> {
        self.recorder.active.store(false, Ordering::Relaxed);
        let Some(sweeper) = self.recorder.sweeper.lock().take() else { return Ok(0) };
        self.recorder.signal.lock().stop = true;
        self.recorder.wake.notify_one();
        sweeper.join().unwrap_or_else(|_| Err(io::Error::other("the thread of the trace panicked")))
    }

    fn is_active(&self) -> bool {
        self.recorder.active.load(Ordering::Relaxed)
    }

    /// Records the way that `lead` finds, and then a read of `page` if it is given.
    pub(crate) fn record_read(&self, lead: impl FnOnce(&mut Way), page: Option<PageId>) {
        if !self.is_active() {
            return;
        }
        let mut way = Way::default();
        lead(&mut way);
        if let Some(page) = page {
            way.pages[way.count] = page.0 << 1;
            way.count += 1;
        }
        self.record(&way.pages[..way.count]);
    }

    /// Records a change of `page`.
    pub(crate) fn record_write(&self, page: PageId) {
        self.record(&[page.0 << 1 | 1]);
    }

    /// Records accesses of the calling thread, as doubled page numbers and one more for a write.
    fn record(&self, accesses: &[u64]) {
        if !self.is_active() {
            return;
        }
        BUFFER.with_borrow_mut(|mine| {
            let buffer = match mine {
                Some(buffer) if Weak::as_ptr(&buffer.trace) == Arc::as_ptr(&self.recorder) => {
                    buffer
                }
                _ => mine.insert(self.recorder.buffer_of_thread()),
            };
            self.recorder.push(buffer, accesses);
        });
    }
}

impl Recorder {
    fn buffer_of_thread(self: &Arc<Self>) -> Arc<ThreadBuffer> {
        let thread = std::thread::current().id();
        let mut buffers = self.buffers.lock();
        if let Some(buffer) = buffers.iter().find(|buffer| buffer.thread == thread) {
            return buffer.clone();
        }
        let buffer = Arc::new(ThreadBuffer {
            trace: Arc::downgrade(self),
            thread,
            entries: Mutex::new(Vec::with_capacity(CAPACITY)),
            room: Condvar::new(),
        });
        buffers.push(buffer.clone());
        buffer
    }

    fn push(&self, buffer: &ThreadBuffer, accesses: &[u64]) {
        let mut entries = buffer.entries.lock();
        while entries.len() + accesses.len() > CAPACITY {
            self.ask_for_sweep();
            buffer.room.wait(&mut entries);
        }
        // Whoever ends the trace clears the flag first and sweeps then: an access that gets past
        // here is swept.
        if !self.active.load(Ordering::Relaxed) {
            return;
        }
        let first = self.next.fetch_add(accesses.len() as u64, Ordering::Relaxed);
        let before = entries.len();
        let numbered = (first..).zip(accesses);
        entries.extend(numbered.map(|(number, access)| NumberedAccess { number, access: *access }));
        if before < SWEEP_AT && entries.len() >= SWEEP_AT {
            self.ask_for_sweep();
        }
    }

    fn ask_for_sweep(&self) {
        self.signal.lock().sweep = true;
        self.wake.notify_one();
    }

    /// The life of the sweeping thread. Gives the number of accesses that the sink has.
    fn sweep_until_stopped(&self, mut sink: Box<dyn TraceSink>) -> io::Result<u64> {
        let (mut entries, mut accesses) = (Vec::new(), Vec::new());
        let mut written = 0;
        loop {
            let stop = {
                let mut signal = self.signal.lock();
                while !signal.sweep && !signal.stop {
                    self.wake.wait(&mut signal);
                }
                signal.sweep = false;
                signal.stop
            };
            let limit = match self.sweep(&mut entries) {
                // Nothing was recorded behind the back of the last sweep.
                _ if stop => u64::MAX,
                limit => limit,
            };
            let ready = entries.partition_point(|entry: &NumberedAccess| entry.number < limit);
            accesses.clear();
            accesses.extend(entries.drain(..ready).map(|entry| PageAccess {
                page: PageId(entry.access >> 1),
                write: entry.access & 1 == 1,
            }));
            if let Err(error) = sink.write(&accesses) {
                self.give_up();
                return Err(error);
            }
            written += accesses.len() as u64;
            if stop {
                sink.finish()?;
                return Ok(written);
            }
        }
    }

    /// Moves everything that was recorded to `entries`, in order. All accesses are there whose
    /// numbers are below the one returned.
    fn sweep(&self, entries: &mut Vec<NumberedAccess>) -> u64 {
        let limit = self.next.load(Ordering::Relaxed);
        let buffers = {
            let mut buffers = self.buffers.lock();
            // Buffers of threads that ended, once they are empty.
            buffers.retain(|buffer| {
                Arc::strong_count(buffer) > 1 || !buffer.entries.lock().is_empty()
            });
            buffers.clone()
        };
        for buffer in &buffers {
            entries.append(&mut buffer.entries.lock());
            buffer.room.notify_all();
        }
        // Each part is in order already, which is the best case of this sort.
        entries.sort_by_key(|entry| entry.number);
        limit
    }

    /// Ends the trace without a sink: nobody records any more, nobody waits.
    fn give_up(&self) {
        self.active.store(false, Ordering::Relaxed);
        let mut buffers = self.buffers.lock();
        for buffer in buffers.drain(..) {
            buffer.entries.lock().clear();
            buffer.room.notify_all();
        }
    }
}

/// The pages above a leaf on the way to it, root first.
#[derive(Default)]
pub struct Way {
    pages: [u64; MAX_LEVELS + 1],
    count: usize,
}

impl Way {
    /// The way leads through `page` next.
    ///
    /// # Panics
    /// If the way is longer than any tree is high.
    pub fn through(&mut self, page: PageId) {
        assert!(self.count < MAX_LEVELS, "a way of more than {MAX_LEVELS} levels");
        self.pages[self.count] = page.0 << 1;
        self.count += 1;
    }

    /// Begins again at the root.
    pub fn restart(&mut self) {
        self.count = 0;
    }
}
