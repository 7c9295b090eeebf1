//! The rows that a subscriber is loaded with (section "Database population").

use super::random::{between, some};
use super::rows::{self, AccessInfo, CallForwarding, SpecialFacility, Subscriber};
use crate::rng::Rng;

/// The rows of a subscriber.
#[derive(Clone, Debug)]
pub struct Population {
    /// Its row.
    pub subscriber: Subscriber,
    /// One to four rows.
    pub access_info: Vec<AccessInfo>,
    /// One to four rows.
    pub special_facilities: Vec<SpecialFacility>,
    /// None to three for each special facility.
    pub call_forwardings: Vec<CallForwarding>,
}

/// The rows of subscriber `id` (section "Database population").
pub fn population(seed: u64, id: u64) -> Population {
    let mut rng = Rng::new(seed, id);
    let rng = &mut rng;
    let subscriber = Subscriber::draw(id, rng);
    let count = between(rng, 1, 4) as usize;
    let types = some(rng, count, [1, 2, 3, 4]);
    let access_info = types.into_iter().map(|ai_type| AccessInfo::draw(id, ai_type, rng)).collect();
    let count = between(rng, 1, 4) as usize;
    let mut call_forwardings = Vec::new();
    let types = some(rng, count, [1, 2, 3, 4]);
    let facility = |sf_type: u8| {
        let facility = SpecialFacility::draw(id, sf_type, rng);
        let count = between(rng, 0, 3) as usize;
        for start in some(rng, count, rows::START_TIMES) {
            call_forwardings.push(CallForwarding::draw(id, sf_type, start, rng));
        }
        facility
    };
    let special_facilities = types.into_iter().map(facility).collect();
    Population { subscriber, access_info, special_facilities, call_forwardings }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_population_has_the_published_shares() {
        let subscribers = 20_000;
        let (mut infos, mut facilities, mut active, mut forwardings) =
            ([0u32; 5], [0u32; 5], 0, [0u32; 4]);
        for id in 1..=subscribers {
            let all = population(5, id);
            infos[all.access_info.len()] += 1;
            facilities[all.special_facilities.len()] += 1;
            for facility in &all.special_facilities {
                active += u32::from(facility.is_active);
                let of_it = |row: &&CallForwarding| row.sf_type == facility.sf_type;
                forwardings[all.call_forwardings.iter().filter(of_it).count()] += 1;
            }
            for row in &all.call_forwardings {
                assert!(rows::START_TIMES.contains(&row.start_time));
                assert!((1..=8).contains(&(row.end_time - row.start_time)));
            }
        }
        for counts in [&infos[..], &facilities[..]] {
            assert_eq!(counts[0], 0);
            assert!(counts[1..].iter().all(|count| count.abs_diff(5_000) < 300), "{counts:?}");
        }
        let all: u32 = forwardings.iter().sum();
        assert!((f64::from(active) / f64::from(all) - 0.85).abs() < 0.01);
        let quarter = all / 4;
        assert!(forwardings.iter().all(|count| count.abs_diff(quarter) < 600), "{forwardings:?}");
    }
}
