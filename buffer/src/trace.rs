//! A trace of page accesses: the pages that operations visit, in order, while the store runs.
//!
//! An access is one visit of a page by an operation. A descent that arrives records each inner page
//! on its way and the leaf as reads. An operation that changes pages records each of them as a
//! write, once for each time that it held the page's latch; a leaf that is changed has no read of
//! its own. Splits and merges record the pages that they change. An operation that restarts,
//! because it met a page that another thread changed or that was not in memory, records the visits
//! of each descent that arrived. Pages that hold large values, and pages that are written when the
//! store is opened or closed, do not go through the frames of the pool and are not recorded.
//!
//! **Order.** Every access draws a number from one counter. The accesses of a thread are in the
//! order in which it made them, and the pages of one descent have consecutive numbers. Between
//! threads the order is that of the draws, which happen just after the visits: two accesses of
//! different threads within some hundred nanoseconds may be in either order.
//!
//! **Cost.** In a pool without a trace an operation pays one test, at its start. The recording code
//! is compiled apart, so that it takes no register from the other code. With a trace, an access
//! takes the lock of a buffer of its thread, a number and 24 bytes, and each operation descends
//! twice, because the first descent does not keep its way.
//!
//! **Merging.** One thread sweeps: it reads the counter, empties the buffer of every thread, sorts,
//! and hands all accesses with numbers below the one that it read to the sink. None of these is
//! missing: a number is drawn under the lock of the buffer that it is written to, so a number drawn
//! after the sweep has passed that buffer is at least the one that the sweep began with. Higher
//! numbers wait for the next sweep. No access is lost: a thread whose buffer is full waits for the
//! sweep. The sweeping thread takes no latch and waits for nothing but the sink, so a waiting
//! thread may hold anything.

use crate::{
    error::{Error, Result},
    ids::{PageId, TreeId},
    sync::{AtomicBool, AtomicU64, Builder, Condvar, JoinHandle, Mutex, Ordering},
};
use std::{cell::RefCell, fmt, io, mem, sync::Arc, sync::Weak};

/// Capacity of the buffer of a thread, in accesses. Each takes up to three times 24 bytes: in the
/// buffer, in the sweep, and on its way to the sink.
const CAPACITY: usize = 8192;
/// A buffer with this many accesses asks for a sweep.
const SWEEP_AT: usize = CAPACITY / 2;
/// Upper bound on the inner pages of a descent, far above the height of any tree.
const MAX_LEVELS: usize = 31;

/// One visit of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAccess {
    /// The page.
    pub page: PageId,
    /// Whether the page was changed.
    pub write: bool,
    /// The tree that the page belongs to.
    pub tree: TreeId,
    /// Height of the page above the leaves of the tree; 0 for a leaf.
    pub level: u8,
}

/// Receives the accesses. Called by a thread of the trace.
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

/// A trace of the page accesses of a pool; see the module documentation. It is passed to the pool
/// at opening, and records from [`PageTrace::start`] to [`PageTrace::finish`]. All clones are the
/// same trace.
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

/// Requests to the sweeping thread.
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
    visit: PageVisit,
}

/// An access without its number.
#[derive(Clone, Copy, Default)]
pub(crate) struct PageVisit {
    /// Twice the page id, plus one for a write.
    access: u64,
    tree: TreeId,
    level: u8,
}

impl PageVisit {
    /// A read of a page.
    pub(crate) fn read(page: PageId, tree: TreeId, level: u8) -> PageVisit {
        PageVisit { access: page.0 << 1, tree, level }
    }

    /// A change of a page.
    pub(crate) fn write(page: PageId, tree: TreeId, level: u8) -> PageVisit {
        PageVisit { access: page.0 << 1 | 1, tree, level }
    }
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
    /// A trace that is not recording yet.
    pub fn new() -> PageTrace {
        PageTrace::default()
    }

    /// Begins to record into `sink`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if the trace was started before, [`Error::Io`] if its thread cannot
    /// start.
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

    /// Whether an error of the sink ended the trace; [`PageTrace::finish`] returns that error.
    pub fn has_failed(&self) -> bool {
        let started = self.recorder.sweeper.lock().is_some();
        started && !self.recorder.active.load(Ordering::Relaxed)
    }

