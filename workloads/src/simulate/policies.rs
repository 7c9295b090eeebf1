//! The policies, one file each, named after them.

mod arc;
mod buckets;
mod car;
mod casa;
mod ccf_lru;
mod cfdc;
mod cflru;
mod clock;
mod clock_pro;
mod dgclock;
mod fbarc;
mod fifo;
mod filo;
mod for_;
mod for_plus;
mod gclock;
mod hyperbolic;
mod leanevict;
mod lfu;
mod lfuda;
mod lirs;
mod lirs_wsr;
mod loop_;
mod lrd;
mod lru;
mod lru_k;
mod lru_wsr;
mod mru;
mod opt;
mod random;
mod s3_fifo;
mod sieve;
mod slru;
mod sorted;
#[cfg(test)]
pub mod testing;
mod two_q;
mod w_tinylfu;
mod watt;
mod watt2;
mod watt_study;
mod zclock;

use super::entry::PolicyEntry;

/// All policies, in the order of `--list-policies`.
pub const ALL: &[PolicyEntry] = &[
    random::ENTRY,
    fifo::ENTRY,
    filo::ENTRY,
    loop_::ENTRY,
    lru::ENTRY,
    mru::ENTRY,
    lru_k::ENTRY,
    slru::ENTRY,
    clock::ENTRY,
    zclock::ENTRY,
    gclock::ENTRY_1,
    gclock::ENTRY_2,
    dgclock::ENTRY_1,
    dgclock::ENTRY_2,
    car::ENTRY,
    clock_pro::ENTRY,
    lrd::ENTRY_1,
    lrd::ENTRY_2,
    lfu::ENTRY,
    lfuda::ENTRY,
    two_q::ENTRY,
    arc::ENTRY,
    lirs::ENTRY,
    lirs_wsr::ENTRY,
    leanevict::ENTRY,
    hyperbolic::ENTRY,
    cflru::ENTRY,
    lru_wsr::ENTRY,
    ccf_lru::ENTRY,
    casa::ENTRY,
    cfdc::ENTRY,
    for_::ENTRY,
    for_plus::ENTRY,
    fbarc::ENTRY,
    watt::ENTRY,
    watt2::ENTRY,
    sieve::ENTRY,
    s3_fifo::ENTRY,
    w_tinylfu::ENTRY,
    opt::ENTRY,
];
