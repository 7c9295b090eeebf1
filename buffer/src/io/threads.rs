//! Back end `threads`: `pread` and `pwrite`, with several threads to have several transfers in
//! flight.
//!
//! Used where io_uring is refused, as in many containers. Blocking reads run on the calling thread.
//! Asynchronous reads and batches of writes go to a pool of at most [`MAX_THREADS`] threads, which
//! start when first needed, sleep when idle and end with the storage.
//!
//! Invariant: the images of a batch are borrowed, so `write_pages` returns only after the last
//! claimed write has ended (see [`Batch`]).

use super::{
    directory::{Directory, split},
    file::{PageCache, PageFile, refuse_all},
    storage::{MAX_RUN, PageWrite, ReadTarget, Storage, runs},
};
use crate::{ids::PageId, page::PageImage};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    io,
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

/// Maximum number of I/O threads of one storage, hence of transfers in flight besides those of
/// callers.
pub const MAX_THREADS: usize = 16;

/// A data file accessed through blocking system calls.
pub struct ThreadStorage {
    file: Arc<PageFile>,
    pool: IoThreads,
}

impl ThreadStorage {
    /// Opens or creates the data file at `path`.
    pub fn open(path: &Path) -> io::Result<ThreadStorage> {
        let (directory, name) = split(path)?;
        ThreadStorage::open_in(&directory, name, PageCache::Bypassed)
    }

    /// As [`ThreadStorage::open`], of the file `name` in an open directory.
    pub(super) fn open_in(
        directory: &Arc<Directory>,
        name: &Path,
        cache: PageCache,
    ) -> io::Result<ThreadStorage> {
        Ok(ThreadStorage::on(PageFile::open_in(directory, name, cache)?))
    }

    /// As [`ThreadStorage::open_in`], for an existing data file and for reading only.
    pub(super) fn open_read_only(
        directory: &Arc<Directory>,
        name: &Path,
        cache: PageCache,
    ) -> io::Result<ThreadStorage> {
        Ok(ThreadStorage::on(PageFile::open_read_only(directory, name, cache)?))
    }

    fn on(file: PageFile) -> ThreadStorage {
        let file = Arc::new(file);
        ThreadStorage { pool: IoThreads::new(Arc::clone(&file)), file }
    }

    /// Whether transfers bypass the kernel's page cache.
    pub fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}

impl Storage for ThreadStorage {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn read_page(&self, target: &mut ReadTarget) -> io::Result<()> {
        self.file.read_target(target)
    }

    fn start_read(self: Arc<Self>, target: ReadTarget) {
        self.pool.read(target);
    }

    fn start_reads_beside(self: Arc<Self>, targets: Vec<ReadTarget>) {
        self.pool.read_all(targets);
    }

    fn read_image(&self, page: PageId, image: &mut PageImage) -> io::Result<()> {
        self.file.read_image(page, image)
    }

