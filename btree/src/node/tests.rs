//! One node against a model: random sequences of all changes with keys of every shape, splits and
//! merges of the results, and garbage bytes through everything that promises to survive them.
//!
//! After each change [`check_full`] passes, every key is found by the racy search, and a search
//! for keys around it agrees with the model.

use super::{layout::*, *};
use std::collections::BTreeMap;
use wattle_buffer::{PAGE_SIZE, PageId, PageImage, PageMut, PageRef, TreeId, page::header};

type Records = BTreeMap<Vec<u8>, (Vec<u8>, bool)>;

/// Small deterministic generator, so that a failure needs its seed only.
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

/// Checks a leaf against the model, with searches for all keys and for keys next to them.
fn verify_leaf(image: &PageImage, model: &Records) {
    check(&image.0, PageId(100)).unwrap();
    check_full(&image.0).unwrap();
    assert_eq!(&records(image), model);
    let node = node_ref(image);
    assert!(node.is_leaf() && node.level() == 0);
    assert_eq!(node.free_bytes() + node.used_bytes(), PAGE_SIZE);
    for (position, key) in model.keys().enumerate() {
        assert_eq!(node.search(key), Ok(Search { position, found: true }));
        let mut near = vec![[key, &[0][..]].concat()];
        near.push(key[..key.len().saturating_sub(1)].to_vec());
        near.push([&key[..key.len().saturating_sub(1)], &[255][..]].concat());
        for near in near.iter().filter(|near| covers(image, near)) {
            let position = model.range::<Vec<u8>, _>(..near).count();
            let found = model.contains_key(near);
            assert_eq!(node.search(near), Ok(Search { position, found }), "{near:?}");
        }
    }
}

/// Splits a full leaf as the tree would and checks both halves. Returns one of them.
fn split_leaf(
    image: &PageImage,
    model: &Records,
    split: &Split,
    keep_left: bool,
) -> Box<PageImage> {
    let (mut left, mut right) = (PageImage::zeroed(), PageImage::zeroed());
    NodeView::from(image).split_into(split, &mut left, &mut right, PageId(8), PageId(9));
    let mut low = model.clone();
    let high = low.split_off(&split.separator);
    assert_eq!(low.len(), split.position);
    verify_leaf(&left, &low);
    verify_leaf(&right, &high);
    assert_eq!(node_ref(&left).page_id(), PageId(8));
    assert_eq!(node_ref(&right).tree_id(), TreeId(3));
    assert_eq!(fences(&left).1.as_ref(), Some(&split.separator));
    assert_eq!(fences(&right).0, split.separator);

    let mut merged = PageImage::zeroed();
    let views = [NodeView::from(&*left), NodeView::from(&*right)];
    if merge_into(views[0], views[1], &split.separator, &mut merged).is_ok() {
        verify_leaf(&merged, model);
        assert_eq!(fences(&merged), fences(image));
    } else {
        assert!(model.len() > 1, "halves of a node with one record merge again");
    }
    if keep_left { left } else { right }
}

/// A random sequence of changes with splits whenever the leaf is full.
fn leaf_sequence(seed: u64, shape: Shape, large: bool, steps: u64) -> (u64, u64) {
    let mut random = Random(seed);
    let mut image = leaf(&[], None);
    let mut model = Records::new();
    let (mut splits, mut changes) = (0, 0);
    for step in 0..steps {
        let before = image.clone();
        let key = match (random.below(4), model.len()) {
            (0, 1..) => model.keys().nth(random.below(model.len())).unwrap().clone(),
            _ => shape.key(&mut random, step),
        };
        if !covers(&image, &key) {
            continue;
        }
        let found = node_ref(&image).search(&key).unwrap();
        assert_eq!(found.found, model.contains_key(&key));
        let value = value_for(&mut random, &key, large);
        let special = random.below(5) == 0;
        let position = found.position;
        let result = match (found.found, random.below(3)) {
            (true, 0) => {
                edit(&mut image, |node| node.remove_leaf(position));
                model.remove(&key);
                Ok(())
            }
            (true, 1) => {
                let old = model.get_mut(&key).unwrap();
                let from = random.below(old.0.len() + 1);
                let part = &value[..value.len().min(old.0.len() - from)];
                old.0[from..from + part.len()].copy_from_slice(part);
                edit(&mut image, |node| node.write_value(position, from, part));
                Ok(())
            }
            (true, _) => {
                let result = edit(&mut image, |node| node.replace_value(position, &value, special));
                if result.is_ok() {
                    model.insert(key.clone(), (value, special));
                }
                result
            }
            (false, _) => {
                let result =
                    edit(&mut image, |node| node.insert_leaf(position, &key, &value, special));
                if result.is_ok() {
                    model.insert(key.clone(), (value, special));
                }
                result
            }
        };
        changes += u64::from(result.is_ok());
        if result == Err(Full) {
            assert!(image.0 == before.0, "a failed change left traces");
            let split = match found.found {
                true => NodeView::from(&*image).choose_balanced_split(),
                false => NodeView::from(&*image).choose_split(position, &key),
            };
            splits += 1;
            let keep_left = key < split.separator;
            image = split_leaf(&image, &model, &split, keep_left);
            model = match keep_left {
                true => model.range(..split.separator.clone()).map(owned).collect(),
                false => model.range(split.separator.clone()..).map(owned).collect(),
            };
            // So that the range of keys does not shrink to nothing.
            if splits % 4 == 0 {
                image = leaf(&[], None);
                model.clear();
            }
        }
        verify_leaf(&image, &model);
        assert_eq!(image.0[..header::FLAGS], before.0[..header::FLAGS]);
    }
    (splits, changes)
}

fn owned<K: Clone, V: Clone>((key, value): (&K, &V)) -> (K, V) {
    (key.clone(), value.clone())
}

#[test]
fn leaves_agree_with_the_model_for_every_shape_of_keys() {
    for (index, shape) in SHAPES.into_iter().enumerate() {
        for large in [false, true] {
            for round in 0..6 {
                let seed = 1000 * round + 10 * index as u64 + u64::from(large);
                println!("seed {seed}, {shape:?}, large {large}");
                let r = leaf_sequence(seed, shape, large, 1500);
                println!("{r:?}");
            }
        }
    }
}
