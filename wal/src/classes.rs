//! Classes of pages, whose images become due one after the other.
//!
//! If all pages became due with the first epoch of a checkpoint, most changes after it would log an
//! image, and the log would be many times as long for a while. So pages are divided by their ids,
//! and a checkpoint begins for one class after the other.

use wattle_buffer::PageId;

/// Number of classes.
pub const CLASSES: usize = 16;

/// The class of a page. Neighbours are in different ones.
#[inline]
pub fn class_of(page: PageId) -> usize {
    (page.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - CLASSES.ilog2())) as usize
}

/// Some classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes(u16);

const _: () = assert!(CLASSES == u16::BITS as usize);

impl Classes {
    /// None of them.
    pub const NONE: Classes = Classes(0);
    /// All of them.
    pub const ALL: Classes = Classes(u16::MAX);

    /// The classes from `from` up to and without `to`.
    pub fn range(from: usize, to: usize) -> Classes {
        (from..to).fold(Classes::NONE, |all, class| Classes(all.0 | 1 << class))
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self == Classes::NONE
    }

    /// Whether `class` is among them.
    pub fn has(self, class: usize) -> bool {
        self.0 & 1 << class != 0
    }

    /// These and those.
    pub fn and(self, other: Classes) -> Classes {
        Classes(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{CLASSES, Classes, class_of};
    use wattle_buffer::PageId;

    #[test]
    fn classes_divide_the_pages_evenly() {
        for stride in [1, 2, 8, 100] {
            let mut counts = [0; CLASSES];
            (0..16_000).for_each(|page| counts[class_of(PageId(page * stride))] += 1);
            assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn a_range_has_its_classes_and_no_others() {
        let range = Classes::range(3, 9);
        assert!((0..CLASSES).all(|class| range.has(class) == (3..9).contains(&class)));
        assert!(Classes::range(4, 4).is_empty() && Classes::range(0, CLASSES) == Classes::ALL);
        assert_eq!(Classes::range(0, 3).and(Classes::range(3, CLASSES)), Classes::ALL);
    }
}
