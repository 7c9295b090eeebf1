//! Writes the list of the pages that are in memory.

use super::{
    list::{CLASSES, PageList},
    state::WarmStart,
};
use crate::{
    core::Core,
    store::{CATALOG, NEW_WARM_FILE, WARM_FILE},
};
use std::{
    collections::BTreeMap,
    io,
    io::Write,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};
use wattle_buffer::{Resident, io::Directory};

/// With fewer pages in memory there is nothing to win.
const LEAST_PAGES: usize = 64;
/// A store that was only read gets a new list when its operations have read this part of the old
/// one in other pages, 1 of 8.
const NEWS: u64 = 8;
/// A pool with fewer frames than this part of the pages of the old list, 3 of 4, is not the one
/// that the list was made for: such a run is mostly a visit, to load or to look at something.
const PART: (u64, u64) = (3, 4);
/// After this time a run is no visit: the store has a smaller pool from now on, or its operations
/// have filled the pool instead of a warm start that failed.
const VISIT: Duration = Duration::from_secs(3600);
/// While the store is open a list is written at most this often: for a pool of 64 GiB it takes
/// seconds, most of a GiB of memory, and 64 MiB of writes, and what is worth being in memory
/// changes slowly.
const INTERVAL: Duration = Duration::from_secs(300);
/// Frames between two looks whether to end.
const LOOK: usize = 64 << 10;

/// As [`save`], after a checkpoint: unless that was done a short time ago, and until `is_stopped`.
pub(crate) fn save_meanwhile(core: &Core, is_stopped: &dyn Fn() -> bool) {
    let is_due = |looked: Instant| looked.elapsed() >= INTERVAL;
    if core.warm.is_on && is_due(*core.warm.looked.lock()) && !is_stopped() {
        save_until(core, true, is_stopped);
        *core.warm.looked.lock() = Instant::now();
    }
}

/// Replaces the list of the store, unless the pages in memory say less than the old one: it was not
/// read to its end, or its reads failed or the pool is much smaller than it, within the first hour,
/// or nothing was `changed` and few other pages were read since. A failure is only reported.
pub(crate) fn save(core: &Core, changed: bool) {
    save_until(core, changed, &|| false);
}

fn save_until(core: &Core, changed: bool, is_stopped: &dyn Fn() -> bool) {
    let (warm, Some(directory)) = (&core.warm, core.file.directory()) else { return };
    if !warm.is_on || !warm.is_over() {
        return;
    }
    let (listed, read) = warm.progress();
    let others = core.pool.counters().pages_read.saturating_sub(read);
    if !changed && others < (listed / NEWS).max(LEAST_PAGES as u64) {
        return;
    }
    if says_less(warm, core.pool.frames() as u64, warm.opened.elapsed()) {
        return;
    }
    let Some(list) = resident(core, is_stopped) else { return };
    let pages = list.pages();
    if pages < LEAST_PAGES {
        return;
    }
    let store_id = core.checkpoints.block().store_id;
    // None: nothing of it fits, or the end has come.
    let Some(bytes) = list.encode(store_id, is_stopped) else { return };
    if is_stopped() {
        return;
    }
    match replace(&directory, &bytes) {
        Ok(()) => warm.on_file.store(pages as u64, Ordering::Relaxed),
        Err(error) => {
            let path = directory.path_of(WARM_FILE);
            tracing::info!(path = %path.display(), %error, "the list of pages was not written");
            // It may take room that others need.
            let _absent = directory.remove(NEW_WARM_FILE);
        }
    }
}

/// Whether the pages in a pool of so many frames, open for this time, say less than the list in the
/// file. After reads that failed this is so until the operations have had the time to fill it.
fn says_less(warm: &WarmStart, frames: u64, open: Duration) -> bool {
    let on_file = warm.on_file.load(Ordering::Relaxed);
    is_visit(frames, on_file, open) || (warm.is_given_up() && open < VISIT)
}

/// Whether a pool of so many frames, open for this time, has nothing to add to a list of so many
/// pages.
fn is_visit(frames: u64, listed: u64, open: Duration) -> bool {
    frames < listed / PART.1 * PART.0 && open < VISIT
}

fn replace(directory: &Directory, bytes: &[u8]) -> io::Result<()> {
    let mut file = directory.create_file_anew(NEW_WARM_FILE)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    directory.rename(NEW_WARM_FILE, WARM_FILE)
}

/// The pages in memory, with their classes. None: `is_stopped`.
fn resident(core: &Core, is_stopped: &dyn Fn() -> bool) -> Option<PageList> {
    let mut pages: Vec<Resident> = Vec::new();
    for (at, page) in core.pool.resident().enumerate() {
        if at % LOOK == 0 && is_stopped() {
            return None;
        }
        if page.tree != CATALOG {
            pages.push(page);
        }
    }
    let values = pages.iter().filter(|page| !page.is_parent).map(|page| page.value).collect();
    let least = least_values(values);
    if is_stopped() {
        return None;
    }
    pages.sort_unstable_by_key(|page| (page.tree, page.page));
    let mut trees: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (at, page) in pages.into_iter().enumerate() {
        if at % LOOK == 0 && is_stopped() {
            return None;
        }
        let list = trees.entry(page.tree).or_default();
        // A page that moved meanwhile may be seen twice.
        if list.last().is_some_and(|(last, _)| *last == page.page) {
            continue;
        }
        let class = match page.is_parent {
            true => 0,
            false => least.iter().filter(|least| page.value < **least).count(),
        };
        list.push((page.page, class as u8));
    }
    Some(PageList { trees })
}

/// The lowest values of the classes but the last one.
fn least_values(mut values: Vec<f32>) -> Vec<f32> {
    let quarter = values.len().div_ceil(CLASSES).max(1);
    let ends = (1..CLASSES).map(|class| class * quarter - 1).filter(|end| *end < values.len());
    let ends: Vec<usize> = ends.collect();
    let least = |end: usize| *values.select_nth_unstable_by(end, |a, b| b.total_cmp(a)).1;
    ends.into_iter().map(least).collect()
}

#[cfg(test)]
mod tests {
    use super::{VISIT, WarmStart, is_visit, least_values, says_less};
    use std::{sync::atomic::Ordering, time::Duration};

    #[test]
    fn classes_are_quarters_by_value() {
        let values = |count: u32| (0..count).map(|i| (i * 7 % count) as f32).collect();
        assert_eq!(least_values(values(100)), [75.0, 50.0, 25.0]);
        // Quarters of two; the last one has one.
        assert_eq!(least_values(values(5)), [3.0, 1.0]);
        assert_eq!(least_values(values(1)), [0.0]);
        assert!(least_values(Vec::new()).is_empty());
    }

    #[test]
    fn a_much_smaller_pool_keeps_the_list_for_an_hour() {
        let soon = Duration::from_secs(1);
        assert!(is_visit(64 << 10, 8 << 20, soon) && is_visit(74, 100, soon));
        assert!(!is_visit(64 << 10, 8 << 20, VISIT));
        assert!(!is_visit(8 << 20, 8 << 20, soon) && !is_visit(75, 100, soon));
        assert!(!is_visit(64, 0, soon), "there is no list");
    }

    #[test]
    fn reads_that_failed_keep_the_list_for_an_hour() {
        let (warm, soon) = (WarmStart::new(true), Duration::from_secs(1));
        warm.on_file.store(100, Ordering::Relaxed);
        assert!(!says_less(&warm, 100, soon) && says_less(&warm, 74, soon));
        warm.failed.store(1000, Ordering::Relaxed);
        assert!(says_less(&warm, 100, soon) && !says_less(&warm, 100, VISIT));
    }
}
