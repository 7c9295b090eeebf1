//! Which records are requested.
//!
//! - `uniform`: every record alike.
//! - `zipfian`: Zipfian ranks, scattered over the records by a hash ("scrambled"), so that popular
//!   records are not neighbours. As in the core package, the rank is hashed by FNV-1a and taken
//!   modulo the number of records, and a record that is not there yet is drawn again. Unlike
//!   there, ranks go up to the number of records and not to ten billion, so that the skew is the
//!   one that `--theta` says.
//! - `latest`: Zipfian ranks counted back from the newest record.

use clap::ValueEnum;
use serde::Serialize;

use crate::key;
use crate::rng::Rng;
use crate::zipf::Zipfian;

/// Request distributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Some records much more often than others, wherever they are.
    Zipfian,
    /// All records alike.
    Uniform,
    /// Recently inserted records most often.
    Latest,
}

/// Draws record numbers. Cheap to clone, one for each worker.
#[derive(Clone, Debug)]
pub struct Requests {
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Uniform,
    Scrambled(Zipfian),
    Latest(Zipfian),
}

impl Requests {
    /// Requests of `distribution` with skew `theta` among `records` records, to which the run may
    /// add about `expected_inserts`.
    pub fn new(
        distribution: Distribution,
        theta: f64,
        records: u64,
        expected_inserts: u64,
    ) -> Self {
        let form = match distribution {
            Distribution::Uniform => Form::Uniform,
            Distribution::Zipfian => {
                Form::Scrambled(Zipfian::new(records.saturating_add(expected_inserts), theta))
            }
            Distribution::Latest => Form::Latest(Zipfian::new(records, theta)),
        };
        Self { form }
    }

    /// A number below `records`, the number of records that are there now. It must not fall from
    /// one call to the next, nor be below the number of records that the requests were made for.
    #[inline]
    pub fn next(&mut self, rng: &mut Rng, records: u64) -> u64 {
        match &mut self.form {
            Form::Uniform => rng.below(records),
            Form::Scrambled(zipfian) => loop {
                let number = key::fnv1a(zipfian.next(rng)) % zipfian.items();
                if number < records {
                    return number;
                }
            },
            Form::Latest(zipfian) => {
                // Ranks of all records need a new constant when records are added. One percent
                // more records changes it by far less than one percent.
                if records - zipfian.items() > zipfian.items() / 100 {
                    *zipfian = Zipfian::new(records, zipfian.theta());
                }
                records - 1 - zipfian.next(rng)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zipf::zeta;

    fn counts(requests: &mut Requests, records: u64, draws: u32) -> Vec<u32> {
        let mut rng = Rng::new(5, 0);
        let mut counts = vec![0; records as usize];
        for _ in 0..draws {
            counts[requests.next(&mut rng, records) as usize] += 1;
        }
        counts
    }

    #[test]
    fn uniform_requests_pass_a_chi_square_test() {
        let counts = counts(&mut Requests::new(Distribution::Uniform, 0.99, 100, 0), 100, 100_000);
        let chi_square: f64 =
            counts.iter().map(|&count| (f64::from(count) - 1000.0).powi(2) / 1000.0).sum();
        // 99 degrees of freedom: mean 99, deviation 14.
        assert!((40.0..180.0).contains(&chi_square), "{chi_square}");
    }

    #[test]
    fn the_most_popular_record_is_where_the_hash_puts_rank_zero() {
        let records = 10_000;
        for theta in [0.5, 0.9, 0.99] {
            let mut requests = Requests::new(Distribution::Zipfian, theta, records, 0);
            let counts = counts(&mut requests, records, 500_000);
            let popular = (0..records as usize).max_by_key(|number| counts[*number]).unwrap();
            let share = f64::from(counts[popular]) / 500_000.0;
            let expected = 1.0 / zeta(records, theta);
            if theta > 0.8 {
                assert_eq!(popular as u64, key::fnv1a(0) % records);
                assert!((expected * 0.95..expected * 1.3).contains(&share), "{share} {expected}");
            }
            let requested = counts.iter().filter(|&&count| count > 0).count();
            assert!(requested > 4000, "the hash scatters over all records, {requested} requested");
        }
    }

    #[test]
    fn the_latest_records_are_the_most_popular() {
        let records = 10_000u64;
        let mut requests = Requests::new(Distribution::Latest, 0.99, records, 0);
        let counts = counts(&mut requests, records, 500_000);
        let expected = 500_000.0 / zeta(records, 0.99);
        for (back, share) in [(0, 1.0), (1, 0.5f64.powf(0.99))] {
            let count = f64::from(counts[9_999 - back]);
            assert!((count / (expected * share) - 1.0).abs() < 0.05, "{back}: {count}");
        }
        assert!(counts[5_000] < 100);
    }

    #[test]
    fn records_that_are_not_there_yet_are_never_requested() {
        let mut rng = Rng::new(9, 9);
        for distribution in [Distribution::Zipfian, Distribution::Uniform, Distribution::Latest] {
            let mut requests = Requests::new(distribution, 0.99, 1000, 1000);
            for records in 1000..2000 {
                assert!((0..20).all(|_| requests.next(&mut rng, records) < records));
            }
            let newest = (0..2000).map(|_| requests.next(&mut rng, 2000)).max().unwrap();
            assert!(newest >= 1500, "{distribution:?} never reached new records: {newest}");
        }
    }
}
