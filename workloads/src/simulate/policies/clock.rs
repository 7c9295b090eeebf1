//! CLOCK: a hand goes around the frames, clears the reference bits that are set and takes the first
//! page without one.
//!
//! Source: Corbató 1968 after Gilbert, "Bottlenecks Uncovered" (2020), section 1.2.8. The text
//! there says that the hand sets the bits it passes; it clears them.
//!
//! Parameters: `ref_at_load`, whether the bit is set when a page is loaded (1, as hardware does) or
//! only by the first use after that (0, also known as FIFO-Reinsertion); `update`, Gilbert's
//! variants: the beginning of a use sets the bit, its end (also that of the use that loads the
//! page), both, or also a page that cannot leave gets it.
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
    parameters: &[
        Parameter {
            name: "ref_at_load",
            default: "1",
            takes: Domain::Word(&["0", "1"]),
            about: "reference bit of a page that was just loaded",
        },
        Parameter {
            name: "update",
            default: "fix",
            takes: Domain::Word(&["fix", "unfix", "both", "full"]),
            about: "what sets the bit: the beginning of a use, its end, both, or full: also a page \
                    that cannot leave",
        },
    ],
    build: |setup| {
        Box::new(Clock {
            circle: Lists::new(setup.pages()),
            referenced: PerPage::new(setup.pages(), false),
            ref_at_load: setup.word("ref_at_load") == "1",
            at_fix: setup.word("update") != "unfix",
            at_unfix: setup.word("update") != "fix",
            at_refusal: setup.word("update") == "full",
        })
    },
};

struct Clock {
    /// The hand is at the back.
    circle: Lists<1>,
    referenced: PerPage<bool>,
    ref_at_load: bool,
    at_fix: bool,
    at_unfix: bool,
    at_refusal: bool,
}

impl Policy for Clock {
    #[inline]
    fn hit(&mut self, access: Access, _: &Pool) {
        if self.at_fix {
            self.referenced[access.page] = true;
        }
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

    #[inline]
    fn unfix(&mut self, page: Page, _: &Pool) {
        if self.at_unfix {
            self.referenced[page] = true;
        }
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.referenced[page] = self.at_refusal;
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

#[cfg(test)]
mod tests {
    use super::super::testing::{misses_of, mixed, replayed, run};

    #[test]
    fn the_end_of_the_first_use_sets_the_bit_as_a_load_does() {
        let trace = mixed(5);
        assert_eq!(run("clock:update=unfix,ref_at_load=0", 30, &trace), run("clock", 30, &trace));
        assert_eq!(run("clock:update=both", 30, &trace), run("clock", 30, &trace));
        assert_eq!(
            misses_of("clock:update=unfix,ref_at_load=0", 2, &[1, 2, 1, 3, 1]),
            [1, 2, 3, 1]
        );
        // Only with `fix` a page that was used once leaves at once.
        assert_eq!(misses_of("clock:update=fix,ref_at_load=0", 2, &[1, 2, 1, 3, 1]), [1, 2, 3]);
    }

    #[test]
    fn full_differs_only_if_pages_cannot_leave() {
        let trace = mixed(6);
        let misses = |text: &str| replayed(text, 30, &trace).misses;
        assert_eq!(misses("clock:update=full"), misses("clock:update=both"));
        let pinned = |text: &str| {
            let mut spec = crate::simulate::registry::Spec::parse(text).unwrap();
            spec.pinned = 0.3;
            let device = crate::simulate::replay::Device::default();
            spec.run(&trace, 30, 1, device, |_| true).unwrap().misses
        };
        assert_ne!(pinned("clock:update=full"), pinned("clock:update=both"));
        // Gilbert's FIFO asks again for a page that had to stay, LOOP goes on.
        assert_eq!(misses("fifo"), misses("loop"));
        assert_ne!(pinned("fifo"), pinned("loop"));
    }
}
