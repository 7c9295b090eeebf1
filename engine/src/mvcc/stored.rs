//! The versions that the transactions of one session have stored and own. The session drops them
//! itself when no snapshot needs them, mostly at its next commit, while their memory is still in
//! the caches of its processor. Other threads look at these versions only in a sweep, now and then.
//! If there are too many, or when the session ends, it hands them over to the passes of the keeper.
//!
//! The horizon tells which versions no snapshot needs. A session that has enough versions to drop
//! looks for the oldest snapshot ([`super::Snapshots::try_oldest`]) and raises the horizon. While
//! an old snapshot, or a log that is not flushed, holds the horizon back, the session looks again
//! only when it has twice as many versions, or a thousand more. Then it also asks the keeper to
//! compare the memory of all versions with the limit.

use super::{change::OwnedVersion, versions::Versions};
use crate::limits::limit;
use std::{collections::VecDeque, slice};

/// As many versions are worth a look at all snapshots.
const WORTH_A_LOOK: usize = limit(32, 4);
/// After a look that was in vain, at most so many more versions are worth another one: their memory
/// counts.
const MANY: usize = limit(1 << 10, 16);
/// With more versions, the session hands them over: their memory would otherwise depend on this
/// session alone.
const MAX_RECORDS: usize = limit(1 << 15, 64);
/// Most versions of one transaction.
pub(crate) const MAX_OF_ONE: usize = limit(1 << 10, 12);

/// The owned versions of one session, see the module documentation.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Commit times, and the number of versions of each commit.
    commits: VecDeque<(u64, usize)>,
    /// Their versions, in the same order.
    records: VecDeque<OwnedVersion>,
    /// Number of versions at which the session looks at the snapshots again.
    look_at: usize,
}

impl Default for Stored {
    fn default() -> Stored {
        let (commits, records) = (VecDeque::new(), VecDeque::new());
        Stored { commits, records, look_at: WORTH_A_LOOK }
    }
}

impl Stored {
    /// Adds the versions that a commit at `time` stored.
    #[inline]
    pub fn add(&mut self, versions: &Versions, time: u64, kept: &[OwnedVersion]) {
        if self.records.len() + kept.len() > MAX_RECORDS {
            self.give_up(versions);
        }
        match kept {
            [] => return,
            // Most transactions change one record.
            [one] => self.records.push_back(*one),
            several => self.records.extend(several),
        }
        self.commits.push_back((time, kept.len()));
    }

    /// Hands all versions over to the passes of the keeper.
    #[cold]
    pub fn give_up(&mut self, versions: &Versions) {
        versions.hand_over(self.records.make_contiguous());
        *self = Stored::default();
    }

    /// Time of the oldest commit with owned versions.
    #[inline]
    pub fn oldest(&self) -> Option<u64> {
        self.commits.front().map(|(time, _)| *time)
    }

    /// True if there are enough versions to look at the snapshots.
    #[inline]
    pub fn is_worth_a_look(&self) -> bool {
        self.records.len() >= self.look_at
    }

