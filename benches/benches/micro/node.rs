//! Search for a key in one node: a leaf of records of 8 + 120 bytes, a leaf of string keys of 24
//! bytes, and an inner node.

use criterion::Criterion;
use std::hint::black_box;
use wattle_btree::node::{NodeBuilder, NodeRef};
use wattle_buffer::{PageId, PageImage, PageRef, TreeId};
use wattle_workloads::{key::fnv1a, rng::Rng};

const PAGE: PageId = PageId(9);
const TREE: TreeId = TreeId(7);

/// Some sorted keys of a store of a million records.
fn keys(strings: bool) -> Vec<Vec<u8>> {
    let number = |i: u64| fnv1a(i) >> 44;
    let mut keys: Vec<Vec<u8>> = match strings {
        true => (0..4096).map(|i| format!("user{:020}", number(i)).into_bytes()).collect(),
        false => (0..4096).map(|i| number(i).to_be_bytes().to_vec()).collect(),
    };
    keys.sort();
    keys.dedup();
    keys
}

/// A full leaf, and the keys in it.
fn leaf(strings: bool) -> (Box<PageImage>, Vec<Vec<u8>>) {
    let mut builder = NodeBuilder::leaf(PAGE, TREE, &[], None);
    let mut held = keys(strings);
    let count = held.iter().take_while(|key| builder.push(key, &[7; 120], false)).count();
    held.truncate(count);
    let mut image = PageImage::zeroed();
    builder.finish(&mut image).expect("a leaf");
    (image, held)
}

/// A full inner node, and the separators in it.
fn inner() -> (Box<PageImage>, Vec<Vec<u8>>) {
    let mut builder = NodeBuilder::inner(1, PAGE, TREE, &[], None, 1 << 20);
    let mut held = keys(false);
    let children = (1 << 20) + 1..;
    let count = held
        .iter()
        .zip(children)
        .take_while(|(key, child)| builder.push_child(key, *child))
        .count();
    held.truncate(count);
    let mut image = PageImage::zeroed();
    builder.finish(&mut image).expect("an inner node");
    (image, held)
}

pub fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("node");
    for (name, strings) in [("leaf, keys of 8 bytes", false), ("leaf, keys of 24 bytes", true)] {
        let (image, held) = leaf(strings);
        let node = NodeRef::from(PageRef::of_image(&image));
        let mut rng = Rng::new(1, 0);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let key = &held[rng.below(held.len() as u64) as usize];
                let search = black_box(node).search(black_box(key)).expect("no writer");
                assert!(search.found);
                search
            });
        });
    }
    let (image, held) = inner();
    let node = NodeRef::from(PageRef::of_image(&image));
    let mut rng = Rng::new(1, 0);
    group.bench_function("inner node, keys of 8 bytes", |bencher| {
        bencher.iter(|| {
            let key = &held[rng.below(held.len() as u64) as usize];
            black_box(node).child_position(black_box(key)).expect("no writer")
        });
    });
    group.finish();
}
