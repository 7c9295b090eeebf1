//! Scoped counters: how long each thread is in each part of the engine, waits included. For
//! `wattle breakdown`, as a second method beside sampling: samples tell where processor time goes,
//! scopes tell what threads wait for.
//!
//! Without the feature `scopes` a [`Scope`] is empty and [`scope`] does nothing: no instruction is
//! left. With it, a change of scope reads the clock of the thread once, 20 to 30 ns, and adds the
//! time since the change before to the part that ends. So the times of a thread are exclusive and
//! add up to its life.
//!
//! Parts are coarse, because the clock costs as much as a search in a node: a search counts for the
//! descent or the change that it belongs to.

use std::marker::PhantomData;

/// Whether this build has scoped counters.
pub const HAS_SCOPES: bool = cfg!(feature = "scopes");

/// A part of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ScopePart {
    /// Outside of all scopes: the caller, and the threads of the engine between their tasks.
    Outside,
    /// Begin, commit and rollback.
    Transactions,
    /// Versions of records.
    Versions,
    /// From the root to a leaf, with its search.
    Descent,
    /// Reading and changing records in a leaf.
    Records,
    /// Splits and merges.
    StructureChanges,
    /// Waiting for a latch.
    LatchWait,
    /// Page faults, without their waits.
    PageFaults,
    /// Waiting for a page: a read of this thread, or of another one.
    PageWait,
    /// Waiting for a free frame.
    FrameWait,
    /// Making swips hot.
    Swizzling,
    /// Free frames and page ids.
    FreeList,
    /// Finding and evicting pages.
    Victims,
    /// Copying pages that are written, and marking them clean.
    WriteBack,
    /// Waiting for the device that writes pages.
    WriteWait,
    /// Log records, and copying them into buffers.
    LogAppend,
    /// Waiting for room in the log.
    LogRoomWait,
    /// Writing the log, with the wait for its device.
    Flush,
    /// Waiting for a durable commit.
    CommitWait,
    /// Pausing because another transaction or thread is in the way.
    ConflictWait,
    /// A thread of the engine without work.
    Idle,
}

impl ScopePart {
    /// Number of parts.
    pub const COUNT: usize = ScopePart::ALL.len();

    /// All parts; `ScopePart::ALL[part as usize] == part`.
    pub const ALL: [ScopePart; 21] = [
        ScopePart::Outside,
        ScopePart::Transactions,
        ScopePart::Versions,
        ScopePart::Descent,
        ScopePart::Records,
        ScopePart::StructureChanges,
        ScopePart::LatchWait,
        ScopePart::PageFaults,
        ScopePart::PageWait,
        ScopePart::FrameWait,
        ScopePart::Swizzling,
        ScopePart::FreeList,
        ScopePart::Victims,
        ScopePart::WriteBack,
        ScopePart::WriteWait,
        ScopePart::LogAppend,
        ScopePart::LogRoomWait,
        ScopePart::Flush,
        ScopePart::CommitWait,
        ScopePart::ConflictWait,
        ScopePart::Idle,
    ];

    /// Its name in tables.
    pub fn title(self) -> &'static str {
        match self {
            ScopePart::Outside => "outside of the engine",
            ScopePart::Transactions => "transactions",
            ScopePart::Versions => "versions",
            ScopePart::Descent => "B-tree descent",
            ScopePart::Records => "records in leaves",
            ScopePart::StructureChanges => "structure changes",
            ScopePart::LatchWait => "waiting for latches",
            ScopePart::PageFaults => "page faults",
            ScopePart::PageWait => "waiting for pages",
            ScopePart::FrameWait => "waiting for frames",
            ScopePart::Swizzling => "swizzling",
            ScopePart::FreeList => "free list",
            ScopePart::Victims => "selection of victims",
            ScopePart::WriteBack => "write-back",
            ScopePart::WriteWait => "waiting for page writes",
            ScopePart::LogAppend => "log append",
            ScopePart::LogRoomWait => "waiting for room in the log",
            ScopePart::Flush => "flush",
            ScopePart::CommitWait => "waiting for commits",
            ScopePart::ConflictWait => "pauses after conflicts",
            ScopePart::Idle => "idle",
        }
    }
}

/// The times of a thread in the parts, nanoseconds, and how often it entered each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeTimes {
    /// Name of the thread.
    pub thread: String,
    /// Distinguishes threads of one name.
    pub number: u64,
    /// Nanoseconds, by [`ScopePart`].
    pub nanoseconds: [u64; ScopePart::COUNT],
    /// Entries, by [`ScopePart`].
    pub entries: [u64; ScopePart::COUNT],
}

/// The calling thread is in a part until this is dropped. Scopes of a thread nest.
#[must_use = "the scope ends when it is dropped"]
pub struct Scope {
    #[cfg(feature = "scopes")]
    outer: ScopePart,
    /// Belongs to the thread.
    _thread: PhantomData<*const ()>,
}

#[cfg(not(feature = "scopes"))]
mod off {
    use super::{PhantomData, Scope, ScopePart, ScopeTimes};

    /// The calling thread enters a part.
    #[inline(always)]
    pub fn scope(_: ScopePart) -> Scope {
        Scope { _thread: PhantomData }
    }

    /// The times of all threads that live and have entered a part: none in this build.
    pub fn scope_times() -> Vec<ScopeTimes> {
        Vec::new()
    }
}
#[cfg(not(feature = "scopes"))]
pub use off::{scope, scope_times};

