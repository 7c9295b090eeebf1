//! [`SeededRandom`], the random numbers of the engine, of simulated devices and of the simulator.
//!
//! Nothing here is for secrets.

/// 2^64 divided by the golden ratio: the odd step of SplitMix64, whose multiples spread evenly.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of SplitMix64: a bijection in which every input bit changes half of the
/// output bits.
#[inline]
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
/// Small, and the same on every machine for ever, on which the seeds of failing tests rely.
#[derive(Clone, Copy, Debug)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// The sequence of `seed`.
    pub const fn new(seed: u64) -> SeededRandom {
        SeededRandom(seed)
    }

    /// A generator that depends on this one and on `value`.
    pub fn mix(mut self, value: u64) -> SeededRandom {
        let state = self.next_u64();
        let mut mixed = SeededRandom(state ^ value);
        SeededRandom(mixed.next_u64())
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Below `bound`, which is not 0. The bias is below bound / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// At least 0 and below 1, with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // The first outputs of SplitMix64 from the state 1234567 (Rosetta Code; rand_xoshiro).
        let mut random = SeededRandom::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([random.next_u64(), random.next_u64()], expected);
    }

    #[test]
    fn numbers_fill_their_range_evenly() {
        let mut random = SeededRandom::new(7);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (9_600..10_400).contains(&count)), "{counts:?}");
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
    }
}
