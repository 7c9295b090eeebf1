//! Garbage: racy reads and the checks survive any bytes, and any node that passes the check can be
//! edited.

use super::*;

/// Calls every racy method. Tests only that they return.
fn read_everything(image: &PageImage, random: &mut Random) {
    let node = node_ref(image);
    node.prefetch();
    let mut into = Vec::new();
    let mut copy = PageImage([0; PAGE_SIZE]);
    for (from, to) in [(0, 1), (2, 9), (0, COUNT_MASK), (9, 2)] {
        let _ = node.copy_entries(from, to, &mut copy, None);
    }
    let keys = [0, 1, 3, 4, 5, 8, 24, 1024].map(|len| random.bytes(len));
    for key in keys.iter().chain([&vec![0; 12], &vec![255; 12]]) {
        let _ = (node.search(key), node.child_position(key));
    }
    let _ = (node.level(), node.is_leaf(), node.count(), node.page_id(), node.tree_id());
    let _ = (node.free_bytes(), node.used_bytes(), node.is_upper_infinite());
    let _ = (node.lower_fence_to(&mut into), node.upper_fence_to(&mut into));
    for position in [0, 1, 15, 16, 17, 200, 511, 512, 5000] {
        let _ = (node.key_to(position, &mut into), node.value_to(position, &mut into));
        if let Ok((at, len, _)) = node.value_range(position) {
            assert!(at + len <= PAGE_SIZE);
        }
        assert!(node.swip_offset(position) <= PAGE_SIZE - 8);
        let _ = node.find_swip(node.swip(position), position);
    }
    let _ = (check(&image.0, PageId(1000)), check_full(&image.0));
}

/// A node with a mix of records, or separators.
fn sample(random: &mut Random, inner: bool) -> Box<PageImage> {
    let shape = SHAPES[random.below(SHAPES.len())];
    let lower = if random.below(2) == 0 { vec![] } else { vec![0] };
    let upper = (random.below(2) == 0).then(|| vec![255; 5]);
    let mut keys: Vec<_> = (0..random.below(400)).map(|i| shape.key(random, i as u64)).collect();
    keys.retain(|key| *key > lower && upper.as_ref().is_none_or(|upper| key < upper));
    keys.sort();
    keys.dedup();
    let (page, tree) = (PageId(7), TreeId(3));
    let mut builder = match inner {
        true => NodeBuilder::inner(1, page, tree, &lower, upper.as_deref(), SWIP_EVICTED | 5),
        false => NodeBuilder::leaf(page, tree, &lower, upper.as_deref()),
    };
    for key in keys {
        let taken = match inner {
            true => builder.push_child(&key, SWIP_EVICTED | 6),
            false => builder.push(&key, &value_for(random, &key, false), false),
        };
        if !taken {
            break;
        }
    }
    let mut image = PageImage::zeroed();
    builder.finish(&mut image).unwrap();
    check_full(&image.0).unwrap();
    image
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random(1);
    let mut image = PageImage::zeroed();
    for _ in 0..3000 {
        let bytes = random.bytes(PAGE_SIZE);
        image.0.copy_from_slice(&bytes);
        // Make some of the fields small, to get past the first check.
        for at in [COUNT, CAPACITY, PREFIX_LEN, LOWER_LEN, UPPER_LEN] {
            if random.below(2) == 0 {
                image.set_u16(at, random.below(300) as u16);
            }
        }
        image.0[header::KIND] = 2 + random.below(2) as u8;
        image.0[header::LEVEL] = image.0[header::KIND] - 2;
        read_everything(&image, &mut random);
    }
}

#[test]
fn damaged_nodes_that_pass_the_check_can_be_edited_without_panic() {
    let mut random = Random(2);
    let (mut passed, mut refused) = (0, 0);
    for round in 0..20_000 {
        let mut image = sample(&mut random, round % 2 == 0);
        let view = NodeView::from(&*image);
        let arrays = arrays_end(view.capacity(), view.is_inner());
        for _ in 0..1 + random.below(4) {
            let limit = [64, arrays, PAGE_SIZE][random.below(3)];
            let at = random.below(limit);
            image.0[at] = match random.below(2) {
                0 => random.next() as u8,
                _ => image.0[at] ^ 1 << random.below(8),
            };
        }
        read_everything(&image, &mut random);
        if check(&image.0, PageId(1000)).is_err() {
            refused += 1;
            continue;
        }
        passed += 1;
        edit_everything(&mut image, &mut random);
    }
    println!("{passed} damaged nodes passed the check, {refused} did not");
    assert!(passed > 1000 && refused > 1000);
}

/// Changes a node whose keys may be in any order.
fn edit_everything(image: &mut PageImage, random: &mut Random) {
    for _ in 0..30 {
        let view = NodeView::from(&*image);
        let (count, inner) = (view.count(), view.is_inner());
        let position = random.below(count + 1);
        let shape = SHAPES[random.below(SHAPES.len())];
        let key = shape.key(random, 1);
        let value = value_for(random, &key, false);
        edit(image, |node| match random.below(4) {
            0 if position < count && inner => node.remove_child(position),
            0 if position < count => node.remove_leaf(position),
            1 if position < count && !inner => {
                let mut old = Vec::new();
                node.view().key_to(position, &mut old);
                if fits_inline(old.len(), value.len()) {
                    let _ = node.replace_value(position, &value, true);
                }
            }
            _ if inner => {
                let _ = (node.room_for(&key), node.room_for_separator(key.len()));
                let _ = node.insert_child(position, &key, 3);
            }
            _ => {
                let _ = node.insert_leaf(position, &key, &value, false);
            }
        });
        check_structure_of(image);
    }
    let view = NodeView::from(&*image);
    if view.count() == 0 {
        return;
    }
    let position = random.below(view.count() + 1);
    let new = Pending { position, key: b"key", value_len: 7 * position % 200 };
    let run = [None, Some(Run::Ascending), Some(Run::Descending)][position % 3];
    let split = view.choose_split(new, run);
    let mut outs = [(); 3].map(|()| PageImage([0; PAGE_SIZE]));
    let [left, right, merged] = &mut outs;
    view.split_into(&split, left, right, PageId(8), PageId(9));
    check_structure_of(left);
    check_structure_of(right);
    let halves = [NodeView::from(&*left), NodeView::from(&*right)];
    if merge_into(halves[0], halves[1], &split.separator, merged).is_ok() {
        check_structure_of(merged);
    }
    if !view.is_inner() {
        let _ = redistribute(&[view, halves[0], halves[1]], &mut vec![merged.clone(); 2]);
    }
}

fn check_structure_of(image: &PageImage) {
    super::super::check::check_structure(&image.0).unwrap();
}
