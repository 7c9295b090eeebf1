//! Trees with keys and values of Rust types: [`TypedTree`], a thin layer over the operations on
//! bytes.

use crate::{
    key_interval::KeyInterval, op::update::Update, range::Range, session::blocking::Session,
    snapshot::Snapshot, snapshot_range::SnapshotRange, transaction::Transaction, tree::Tree,
    typed_key::TypedKey,
};
use std::{
    marker::PhantomData,
    ops::{Bound, RangeBounds},
};
use wattle_btree::prefix_range;
use wattle_buffer::{Error, Result};

/// A type that is a value of a [`TypedTree`]. A program implements it for its own types, with the
/// format of its choice: with `serde`, each method is one call of the crate of a format.
///
/// ```
/// use wattle::{Error, Result, TypedValue};
///
/// #[derive(Debug, PartialEq)]
/// struct Order { item: String, count: u32 }
///
/// impl TypedValue for Order {
///     fn encode(&self) -> Result<Vec<u8>> {
///         Ok([&self.count.to_le_bytes(), self.item.as_bytes()].concat())
///     }
///     fn decode(bytes: &[u8]) -> Result<Order> {
///         let (count, item) = bytes.split_first_chunk()
///             .ok_or_else(|| Error::Decode("an order is cut short".to_string()))?;
///         Ok(Order { item: String::decode(item)?, count: u32::from_le_bytes(*count) })
///     }
/// }
/// let order = Order { item: "tea".to_string(), count: 3 };
/// assert_eq!(Order::decode(&order.encode()?)?, order);
/// # Ok::<(), Error>(())
/// ```
pub trait TypedValue: Sized {
    /// The encoding.
    ///
    /// # Errors
    /// [`Error::Decode`]: the value has none.
    fn encode(&self) -> Result<Vec<u8>>;

    /// Decodes it.
    ///
    /// # Errors
    /// [`Error::Decode`]: the bytes are no encoding.
    fn decode(bytes: &[u8]) -> Result<Self>;
}

/// The bytes themselves.
impl TypedValue for Vec<u8> {
    fn encode(&self) -> Result<Vec<u8>> {
        Ok(self.clone())
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        Ok(bytes.to_vec())
    }
}

/// The bytes of the text.
impl TypedValue for String {
    fn encode(&self) -> Result<Vec<u8>> {
        Ok(self.as_bytes().to_vec())
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes);
        text.map(str::to_string).map_err(|error| Error::Decode(format!("no UTF-8: {error}")))
    }
}

macro_rules! as_keys {
    ($($type:ty),*) => {$(
        /// As a key.
        impl TypedValue for $type {
            fn encode(&self) -> Result<Vec<u8>> {
                Ok(self.encoded())
            }

            fn decode(bytes: &[u8]) -> Result<Self> {
                Self::decoded(bytes)
            }
        }
    )*};
}

as_keys!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64, bool, char, ());

/// The source of reads of a [`TypedTree`]: a session, a transaction or a snapshot.
pub trait ReadsRecords: sealed::Sealed {
    /// Entries of a range.
    type Entries<'r>: Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>
    where
        Self: 'r;

    #[doc(hidden)]
    fn value_of(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>>;

    #[doc(hidden)]
    fn entries<'r>(
        &'r self,
        tree: &'r Tree,
        range: impl KeyInterval,
        reverse: bool,
    ) -> Result<Self::Entries<'r>>;
}

/// The target of changes of a [`TypedTree`]: `&Session` or `&mut Transaction`.
pub trait WritesRecords: sealed::Sealed {
    #[doc(hidden)]
    fn put_record(self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()>;
    #[doc(hidden)]
    fn insert_record(self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()>;
    #[doc(hidden)]
    fn remove_record(self, tree: &Tree, key: &[u8]) -> Result<bool>;
    #[doc(hidden)]
    fn update_record(
        self,
        tree: &Tree,
        key: &[u8],
        update: &mut Update<'_>,
    ) -> Result<Option<Vec<u8>>>;
}

mod sealed {
    use super::{Session, Snapshot, Transaction};
    pub trait Sealed {}
    impl Sealed for Session {}
    impl Sealed for &Session {}
    impl Sealed for Transaction<'_> {}
    impl Sealed for &mut Transaction<'_> {}
    impl Sealed for Snapshot {}
}

impl ReadsRecords for Session {
    type Entries<'r> = Range<'r>;

    fn value_of(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get(tree, key)
    }

    fn entries<'r>(
        &'r self,
        tree: &'r Tree,
        range: impl KeyInterval,
        reverse: bool,
    ) -> Result<Range<'r>> {
        let range = self.range(tree, range)?;
        Ok(if reverse { range.rev() } else { range })
    }
}

