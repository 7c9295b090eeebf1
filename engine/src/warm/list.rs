//! The list of pages that were in memory, as a file.
//!
//! Format, version 1; little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `WATTLEwp` |
//! | 4 | version |
//! | 4 | CRC-32C of all bytes after this field |
//! | 8 | id of the store, as in its superblock |
//! | then, for each tree, ascending: | |
//! | 4 | tree |
//! | 4 | its pages, at least 1 |
//! | for each page, ascending: 1 to 9 | 4 times its distance, plus its class, in LEB128 |
//!
//! The distance is that from the previous page of the tree; of the first one, from page 0. The
//! class is 0 for the most valuable quarter of the pages, 3 for the least valuable one. Inner nodes
//! have class 0: no other page is found without them.

use std::collections::BTreeMap;
use wattle_buffer::{PageId, TreeId};

const MAGIC: &[u8; 8] = b"WATTLEwp";
const VERSION: u32 = 1;
/// Offset of the bytes that the checksum covers.
const CHECKED: usize = 16;
const HEADER: usize = 24;
/// Upper bound on the length of the file: enough for a pool of 64 GiB that is read at random.
pub(super) const MAX_BYTES: u64 = 64 << 20;
/// Classes of pages by value.
pub(super) const CLASSES: usize = 4;
const CLASS_BITS: u32 = CLASSES.trailing_zeros();

/// The pages of each tree, ascending, with the class of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PageList {
    pub trees: BTreeMap<TreeId, Vec<(PageId, u8)>>,
}

impl PageList {
    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.trees.values().map(Vec::len).sum()
    }

    /// The bytes of the file for the store with this id, up to the limit of its length: see
    /// [`PageList::encode_within`]. `None` also when `is_stopped`.
    pub fn encode(&self, store_id: u64, is_stopped: &dyn Fn() -> bool) -> Option<Vec<u8>> {
        self.encode_within(MAX_BYTES as usize, store_id, is_stopped)
    }

    /// The bytes of the file, at most `limit`. The least valuable classes are left out until the
    /// rest fits; if the most valuable class does not fit alone, it is cut in halves, in each tree.
    /// `None`: no page would be left of a list that has pages.
    fn encode_within(
        &self,
        limit: usize,
        store_id: u64,
        is_stopped: &dyn Fn() -> bool,
    ) -> Option<Vec<u8>> {
        let classes = (1..=CLASSES).rev().map(|classes| (classes, 0));
        let halves = (1..u32::BITS).map(|halvings| (1, halvings));
        let mut parts = classes.chain(halves).take_while(|_| !is_stopped());
        parts.find_map(|part| self.encode_part(part, limit, store_id, is_stopped))
    }

    /// The first classes only, so many, and of the pages of each tree in them the first part.
    /// `None`: it is longer than `limit`, or no page is left.
    fn encode_part(
        &self,
        (classes, halvings): (usize, u32),
        limit: usize,
        store_id: u64,
        is_stopped: &dyn Fn() -> bool,
    ) -> Option<Vec<u8>> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(store_id.to_le_bytes());
        for (tree, pages) in &self.trees {
            let chosen = || pages.iter().filter(|(_, class)| usize::from(*class) < classes);
            let count = chosen().count();
            if count == 0 {
                continue;
            }
            let count = (count >> halvings).max(1);
            bytes.extend(tree.0.to_le_bytes());
            bytes.extend((count as u32).to_le_bytes());
            let mut last = 0;
            for (page, class) in chosen().take(count) {
                put_number(&mut bytes, (page.0 - last) << CLASS_BITS | u64::from(*class));
                last = page.0;
            }
            if bytes.len() > limit || is_stopped() {
                return None;
            }
        }
        if bytes.len() == HEADER && !self.trees.is_empty() {
            return None;
        }
        let checksum = crc_fast::crc32_iscsi(&bytes[CHECKED..]);
        bytes[CHECKED - 4..CHECKED].copy_from_slice(&checksum.to_le_bytes());
        Some(bytes)
    }
}

