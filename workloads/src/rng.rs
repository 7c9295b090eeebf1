//! The random numbers of all workloads: xoshiro256++ seeded by SplitMix64.
//!
//! A workload draws several numbers for each operation, so the generator must take only a few
//! nanoseconds. A run must be repeatable from `--seed` on every machine and with every version of a
//! library, so the generator is implemented here. Both algorithms are by Blackman and Vigna,
//! "Scrambled linear pseudorandom number generators" (TOMS 2021). Not for secrets.

/// A fast generator with a seed; every worker has its own.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
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
        Self { state }
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
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

/// 2^64 divided by the golden ratio: the odd step of SplitMix64, whose multiples spread evenly.
pub const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The output function of SplitMix64: a bijection in which every input bit changes half of the
/// output bits.
#[inline]
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
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
        let mut rng = Rng { state: [1, 2, 3, 4] };
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
