//! The random numbers of all workloads: xoshiro256++ seeded by SplitMix64.
//!
//! A workload draws several numbers for each operation, so the generator must take only a few
//! nanoseconds. A run must be repeatable from `--seed` on every machine and with every version of a
//! library, so the algorithms are named here; a test holds them to published values. Both are by
//! Blackman and Vigna, "Scrambled linear pseudorandom number generators" (TOMS 2021). Not for
//! secrets.

pub use wattle_buffer::random::{GOLDEN, mix};

use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng as _, SeedableRng},
};

/// A fast generator with a seed; every worker has its own.
#[derive(Clone, Debug)]
pub struct Rng {
    generator: Xoshiro256PlusPlus,
}

impl Rng {
    /// The generator number `stream` of `seed`. Streams of one seed are independent, so the numbers
    /// of one worker do not depend on the number of workers.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut word = mix(seed).wrapping_add(mix(!stream));
        let mut state = [0; 4];
        for slot in &mut state {
            word = word.wrapping_add(GOLDEN);
            *slot = mix(word);
        }
        // Four zero words are the one state that xoshiro never leaves, and SplitMix64 never gives
        // the same output for four successive inputs.
        Self::from_state(state)
    }

    fn from_state(state: [u64; 4]) -> Self {
        let mut bytes = [0; 32];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(state) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Self { generator: Xoshiro256PlusPlus::from_seed(bytes) }
    }

    /// The generator, for distributions of other crates.
    pub fn generator(&mut self) -> &mut Xoshiro256PlusPlus {
        &mut self.generator
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// A number in `0..bound`, which must not be empty. Lemire's multiplication; its bias is below
    /// `bound / 2^64`, too small to need a loop.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0, "an empty range has no number");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `[0, 1)` with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
        (self.next_u64() >> 11) as f64 * SCALE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_stream_repeat_and_others_differ() {
        let draw = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.next_u64(), rng.next_u64(), rng.next_u64()]
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
        assert_ne!(draw(0, 1), draw(1, 0), "seed and stream are not interchangeable");
    }

    #[test]
    fn the_state_moves_as_the_published_algorithm_says() {
        // First outputs of xoshiro256++ from the state 1, 2, 3, 4 (test vector of rand_xoshiro).
        let mut rng = Rng::from_state([1, 2, 3, 4]);
        let expected = [41943041, 58720359, 3588806011781223, 3591011842654386];
        for value in expected {
            assert_eq!(rng.next_u64(), value);
        }
    }

    #[test]
    fn bounded_numbers_fill_their_range_evenly() {
        let mut rng = Rng::new(7, 0);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[rng.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (9_600..10_400).contains(&count)), "{counts:?}");
        assert!((0..1000).all(|_| (0.0..1.0).contains(&rng.unit())));
    }
}
