//! Random fields (clauses 2.1.5, 2.1.6, 4.3.2).

use crate::rng::Rng;

/// A number in `low..=high`.
#[inline]
pub fn between(rng: &mut Rng, low: u64, high: u64) -> u64 {
    low + rng.below(high - low + 1)
}

/// True with a probability of `percent` in 100.
#[inline]
pub fn percent(rng: &mut Rng, percent: u64) -> bool {
    rng.below(100) < percent
}

/// NURand(A, x, y) of clause 2.1.6: a number in `x..=y`, not uniformly distributed.
#[inline]
pub fn nurand(rng: &mut Rng, a: u64, c: u64, x: u64, y: u64) -> u64 {
    ((between(rng, 0, a) | between(rng, x, y)) + c) % (y - x + 1) + x
}

/// The largest constant C for C_LAST.
pub const LAST_NAME_CONSTANT: u64 = 255;

/// The constants C of NURand, one for each field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// For C_LAST, 0 to 255.
    pub last: u64,
    /// For C_ID, 0 to 1023.
    pub customer: u64,
    /// For OL_I_ID, 0 to 8191.
    pub item: u64,
}

impl Constants {
    /// C for C_LAST of the population.
    pub fn of_load(rng: &mut Rng) -> u64 {
        between(rng, 0, LAST_NAME_CONSTANT)
    }

    /// Constants of a run on a population that was drawn with the constant `load` for C_LAST. The
    /// constant of the run must differ from it by 65 to 119, but not by 96 or 112 (clause 2.1.6.1).
    pub fn of_run(load: u64, rng: &mut Rng) -> Self {
        let last = loop {
            let last = between(rng, 0, LAST_NAME_CONSTANT);
            if is_valid_for_run(load, last) {
                break last;
            }
        };
        Self { last, customer: between(rng, 0, 1023), item: between(rng, 0, 8191) }
    }

    /// A last name.
    #[inline]
    pub fn last_name(&self, rng: &mut Rng) -> LastName {
        LastName::of(nurand(rng, 255, self.last, 0, 999))
    }

    /// A customer.
    #[inline]
    pub fn customer(&self, rng: &mut Rng) -> u16 {
        nurand(rng, 1023, self.customer, 1, super::schema::CUSTOMERS.into()) as u16
    }

    /// An item.
    #[inline]
    pub fn item(&self, rng: &mut Rng) -> u32 {
        nurand(rng, 8191, self.item, 1, super::schema::ITEMS.into()) as u32
    }
}

/// Whether a run may use `run` for C_LAST on a population that used `load` (clause 2.1.6.1).
fn is_valid_for_run(load: u64, run: u64) -> bool {
    let delta = load.abs_diff(run);
    (65..=119).contains(&delta) && delta != 96 && delta != 112
}

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// A last name: three syllables, one for each digit of a number (clause 4.3.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastName {
    bytes: [u8; 15],
    len: u8,
}

impl LastName {
    /// The last name of a number from 0 to 999.
    #[inline]
    pub fn of(number: u64) -> Self {
        let mut name = Self { bytes: [0; 15], len: 0 };
        for digit in [number / 100 % 10, number / 10 % 10, number % 10] {
            let syllable = SYLLABLES[digit as usize].as_bytes();
            let at = usize::from(name.len);
            name.bytes[at..at + syllable.len()].copy_from_slice(syllable);
            name.len += syllable.len() as u8;
        }
        name
    }

    /// Its bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The characters of a-strings: letters and digits (clause 4.3.2.2).
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// Appends a random a-string of `len` characters.
pub fn letters(rng: &mut Rng, len: usize, into: &mut Vec<u8>) {
    let end = into.len() + len;
    while into.len() < end {
        // Each number gives ten characters: its first digits as a fraction to base 62. The tenth is
        // still uniform to one part in 2^64 / 62^10 = 22.
        let mut fraction = rng.next_u64();
        for _ in 0..(end - into.len()).min(10) {
            let product = u128::from(fraction) * LETTERS.len() as u128;
            into.push(LETTERS[(product >> 64) as usize]);
            fraction = product as u64;
        }
    }
}

/// Appends a random n-string of `len` digits.
pub fn digits(rng: &mut Rng, len: usize, into: &mut Vec<u8>) {
    for _ in 0..len {
        into.push(b'0' + rng.below(10) as u8);
    }
}

/// Appends the length and then the characters of a random a-string of `low..=high` characters.
pub fn string(rng: &mut Rng, low: u64, high: u64, into: &mut Vec<u8>) {
    let len = between(rng, low, high);
    into.push(len as u8);
    letters(rng, len as usize, into);
}

/// Appends I_DATA or S_DATA: a length and 26 to 50 characters, which contain "ORIGINAL" if asked
/// for.
pub fn data(rng: &mut Rng, original: bool, into: &mut Vec<u8>) {
    const WORD: &[u8] = b"ORIGINAL";
    let start = into.len() + 1;
    string(rng, 26, 50, into);
    if original {
        let at = start + rng.below((into.len() - start - WORD.len() + 1) as u64) as usize;
        into[at..at + WORD.len()].copy_from_slice(WORD);
    }
}

/// Chooses exactly a tenth of some rows at random, one row after the other (Knuth, "The Art of
/// Computer Programming", 3.4.2, algorithm S).
pub struct Tenth {
    left: u64,
    wanted: u64,
}

impl Tenth {
    /// A choice from `rows` rows.
    pub fn of(rows: u64) -> Self {
        Self { left: rows, wanted: rows / 10 }
    }

