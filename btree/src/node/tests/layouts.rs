//! Layouts that a builder makes: fill factors, prefixes, searches by vector.

use super::*;

#[test]
fn bulk_loads_make_full_rows_of_nodes_without_knowing_the_fences() {
    for (fill, shape) in [100, 75, 20].into_iter().flat_map(|f| SHAPES.map(|s| (f, s))) {
        let mut random = Random(fill as u64);
        let mut model = Records::new();
        for step in 0..3000 {
            let key = shape.key(&mut random, step);
            let plain = matches!(shape, Shape::Dense | Shape::Ascending);
            let value = if plain { vec![1; 50] } else { value_for(&mut random, &key, false) };
            model.insert(key, (value, false));
        }
        let mut lower = vec![];
        let mut builder = NodeBuilder::leaf(PageId(1), TreeId(1), &lower, None).fill(fill);
        let mut image = PageImage::zeroed();
        let (mut nodes, mut used) = (0, 0);
        for (key, (value, special)) in &model {
            if !builder.push(key, value, *special) {
                lower = shortest_separator(builder.last_key().unwrap(), key).to_vec();
                builder.set_upper(Some(&lower));
                builder.finish(&mut image).unwrap();
                check_full(&image.0).unwrap();
                nodes += 1;
                used += node_ref(&image).used_bytes();
                builder = NodeBuilder::leaf(PageId(1), TreeId(1), &lower, None).fill(fill);
                assert!(builder.push(key, value, *special), "an empty leaf takes any record");
            }
        }
        builder.finish(&mut image).unwrap();
        check_full(&image.0).unwrap();
        if matches!(shape, Shape::Dense | Shape::Ascending) && nodes > 0 {
            let share = 100 * used / nodes / PAGE_SIZE;
            assert!(share <= fill && share + 15 > fill, "{share} % instead of {fill} %");
        }
    }
}

#[test]
fn vector_search_agrees_with_a_plain_scan_for_every_count() {
    for count in 0..240u64 {
        for distance in [1, 3, 1 << 20] {
            let mut builder =
                NodeBuilder::inner(1, PageId(1), TreeId(1), &[], None, SWIP_EVICTED | 1);
            for i in 1..=count {
                assert!(builder.push_child(&(i * distance).to_be_bytes(), SWIP_EVICTED | 1));
            }
            let mut image = PageImage::zeroed();
            builder.finish(&mut image).unwrap();
            let node = node_ref(&image);
            for i in 0..=count + 1 {
                let key = (i * distance).to_be_bytes();
                assert_eq!(node.child_position(&key), Ok(i.min(count) as usize));
                let key = (i * distance + distance - 1).to_be_bytes();
                assert_eq!(node.child_position(&key), Ok(i.min(count) as usize));
            }
        }
    }
}

#[test]
fn nodes_at_the_edge_tell_dense_keys_apart_by_their_heads() {
    let mut image = leaf(&[], None);
    for i in 0..200u64 {
        let key = (1 << 50 | i).to_be_bytes();
        edit(&mut image, |node| node.insert_leaf(i as usize, &key, b"v", false)).unwrap();
    }
    let view = NodeView::from(&*image);
    assert!(view.flags() & CHECK_PREFIX != 0);
    assert!((1..200).all(|position| view.head(position - 1) < view.head(position)));
}

#[test]
fn the_check_names_what_is_wrong() {
    let mut image = leaf(b"a", Some(b"x"));
    edit(&mut image, |node| node.insert_leaf(0, b"key", b"value", false)).unwrap();
    let damage = |at: usize, value: u16| {
        let mut image = image.clone();
        image.set_u16(at, value);
        check(&image.0, PageId(9)).unwrap_err()
    };
    assert!(damage(COUNT, 400).contains("400 entries"));
    assert!(damage(HEAP_TOP, 4095).contains("heap starts at 4095"));
    assert!(damage(LOWER_LEN, 2000).contains("lower fence"));
    assert!(damage(GARBAGE, 8).contains("8 are not"));
    let mut inner = PageImage::zeroed();
    NodeBuilder::inner(1, PageId(7), TreeId(3), &[], None, 5).finish(&mut inner).unwrap();
    assert!(check(&inner.0, PageId(9)).unwrap_err().contains("child 0"));
    edit(&mut inner, |node| node.set_swip(0, SWIP_EVICTED | 10));
    assert!(check(&inner.0, PageId(9)).unwrap_err().contains("last page is 9"));
    edit(&mut inner, |node| node.set_swip(0, SWIP_EVICTED | 9));
    check(&inner.0, PageId(9)).unwrap();
}