/// A list in its file. It may name many more pages than the memory of this process has room for, so
/// it is looked at page by page.
pub(super) struct EncodedList<'b> {
    /// The trees and their pages.
    body: &'b [u8],
    /// Pages of each class.
    sizes: [usize; CLASSES],
}

impl<'b> EncodedList<'b> {
    /// The list in `bytes`, if it is one of the store with this id; otherwise what is wrong.
    pub fn check(bytes: &'b [u8], store_id: u64) -> Result<EncodedList<'b>, String> {
        if bytes.len() as u64 > MAX_BYTES {
            return Err(format!("it is longer than {MAX_BYTES} bytes"));
        }
        let mut left = Reader { bytes };
        if left.take(MAGIC.len())? != MAGIC {
            return Err("it does not begin like a list of pages".to_string());
        }
        let version = left.u32()?;
        if version != VERSION {
            return Err(format!("it has version {version}; this program reads {VERSION}"));
        }
        let checksum = left.u32()?;
        if checksum != crc_fast::crc32_iscsi(left.bytes) {
            return Err("its checksum is wrong".to_string());
        }
        if left.u64()? != store_id {
            return Err("it is the list of another store".to_string());
        }
        let (body, mut sizes, mut before) = (left.bytes, [0; CLASSES], None);
        while let Some(mut pages) = left.tree()? {
            if before.is_some_and(|before| before >= pages.tree) || pages.left == 0 {
                return Err("its trees are not in order".to_string());
            }
            before = Some(pages.tree);
            while let Some((_, class)) = pages.next(&mut left)? {
                sizes[usize::from(class)] += 1;
            }
        }
        Ok(EncodedList { body, sizes })
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.sizes.iter().sum()
    }

    /// The pages to read into so many frames, ascending: those of the most valuable classes that
    /// fit, or of the first class. Of more than `most` pages only a part is given, the first ones
    /// of each tree.
    pub fn chosen(&self, frames: usize, most: usize) -> Result<Vec<(TreeId, Vec<PageId>)>, String> {
        let classes = self.fitting(frames);
        let all: usize = self.sizes[..classes].iter().sum();
        let (mut left, mut trees) = (Reader { bytes: self.body }, Vec::new());
        let (mut passed, mut given) = (0, 0);
        loop {
            let of_tree = Reader { bytes: left.bytes };
            let Some(mut pages) = left.tree()? else { return Ok(trees) };
            while let Some((_, class)) = pages.next(&mut left)? {
                passed += usize::from(usize::from(class) < classes);
            }
            // Each tree has its share of `most`.
            let until = match all <= most {
                true => passed,
                false => (passed as u128 * most as u128 / all as u128) as usize,
            };
            if until > given {
                let (tree, pages) = of_tree.first_pages(until - given, classes)?;
                trees.push((tree, pages));
                given = until;
            }
        }
    }

    /// How many classes fit into so many frames; one at least: the frames may suffice for a part of
    /// it.
    fn fitting(&self, frames: usize) -> usize {
        let mut sum = 0;
        let fits = |size: &&usize| {
            sum += **size;
            sum <= frames
        };
        self.sizes.iter().take_while(fits).count().max(1)
    }
}

/// Appends a number in LEB128: seven bits a byte, lowest first; the top bit says that more follow.
fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

struct Reader<'b> {
    bytes: &'b [u8],
}

/// The pages of a tree that a [`Reader`] is at.
struct TreePages {
    tree: TreeId,
    /// Pages that are not read yet.
    left: usize,
    /// The page read last.
    last: Option<u64>,
}

impl TreePages {
    /// The next page and its class.
    fn next(&mut self, reader: &mut Reader<'_>) -> Result<Option<(PageId, u8)>, String> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let number = reader.number()?;
        let (distance, class) = (number >> CLASS_BITS, number % CLASSES as u64);
        let page = self.last.unwrap_or(0).saturating_add(distance);
        if page > PageId::MAX.0 || (distance == 0 && self.last.is_some()) {
            return Err("its pages are not in order".to_string());
        }
        self.last = Some(page);
        Ok(Some((PageId(page), class as u8)))
    }
}

