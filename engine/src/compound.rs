//! Operations of blocking sessions and transactions that read records and then change them, and
//! those at the ends of a tree.

use crate::{
    key_interval::KeyInterval,
    op::{
        delete::{delete_range_auto, delete_range_in},
        ends::{end_auto, end_in, pop_auto, pop_in},
        extent::{RangeEstimate, approximate_range},
        update::{CompareFailed, Update, fetch_update_auto, fetch_update_in, swap_auto, swap_in},
    },
    session::{blocking::Session, resolve::now},
    transaction::Transaction,
    tree::Tree,
};
use wattle_btree::Direction;
#[cfg(doc)]
use wattle_buffer::Error;
use wattle_buffer::Result;

/// A key and its value.
type Record = (Vec<u8>, Vec<u8>);

impl Session {
    /// The record with the least key.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # let session = engine.session()?;
    /// session.put_many(&tree, &[("a", "1"), ("b", "2")])?;
    /// assert_eq!(session.first(&tree)?, Some((b"a".to_vec(), b"1".to_vec())));
    /// assert_eq!(session.last(&tree)?, Some((b"b".to_vec(), b"2".to_vec())));
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::range`] and reading the range.
    pub fn first(&self, tree: &Tree) -> Result<Option<Record>> {
        now(end_auto(self, tree, Direction::Forward))
    }

    /// The record with the greatest key.
    ///
    /// # Errors
    /// As [`Session::first`].
    pub fn last(&self, tree: &Tree) -> Result<Option<Record>> {
        now(end_auto(self, tree, Direction::Backward))
    }

    /// Removes the record with the least key, and gives it; `None`: the tree is empty. Several
    /// threads that take records from one tree get different ones.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # let session = engine.session()?;
    /// session.put_many(&tree, &[("job 1", "x"), ("job 2", "y")])?;
    /// assert_eq!(session.pop_first(&tree)?, Some((b"job 1".to_vec(), b"x".to_vec())));
    /// assert_eq!(session.pop_last(&tree)?, Some((b"job 2".to_vec(), b"y".to_vec())));
    /// assert_eq!(session.pop_first(&tree)?, None);
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::insert`], but [`Error::KeyExists`]; as [`Session::first`].
    /// [`Error::Conflict`] also when other threads take each record first for the stall timeout.
    pub fn pop_first(&self, tree: &Tree) -> Result<Option<Record>> {
        self.may_wait()?;
        let (popped, ticket) = now(pop_auto(self, tree, Direction::Forward))?;
        ticket.wait().map(|()| popped)
    }

    /// As [`Session::pop_first`], with the greatest key.
    ///
    /// # Errors
    /// As [`Session::pop_first`].
    pub fn pop_last(&self, tree: &Tree) -> Result<Option<Record>> {
        self.may_wait()?;
        let (popped, ticket) = now(pop_auto(self, tree, Direction::Backward))?;
        ticket.wait().map(|()| popped)
    }

    /// Removes all records of a range of keys, as one transaction: all of them, or none. Gives how
    /// many there were. The records of a leaf are removed together, which is faster than a scan
    /// with a [`Session::remove`] for each key. A record that another transaction adds meanwhile
    /// may stay; one that it changes is a conflict, after which the removal begins again. A removal
    /// of very many records locks the tree, as every transaction with very many changes does.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # let session = engine.session()?;
    /// session.put_many(&tree, &[("2024-12", ""), ("2025-01", ""), ("2025-02", "")])?;
    /// let snapshot = session.snapshot()?;
    /// assert_eq!(session.delete_range(&tree, .."2025-02")?, 2);
    /// assert_eq!(session.scan(&tree)?.count(), 1);
    /// assert_eq!(snapshot.scan(&tree)?.count(), 3);      // it sees them still
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::put_many`].
    pub fn delete_range(&self, tree: &Tree, range: impl KeyInterval) -> Result<u64> {
        self.may_wait()?;
        let (removed, ticket) = now(delete_range_auto(self, tree, range.key_bounds()))?;
        ticket.wait().map(|()| removed)
    }

    /// Removes all records of a tree, as one transaction; see [`Session::delete_range`].
    ///
    /// # Errors
    /// As [`Session::delete_range`].
    pub fn clear(&self, tree: &Tree) -> Result<u64> {
        self.delete_range(tree, ..)
    }

    /// Replaces the value of a key by `new` if it is `expected`. `None` means that there is no such
    /// key, before or afterwards: so this also inserts and removes. The inner error has the value
    /// that the key has.
    ///
    /// ```
    /// # use wattle::{CompareFailed, Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # let session = engine.session()?;
    /// let swapped = session.compare_and_swap(&tree, b"leader", None, Some(b"node 1"))?;
    /// assert_eq!(swapped, Ok(()));
    /// let swapped = session.compare_and_swap(&tree, b"leader", None, Some(b"node 2"))?;
    /// assert_eq!(swapped, Err(CompareFailed { current: Some(b"node 1".to_vec()) }));
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::insert`], but [`Error::KeyExists`].
    pub fn compare_and_swap(
        &self,
        tree: &Tree,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Result<(), CompareFailed>> {
        self.may_wait()?;
        let (swapped, ticket) = now(swap_auto(self, tree, key, expected, new))?;
        ticket.wait().map(|()| swapped)
    }

    /// Replaces the value of a key by what `update` makes of it, of any length; gives the value
    /// before. `None` means that there is no such key: so `update` may insert a record or remove
    /// it. After a conflict it runs again. [`Session::modify`] is faster where the length stays.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # let session = engine.session()?;
    /// for word in [&b"to"[..], b" be"] {
    ///     session.fetch_update(&tree, b"text", |text| {
    ///         Some([text.unwrap_or_default(), word].concat())
    ///     })?;
    /// }
    /// let before = session.fetch_update(&tree, b"text", |_| None)?;
    /// assert_eq!(before.as_deref(), Some(&b"to be"[..]));
    /// assert!(!session.contains(&tree, b"text")?);
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::insert`], but [`Error::KeyExists`].
    pub fn fetch_update(
        &self,
        tree: &Tree,
        key: &[u8],
        mut update: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        self.fetch_update_by(tree, key, &mut |value| Ok(update(value)))
    }

    /// As [`Session::fetch_update`]. With an error of `update` nothing is changed.
    pub(crate) fn fetch_update_by(
        &self,
        tree: &Tree,
        key: &[u8],
        update: &mut Update<'_>,
    ) -> Result<Option<Vec<u8>>> {
        self.may_wait()?;
        let (before, ticket) = now(fetch_update_auto(self, tree, key, update))?;
        ticket.wait().map(|()| before)
    }

    /// About how many records and bytes a range of keys has now, for a query planner or a progress
    /// bar. Reads inner nodes, which are mostly in memory, and no leaf; it looks at the leaves that
    /// are in memory where it comes by. It takes two to ten descents, whatever the range.
    ///
    /// The number of leaves is exact where the range lies under up to ten neighbours above the
    /// leaves that have one parent. Otherwise the numbers of children of some nodes stand for those
    /// of all, and it is off as far as they differ: rarely by more than a third. The records of a
    /// leaf are the mean of up to ten leaves of the range, where leaves met lately stand for those
    /// that are not in memory: off as far as the leaves differ, which is much where a part of the
    /// tree was just removed. Where the leaves of both ends are in memory, a range of up to two
    /// leaves is exact; an end that is not in memory is off by half a leaf at most. It is no read
    /// of a snapshot: it counts what other transactions have not committed, and records that were
    /// removed and not cleared away yet.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # let session = engine.session()?;
    /// session.bulk_load(&tree, (0..10_000_u32).map(|number| (number.to_be_bytes(), [1; 90])))?;
    /// let all = session.approximate_range(&tree, ..)?;
    /// assert!((900_000..1_400_000).contains(&all.bytes));
    /// let half = session.approximate_range(&tree, ..5_000_u32.to_be_bytes())?;
    /// assert!(half.records.is_some_and(|records| (4_000..6_000).contains(&records)));
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn approximate_range(&self, tree: &Tree, range: impl KeyInterval) -> Result<RangeEstimate> {
        now(approximate_range(self, tree, range.key_bounds()))
    }

    /// The values of several keys, in the order of `keys`. Copies them; [`Session::multi_get`] does
    /// not, and is otherwise the same.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # let session = engine.session()?;
    /// session.put(&tree, b"b", b"value")?;
    /// assert_eq!(session.get_many(&tree, &["a", "b"])?, [None, Some(b"value".to_vec())]);
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = vec![None; keys.len()];
        self.multi_get(tree, keys, |at, value| values[at] = value.map(<[u8]>::to_vec))?;
        Ok(values)
    }
}