impl ReadsRecords for Transaction<'_> {
    type Entries<'r>
        = Range<'r>
    where
        Self: 'r;

    fn value_of(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get(tree, key)
    }

    fn entries<'r>(
        &'r self,
        tree: &'r Tree,
        range: impl KeyInterval,
        reverse: bool,
    ) -> Result<Range<'r>> {
        let range = self.range(tree, range)?;
        Ok(if reverse { range.rev() } else { range })
    }
}

/// The range of a snapshot in one direction.
#[doc(hidden)]
pub struct OneWay {
    range: SnapshotRange,
    reverse: bool,
}

impl Iterator for OneWay {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reverse { self.range.next_back() } else { self.range.next() }
    }
}

impl ReadsRecords for Snapshot {
    type Entries<'r> = OneWay;

    fn value_of(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get(tree, key)
    }

    fn entries<'r>(
        &'r self,
        tree: &'r Tree,
        range: impl KeyInterval,
        reverse: bool,
    ) -> Result<OneWay> {
        Ok(OneWay { range: self.range(tree, range)?, reverse })
    }
}

macro_rules! writes {
    ($($type:ty),*) => {$(
        impl WritesRecords for $type {
            fn put_record(self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
                self.put(tree, key, value)
            }

            fn insert_record(self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
                self.insert(tree, key, value)
            }

            fn remove_record(self, tree: &Tree, key: &[u8]) -> Result<bool> {
                self.remove(tree, key)
            }

            fn update_record(
                self,
                tree: &Tree,
                key: &[u8],
                update: &mut Update<'_>,
            ) -> Result<Option<Vec<u8>>> {
                self.fetch_update_by(tree, key, update)
            }
        }
    )*};
}

writes!(&Session, &mut Transaction<'_>);

/// A tree with keys and values of Rust types: encodes and decodes them, and calls the operations on
/// bytes. Several of them, also of other types, may be of the same tree; they do not check that the
/// records fit: a record that does not is [`Error::Decode`].
///
/// ```
/// # use wattle::{Engine, IoKind, Options};
/// use wattle::TypedTree;
/// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
/// let orders = TypedTree::<(String, u32), f64>::new(engine.tree("orders")?);
/// let session = engine.session()?;
/// let key = |name: &str, number| (name.to_string(), number);
/// orders.put(&session, &key("alice", 2), &9.5)?;
/// orders.put(&session, &key("alice", 10), &1.25)?;
/// let mut txn = session.begin()?;
/// orders.update(&mut txn, &key("bob", 1), |price| Some(price.unwrap_or(0.0) + 3.0))?;
/// assert_eq!(orders.get(&txn, &key("bob", 1))?, Some(3.0));
/// txn.commit()?;
/// let numbers: Vec<_> = orders
///     .prefix(&session, &("alice".to_string(),))?
///     .map(|entry| Ok(entry?.0.1))
///     .collect::<wattle::Result<_>>()?;
/// assert_eq!(numbers, [2, 10]);
/// let last = orders.range(&session, key("alice", 5)..)?.next().expect("two records")?;
/// assert_eq!(last, (key("alice", 10), 1.25));
/// orders.insert(&session, &key("carol", 1), &2.0)?;          // fails if there is one
/// assert!(orders.remove(&session, &key("alice", 2))?);
/// let newest = orders.range_rev(&session, ..)?.next().expect("a record")?;
/// assert_eq!(newest.0, key("carol", 1));
/// # Ok::<(), wattle::Error>(())
/// ```
pub struct TypedTree<K, V> {
    tree: Tree,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> Clone for TypedTree<K, V> {
    fn clone(&self) -> Self {
        TypedTree { tree: self.tree.clone(), types: PhantomData }
    }
}

impl<K, V> std::fmt::Debug for TypedTree<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TypedTree({:?})", self.tree.name())
    }
}

