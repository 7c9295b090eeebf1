//! The learning of watt2: the probability that a page of a class is used again at an age, and from
//! it the worth of keeping the page.
//!
//! Ages are in ticks. For each class and range of ages there is a count of events (pages that were
//! used again at this age) and an exposure (pages of this age, times the misses for which they had
//! it). Their quotient is a hazard rate. The index of a page is the largest quotient, over all
//! horizons, of the probability that it is used within the horizon by the time until its use or the
//! horizon (the Gittins index of a job that may be stopped): the expected uses per time that its
//! frame is taken. A relearning copies the counts. The indices of a class are computed from the
//! copy at their first use, because most caches have pages of few classes at a time.

use super::look_ahead::{AGES, Row, indices};

/// Single ticks.
const SINGLE: u32 = 8;

/// Weight of the prior, in events.
const PRIOR: f32 = 4.0;

/// Most events of a class.
const MOST_EVENTS: f32 = 5000.0;

/// The range that `age` is in.
#[inline]
pub fn range(age: u32) -> usize {
    // From 4 on, the exponent of a float and the next two bits are its octave and quarter.
    let quarters = ((age as i32 as f32).to_bits() >> 21) as i32 - 512;
    quarters.max(age.min(4) as i32).min(AGES as i32 - 1) as usize
}

/// First age of a range; for the range after the last one, its assumed end.
const fn first(range: usize) -> f32 {
    if range < SINGLE as usize {
        return range as f32;
    }
    let (octave, quarter) = ((range - SINGLE as usize) / 4, (range - SINGLE as usize) % 4);
    ((1u32 << octave) * 2 * (4 + quarter as u32)) as f32
}

/// Lengths of the ranges, in ticks.
pub fn lengths() -> Row {
    std::array::from_fn(|range| first(range + 1) - first(range))
}

/// The age in the middle of a range.
fn middle(range: usize) -> f32 {
    (first(range) + first(range + 1)) / 2.0
}

/// The prior of a class.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// Distance of the last two uses, in ticks; `None` after one use.
    pub distance: Option<f32>,
    /// Recent uses.
    pub frequency: f32,
    /// Classes with the same number share what they learned, as a prior.
    pub group: Option<usize>,
}

impl Class {
    /// The rate of use per tick at `age` by its history alone.
    fn expected(&self, age: f32) -> f32 {
        match self.distance {
            None => 0.1 / age,
            Some(distance) => {
                (2.0 / (distance + age)).max(self.frequency / 32.0 / (1.0 + age / 32.0))
            }
        }
    }
}

/// Counts of a class.
#[derive(Clone, Copy, Debug)]
struct Counts {
    events: Row,
    exposures: Row,
    /// Whether all of them are 0.
    nothing: bool,
}

const NOTHING: Counts = Counts { events: [0.0; AGES], exposures: [0.0; AGES], nothing: true };

/// Counts whose sum fades below this become 0.
const NEGLIGIBLE: f32 = 1e-3;

impl Counts {
    fn add(&mut self, other: &Counts) {
        for range in 0..AGES {
            self.events[range] += other.events[range];
            self.exposures[range] += other.exposures[range];
        }
    }
}

/// Events, exposures and indices of some classes.
#[derive(Debug)]
pub struct Index {
    classes: Vec<Class>,
    /// Factor of the expected uses at ages without observations.
    optimism: f32,
    power: f32,
    lengths: Row,
    expected: Vec<Row>,
    events: Vec<Row>,
    exposures: Vec<Row>,
    /// Counts of each class and of each group at the last relearning.
    learned: Vec<Counts>,
    pooled: Vec<Counts>,
    /// Uses per miss at the last relearning, divided by the expected uses per tick.
    level: f32,
    /// Misses per tick.
    tick: f32,
    /// Indices to the power; `UNKNOWN` if not computed since then.
    index: Vec<Row>,
}

/// A value that no index has.
const UNKNOWN: f32 = -1.0;

/// The position of a class and an age in the tables.
#[derive(Clone, Copy, Debug)]
pub struct Cell(usize);

impl Cell {
    /// The cell of pages of `class` and `age`.
    #[inline(always)]
    pub fn of(class: usize, age: u32) -> Self {
        Self(class * AGES + range(age))
    }

    /// Its position among all cells.
    #[inline]
    pub fn position(self) -> usize {
        self.0
    }
}

/// The sum of all numbers, in four parts so that it does not wait for each.
fn sum(row: &Row) -> f32 {
    let mut parts = [0.0; 4];
    for four in row.chunks_exact(4) {
        for (part, number) in parts.iter_mut().zip(four) {
            *part += number;
        }
    }
    (parts[0] + parts[2]) + (parts[1] + parts[3])
}