    /// Drops the versions below the horizon, after a look at the snapshots. Gives true if there are
    /// many, and all of them are needed.
    pub fn drop_old(&mut self, versions: &Versions) -> bool {
        let (horizon, before) = (versions.horizon(), self.records.len());
        let mut due = 0;
        // Times are nearly in order; a commit out of order only waits a little longer.
        while let Some((_, count)) = self.commits.front().filter(|(time, _)| *time <= horizon) {
            due += count;
            self.commits.pop_front();
        }
        debug_assert!(due <= self.records.len(), "commits count versions that are not there");
        match due {
            0 => {}
            // Mostly those of the session's last commit, which changed one record.
            1 => self
                .records
                .pop_front()
                .iter()
                .for_each(|one| versions.drop_old(slice::from_ref(one))),
            _ => {
                versions.drop_old(&self.records.make_contiguous()[..due]);
                self.records.drain(..due);
            }
        }
        let left = self.records.len();
        let for_nothing = left == before;
        self.look_at = if for_nothing { left + left.min(MANY) } else { left + WORTH_A_LOOK };
        for_nothing && left >= MANY
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Clock, Snapshots},
        *,
    };
    use wattle_buffer::TreeId;

    const TREE: TreeId = TreeId(3);

    fn key(i: u64) -> [u8; 8] {
        i.to_be_bytes()
    }

    #[test]
    fn versions_go_with_the_horizon_and_not_before() {
        let (versions, mut stored) = (Versions::new(), Stored::default());
        for i in 0..100 {
            let hash = versions.push_done(TREE, &key(i), 10 + i, Some((b"before", false)));
            stored.add(&versions, 10 + i, &[hash]);
            assert_eq!(stored.is_worth_a_look(), i + 1 >= WORTH_A_LOOK as u64);
        }
        versions.raise_horizon(9);
        stored.drop_old(&versions);
        assert_eq!((versions.records(), stored.oldest()), (100, Some(10)));
        assert!(!stored.is_worth_a_look(), "the look was for nothing");
        versions.raise_horizon(49);
        stored.drop_old(&versions);
        assert_eq!((versions.records(), stored.oldest()), (60, Some(50)));
        assert!((0..100).all(|i| versions.contains(TREE, &key(i)) == (i >= 40)));
        versions.raise_horizon(1000);
        stored.drop_old(&versions);
        assert_eq!((versions.records(), versions.bytes(), stored.oldest()), (0, 0, None));
    }

    #[test]
    fn a_record_that_was_changed_again_keeps_what_somebody_needs() {
        let (versions, mut stored) = (Versions::new(), Stored::default());
        let first = versions.push_done(TREE, &key(1), 5, None);
        let again = versions.push_done(TREE, &key(1), 8, Some((b"five", false)));
        assert_eq!(first.hash, again.hash);
        stored.add(&versions, 5, &[first]);
        versions.raise_horizon(6);
        stored.drop_old(&versions);
        assert!(versions.is_needed(TREE, &key(1)), "snapshots 6 and 7 need the value of 5");
        versions.raise_horizon(8);
        assert!(!versions.is_needed(TREE, &key(1)) && versions.contains(TREE, &key(1)));
    }

    #[test]
    fn too_much_is_left_to_others() {
        let (versions, mut stored) = (Versions::new(), Stored::default());
        let store = |i: usize| versions.push_done(TREE, &key(i as u64), 1, None);
        let many: Vec<OwnedVersion> = (0..MAX_RECORDS).map(store).collect();
        stored.add(&versions, 1, &many);
        assert!(stored.is_worth_a_look());
        let hash = versions.push_done(TREE, &key(u64::MAX), 2, None);
        stored.add(&versions, 2, &[hash]);
        assert_eq!(stored.oldest(), Some(2));
        let (snapshots, clock) = (Snapshots::new(), Clock::new());
        (0..3).for_each(|_| _ = clock.draw());
        let active = snapshots.collect(&clock, &clock);
        assert_eq!(versions.collect(&active, 2, false), MAX_RECORDS, "all that was handed over");
        assert_eq!(versions.records(), 1);
        stored.drop_old(&versions);
        assert_eq!(versions.records(), 0);
    }

    #[test]
    fn a_sweep_finds_what_nobody_comes_back_for() {
        let versions = Versions::new();
        let count = 1000;
        for i in 0..count {
            versions.push_done(TREE, &key(i), 1 + i, Some((b"before", false)));
        }
        let (snapshots, clock) = (Snapshots::new(), Clock::new());
        (0..=count).for_each(|_| _ = clock.draw());
        let active = snapshots.collect(&clock, &clock);
        assert_eq!(versions.collect(&active, 300, false), 0, "they are kept");
        assert_eq!(versions.collect(&active, 300, true), 300);
        assert!((0..count).all(|i| versions.contains(TREE, &key(i)) == (i >= 300)));
        assert_eq!(versions.collect(&active, count, true), count as usize - 300);
        assert_eq!((versions.records(), versions.bytes()), (0, 0));
    }
}
