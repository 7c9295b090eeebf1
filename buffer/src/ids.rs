//! A newtype for each kind of identifier, so that a page id cannot be passed as a frame id.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// Number of a page in the data file; its byte offset is the number times [`crate::PAGE_SIZE`].
    /// At most [`PageId::MAX`].
    PageId(u64)
}
id! {
    /// Index of a frame of the pool.
    FrameId(u32)
}
id! {
    /// Number of a tree. Never reused within a store.
    TreeId(u32)
}
id! {
    /// Global sequence number: orders the changes of a page across all workers.
    Gsn(u64)
}

impl PageId {
    /// Page ids have 48 bits (2^60 bytes of data), which leaves a swip its tag bits.
    pub const MAX: PageId = PageId((1 << 48) - 1);
}