impl<'b> Reader<'b> {
    /// The next tree; `None` at the end.
    fn tree(&mut self) -> Result<Option<TreePages>, String> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let (tree, left) = (TreeId(self.u32()?), self.u32()? as usize);
        Ok(Some(TreePages { tree, left, last: None }))
    }

    /// The next tree, and the first `count` of its pages of so many classes.
    fn first_pages(
        mut self,
        count: usize,
        classes: usize,
    ) -> Result<(TreeId, Vec<PageId>), String> {
        let mut pages = self.tree()?.ok_or("it is cut off")?;
        let mut first = Vec::with_capacity(count);
        while first.len() < count
            && let Some((page, class)) = pages.next(&mut self)?
        {
            if usize::from(class) < classes {
                first.push(page);
            }
        }
        Ok((pages.tree, first))
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], String> {
        let (taken, left) = self.bytes.split_at_checked(count).ok_or("it is cut off")?;
        self.bytes = left;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    fn number(&mut self) -> Result<u64, String> {
        let mut number = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("one of its numbers is too large".to_string())
    }
}

const _: () = assert!(HEADER == CHECKED + 8);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const STORE: u64 = 0x1234_5678_9abc_def1;
    const GO_ON: &dyn Fn() -> bool = &|| false;

    impl PageList {
        /// The list in `bytes`.
        fn decode(bytes: &[u8], store_id: u64) -> Result<PageList, String> {
            let encoded = EncodedList::check(bytes, store_id)?;
            let (mut left, mut trees) = (Reader { bytes: encoded.body }, BTreeMap::new());
            while let Some(mut pages) = left.tree()? {
                let mut list = Vec::new();
                while let Some(page) = pages.next(&mut left)? {
                    list.push(page);
                }
                trees.insert(pages.tree, list);
            }
            let list = PageList { trees };
            assert_eq!(list.pages(), encoded.pages());
            Ok(list)
        }
    }

    fn some_list() -> PageList {
        let pages = |start: u64| (0..300).map(|i| (PageId(start + i * i), (i % 4) as u8)).collect();
        PageList { trees: [(TreeId(3), pages(9)), (TreeId(70_000), pages(1 << 40))].into() }
    }

    #[test]
    fn damage_of_any_byte_and_lists_of_other_stores_are_named() {
        let bytes = some_list().encode(STORE, GO_ON).expect("it fits");
        assert_eq!(PageList::decode(&bytes, STORE), Ok(some_list()));
        assert!(PageList::decode(&bytes, STORE + 1).unwrap_err().contains("another store"));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(PageList::decode(&damaged, STORE).is_err(), "byte {at}");
            assert!(PageList::decode(&bytes[..at], STORE).is_err(), "cut at {at}");
        }
        let mut newer = bytes.clone();
        newer[8] = 2;
        assert!(PageList::decode(&newer, STORE).unwrap_err().contains("version 2"));
        assert_eq!(
            PageList::decode(&PageList::default().encode(STORE, GO_ON).expect("it fits"), STORE),
            Ok(PageList::default())
        );
    }

    #[test]
    fn a_list_that_is_too_long_loses_its_least_valuable_pages_in_all_trees() {
        let list = some_list();
        let whole = list.encode(STORE, GO_ON).expect("it fits").len();
        let (mut before, mut classes) = (list.pages(), BTreeSet::new());
        for limit in (HEADER..=whole).rev() {
            let Some(bytes) = list.encode_within(limit, STORE, GO_ON) else {
                // Two trees with a page each, 8 bytes and the number.
                assert!(limit < HEADER + 2 * 8 + 8, "{limit}");
                continue;
            };
            assert!(bytes.len() <= limit);
            let part = PageList::decode(&bytes, STORE).expect("a list");
            assert_eq!(part.trees.len(), 2, "a tree is missing at {limit}");
            let has = |class| part.trees.values().flatten().filter(|(_, c)| *c == class).count();
            let first = has(0);
            for class in 1..CLASSES as u8 {
                assert!(has(class) == 0 || (has(class) == 150 && has(class - 1) == 150));
            }
            classes.insert((1..CLASSES as u8).filter(|class| has(*class) > 0).count());
            assert!(first > 0 && part.pages() <= before);
            before = part.pages();
        }
        assert!(before < 10 && classes.len() == CLASSES, "{before}, {classes:?}");
        assert_eq!(list.encode_within(HEADER, STORE, GO_ON), None);
        assert_eq!(list.encode(STORE, &|| true), None);
    }

    #[test]
    fn the_most_valuable_pages_that_fit_are_chosen() {
        let list = some_list();
        let bytes = list.encode(STORE, GO_ON).expect("it fits");
        let encoded = EncodedList::check(&bytes, STORE).expect("a list");
        let of_classes = |classes: u8| -> Vec<_> {
            let pages = |pages: &Vec<(PageId, u8)>| {
                pages.iter().filter(|(_, class)| *class < classes).map(|(page, _)| *page).collect()
            };
            list.trees.iter().map(|(tree, all)| (*tree, pages(all))).collect()
        };
        for (frames, classes) in [(0, 1), (149, 1), (150, 1), (299, 1), (300, 2), (600, 4)] {
            assert_eq!(encoded.chosen(frames, 1000), Ok(of_classes(classes)), "{frames} frames");
        }
        // A part of each tree.
        let mut part: Vec<(TreeId, Vec<PageId>)> = of_classes(1);
        part.iter_mut().for_each(|(_, pages)| pages.truncate(5));
        assert_eq!(encoded.chosen(0, 10), Ok(part));
        assert_eq!(encoded.chosen(0, 0), Ok(Vec::new()));
    }

    /// A file of 64 MiB may name so many pages: with 16 bytes for each, they would take a GiB.
    #[test]
    fn a_list_of_a_much_larger_pool_takes_little_memory() {
        let trees = (0..100).map(|tree| {
            let pages = (0..10_000).map(|page| (PageId(page), 0)).collect();
            (TreeId(tree), pages)
        });
        let list = PageList { trees: trees.collect() };
        let bytes = list.encode(STORE, GO_ON).expect("it fits");
        let encoded = EncodedList::check(&bytes, STORE).expect("a list");
        assert_eq!(encoded.pages(), 1_000_000);
        let chosen = encoded.chosen(48, 1_000).expect("a list");
        assert!(chosen.len() == 100 && chosen.iter().all(|(_, pages)| pages.capacity() == 10));
        // Few trees have a page.
        let chosen = encoded.chosen(48, 7).expect("a list");
        assert!(chosen.len() == 7 && chosen.iter().all(|(_, pages)| pages.len() == 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_list_is_read_as_it_was_written(
            trees in prop::collection::btree_map(any::<u32>().prop_map(TreeId),
                prop::collection::btree_map(0..=PageId::MAX.0, 0u8..4, 1..50), 0..5),
        ) {
            let sorted = |pages: BTreeMap<u64, u8>| {
                pages.into_iter().map(|(page, class)| (PageId(page), class)).collect()
            };
            let trees = trees.into_iter().map(|(tree, pages)| (tree, sorted(pages))).collect();
            let list = PageList { trees };
            let bytes = list.encode(STORE, GO_ON).expect("it fits");
            prop_assert_eq!(PageList::decode(&bytes, STORE), Ok(list));
        }

        /// Bytes with a right checksum, which only this test makes.
        #[test]
        fn any_bytes_are_a_list_or_an_error(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = PageList::default().encode(STORE, GO_ON).expect("it fits");
            bytes.extend(body);
            let checksum = crc_fast::crc32_iscsi(&bytes[CHECKED..]);
            bytes[CHECKED - 4..CHECKED].copy_from_slice(&checksum.to_le_bytes());
            if let Ok(list) = PageList::decode(&bytes, STORE) {
                prop_assert!(list.pages() <= bytes.len());
            }
        }
    }
}
