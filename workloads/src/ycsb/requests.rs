//! The distribution of requests over records.
//!
//! - `uniform`: every record with the same probability.
//! - `zipfian`: Zipfian ranks, scattered over the records by a hash ("scrambled"), so that popular
//!   records are not neighbours. As in the core package, the rank is hashed by FNV-1a and taken
//!   modulo the number of records. In contrast to it, ranks go up to the number of records and not
//!   to ten billion, so that the skew is the one of `--theta`. The core package reserves room for
//!   twice the expected inserts, and draws again until the record exists. Here a record that a run
//!   inserts takes over ranks from all others, in equal parts ([`place`]): every draw is a record
//!   that exists, and popular records stay popular.
//! - `latest`: Zipfian ranks counted back from the newest record.
//! - `hotspot`: 90 % of the requests go to the records in the first tenth of the key space, with
//!   equal probability, the others to the rest: the locality 90/10 of the ACE paper. It is a range
//!   of keys and not any tenth of the records, because the paper speaks of pages, and records with
//!   neighbouring keys share pages.

use clap::ValueEnum;
use serde::Serialize;

use crate::key;
use crate::rng::{GOLDEN, Rng, mix};
use crate::zipf::Zipfian;

/// Request distributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Zipfian, with popular records spread over the key space.
    Zipfian,
    /// All records with the same probability.
    Uniform,
    /// Recently inserted records most often.
    Latest,
    /// Most requests to a range of the key space.
    Hotspot,
}

impl Distribution {
    /// Whether `--theta` sets its skew.
    pub fn has_theta(self) -> bool {
        matches!(self, Distribution::Zipfian | Distribution::Latest)
    }
}

/// Share of the `hotspot` requests that go to the hot part.
const HOT_REQUESTS: f64 = 0.9;

/// Share of the key space that is hot.
const HOT_KEYS: f64 = 0.1;

/// With at least this many records every tenth of the key space has some.
const MANY_RECORDS: u64 = 10_000;

/// Whether record `number` is in the hot part of the key space. Keys are in the order of the hash.
#[inline]
fn is_hot(number: u64) -> bool {
    const END: u64 = (HOT_KEYS * u64::MAX as f64) as u64;
    key::fnv1a(number) < END
}

/// Draws record numbers. Each worker has a clone.
#[derive(Clone, Debug)]
pub struct Requests {
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Uniform,
    /// The ranks, and the number of records when the run began.
    Scrambled(Zipfian, u64),
    Latest(Zipfian),
    Hotspot,
}

/// A record that was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// The record with this number.
    Number(u64),
    /// The newest record for 0, the second newest for 1, and so on.
    Back(u64),
}

impl Drawn {
    /// Its number if there are `records` records, at least as many as when it was drawn.
    #[inline]
    pub fn number(self, records: u64) -> u64 {
        match self {
            Drawn::Number(number) => number,
            Drawn::Back(back) => records - 1 - back,
        }
    }
}

/// The record of the rank whose hash is `hash`, among `records` records, of which the run began
/// with `first`.
///
/// Consistent hashing with the chain of "A Fast, Minimal Memory, Consistent Hash Algorithm"
/// (Lamping and Veach, 2014), which begins at `first`: when a record is added, every rank moves to
/// it with the same probability, one in the number of records. A rank of the last of `n` records is
/// still there at `m` records with probability `n / m`, so the next record to which it moves is `n
/// / u` with `u` uniform. Takes about `1 + ln(records / first)` steps.
#[inline]
fn place(hash: u64, first: u64, records: u64) -> u64 {
    const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
    let (mut number, mut there, mut word) = (hash % first, first, hash);
    loop {
        if there >= records {
            return number;
        }
        word = word.wrapping_add(GOLDEN);
        let uniform = ((mix(word) >> 11) + 1) as f64 * SCALE;
        let next = (there as f64 / uniform) as u64;
        if next >= records {
            return number;
        }
        (number, there) = (next, next + 1);
    }
}