    /// Whether the next row is chosen.
    pub fn next(&mut self, rng: &mut Rng) -> bool {
        let chosen = rng.below(self.left) < self.wanted;
        self.left -= 1;
        self.wanted -= u64::from(chosen);
        chosen
    }
}

/// The numbers `1..=count` in random order.
pub fn permutation(rng: &mut Rng, count: u16) -> Vec<u16> {
    let mut numbers: Vec<u16> = (1..=count).collect();
    shuffle(rng, &mut numbers);
    numbers
}

/// Shuffles `items` (Fisher and Yates).
#[inline]
pub fn shuffle<T>(rng: &mut Rng, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_syllables_of_digits() {
        let name = |number| String::from_utf8(LastName::of(number).as_bytes().to_vec()).unwrap();
        assert_eq!(name(371), "PRICALLYOUGHT", "the example of clause 4.3.2.3");
        assert_eq!(name(40), "BARPRESBAR");
        assert_eq!([name(0), name(999)], ["BARBARBAR", "EINGEINGEING"]);
        assert_eq!(name(777).len(), 15);
    }

    #[test]
    fn constants_of_runs_keep_their_distance_from_that_of_the_load() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed, 0);
            let load = Constants::of_load(&mut rng);
            let run = Constants::of_run(load, &mut rng);
            let delta = load.abs_diff(run.last);
            assert!((65..=119).contains(&delta) && delta != 96 && delta != 112, "{load} {run:?}");
            assert!(run.last <= 255 && run.customer <= 1023 && run.item <= 8191);
        }
        assert!(!is_valid_for_run(0, 96) && !is_valid_for_run(112, 0) && !is_valid_for_run(0, 64));
        assert!(is_valid_for_run(0, 65) && is_valid_for_run(119, 0) && !is_valid_for_run(120, 0));
    }

    #[test]
    fn nurand_has_the_distribution_of_its_definition() {
        // Exactly: how often each number comes, over all pairs of draws.
        let (a, c, x, y) = (255, 123, 0, 999);
        let mut expected = vec![0.0; 1000];
        for first in 0..=a {
            for second in x..=y {
                expected[(((first | second) + c) % (y - x + 1) + x) as usize] += 1.0 / 256e3;
            }
        }
        let draws = 2_000_000;
        let mut rng = Rng::new(3, 1);
        let mut counts = vec![0.0; 1000];
        for _ in 0..draws {
            counts[nurand(&mut rng, a, c, x, y) as usize] += 1.0;
        }
        let chi_squared: f64 = counts
            .iter()
            .zip(&expected)
            .map(|(count, share): (&f64, &f64)| {
                (count - share * draws as f64, share * draws as f64)
            })
            .filter(|(_, expected)| *expected > 5.0)
            .map(|(difference, expected)| difference * difference / expected)
            .sum();
        // 999 degrees of freedom at most: a mean of 999 and a deviation of 45.
        assert!(chi_squared < 1250.0, "{chi_squared}");
        assert!((0..1000).all(|_| (1..=3000).contains(&nurand(&mut rng, 1023, 7, 1, 3000))));
    }

    #[test]
    fn letters_are_all_letters_and_digits_alike_at_every_place() {
        let (mut rng, draws) = (Rng::new(5, 3), 62 * 1000);
        let mut counts = [[0u32; 256]; 24];
        for _ in 0..draws {
            let mut text = Vec::new();
            letters(&mut rng, 24, &mut text);
            for (counts, letter) in counts.iter_mut().zip(text) {
                counts[usize::from(letter)] += 1;
            }
        }
        for (place, counts) in counts.iter().enumerate() {
            for (letter, count) in (0..=u8::MAX).zip(counts) {
                // A mean of 1000 and a deviation of 31.
                let expected = if letter.is_ascii_alphanumeric() { 800..1200 } else { 0..1 };
                assert!(expected.contains(count), "{count} of {letter} at {place}");
            }
        }
    }

    #[test]
    fn strings_are_as_long_as_they_say_and_a_tenth_is_exact() {
        let mut rng = Rng::new(1, 2);
        let mut tenth = Tenth::of(1000);
        let mut originals = 0;
        for _ in 0..1000 {
            let mut row = Vec::new();
            let chosen = tenth.next(&mut rng);
            data(&mut rng, chosen, &mut row);
            assert_eq!(usize::from(row[0]), row.len() - 1);
            assert!((26..=50).contains(&row[0]));
            originals += u32::from(super::super::rows::is_original(&row[1..]));
        }
        assert_eq!(originals, 100);
        let mut numbers = permutation(&mut rng, 3000);
        assert!(!numbers.is_sorted());
        numbers.sort();
        assert!(numbers.into_iter().eq(1..=3000));
    }
}
