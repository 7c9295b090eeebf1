//! LIRS: pages whose last two uses were close together (LIR) hold almost all of the cache; the
//! others (HIR) pass through a short queue, and may become LIR by a use that comes while they are
//! still on the stack of recent pages.
//!
//! Source: Jiang, Zhang, "LIRS: an efficient low inter-reference recency set replacement policy",
//! SIGMETRICS 2002, section 3. The stack has at most twice as many pages as the cache.
//!
//! Parameters: `hir`, share of the cache for HIR pages, at least one page; `form`, the effect of a
//! use of a cached HIR page that is not on the stack. In the paper the page goes to the top of
//! stack and queue. libCacheSim then also turns the last LIR page into a HIR page, which can evict
//! a page on a hit, and with a queue of one page it loses count of the used page, so that the cache
//! holds one more. Both forms exist because there are published miss counts of the second.

use crate::simulate::entry::{Domain, Parameter, PolicyEntry, Setup};
use crate::simulate::lists::Lists;
use crate::simulate::policy::{Access, Policy};
use crate::simulate::pool::{Page, PerPage, Pool};

pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "lirs",
    source: "Jiang, Zhang, SIGMETRICS 2002, section 3",
    cost: "O(1) amortised",
    parameters: &[
        Parameter {
            name: "hir",
            default: "0.01",
            takes: Domain::Number(0.0, 0.5),
            about: "share of the cache for HIR pages",
        },
        Parameter {
            name: "form",
            default: "libcachesim",
            takes: Domain::Word(&["libcachesim", "paper"]),
            about: "effect of a hit on a page that is only in the queue",
        },
    ],
    build: |setup| Box::new(Lirs::new(setup, setup.word("form") == "paper", None)),
};

/// The second chance of LIRS-WSR.
pub(super) struct SecondChance {
    dirty: PerPage<bool>,
    /// Dirty pages that had their chance.
    cold: PerPage<bool>,
}

impl SecondChance {
    pub(super) fn new(pages: usize) -> Self {
        Self { dirty: PerPage::new(pages, false), cold: PerPage::new(pages, false) }
    }

    /// Gives `page` its chance, if it is dirty and had none yet; returns whether it did.
    fn takes(&mut self, page: Page) -> bool {
        self.dirty[page] && !std::mem::replace(&mut self.cold[page], true)
    }

    fn used(&mut self, access: Access, cached: bool) {
        self.cold[access.page] = false;
        self.dirty[access.page] = access.write || (cached && self.dirty[access.page]);
    }
}

impl Lirs {
    pub(super) fn new(setup: &Setup, paper: bool, second: Option<SecondChance>) -> Self {
        let hir_limit = setup.share("hir").max(1);
        Self {
            stack: Lists::new(setup.pages()),
            queues: Lists::new(setup.pages()),
            lir: PerPage::new(setup.pages(), false),
            uncounted: PerPage::new(setup.pages(), false),
            lir_pages: 0,
            capacity: setup.capacity,
            hir_limit,
            lir_limit: setup.capacity.saturating_sub(hir_limit),
            paper,
            second,
            victims: Vec::new(),
        }
    }
}

/// Cached HIR pages.
const QUEUE: usize = 0;
/// HIR pages of the stack that are not cached, by the time that they left.
const GONE: usize = 1;

pub(super) struct Lirs {
    /// The paper's stack S, its top at the front.
    stack: Lists<1>,
    queues: Lists<2>,
    lir: PerPage<bool>,
    /// Cached pages that are on the stack, but neither LIR nor in the queue.
    uncounted: PerPage<bool>,
    lir_pages: usize,
    capacity: usize,
    hir_limit: usize,
    lir_limit: usize,
    paper: bool,
    second: Option<SecondChance>,
    /// Pages that left since the last report to the pool.
    victims: Vec<Page>,
}

impl Lirs {
    /// Stack pruning: the bottom of the stack is a LIR page.
    fn prune(&mut self) {
        while let Some(page) = self.stack.back(0) {
            if self.lir[page] || self.stack.len(0) == 1 {
                break;
            }
            self.stack.remove(page);
            if self.queues.on(GONE, page) {
                self.queues.remove(page);
            }
            if std::mem::take(&mut self.uncounted[page]) {
                self.victims.push(page);
            }
        }
    }

    /// The page that is longest in the queue leaves the cache.
    fn evict_hir(&mut self) {
        let Some(mut page) = self.queues.pop_back(QUEUE) else { return };
        while self.second.as_mut().is_some_and(|second| second.takes(page)) {
            self.queues.push_front(QUEUE, page);
            let Some(next) = self.queues.pop_back(QUEUE) else { return };
            page = next;
        }
        if self.stack.on(0, page) {
            self.queues.push_front(GONE, page);
        }
        self.victims.push(page);
    }

