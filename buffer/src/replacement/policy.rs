//! The interface of a policy: [`Replacement`], and [`Order`] for what a policy needs beyond a
//! value.
//!
//! | event | hook | called with |
//! |---|---|---|
//! | a page comes into a frame | `on_load` | the frame owned by the caller |
//! | a page is read | `on_access` | no latch, or any: must not wait for a page latch |
//! | a page is changed | `on_write` | the exclusive latch of the page |
//! | a page leaves its frame | `on_leave` | the frame owned by the caller, not yet free |
//!
//! `on_load` and `on_leave` of a frame alternate, because one thread owns the frame at each of
//! them. `on_access` may come late, when the frame has another page or none: a policy must not
//! trust it for more than statistics.
//!
//! A latch of a policy is the last one in the order of latches: under it a policy only reads frame
//! headers, and waits for nothing.

use super::{
    parameters::{Parameter, Setup},
    tracker::Tracker,
};
use crate::{
    error::Result,
    ids::{FrameId, PageId},
    page::{PageRef, header},
};

/// An event at a page in a frame.
#[derive(Clone, Copy)]
pub struct Visit<'f> {
    /// The frame.
    pub frame: FrameId,
    /// Its tracker.
    pub tracker: &'f Tracker,
    /// The current epoch, see [`Parameter::epochs`].
    pub epoch: u32,
    /// The bytes of the page, which other threads may be changing; none in a simulation.
    pub page: Option<PageRef<'f>>,
}

impl Visit<'_> {
    /// Height of the page above the leaves of its tree: 0 for a leaf, and in a simulation. Any
    /// number if the page is being changed.
    pub fn level(&self) -> u8 {
        self.page.map_or(0, |page| page.u8_at(header::LEVEL))
    }
}

/// A page replacement policy. One type for each; `policies!` lists them.
pub trait Replacement: Sized + Send + Sync {
    /// Name, as in `--policy NAME`.
    const NAME: &'static str;
    /// The rule in a few words.
    const SUMMARY: &'static str;
    /// The paper and section that the policy is from.
    const SOURCE: &'static str;
    /// The parameters.
    const PARAMETERS: &'static [Parameter] = &[];
    /// Whether a read of a page that is in memory must be reported. Without it a hit costs nothing.
    const TRACKS_HITS: bool = true;
    /// Whether [`Replacement::order`] has an order.
    const ORDERED: bool = false;

    /// The policy of a new pool.
    ///
    /// # Errors
    /// [`Setup::does_not_fit`] if the parameters and the pool do not go together.
    fn new(setup: &Setup) -> Result<Self>;

    /// A page was loaded into or created in the frame. The access that needs it is reported next.
    fn on_load(&self, visit: Visit<'_>, page: PageId);

    /// The page was read.
    fn on_access(&self, visit: Visit<'_>);

    /// The page was changed; also counts as an access.
    #[inline(always)]
    fn on_write(&self, visit: Visit<'_>) {
        self.on_access(visit);
    }

    /// The page leaves the frame, because it is evicted or because it is freed.
    fn on_leave(&self, _visit: Visit<'_>, _page: PageId, _how: Leave) {}

    /// The value of the page; of a sample, the pages with the lowest value are evicted. A policy
    /// with an order gives 0 to a page that may leave, and more to one that was used since it was
    /// proposed.
    fn value(&self, tracker: &Tracker, epoch: u32) -> f32;

    /// The order in which pages leave, if the policy has one. Otherwise evictors sample frames and
    /// compare values.
    fn order(&self) -> Option<&dyn Order> {
        None
    }
}

/// How a page leaves its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It was evicted, and may come back.
    Evicted,
    /// It was freed, or was read and never used.
    Dropped,
}

/// The second part of a policy whose victims come from a hand, a queue or a cooling stage.
///
/// An evictor asks for victims, evicts the clean ones and queues the dirty ones for write-back. A
/// page that was proposed stays known to the policy until `on_leave`. Each round of an evictor
/// calls `propose` once. A page that cannot leave is reported by `refused`, or passed because of
/// its [`Standing`]; the policy must then go on to others, so that evictors do not meet it again in
/// every round.
pub trait Order: Send + Sync {
    /// Adds up to `most` frames to `victims`, next first. Must end, whatever the frames are: looks
    /// at each frame a limited number of times.
    fn propose(&self, frames: &dyn Frames, most: usize, victims: &mut Vec<FrameId>);

    /// A page that was proposed is in use.
    fn refused(&self, frame: FrameId, tracker: &Tracker);
}

/// The questions of an order about the frames of a pool. The answers may be old when they are used.
pub trait Frames {
    /// Number of frames.
    fn count(&self) -> usize;

    /// The current epoch.
    fn epoch(&self) -> u32;

    /// The tracker of a frame.
    fn tracker(&self, frame: FrameId) -> &Tracker;

    /// Whether the page of a frame could leave.
    fn standing(&self, frame: FrameId) -> Standing;
}

/// Whether the page of a frame could leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The frame has no page, or a page is being read into it.
    Empty,
    /// The page must stay: it is a root, or a child of it has a frame.
    Held,
    /// The page is being written and leaves after that if it is not used before.
    Writing,
    /// The page could leave at once.
    Clean,
    /// The page could leave once it was written.
    Dirty,
}

impl Standing {
    /// Whether the page could leave, at once or once it was written.
    pub fn may_leave(self) -> bool {
        matches!(self, Standing::Clean | Standing::Dirty)
    }
}
