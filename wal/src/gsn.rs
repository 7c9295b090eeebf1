//! Numbers of records. A GSN (global sequence number) has the epoch of a record in its upper bits
//! and a counter in its lower ones.

use wattle_buffer::Gsn;

/// Bits of a GSN below the epoch.
pub const GSN_COUNTER_BITS: u32 = 20;
/// Largest epoch of a valid log. The distance to the largest number leaves room for the epochs of a
/// running log.
pub const MAX_EPOCH: u64 = (1 << (u64::BITS - GSN_COUNTER_BITS)) - (1 << 20);

/// The epoch in a GSN.
pub fn epoch_of(gsn: Gsn) -> u64 {
    gsn.0 >> GSN_COUNTER_BITS
}