impl Transaction<'_> {
    /// The record with the least key.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// let mut txn = engine.begin()?;
    /// txn.put(&tree, b"a", b"1")?;
    /// assert_eq!(txn.first(&tree)?, txn.last(&tree)?);
    /// assert_eq!(txn.pop_first(&tree)?, Some((b"a".to_vec(), b"1".to_vec())));
    /// assert_eq!(txn.pop_last(&tree)?, None);
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::range`] and reading the range.
    pub fn first(&self, tree: &Tree) -> Result<Option<Record>> {
        let (session, txn) = self.reading()?;
        now(end_in(session, txn, tree, Direction::Forward))
    }

    /// The record with the greatest key.
    ///
    /// # Errors
    /// As [`Transaction::first`].
    pub fn last(&self, tree: &Tree) -> Result<Option<Record>> {
        let (session, txn) = self.reading()?;
        now(end_in(session, txn, tree, Direction::Backward))
    }

    /// Removes the record with the least key, and gives it; `None`: the tree is empty.
    ///
    /// # Errors
    /// As [`Transaction::insert`] and [`Transaction::first`].
    pub fn pop_first(&mut self, tree: &Tree) -> Result<Option<Record>> {
        let (session, txn) = self.parts()?;
        now(pop_in(session, txn, tree, Direction::Forward))
    }

    /// As [`Transaction::pop_first`], with the greatest key.
    ///
    /// # Errors
    /// As [`Transaction::pop_first`].
    pub fn pop_last(&mut self, tree: &Tree) -> Result<Option<Record>> {
        let (session, txn) = self.parts()?;
        now(pop_in(session, txn, tree, Direction::Backward))
    }

    /// Removes all records of a range of keys that the transaction sees: all of them, or none.
    /// Gives how many there were. See [`Session::delete_range`].
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// let mut txn = engine.begin()?;
    /// txn.put_many(&tree, &[("a", ""), ("b", ""), ("c", "")])?;
    /// let savepoint = txn.savepoint();
    /// assert_eq!(txn.delete_range(&tree, "b"..)?, 2);
    /// assert_eq!(txn.clear(&tree)?, 1);
    /// txn.rollback_to(&savepoint)?;
    /// assert_eq!(txn.scan(&tree)?.count(), 3);
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::insert`]; [`Error::SnapshotTooOld`] when the snapshot was cancelled.
    pub fn delete_range(&mut self, tree: &Tree, range: impl KeyInterval) -> Result<u64> {
        let (session, txn) = self.parts()?;
        now(delete_range_in(session, txn, tree, range.key_bounds()))
    }

    /// Removes all records of a tree; see [`Transaction::delete_range`].
    ///
    /// # Errors
    /// As [`Transaction::delete_range`].
    pub fn clear(&mut self, tree: &Tree) -> Result<u64> {
        self.delete_range(tree, ..)
    }

    /// Replaces the value of a key by `new` if it is `expected`; see
    /// [`Session::compare_and_swap`]. A record that is as expected counts as changed, also if `new`
    /// is the same: no other transaction changes it before this one commits.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// let mut txn = engine.begin()?;
    /// assert!(txn.compare_and_swap(&tree, b"k", Some(b"v"), Some(b"w"))?.is_err());
    /// assert!(txn.compare_and_swap(&tree, b"k", None, Some(b"w"))?.is_ok());
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn compare_and_swap(
        &mut self,
        tree: &Tree,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Result<(), CompareFailed>> {
        let (session, txn) = self.parts()?;
        now(swap_in(session, txn, tree, key, expected, new))
    }

    /// Replaces the value of a key by what `update` makes of it; see [`Session::fetch_update`].
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// let mut txn = engine.begin()?;
    /// assert_eq!(txn.fetch_update(&tree, b"k", |_| Some(vec![7]))?, None);
    /// assert_eq!(txn.get(&tree, b"k")?, Some(vec![7]));
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn fetch_update(
        &mut self,
        tree: &Tree,
        key: &[u8],
        mut update: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        self.fetch_update_by(tree, key, &mut |value| Ok(update(value)))
    }

    /// As [`Transaction::fetch_update`]. With an error of `update` nothing is changed.
    pub(crate) fn fetch_update_by(
        &mut self,
        tree: &Tree,
        key: &[u8],
        update: &mut Update<'_>,
    ) -> Result<Option<Vec<u8>>> {
        let (session, txn) = self.parts()?;
        now(fetch_update_in(session, txn, tree, key, update))
    }

    /// About how many records and bytes a range of keys has now, whatever the snapshot; see
    /// [`Session::approximate_range`]. A serializable transaction does not depend on it.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// let mut txn = engine.begin()?;
    /// txn.put(&tree, b"a", b"")?;
    /// assert_eq!(txn.approximate_range(&tree, ..)?.records, Some(1));
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn approximate_range(&self, tree: &Tree, range: impl KeyInterval) -> Result<RangeEstimate> {
        let (session, txn) = self.reading()?;
        txn.check()?;
        now(approximate_range(session, tree, range.key_bounds()))
    }

    /// The values of several keys, in the order of `keys`; see [`Session::get_many`].
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = vec![None; keys.len()];
        self.multi_get(tree, keys, |at, value| values[at] = value.map(<[u8]>::to_vec))?;
        Ok(values)
    }
}