    fn write_pages(&self, batch: &[PageWrite<'_>], results: &mut Vec<io::Result<()>>) {
        if let Err(error) = self.file.check_length() {
            return refuse_all(&error, batch.len(), results);
        }
        let shared = Arc::new(Batch::new(batch));
        // The calling thread writes too, so helpers are only needed for the other pages. If a
        // helper cannot be had, the rest do its share.
        for _ in 1..shared.runs.len().min(MAX_THREADS + 1) {
            if self.pool.submit(Job::Help(Arc::clone(&shared))).is_err() {
                break;
            }
        }
        let wait = WaitForAll(&shared);
        shared.work(&self.file);
        drop(wait);
        results.append(&mut shared.state.lock().results.drain(..).flatten().collect());
    }

    fn write_neighbours(&self, first: PageId, images: &[&PageImage]) -> io::Result<()> {
        self.file.write_neighbours(first, images)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn check(&self) -> io::Result<()> {
        self.file.check()
    }

    fn capacity_pages(&self) -> u64 {
        self.file.capacity_pages()
    }

    fn reserve(&self, pages: u64) -> io::Result<()> {
        self.file.reserve(pages)
    }

    fn shrink(&self, pages: u64) -> io::Result<()> {
        self.file.shrink(pages)
    }
}

/// Writes that several threads share: each thread claims the next run of neighbours until none is
/// left.
///
/// The pointers come from borrows that end when `write_pages` returns. A pointer is dereferenced
/// only after a successful claim. Every claim below `runs.len()` is counted in `finished` when its
/// write has ended, and `write_pages` waits until that count is complete. A helper that comes later
/// finds no run to claim.
struct Batch {
    writes: Vec<(PageId, *const PageImage)>,
    /// The parts of `writes` that are claimed together.
    runs: Vec<Range<usize>>,
    next: AtomicUsize,
    state: Mutex<BatchState>,
    all_finished: Condvar,
}

struct BatchState {
    results: Vec<Option<io::Result<()>>>,
    finished: usize,
}

// SAFETY: the images are only read, and only while `write_pages` borrows them, see above.
unsafe impl Send for Batch {}
// SAFETY: as for Send.
unsafe impl Sync for Batch {}

impl Batch {
    fn new(batch: &[PageWrite<'_>]) -> Batch {
        let (mut ranges, mut start) = (Vec::new(), 0);
        for run in runs(batch) {
            ranges.push(start..start + run.len());
            start += run.len();
        }
        Batch {
            runs: ranges,
            writes: batch.iter().map(|write| (write.page, &raw const *write.image)).collect(),
            next: AtomicUsize::new(0),
            state: Mutex::new(BatchState {
                results: batch.iter().map(|_| None).collect(),
                finished: 0,
            }),
            all_finished: Condvar::new(),
        }
    }

    fn work(&self, file: &PageFile) {
        loop {
            let claimed = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(range) = self.runs.get(claimed).cloned() else { return };
            let writes = self.writes[range.clone()].iter();
            // SAFETY: claimed and not yet finished, so `write_pages` still borrows the images.
            let image = |image: &*const PageImage| unsafe { &**image };
            let run: Vec<_> =
                writes.map(|(page, at)| PageWrite { page: *page, image: image(at) }).collect();
            let mut outcomes = Vec::with_capacity(run.len());
            file.write_batch_run(&run, |outcome| outcomes.push(Some(outcome)));
            let mut state = self.state.lock();
            state.results.splice(range, outcomes);
            state.finished += 1;
            if state.finished == self.runs.len() {
                self.all_finished.notify_all();
            }
        }
    }
}

/// Waits until no thread uses the images of the batch, even if the calling thread panics.
struct WaitForAll<'a>(&'a Batch);

impl Drop for WaitForAll<'_> {
    fn drop(&mut self) {
        // Claims the rest, so that after a panic it does not wait for writes that no thread does.
        let unclaimed = self.0.next.swap(self.0.runs.len(), Ordering::Relaxed);
        let unclaimed = self.0.runs.len().saturating_sub(unclaimed);
        let mut state = self.0.state.lock();
        state.finished += unclaimed;
        while state.finished < self.0.runs.len() {
            self.0.all_finished.wait(&mut state);
        }
    }
}

enum Job {
    Read(ReadTarget),
    /// Neighbours in the file, ascending.
    ReadRun(Vec<ReadTarget>),
    Help(Arc<Batch>),
}

fn run(file: &PageFile, job: Job) {
    match job {
        Job::Read(mut target) => {
            let result = file.read_target(&mut target);
            target.end(result);
        }
        Job::ReadRun(mut run) => {
            // A page that the call did not bring is read for itself, and has its own outcome.
            let whole = file.read_run(&mut run).unwrap_or(0);
            for (at, mut target) in run.into_iter().enumerate() {
                let result = if at < whole { Ok(()) } else { file.read_target(&mut target) };
                target.end(result);
            }
        }
        Job::Help(batch) => batch.work(file),
    }
}

/// Threads that run jobs in order of arrival.
pub(super) struct IoThreads {
    shared: Arc<IoThreadsShared>,
}

struct IoThreadsShared {
    file: Arc<PageFile>,
    state: Mutex<JobQueue>,
    work: Condvar,
}

struct JobQueue {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    stopping: bool,
}

impl IoThreads {
    /// A pool for a file, without threads at first.
    pub(super) fn new(file: Arc<PageFile>) -> IoThreads {
        let state =
            JobQueue { jobs: VecDeque::new(), idle: 0, threads: Vec::new(), stopping: false };
        IoThreads {
            shared: Arc::new(IoThreadsShared {
                file,
                state: Mutex::new(state),
                work: Condvar::new(),
            }),
        }
    }

    /// Reads a page and tells the owner of the target.
    pub(super) fn read(&self, target: ReadTarget) {
        if let Err(job) = self.submit(Job::Read(target)) {
            // Without a thread, a blocking read is better than an error.
            run(&self.shared.file, job);
        }
    }

    /// Reads pages, neighbours together, and tells the owners of the targets.
    pub(super) fn read_all(&self, mut targets: Vec<ReadTarget>) {
        targets.sort_unstable_by_key(ReadTarget::page);
        let mut left = targets.into_iter().peekable();
        while let Some(first) = left.next() {
            let mut next = PageId(first.page().0.saturating_add(1));
            let mut run = vec![first];
            while run.len() < MAX_RUN
                && let Some(target) = left.next_if(|target| target.page() == next)
            {
                next.0 = next.0.saturating_add(1);
                run.push(target);
            }
            let job = match run.len() {
                1 => Job::Read(run.remove(0)),
                _ => Job::ReadRun(run),
            };
            if let Err(job) = self.submit(job) {
                // As in `read`.
                self::run(&self.shared.file, job);
            }
        }
    }

    /// Queues a job; gives it back if there is no thread to run it.
    fn submit(&self, job: Job) -> Result<(), Job> {
        let mut state = self.shared.state.lock();
        if state.jobs.len() >= state.idle && state.threads.len() < MAX_THREADS {
            let shared = Arc::clone(&self.shared);
            match thread::Builder::new().name("wattle-io".into()).spawn(move || shared.serve()) {
                Ok(thread) => state.threads.push(thread),
                Err(error) if state.threads.is_empty() => {
                    tracing::warn!(%error, "no I/O thread can be started: I/O will block");
                    return Err(job);
                }
                Err(error) => tracing::warn!(
                    %error,
                    threads = state.threads.len(),
                    "no further I/O thread can be started"
                ),
            }
        }
        state.jobs.push_back(job);
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }
}

impl IoThreadsShared {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                run(&self.file, job);
                state = self.state.lock();
            } else if state.stopping {
                return;
            } else {
                state.idle += 1;
                self.work.wait(&mut state);
                state.idle -= 1;
            }
        }
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.stopping = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.shared.work.notify_all();
        for thread in threads {
            // The owner of an abandoned target may drop the storage on a thread of this pool, which
            // cannot wait for itself. It ends after the job.
            if thread.thread().id() == thread::current().id() {
                continue;
            }
            if thread.join().is_err() {
                tracing::error!("an I/O thread panicked");
            }
        }
    }
}
