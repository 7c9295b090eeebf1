//! Dropping the versions of a chain that no snapshot needs.

use super::{
    bytes::BeforeKind,
    chain::{Chain, Long, PRUNE_ABOVE},
    clock::Active,
    patch::{apply, join_patches},
    spare::Spare,
    version::Version,
};

/// The versions that may be dropped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule<'a> {
    /// Those before commits up to this time.
    pub horizon: u64,
    /// Those that no snapshot needs, by this list of open snapshots.
    pub active: &'a Active,
}

impl Version {
    /// Merges two adjacent changes: the version becomes the change from before `below` to after
    /// itself.
    fn absorb(&mut self, below: &mut Version, key_len: u16, spare: &mut Spare) {
        match (self.bytes.kind(), below.bytes.kind()) {
            (_, BeforeKind::Absent | BeforeKind::Plain | BeforeKind::Special) => {
                std::mem::swap(&mut self.bytes, &mut below.bytes);
            }
            (BeforeKind::Patch, BeforeKind::Patch) => {
                let joined = join_patches(self.payload(key_len), below.payload(key_len));
                if joined == below.payload(key_len) {
                    // The older change covers the newer one: the common case.
                    return std::mem::swap(&mut self.bytes, &mut below.bytes);
                }
                let key = below.bytes.as_slice()[..usize::from(key_len)].to_vec();
                spare.join(&mut self.bytes, BeforeKind::Patch, &key, &[], &joined);
            }
            (_, BeforeKind::Patch) => {
                // It fits, unless a change in between left no version; then no snapshot may see the
                // record.
                let value = &mut self.bytes.as_mut_slice()[usize::from(key_len)..];
                _ = apply(below.payload(key_len), value);
            }
        }
    }
}

impl Chain {
    /// Drops the versions that no snapshot needs; the newest one is needed. Gives how many.
    ///
    /// A version made at `ts1`, whose successor was made at `ts2`, is seen by the snapshots from
    /// `ts1` to below `ts2`, and by no other once `ts2` is committed. If there are none, and `ts2
    /// <= as_of`, so that none can come, the two changes become one: made at `ts2`, with the value
    /// before `ts1`. Snapshots from `ts2` on end their walk there as before; those below `ts1` pass
    /// it and find the same value one step earlier.
    pub fn prune(&mut self, rule: Rule<'_>, spare: &mut Spare) -> usize {
        let Chain { newest, long: Some(long), key_len, .. } = self else { return 0 };
        let Long { older, .. } = &mut **long;
        if older.is_empty() {
            return 0;
        }
        // 1. Drop the versions at the old end, with the values before them.
        let cut = older.partition_point(|version| version.old_ts() <= rule.horizon);
        // 2. From the newest on, move those that stay to the end of the list, in their order.
        let mut kept = older.len();
        for at in (cut..older.len()).rev() {
            let (low, high) = older.split_at_mut(kept);
            let above = high.first_mut().unwrap_or(newest);
            let below = &mut low[at];
            let unneeded = above.writer.committed_ts().is_some_and(|ts| {
                ts <= rule.active.as_of && !rule.active.any_in(below.old_ts(), ts)
            });
            if unneeded {
                above.absorb(below, *key_len, spare);
            } else {
                kept -= 1;
                older.swap(at, kept);
            }
        }
        // 3. Drop the others, which are at the front now.
        for version in older.drain(..kept) {
            spare.give_version(version);
        }
        debug_assert!(older.is_sorted_by_key(Version::old_ts), "commit times fall with age");
        let len = 1 + older.len();
        if older.capacity() > 4 * PRUNE_ABOVE.max(len) {
            older.shrink_to(len);
        }
        long.older_bytes = long.sum_older() as u32;
        long.prune_above = PRUNE_ABOVE.max(2 * len) as u32;
        kept
    }
}
