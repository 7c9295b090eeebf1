//! The findings of the keeper's looks, requests to it, tasks that sleep, and its thread.

use crate::{background::BackgroundThread, liveness::MAX_THROTTLE};
use parking_lot::Mutex;
use std::{
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, SeqCst},
    },
    task::Waker,
    time::{Duration, Instant},
};

/// Time between looks while there are versions.
pub(super) const BUSY: Duration = Duration::from_millis(2);
/// And while there are none.
const IDLE: Duration = Duration::from_millis(100);
/// A transaction becomes the owner of trees when its versions take more than this part of the
/// limit.
pub(super) const LARGE_SHARE: u64 = 4;

/// How long a change waits while versions take more than the limit, by how far they are above.
pub(crate) const DELAYS: [Duration; 3] =
    [Duration::from_micros(50), Duration::from_micros(200), Duration::from_micros(1000)];
/// The level at which changes wait until it is over.
pub(crate) const HOLD: u8 = DELAYS.len() as u8 + 1;
const _: () = assert!(HOLD <= MAX_THROTTLE);

/// See the module documentation.
pub(crate) struct Keeper {
    pub thread: BackgroundThread,
    /// Tasks that wait until a time.
    sleepers: Mutex<Vec<(Instant, Waker)>>,
    /// The thread waits for something to do.
    is_idle: AtomicBool,
    /// A session could not drop its versions, and asks for a look.
    pub is_asked: AtomicBool,
    /// Bytes of versions of one transaction above which it becomes the owner of trees. Rarely
    /// stored.
    pub large_txn_bytes: AtomicU64,
    /// Held during a look.
    pub looking: Mutex<Looks>,
    /// All transactions up to this one have ended.
    pub oldest_writer: AtomicU64,
}

/// Findings of the looks so far.
pub(crate) struct Looks {
    pub next_pass: Instant,
    pub next_sweep: Instant,
    pub next_sum: Instant,
    /// No sum before this time: the work after the last one freed nothing.
    pub not_before: Instant,
    /// Time of the last sum, and the bytes of versions then.
    pub summed: Instant,
    pub bytes: u64,
    /// How fast it grew lately, bytes each second.
    pub growth: u64,
}

impl Keeper {
    pub fn new(version_bytes: u64) -> Keeper {
        let now = Instant::now();
        let looks = Looks {
            next_pass: now,
            next_sweep: now,
            next_sum: now,
            not_before: now,
            summed: now,
            bytes: 0,
            growth: 0,
        };
        Keeper {
            thread: BackgroundThread::new("keeper"),
            sleepers: Mutex::default(),
            is_idle: AtomicBool::new(false),
            is_asked: AtomicBool::new(false),
            large_txn_bytes: AtomicU64::new(version_bytes / LARGE_SHARE),
            looking: Mutex::new(looks),
            oldest_writer: AtomicU64::new(0),
        }
    }

    /// Stops the thread.
    pub fn stop(&self) {
        self.thread.stop();
        // Nothing else would wake them.
        self.sleepers.lock().drain(..).for_each(|(_, waker)| waker.wake());
    }

    /// All transactions up to this one have ended, as the last look found it.
    #[inline]
    pub fn oldest_writer(&self) -> u64 {
        self.oldest_writer.load(Acquire)
    }

    /// Bytes of versions of one transaction above which it becomes the owner of the trees that it
    /// changes.
    #[inline]
    pub fn large_txn_bytes(&self) -> u64 {
        self.large_txn_bytes.load(Relaxed)
    }

    /// A session could not drop its versions: requests a look. False: a look was requested before,
    /// and has not come yet.
    #[cold]
    pub fn ask(&self) -> bool {
        // Set `is_asked`, then read `is_idle`; the thread does the opposite, so one of the two sees
        // the other.
        if self.is_asked.swap(true, SeqCst) {
            return false;
        }
        if self.is_idle.load(SeqCst) {
            self.thread.wake();
        }
        true
    }

    /// Waits for a time without a thread: for tasks. Late by 2 ms at most while the thread lives.
    #[cfg(feature = "async")]
    pub async fn sleep(&self, time: Duration) {
        use std::task::Poll;

        let until = Instant::now() + time;
        std::future::poll_fn(|context| {
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            self.sleepers.lock().push((until, context.waker().clone()));
            self.thread.wake();
            // Check after the push: `stop` wakes the sleepers that it finds after it set the flag.
            match self.thread.is_stopping() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Waits until the next look; false: the thread is to end.
    pub fn wait(&self, busy: bool) -> bool {
        let goes_on = self.thread.wait(|| {
            let busy = busy || !self.sleepers.lock().is_empty();
            self.is_idle.store(!busy, SeqCst);
            let waits = busy || !self.is_asked.load(SeqCst);
            waits.then_some(if busy { BUSY } else { IDLE })
        });
        self.is_idle.store(false, Relaxed);
        let now = Instant::now();
        let due = |sleeper: &mut (Instant, Waker)| sleeper.0 <= now;
        self.sleepers.lock().extract_if(.., due).for_each(|(_, waker)| waker.wake());
        goes_on
    }
}
