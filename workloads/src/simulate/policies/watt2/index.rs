//! What watt2 learns: how likely pages of a class are to be used again at an age, and the worth of
//! keeping them that follows.
//!
//! Ages are in ticks. For each class and range of ages there is a count of events (pages that were
//! used again at this age) and an exposure (pages that were this old, times the misses for which
//! they were). Their quotient is a hazard rate. The index of a page is the largest quotient, over
//! all horizons, of the probability that it is used within the horizon by the time until its use or
//! the horizon (the Gittins index of a job that may be stopped): the uses that it promises per time
//! that its frame is taken.

/// Ranges of ages: single ticks below 8, then four for each octave.
pub const AGES: usize = 44;

/// Single ticks.
const SINGLE: u32 = 8;

/// Weight of the prior, in events.
const PRIOR: f32 = 4.0;

/// Most events of a class that are remembered.
const MOST_EVENTS: f32 = 5000.0;

/// The range that `age` is in.
#[inline]
pub fn range(age: u32) -> usize {
    if age < SINGLE {
        return age as usize;
    }
    let octave = age.ilog2();
    let quarter = (age >> (octave - 2)) & 3;
    ((SINGLE + (octave - 3) * 4 + quarter) as usize).min(AGES - 1)
}

/// First age of a range; that of the range after the last is where it is taken to end.
const fn first(range: usize) -> f32 {
    if range < SINGLE as usize {
        return range as f32;
    }
    let (octave, quarter) = ((range - SINGLE as usize) / 4, (range - SINGLE as usize) % 4);
    ((1u32 << octave) * 2 * (4 + quarter as u32)) as f32
}

/// Lengths of the ranges and the ages in their middles.
fn length(range: usize) -> f32 {
    first(range + 1) - first(range)
}
fn middle(range: usize) -> f32 {
    (first(range) + first(range + 1)) / 2.0
}

/// What is known of a class before anything was learned.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// Distance of the last two uses, in ticks; none if there was one use.
    pub distance: Option<f32>,
    /// Uses of late.
    pub frequency: f32,
    /// Classes with the same number share what they learned, as a prior.
    pub group: Option<usize>,
}

impl Class {
    /// The rate of use per tick at `age` that its history alone suggests.
    fn expected(&self, age: f32) -> f32 {
        match self.distance {
            None => 0.1 / age,
            Some(distance) => {
                (2.0 / (distance + age)).max(self.frequency / 32.0 / (1.0 + age / 32.0))
            }
        }
    }
}

/// Events, exposures and indices of some classes.
#[derive(Debug)]
pub struct Index {
    classes: Vec<Class>,
    groups: usize,
    /// How many times more often than expected unobserved ages are taken to be used.
    optimism: f32,
    expected: Vec<[f32; AGES]>,
    events: Vec<[f32; AGES]>,
    exposures: Vec<[f32; AGES]>,
    /// Rates per tick of each class, as of the last time that all was computed.
    rates: Vec<[f32; AGES]>,
    /// Indices to the power, of the classes that were asked for since then.
    index: Vec<[f32; AGES]>,
    fresh: Vec<bool>,
    power: f32,
}

impl Index {
    /// Nothing learned yet; the indices are those of the priors. They are given to the power
    /// `power`.
    pub fn new(classes: Vec<Class>, optimism: f32, power: f32) -> Self {
        let groups =
            classes.iter().filter_map(|class| class.group).max().map_or(0, |most| most + 1);
        let expected = |class: &Class| std::array::from_fn(|range| class.expected(middle(range)));
        let expected = classes.iter().map(expected).collect();
        let zeros = vec![[0.0; AGES]; classes.len()];
        let fresh = vec![false; classes.len()];
        let mut index = Self {
            classes,
            groups,
            optimism,
            expected,
            events: zeros.clone(),
            exposures: zeros.clone(),
            rates: zeros.clone(),
            index: zeros,
            fresh,
            power,
        };
        index.recompute(1.0, 1.0);
        index
    }

    /// A page of `class` was used again at `age`.
    #[inline]
    pub fn used(&mut self, class: usize, age: u32) {
        self.events[class][range(age)] += 1.0;
    }

    /// `pages` pages of `class` are as old as `age`, for the length of a miss.
    #[inline]
    pub fn seen(&mut self, class: usize, age: u32, pages: f32) {
        self.exposures[class][range(age)] += pages;
    }

    /// Uses per tick that keeping a page promises, to the power.
    #[inline]
    pub fn of(&mut self, class: usize, age: u32) -> f32 {
        if !self.fresh[class] {
            self.look_ahead(class);
        }
        self.index[class][range(age)]
    }

