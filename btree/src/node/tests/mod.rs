//! One node against a model: random sequences of all changes with keys of every shape, splits and
//! merges of the results, and garbage bytes for every function that promises to survive them.
//!
//! After each change [`check_full`] passes, every key is found by the racy search, and a search
//! for keys around it agrees with the model. This file has the generators and helpers.

mod garbage;
mod inner;
mod layouts;
mod leaf;

use super::{layout::*, *};
use std::collections::BTreeMap;
use wattle_buffer::{For, PAGE_SIZE, PageId, PageImage, PageMut, PageRef, TreeId, page::header};

type Records = BTreeMap<Vec<u8>, (Vec<u8>, bool)>;

/// Small deterministic generator: a failure is reproduced by its seed alone.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Families of keys.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Dense,
    Ascending,
    Descending,
    Shared,
    Zeroes,
    Long,
    Random,
    Mixed,
}

const SHAPES: [Shape; 8] = [
    Shape::Dense,
    Shape::Ascending,
    Shape::Descending,
    Shape::Shared,
    Shape::Zeroes,
    Shape::Long,
    Shape::Random,
    Shape::Mixed,
];

impl Shape {
    fn key(self, random: &mut Random, step: u64) -> Vec<u8> {
        match self {
            Shape::Dense => (random.next() % 2000).to_be_bytes().to_vec(),
            Shape::Ascending => (1 << 40 | step).to_be_bytes().to_vec(),
            Shape::Descending => (1 << 40 | (1_000_000 - step)).to_be_bytes().to_vec(),
            Shape::Shared => {
                let group = [&b"a long prefix that all share/"[..], b"a long prefix that", b""];
                let digit = random.below(50);
                [group[random.below(3)], format!("{digit:04}x{}", step % 7).as_bytes()].concat()
            }
            Shape::Zeroes => {
                let mut key = vec![0; random.below(20)];
                if random.below(2) == 0 {
                    key.push(random.below(3) as u8);
                }
                key
            }
            Shape::Long => {
                let mut key = vec![b'k'; 900 + random.below(125)];
                if random.below(3) == 0 {
                    let at = random.below(key.len());
                    key[at] = random.next() as u8;
                }
                key.truncate(MAX_KEY - random.below(2) * random.below(MAX_KEY));
                key
            }
            Shape::Random => {
                let len = random.below(40);
                random.bytes(len)
            }
            Shape::Mixed => SHAPES[random.below(7)].key(random, step),
        }
    }
}

fn value_for(random: &mut Random, key: &[u8], large: bool) -> Vec<u8> {
    let most = MAX_RECORD - key.len().max(HEAD_LEN);
    let len = match random.below(if large { 4 } else { 40 }) {
        0 => random.below(most + 1),
        1 => most,
        _ => random.below(most.min(60) + 1),
    };
    random.bytes(len)
}

fn leaf(lower: &[u8], upper: Option<&[u8]>) -> Box<PageImage> {
    let mut image = PageImage::zeroed();
    NodeBuilder::leaf(PageId(7), TreeId(3), lower, upper).finish(&mut image).unwrap();
    check_full(&image.0).unwrap();
    image
}

fn node_ref(image: &PageImage) -> NodeRef<'_> {
    NodeRef::from(PageRef::of_image(image))
}

/// Calls `change` on the node.
fn edit<T>(image: &mut PageImage, change: impl FnOnce(&mut NodeMut<'_, '_>) -> T) -> T {
    change(&mut NodeMut::new(&mut PageMut::of_image(image)))
}

fn records(image: &PageImage) -> Records {
    let node = node_ref(image);
    (0..node.count())
        .map(|position| {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            node.key_to(position, &mut key).unwrap();
            node.value_to(position, &mut value).unwrap();
            let (at, len, special) = node.value_range(position).unwrap();
            assert_eq!(image.0[at..at + len], value);
            (key, (value, special))
        })
        .collect()
}

fn fences(image: &PageImage) -> (Vec<u8>, Option<Vec<u8>>) {
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    node_ref(image).lower_fence_to(&mut lower).unwrap();
    let finite = node_ref(image).upper_fence_to(&mut upper).unwrap();
    (lower, finite.then_some(upper))
}

/// Whether the fences of a node allow a search for this key.
fn covers(image: &PageImage, key: &[u8]) -> bool {
    let (lower, upper) = fences(image);
    lower.as_slice() <= key && upper.is_none_or(|upper| key < upper.as_slice())
}

/// Keys close to `key`, below and above it.
fn near(key: &[u8]) -> Vec<Vec<u8>> {
    let cut = &key[..key.len().saturating_sub(1)];
    let mut near = vec![cut.to_vec(), [cut, &[255]].concat()];
    if key.len() < MAX_KEY {
        near.push([key, &[0]].concat());
    }
    near
}

/// Sequences for each shape of keys; `WATTLE_ROUNDS` sets another number than the quick default.
fn rounds() -> u64 {
    std::env::var("WATTLE_ROUNDS").map_or(2, |rounds| rounds.parse().expect("a number"))
}
