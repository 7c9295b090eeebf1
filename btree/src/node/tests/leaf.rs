//! Leaves: a row of them that covers all keys, as in a tree without inner nodes, changed at random.

use super::*;
use crate::record::{Op, redo};

struct Row {
    leaves: Vec<Box<PageImage>>,
    model: Records,
}

/// How often each thing happened in a sequence.
#[derive(Default, Debug)]
struct Counts {
    changes: usize,
    splits: usize,
    merges: usize,
    redistributions: usize,
    shifts: usize,
}

impl Row {
    fn index_of(&self, key: &[u8]) -> usize {
        self.leaves.partition_point(|leaf| fences(leaf).0.as_slice() <= key) - 1
    }

    /// Checks one leaf against the model, with searches for all its keys and for keys near them.
    fn verify(&self, index: usize) {
        let image = &self.leaves[index];
        check(&image.0, PageId(100)).unwrap();
        check_full(&image.0).unwrap();
        let (lower, upper) = fences(image);
        let next = self.leaves.get(index + 1).map(|leaf| fences(leaf).0);
        assert_eq!(upper, next, "neighbours share a fence");
        let model: Records = match &upper {
            Some(upper) => self.model.range(lower..upper.clone()),
            None => self.model.range(lower..),
        }
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
        assert_eq!(records(image), model);
        let node = node_ref(image);
        assert!(node.is_leaf() && node.level() == 0 && node.tree_id() == TreeId(3));
        assert_eq!(node.free_bytes() + node.used_bytes(), PAGE_SIZE);
        assert_eq!(node.used_bytes(), NodeView::from(&**image).used_bytes());
        // A scan reads nothing else from its copy than what was copied.
        let mut copy = PageImage([0xa5; PAGE_SIZE]);
        node.copy_entries(0, node.count(), &mut copy, Some(node.page())).unwrap();
        assert_eq!(records(&copy), model);
        for (position, key) in model.keys().enumerate() {
            assert_eq!(node.search(key), Ok(Search { position, found: true }));
            for near in near(key).iter().filter(|near| covers(image, near)) {
                let position = model.range::<Vec<u8>, _>(..near).count();
                let found = model.contains_key(near);
                assert_eq!(node.search(near), Ok(Search { position, found }), "{near:?}");
                // From the previous record, and from the first one.
                for from in [position.checked_sub(1), (position > 0).then_some(0)] {
                    let Some(from) = from else { continue };
                    let after = node.search_after(from, near, For::Read);
                    assert_eq!(after, Ok(Some(Search { position, found })), "{near:?}");
                }
            }
            if let Some(upper) = &upper {
                assert_eq!(node.search_after(position, upper, For::Read), Ok(None));
            }
        }
    }

    fn split(&mut self, index: usize, split: &Split) {
        let (mut left, mut right) = (PageImage::zeroed(), PageImage::zeroed());
        let image = &self.leaves[index];
        NodeView::from(&**image).split_into(split, &mut left, &mut right, PageId(8), PageId(9));
        assert_eq!(node_ref(&left).count(), split.position);
        assert_eq!((node_ref(&left).page_id(), node_ref(&right).page_id()), (PageId(8), PageId(9)));
        assert_eq!(fences(&left).1.as_ref(), Some(&split.separator));
        self.leaves.splice(index..=index, [left, right]);
        self.verify(index);
        self.verify(index + 1);
    }

    /// Splits for a new record, or for one that grows.
    fn split_for(&mut self, index: usize, random: &mut Random, new: Option<Pending<'_>>) {
        let run = [None, Some(Run::Ascending), Some(Run::Descending)][random.below(3)];
        let view = NodeView::from(&*self.leaves[index]);
        let split = match new {
            None => view.choose_balanced_split(),
            Some(new) => view.choose_split(new, run),
        };
        self.split(index, &split);
    }

    /// Inserts a record that finds room.
    fn insert(&mut self, key: &[u8], value: &[u8], special: bool) {
        let index = self.index_of(key);
        let leaf = &mut self.leaves[index];
        let position = node_ref(leaf).search(key).unwrap().position;
        edit(leaf, |node| node.insert_leaf(position, key, value, special)).unwrap();
        self.model.insert(key.to_vec(), (value.to_vec(), special));
        self.verify(index);
    }

    fn merge(&mut self, index: usize) -> bool {
        let views = [0, 1].map(|i| NodeView::from(&*self.leaves[index + i]));
        let mut merged = PageImage::zeroed();
        let size = merged_size(views[0], views[1]);
        if merge_into(views[0], views[1], views[1].lower(), &mut merged).is_err() {
            assert!(size > PAGE_SIZE / 2, "{size} bytes did not fit");
            return false;
        }
        self.leaves.splice(index..=index + 1, [merged]);
        self.verify(index);
        true
    }

