//! A superblock: its fields, and their encoding.

use super::tree_ids::{FIRST_TREE, NO_TREE};
use crate::epochs::{Gaps, KEPT};
use std::path::Path;
use wattle_buffer::{
    BITMAP_GROUP, Error, PAGE_SIZE, PageId, PageImage, PageKind, Result, TreeId, page::header,
};
use wattle_wal::{CLASSES, LogEnd, MAX_EPOCH, MAX_NUMBER, class_of};

/// Format version of a store.
pub const STORE_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"WATTLEdb";

/// Offsets in a superblock; also listed in the format description.
pub(crate) mod at {
    pub const MAGIC: usize = 32;
    pub const VERSION: usize = 40;
    pub const STATE: usize = 44;
    pub const SEQUENCE: usize = 48;
    pub const CAPACITY: usize = 56;
    pub const CATALOG_ROOT: usize = 64;
    pub const NEXT_TREE: usize = 72;
    pub const STORE_ID: usize = 80;
    pub const REDO_EPOCH: usize = 88;
    pub const UNDO_EPOCH: usize = 96;
    pub const SEGMENT: usize = 104;
    pub const END_SEGMENT: usize = 112;
    pub const END_EPOCH: usize = 120;
    pub const END_FLUSH: usize = 128;
    pub const END_SEQUENCE: usize = 136;
    pub const BITMAPS: usize = 144;
    pub const DURABLE_FLUSH: usize = 152;
    pub const GAPS: usize = 160;
    pub const CLASS_EPOCHS: usize = GAPS + 16 * super::KEPT;
    pub const END: usize = CLASS_EPOCHS + 2 * super::CLASSES;
    /// In a page of a bitmap: the words.
    pub const BITMAP: usize = 64;
}

const _: () = assert!(at::MAGIC >= header::END && at::END <= 512);

const _: () = assert!((PAGE_SIZE - at::BITMAP) * 8 == BITMAP_GROUP as usize);

/// How a store was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreState {
    /// In use without a log: the pages mean nothing until it is closed.
    Unlogged = 0,
    /// Closed without a log: the pages and bitmaps are all there is.
    Closed = 1,
    /// The log, from the last checkpoint on, has the changes that the pages lack.
    Logged = 2,
}

/// The fields of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Rises with every change of the superblock.
    pub sequence: u64,
    /// How the store was left.
    pub state: StoreState,
    /// Pages of the data file.
    pub capacity: u64,
    /// Root page of the catalog.
    pub catalog_root: PageId,
    /// Next unused tree id.
    pub next_tree: TreeId,
    /// Random number that the log carries too.
    pub store_id: u64,
    /// Changes of this epoch and later ones may be missing in the pages.
    pub redo_epoch: u64,
    /// From when on changes of the pages of each class may be missing, see
    /// [`Superblock::redo_epoch_of`].
    pub class_epochs: ClassEpochs,
    /// Transactions that had not ended at the checkpoint have no records before this epoch.
    pub undo_epoch: u64,
    /// Segment of the log to begin reading at.
    pub segment: u64,
    /// Which copies of the bitmaps are valid, see [`BitmapCopies::fingerprint`].
    pub bitmaps: u64,
    /// The last flush of the log that was durable by then: a log that ends before it has lost
    /// something. 0 where that was not written down yet.
    pub durable_flush: u64,
    /// Closed: where the log ended that a new one goes on after.
    pub log_end: LogEnd,
    /// Epochs that no page has.
    pub gaps: Gaps,
}

/// For each class of pages ([`class_of`]) how many epochs after the redo epoch the checkpoint
/// began. Every change before that is in the pages, or in an image that the log has since.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassEpochs([u32; CLASSES]);

impl ClassEpochs {
    /// For classes that began with the epochs `due`, which ascend from the redo epoch on. A step
    /// from one class to the next that does not fit its field is shortened: redo that begins
    /// earlier does the same.
    pub fn new(due: &[u64; CLASSES]) -> ClassEpochs {
        let before = [due[0]].into_iter().chain(*due);
        let steps = due.iter().zip(before).map(|(due, before)| due - before);
        ClassEpochs::of_steps(steps.map(|step| u16::try_from(step).unwrap_or(u16::MAX)))
    }

