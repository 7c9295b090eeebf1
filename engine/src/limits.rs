//! Limits that are reached only by thousands of records, and a way to have them reached by a few.
//!
//! Behind each of these limits is code that does the same in another way: a list that is full, a chain that is
//! pruned, a buffer that goes to a file. `--cfg small_limits` shrinks all of them at once. Campaigns of the wide
//! model (`tests/tests/suite/wide`) run with it; nothing else should.

/// The usual limit, or the small one with `--cfg small_limits`, so that few records reach what takes
/// thousands otherwise.
pub(crate) const fn limit(usual: usize, small: usize) -> usize {
    if cfg!(small_limits) { small } else { usual }
}
