//! Inner nodes: a row of them, as one level of a tree, changed at random. The swip of a child is
//! the number that the model gives it.

use super::*;

struct Row {
    nodes: Vec<Box<PageImage>>,
    /// Swip of the child that starts at each separator; the first one starts at the empty key.
    model: BTreeMap<Vec<u8>, u64>,
}

fn inner(child: u64) -> Box<PageImage> {
    let mut image = PageImage::zeroed();
    NodeBuilder::inner(2, PageId(7), TreeId(3), &[], None, child).finish(&mut image).unwrap();
    image
}

fn swip(number: u64) -> u64 {
    SWIP_EVICTED | number
}

impl Row {
    fn index_of(&self, key: &[u8]) -> usize {
        self.nodes.partition_point(|node| fences(node).0.as_slice() <= key) - 1
    }

    fn verify(&self, index: usize) {
        let image = &self.nodes[index];
        check(&image.0, PageId(1 << 40)).unwrap();
        check_full(&image.0).unwrap();
        let (lower, upper) = fences(image);
        let model: Vec<_> = match &upper {
            Some(upper) => self.model.range(lower.clone()..upper.clone()),
            None => self.model.range(lower.clone()..),
        }
        .collect();
        let node = node_ref(image);
        assert!(!node.is_leaf() && node.level() == 2);
        assert_eq!(node.count() + 1, model.len());
        assert_eq!(node.used_bytes(), NodeView::from(&**image).used_bytes());
        for (position, (separator, child)) in model.iter().enumerate() {
            assert_eq!(node.child_position(separator), Ok(position), "{separator:?}");
            assert_eq!(node.swip(position), **child);
            assert_eq!(image.u64_at(node.swip_offset(position)), **child);
            for hint in [position, 0, 1000] {
                assert_eq!(node.find_swip(**child, hint), Some(position));
            }
            if position > 0 {
                let mut key = Vec::new();
                node.key_to(position - 1, &mut key).unwrap();
                assert_eq!(key, **separator);
            }
            for near in near(separator).iter().filter(|near| covers(image, near)) {
                let expected = model.iter().filter(|(key, _)| *key <= near).count() - 1;
                assert_eq!(node.child_position(near), Ok(expected), "{near:?}");
            }
        }
        assert_eq!(node.find_swip(0, 0), None);
    }
}

fn sequence(seed: u64, shape: Shape, steps: u64) -> (usize, usize, usize) {
    let mut random = Random(seed);
    let mut row = Row { nodes: vec![inner(swip(1))], model: [(vec![], swip(1))].into() };
    let (mut changes, mut splits, mut merges) = (0, 0, 0);
    for step in 0..steps {
        let key = match (random.below(4), row.model.len()) {
            (0, 2..) => row.model.keys().nth(random.below(row.model.len())).unwrap().clone(),
            _ => shape.key(&mut random, step),
        };
        let removing = step / 700 % 3 == 2;
        loop {
            let index = row.index_of(&key);
            let image = &mut row.nodes[index];
            let before = image.clone();
            let position = node_ref(image).child_position(&key).unwrap();
            let number = swip(step + 2);
            let is_fence = fences(image).0 == key;
            let result = edit(image, |node| match row.model.get_mut(&key) {
                Some(_) if !is_fence && (removing || random.below(5) == 0) => {
                    node.remove_child(position - 1);
                    row.model.remove(&key);
                    Ok(())
                }
                Some(child) => {
                    node.set_swip(position, number);
                    *child = number;
                    Ok(())
                }
                None => {
                    let any = node.room_for_separator(key.len());
                    let room = node.room_for(&key);
                    let result = node.insert_child(position, &key, number);
                    assert_eq!(room, result.is_ok(), "room_for does not tell the truth");
                    assert!(!any || room, "room_for_separator promises too much");
                    if result.is_ok() {
                        row.model.insert(key.clone(), number);
                    }
                    result
                }
            });
            if result.is_ok() {
                changes += 1;
                row.verify(index);
                break;
            }
            assert!(image.0 == before.0, "a failed change left traces");
            let view = NodeView::from(&**image);
            let split = view.choose_split(Pending { position, key: &key, value_len: 0 }, None);
            let (mut left, mut right) = (PageImage::zeroed(), PageImage::zeroed());
            view.split_into(&split, &mut left, &mut right, PageId(8), PageId(9));
            assert_eq!(node_ref(&left).count(), split.position);
            row.nodes.splice(index..=index, [left, right]);
            row.verify(index);
            row.verify(index + 1);
            splits += 1;
        }
        if row.nodes.len() > 1 && random.below(if removing { 3 } else { 50 }) == 0 {
            let index = random.below(row.nodes.len() - 1);
            let views = [0, 1].map(|i| NodeView::from(&*row.nodes[index + i]));
            let mut merged = PageImage::zeroed();
            let separator = fences(&row.nodes[index + 1]).0;
            if merge_into(views[0], views[1], &separator, &mut merged).is_ok() {
                assert_eq!(node_ref(&merged).page_id(), views[0].page_id());
                row.nodes.splice(index..=index + 1, [merged]);
                row.verify(index);
                merges += 1;
            }
        }
    }
    (0..row.nodes.len()).for_each(|index| row.verify(index));
    (changes, splits, merges)
}

#[test]
fn inner_nodes_agree_with_the_model_for_every_shape_of_keys() {
    let rounds = rounds();
    for (index, shape) in SHAPES.into_iter().enumerate() {
        for round in 0..rounds {
            let seed = 1000 * round + index as u64;
            print!("seed {seed}, {shape:?}: ");
            println!("{:?}", sequence(seed, shape, 2100));
        }
    }
}

#[test]
fn ascending_separators_leave_full_nodes() {
    let mut row = Row { nodes: vec![inner(swip(1))], model: [(vec![], swip(1))].into() };
    for step in 0..2000u64 {
        let key = ((1 << 40) + 16 * step).to_be_bytes();
        while let index = row.index_of(&key)
            && let position = node_ref(&row.nodes[index]).child_position(&key).unwrap()
            && edit(&mut row.nodes[index], |n| n.insert_child(position, &key, swip(step + 2)))
                .is_err()
        {
            let view = NodeView::from(&*row.nodes[index]);
            let split = view.choose_split(Pending { position, key: &key, value_len: 0 }, None);
            let (mut left, mut right) = (PageImage::zeroed(), PageImage::zeroed());
            view.split_into(&split, &mut left, &mut right, PageId(8), PageId(9));
            row.nodes.splice(index..=index, [left, right]);
        }
        row.model.insert(key.to_vec(), swip(step + 2));
    }
    (0..row.nodes.len()).for_each(|index| row.verify(index));
    // 16 bytes each with the prefix taken off, at most 247 to a page.
    assert!(row.nodes.len() <= 2000 / 235 + 1, "{} nodes", row.nodes.len());
}