    fn of_steps(steps: impl Iterator<Item = u16>) -> ClassEpochs {
        let mut epochs = ClassEpochs::default();
        let mut after = 0;
        for (epoch, step) in epochs.0.iter_mut().zip(steps) {
            after += u32::from(step);
            *epoch = after;
        }
        epochs
    }

    /// From each class to the next.
    fn steps(&self) -> impl Iterator<Item = u16> {
        let before = [0].into_iter().chain(self.0);
        self.0.into_iter().zip(before).map(|(epoch, before)| (epoch - before) as u16)
    }
}

impl Superblock {
    /// The superblock of a new store. The store id comes from the hasher of the standard library,
    /// which is seeded by the system.
    pub fn first() -> Superblock {
        use std::hash::{BuildHasher, RandomState};
        let store_id = RandomState::new().hash_one(std::time::SystemTime::now()) | 1;
        Superblock {
            sequence: 0,
            state: StoreState::Logged,
            capacity: 0,
            catalog_root: PageId(0),
            next_tree: FIRST_TREE,
            store_id,
            redo_epoch: 1,
            class_epochs: ClassEpochs::default(),
            undo_epoch: 1,
            segment: 1,
            bitmaps: 0,
            durable_flush: 0,
            log_end: LogEnd { store_id, ..LogEnd::default() },
            gaps: Gaps::default(),
        }
    }

    /// Changes of this epoch and later ones may be missing in `page`.
    #[inline]
    pub fn redo_epoch_of(&self, page: PageId) -> u64 {
        self.redo_epoch + u64::from(self.class_epochs.0[class_of(page)])
    }

    /// The epoch with which the checkpoint began for the last class of pages.
    pub fn last_class_epoch(&self) -> u64 {
        self.redo_epoch + u64::from(self.class_epochs.0[CLASSES - 1])
    }

    /// The sealed image of this superblock in `page`.
    pub fn encode(&self, page: PageId) -> Box<PageImage> {
        let mut image = PageImage::zeroed();
        image.format(PageKind::Superblock, 0, page, NO_TREE);
        image.0[at::MAGIC..at::MAGIC + 8].copy_from_slice(MAGIC);
        image.set_u32(at::VERSION, STORE_VERSION);
        image.set_u32(at::STATE, self.state as u32);
        image.set_u64(at::SEQUENCE, self.sequence);
        image.set_u64(at::CAPACITY, self.capacity);
        image.set_u64(at::CATALOG_ROOT, self.catalog_root.0);
        image.set_u32(at::NEXT_TREE, self.next_tree.0);
        image.set_u64(at::STORE_ID, self.store_id);
        image.set_u64(at::REDO_EPOCH, self.redo_epoch);
        image.set_u64(at::UNDO_EPOCH, self.undo_epoch);
        image.set_u64(at::SEGMENT, self.segment);
        image.set_u64(at::END_SEGMENT, self.log_end.segment);
        image.set_u64(at::END_EPOCH, self.log_end.epoch);
        image.set_u64(at::END_FLUSH, self.log_end.flush);
        image.set_u64(at::END_SEQUENCE, self.log_end.sequence);
        image.set_u64(at::BITMAPS, self.bitmaps);
        image.set_u64(at::DURABLE_FLUSH, self.durable_flush);
        for (index, (end, start)) in self.gaps.0.iter().enumerate() {
            image.set_u64(at::GAPS + 16 * index, *end);
            image.set_u64(at::GAPS + 16 * index + 8, *start);
        }
        let classes = image.0[at::CLASS_EPOCHS..at::END].chunks_exact_mut(2);
        for (bytes, step) in classes.zip(self.class_epochs.steps()) {
            bytes.copy_from_slice(&step.to_le_bytes());
        }
        image.seal();
        image
    }

