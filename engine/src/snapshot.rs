//! Snapshots that any number of threads read.

use crate::{
    engine::Engine,
    handle::Grip,
    key_interval::KeyInterval,
    lease::SharedSnapshot,
    op::{
        extent::{RangeEstimate, approximate_range},
        range::KeyBounds,
        read,
    },
    range::borrowed,
    session::{
        blocking::Session,
        resolve::{Environment, OwnsState, now},
    },
    snapshot_range::SnapshotRange,
    tree::Tree,
};
use std::sync::Arc;
use wattle_btree::prefix_range;
#[cfg(doc)]
use wattle_buffer::Error;
use wattle_buffer::Result;

/// A read-only view of the whole store at one moment. It is cheap to clone, `Send` and `Sync`:
/// threads may read from one at the same time. Its ranges are `Send` and own what they need, so
/// they may be kept, or sent to another thread.
///
/// ```
/// # use wattle::{Engine, IoKind, Options};
/// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
/// # let tree = engine.tree("t")?;
/// # let session = engine.session()?;
/// session.put(&tree, b"a", b"old")?;
/// let snapshot = engine.snapshot()?;
/// session.put(&tree, b"a", b"new")?;
/// let mut range = snapshot.scan(&tree)?;
/// let old = std::thread::spawn(move || range.next()).join().expect("no panic");
/// assert_eq!(old.expect("a record")?.1, b"old");
/// assert_eq!(snapshot.clone().get(&tree, b"a")?.as_deref(), Some(&b"old"[..]));
/// assert_eq!(snapshot.get_many(&tree, &["a", "b"])?, [Some(b"old".to_vec()), None]);
/// assert!(snapshot.contains(&tree, b"a")? && snapshot.first(&tree)? == snapshot.last(&tree)?);
/// assert_eq!(snapshot.prefix(&tree, b"a")?.count(), 1);
/// # Ok::<(), wattle::Error>(())
/// ```
///
/// It sees every commit that had returned when it was made, or only what was durable
/// ([`crate::Options::reads`]). While it lives, the engine keeps the versions that it needs, up to
/// [`crate::Options::version_bytes`]; above that it cancels the oldest snapshot, whose reads then
/// fail with [`Error::SnapshotTooOld`]. The engine cannot be closed while it lives. Its reads block
/// the calling thread, and each thread that reads at the same time takes the room of a session. The
/// snapshot keeps that room for its next reads, until a session finds no other.
#[derive(Clone)]
pub struct Snapshot {
    shared: Arc<SharedSnapshot>,
}

impl Engine {
    /// A snapshot of this moment; see [`Snapshot`].
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// let snapshot = engine.snapshot()?;
    /// engine.session()?.put(&tree, b"later", b"")?;
    /// assert!(!snapshot.contains(&tree, b"later")?);
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::open(self.grip(), 0)
    }
}

impl Session {
    /// A snapshot of this moment that includes all commits of this session; see [`Snapshot`].
    ///
    /// # Errors
    /// As [`Engine::snapshot`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::open(self.handle(), self.own())
    }
}

impl Snapshot {
    fn open(core: &Grip, own: u64) -> Result<Snapshot> {
        Ok(Snapshot { shared: SharedSnapshot::open(core, own)? })
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Failed I/O, corruption; [`Error::SnapshotTooOld`] when the snapshot was cancelled, or a
    /// transaction that is too large for versions has changed the tree since; [`Error::Limit`] when
    /// the pool is too small for another session; [`Error::ForeignTree`].
    pub fn get(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(tree, key, <[u8]>::to_vec)
    }

    /// Calls `read` with the value of a key.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # engine.session()?.put(&tree, b"a", b"value")?;
    /// assert_eq!(engine.snapshot()?.get_with(&tree, b"a", |value| value.len())?, Some(5));
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_with<T>(
        &self,
        tree: &Tree,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let lease = self.shared.lease()?;
        let mut buffer = lease.state().take_buffer();
        let found = read::get_in_now(&lease, lease.txn(), tree, key, &mut buffer);
        let value = found.map(|found| found.then(|| read(&buffer)));
        lease.state().give_buffer(buffer);
        value
    }

    /// Whether a key exists.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn contains(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        Ok(self.get_with(tree, key, |_| ())?.is_some())
    }

    /// Looks many keys up at once; see [`Session::multi_get`].
    ///
    /// # Errors
    /// As [`Snapshot::get`]; `read` may have been called for some keys then.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        keys: &[K],
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let lease = self.shared.lease()?;
        let mut buffer = lease.state().take_buffer();
        let done = read::multi_get_in(&lease, lease.txn(), tree, keys, &mut buffer, read);
        let done = now(done);
        lease.state().give_buffer(buffer);
        done
    }

    /// The values of several keys, in the order of `keys`.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = vec![None; keys.len()];
        self.multi_get(tree, keys, |at, value| values[at] = value.map(<[u8]>::to_vec))?;
        Ok(values)
    }

    /// The record with the least key.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn first(&self, tree: &Tree) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.scan(tree)?.expect_records(1).next().transpose()
    }

    /// The record with the greatest key.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn last(&self, tree: &Tree) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.scan(tree)?.expect_records(1).next_back().transpose()
    }

    /// About how many records and bytes a range of keys has now, not at the moment of the snapshot;
    /// see [`Session::approximate_range`].
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # engine.session()?.put_many(&tree, &[("a", "1"), ("b", "2"), ("c", "3")])?;
    /// let estimate = engine.snapshot()?.approximate_range(&tree, "b"..)?;
    /// assert_eq!(estimate.records, Some(2));
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn approximate_range(&self, tree: &Tree, range: impl KeyInterval) -> Result<RangeEstimate> {
        let lease = self.shared.lease()?;
        now(approximate_range(&lease, tree, range.key_bounds()))
    }

    /// The records of a range of keys. The range holds the snapshot.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # engine.session()?.put_many(&tree, &[("a", "1"), ("b", "2"), ("c", "3")])?;
    /// let mut range = engine.snapshot()?.range(&tree, "a"..)?;
    /// assert_eq!(range.next().expect("a")?.0, b"a");
    /// assert_eq!(range.next_back().expect("c")?.0, b"c");
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ForeignTree`]; [`Error::Limit`] as for [`Snapshot::get`]. Reading the range has
    /// errors of its own.
    pub fn range(&self, tree: &Tree, range: impl KeyInterval) -> Result<SnapshotRange> {
        self.range_of(tree, range.key_bounds())
    }

    /// The records whose keys begin with `prefix`.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn prefix(&self, tree: &Tree, prefix: &[u8]) -> Result<SnapshotRange> {
        self.range_of(tree, borrowed(&prefix_range(prefix)))
    }

    /// All records.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn scan(&self, tree: &Tree) -> Result<SnapshotRange> {
        self.range(tree, ..)
    }

    fn range_of(&self, tree: &Tree, bounds: KeyBounds<'_>) -> Result<SnapshotRange> {
        self.shared.core.check_tree(tree)?;
        Ok(SnapshotRange::new(self.shared.lease()?, tree, bounds))
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("time", &self.shared.time).finish()
    }
}
