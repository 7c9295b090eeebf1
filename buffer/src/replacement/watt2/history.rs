//! The history of a page for watt2, the classes of a page, and WATT's value.

use super::{
    ghost::{Ghost, OCTAVES},
    index::Class,
};

/// Ticks start here, so that 0 can stand for no stamp.
pub const FIRST_TICK: u32 = 1 << 30;

/// Half-life of recent uses, in ticks.
const HALVING: f32 = 128.0;

/// Octaves of recent uses that distinguish classes.
const FREQUENCIES: usize = 8;

/// The history of a page: 26 bytes, and three flags for the simulator. The engine has flags of its
/// own. In the engine threads may change a history at once, so stamps may be in a wrong order.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub struct History {
    /// Last uses, newest first; 0 is none.
    pub uses: [u32; 3],
    /// Last writes.
    pub writes: [u32; 2],
    /// Recent uses, fading.
    pub frequency: f32,
    /// Classes of the page, so that evictions need not compute them.
    pub(super) class: u8,
    pub(super) write_class: u8,
    /// Whether the page came in within the newest tick. Only such pages note a second use within a
    /// tick, to estimate its probability.
    pub came: bool,
    /// Whether it came in within the newest tick and was not used since.
    pub fresh: bool,
    /// Whether the page is a candidate for the next eviction.
    pub kept: bool,
}

impl History {
    /// A page with these last two uses and recent uses.
    pub fn new(last: u32, before: u32, frequency: f32) -> Self {
        let mut history = Self { uses: [last, before, 0], frequency, ..Self::default() };
        history.classify();
        history
    }

    /// Class of its uses: one, several in one tick, or octave of the last distance by octave of
    /// frequency.
    #[inline]
    pub fn class(&self) -> usize {
        usize::from(self.class)
    }

    /// Class of its writes: octave of their last distance.
    #[inline]
    pub fn write_class(&self) -> usize {
        usize::from(self.write_class)
    }

    /// A second use within the tick in which the page came in.
    #[inline]
    pub fn used_again(&mut self) {
        if self.uses[1] == 0 {
            self.class = AGAIN as u8;
        }
    }

    /// Whether a use within the tick in which the page came in would be noted.
    #[inline]
    pub fn notes_uses_within(&self) -> bool {
        self.class() != AGAIN
    }

    fn classify(&mut self) {
        let class = self.octave().map_or(0, |octave| class(octave, self.frequency as u32));
        self.class = class as u8;
    }

    /// Octave of the distance of the last two uses; none after one use.
    pub fn octave(&self) -> Option<u32> {
        let [last, before, _] = self.uses;
        (before != 0).then(|| last.saturating_sub(before).max(1).ilog2().min(OCTAVES - 1))
    }

    /// The memory of the page when it is evicted.
    pub fn ghost(&self) -> Ghost {
        let frequency = match self.class() {
            AGAIN => 1,
            _ => (self.frequency as u32).max(1).ilog2(),
        };
        Ghost { last: self.uses[0], octave: self.octave(), frequency }
    }

    /// The history of a page that comes back.
    pub fn of_ghost(ghost: &Ghost) -> Self {
        let before = ghost
            .octave
            .map_or(0, |octave| ghost.last.saturating_sub(distance(octave as usize) as u32));
        let frequency = if before == 0 { 1.0 } else { (1u32 << ghost.frequency) as f32 };
        let mut history = Self::new(ghost.last, before, frequency);
        if ghost_class(ghost) == AGAIN {
            history.used_again();
        }
        history
    }

    /// A use at `now`, not the newest.
    pub fn push(&mut self, now: u32) {
        let [last, before, _] = self.uses;
        let faded = self.frequency * (-(now.saturating_sub(last) as f32) / HALVING).exp2();
        self.frequency = 1.0 + faded;
        self.uses = [now, last, before];
        (self.came, self.fresh) = (false, false);
        self.classify();
    }

    /// A write at `now`, not the newest.
    pub fn push_write(&mut self, now: u32) {
        let [last, _] = self.writes;
        self.writes = [now, last];
        if last != 0 {
            self.write_class = 1 + now.saturating_sub(last).max(1).ilog2().min(OCTAVES - 1) as u8;
        }
    }
}

/// Misses between two relearnings, for a pool of `frames`.
pub fn relearn_misses(frames: usize) -> usize {
    (frames / 10).max(60)
}

