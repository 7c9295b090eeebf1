//! CLOCK: a hand goes around the frames, clears the reference bits that are set and takes the first
//! page without one.
//!
//! Source: Corbató 1968 after Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.8. The text
//! there says that the hand sets the bits it passes; it clears them.
//!
//! Parameter `ref_at_load`: whether the bit is set when a page is loaded (1, as hardware does) or
//! only by the first use after that (0, also known as FIFO-Reinsertion).
//!
//! The circle is a queue here: pages that the hand has passed go to the end.

use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "clock",
    source: "Gilbert 2020, section 1.2.8",
    cost: "O(1) amortised",
    parameters: &[Parameter {
        name: "ref_at_load",
        default: "1",
        takes: Domain::Word(&["0", "1"]),
        about: "reference bit of a page that was just loaded",
    }],
    build: |setup| {
        Box::new(Clock {
            circle: Lists::new(setup.pages()),
            referenced: PerPage::new(setup.pages(), false),
            ref_at_load: setup.word("ref_at_load") == "1",
        })
    },
};

struct Clock {
    /// The hand is at the back.
    circle: Lists<1>,
    referenced: PerPage<bool>,
    ref_at_load: bool,
}

impl Policy for Clock {
    #[inline]
    fn hit(&mut self, access: Access, _: &Pool) {
        self.referenced[access.page] = true;
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        while let Some(page) = self.circle.pop_back(0) {
            if !std::mem::take(&mut self.referenced[page]) {
                victims.push(page);
                break;
            }
            self.circle.push_front(0, page);
        }
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.referenced[access.page] = self.ref_at_load;
        self.circle.push_front(0, access.page);
    }

    fn prefetched(&mut self, page: Page, _: &Pool) {
        self.referenced[page] = false;
        self.circle.push_back(0, page);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.referenced[page] = true;
        self.circle.push_front(0, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.circle.remove(page);
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        let spared = self.circle.from_back(0).filter(|page| self.referenced[*page]);
        let cold = self.circle.from_back(0).filter(|page| !self.referenced[*page]);
        cold.chain(spared).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        0.125
    }
}