    /// Reads a superblock out of the image of `page`. The data file at `path` has so many pages.
    ///
    /// # Errors
    /// [`Error::WrongVersion`], [`Error::Corruption`].
    pub fn decode(
        page: PageId,
        image: &PageImage,
        path: &Path,
        capacity_pages: u64,
    ) -> Result<Superblock> {
        image.verify(page, NO_TREE)?;
        let version = image.u32_at(at::VERSION);
        if !is_superblock(image)
            || PageKind::from_u8(image.0[header::KIND]) != Some(PageKind::Superblock)
        {
            return Err(Error::corruption(page, "it is not a superblock"));
        }
        if version != STORE_VERSION {
            return Err(Error::WrongVersion {
                path: path.to_path_buf(),
                found: version,
                expected: STORE_VERSION,
            });
        }
        let store_id = image.u64_at(at::STORE_ID);
        let block = Superblock {
            sequence: image.u64_at(at::SEQUENCE),
            state: match image.u32_at(at::STATE) {
                0 => StoreState::Unlogged,
                1 => StoreState::Closed,
                2 => StoreState::Logged,
                state => {
                    let what = format_args!("the store is in the unknown state {state}");
                    return Err(Error::corruption(page, what));
                }
            },
            capacity: image.u64_at(at::CAPACITY),
            catalog_root: PageId(image.u64_at(at::CATALOG_ROOT)),
            next_tree: TreeId(image.u32_at(at::NEXT_TREE)),
            store_id,
            redo_epoch: image.u64_at(at::REDO_EPOCH),
            undo_epoch: image.u64_at(at::UNDO_EPOCH),
            segment: image.u64_at(at::SEGMENT),
            bitmaps: image.u64_at(at::BITMAPS),
            durable_flush: image.u64_at(at::DURABLE_FLUSH),
            log_end: LogEnd {
                store_id,
                segment: image.u64_at(at::END_SEGMENT),
                epoch: image.u64_at(at::END_EPOCH),
                flush: image.u64_at(at::END_FLUSH),
                sequence: image.u64_at(at::END_SEQUENCE),
            },
            gaps: Gaps(std::array::from_fn(|index| {
                let at = at::GAPS + 16 * index;
                (image.u64_at(at), image.u64_at(at + 8))
            })),
            class_epochs: ClassEpochs::of_steps(
                image.0[at::CLASS_EPOCHS..at::END]
                    .as_chunks()
                    .0
                    .iter()
                    .copied()
                    .map(u16::from_le_bytes),
            ),
        };
        block.check().map_err(|what| Error::corruption(page, what))?;
        if block.capacity > capacity_pages {
            return Err(Error::corruption(
                page,
                format_args!(
                    "the store has {} pages, the data file only {}",
                    block.capacity, capacity_pages
                ),
            ));
        }
        Ok(block)
    }

    /// Whether its numbers can belong together; the error says which do not. One that was not
    /// written like this must not make the log wait for an epoch that never comes, nor numbers run
    /// over.
    fn check(&self) -> Result<(), String> {
        if self.state == StoreState::Unlogged {
            // Nothing of it is used.
            return Ok(());
        }
        let Superblock { redo_epoch, undo_epoch, segment, log_end, .. } = self;
        let numbers = [
            ("sequence", self.sequence),
            ("segment", *segment),
            ("last segment", log_end.segment),
            ("last flush", self.durable_flush.max(log_end.flush)),
            ("last block", log_end.sequence),
        ];
        if let Some((name, number)) = numbers.iter().find(|(_, number)| *number > MAX_NUMBER) {
            return Err(format!("its {name} is {number}, which no store reaches"));
        }
        let epochs = 1..=MAX_EPOCH;
        if !epochs.contains(redo_epoch) || !epochs.contains(undo_epoch) || log_end.epoch > MAX_EPOCH
        {
            let end = log_end.epoch;
            return Err(format!("epochs {redo_epoch}, {undo_epoch} and {end} are none of a log"));
        }
        if *segment == 0 || !self.gaps.make_sense() || self.next_tree < FIRST_TREE {
            return Err("segment, epochs without pages or next tree make no sense".to_string());
        }
        let closed = (log_end.epoch, log_end.epoch, log_end.segment + 1);
        match self.state {
            StoreState::Closed if (*redo_epoch, *undo_epoch, *segment) != closed => Err(format!(
                "the store was closed without a log, which ended with epoch {} and segment {}, but \
                 redo begins with epoch {redo_epoch}, undo with {undo_epoch}, in segment {segment}",
                log_end.epoch, log_end.segment
            )),
            StoreState::Logged if undo_epoch > redo_epoch => Err(format!(
                "undo begins with epoch {undo_epoch}, after redo with epoch {redo_epoch}"
            )),
            _ => Ok(()),
        }
    }
}

