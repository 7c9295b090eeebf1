//! The choices of write-back.

/// Writer threads of a pool: while one batch is on the device, the next is being copied.
pub(crate) const WRITERS: usize = 2;

/// Whether dirty victims are written in batches (ACE), and what is evicted after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ace {
    /// Each dirty victim is queued alone, and evicted after its write.
    #[default]
    Off,
    /// The Writer: as many dirty pages as the device writes at once are written together. One is
    /// evicted; the others stay as clean pages until frames are needed.
    Writer,
    /// Writer, Evictor and Reader: all pages of a batch are evicted, and reads bring further pages
    /// that will probably be needed.
    Full,
}

/// The order in which dirty victims are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WriteOrder {
    /// By the value of the policy: the coldest page first.
    #[default]
    Value,
    /// By place: victims are collected, and those of the region of the file that has most of them
    /// are written together, in the order of the file. (FBARC's GRID clustering.)
    Clustered,
}
