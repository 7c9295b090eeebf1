use super::*;
use crate::{
    node::{NodeBuilder, NodeMut},
    record::redo,
};
use wattle_buffer::{PageId, PageMut, random::mix};

const PAGE: PageId = PageId(7);
const TREE: TreeId = TreeId(3);

/// A failure is reproduced by its seed alone.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 += 1;
        (mix(self.0) % bound as u64) as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Text,
    Bytes,
}

fn value(random: &mut Random, content: Content, number: u32) -> Vec<u8> {
    match content {
        Content::Text => {
            let state = ["pending", "paid", "shipped"][random.below(3)];
            format!(r#"{{"order":{number},"state":"{state}","total":{}}}"#, random.below(1000))
                .into_bytes()
        }
        Content::Bytes => (0..random.below(120)).map(|_| random.below(256) as u8).collect(),
    }
}

/// A leaf with some records, some of them removed again.
fn leaf(random: &mut Random, content: Content) -> Box<PageImage> {
    let mut image = PageImage::zeroed();
    NodeBuilder::leaf(PAGE, TREE, b"", None).finish(&mut image).expect("an empty leaf");
    let mut bytes = PageMut::of_image(&mut image);
    let mut node = NodeMut::new(&mut bytes);
    for number in 0..random.below(80) as u32 {
        let value = value(random, content, number);
        if node.insert_leaf(node.view().count(), &number.to_be_bytes(), &value, false).is_err() {
            break;
        }
    }
    for _ in 0..random.below(5).min(node.view().count()) {
        node.remove_leaf(random.below(node.view().count()));
    }
    image
}

fn written(writer: &mut ImageWriter, image: &PageImage, joins: bool) -> (u8, Vec<u8>) {
    let payload = writer.write(TREE, joins, |copy| *copy = image.clone());
    let bytes = [&payload.lengths[..], payload.parts[0], payload.parts[1]].concat();
    assert_eq!(bytes.len(), payload.len());
    (payload.code, bytes)
}

#[test]
fn a_page_is_the_same_from_either_form() {
    for seed in 0..400 {
        let mut random = Random(seed << 32);
        let content = [Content::Text, Content::Bytes][random.below(2)];
        let image = leaf(&mut random, content);
        let joins = random.below(2) == 0;
        let mut plain = ImageWriter::new(PageImages::Plain);
        let (plain_code, plain) = written(&mut plain, &image, joins);
        let mut compressed = ImageWriter::new(PageImages::Compressed);
        let (compressed_code, compressed) = written(&mut compressed, &image, joins);
        assert_eq!(plain_code, if joins { code::NEW_IMAGE } else { code::IMAGE }, "seed {seed}");
        if compressed_code == plain_code {
            assert_eq!(compressed, plain, "seed {seed}");
            assert!(content == Content::Bytes || plain.len() < 400, "seed {seed}");
        } else {
            let expected = if joins { code::NEW_COMPRESSED_IMAGE } else { code::COMPRESSED_IMAGE };
            assert_eq!(compressed_code, expected, "seed {seed}");
            assert!((compressed.len() - 4) * 8 <= (plain.len() - 4) * 7, "seed {seed}");
        }
        let read = |code, payload: &[u8]| {
            // The bytes before do not matter.
            let mut page = PageImage::zeroed();
            page.0.fill(0xA5);
            redo(&mut page, PAGE, code, payload).unwrap_or_else(|what| panic!("{seed}: {what}"));
            page.0
        };
        let (head, tail) = image_lengths(compressed_code, &compressed).expect("an image");
        assert_eq!(image_lengths(plain_code, &plain), Ok((head, tail)));
        let mut expected = image.0;
        expected[head..PAGE_SIZE - tail].fill(0);
        assert!(read(plain_code, &plain) == expected, "seed {seed}");
        assert!(read(compressed_code, &compressed) == expected, "seed {seed}");
    }
}

#[test]
fn any_payload_gives_a_page_or_an_error_sentence() {
    let (mut refused, mut accepted) = (0, 0);
    for seed in 0..20_000 {
        let mut random = Random(seed << 32);
        let image = leaf(&mut random, Content::Text);
        let form = [PageImages::Plain, PageImages::Compressed][random.below(2)];
        let (mut code, mut payload) = written(&mut ImageWriter::new(form), &image, false);
        for _ in 0..1 + random.below(4) {
            let at = random.below(payload.len().max(1));
            match random.below(6) {
                0 => payload.truncate(at),
                1 => payload.extend((0..random.below(5000)).map(|_| random.below(256) as u8)),
                2 => payload.iter_mut().skip(at).take(9).for_each(|byte| *byte = 0xff),
                3 => code = [code::IMAGE, code::NEW_COMPRESSED_IMAGE][random.below(2)],
                _ if payload.is_empty() => {}
                4 => payload[at] = random.below(256) as u8,
                _ => payload[at % 6] ^= 1 << random.below(8),
            }
        }
        let mut page = PageImage::zeroed();
        match redo(&mut page, PAGE, code, &payload) {
            Ok(()) => accepted += 1,
            Err(what) => {
                refused += 1;
                assert!(!what.is_empty(), "seed {seed}");
            }
        }
    }
    assert!(refused > 10_000 && accepted > 100, "{refused} refused, {accepted} accepted");
}

#[test]
fn a_block_of_another_length_is_refused() {
    let image = leaf(&mut Random(5 << 32), Content::Text);
    let (code, payload) = written(&mut ImageWriter::new(PageImages::Compressed), &image, false);
    assert_eq!(code, code::COMPRESSED_IMAGE);
    let (head, tail) = image_lengths(code, &payload).expect("an image");
    for (change, says) in [(-1, "does not decompress"), (1, "decompresses to")] {
        let mut payload = payload.clone();
        let tail = tail.checked_add_signed(change).expect("a length") as u16;
        payload[2..4].copy_from_slice(&tail.to_le_bytes());
        let error = redo(&mut PageImage::zeroed(), PAGE, code, &payload).expect_err("refused");
        assert!(error.contains(says), "{head} and {tail}: {error}");
    }
}

#[test]
fn what_does_not_compress_is_rarely_tried() {
    let mut writer = ImageWriter::new(PageImages::Compressed);
    let mut random = Random(9 << 32);
    let image = std::iter::repeat_with(|| leaf(&mut random, Content::Bytes))
        .find(|image| extent(&image.0).1 > 2000)
        .expect("endless");
    let mut tried = 0;
    for _ in 0..1000 {
        let before = writer
            .compressor
            .as_ref()
            .map_or(0, |compressor| compressor.attempts[TREE.0 as usize].left);
        tried += u32::from(before == 0);
        assert_eq!(written(&mut writer, &image, false).0, code::IMAGE);
    }
    assert!((7..=25).contains(&tried), "{tried} attempts");
    // Another tree has its own count, and one success ends the pauses.
    let text = std::iter::repeat_with(|| leaf(&mut random, Content::Text))
        .find(|image| extent(&image.0).1 > 1000)
        .expect("endless");
    let other = writer.write(TreeId(TREE.0 + 1), false, |copy| *copy = (*text).clone());
    assert_eq!(other.code, code::COMPRESSED_IMAGE);
    let first = (0..64).position(|_| written(&mut writer, &text, false).0 != code::IMAGE);
    assert!(first.is_some());
    assert_eq!(written(&mut writer, &text, false).0, code::COMPRESSED_IMAGE);
}
