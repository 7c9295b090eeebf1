//! Pages that cannot leave for a while, because they are latched, pinned, or above pages in use
//! (Gilbert 2020, section 1.2.1).
//!
//! Time runs in periods of as many accesses as the pool has frames. In each of them every page is
//! held with the same probability, drawn from page, period and seed: the same pages for all
//! policies, and a page that is asked for again soon is still held. After as many refusals in a row
//! as twice the frames the next victim leaves, held or not.

use super::pool::Page;
use crate::rng::{GOLDEN, mix};

/// The pages that are held.
#[derive(Clone, Copy, Debug)]
pub struct Pins {
    /// A page is held if its random number is below this.
    below: u64,
    seed: u64,
    period: u64,
    /// Most refusals in a row.
    pub most: usize,
}

impl Pins {
    /// `share` of the pages, from 0 to below 1, in a pool of `capacity` frames.
    pub fn new(share: f64, seed: u64, capacity: usize) -> Self {
        let below = (share * 2f64.powi(64)) as u64;
        Self { below, seed: mix(seed), period: capacity as u64, most: 2 * capacity }
    }

    /// Whether `page` is held at the access with number `now`.
    pub fn hold(&self, page: Page, now: u64) -> bool {
        let period = (now / self.period).wrapping_mul(GOLDEN);
        mix(self.seed ^ mix(u64::from(page.0) ^ period)) < self.below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_pages_is_held_for_a_period() {
        let pins = Pins::new(0.2, 7, 100);
        let held = |now| (0..10_000).filter(|page| pins.hold(Page(*page), now)).collect::<Vec<_>>();
        let first = held(0);
        assert!((1800..2200).contains(&first.len()), "{}", first.len());
        assert_eq!(first, held(99));
        assert_ne!(first, held(100));
        assert!((0..100).all(|page| !Pins::new(0.0, 7, 100).hold(Page(page), 5)));
    }
}