impl<K: TypedKey, V: TypedValue> TypedTree<K, V> {
    /// A tree whose records have these types.
    pub fn new(tree: Tree) -> TypedTree<K, V> {
        TypedTree { tree, types: PhantomData }
    }

    /// The tree of bytes.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As that of `from`; [`Error::Decode`].
    pub fn get(&self, from: &impl ReadsRecords, key: &K) -> Result<Option<V>> {
        let value = from.value_of(&self.tree, &key.encoded())?;
        value.as_deref().map(V::decode).transpose()
    }

    /// Sets the value of a key, whether or not it exists.
    ///
    /// # Errors
    /// As that of `to`.
    pub fn put(&self, to: impl WritesRecords, key: &K, value: &V) -> Result<()> {
        to.put_record(&self.tree, &key.encoded(), &value.encode()?)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// As that of `to`; [`Error::KeyExists`].
    pub fn insert(&self, to: impl WritesRecords, key: &K, value: &V) -> Result<()> {
        to.insert_record(&self.tree, &key.encoded(), &value.encode()?)
    }

    /// Removes a record; false when there is no such key.
    ///
    /// # Errors
    /// As that of `to`.
    pub fn remove(&self, to: impl WritesRecords, key: &K) -> Result<bool> {
        to.remove_record(&self.tree, &key.encoded())
    }

    /// Replaces the value of a key by what `update` makes of it; `None` is no record. Gives the
    /// value before. See [`Session::fetch_update`].
    ///
    /// # Errors
    /// As that of `to`; [`Error::Decode`], and nothing is changed then.
    pub fn update(
        &self,
        to: impl WritesRecords,
        key: &K,
        mut update: impl FnMut(Option<V>) -> Option<V>,
    ) -> Result<Option<V>> {
        let before = to.update_record(&self.tree, &key.encoded(), &mut |value| {
            update(value.map(V::decode).transpose()?).map(|value| value.encode()).transpose()
        })?;
        before.as_deref().map(V::decode).transpose()
    }

    /// The records of a range of keys, ascending.
    ///
    /// # Errors
    /// As that of `from`. Each entry has errors of its own.
    pub fn range<'r, R: ReadsRecords>(
        &'r self,
        from: &'r R,
        range: impl RangeBounds<K>,
    ) -> Result<TypedRange<K, V, R::Entries<'r>>> {
        self.entries(from, encoded(&range), false)
    }

    /// The records of a range of keys, descending.
    ///
    /// # Errors
    /// As [`TypedTree::range`].
    pub fn range_rev<'r, R: ReadsRecords>(
        &'r self,
        from: &'r R,
        range: impl RangeBounds<K>,
    ) -> Result<TypedRange<K, V, R::Entries<'r>>> {
        self.entries(from, encoded(&range), true)
    }

    /// The records whose keys begin with `prefix`: the first elements of a key that is a tuple.
    ///
    /// # Errors
    /// As [`TypedTree::range`].
    pub fn prefix<'r, R: ReadsRecords>(
        &'r self,
        from: &'r R,
        prefix: &impl TypedKey,
    ) -> Result<TypedRange<K, V, R::Entries<'r>>> {
        self.entries(from, prefix_range(&prefix.encoded()), false)
    }

    fn entries<'r, R: ReadsRecords>(
        &'r self,
        from: &'r R,
        range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        reverse: bool,
    ) -> Result<TypedRange<K, V, R::Entries<'r>>> {
        Ok(TypedRange { entries: from.entries(&self.tree, range, reverse)?, types: PhantomData })
    }
}

fn encoded<K: TypedKey>(range: &impl RangeBounds<K>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (range.start_bound().map(K::encoded), range.end_bound().map(K::encoded))
}

/// Records of a range of a [`TypedTree`].
pub struct TypedRange<K, V, I> {
    entries: I,
    types: PhantomData<fn(K) -> V>,
}

impl<K: TypedKey, V: TypedValue, I: Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>> Iterator
    for TypedRange<K, V, I>
{
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        let decode = |(key, value): (Vec<u8>, Vec<u8>)| Ok((K::decoded(&key)?, V::decode(&value)?));
        self.entries.next().map(|entry| entry.and_then(decode))
    }
}
