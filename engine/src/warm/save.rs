//! Writes the list of the pages that are in memory.

use super::list::{CLASSES, PageList, WARM_FILE};
use crate::{core::Core, store::CATALOG};
use std::{collections::BTreeMap, io, io::Write, sync::atomic::Ordering, time::Duration};
use wattle_buffer::{Resident, io::Directory};

/// The file before it is renamed.
const NEW_FILE: &str = "warm.new";
/// With fewer pages in memory there is nothing to win.
const LEAST_PAGES: usize = 64;
/// A store that was only read gets a new list when its operations have read this part of the old
/// one in other pages, 1 of 8.
const NEWS: u64 = 8;
/// A pool with fewer frames than this part of the pages of the old list, 3 of 4, is not the one that
/// the list was made for: such a run is mostly a visit, to load or to look at something.
const PART: (u64, u64) = (3, 4);
/// After this time a run is no visit: the store has a smaller pool from now on.
const VISIT: Duration = Duration::from_secs(3600);

/// Replaces the list of the store, unless the pages in memory say less than the old one: it was not
/// read to its end, or the pool is much smaller than it and not used for long, or nothing was
/// `changed` and few other pages were read since. A failure is only reported.
pub(crate) fn save(core: &Core, changed: bool) {
    let (warm, Some(directory)) = (&core.warm, core.file.directory()) else { return };
    if !warm.is_on || !warm.is_over() {
        return;
    }
    let (listed, read) = warm.progress();
    let others = core.pool.counters().pages_read.saturating_sub(read);
    if !changed && others < (listed / NEWS).max(LEAST_PAGES as u64) {
        return;
    }
    let on_file = warm.on_file.load(Ordering::Relaxed);
    if is_visit(core.pool.frames() as u64, on_file, warm.opened.elapsed()) {
        return;
    }
    let list = resident(core);
    let pages = list.pages();
    if pages < LEAST_PAGES {
        return;
    }
    let store_id = core.checkpoints.block().store_id;
    // Nothing of it fits.
    let Some(bytes) = list.encode(store_id) else { return };
    match replace(&directory, &bytes) {
        Ok(()) => warm.on_file.store(pages as u64, Ordering::Relaxed),
        Err(error) => {
            let path = directory.path_of(WARM_FILE);
            tracing::info!(path = %path.display(), %error, "the list of pages was not written");
            // It may take room that others need.
            let _absent = directory.remove(NEW_FILE);
        }
    }
}

/// Whether a pool of so many frames, open for this time, has nothing to add to a list of so many
/// pages.
fn is_visit(frames: u64, listed: u64, open: Duration) -> bool {
    frames < listed / PART.1 * PART.0 && open < VISIT
}

fn replace(directory: &Directory, bytes: &[u8]) -> io::Result<()> {
    let mut file = directory.create_file_anew(NEW_FILE)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    directory.rename(NEW_FILE, WARM_FILE)
}

/// The pages in memory, with their classes.
fn resident(core: &Core) -> PageList {
    let in_trees = |page: &Resident| page.tree != CATALOG;
    let mut pages: Vec<Resident> = core.pool.resident().filter(in_trees).collect();
    let mut values: Vec<f32> =
        pages.iter().filter(|page| !page.is_parent).map(|page| page.value).collect();
    values.sort_unstable_by(|a, b| b.total_cmp(a));
    // The lowest values of the classes but the last one.
    let quarter = values.len().div_ceil(CLASSES).max(1);
    let least: Vec<f32> =
        values.chunks(quarter).take(CLASSES - 1).map(|part| part[part.len() - 1]).collect();
    pages.sort_unstable_by_key(|page| (page.tree, page.page));
    let mut trees: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for page in pages {
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
    PageList { trees }
}

#[cfg(test)]
mod tests {
    use super::{VISIT, is_visit};
    use std::time::Duration;

    #[test]
    fn a_much_smaller_pool_keeps_the_list_for_an_hour() {
        let soon = Duration::from_secs(1);
        assert!(is_visit(64 << 10, 8 << 20, soon) && is_visit(74, 100, soon));
        assert!(!is_visit(64 << 10, 8 << 20, VISIT));
        assert!(!is_visit(8 << 20, 8 << 20, soon) && !is_visit(75, 100, soon));
        assert!(!is_visit(64, 0, soon), "there is no list");
    }
}
