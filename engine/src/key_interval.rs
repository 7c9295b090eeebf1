//! Ranges of keys as callers write them.

use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

/// A range of keys: `..`, `"a"..`, `..=key`, `low..high`, or a pair of [`Bound`]s, of anything that
/// is bytes: `&str`, `&[u8]`, `&[u8; 8]`, `Vec<u8>`, `String`. Keys compare byte by byte. A range
/// whose bounds cross is empty. The two bounds have one type, so `b"a"..b"bc"` needs `&b"a"[..]`.
///
/// ```
/// # use wattle::{Engine, IoKind, Options};
/// # use std::ops::Bound;
/// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
/// # let tree = engine.tree("t")?;
/// # let session = engine.session()?;
/// session.put_many(&tree, &[("a", ""), ("b", ""), ("c", "")])?;
/// assert_eq!(session.range(&tree, ..)?.count(), 3);
/// assert_eq!(session.range(&tree, "b"..)?.count(), 2);
/// assert_eq!(session.range(&tree, b"a"..=b"b")?.count(), 2);
/// assert_eq!(session.range(&tree, String::from("a")..String::from("b"))?.count(), 1);
/// assert_eq!(session.range(&tree, (Bound::Excluded("a"), Bound::Unbounded))?.count(), 2);
/// # Ok::<(), wattle::Error>(())
/// ```
pub trait KeyInterval: sealed::Sealed {
    /// The low and the high bound.
    fn key_bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>);
}

mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for RangeFull {}

impl KeyInterval for RangeFull {
    fn key_bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

macro_rules! intervals {
    ($($range:ty),*) => {$(
        impl<K: AsRef<[u8]>> sealed::Sealed for $range {}

        impl<K: AsRef<[u8]>> KeyInterval for $range {
            fn key_bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
                let (low, high): (Bound<&K>, Bound<&K>) = (self.start_bound(), self.end_bound());
                (low.map(AsRef::as_ref), high.map(AsRef::as_ref))
            }
        }
    )*};
}

intervals!(
    Range<K>,
    RangeInclusive<K>,
    RangeFrom<K>,
    RangeTo<K>,
    RangeToInclusive<K>,
    (Bound<K>, Bound<K>)
);

impl<I: KeyInterval> sealed::Sealed for &I {}

impl<I: KeyInterval> KeyInterval for &I {
    fn key_bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        I::key_bounds(self)
    }
}
