//! LRD, version 2: as version 1, but counts age from time to time. See `lrd`. A count is aged when
//! it is next used or compared, so no thread visits all frames.

use super::{
    lrd::{Ageing, Lrd},
    parameters::{Parameter, Range, Setup},
    policy::{Replacement, Visit},
    tracker::Tracker,
};
use crate::{error::Result, ids::PageId};

/// See the module documentation.
#[derive(Debug)]
pub struct Lrd2(Lrd);

impl Replacement for Lrd2 {
    const NAME: &'static str = "lrd2";
    const SUMMARY: &'static str = "least reference density of a sample; counts age";
    const SOURCE: &'static str =
        "Effelsberg, Härder, TODS 9(4), 1984; Gilbert 2020, section 1.2.12.2";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::epochs(64.0),
        Parameter {
            name: "period",
            default: 1.0,
            range: Range::Number(0.01, 1e6),
            about: "replacements of the pool between two agings",
        },
        Parameter {
            name: "subtract",
            default: 10.0,
            range: Range::Whole(0, 1_000_000),
            about: "subtracted from each count at an aging",
        },
    ];

    fn new(setup: &Setup) -> Result<Lrd2> {
        let epochs = (setup.number("period") * setup.number("epochs")).max(1.0) as u32;
        let ageing = Ageing { epochs, subtract: setup.number("subtract") as u32 };
        Ok(Lrd2(Lrd { ageing: Some(ageing) }))
    }
    fn on_load(&self, visit: Visit<'_>, _: PageId) {
        self.0.load(visit);
    }
    #[inline]
    fn on_access(&self, visit: Visit<'_>) {
        self.0.access(visit);
    }
    #[inline]
    fn value(&self, tracker: &Tracker, epoch: u32) -> f32 {
        self.0.density(tracker, epoch)
    }
}