/// The factor of all counts at a relearning: they halve in 8 replacements of the pool, or in 8000
/// misses if that is more.
pub fn fade(frames: usize) -> f32 {
    0.5f32.powf(relearn_misses(frames) as f32 / (8 * frames).max(8000) as f32)
}

/// Older stamps count as none.
const OLDEST: usize = 4096;

/// WATT's value over three stamps, to the power of its weight in the product.
#[derive(Debug)]
pub struct Recency {
    /// Powers of 1 / age, and 0 for all that is older at the end. No stamp is older, because ticks
    /// start late.
    of_age: Box<[f32; OLDEST + 2]>,
    /// Powers of the damped 1, 2 and 3.
    orders: [f32; 3],
}

impl Recency {
    /// With this weight.
    pub fn new(mix: f32) -> Self {
        let mut of_age = Box::new([0.0; OLDEST + 2]);
        for (age, power) in of_age[..=OLDEST].iter_mut().enumerate() {
            *power = (1.0 / age.max(1) as f32).powf(mix);
        }
        Self { of_age, orders: [0.1, 2.0, 3.0].map(|order: f32| order.powf(mix)) }
    }

    /// The value at `now`.
    #[inline]
    pub fn of(&self, uses: [u32; 3], now: u32) -> f32 {
        let subfrequency = |order: usize| {
            let age = (now.saturating_sub(uses[order]) + 1) as usize;
            self.orders[order] * self.of_age[age.min(OLDEST + 1)]
        };
        // `f32::max` would also test for NaN.
        let larger = |a: f32, b: f32| if a > b { a } else { b };
        larger(larger(subfrequency(0), subfrequency(1)), subfrequency(2))
    }
}

/// The class of pages with this octave of their last distance and these recent uses.
pub fn class(octave: u32, frequency: u32) -> usize {
    let frequency = (frequency.max(1).ilog2() as usize).min(FREQUENCIES - 1);
    1 + octave as usize * FREQUENCIES + frequency
}

/// The class of pages that were used in one tick only, but more than once in it.
const AGAIN: usize = 1 + OCTAVES as usize * FREQUENCIES;

/// The class of an evicted page.
pub fn ghost_class(ghost: &Ghost) -> usize {
    match ghost.octave {
        None if ghost.frequency > 0 => AGAIN,
        None => 0,
        Some(octave) => class(octave, 1 << ghost.frequency),
    }
}

/// The distance that represents its octave.
pub fn distance(octave: usize) -> f32 {
    1.5 * (1u32 << octave) as f32
}

/// The classes of uses.
pub fn use_classes() -> Vec<Class> {
    let once = Class { distance: None, frequency: 1.0, group: None };
    let others = (0..OCTAVES as usize).flat_map(|octave| {
        (0..FREQUENCIES).map(move |frequency| Class {
            distance: Some(distance(octave)),
            frequency: 1.5 * (1u32 << frequency) as f32,
            group: Some(octave),
        })
    });
    let again = Class { frequency: 2.0, ..once };
    std::iter::once(once).chain(others).chain(std::iter::once(again)).collect()
}

/// The classes of writes.
pub fn write_classes() -> Vec<Class> {
    let once = Class { distance: None, frequency: 0.0, group: None };
    let others = (0..OCTAVES as usize).map(|octave| Class {
        distance: Some(distance(octave)),
        frequency: 0.0,
        group: None,
    });
    std::iter::once(once).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_back_from_its_memory_in_its_class() {
        let mut history = History::new(FIRST_TICK, 0, 1.0);
        assert_eq!(history.class(), 0);
        assert!(history.notes_uses_within());
        for step in 0..300u32 {
            let ghost = history.ghost();
            let back = History::of_ghost(&ghost);
            assert_eq!((back.class(), ghost_class(&ghost)), (history.class(), history.class()));
            assert_eq!(back.uses[0], history.uses[0]);
            match step {
                0 => history.used_again(),
                _ => history.push(history.uses[0] + 1 + step * step % 97),
            }
            // Later uses do not make a page with a distance one of a single tick.
            history.used_again();
            assert_eq!(history.notes_uses_within(), step > 0);
        }
    }

    #[test]
    fn counts_halve_in_eight_replacements() {
        for frames in [10_000, 100_000] {
            let relearnings = 8 * frames / relearn_misses(frames);
            assert!((fade(frames).powi(relearnings as i32) - 0.5).abs() < 1e-3);
        }
        assert_eq!((relearn_misses(10), fade(10)), (60, fade(500)));
    }
}
