//! [`UnloggedPages`]: bulk loads, and large values past the log, exclude backups and compactions.
//!
//! They write pages without logging them; a backup or a compaction reads pages by their ids. Any
//! number of bulk loads run at once. The entries of a bulk load may load another tree while a
//! backup waits for the first load, so a new load does not queue after backups that wait.
//!
//! A large value never waits: beside a backup or a compaction, also one that waits, its bytes go
//! through the log. So writers that follow each other do not keep a backup from beginning.

use crate::options::Options;
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};
use wattle_buffer::PAGE_SIZE;

/// No shorter value is written directly.
const LEAST: u64 = 4 << 10;

/// Which values go to the data file directly.
#[derive(Default)]
pub(crate) struct DirectValues {
    /// Those of so many bytes or more.
    pub least: u64,
    /// Pages that were freed since the last checkpoint, from which on there should be another one:
    /// until then they are no use for these values. It is as many bytes of pages as would be in the
    /// log otherwise.
    pub freed_pages: usize,
}

impl DirectValues {
    fn new(options: &Options) -> DirectValues {
        let least = match options.direct_value_bytes {
            0 => u64::MAX,
            bytes => bytes.max(LEAST),
        };
        let freed_pages = options.log_limit() as usize / 2 / PAGE_SIZE;
        DirectValues { least, freed_pages }
    }
}

#[derive(Default)]
struct Holders {
    loads: usize,
    reader: bool,
    /// Backups and compactions that wait.
    waiting: usize,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct UnloggedPages {
    pub direct: DirectValues,
    holders: Mutex<Holders>,
    ended: Condvar,
}

impl UnloggedPages {
    pub fn new(options: &Options) -> UnloggedPages {
        UnloggedPages { direct: DirectValues::new(options), ..UnloggedPages::default() }
    }

    /// A bulk load begins, if no backup or compaction runs or if it ends within `limit`.
    pub fn load(&self, limit: Duration) -> Option<BulkLoad<'_>> {
        self.enter(limit, |holders| {
            holders.loads += usize::from(!holders.reader);
            !holders.reader
        })
        .then(|| BulkLoad(self))
    }

    /// A backup or a compaction begins, if all others and all bulk loads end within `limit`.
    pub fn read(&self, limit: Duration) -> Option<NoBulkLoad<'_>> {
        self.holders.lock().waiting += 1;
        let entered = self.enter(limit, |holders| {
            let free = !holders.reader && holders.loads == 0;
            holders.reader |= free;
            free
        });
        self.holders.lock().waiting -= 1;
        entered.then(|| NoBulkLoad(self))
    }

    /// Pages of a large value begin to be written, unless a backup or a compaction runs or waits.
    pub fn write(&self) -> Option<BulkLoad<'_>> {
        let mut holders = self.holders.lock();
        if holders.reader || holders.waiting > 0 {
            return None;
        }
        holders.loads += 1;
        Some(BulkLoad(self))
    }

    fn enter(&self, limit: Duration, mut try_enter: impl FnMut(&mut Holders) -> bool) -> bool {
        let until = Instant::now().checked_add(limit);
        let mut holders = self.holders.lock();
        while !try_enter(&mut holders) {
            let late = match until {
                Some(until) => self.ended.wait_until(&mut holders, until).timed_out(),
                None => self.ended.wait_for(&mut holders, limit).timed_out(),
            };
            if late {
                return try_enter(&mut holders);
            }
        }
        true
    }

    fn leave(&self, change: impl FnOnce(&mut Holders)) {
        change(&mut self.holders.lock());
        self.ended.notify_all();
    }
}

/// A bulk load runs, or a large value is written, until this is dropped.
pub(crate) struct BulkLoad<'a>(&'a UnloggedPages);

impl Drop for BulkLoad<'_> {
    fn drop(&mut self) {
        self.0.leave(|holders| holders.loads -= 1);
    }
}

/// No bulk load runs until this is dropped, nor another backup or compaction.
pub(crate) struct NoBulkLoad<'a>(&'a UnloggedPages);

impl Drop for NoBulkLoad<'_> {
    fn drop(&mut self) {
        self.0.leave(|holders| holders.reader = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn loads_share_and_a_reader_is_alone() {
        let pages = UnloggedPages::default();
        let loads = [pages.load(NOW), pages.load(NOW)];
        assert!(loads.iter().all(Option::is_some));
        assert!(pages.read(NOW).is_none());
        drop(loads);
        let reader = pages.read(NOW);
        assert!(reader.is_some() && pages.read(NOW).is_none() && pages.load(NOW).is_none());
        drop(reader);
        assert!(pages.load(NOW).is_some());
        assert!(pages.read(NOW).is_some(), "the load above has ended");
    }

    #[test]
    fn a_large_value_gives_way_to_a_reader_that_waits() {
        let pages = UnloggedPages::default();
        let first = pages.write();
        assert!(first.is_some() && pages.write().is_some(), "several at once");
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| pages.read(Duration::MAX).is_some());
            while pages.holders.lock().waiting == 0 {
                std::thread::yield_now();
            }
            assert!(pages.write().is_none(), "the reader waits");
            drop(first);
            assert!(reader.join().expect("the reader ends"));
        });
        assert!(pages.write().is_some(), "the reader is over");
        let _reader = pages.read(NOW).expect("nothing is written");
        assert!(pages.write().is_none(), "a reader runs");
    }

    #[test]
    fn a_load_begins_while_a_reader_waits_and_the_reader_enters_after_both() {
        let pages = UnloggedPages::default();
        let first = pages.load(NOW);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| pages.read(Duration::MAX).is_some());
            std::thread::sleep(Duration::from_millis(20));
            let second = pages.load(NOW);
            assert!(second.is_some(), "the entries of a load wait for their own load");
            drop(first);
            assert!(!reader.is_finished());
            drop(second);
            assert!(reader.join().expect("the reader ends"));
        });
    }
}