#[cfg(feature = "scopes")]
mod on {
    use super::{PhantomData, Scope, ScopePart, ScopeTimes};
    use parking_lot::Mutex;
    use std::{
        sync::{
            Arc, LazyLock,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
        time::Instant,
    };

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    static THREADS: Mutex<Vec<Arc<ThreadClock>>> = Mutex::new(Vec::new());
    static NUMBER: AtomicU64 = AtomicU64::new(0);

    /// Only its thread stores; others may read it at any time.
    struct ThreadClock {
        thread: String,
        number: u64,
        part: AtomicU64,
        since: AtomicU64,
        nanoseconds: [AtomicU64; ScopePart::COUNT],
        entries: [AtomicU64; ScopePart::COUNT],
    }

    fn now() -> u64 {
        START.elapsed().as_nanos() as u64
    }

    impl ThreadClock {
        /// Changes to a part; gives the previous one.
        fn enter(&self, part: ScopePart) -> ScopePart {
            let (old, now) = (self.part.load(Relaxed) as usize, now());
            let spent = now.saturating_sub(self.since.load(Relaxed));
            let total = &self.nanoseconds[old];
            total.store(total.load(Relaxed) + spent, Relaxed);
            self.part.store(part as u64, Relaxed);
            self.since.store(now, Relaxed);
            ScopePart::ALL[old]
        }

        fn times(&self) -> ScopeTimes {
            let mut times = ScopeTimes {
                thread: self.thread.clone(),
                number: self.number,
                nanoseconds: self.nanoseconds.each_ref().map(|value| value.load(Relaxed)),
                entries: self.entries.each_ref().map(|value| value.load(Relaxed)),
            };
            // The part that the thread is in now. The thread may change it meanwhile; then it
            // counts a part too much or too little, once.
            let open = now().saturating_sub(self.since.load(Relaxed));
            times.nanoseconds[self.part.load(Relaxed) as usize] += open;
            times
        }
    }

    /// The clock of a thread, which is listed while the thread lives.
    struct Listed(Arc<ThreadClock>);

    impl Listed {
        fn new() -> Listed {
            let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
            let clock = Arc::new(ThreadClock {
                thread,
                number: NUMBER.fetch_add(1, Relaxed),
                part: AtomicU64::new(ScopePart::Outside as u64),
                since: AtomicU64::new(now()),
                nanoseconds: [const { AtomicU64::new(0) }; ScopePart::COUNT],
                entries: [const { AtomicU64::new(0) }; ScopePart::COUNT],
            });
            THREADS.lock().push(clock.clone());
            Listed(clock)
        }
    }

    impl Drop for Listed {
        fn drop(&mut self) {
            THREADS.lock().retain(|clock| clock.number != self.0.number);
        }
    }

    thread_local! {
        static MINE: Listed = Listed::new();
    }

    /// The calling thread enters a part.
    #[inline]
    pub fn scope(part: ScopePart) -> Scope {
        let enter = |mine: &Listed| {
            let entries = &mine.0.entries[part as usize];
            entries.store(entries.load(Relaxed) + 1, Relaxed);
            mine.0.enter(part)
        };
        // A thread that ends has no clock left.
        let outer = MINE.try_with(enter).unwrap_or(ScopePart::Outside);
        Scope { outer, _thread: PhantomData }
    }

    impl Drop for Scope {
        #[inline]
        fn drop(&mut self) {
            let leave = |mine: &Listed| mine.0.enter(self.outer);
            _ = MINE.try_with(leave);
        }
    }

    /// The times of all threads that live and have entered a part.
    pub fn scope_times() -> Vec<ScopeTimes> {
        THREADS.lock().iter().map(|clock| clock.times()).collect()
    }
}
#[cfg(feature = "scopes")]
pub use on::{scope, scope_times};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_in_the_order_of_their_list_and_have_different_names() {
        for (at, part) in ScopePart::ALL.into_iter().enumerate() {
            assert_eq!(part as usize, at);
            let same = ScopePart::ALL.iter().filter(|other| other.title() == part.title());
            assert_eq!(same.count(), 1, "{part:?}");
        }
    }

    #[test]
    #[cfg(not(feature = "scopes"))]
    fn a_build_without_the_feature_has_empty_scopes() {
        assert_eq!(size_of::<Scope>(), 0);
        let _scope = scope(ScopePart::Descent);
        assert!(scope_times().is_empty() && !HAS_SCOPES);
    }

    #[test]
    #[cfg(feature = "scopes")]
    fn times_are_exclusive_and_add_up_to_the_life_of_the_thread() {
        use std::time::{Duration, Instant};
        let work = || {
            let begun = Instant::now();
            let outer = scope(ScopePart::Records);
            std::thread::sleep(Duration::from_millis(20));
            {
                let _inner = scope(ScopePart::PageWait);
                std::thread::sleep(Duration::from_millis(40));
            }
            std::thread::sleep(Duration::from_millis(20));
            drop(outer);
            let times = scope_times();
            let mine = times.into_iter().find(|times| times.thread == "scoped").expect("listed");
            (mine, begun.elapsed())
        };
        let thread = std::thread::Builder::new().name("scoped".to_owned()).spawn(work);
        let (mine, life) = thread.expect("a thread").join().expect("no panic");
        let of = |part: ScopePart| Duration::from_nanos(mine.nanoseconds[part as usize]);
        assert!(of(ScopePart::PageWait) >= Duration::from_millis(40));
        assert!(of(ScopePart::Records) >= Duration::from_millis(40));
        let sum: u64 = mine.nanoseconds.iter().sum();
        assert!(Duration::from_nanos(sum) <= life);
        assert!(life - Duration::from_nanos(sum) < Duration::from_millis(10), "{life:?}, {sum}");
        assert_eq!(mine.entries[ScopePart::Records as usize], 1);
        assert!(scope_times().iter().all(|times| times.thread != "scoped"), "it has ended");
    }
}
