//! Which records are requested.
//!
//! - `uniform`: every record alike.
//! - `zipfian`: Zipfian ranks, scattered over the records by a hash ("scrambled"), so that popular
//!   records are not neighbours. As in the core package, the rank is hashed by FNV-1a and taken
//!   modulo the number of records, and a record that is not there yet is drawn again. Unlike
//!   there, ranks go up to the number of records and not to ten billion, so that the skew is the
//!   one that `--theta` says.
//! - `latest`: Zipfian ranks counted back from the newest record.
//! - `hotspot`: 90 % of the requests go to the records in the first tenth of the key space, alike, the
//!   others to the rest: the locality 90/10 of the ACE paper. It is a part of the key space and not any
//!   tenth of the records, because the paper means pages, and records that lie together share them.

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
    /// Most requests to a part of the key space.
    Hotspot,
}

impl Distribution {
    /// Whether `--theta` says how skewed it is.
    pub fn has_theta(self) -> bool {
        matches!(self, Distribution::Zipfian | Distribution::Latest)
    }
}

/// Share of the `hotspot` requests that go to the hot part.
const HOT_REQUESTS: f64 = 0.9;

/// Share of the key space that is hot.
const HOT_KEYS: f64 = 0.1;

/// With at least so many records there are some in every tenth of the key space.
const MANY_RECORDS: u64 = 10_000;

/// Whether record `number` is in the hot part of the key space. Keys are in the order of the hash.
#[inline]
fn is_hot(number: u64) -> bool {
    const END: u64 = (HOT_KEYS * u64::MAX as f64) as u64;
    key::fnv1a(number) < END
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
    Hotspot,
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
            Distribution::Hotspot => {
                let parts = |wanted| (0..records).any(|number| is_hot(number) == wanted);
                // A handful of records may leave one part empty.
                match records >= MANY_RECORDS || (parts(true) && parts(false)) {
                    true => Form::Hotspot,
                    false => Form::Uniform,
                }
            }
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
            // Ten draws on average for a hot record, which cost less than its look-up.
            Form::Hotspot => {
                let hot = rng.unit() < HOT_REQUESTS;
                loop {
                    let number = rng.below(records);
                    if is_hot(number) == hot {
                        return number;
                    }
                }
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
    fn a_tenth_of_the_key_space_gets_nine_tenths_of_hotspot_requests() {
        let (records, draws) = (100_000, 1_000_000);
        let mut requests = Requests::new(Distribution::Hotspot, 0.99, records, 0);
        let counts = counts(&mut requests, records, draws);
        let mut by_key: Vec<(u64, u32)> =
            (0..records).map(|number| (key::fnv1a(number), counts[number as usize])).collect();
        by_key.sort_unstable();
        let tenths: Vec<f64> = by_key
            .chunks(records as usize / 10)
            .map(|part| part.iter().map(|(_, count)| f64::from(*count)).sum::<f64>() / 1e6)
            .collect();
        // The first tenth of the keys is the first tenth of the key space, but for chance.
        assert!((tenths[0] - 0.9).abs() < 0.01, "{tenths:?}");
        for rest in &tenths[2..] {
            assert!((rest - 0.1 / 9.0).abs() < 0.001, "{tenths:?}");
        }
        // Within each part all records are alike: counts of a Poisson distribution, variance = mean.
        for (part, mean) in [(&by_key[..9_500], 90.0), (&by_key[10_500..], 10.0 / 9.0)] {
            let deviation = |count: u32| (f64::from(count) - mean).powi(2);
            let sum: f64 = part.iter().map(|(_, count)| deviation(*count)).sum();
            let variance = sum / part.len() as f64;
            assert!((variance / mean - 1.0).abs() < 0.1, "{mean}: {variance}");
        }
    }

    #[test]
    fn hotspot_requests_of_a_few_records_reach_all_of_them() {
        for records in 1..40 {
            let mut requests = Requests::new(Distribution::Hotspot, 0.99, records, 0);
            let counts = counts(&mut requests, records, 20_000);
            assert!(counts.iter().all(|count| *count > 0), "{records}: {counts:?}");
        }
    }

    #[test]
    fn records_that_are_not_there_yet_are_never_requested() {
        let mut rng = Rng::new(9, 9);
        for distribution in [
            Distribution::Zipfian,
            Distribution::Uniform,
            Distribution::Latest,
            Distribution::Hotspot,
        ] {
            let mut requests = Requests::new(distribution, 0.99, 1000, 1000);
            for records in 1000..2000 {
                assert!((0..20).all(|_| requests.next(&mut rng, records) < records));
            }
            let newest = (0..2000).map(|_| requests.next(&mut rng, 2000)).max().unwrap();
            assert!(newest >= 1500, "{distribution:?} never reached new records: {newest}");
        }
    }
}
