//! Which copies of the bitmaps of pages in use are valid.

use super::tree_ids::NO_TREE;
use wattle_buffer::{
    BITMAP_GROUP, Error, PAGE_SIZE, PageId, PageImage, PageKind, Result,
    page::header,
    random::{GOLDEN, mix},
};

/// Words of the bitmap of a group of pages.
pub(crate) const GROUP_WORDS: usize = (BITMAP_GROUP / 64) as usize;
const _: () = assert!(GROUP_WORDS * 8 + super::superblock::at::BITMAP == PAGE_SIZE);

/// The bitmaps of all groups, with their numbers, out of the words of a whole store.
pub(crate) fn bitmap_groups(words: &[u64]) -> Vec<(u64, Vec<u64>)> {
    let groups = words.chunks(GROUP_WORDS).enumerate().map(|(group, words)| {
        let mut words = words.to_vec();
        words.resize(GROUP_WORDS, 0);
        (group as u64, words)
    });
    groups.collect()
}

/// Which of the two copies of the bitmap of each group is the valid one, and its sequence.
#[derive(Clone, Debug, Default)]
pub struct BitmapCopies {
    pub(super) valid: Vec<(u8, u64)>,
    /// Groups with a copy from a checkpoint that did not finish.
    pub(super) left: Vec<u64>,
}

impl BitmapCopies {
    /// Groups that the next checkpoint must write.
    pub fn to_be_written(&self) -> impl Iterator<Item = u64> {
        self.left.iter().copied()
    }

    /// The copy that may be overwritten.
    pub(super) fn spare(&self, group: u64) -> u64 {
        self.valid.get(group as usize).map_or(0, |(copy, _)| 1 - u64::from(*copy))
    }

    /// The copies that are valid once the bitmaps of these groups were written for superblock
    /// `sequence`.
    pub fn with(&self, groups: &[(u64, Vec<u64>)], sequence: u64) -> BitmapCopies {
        let mut valid = self.valid.clone();
        for (group, _) in groups {
            let index = *group as usize;
            if index >= valid.len() {
                valid.resize(index + 1, (1, 0));
            }
            valid[index] = (self.spare(*group) as u8, sequence);
        }
        BitmapCopies { valid, left: Vec::new() }
    }

    /// Limits the set to a store of `groups` groups; it may have had more.
    pub fn of_groups(mut self, groups: u64) -> BitmapCopies {
        self.valid.truncate(groups as usize);
        self
    }

    /// A fingerprint of the set of valid copies: the sum, over all groups that have one, of a hash
    /// of group and sequence.
    pub fn fingerprint(&self) -> u64 {
        let groups = self.valid.iter().enumerate().filter(|(_, (_, sequence))| *sequence != 0);
        groups.fold(0u64, |sum, (group, (_, sequence))| {
            sum.wrapping_add(mix(sequence.wrapping_mul(GOLDEN) ^ (group as u64 + 1)))
        })
    }
}

/// Sequence of a page of a bitmap; `None` when it was never written.
pub(super) fn bitmap_sequence(page: PageId, image: &PageImage) -> Result<Option<u64>> {
    if image.0.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    image.verify(page, NO_TREE)?;
    if PageKind::from_u8(image.0[header::KIND]) != Some(PageKind::Bitmap) {
        return Err(Error::corruption(page, "it is not a bitmap"));
    }
    Ok(Some(image.u64_at(header::GSN)))
}
