//! How numbers and subscribers are drawn.

use crate::rng::Rng;

/// A number from `low` to `high`, both included.
pub fn between(rng: &mut Rng, low: u64, high: u64) -> u64 {
    low + rng.below(high - low + 1)
}

/// `count` different values of `values`, ascending.
pub fn some<const N: usize>(rng: &mut Rng, count: usize, mut values: [u8; N]) -> Vec<u8> {
    for i in 0..count {
        let other = i + rng.below((N - i) as u64) as usize;
        values.swap(i, other);
    }
    let mut chosen = values[..count].to_vec();
    chosen.sort_unstable();
    chosen
}

/// The parameter A of the draw of subscribers.
fn spread(subscribers: u64) -> u64 {
    match subscribers {
        ..=1_000_000 => 65_535,
        1_000_001..=10_000_000 => 1_048_575,
        _ => 2_097_151,
    }
}

/// Draws a subscriber.
pub fn subscriber(rng: &mut Rng, subscribers: u64) -> u64 {
    let (spread, uniform) = (rng.below(spread(subscribers) + 1), between(rng, 1, subscribers));
    (spread | uniform) % subscribers + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_are_drawn_by_the_formula() {
        let mut rng = Rng::new(2, 2);
        let mut bits = 0u32;
        for _ in 0..100_000 {
            let id = subscriber(&mut rng, 100_000);
            assert!((1..=100_000).contains(&id));
            bits += ((id - 1) & 0xff).count_ones();
        }
        // Before the remainder each low bit of the disjunction is set with probability 3/4, that of
        // a uniform number with 1/2. The remainder keeps much of that: 100,000 is a multiple of 32.
        assert!(bits > 100_000 * 8 * 6 / 10, "{bits} bits");
        for (subscribers, spread) in
            [(1_000_000, 65_535), (1_000_001, 1_048_575), (10_000_001, 2_097_151)]
        {
            assert_eq!(super::spread(subscribers), spread);
        }
    }
}
