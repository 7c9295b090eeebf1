//! Limits that only thousands of records reach, and a switch that makes a few records reach them.
//!
//! Each of these limits switches to other code with the same result: a full list, a pruned chain, a
//! buffer that goes to a file. `--cfg small_limits` shrinks all of them at once. Campaigns of the
//! wide model (`tests/tests/suite/wide`) run with it; nothing else should.

/// The usual limit, or the small one with `--cfg small_limits`, so that a few records reach it
/// instead of thousands.
pub(crate) const fn limit(usual: usize, small: usize) -> usize {
    if cfg!(small_limits) { small } else { usual }
}
