//! Zipfian ranks: below a theta of 1 after Gray et al., "Quickly generating billion-record
//! synthetic databases" (SIGMOD 1994, section 3), as the YCSB core package uses them; from 1 on by
//! rejection, with the crate rand_distr.
//!
//! Rank `r` (from 0) of `n` has the probability `(r + 1)^-theta / zeta(n, theta)`. The first two
//! ranks are exact; the others follow a continuous curve, which is within a few percent of the
//! exact probability for each rank and much closer for groups of ranks.
//!
//! Gray's curve has no value at 1, and above 1 its error grows. Rejection is exact for any theta,
//! and takes a varying number of random numbers for each rank.
//!
//! `zeta` is a sum of `n` powers. It is computed by the Euler-Maclaurin formula, in microseconds
//! for any `n`, so that a benchmark of a billion records starts at once.

use crate::rng::Rng;
use rand_distr::{Distribution, Zipf};

/// Terms of zeta that are added one by one; the formula gives the rest. With 1000 terms the first
/// neglected term of the formula is below 1e-18.
const EXACT_TERMS: u64 = 1000;

/// The generalised harmonic number: the sum of `k^-theta` for `k` from 1 to `n`.
///
/// The relative error is below 1e-12 for `theta` in `(0, 1)`.
pub fn zeta(n: u64, theta: f64) -> f64 {
    let exact: f64 = (1..=n.min(EXACT_TERMS)).rev().map(|k| (k as f64).powf(-theta)).sum();
    if n <= EXACT_TERMS {
        return exact;
    }
    // Sum from a + 1 to n, with f(x) = x^-theta: the integral from a to n, plus half of f(n) -
    // f(a), plus (f'(n) - f'(a)) / 12, minus (f'''(n) - f'''(a)) / 720.
    let (a, n) = (EXACT_TERMS as f64, n as f64);
    let exponent = 1.0 - theta;
    let integral = a.powf(exponent) * (exponent * (n / a).ln()).exp_m1() / exponent;
    let value = |x: f64| x.powf(-theta);
    let slope = |x: f64| -theta * x.powf(-theta - 1.0);
    let third = |x: f64| -theta * (theta + 1.0) * (theta + 2.0) * x.powf(-theta - 3.0);
    exact + integral + (value(n) - value(a)) / 2.0 + (slope(n) - slope(a)) / 12.0
        - (third(n) - third(a)) / 720.0
}

/// Draws Zipfian ranks of a fixed number of items.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    curve: Curve,
}

#[derive(Clone, Debug)]
enum Curve {
    Gray {
        zeta: f64,
        /// `zeta(2, theta)`: below it, the rank is 0 or 1 and exact.
        zeta_of_two: f64,
        alpha: f64,
        eta: f64,
    },
    Rejection(Zipf<f64>),
}

impl Zipfian {
    /// A generator of ranks in `0..items`; `items` is at least 1 and `theta` above 0 and finite.
    pub fn new(items: u64, theta: f64) -> Self {
        assert!(items > 0, "a distribution needs an item");
        assert!(theta > 0.0 && theta.is_finite(), "the skew is above 0 and finite");
        let curve = if theta < 1.0 {
            let (zeta, zeta_of_two) = (zeta(items, theta), zeta(2, theta));
            let eta = (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - zeta_of_two / zeta);
            Curve::Gray { zeta, zeta_of_two, alpha: 1.0 / (1.0 - theta), eta }
        } else {
            Curve::Rejection(Zipf::new(items as f64, theta).expect("checked above"))
        };
        Self { items, theta, curve }
    }

    /// The number of items.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// The skew.
    pub fn theta(&self) -> f64 {
        self.theta
    }