impl Requests {
    /// Requests of `distribution` with skew `theta` among `records` records, to which the run may
    /// add others.
    pub fn new(distribution: Distribution, theta: f64, records: u64) -> Self {
        let form = match distribution {
            Distribution::Uniform => Form::Uniform,
            Distribution::Zipfian => Form::Scrambled(Zipfian::new(records, theta), records),
            Distribution::Latest => Form::Latest(Zipfian::new(records, theta)),
            Distribution::Hotspot => {
                let parts = |wanted| (0..records).any(|number| is_hot(number) == wanted);
                // With few records one part may be empty.
                match records >= MANY_RECORDS || (parts(true) && parts(false)) {
                    true => Form::Hotspot,
                    false => Form::Uniform,
                }
            }
        };
        Self { form }
    }

    /// Draws one of `records` records, their current number. That must not fall from one call to
    /// the next, nor below the number that was given to [`Requests::new`].
    #[inline]
    pub fn draw(&mut self, rng: &mut Rng, records: u64) -> Drawn {
        match &mut self.form {
            Form::Uniform => Drawn::Number(rng.below(records)),
            Form::Scrambled(zipfian, first) => {
                grow(zipfian, records);
                Drawn::Number(place(key::fnv1a(zipfian.next(rng)), *first, records))
            }
            Form::Latest(zipfian) => {
                grow(zipfian, records);
                Drawn::Back(zipfian.next(rng))
            }
            // Ten draws on average for a hot record, for any number of records.
            Form::Hotspot => {
                let hot = rng.unit() < HOT_REQUESTS;
                loop {
                    let number = rng.below(records);
                    if is_hot(number) == hot {
                        return Drawn::Number(number);
                    }
                }
            }
        }
    }
}

