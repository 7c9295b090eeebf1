//! Keys, values and random numbers. All engines get the same ones.

use crate::store::{KEY, Key};

/// Random bytes that values are cut from.
const POOL_BYTES: usize = 4 << 20;

/// Skew of the Zipfian distribution, that of YCSB.
const THETA: f64 = 0.99;

fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The key of record `number`. Neighbouring numbers have keys in random places.
pub fn key(number: u64) -> Key {
    let mut key = *b"user00000000000000000000";
    let mut digits = mix(number);
    let mut place = KEY;
    while digits > 0 {
        place -= 1;
        key[place] = b'0' + (digits % 10) as u8;
        digits /= 10;
    }
    key
}

/// Random numbers (SplitMix64).
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// The next number.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(limit)) >> 64) as u64
    }

    /// The numbers below `limit` in random order.
    pub fn permutation(&mut self, limit: u64) -> Vec<u64> {
        let mut numbers: Vec<_> = (0..limit).collect();
        for place in (1..numbers.len()).rev() {
            numbers.swap(place, self.below(place as u64 + 1) as usize);
        }
        numbers
    }
}

/// Record numbers as YCSB draws them (Gray et al., SIGMOD 1994, section 3.2). Number 0 is the most
/// frequent; its key lies anywhere.
pub struct Zipf {
    records: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Over `records` numbers, at least 2.
    pub fn new(records: u64) -> Self {
        let zeta = |n: u64| (1..=n).map(|i| (i as f64).powf(-THETA)).sum::<f64>();
        let all = zeta(records);
        let records = records as f64;
        let eta = (1.0 - (2.0 / records).powf(1.0 - THETA)) / (1.0 - zeta(2) / all);
        Self { records, zeta: all, eta }
    }

    /// The next record number.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let unit = (rng.word() >> 11) as f64 / (1_u64 << 53) as f64;
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(THETA) {
            return 1;
        }
        let place = (self.eta * unit - self.eta + 1.0).powf(1.0 / (1.0 - THETA));
        ((self.records * place) as u64).min(self.records as u64 - 1)
    }
}

/// Values of one length, incompressible.
pub struct Values {
    pool: Vec<u8>,
    len: usize,
}

impl Values {
    /// Values of `len` bytes, at most 4 MiB.
    pub fn new(len: usize) -> Self {
        let mut rng = Rng::new(7);
        let words = POOL_BYTES / 8 + len / 8;
        let pool = (0..=words).flat_map(|_| rng.word().to_le_bytes()).collect();
        Self { pool, len }
    }

    /// A random value.
    pub fn draw(&self, rng: &mut Rng) -> &[u8] {
        let start = rng.below(POOL_BYTES as u64) as usize;
        &self.pool[start..start + self.len]
    }
}
