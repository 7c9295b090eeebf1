//! The policies, one file each, named after them.

mod arc;
mod buckets;
mod cflru;
mod clock;
mod fifo;
mod hyperbolic;
mod leanevict;
mod lfu;
mod lirs;
mod lru;
mod lru_k;
mod lru_wsr;
mod opt;
mod random;
mod s3_fifo;
mod sieve;
mod two_q;
mod w_tinylfu;
mod watt;
mod watt_study;

use super::registry::Entry;

/// All policies, in the order of `--list-policies`.
pub const ALL: &[Entry] = &[
    random::ENTRY,
    fifo::ENTRY,
    lru::ENTRY,
    lru_k::ENTRY,
    clock::ENTRY,
    lfu::ENTRY,
    two_q::ENTRY,
    arc::ENTRY,
    lirs::ENTRY,
    cflru::ENTRY,
    lru_wsr::ENTRY,
    leanevict::ENTRY,
    hyperbolic::ENTRY,
    watt::ENTRY,
    sieve::ENTRY,
    s3_fifo::ENTRY,
    w_tinylfu::ENTRY,
    opt::ENTRY,
];