impl Index {
    /// Without observations: the indices of the priors, to the power `power`.
    pub fn new(classes: Vec<Class>, optimism: f32, power: f32) -> Self {
        let groups =
            classes.iter().filter_map(|class| class.group).max().map_or(0, |most| most + 1);
        let expected = |class: &Class| std::array::from_fn(|range| class.expected(middle(range)));
        let expected = classes.iter().map(expected).collect();
        let zeros = vec![[0.0; AGES]; classes.len()];
        let mut index = Self {
            optimism,
            power,
            lengths: lengths(),
            expected,
            events: zeros.clone(),
            exposures: zeros.clone(),
            learned: vec![NOTHING; classes.len()],
            pooled: vec![NOTHING; groups],
            level: 0.0,
            tick: 0.0,
            index: zeros,
            classes,
        };
        index.relearn(1.0, 1.0);
        index
    }

    /// Number of cells.
    pub fn cells(&self) -> usize {
        self.events.len() * AGES
    }

    /// Pages that were at the cell with this position were used again `times` times.
    pub fn used_times(&mut self, position: usize, times: f32) {
        self.events.as_flattened_mut()[position] += times;
    }

    /// A page that was at `cell` is used again.
    #[inline]
    pub fn used(&mut self, cell: Cell) {
        self.events.as_flattened_mut()[cell.0] += 1.0;
    }

    /// `pages` pages are at `cell`, for the length of a miss.
    #[inline]
    pub fn seen(&mut self, cell: Cell, pages: f32) {
        self.exposures.as_flattened_mut()[cell.0] += pages;
    }

    /// Expected uses per tick of keeping a page, to the power.
    #[inline]
    pub fn of(&mut self, cell: Cell) -> f32 {
        let index = self.index.as_flattened()[cell.0];
        if index == UNKNOWN { self.look_ahead(cell) } else { index }
    }

    #[cold]
    fn look_ahead(&mut self, cell: Cell) -> f32 {
        let class = cell.0 / AGES;
        let (expected, learned) = (&self.expected[class], &self.learned[class]);
        let estimate =
            |events: f32, exposure: f32, prior: f32| (events + PRIOR) / (exposure + PRIOR / prior);
        let mut rates = [0.0; AGES];
        match self.classes[class].group {
            None => {
                for range in 0..AGES {
                    let prior = self.level * expected[range];
                    rates[range] = estimate(learned.events[range], learned.exposures[range], prior);
                }
            }
            Some(group) => {
                let pooled = &self.pooled[group];
                for range in 0..AGES {
                    let prior = self.level * expected[range];
                    let shared = estimate(pooled.events[range], pooled.exposures[range], prior);
                    let prior = (prior * shared).sqrt();
                    rates[range] = estimate(learned.events[range], learned.exposures[range], prior);
                }
            }
        }
        for rate in &mut rates {
            *rate *= self.tick;
        }
        self.index[class] = indices(&rates, &self.lengths, self.power);
        self.index.as_flattened()[cell.0]
    }

    /// Learns from all counts, with ticks of `tick` misses, and multiplies the counts by `fade`.
    pub fn relearn(&mut self, tick: f32, fade: f32) {
        self.tick = tick;
        self.pooled.fill(NOTHING);
        // Uses per miss, divided by the expected uses per tick.
        let (mut all_events, mut all_expected) = (1.0, tick);
        for class in 0..self.classes.len() {
            let (events, exposures) = (&mut self.events[class], &mut self.exposures[class]);
            let learned = &mut self.learned[class];
            let sum_events = sum(events);
            if sum_events + sum(exposures) < NEGLIGIBLE {
                // Most classes have no pages most of the time.
                if !learned.nothing {
                    (*events, *exposures, *learned) = ([0.0; AGES], [0.0; AGES], NOTHING);
                }
                continue;
            }
            (learned.events, learned.exposures, learned.nothing) = (*events, *exposures, false);
            if let Some(group) = self.classes[class].group {
                self.pooled[group].add(learned);
            }
            let fade = fade.min(MOST_EVENTS / sum_events.max(1.0));
            let mut expected = [0.0; AGES];
            for range in 0..AGES {
                expected[range] = exposures[range] * self.expected[class][range];
                events[range] *= fade;
                exposures[range] *= fade;
            }
            all_events += sum_events;
            all_expected += sum(&expected);
        }
        self.level = self.optimism * all_events / all_expected;
        self.index.as_flattened_mut().fill(UNKNOWN);
    }
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
    fn what_is_seen_moves_the_index_from_the_prior() {
        let class = Class { distance: Some(4.0), frequency: 2.0, group: None };
        let mut index = Index::new(vec![class], 0.1, 1.0);
        let before = index.of(Cell::of(0, 5));
        (0..1000).for_each(|_| index.seen(Cell::of(0, 5), 10.0));
        index.relearn(1.0, 1.0);
        assert!(index.of(Cell::of(0, 5)) < before);
        (0..3000).for_each(|_| index.used(Cell::of(0, 5)));
        index.relearn(1.0, 1.0);
        assert!((index.of(Cell::of(0, 5)) - 0.3).abs() < 0.05, "{}", index.of(Cell::of(0, 5)));
    }
}