/// Added records need a new constant. It is computed after one percent more records, which change
/// it by much less than one percent.
#[inline]
fn grow(zipfian: &mut Zipfian, records: u64) {
    if records - zipfian.items() > zipfian.items() / 100 {
        *zipfian = Zipfian::new(records, zipfian.theta());
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
            counts[requests.draw(&mut rng, records).number(records) as usize] += 1;
        }
        counts
    }

    #[test]
    fn uniform_requests_pass_a_chi_square_test() {
        let counts = counts(&mut Requests::new(Distribution::Uniform, 0.99, 100), 100, 100_000);
        let chi_square: f64 =
            counts.iter().map(|&count| (f64::from(count) - 1000.0).powi(2) / 1000.0).sum();
        // 99 degrees of freedom: mean 99, deviation 14.
        assert!((40.0..180.0).contains(&chi_square), "{chi_square}");
    }

    #[test]
    fn the_most_popular_record_is_where_the_hash_puts_rank_zero() {
        let records = 10_000;
        for theta in [0.5, 0.9, 0.99] {
            let mut requests = Requests::new(Distribution::Zipfian, theta, records);
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
        let mut requests = Requests::new(Distribution::Latest, 0.99, records);
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
        let mut requests = Requests::new(Distribution::Hotspot, 0.99, records);
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
        // Within each part the records are uniform: counts of a Poisson distribution, variance =
        // mean.
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
            let mut requests = Requests::new(Distribution::Hotspot, 0.99, records);
            let counts = counts(&mut requests, records, 20_000);
            assert!(counts.iter().all(|count| *count > 0), "{records}: {counts:?}");
        }
    }

    const ALL: [Distribution; 4] =
        [Distribution::Zipfian, Distribution::Uniform, Distribution::Latest, Distribution::Hotspot];

    #[test]
    fn records_that_are_not_there_yet_are_never_requested() {
        let mut rng = Rng::new(9, 9);
        for distribution in ALL {
            let mut requests = Requests::new(distribution, 0.99, 1000);
            for records in 1000..2000 {
                let draws: Vec<Drawn> = (0..20).map(|_| requests.draw(&mut rng, records)).collect();
                // Also when others were added before it is used.
                for more in [0, 1, 500] {
                    assert!(
                        draws.iter().all(|drawn| drawn.number(records + more) < records + more)
                    );
                }
            }
            let newest =
                (0..2000).map(|_| requests.draw(&mut rng, 2000).number(2000)).max().unwrap();
            assert!(newest >= 1500, "{distribution:?} never reached new records: {newest}");
        }
    }

    #[test]
    fn a_draw_takes_as_many_random_numbers_however_much_the_records_grow() {
        for distribution in [Distribution::Zipfian, Distribution::Uniform, Distribution::Latest] {
            let mut requests = Requests::new(distribution, 0.99, 1000);
            let mut rng = Rng::new(4, 4);
            for records in [1000, 1001, 2000, 100_000, 50_000_000] {
                for _ in 0..100 {
                    let mut expected = rng.clone();
                    expected.next_u64();
                    requests.draw(&mut rng, records);
                    assert_eq!(rng.next_u64(), expected.next_u64(), "{distribution:?} {records}");
                }
            }
        }
    }

    /// With the exact share of each record: that of all ranks that are with it.
    fn shares(first: u64, records: u64, theta: f64) -> Vec<f64> {
        let (mut shares, all) = (vec![0.0; records as usize], zeta(records, theta));
        for rank in 0..records {
            let number = place(key::fnv1a(rank), first, records);
            shares[number as usize] += (rank as f64 + 1.0).powf(-theta) / all;
        }
        shares
    }

    #[test]
    fn scattered_requests_follow_their_distribution_while_records_are_added() {
        let (first, draws) = (1_000u64, 400_000u32);
        for theta in [0.5, 0.9, 0.99] {
            for records in [1_000u64, 1_001, 1_500, 10_000] {
                let mut requests = Requests::new(Distribution::Zipfian, theta, first);
                let counts = counts(&mut requests, records, draws);
                let shares = shares(first, records, theta);
                let measured = |at: usize| f64::from(counts[at]) / f64::from(draws);
                // Total variation: half of the sum of all differences. Chance gives about
                // sqrt(records / draws) / 2, the generator of ranks a few percent.
                let distance: f64 = shares
                    .iter()
                    .enumerate()
                    .map(|(at, share)| (measured(at) - share).abs() / 2.0)
                    .sum();
                let chance = (records as f64 / f64::from(draws)).sqrt() / 2.0;
                assert!(distance < chance + 0.04, "{theta} {records}: {distance}");
                // Old and new records each have their part.
                let new = |of: &dyn Fn(usize) -> f64| -> f64 {
                    (first as usize..records as usize).map(of).sum()
                };
                let (found, expected) = (new(&measured), new(&|at| shares[at]));
                assert!((found - expected).abs() < 0.02, "{theta} {records}: {found} {expected}");
            }
        }
    }

    #[test]
    fn each_new_record_takes_over_its_part_of_the_ranks_and_the_others_stay() {
        let (first, ranks) = (1_000u64, 200_000u64);
        let mut before: Vec<u64> =
            (0..ranks).map(|rank| place(key::fnv1a(rank), first, first)).collect();
        assert!((0..ranks).all(|rank| before[rank as usize] == key::fnv1a(rank) % first));
        let mut records = first;
        while records < 1_100 {
            records += 1;
            let mut moved = 0;
            for rank in 0..ranks {
                let now = place(key::fnv1a(rank), first, records);
                let was = &mut before[rank as usize];
                if now != *was {
                    assert_eq!(now, records - 1, "a rank moves to the new record only");
                    (*was, moved) = (now, moved + 1);
                }
            }
            let expected = ranks as f64 / records as f64;
            // Binomial: five deviations of about the root of the mean.
            assert!((f64::from(moved) - expected).abs() < 5.0 * expected.sqrt(), "{moved}");
        }
        // In many steps the same as in one, and uniform over the records.
        let far = 5_000u64;
        let mut counts = vec![0u32; far as usize];
        (0..ranks).for_each(|rank| counts[place(key::fnv1a(rank), first, far) as usize] += 1);
        let mean = ranks as f64 / far as f64;
        let chi_square: f64 =
            counts.iter().map(|count| (f64::from(*count) - mean).powi(2) / mean).sum();
        // As many degrees of freedom less one: mean 4999, deviation 100.
        assert!((4_500.0..5_500.0).contains(&chi_square), "{chi_square}");
    }
}
