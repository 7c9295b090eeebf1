//! Computes indices from rates of use: the worth of keeping a page for the best length of time.
//!
//! The index at an age is the largest quotient, over all horizons, of the probability of a use
//! within the horizon by the expected time until the use or the horizon. A stretch of ages joins
//! the one after it as long as that increases the quotient. Each stretch is visited once, from the
//! oldest age back, as in the pool-adjacent-violators algorithm. Powers and exponentials are
//! polynomials, so that the compiler computes several at a time; they are exact to about 1e-6.

/// Ranges of ages: single ticks below 8, then four for each octave.
pub const AGES: usize = 44;

/// One number for each range of ages.
pub type Row = [f32; AGES];

/// 2 to the `x`, for `x` from -126 to 127.
#[inline(always)]
fn exp2(x: f32) -> f32 {
    // Adding it leaves the nearest whole number in the last bits.
    const ROUND: f32 = (3 << 22) as f32;
    let rounded = x + ROUND;
    let rest = (x - (rounded - ROUND)) * std::f32::consts::LN_2;
    let power = rounded.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    let series = 1.0 / 120.0 + rest * (1.0 / 720.0);
    let series = 0.5 + rest * (1.0 / 6.0 + rest * (1.0 / 24.0 + rest * series));
    f32::from_bits(power) * (1.0 + rest * (1.0 + rest * series))
}

/// The logarithm to base 2 of a positive `x` that is not subnormal.
#[inline(always)]
fn log2(x: f32) -> f32 {
    // The mantissa is scaled to the half octave on both sides of 1.
    const HALF_DOWN: u32 = std::f32::consts::FRAC_1_SQRT_2.to_bits();
    let above = x.to_bits().wrapping_sub(HALF_DOWN);
    let octave = (above as i32) >> 23;
    let mantissa = f32::from_bits((above & 0x7F_FFFF) + HALF_DOWN);
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let squared = s * s;
    let series = 1.0 / 5.0 + squared * (1.0 / 7.0 + squared * (1.0 / 9.0));
    let series = s * (1.0 + squared * (1.0 / 3.0 + squared * series));
    octave as f32 + series * (2.0 * std::f32::consts::LOG2_E)
}

/// A stretch of ages for which a page is kept.
#[derive(Clone, Copy)]
struct Stretch {
    /// Probability of a use.
    used: f32,
    /// Expected time until it or the end.
    time: f32,
    /// Probability to get to the end unused.
    through: f32,
}

/// The index at the beginning of each range, to the power `power`, for a rate of use per tick in
/// each and their lengths in ticks.
pub fn indices(rates: &Row, lengths: &Row, power: f32) -> Row {
    let (mut through, mut time) = ([0.0; AGES], [0.0; AGES]);
    for range in 0..AGES {
        let uses = (rates[range] * lengths[range]).min(80.0);
        through[range] = exp2(-std::f32::consts::LOG2_E * uses);
        time[range] = (1.0 - through[range]) / rates[range];
    }
    let none = Stretch { used: 0.0, time: 1.0, through: 1.0 };
    let (mut later, mut stretches) = ([none; AGES + 1], 1);
    let (mut used, mut spent) = ([0.0; AGES], [1.0; AGES]);
    for range in (0..AGES).rev() {
        let through = through[range];
        let mut stretch = Stretch { used: 1.0 - through, time: time[range], through };
        // The first stretch has the quotient 0, so it joins no other.
        while later[stretches - 1].used * stretch.time > stretch.used * later[stretches - 1].time {
            stretches -= 1;
            let next = later[stretches];
            stretch.used += stretch.through * next.used;
            stretch.time += stretch.through * next.time;
            stretch.through *= next.through;
        }
        later[stretches] = stretch;
        stretches += 1;
        (used[range], spent[range]) = (stretch.used, stretch.time);
    }
    std::array::from_fn(|range| {
        exp2(power * log2((used[range] / spent[range]).max(f32::MIN_POSITIVE)))
    })
}

#[cfg(test)]
mod tests {
    use super::super::index::{lengths, range};
    use super::*;
    use crate::random::SeededRandom;

    /// The definition, in double precision: all horizons for each age.
    fn defined(rates: &Row) -> [f64; AGES] {
        let lengths = lengths();
        std::array::from_fn(|from| {
            let (mut unused, mut spent, mut best) = (1.0f64, 0.0f64, 0.0f64);
            for range in from..AGES {
                let rate = f64::from(rates[range]);
                let through = (-rate * f64::from(lengths[range])).exp();
                spent += unused * (1.0 - through) / rate;
                unused *= through;
                best = best.max((1.0 - unused) / spent);
            }
            best
        })
    }

    #[test]
    fn it_is_the_best_of_all_horizons() {
        let mut rng = SeededRandom::new(1);
        for _ in 0..2000 {
            let steepness = 8.0 * rng.unit();
            let rates = [(); AGES].map(|()| (steepness * (rng.unit() - 0.9)).exp2() as f32);
            let index = indices(&rates, &lengths(), 1.0);
            for (index, defined) in index.iter().zip(defined(&rates)) {
                assert!((f64::from(*index) / defined - 1.0).abs() < 1e-4, "{index} {defined}");
            }
        }
    }

    #[test]
    fn the_index_looks_ahead_to_the_age_at_which_a_loop_comes_round() {
        let mut rates = [0.001; AGES];
        rates[range(24)] = 1.0;
        let index = indices(&rates, &lengths(), 1.0);
        // The closer the use is, the more a page is worth; after it, little.
        assert!(
            index[0] < index[8]
                && index[8] < index[range(20)]
                && index[range(20)] < index[range(24)]
        );
        assert!(index[range(32)] < index[0]);
        // A constant rate is its own index.
        let constant = indices(&[0.25; AGES], &lengths(), 1.0);
        assert!(constant.iter().all(|index| (index - 0.25).abs() < 1e-4));
    }

    #[test]
    fn powers_are_as_exact_as_single_precision_allows() {
        let mut rng = SeededRandom::new(2);
        for _ in 0..100_000 {
            let x = ((rng.unit() - 0.5) * 160.0).exp2() as f32;
            let power = exp2(0.8 * log2(x));
            let exact = f64::from(x).powf(f64::from(0.8f32));
            assert!((f64::from(power) / exact - 1.0).abs() < 2e-5, "{x}: {power}, not {exact}");
        }
    }
}
