//! Axes that fit their values: they begin and end near the least and the largest one, with marks at
//! round numbers between.

/// How values are spread along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Equal differences have equal lengths.
    Even,
    /// Equal ratios have equal lengths; values that are not positive have no place.
    ByRatio,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct FittedAxis {
    spacing: Spacing,
    low: f64,
    high: f64,
    /// Marks: their place from 0 to 1 and their label.
    pub ticks: Vec<(f64, String)>,
}

/// Share of the axis beyond the least and the largest value.
const MARGIN: f64 = 0.04;
/// Steps between marks that an axis has room for.
const STEPS: f64 = 6.0;

impl FittedAxis {
    /// An axis for `values`; it begins at 0 if `from_zero`, unless it is spaced by ratio.
    pub fn new(spacing: Spacing, from_zero: bool, values: impl Iterator<Item = f64>) -> Self {
        let places = values.filter_map(|value| place(spacing, value));
        let (mut low, mut high) = places
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), place| {
                (low.min(place), high.max(place))
            });
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let from_zero = from_zero && spacing == Spacing::Even && low >= 0.0;
        if from_zero {
            low = 0.0;
        }
        if high - low <= 1e-9 * high.abs().max(1e-9) {
            // One value: some room on both sides of it.
            let room = match spacing {
                Spacing::Even => (0.1 * high.abs()).max(1e-3),
                Spacing::ByRatio => 0.1,
            };
            (low, high) = (if from_zero { low } else { low - room }, high + room);
        }
        let room = MARGIN * (high - low);
        if !from_zero {
            low -= if spacing == Spacing::Even && low >= 0.0 { room.min(low) } else { room };
        }
        high += room;
        let ticks = match spacing {
            Spacing::Even => even_marks(low, high),
            Spacing::ByRatio => ratio_marks(low, high),
        };
        let share = |(at, label)| ((at - low) / (high - low), label);
        Self { spacing, low, high, ticks: ticks.into_iter().map(share).collect() }
    }

    /// The place of `value`, from 0 (low end) to 1 (high end); `None` if it has none.
    pub fn share(&self, value: f64) -> Option<f64> {
        Some((place(self.spacing, value)? - self.low) / (self.high - self.low))
    }
}

fn place(spacing: Spacing, value: f64) -> Option<f64> {
    let place = match spacing {
        Spacing::Even => value,
        Spacing::ByRatio if value > 0.0 => value.log10(),
        Spacing::ByRatio => return None,
    };
    place.is_finite().then_some(place)
}

/// Multiples of a round step from `low` to `high`, with labels.
fn even_marks(low: f64, high: f64) -> Vec<(f64, String)> {
    let step = round_step((high - low) / STEPS);
    let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
    let decimals = (-(step.log10() + 1e-9).floor()).max(0.0) as usize;
    (first..=last)
        .map(|number| number as f64 * step)
        .map(|value| (value, label(value, decimals)))
        .collect()
}

/// Powers of ten and, if these are few, their multiples by 2 and 5; over short ranges multiples of
/// a round step. `low` and `high` are logarithms.
fn ratio_marks(low: f64, high: f64) -> Vec<(f64, String)> {
    let factors: &[f64] = if high - low > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = (low.floor() as i32)..=(high.ceil() as i32);
    let values = powers.flat_map(|power| factors.iter().map(move |f| f * 10f64.powi(power)));
    let inside: Vec<f64> = values.filter(|value| (low..=high).contains(&value.log10())).collect();
    if inside.len() < 3 {
        let even = even_marks(10f64.powf(low), 10f64.powf(high));
        let positive = even.into_iter().filter(|(value, _)| *value > 0.0);
        return positive.map(|(value, label)| (value.log10(), label)).collect();
    }
    let decimals = |value: f64| (-value.log10().floor()).max(0.0) as usize;
    inside.iter().map(|value| (value.log10(), label(*value, decimals(*value)))).collect()
}

/// The least of 1, 2 and 5 times a power of ten that is at least `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|factor| factor * power);
    steps.into_iter().find(|round| *round >= step * 0.999_999).unwrap_or(power * 10.0)
}

/// A number with as many decimals; thousands from 10,000 on as k, millions as M.
fn label(value: f64, decimals: usize) -> String {
    let shorter = |scaled: f64, unit: &str| {
        let text = format!("{scaled:.3}");
        format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    match value.abs() {
        size if size >= 1e6 => shorter(value / 1e6, "M"),
        size if size >= 1e4 => shorter(value / 1e3, "k"),
        _ if value == 0.0 => "0".to_owned(),
        _ => format!("{value:.decimals$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(spacing: Spacing, from_zero: bool, values: &[f64]) -> Vec<String> {
        let axis = FittedAxis::new(spacing, from_zero, values.iter().copied());
        assert!(axis.ticks.iter().all(|(place, _)| (-1e-6..=1.000_001).contains(place)));
        axis.ticks.into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn values_fill_the_axis() {
        for (spacing, values) in [
            (Spacing::Even, [410_000.0, 430_000.0]),
            (Spacing::ByRatio, [410_000.0, 430_000.0]),
            (Spacing::ByRatio, [10.0, 5e6]),
            (Spacing::Even, [-0.03, 0.02]),
        ] {
            let axis = FittedAxis::new(spacing, false, values.into_iter());
            let ends = values.map(|value| axis.share(value).unwrap());
            assert!(ends[0] < 0.05 && ends[0] > 0.0, "{ends:?}");
            assert!(ends[1] > 0.95 && ends[1] < 1.0, "{ends:?}");
            assert!((3..=8).contains(&axis.ticks.len()), "{:?}", axis.ticks);
        }
    }

    #[test]
    fn marks_are_round_and_have_labels_that_differ() {
        assert_eq!(labels(Spacing::Even, true, &[0.2, 0.9]), ["0", "0.2", "0.4", "0.6", "0.8"]);
        assert_eq!(labels(Spacing::Even, false, &[0.98, 1.02]).first().unwrap(), "0.98");
        assert_eq!(
            labels(Spacing::ByRatio, false, &[10.0, 1000.0]),
            ["10", "20", "50", "100", "200", "500", "1000"]
        );
        assert_eq!(labels(Spacing::ByRatio, false, &[1.0, 1e6]).last().unwrap(), "1M");
        assert!(labels(Spacing::Even, false, &[12_000.0, 12_500.0]).contains(&"12.1k".to_owned()));
    }

    #[test]
    fn one_value_none_and_nonsense_have_an_axis() {
        for values in [&[][..], &[f64::NAN], &[0.0], &[5.0, 5.0], &[-1.0], &[1e-12, 1e-12]] {
            for spacing in [Spacing::Even, Spacing::ByRatio] {
                for from_zero in [false, true] {
                    let axis = FittedAxis::new(spacing, from_zero, values.iter().copied());
                    assert!(axis.low < axis.high && axis.ticks.len() < 20, "{values:?} {axis:?}");
                    let shares = values.iter().filter_map(|value| axis.share(*value));
                    shares.for_each(|share| assert!((0.0..=1.0).contains(&share), "{values:?}"));
                }
            }
        }
    }
}
