//! Medium and volatile cache of the simulated device: stored pages, syncs, faults, and the states
//! that a power cut may leave. Used by [`super::sim`] only.

use super::{
    faults::{Fault, Unit, Verdict},
    file::offset_of,
};
use crate::{
    ids::PageId,
    page::{PAGE_SIZE, PageImage},
    random::SeededRandom,
};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, OnceLock},
};

/// Number of unsynced versions of a page that a crash can choose from, the newest ones.
pub const KEPT_VERSIONS: usize = 8;

/// How much of the writes since the last sync survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Cut {
    /// For each page any mixture by sectors of 512 bytes.
    #[default]
    Sectors,
    /// For each page any one version: the device writes 4 KiB as a whole or not at all.
    Pages,
    /// All writes up to one of them, in the order of the writes.
    Prefix,
    /// None.
    Nothing,
    /// All of them.
    All,
    /// All of them, still in the cache: the process ended, and the power may still be cut.
    Process,
}

/// Stored pages are immutable, so that copies of the device share them.
pub(super) type Bytes = Arc<[u8; PAGE_SIZE]>;

#[derive(Clone, Default)]
pub(super) struct Medium {
    pub(super) pages: BTreeMap<u64, StoredPage>,
    pub(super) capacity: u64,
    pub(super) synced_capacity: u64,
    /// Durable contents of pages that a shrink since the last sync cut off.
    pub(super) cut_off: BTreeMap<u64, Bytes>,
}

#[derive(Clone, Default)]
pub(super) struct StoredPage {
    /// The content that a power cut cannot take. `None`: never written, zeroes.
    pub(super) synced: Option<Bytes>,
    /// A content that reads see and that will never be durable, because its sync failed.
    given_up: Option<Bytes>,
    /// The content before the last write, for stale reads.
    previous: Option<Bytes>,
    /// Writes since the last sync, oldest first.
    pub(super) unsynced: Vec<Bytes>,
    /// Position of each of these writes among all writes of the device.
    pub(super) order: Vec<u64>,
}

impl Medium {
    pub(super) fn read(
        &self,
        page: PageId,
        into: &mut [u8; PAGE_SIZE],
        mut verdict: Verdict,
    ) -> io::Result<()> {
        offset_of(page)?;
        if let Some(Fault::Error(kind)) = verdict.fault {
            return Err(io::Error::new(kind, verdict.name()));
        }
        if page.0 >= self.capacity {
            let what = format!("the device ends before page {page}");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        let stored = self.pages.get(&page.0);
        let current = stored.and_then(StoredPage::current).unwrap_or(zeroes());
        match verdict.fault {
            Some(Fault::Short(unit)) => {
                let len = verdict.short(unit);
                into[..len].copy_from_slice(&current[..len]);
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, verdict.name()));
            }
            Some(Fault::Stale) => {
                *into = **stored.and_then(|page| page.previous.as_ref()).unwrap_or(current);
            }
            Some(Fault::BitFlip) => {
                *into = **current;
                let bit = verdict.random.below(PAGE_SIZE as u64 * 8) as usize;
                into[bit / 8] ^= 1 << (bit % 8);
            }
            _ => *into = **current,
        }
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        page: PageId,
        image: &PageImage,
        mut verdict: Verdict,
        order: u64,
    ) -> io::Result<()> {
        // Only faults that keep part of the old content need it.
        let old = |medium: &Medium| {
            **medium.pages.get(&page.0).and_then(StoredPage::current).unwrap_or(zeroes())
        };
        match verdict.fault {
            Some(Fault::Error(kind)) => return Err(io::Error::new(kind, verdict.name())),
            Some(Fault::Lost) => self.extend_to(page.0),
            Some(Fault::Misdirected) => {
                self.extend_to(page.0);
                let other = self.another_page(page.0, &mut verdict.random);
                self.store(other, image.0, order);
            }
            Some(Fault::Short(unit)) => {
                let len = verdict.short(unit);
                if len > 0 {
                    let mut bytes = old(self);
                    bytes[..len].copy_from_slice(&image.0[..len]);
                    self.store(page.0, bytes, order);
                }
                return Err(io::Error::new(io::ErrorKind::WriteZero, verdict.name()));
            }
            Some(Fault::Torn(unit)) => {
                let units = PAGE_SIZE / unit.bytes();
                // One unit is certainly missing, the others at random.
                let missing = verdict.random.below(units as u64) as usize;
                let mut bytes = old(self);
                for index in (0..units).filter(|&index| index != missing) {
                    let range = index * unit.bytes()..(index + 1) * unit.bytes();
                    if verdict.random.below(2) == 0 {
                        bytes[range.clone()].copy_from_slice(&image.0[range]);
                    }
                }
                self.store(page.0, bytes, order);
            }
            _ => self.store(page.0, image.0, order),
        }
        Ok(())
    }

    /// One of the states that a power cut may leave, chosen by `seed`. With [`Cut::Prefix`], writes
    /// up to `last` in the order of the device are kept.
    pub(super) fn after_power_cut(&self, seed: u64, cut: Cut, last: u64) -> Medium {
        if cut == Cut::Process {
            return self.clone();
        }
        let random = SeededRandom::new(seed);
        let mut left = Medium::default();
        // The end is either the old or the new one, and past the old end is the old content. This
        // also holds if a shorter end was made durable together with a longer one that followed:
        // zeroes are not guaranteed.
        let mut dice = random.mix(u64::MAX);
        let is_old = cut == Cut::Nothing || cut != Cut::All && dice.below(2) == 0;
        if is_old {
            for (&number, bytes) in &self.cut_off {
                let page = StoredPage { synced: Some(bytes.clone()), ..StoredPage::default() };
                left.pages.insert(number, page);
            }
        }
        for (&number, page) in &self.pages {
            if let Some(bytes) = page.after_power_cut(random.mix(number), cut, last) {
                left.pages
                    .insert(number, StoredPage { synced: Some(bytes), ..StoredPage::default() });
            }
        }
        // The device also covers the pages that were kept.
        let length = if is_old { self.synced_capacity } else { self.capacity };
        let kept = left.pages.keys().next_back().map_or(0, |last| last + 1);
        left.capacity = length.max(kept);
        left.synced_capacity = left.capacity;
        left
    }

    /// Ends the device before page `pages`.
    pub(super) fn shrink(&mut self, pages: u64) {
        if pages >= self.capacity {
            return;
        }
        for (number, page) in self.pages.split_off(&pages) {
            if let Some(bytes) = page.synced {
                self.cut_off.entry(number).or_insert(bytes);
            }
        }
        self.capacity = pages;
    }

    /// Positions of all writes since the last sync.
    pub(super) fn unsynced_orders(&self) -> impl Iterator<Item = u64> {
        self.pages.values().flat_map(|page| page.order.iter().copied())
    }

    fn store(&mut self, page: u64, bytes: [u8; PAGE_SIZE], order: u64) {
        self.extend_to(page);
        let page = self.pages.entry(page).or_default();
        page.previous = Some(Arc::clone(page.current().unwrap_or(zeroes())));
        if page.unsynced.len() == KEPT_VERSIONS {
            page.unsynced.remove(0);
            page.order.remove(0);
        }
        page.unsynced.push(Arc::new(bytes));
        page.order.push(order);
    }

    fn extend_to(&mut self, page: u64) {
        self.capacity = self.capacity.max(page + 1);
    }

    /// A page other than `page`, inside the device if it has another one.
    fn another_page(&self, page: u64, random: &mut SeededRandom) -> u64 {
        match self.capacity {
            0 | 1 => page ^ 1,
            pages => (page + 1 + random.below(pages - 1)) % pages,
        }
    }

    pub(super) fn sync(&mut self) {
        for page in self.pages.values_mut() {
            if let Some(last) = page.unsynced.pop() {
                page.set_synced(last);
            }
        }
        self.synced_capacity = self.capacity;
        self.cut_off.clear();
    }

    /// A failed sync: its writes are seen until a power cut, and never become durable.
    pub(super) fn give_up_unsynced(&mut self) {
        for page in self.pages.values_mut() {
            if let Some(last) = page.unsynced.pop() {
                page.given_up = Some(last);
                page.unsynced.clear();
                page.order.clear();
            }
        }
    }

    /// Makes the content that reads see durable.
    pub(super) fn settle(&mut self) {
        for page in self.pages.values_mut() {
            if let Some(current) = page.current().cloned() {
                page.set_synced(current);
            }
        }
        self.synced_capacity = self.capacity;
        self.cut_off.clear();
    }
}

