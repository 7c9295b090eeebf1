//! The faults of the simulated device and their times: a [`FaultPlan`] is a seed and a list of
//! rules.
//!
//! Whether a rule with a probability fires depends only on the seed, the rule, the page, and how
//! often that page was used. So a run with several threads meets the same faults as long as each
//! page sees the same operations, in any order between pages.
//!
//! ```
//! use std::io::ErrorKind;
//! use wattle_buffer::{PageId, io::{Fault, FaultPlan, Op, Unit}};
//! let plan = FaultPlan::new(42)
//!     .sometimes(Op::Read, 0.001, Fault::BitFlip)
//!     .nth(Op::Write, 17, Fault::Torn(Unit::Sector))
//!     .on_page(Op::Read, PageId(3), Fault::Error(ErrorKind::Other))
//!     .from(Op::Any, 10_000, Fault::Error(ErrorKind::StorageFull));
//! ```

use crate::{ids::PageId, page::PAGE_SIZE, random::SeededRandom};
use std::{collections::HashMap, io, time::Duration};

/// An operation of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reading one page.
    Read,
    /// Writing one page, alone or in a batch.
    Write,
    /// Making writes durable.
    Sync,
    /// Reserving room.
    Reserve,
    /// Giving room back.
    Shrink,
    /// Reading one page of the log.
    LogRead,
    /// Writing one page of the log.
    LogWrite,
    /// Making the writes to a segment of the log durable.
    LogSync,
    /// Creating a segment of the log.
    LogCreate,
    /// Removing a segment of the log.
    LogRemove,
    /// In rules: any of them.
    Any,
}

/// The unit that a write cannot divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 512 bytes.
    Sector,
    /// 4 KiB: a page arrives as a whole or not at all.
    Page,
}

impl Unit {
    /// Bytes of the unit.
    pub fn bytes(self) -> usize {
        match self {
            Unit::Sector => 512,
            Unit::Page => PAGE_SIZE,
        }
    }
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails and has no effect.
    Error(io::ErrorKind),
    /// The operation fails, but its effect is seen until a power cut. For a sync: the writes before
    /// it are read back, but no later sync makes them durable, because the kernel regards them as
    /// written. For the creation or removal of a segment of the log: its directory was not synced,
    /// so a power cut undoes it unless a later creation or removal succeeds.
    Unsettled(io::ErrorKind),
    /// A read or write ends early with an error, after some whole units, fewer than the page.
    Short(Unit),
    /// A write succeeds, but at least one of its units does not arrive.
    Torn(Unit),
    /// A write succeeds but does not arrive.
    Lost,
    /// A write succeeds but arrives at another page; for the log, at one of the same segment.
    Misdirected,
    /// A read returns the content of the page before its last write.
    Stale,
    /// A read returns one wrong bit; the medium is intact.
    BitFlip,
    /// The operation takes this much longer.
    Latency(Duration),
}