/// Whether a page begins with the magic of a superblock.
pub(super) fn is_superblock(image: &PageImage) -> bool {
    &image.0[at::MAGIC..at::MAGIC + 8] == MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle_buffer::bitmap_page;

    const PAGE: &str = include_str!("../../../buffer/FORMAT.md");

    #[test]
    fn the_format_page_has_the_numbers_of_the_code() {
        let says = |what: String| assert!(PAGE.contains(&what), "FORMAT.md lacks: {what}");
        says(format!("# Format of the data file, version {STORE_VERSION}"));
        says(format!("pages of {PAGE_SIZE} bytes"));
        says(format!("format version of pages, {}", wattle_buffer::page::FORMAT_VERSION));
        says(format!("format version of the store, {STORE_VERSION} "));
        says(format!("`{}`", str::from_utf8(MAGIC).expect("letters")));
        says(format!("{} for pages of no tree", NO_TREE.0));
        says(format!("n · {BITMAP_GROUP}, n · {BITMAP_GROUP} + 1"));
        says(format!("From byte {} on one bit for each of the {BITMAP_GROUP} pages", at::BITMAP));
        assert_eq!([bitmap_page(0, 0), bitmap_page(0, 1)], [PageId(2), PageId(3)]);
        for (offset, bytes, field) in [
            (header::CHECKSUM, 4, "CRC-32C of bytes 4"),
            (header::VERSION, 1, "format version of pages"),
            (header::KIND, 1, "kind"),
            (header::LEVEL, 1, "level"),
            (header::FLAGS, 1, "flags"),
            (header::PAGE_ID, 8, "page id"),
            (header::GSN, 8, "GSN"),
            (header::TREE_ID, 4, "tree id"),
            (at::MAGIC, 8, "magic"),
            (at::VERSION, 4, "format version of the store"),
            (at::STATE, 4, "state"),
            (at::SEQUENCE, 8, "sequence"),
            (at::CAPACITY, 8, "pages of the file"),
            (at::CATALOG_ROOT, 8, "root page of the catalog"),
            (at::NEXT_TREE, 4, "next unused tree id"),
            (at::STORE_ID, 8, "store id"),
            (at::REDO_EPOCH, 8, "redo epoch"),
            (at::UNDO_EPOCH, 8, "undo epoch"),
            (at::SEGMENT, 8, "segment of the log to begin"),
            (at::END_SEGMENT, 8, "closed without a log"),
            (at::END_EPOCH, 8, "and its last epoch"),
            (at::END_FLUSH, 8, "and its last flush"),
            (at::END_SEQUENCE, 8, "and its last block"),
            (at::BITMAPS, 8, "fingerprint"),
            (at::DURABLE_FLUSH, 8, "last flush of the log that was durable"),
            (at::GAPS, 16 * KEPT, "epochs that no page has"),
            (at::CLASS_EPOCHS, 2 * CLASSES, "for each class of pages"),
        ] {
            says(format!("| {offset} | {bytes} | {field}"));
        }
        assert_eq!(at::END, 512);
    }

    #[test]
    fn redo_of_a_class_begins_with_its_epoch_or_before() {
        for step in [0, 1, 700, 65_535, 65_536, 1 << 40] {
            let due = std::array::from_fn(|class| 70 + class as u64 * step);
            let class_epochs = ClassEpochs::new(&due);
            let block = Superblock { class_epochs, redo_epoch: 70, ..Superblock::first() };
            for page in (0..1000).map(PageId) {
                let (due, redo) = (due[class_of(page)], block.redo_epoch_of(page));
                assert!((70..=due).contains(&redo), "{redo} for {due}");
                assert!(redo == due || step > 65_535, "{redo} for {due}");
            }
            let image = block.encode(PageId(0));
            let found = Superblock::decode(PageId(0), &image, Path::new("data"), 0);
            assert_eq!(found.expect("sound"), block);
        }
    }
}
