//! Serializable isolation: at commit, everything that the transaction read must be unchanged.
//!
//! Validation is serial (Kung and Robinson, "On Optimistic Methods for Concurrency Control", TODS
//! 1981): one transaction at a time checks and commits, so a transaction that passes could have run
//! as a whole at that time. Records are looked up again, and ranges are scanned again, which also
//! finds phantoms (Larson et al., VLDB 2011). The check compares the writer of a record, not its
//! value: a record that was changed and changed back counts as changed.
//!
//! A validation never waits for storage, because other validations wait for it, and a transaction
//! may have scanned more pages than the pool holds. When a page of a range is not resident,
//! validation instead checks all changes since the snapshot: none of them may lie in the range. The
//! version index has all of these changes as long as the snapshot is open.
//!
//! A transaction without changes needs no validation: it could have run at its snapshot.

use super::{Txn, TxnSystem, read_set::KeyRange, view::check_open};
use crate::{
    catalog::OpenTree,
    limits::limit,
    mvcc::{Changed, TxnState},
};
use std::ops::Bound;
use wattle_btree::{Cursor, Direction, Seen, Step, Stop, View};
use wattle_buffer::{Error, FrameHeader, TreeId};

/// How often the scan of one range restarts at a page that is being changed.
const RESTARTS: usize = limit(32, 2);

/// Checks everything once.
///
/// # Errors
/// [`Error::Conflict`] when something changed; a restart, after which everything is checked again.
/// Nothing is read from storage: a transaction may have read more than the pool holds.
pub(crate) fn validate(system: &TxnSystem, txn: &Txn) -> Step<()> {
    let (Some(reads), Some(me)) = (&txn.reads, &txn.state) else { return Ok(()) };
    let reads = reads.borrow();
    for name in &reads.names {
        system.names.check(name, txn.snapshot).map_err(Stop::Error)?;
    }
    let ranges = reads.ranges.iter().map(|range| &range.tree);
    for tree in reads.points.iter().map(|(tree, _)| tree).chain(ranges) {
        // The reads of a tree whose creation was rolled back do not count.
        let Some(time) = tree.closed.dropped_at() else { continue };
        return Err(Stop::Error(if time > txn.snapshot {
            Error::Conflict(format!(
                "it has dropped the tree {:?}, which this one read",
                tree.name()
            ))
        } else {
            // A repetition with the same handle would find no other outcome.
            Error::NoSuchTree(tree.name().to_string())
        }));
    }
    for (tree, key) in &reads.points {
        let changed = system.versions.changed_since(tree.tree.id(), key, me, txn.snapshot);
        decide(changed, tree, txn.snapshot)?;
    }
    for (at, range) in reads.ranges.iter().enumerate() {
        if !scan(system, range, me, txn.snapshot)? {
            look_for_changes(system, &reads.ranges[at..], me, txn.snapshot)?;
            break;
        }
    }
    check_open(system, txn)
}

