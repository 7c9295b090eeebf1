//! Finds the bytes of a value that a change in place alters.

/// Bytes that [`difference`] compares at once.
const BLOCK: usize = 32;

/// The range of bytes in which two values of the same length differ; `(0, 0)` if they are equal.
///
/// Most bytes of a row stay as they are, and branches on the others predict badly. So it compares
/// whole blocks from either end, without a branch inside a block.
pub(crate) fn difference(old: &[u8], new: &[u8]) -> (usize, usize) {
    debug_assert_eq!(old.len(), new.len(), "only values of the same length have a difference");
    let len = new.len();
    if len < BLOCK {
        let (mut short_old, mut short_new) = ([0; BLOCK], [0; BLOCK]);
        short_old[..len].copy_from_slice(old);
        short_new[..len].copy_from_slice(new);
        let (from, to) = in_block(&short_old, &short_new);
        return if to == 0 { (0, 0) } else { (from, to) };
    }
    let same = |pair: &(&[u8; BLOCK], &[u8; BLOCK])| pair.0 == pair.1;
    let blocks = old.as_chunks().0.iter().zip(new.as_chunks().0);
    // If all whole blocks are equal, only the bytes after them are left. The last block of the
    // value, which may overlap them, holds these.
    let start = (BLOCK * blocks.take_while(same).count()).min(len - BLOCK);
    let from = start + in_block(block_at(old, start), block_at(new, start)).0;
    if from == start + BLOCK {
        return (0, 0);
    }
    let blocks = old.as_rchunks().1.iter().rev().zip(new.as_rchunks().1.iter().rev());
    let equal = BLOCK * blocks.take_while(same).count();
    // Likewise from the end: the first block of the value holds the bytes before the whole blocks.
    let start = (len - equal).max(BLOCK) - BLOCK;
    (from, start + in_block(block_at(old, start), block_at(new, start)).1)
}

fn block_at(bytes: &[u8], at: usize) -> &[u8; BLOCK] {
    bytes[at..].first_chunk().expect("a whole block")
}

/// The range of bytes in which two blocks differ; `(BLOCK, 0)` if they are equal.
#[inline]
fn in_block(old: &[u8; BLOCK], new: &[u8; BLOCK]) -> (usize, usize) {
    let words = |block: &[u8; BLOCK]| -> [u64; BLOCK / 8] {
        std::array::from_fn(|i| u64::from_le_bytes(*block[8 * i..].first_chunk().expect("8 bytes")))
    };
    let (old, new) = (words(old), words(new));
    let (mut from, mut to) = (BLOCK, 0);
    for i in 0..BLOCK / 8 {
        let bits = old[i] ^ new[i];
        to = if bits == 0 { to } else { 8 * i + 8 - bits.leading_zeros() as usize / 8 };
    }
    for i in (0..BLOCK / 8).rev() {
        let bits = old[i] ^ new[i];
        from = if bits == 0 { from } else { 8 * i + bits.trailing_zeros() as usize / 8 };
    }
    (from, to)
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn the_difference_is_the_shortest_range_that_holds_all_bytes_that_differ() {
        for len in 0..72usize {
            let old = vec![7; len];
            assert_eq!(difference(&old, &old), (0, 0), "{len} equal bytes");
            for first in 0..len {
                for last in first..len {
                    let mut new = old.clone();
                    (new[first], new[last]) = (1, 2);
                    assert_eq!(difference(&old, &new), (first, last + 1), "of {len} bytes");
                }
            }
        }
    }
}