    /// Moves records of the leaf at `index` to a neighbour to make room. Redo of the ops in the log
    /// must give the same leaves.
    fn shift(&mut self, index: usize, to_right: bool, new: Pending<'_>) -> bool {
        let other = if to_right { index + 1 } else { index.wrapping_sub(1) };
        let Some(taker) = self.leaves.get(other) else { return false };
        let giver = &self.leaves[index];
        let view = NodeView::from(&**giver);
        // Old contents do no harm.
        let mut images = [(); 2].map(|()| Box::new(PageImage([0xa5; PAGE_SIZE])));
        let [new_giver, new_taker] = &mut images;
        let taker_view = NodeView::from(&**taker);
        let shift = view.choose_shift(taker_view, new, to_right, [new_giver, new_taker]);
        let Some(shift) = shift else {
            return false;
        };
        let (position, separator) = (shift.position, &shift.separator[..]);
        let kept = match to_right {
            true => Op::Truncate { position, separator },
            false => Op::KeepRight { position, separator },
        };
        let taken = Op::Take { at_right: !to_right, fence: separator, records: &shift.records };
        for (before, op, after) in [(giver, kept, &images[0]), (taker, taken, &images[1])] {
            let mut image = before.clone();
            let (code, front, parts) = op.parts();
            let payload = [front.bytes(), parts[0], parts[1]].concat();
            redo(&mut image, node_ref(before).page_id(), code, &payload).unwrap();
            assert!(image.0 == after.0, "redo of {op:?} gives another leaf");
            // Cut short, or of the other leaf: an error or another leaf, no panic.
            for len in [0, 1, 2, payload.len() / 2, payload.len() - 1] {
                let mut image = before.clone();
                let _ = redo(&mut image, node_ref(before).page_id(), code, &payload[..len]);
            }
        }
        [self.leaves[index], self.leaves[other]] = images;
        self.verify(index);
        self.verify(other);
        true
    }

    fn redistribute(&mut self, index: usize, nodes: usize) -> bool {
        let views: Vec<_> =
            self.leaves[index..index + nodes].iter().map(|leaf| NodeView::from(&**leaf)).collect();
        let mut outs = vec![PageImage([0; PAGE_SIZE]); nodes - 1];
        let Some(separators) = redistribute(&views, &mut outs) else {
            return false;
        };
        for (separator, out) in separators.iter().zip(&outs[1..]) {
            assert_eq!(&fences(out).0, separator);
        }
        assert_eq!(separators.len(), nodes - 2);
        self.leaves.splice(index..index + nodes, outs.into_iter().map(Box::new));
        (index..index + nodes - 1).for_each(|index| self.verify(index));
        true
    }
}

/// A random sequence of changes with splits whenever a leaf is full.
fn sequence(seed: u64, shape: Shape, large: bool, steps: u64) -> Counts {
    let mut random = Random(seed);
    let mut row = Row { leaves: vec![leaf(&[], None)], model: Records::new() };
    let mut counts = Counts::default();
    for step in 0..steps {
        let key = match (random.below(4), row.model.len()) {
            (0, 1..) => row.model.keys().nth(random.below(row.model.len())).unwrap().clone(),
            _ => shape.key(&mut random, step),
        };
        let removing = step / 500 % 3 == 2;
        let value = value_for(&mut random, &key, large);
        let special = random.below(5) == 0;
        loop {
            let index = row.index_of(&key);
            let image = &mut row.leaves[index];
            let before = image.clone();
            let Search { position, found } = node_ref(image).search(&key).unwrap();
            assert_eq!(found, row.model.contains_key(&key));
            let choice = if removing { random.below(2) } else { random.below(6) };
            let result = edit(image, |node| match (found, choice) {
                (true, 0) => {
                    node.remove_leaf(position);
                    row.model.remove(&key);
                    Ok(())
                }
                (true, 1) => {
                    let old = &mut row.model.get_mut(&key).unwrap().0;
                    let from = value.len().min(old.len()) / 2;
                    let part = &value[..value.len().min(old.len() - from)];
                    old[from..from + part.len()].copy_from_slice(part);
                    node.write_value(position, from, part);
                    Ok(())
                }
                _ => {
                    let result = match found {
                        true => node.replace_value(position, &value, special),
                        false => node.insert_leaf(position, &key, &value, special),
                    };
                    if result.is_ok() {
                        row.model.insert(key.clone(), (value.clone(), special));
                    }
                    result
                }
            });
            assert_eq!(
                image.0[header::PAGE_ID..header::END],
                before.0[header::PAGE_ID..header::END]
            );
            if result.is_ok() {
                counts.changes += 1;
                row.verify(index);
                break;
            }
            assert!(image.0 == before.0, "a failed change left traces");
            let new = Pending { position, key: &key, value_len: value.len() };
            if !found && row.shift(index, random.below(2) == 0, new) {
                counts.shifts += 1;
                row.insert(&key, &value, special);
                break;
            }
            row.split_for(index, &mut random, (!found).then_some(new));
            counts.splits += 1;
        }
        let len = row.leaves.len();
        if len > 1 && random.below(if removing { 3 } else { 50 }) == 0 {
            counts.merges += usize::from(row.merge(random.below(len - 1)));
        }
        let (len, nodes) = (row.leaves.len(), 2 + random.below(4));
        if len >= nodes && random.below(if removing { 3 } else { 30 }) == 0 {
            let index = random.below(len - nodes + 1);
            counts.redistributions += usize::from(row.redistribute(index, nodes));
        }
    }
    (0..row.leaves.len()).for_each(|index| row.verify(index));
    counts
}

