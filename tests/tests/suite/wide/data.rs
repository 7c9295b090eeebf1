//! Keys, values and changes that chance chooses: of every size for which the engine has a way of
//! its own.

use rand::{RngExt, rngs::SmallRng};
use std::rc::Rc;
use wattle::MAX_KEY;

/// Of a record.
pub type Key = Vec<u8>;
/// Shared by the states in which it is the same.
pub type Value = Rc<Vec<u8>>;
/// Number of a tree, which stays when the tree is renamed.
pub type Id = u32;

/// Records that a tree can have.
pub const UNIVERSE: u32 = 260;
/// Key and value of so many bytes together lie in a leaf, longer ones do not.
const INLINE: usize = 1916;

/// The key of a record of a tree: short ones, the empty one and the longest, ones that differ much
/// in length, or ones with a long common prefix.
pub fn key_of(tree: Id, number: u32) -> Key {
    match (tree % 3, number) {
        (0, 20) => Vec::new(),
        (0, 40) => vec![0xff; MAX_KEY],
        (0, 60) => vec![0xff],
        (0, 80) => vec![0],
        (0, _) => number.to_be_bytes().to_vec(),
        (1, _) => {
            let letter = b'a' + (number / 26 % 26) as u8;
            let mut key = vec![letter; (number % 7) as usize * 150 + 3];
            key.extend(number.to_be_bytes());
            key
        }
        _ => {
            let mut key = b"common/prefix/".repeat(8);
            key.extend(number.to_be_bytes());
            key.resize(key.len() + (number as usize * 13) % 700, 7);
            key
        }
    }
}

/// How many values need pages of their own, and how many.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// A few, and not many.
    Small,
    /// One in eight, up to ten.
    Large,
    /// One in three, up to twenty-five: so much that a small device is full.
    Huge,
}

/// A value for a key of so many bytes.
pub fn value(random: &mut SmallRng, key: usize, sizes: Sizes) -> Vec<u8> {
    let (one_in, most) = match sizes {
        Sizes::Small => (u32::MAX, 16_000),
        Sizes::Large => (8, 40_000),
        Sizes::Huge => (3, 100_000),
    };
    let len = match random.random_range(0..100) {
        _ if random.random_range(0..one_in) == 0 => random.random_range(1900..most),
        0..4 => random.random_range(1900..16_000),
        // Just inline, or just not.
        4..8 => (INLINE.saturating_sub(key) + random.random_range(0..4)).saturating_sub(2),
        8..40 => random.random_range(0..30),
        40..80 => random.random_range(0..400),
        _ => random.random_range(0..1800),
    };
    let mut value = vec![random.random(); len];
    random.fill(&mut value[..len.min(24)]);
    value
}

/// A change of some bytes of a value in place.
#[derive(Clone, Debug)]
pub struct Edit {
    /// Where, how many bytes, and what is added to each.
    runs: Vec<(usize, usize, u8)>,
}

impl Edit {
    /// Of no run of bytes, or of a few.
    pub fn any(random: &mut SmallRng) -> Edit {
        let count = random.random_range(0..3);
        let most = [1, 8, 60, 3000][random.random_range(0..4)];
        let mut run =
            || (random.random_range(0..1 << 20), random.random_range(1..=most), random.random());
        Edit { runs: (0..count).map(|_| run()).collect() }
    }

    /// Changes a value.
    pub fn make(&self, value: &mut [u8]) {
        for (at, len, added) in &self.runs {
            let from = if value.is_empty() { 0 } else { at % value.len() };
            let to = (from + len).min(value.len());
            value[from..to].iter_mut().for_each(|byte| *byte = byte.wrapping_add(*added));
        }
    }

    /// The change of a value.
    pub fn made(&self, value: &[u8]) -> Value {
        let mut value = value.to_vec();
        self.make(&mut value);
        Rc::new(value)
    }
}

/// Kinds of changes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Some bytes of the value, if there is a record.
    Modify,
    /// The value, if there is a record or not.
    Put,
    /// The value, if there is a record.
    Update,
    /// Another record, if there is none.
    Insert,
    /// The record is removed.
    Remove,
}

impl Kind {
    /// In a transaction: most are modified or removed.
    pub fn any(random: &mut SmallRng) -> Kind {
        match random.random_range(0..100) {
            0..30 => Kind::Modify,
            30..50 => Kind::Put,
            50..62 => Kind::Update,
            62..75 => Kind::Insert,
            _ => Kind::Remove,
        }
    }
}

/// A change of one record.
#[derive(Clone)]
pub enum Change {
    /// See [`Kind`].
    Modify(Edit),
    /// See [`Kind`].
    Put(Value),
    /// See [`Kind`].
    Update(Value),
    /// See [`Kind`].
    Insert(Value),
    /// See [`Kind`].
    Remove,
}

impl Change {
    /// Of a kind, for a key of so many bytes.
    pub fn any(random: &mut SmallRng, kind: Kind, key: usize, sizes: Sizes) -> Change {
        match kind {
            Kind::Modify => Change::Modify(Edit::any(random)),
            Kind::Put => Change::Put(Rc::new(value(random, key, sizes))),
            Kind::Update => Change::Update(Rc::new(value(random, key, sizes))),
            Kind::Insert => Change::Insert(Rc::new(value(random, key, sizes))),
            Kind::Remove => Change::Remove,
        }
    }

    /// The change of a record.
    pub fn after(&self, before: Option<&Value>) -> Option<Value> {
        match (self, before) {
            (Change::Modify(edit), Some(before)) => Some(edit.made(before)),
            (Change::Update(value), Some(_)) | (Change::Put(value), _) => Some(value.clone()),
            (Change::Insert(value), before) => Some(before.unwrap_or(value).clone()),
            (Change::Modify(_) | Change::Update(_), None) | (Change::Remove, _) => None,
        }
    }

    /// Whether it is done, and not refused, where there is a record or none.
    pub fn is_done(&self, existed: bool) -> bool {
        match self {
            Change::Put(_) => true,
            Change::Insert(_) => !existed,
            Change::Modify(_) | Change::Update(_) | Change::Remove => existed,
        }
    }

    /// Its name, to print the steps of a seed.
    pub fn name(&self) -> &'static str {
        match self {
            Change::Modify(_) => "modifies",
            Change::Put(_) => "puts",
            Change::Update(_) => "updates",
            Change::Insert(_) => "inserts",
            Change::Remove => "removes",
        }
    }
}