    /// The next rank; 0 is the most frequent.
    #[inline]
    pub fn next(&self, rng: &mut Rng) -> u64 {
        let rank = match self.curve {
            Curve::Gray { zeta, zeta_of_two, alpha, eta } => {
                let unit = rng.unit();
                let scaled = unit * zeta;
                if scaled < 1.0 {
                    return 0;
                }
                if scaled < zeta_of_two {
                    return 1.min(self.items - 1);
                }
                (self.items as f64 * (eta * unit - eta + 1.0).powf(alpha)) as u64
            }
            Curve::Rejection(zipf) => (zipf.sample(rng.generator()) as u64).saturating_sub(1),
        };
        rank.min(self.items - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summed(n: u64, theta: f64) -> f64 {
        (1..=n).rev().map(|k| (k as f64).powf(-theta)).sum()
    }

    #[test]
    fn zeta_equals_the_sum_of_its_terms() {
        for theta in [0.01, 0.5, 0.9, 0.99, 0.999_999] {
            for n in [1, 2, 999, 1000, 1001, 1002, 5000, 1_000_000] {
                let (fast, slow) = (zeta(n, theta), summed(n, theta));
                assert!(((fast - slow) / slow).abs() < 1e-12, "n {n} theta {theta}: {fast} {slow}");
            }
        }
    }

    #[test]
    fn zeta_of_ten_billion_is_the_constant_of_the_core_package() {
        // ScrambledZipfianGenerator.ZETAN for 10^10 items at 0.99.
        assert!((zeta(10_000_000_000, 0.99) - 26.469_028_205_783_02).abs() < 1e-6);
    }

    #[test]
    fn the_first_two_ranks_have_their_exact_frequency() {
        for theta in [0.5, 0.9, 0.99] {
            let (draws, zipf) = (2_000_000u32, Zipfian::new(100_000, theta));
            let mut rng = Rng::new(3, 0);
            let mut counts = [0u32; 2];
            for _ in 0..draws {
                if let Some(count) = counts.get_mut(zipf.next(&mut rng) as usize) {
                    *count += 1;
                }
            }
            for (rank, &count) in counts.iter().enumerate() {
                let share = (rank as f64 + 1.0).powf(-theta) / zeta(100_000, theta);
                let mean = f64::from(draws) * share;
                let deviation = (f64::from(count) - mean).abs() / (mean * (1.0 - share)).sqrt();
                assert!(deviation < 5.0, "theta {theta} rank {rank}: {count}, expected {mean}");
            }
        }
    }

    #[test]
    fn from_a_theta_of_one_on_every_rank_has_its_exact_frequency() {
        for theta in [1.0, 1.2, 2.0] {
            let (items, draws) = (1000u64, 500_000u32);
            let (zipf, mut rng) = (Zipfian::new(items, theta), Rng::new(5, 2));
            let mut counts = vec![0u32; items as usize];
            for _ in 0..draws {
                counts[zipf.next(&mut rng) as usize] += 1;
            }
            let all = summed(items, theta);
            // Chi-square over the ranks that are expected at least 20 times: its mean is their
            // number, its deviation the root of twice that.
            let (mut distance, mut ranks) = (0.0, 0.0f64);
            for (rank, &count) in counts.iter().enumerate() {
                let expected = f64::from(draws) * (rank as f64 + 1.0).powf(-theta) / all;
                if expected >= 20.0 {
                    distance += (f64::from(count) - expected).powi(2) / expected;
                    ranks += 1.0;
                }
            }
            let limit = ranks + 5.0 * (2.0 * ranks).sqrt();
            assert!(distance < limit, "theta {theta}: {distance} over {ranks} ranks");
        }
    }

    #[test]
    fn a_skew_without_bound_gives_the_first_rank() {
        let (zipf, mut rng) = (Zipfian::new(u64::MAX, 1e6), Rng::new(1, 0));
        assert!((0..1000).all(|_| zipf.next(&mut rng) == 0));
    }

    /// Chi-square over groups of ranks that double in size, against the exact probabilities. The
    /// generator approximates, so the statistic is held to what its known error of a few percent
    /// gives, divided by the number of draws: a wrong exponent or constant is far outside.
    #[test]
    fn groups_of_ranks_follow_the_exact_probabilities() {
        for theta in [0.5, 0.9, 0.99] {
            let (items, draws) = (1u64 << 17, 2_000_000u32);
            let (zipf, mut rng) = (Zipfian::new(items, theta), Rng::new(11, 1));
            let mut counts = [0u32; 17];
            for _ in 0..draws {
                let rank = zipf.next(&mut rng) + 1;
                counts[(63 - rank.leading_zeros() as usize).min(16)] += 1;
            }
            let mut distance = 0.0;
            for (group, &count) in counts.iter().enumerate() {
                let (low, high) = (1u64 << group, (1u64 << (group + 1)).min(items + 1));
                let last = if group == 16 { items } else { high - 1 };
                let share = (summed(last, theta) - summed(low - 1, theta)) / summed(items, theta);
                let measured = f64::from(count) / f64::from(draws);
                assert!(
                    (measured / share - 1.0).abs() < 0.12,
                    "theta {theta} ranks from {low}: {measured}, expected {share}"
                );
                distance += (measured - share).powi(2) / share;
            }
            assert!(distance < 2e-3, "theta {theta}: chi-square per draw {distance}");
        }
    }

    #[test]
    fn tiny_item_counts_stay_in_range() {
        let mut rng = Rng::new(1, 1);
        for (items, theta) in (1..=4).flat_map(|items| [0.99, 1.0, 3.0].map(|t| (items, t))) {
            let zipf = Zipfian::new(items, theta);
            assert!((0..10_000).all(|_| zipf.next(&mut rng) < items));
        }
    }
}