    /// The bottom of the stack becomes a HIR page.
    fn demote(&mut self) {
        self.prune();
        let Some(mut page) = self.stack.back(0) else { return };
        while self.second.as_mut().is_some_and(|second| second.takes(page)) {
            self.stack.move_to_front(0, page);
            self.prune();
            let Some(next) = self.stack.back(0) else { return };
            page = next;
        }
        self.stack.remove(page);
        self.lir[page] = false;
        self.lir_pages -= 1;
        while self.queues.len(QUEUE) >= self.hir_limit {
            self.evict_hir();
        }
        self.queues.push_front(QUEUE, page);
        self.prune();
    }

    /// Makes room for a page among the LIR pages. The page is not on the stack meanwhile.
    fn make_room(&mut self, page: Page) {
        self.stack.remove(page);
        while self.lir_pages >= self.lir_limit && self.lir_pages > 0 {
            self.demote();
        }
        self.stack.push_front(0, page);
    }

    /// A cached HIR page of the stack is used again.
    fn promote(&mut self, page: Page) {
        self.make_room(page);
        self.lir[page] = true;
        self.lir_pages += 1;
    }

    fn limit_stack(&mut self) {
        while self.stack.len(0) > 2 * self.capacity {
            let Some(page) = self.queues.pop_back(GONE) else { break };
            self.stack.remove(page);
        }
    }

    /// Cached pages that the algorithm counts.
    fn counted(&self) -> usize {
        self.lir_pages + self.queues.len(QUEUE)
    }
}

impl Policy for Lirs {
    fn hit(&mut self, access: Access, _: &Pool) {
        let page = access.page;
        if let Some(second) = &mut self.second {
            second.used(access, true);
        }
        if self.stack.on(0, page) {
            self.stack.move_to_front(0, page);
            if self.lir[page] {
                self.prune();
            } else {
                self.queues.remove(page);
                self.uncounted[page] = false;
                self.promote(page);
            }
        } else {
            self.queues.move_to_front(QUEUE, page);
            if !self.paper {
                while self.lir_pages >= self.lir_limit && self.lir_pages > 0 {
                    self.demote();
                }
                if let Some(at) = self.victims.iter().position(|victim| *victim == page) {
                    self.victims.remove(at);
                    self.uncounted[page] = true;
                }
            }
            self.stack.push_front(0, page);
        }
        self.limit_stack();
    }

    fn miss(&mut self, access: Access, _: &Pool) -> bool {
        let page = access.page;
        if self.stack.on(0, page) {
            self.make_room(page);
            self.queues.remove(page);
        } else if self.lir_pages >= self.lir_limit {
            while self.queues.len(QUEUE) >= self.hir_limit {
                self.evict_hir();
            }
        }
        true
    }

    fn select(&mut self, _: &Pool, victims: &mut Vec<Page>) {
        while self.counted() >= self.capacity {
            if self.queues.is_empty(QUEUE) {
                self.demote();
            }
            self.evict_hir();
        }
        victims.append(&mut self.victims);
    }

    fn evicts_early(&self) -> bool {
        true
    }

    fn leaving(&mut self, victims: &mut Vec<Page>) {
        victims.append(&mut self.victims);
    }

    fn fetch(&mut self, access: Access, _: &Pool) {
        let page = access.page;
        if let Some(second) = &mut self.second {
            second.used(access, false);
        }
        if self.stack.on(0, page) {
            self.lir[page] = true;
            self.lir_pages += 1;
        } else {
            self.stack.push_front(0, page);
            self.lir[page] = self.lir_pages < self.lir_limit;
            if self.lir[page] {
                self.lir_pages += 1;
            } else {
                self.queues.push_front(QUEUE, page);
            }
        }
        self.limit_stack();
    }

    fn cannot_evict(&mut self, page: Page, _: &Pool) {
        self.queues.remove(page);
        self.queues.push_front(QUEUE, page);
    }

    fn remove(&mut self, page: Page, _: &Pool) {
        self.lir_pages -= usize::from(std::mem::take(&mut self.lir[page]));
        self.uncounted[page] = false;
        self.stack.remove(page);
        self.queues.remove(page);
        self.prune();
    }

    fn cleaned(&mut self, page: Page, _: &Pool) {
        if let Some(second) = &mut self.second {
            second.dirty[page] = false;
        }
    }

    fn upcoming(&mut self, _: &Pool, take: &mut dyn FnMut(Page) -> bool) {
        self.queues.from_back(QUEUE).all(take);
    }

    fn bytes_per_page(&self) -> f64 {
        // A stack of twice the cache and the queue.
        72.0
    }
}
