//! SLRU: LRU in two segments; new pages enter the probationary one, a second use leads to the
//! protected one, whose oldest pages go back.
//!
//! Source: Karedla, Love, Wherry, "Caching strategies to improve disk system performance", IEEE
//! Computer 27(3), 1994; Gilbert 2020, section 1.2.7. Parameter `protected`: most pages of the
//! protected segment as a share of the cache.

use crate::simulate::entry::{Domain, Parameter, PolicyEntry};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "slru",
    source: "Karedla, Love, Wherry, IEEE Computer 27(3), 1994",
    cost: "O(1)",
    parameters: &[Parameter {
        name: "protected",
        default: "0.8",
        takes: Domain::Number(0.0, 1.0),
        about: "protected pages as a share of the cache",
    }],
    build: |setup| {
        Box::new(Slru { lists: Lists::new(setup.pages()), protected: setup.share("protected") })
    },
};

const PROBATION: usize = 0;
const PROTECTED: usize = 1;

struct Slru {
    lists: Lists<2>,
    protected: usize,
}

impl Slru {
    fn protect(&mut self, page: Page) {
        self.lists.move_to_front(PROTECTED, page);
        if self.lists.len(PROTECTED) > self.protected
            && let Some(oldest) = self.lists.pop_back(PROTECTED)
        {
            self.lists.push_front(PROBATION, oldest);
        }
    }
}

impl Policy for Slru {
    fn hit(&mut self, access: Access, _: &Pool) {
        self.protect(access.page);
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        let victim = self.lists.pop_back(PROBATION);
        victims.extend(victim.or_else(|| self.lists.pop_back(PROTECTED)));
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        self.lists.push_front(PROBATION, access.page);
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.protect(page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.lists.remove(page);
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        self.lists.back_quarter(PROBATION).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        24.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::misses_of;

    #[test]
    fn pages_used_twice_outlive_a_scan() {
        // 1 and 2 are protected by their second use; 3 to 6 pass through probation.
        let trace = [1, 2, 1, 2, 3, 4, 5, 6, 1, 2];
        assert_eq!(misses_of("slru:protected=0.5", 4, &trace), [1, 2, 3, 4, 5, 6]);
        // Protected holds one page: the second use of 2 sends 1 back, which the scan pushes out.
        assert_eq!(misses_of("slru:protected=0.25", 4, &trace), [1, 2, 3, 4, 5, 6, 1]);
    }
}