    /// Ends the trace once the sink has all accesses recorded so far. Returns the number of
    /// accesses.
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

    /// Records the inner pages that `lead` finds, and then the read `page` if there is one.
    pub(crate) fn record_read(&self, lead: impl FnOnce(&mut Way), page: Option<PageVisit>) {
        if !self.is_active() {
            return;
        }
        let mut way = Way::default();
        lead(&mut way);
        if let Some(page) = page {
            way.pages[way.count] = page;
            way.count += 1;
        }
        self.record(&way.pages[..way.count]);
    }

    /// Records accesses of the calling thread.
    pub(crate) fn record(&self, accesses: &[PageVisit]) {
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

    fn push(&self, buffer: &ThreadBuffer, accesses: &[PageVisit]) {
        let mut entries = buffer.entries.lock();
        while entries.len() + accesses.len() > CAPACITY {
            self.ask_for_sweep();
            buffer.room.wait(&mut entries);
        }
        // The end of the trace clears the flag before its last sweep, so an access recorded after
        // this check is swept.
        if !self.active.load(Ordering::Relaxed) {
            return;
        }
        let first = self.next.fetch_add(accesses.len() as u64, Ordering::Relaxed);
        let before = entries.len();
        let numbered = (first..).zip(accesses);
        entries.extend(numbered.map(|(number, visit)| NumberedAccess { number, visit: *visit }));
        if before < SWEEP_AT && entries.len() >= SWEEP_AT {
            self.ask_for_sweep();
        }
    }

    fn ask_for_sweep(&self) {
        self.signal.lock().sweep = true;
        self.wake.notify_one();
    }

    /// Body of the sweeping thread. Returns the number of accesses that the sink got.
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
                // No access can be recorded after the last sweep.
                _ if stop => u64::MAX,
                limit => limit,
            };
            let ready = entries.partition_point(|entry: &NumberedAccess| entry.number < limit);
            accesses.clear();
            accesses.extend(entries.drain(..ready).map(|entry| PageAccess {
                page: PageId(entry.visit.access >> 1),
                write: entry.visit.access & 1 == 1,
                tree: entry.visit.tree,
                level: entry.visit.level,
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

    /// Moves all recorded accesses to `entries`, in order. Every access with a number below the
    /// returned one is included.
    fn sweep(&self, entries: &mut Vec<NumberedAccess>) -> u64 {
        let limit = self.next.load(Ordering::Relaxed);
        let buffers = {
            let mut buffers = self.buffers.lock();
            // Drop the empty buffers of threads that have ended.
            buffers.retain(|buffer| {
                Arc::strong_count(buffer) > 1 || !buffer.entries.lock().is_empty()
            });
            buffers.clone()
        };
        for buffer in &buffers {
            entries.append(&mut buffer.entries.lock());
            buffer.room.notify_all();
        }
        // Each part is sorted already, the best case of this sort.
        entries.sort_by_key(|entry| entry.number);
        limit
    }

    /// Ends the trace without a sink: stops recording and releases all waiting threads.
    fn give_up(&self) {
        self.active.store(false, Ordering::Relaxed);
        let mut buffers = self.buffers.lock();
        for buffer in buffers.drain(..) {
            buffer.entries.lock().clear();
            buffer.room.notify_all();
        }
    }
}

/// The inner pages on the way to a leaf, root first.
#[derive(Default)]
pub struct Way {
    pages: [PageVisit; MAX_LEVELS + 1],
    count: usize,
}

impl Way {
    /// Adds `page` of `tree` to the way, `level` above the leaves.
    ///
    /// # Panics
    /// If the way is longer than any tree is high.
    pub fn through(&mut self, page: PageId, tree: TreeId, level: u8) {
        assert!(self.count < MAX_LEVELS, "a way of more than {MAX_LEVELS} levels");
        self.pages[self.count] = PageVisit::read(page, tree, level);
        self.count += 1;
    }

    /// Starts again at the root.
    pub fn restart(&mut self) {
        self.count = 0;
    }
}
