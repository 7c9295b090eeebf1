//! Mean and 95 % confidence interval of replays with several seeds.

use super::replay::{Counts, Device};

/// Half of the width of the 95 % confidence interval of each mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Number of replays.
    pub replays: usize,
    /// Of the misses.
    pub misses: f64,
    /// Of the reads.
    pub reads: f64,
    /// Of all writes.
    pub writes: f64,
    /// Of the cost, in microseconds.
    pub cost: f64,
    /// Of the processor time, in nanoseconds per access.
    pub cpu_ns_per_access: f64,
}

/// The mean of `samples`, of which there is at least one, and the interval if there are more.
pub fn summarise(samples: &[Counts], device: &Device) -> (Counts, Option<Spread>) {
    let mean = |of: &dyn Fn(&Counts) -> u64| {
        (samples.iter().map(|counts| of(counts) as f64).sum::<f64>() / samples.len() as f64).round()
            as u64
    };
    let counts = Counts {
        accesses: samples[0].accesses,
        misses: mean(&|counts| counts.misses),
        reads: mean(&|counts| counts.reads),
        writes: mean(&|counts| counts.writes),
        writes_at_end: mean(&|counts| counts.writes_at_end),
        read_requests: mean(&|counts| counts.read_requests),
        write_requests: mean(&|counts| counts.write_requests),
        write_runs: mean(&|counts| counts.write_runs),
        cpu: samples.iter().map(|counts| counts.cpu).sum::<std::time::Duration>()
            / samples.len() as u32,
        bytes_per_page: samples[0].bytes_per_page,
    };
    let half = |of: &dyn Fn(&Counts) -> f64| half_width(samples.iter().map(of));
    let spread = (samples.len() > 1).then(|| Spread {
        replays: samples.len(),
        misses: half(&|counts| counts.misses as f64),
        reads: half(&|counts| counts.reads as f64),
        writes: half(&|counts| counts.all_writes() as f64),
        cost: half(&|counts| counts.cost(device)),
        cpu_ns_per_access: half(&Counts::cpu_ns_per_access),
    });
    (counts, spread)
}

/// Half of the width of the 95 % confidence interval of the mean of two or more values.
fn half_width(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let number = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / number;
    let squares = values.map(|value| (value - mean).powi(2)).sum::<f64>();
    student(number as usize - 1) * (squares / (number - 1.0) / number).sqrt()
}

/// The 97.5 % quantile of Student's t with `freedom` degrees of freedom; beyond 30 by the first
/// terms of its expansion (Abramowitz and Stegun, 26.7.5).
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    const NORMAL: f64 = 1.959_964;
    let freedoms = freedom as f64;
    let beyond = NORMAL
        + (NORMAL.powi(3) + NORMAL) / (4.0 * freedoms)
        + (5.0 * NORMAL.powi(5) + 16.0 * NORMAL.powi(3) + 3.0 * NORMAL) / (96.0 * freedoms.powi(2));
    TABLE.get(freedom.wrapping_sub(1)).copied().unwrap_or(beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_students_t() {
        // Mean 3, standard deviation 1.5811, four degrees of freedom: 2.776 x 1.5811 / sqrt(5).
        let half = half_width([1.0, 2.0, 3.0, 4.0, 5.0].into_iter());
        assert!((half - 1.963).abs() < 0.001, "{half}");
        assert!((student(31) - 2.0395).abs() < 0.0002, "{}", student(31));
        assert!((student(1000) - 1.9623).abs() < 0.001);
    }

    #[test]
    fn equal_replays_have_no_spread_and_one_has_none() {
        let counts = Counts { accesses: 10, misses: 4, reads: 4, ..Counts::default() };
        let device = Device::default();
        assert_eq!(summarise(&[counts], &device), (counts, None));
        let (mean, spread) = summarise(&[counts, Counts { misses: 6, ..counts }], &device);
        let spread = spread.unwrap();
        assert_eq!((mean.misses, spread.replays, spread.writes), (5, 2, 0.0));
        assert!((spread.misses - 12.706).abs() < 0.001, "{spread:?}");
    }
}