#[test]
fn leaves_agree_with_the_model_for_every_shape_of_keys() {
    let rounds = rounds();
    for (index, shape) in SHAPES.into_iter().enumerate() {
        for large in [false, true] {
            for round in 0..rounds {
                let seed = 1000 * round + 10 * index as u64 + u64::from(large);
                print!("seed {seed}, {shape:?}, large {large}: ");
                println!("{:?}", sequence(seed, shape, large, 2000));
            }
        }
    }
}

#[test]
fn three_large_records_with_long_separators_find_room() {
    // The new record shares 1023 bytes with both neighbours, so that no half takes two of them.
    let mut row = Row { leaves: vec![leaf(&[], None)], model: Records::new() };
    let key = |last: u8| [&[b'k'; MAX_KEY - 1][..], &[last]].concat();
    let value = vec![1; MAX_RECORD - MAX_KEY];
    for last in [1, 3, 2, 5, 4, 0, 9, 8] {
        loop {
            let index = row.index_of(&key(last));
            let position = node_ref(&row.leaves[index]).search(&key(last)).unwrap().position;
            let insert =
                |node: &mut NodeMut<'_, '_>| node.insert_leaf(position, &key(last), &value, false);
            if edit(&mut row.leaves[index], insert).is_ok() {
                row.model.insert(key(last), (value.clone(), false));
                row.verify(index);
                break;
            }
            let view = NodeView::from(&*row.leaves[index]);
            let split = view
                .choose_split(Pending { position, key: &key(last), value_len: value.len() }, None);
            row.split(index, &split);
        }
    }
}

#[test]
fn a_leaf_with_the_longest_fences_takes_the_largest_record() {
    let fence = |first: u8| [&[first][..], &[b'f'; MAX_KEY - 1]].concat();
    for key_len in [1, 3, 4, 5, 12, 500, MAX_KEY] {
        let mut image = leaf(&fence(b'a'), Some(&fence(b'z')));
        let value = vec![1; MAX_RECORD - key_len.max(HEAD_LEN)];
        assert!(!fits_inline(key_len, value.len() + 1));
        edit(&mut image, |node| node.insert_leaf(0, &vec![b'k'; key_len], &value, true)).unwrap();
        check_full(&image.0).unwrap();
    }
}

#[test]
fn ascending_inserts_leave_full_leaves() {
    for descending in [false, true] {
        let mut row = Row { leaves: vec![leaf(&[], None)], model: Records::new() };
        for step in 0..2000u64 {
            let key =
                if descending { 1 << 40 | (5000 - step) } else { 1 << 40 | step }.to_be_bytes();
            let value = (vec![7; 100], false);
            loop {
                let index = row.index_of(&key);
                let position = node_ref(&row.leaves[index]).search(&key).unwrap().position;
                let insert =
                    |node: &mut NodeMut<'_, '_>| node.insert_leaf(position, &key, &value.0, false);
                if edit(&mut row.leaves[index], insert).is_ok() {
                    row.model.insert(key.to_vec(), value);
                    break;
                }
                let view = NodeView::from(&*row.leaves[index]);
                let split = view
                    .choose_split(Pending { position, key: &key, value_len: value.0.len() }, None);
                row.split(index, &split);
            }
        }
        // 112 bytes each, 35 to a page.
        assert!(row.leaves.len() <= 2000 / 35 + 1, "{} leaves", row.leaves.len());
    }
}