/// Checks a range by scanning it. False: that would have to wait.
fn scan(system: &TxnSystem, range: &KeyRange, me: &TxnState, snapshot: u64) -> Step<bool> {
    let KeyRange { tree, low, high } = range;
    let mut view = Unchanged { system, tree, me, snapshot };
    let mut cursor = Cursor::new(low.clone(), high.clone(), Direction::Forward);
    let mut restarts = 0;
    while !cursor.is_at_end() {
        match cursor.load_step(&tree.tree, &mut view) {
            Ok(_) => {}
            Err(Stop::Restart) if restarts < RESTARTS => restarts += 1,
            Err(Stop::Error(error)) => return Err(Stop::Error(error)),
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// Checks ranges against all changes since the snapshot instead of scanning them. The version index
/// has each of these, except in trees that a transaction owned ([`crate::catalog::Closed`]).
#[cold]
fn look_for_changes(
    system: &TxnSystem,
    ranges: &[KeyRange],
    me: &TxnState,
    snapshot: u64,
) -> Step<()> {
    let spans =
        Spans::of(ranges.iter().map(|range| (range.tree.tree.id(), span(&range.low, &range.high))));
    let read = |tree: TreeId, key: &[u8]| spans.contain(tree, key);
    let changed = system.versions.any_changed_since(read, me, snapshot);
    ranges.iter().try_for_each(|range| decide(changed, &range.tree, snapshot))
}

/// The verdict on a read of a tree.
fn decide(changed: Changed, tree: &OpenTree, snapshot: u64) -> Step<()> {
    match changed {
        // An owner of the tree may have changed it without versions.
        Changed::Unchanged if tree.closed.hidden_since(snapshot).is_none() => Ok(()),
        Changed::Undecided => Err(Stop::Restart),
        Changed::Unchanged | Changed::Changed => {
            let what = "it changed what this transaction read, and committed first";
            Err(Stop::Error(Error::Conflict(what.to_string())))
        }
    }
}

/// A span of keys: from the first key, included, to the second one, excluded; without a second one
/// to the end of the tree.
type Span = (Vec<u8>, Option<Vec<u8>>);

/// The keys of ranges: for each tree disjoint spans, ascending.
struct Spans(Vec<(TreeId, Vec<Span>)>);

impl Spans {
    fn of(all: impl Iterator<Item = (TreeId, Span)>) -> Spans {
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by(|one, other| (one.0.0, &one.1.0).cmp(&(other.0.0, &other.1.0)));
        let mut trees: Vec<(TreeId, Vec<Span>)> = Vec::new();
        for (tree, span) in all {
            if trees.last().is_none_or(|(last, _)| *last != tree) {
                trees.push((tree, Vec::new()));
            }
            let spans = &mut trees.last_mut().expect("there is one").1;
            match spans.last_mut() {
                Some((_, end)) if end.as_ref().is_none_or(|end| span.0 <= *end) => {
                    let further =
                        end.is_some() && span.1.as_ref().is_none_or(|new| Some(new) > end.as_ref());
                    if further {
                        *end = span.1;
                    }
                }
                _ => spans.push(span),
            }
        }
        Spans(trees)
    }

    fn contain(&self, tree: TreeId, key: &[u8]) -> bool {
        let Some((_, spans)) = self.0.iter().find(|(one, _)| *one == tree) else { return false };
        let begun = spans.partition_point(|(low, _)| low.as_slice() <= key);
        let last = begun.checked_sub(1).map(|at| &spans[at]);
        last.is_some_and(|(_, end)| end.as_deref().is_none_or(|end| key < end))
    }
}

/// The span between two bounds. The next key after a key is that key with a zero byte appended.
fn span(low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>) -> Span {
    let next = |key: &[u8]| [key, &[0]].concat();
    let low = match low {
        Bound::Included(key) => key.clone(),
        Bound::Excluded(key) => next(key),
        Bound::Unbounded => Vec::new(),
    };
    let end = match high {
        Bound::Included(key) => Some(next(key)),
        Bound::Excluded(key) => Some(key.clone()),
        Bound::Unbounded => None,
    };
    (low, end)
}

/// A view that fails at records that another transaction changed after the snapshot.
struct Unchanged<'v> {
    system: &'v TxnSystem,
    tree: &'v OpenTree,
    me: &'v TxnState,
    snapshot: u64,
}

impl View for Unchanged<'_> {
    fn sees_all(&self, header: &FrameHeader) -> bool {
        header.version_hint() <= self.snapshot
    }

    fn look(&mut self, key: &[u8], _: &mut Vec<u8>, _: usize) -> Result<Seen, Stop> {
        let tree = self.tree.tree.id();
        let changed = self.system.versions.changed_since(tree, key, self.me, self.snapshot);
        decide(changed, self.tree, self.snapshot).map(|()| Seen::Page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use std::ops::RangeBounds;

    fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
        let key = || proptest::collection::vec(0..3u8, 0..4);
        prop_oneof![
            4 => key().prop_map(Bound::Included),
            4 => key().prop_map(Bound::Excluded),
            1 => Just(Bound::Unbounded),
        ]
    }

    proptest! {
        #[test]
        fn spans_have_the_keys_of_all_ranges_and_no_others(
            ranges in proptest::collection::vec((0..3u32, bound(), bound()), 0..8),
            keys in proptest::collection::vec((0..3u32, vec(0..3u8, 0..5)), 30),
        ) {
            let spans = Spans::of(
                ranges.iter().map(|(tree, low, high)| (TreeId(*tree), span(low, high))),
            );
            for (tree, key) in keys {
                let expected = ranges.iter().any(|(of, low, high)| {
                    *of == tree && (low.as_ref(), high.as_ref()).contains(&key)
                });
                prop_assert_eq!(spans.contain(TreeId(tree), &key), expected, "{:?}", key);
            }
        }
    }
}