impl StoredPage {
    pub(super) fn current(&self) -> Option<&Bytes> {
        self.unsynced.last().or(self.given_up.as_ref()).or(self.synced.as_ref())
    }

    /// Makes these bytes durable and drops all others.
    pub(super) fn set_synced(&mut self, bytes: Bytes) {
        (self.synced, self.given_up) = (Some(bytes), None);
        self.unsynced.clear();
        self.order.clear();
    }

    /// With [`Cut::Sectors`] a third of the pages keeps the synced version, a third keeps a later
    /// one, and a third is mixed by sectors.
    fn after_power_cut(&self, mut random: SeededRandom, cut: Cut, last: u64) -> Option<Bytes> {
        let versions = self.unsynced.len() as u64;
        if versions == 0 {
            return self.synced.clone();
        }
        let choice = match cut {
            Cut::Sectors => random.below(3),
            Cut::Pages => random.below(2),
            Cut::Nothing => 0,
            // Without the content that a failed sync lost.
            Cut::All | Cut::Process => return self.unsynced.last().cloned(),
            Cut::Prefix => {
                let kept = self.order.partition_point(|order| *order <= last);
                let newest = kept.checked_sub(1).map(|at| &self.unsynced[at]);
                return newest.or(self.synced.as_ref()).cloned();
            }
        };
        match choice {
            0 => self.synced.clone(),
            1 => Some(Arc::clone(&self.unsynced[random.below(versions) as usize])),
            _ => {
                let mut bytes = **self.synced.as_ref().unwrap_or(zeroes());
                let unit = Unit::Sector.bytes();
                for sector in bytes.chunks_mut(unit).enumerate() {
                    let (index, sector) = sector;
                    // One more choice than there are versions: the synced one.
                    if let Some(version) = self.unsynced.get(random.below(versions + 1) as usize) {
                        sector.copy_from_slice(&version[index * unit..(index + 1) * unit]);
                    }
                }
                Some(Arc::new(bytes))
            }
        }
    }
}

impl Verdict {
    /// Bytes of a short transfer: whole units, and fewer than a page.
    fn short(&mut self, unit: Unit) -> usize {
        self.random.below((PAGE_SIZE / unit.bytes()) as u64) as usize * unit.bytes()
    }
}

pub(super) fn zeroes() -> &'static Bytes {
    static ZEROES: OnceLock<Bytes> = OnceLock::new();
    ZEROES.get_or_init(|| Arc::new([0; PAGE_SIZE]))
}