    /// Most caches have pages of few classes at a time, so only these are looked after.
    #[cold]
    fn look_ahead(&mut self, class: usize) {
        self.index[class] = indices(&self.rates[class]).map(|index| index.powf(self.power));
        self.fresh[class] = true;
    }

    /// Computes all rates anew, for ticks of `tick` misses, and lets what was learned fade to
    /// `fade`.
    pub fn recompute(&mut self, tick: f32, fade: f32) {
        let classes = self.classes.len();
        // How often pages are used per miss, against what is expected per tick.
        let (mut events, mut expected) = (1.0, tick);
        for class in 0..classes {
            for range in 0..AGES {
                events += self.events[class][range];
                expected += self.exposures[class][range] * self.expected[class][range];
            }
        }
        let level = self.optimism * events / expected;
        let (mut pooled_events, mut pooled_exposures) =
            (vec![[0.0; AGES]; self.groups], vec![[0.0; AGES]; self.groups]);
        for class in 0..classes {
            if let Some(group) = self.classes[class].group {
                for range in 0..AGES {
                    pooled_events[group][range] += self.events[class][range];
                    pooled_exposures[group][range] += self.exposures[class][range];
                }
            }
        }
        for class in 0..classes {
            self.rates[class] = std::array::from_fn(|range| {
                let prior = level * self.expected[class][range];
                let estimate = |events: f32, exposure: f32, prior: f32| {
                    (events + PRIOR) / (exposure + PRIOR / prior)
                };
                let prior = match self.classes[class].group {
                    None => prior,
                    Some(group) => {
                        let (events, exposure) =
                            (pooled_events[group][range], pooled_exposures[group][range]);
                        (prior * estimate(events, exposure, prior)).sqrt()
                    }
                };
                tick * estimate(self.events[class][range], self.exposures[class][range], prior)
            });
            self.fresh[class] = false;
            let sum: f32 = self.events[class].iter().sum();
            let fade = fade.min(MOST_EVENTS / sum.max(1.0));
            for range in 0..AGES {
                self.events[class][range] *= fade;
                self.exposures[class][range] *= fade;
            }
        }
    }
}

/// The index at the beginning of each range, for a rate of use per tick in each.
fn indices(rates: &[f32; AGES]) -> [f32; AGES] {
    // Probability to get through a range unused, and the expected time in it.
    let mut through = [0.0; AGES];
    let mut time = [0.0; AGES];
    for range in 0..AGES {
        through[range] = (-rates[range] * length(range)).exp();
        time[range] = (1.0 - through[range]) / rates[range];
    }
    std::array::from_fn(|from| {
        // The best quotient so far is used / best_time.
        let (mut unused, mut spent, mut used, mut best_time) = (1.0f32, 0.0f32, 0.0f32, 1.0f32);
        for range in from..AGES {
            spent += unused * time[range];
            unused *= through[range];
            if (1.0 - unused) * best_time > used * spent {
                (used, best_time) = (1.0 - unused, spent);
            }
        }
        used / best_time
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_meet_and_grow() {
        for age in 0..5000u32 {
            let range = range(age);
            assert!(first(range) <= age as f32);
            assert!((age as f32) < first(range + 1) || range == AGES - 1, "{age}");
        }
        assert_eq!((range(8), range(9), range(10), range(15), range(16)), (8, 8, 9, 11, 12));
    }

    #[test]
    fn the_index_looks_ahead_to_the_age_at_which_a_loop_comes_round() {
        let mut rates = [0.001; AGES];
        rates[range(24)] = 1.0;
        let index = indices(&rates);
        // The closer the use is, the more a page is worth; after it, little.
        assert!(
            index[0] < index[8]
                && index[8] < index[range(20)]
                && index[range(20)] < index[range(24)]
        );
        assert!(index[range(32)] < index[0]);
        // A constant rate is its own index.
        assert!(indices(&[0.25; AGES]).iter().all(|index| (index - 0.25).abs() < 1e-4));
    }

    #[test]
    fn what_is_seen_moves_the_index_from_the_prior() {
        let class = Class { distance: Some(4.0), frequency: 2.0, group: None };
        let mut index = Index::new(vec![class], 0.1, 1.0);
        let before = index.of(0, 5);
        (0..1000).for_each(|_| index.seen(0, 5, 10.0));
        index.recompute(1.0, 1.0);
        assert!(index.of(0, 5) < before);
        (0..3000).for_each(|_| index.used(0, 5));
        index.recompute(1.0, 1.0);
        assert!((index.of(0, 5) - 0.3).abs() < 0.05, "{}", index.of(0, 5));
    }
}