impl Fault {
    fn fits(self, op: Op) -> bool {
        match self {
            Fault::Error(_) | Fault::Latency(_) => true,
            Fault::Unsettled(_) => {
                matches!(op, Op::Sync | Op::LogSync | Op::LogCreate | Op::LogRemove)
            }
            Fault::Short(_) => matches!(op, Op::Read | Op::Write | Op::LogRead | Op::LogWrite),
            Fault::Torn(_) | Fault::Lost | Fault::Misdirected => {
                matches!(op, Op::Write | Op::LogWrite)
            }
            Fault::Stale | Fault::BitFlip => matches!(op, Op::Read | Op::LogRead),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum When {
    Sometimes(f64),
    Nth(u64),
    From(u64),
    OnPage(PageId),
    Always,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    op: Op,
    when: When,
    fault: Fault,
}

/// A seed and the faults to inject. The first rule that fires decides; of latencies, all that fire
/// add up. Operations are counted from 1, starting when the plan is installed.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    seed: u64,
    rules: Vec<Rule>,
    limit: Option<u64>,
    log_limit: Option<u64>,
}

impl FaultPlan {
    /// A plan without faults.
    pub fn new(seed: u64) -> FaultPlan {
        FaultPlan { seed, rules: Vec::new(), limit: None, log_limit: None }
    }

    /// Each `op` has `fault` with this probability, 0 to 1.
    pub fn sometimes(self, op: Op, probability: f64, fault: Fault) -> FaultPlan {
        assert!((0.0..=1.0).contains(&probability), "{probability} is not a probability");
        self.rule(op, When::Sometimes(probability), fault)
    }

    /// The `n`-th `op`, counted from 1, has `fault`.
    pub fn nth(self, op: Op, n: u64, fault: Fault) -> FaultPlan {
        self.rule(op, When::Nth(n), fault)
    }

    /// Every `op` from the `n`-th on has `fault`.
    pub fn from(self, op: Op, n: u64, fault: Fault) -> FaultPlan {
        self.rule(op, When::From(n), fault)
    }

    /// Every `op` on `page` has `fault`.
    pub fn on_page(self, op: Op, page: PageId, fault: Fault) -> FaultPlan {
        self.rule(op, When::OnPage(page), fault)
    }

    /// Every `op` has `fault`.
    pub fn always(self, op: Op, fault: Fault) -> FaultPlan {
        self.rule(op, When::Always, fault)
    }

    /// The device is full at `pages`: reservations and writes past that fail with `StorageFull`.
    pub fn limit(mut self, pages: u64) -> FaultPlan {
        self.limit = Some(pages);
        self
    }

    /// The log has room for `bytes` in all its segments: creating another one fails with
    /// `StorageFull`.
    pub fn log_limit(mut self, bytes: u64) -> FaultPlan {
        self.log_limit = Some(bytes);
        self
    }

    /// The seed, for the message of a failing test.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    fn rule(mut self, op: Op, when: When, fault: Fault) -> FaultPlan {
        assert!(fault.fits(op), "{fault:?} cannot happen to {op:?}");
        self.rules.push(Rule { op, when, fault });
        self
    }
}

/// A plan in use: the plan and the counts since its installation.
#[derive(Debug)]
pub(super) struct Injector {
    plan: FaultPlan,
    counts: HashMap<Op, u64>,
    /// Uses of each page, so that chance does not depend on the order between pages.
    uses: HashMap<(Op, u64), u64>,
}

/// Encodes a page of a segment of the log for [`Injector::judge`].
pub(super) fn log_page(segment: u64, page: u64) -> u64 {
    segment << 32 | page
}

/// The decision about one operation.
pub(super) struct Verdict {
    pub(super) fault: Option<Fault>,
    pub(super) latency: Duration,
    /// Decides the details of the fault.
    pub(super) random: SeededRandom,
    op: Op,
    /// The page that was passed with the operation.
    page: u64,
    /// Its number among the operations of its kind, and among all.
    numbers: (u64, u64),
    seed: u64,
}

impl Verdict {
    /// Names the operation in messages.
    #[cold]
    pub(super) fn name(&self) -> String {
        let Verdict { op, page, numbers: (this, any), seed, .. } = *self;
        let name = match op {
            Op::Read => format!("read {this} (page {page})"),
            Op::Write => format!("write {this} (page {page})"),
            Op::Reserve => format!("reservation {this} ({page} pages)"),
            Op::Shrink => format!("cut {this} (to {page} pages)"),
            Op::LogRead | Op::LogWrite => {
                let (segment, page) = (page >> 32, page & u64::from(u32::MAX));
                let what = if op == Op::LogRead { "read" } else { "write" };
                format!("log {what} {this} (segment {segment}, page {page})")
            }
            Op::LogSync => format!("log sync {this} (segment {})", page >> 32),
            Op::LogCreate => format!("creation {this} of a log segment ({})", page >> 32),
            Op::LogRemove => format!("removal {this} of a log segment ({})", page >> 32),
            Op::Sync | Op::Any => format!("sync {this}"),
        };
        format!("injected into {name}, operation {any}, seed {seed}")
    }
}

impl Injector {
    pub(super) fn new(plan: FaultPlan) -> Injector {
        Injector { plan, counts: HashMap::new(), uses: HashMap::new() }
    }

    pub(super) fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    pub(super) fn limit(&self) -> u64 {
        self.plan.limit.unwrap_or(PageId::MAX.0 + 1)
    }

    pub(super) fn log_limit(&self) -> u64 {
        self.plan.log_limit.unwrap_or(u64::MAX)
    }

    /// Counts one `op` (not [`Op::Any`]) and decides what happens to it. `page` is the number of
    /// pages for a reservation, and 0 for a sync; for the log see [`log_page`].
    pub(super) fn judge(&mut self, op: Op, page: u64) -> Verdict {
        let mut count = |op| {
            let count = self.counts.entry(op).or_default();
            *count += 1;
            *count
        };
        let (this, any) = (count(op), count(Op::Any));
        let used = self.uses.entry((op, page)).or_default();
        *used += 1;
        let base = SeededRandom::new(self.plan.seed).mix(op as u64).mix(page).mix(*used);
        let (mut fault, mut latency) = (None, Duration::ZERO);
        for (index, rule) in self.plan.rules.iter().enumerate() {
            if rule.op != op && rule.op != Op::Any {
                continue;
            }
            let number = if rule.op == Op::Any { any } else { this };
            let fires = match rule.when {
                When::Sometimes(chance) => base.mix(index as u64 + 1).unit() < chance,
                When::Nth(n) => number == n,
                When::From(n) => number >= n,
                When::OnPage(only) => only.0 == page && matches!(op, Op::Read | Op::Write),
                When::Always => true,
            };
            match rule.fault {
                _ if !fires => {}
                Fault::Latency(more) => latency += more,
                other => fault = fault.or(Some(other)),
            }
        }
        let (numbers, seed) = ((this, any), self.plan.seed);
        Verdict { fault, latency, random: base.mix(0), op, page, numbers, seed }
    }
}
