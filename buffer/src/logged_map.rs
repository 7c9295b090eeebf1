//! The pages in use according to the log, up to any durable epoch.

use crate::{
    ids::{Gsn, PageId},
    page_map::BITMAP_GROUP,
};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Words of the bitmap of a group.
const GROUP_WORDS: usize = (BITMAP_GROUP / 64) as usize;
const _: () = assert!(BITMAP_GROUP.is_multiple_of(64));

/// See the module documentation.
#[derive(Default)]
pub(crate) struct LoggedMap {
    /// Bit set: in use after the records applied so far.
    words: Vec<u64>,
    /// Records not yet applied, in log order for each page: epoch, first page, number of pages,
    /// whether they are in use.
    changes: VecDeque<(u64, u64, u64, bool)>,
    /// Pages that the log took out of a tree after the start point of recovery, and the epoch of
    /// that.
    recent: HashMap<PageId, u64>,
    /// Groups whose words changed since they were last taken.
    dirty: BTreeSet<u64>,
    /// At least the number of every record that freed a page; reused pages get higher numbers.
    freed: Gsn,
}

impl LoggedMap {
    /// A map without pending records and without changed groups.
    pub(crate) fn new(words: Vec<u64>) -> LoggedMap {
        LoggedMap { words, ..LoggedMap::default() }
    }

    /// Marks each group whose words differ from `stored` as changed: no stored bitmap has its
    /// records.
    pub(crate) fn compare_with(&mut self, stored: &[u64], capacity: u64) {
        for group in 0..capacity.div_ceil(BITMAP_GROUP) {
            let start = group as usize * GROUP_WORDS;
            let words = self.words.iter().skip(start).take(GROUP_WORDS);
            // The file is longer than the superblock says. Bitmap copies there may belong to an
            // older state of the store, but could be taken for valid ones.
            let is_unknown = start >= stored.len();
            let stored = stored.iter().skip(start).chain(std::iter::repeat(&0));
            if is_unknown || words.zip(stored).any(|(word, stored)| word != stored) {
                self.dirty.insert(group);
            }
        }
    }

    /// Notes a record of `epoch` that puts `count` pages, starting at `first`, into a tree or takes
    /// them out.
    pub(crate) fn log_change(&mut self, epoch: u64, first: PageId, count: u64, in_use: bool) {
        assert!(first.0.checked_add(count).is_some_and(|end| end <= PageId::MAX.0 + 1));
        self.changes.push_back((epoch, first.0, count, in_use));
        if !in_use {
            let pages = (first.0..first.0 + count).map(|page| (PageId(page), epoch));
            self.recent.extend(pages);
        }
    }

    pub(crate) fn is_recently_freed(&self, page: PageId) -> bool {
        self.recent.contains_key(&page)
    }

    pub(crate) fn recently_freed(&self) -> usize {
        self.recent.len()
    }

    pub(crate) fn forget_freed_before(&mut self, epoch: u64) {
        self.recent.retain(|_, freed| *freed >= epoch);
    }

    pub(crate) fn log_freed(&mut self, gsn: Gsn) {
        self.freed = self.freed.max(gsn);
    }

    pub(crate) fn freed_gsn(&self) -> Gsn {
        self.freed
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Takes bitmap and number of each group that changed since the last call.
    pub(crate) fn take_changed_groups(&mut self) -> Vec<(u64, Vec<u64>)> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.into_iter().map(|group| (group, self.group(group))).collect()
    }

    /// Marks these groups as changed.
    pub(crate) fn mark_changed(&mut self, groups: impl IntoIterator<Item = u64>) {
        self.dirty.extend(groups);
    }

    pub(crate) fn settle(&mut self, epoch: u64) {
        let LoggedMap { words, changes, dirty, .. } = self;
        changes.retain(|&(of, first, count, in_use)| {
            if of > epoch {
                return true;
            }
            for page in first..first + count {
                let at = page as usize / 64;
                if at >= words.len() {
                    words.resize(at + 1, 0);
                }
                let bit = 1 << (page % 64);
                words[at] = if in_use { words[at] | bit } else { words[at] & !bit };
                dirty.insert(page / BITMAP_GROUP);
            }
            false
        });
    }

    fn group(&self, group: u64) -> Vec<u64> {
        let start = group as usize * GROUP_WORDS;
        let mut words: Vec<u64> =
            self.words.iter().skip(start).take(GROUP_WORDS).copied().collect();
        words.resize(GROUP_WORDS, 0);
        words
    }
}
