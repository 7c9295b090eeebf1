//! Replacement policies decide which pages stay in memory. Each policy is one file: its name, its
//! parameters, what it keeps in the tracker of a frame, and the value of a page ([`Replacement`]).
//! A hand, a queue or a cooling stage is the second part of a policy ([`Order`]). Eviction and
//! write-back are shared by all policies (`evictor`).
//!
//! The list below makes the enum [`Policy`], the names, the parsing and the help
//! of all policies. Calls are dispatched statically. WATT's hooks are inlined where guards report
//! accesses; those of the others are one call away.
//! The README of the crate says how to add a policy.

mod draw;
mod gclock;
mod ghosts;
mod hand;
mod kinds;
mod lrd;
mod parameters;
mod policy;
mod queues;
mod tracker;

pub use parameters::{Parameter, Range, Setup};
pub use policy::{Frames, Leave, Order, Replacement, Standing, Visit};
pub use tracker::{BYTES, FIRST_EPOCH, Tracker, WORDS};
#[doc(hidden)]
pub use watt2::parts as watt2_parts;

use crate::{
    error::{Error, Result},
    ids::PageId,
};

/// The description of a policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInfo {
    /// Its name.
    pub name: &'static str,
    /// Its rule in a few words.
    pub summary: &'static str,
    /// The paper and section that it is from.
    pub source: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Whether it has an order ([`Order`]); otherwise evictors sample.
    pub ordered: bool,
}

impl std::fmt::Display for PolicyInfo {
    /// One line for the policy, and one for each parameter.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:<11} {} [{}]", self.name, self.summary, self.source)?;
        self.parameters.iter().try_for_each(|parameter| writeln!(f, "{:<11}   {parameter}", ""))
    }
}

/// Declares the modules of the policies, one file each, and everything that lists them.
macro_rules! policies {
    ($($module:ident::$type:ident),+ $(,)?) => {
        $(mod $module;)+
        $(pub use $module::$type;)+

        /// The policy of a pool.
        #[allow(clippy::large_enum_variant)] // A pool has one.
        pub enum Policy {
            $(#[doc = concat!("See [`", stringify!($type), "`].")] $type($type),)+
        }

        /// All policies.
        pub fn policies() -> &'static [PolicyInfo] {
            const ALL: &[PolicyInfo] = &[$(PolicyInfo {
                name: $type::NAME,
                summary: $type::SUMMARY,
                source: $type::SOURCE,
                parameters: $type::PARAMETERS,
                ordered: $type::ORDERED,
            }),+];
            ALL
        }

        impl Policy {
            fn of(name: &str, parameters: &str, frames: usize) -> Result<Option<(Policy, f64)>> {
                $(if name == $type::NAME {
                    let known = $type::PARAMETERS;
                    let setup = Setup::parse($type::NAME, known, parameters, frames)?;
                    return Ok(Some((Policy::$type($type::new(&setup)?), setup.epochs())));
                })+
                Ok(None)
            }

            /// Whether uses of pages in memory are reported.
            fn tracks_hits(&self) -> bool {
                !(false $(|| (!$type::TRACKS_HITS && matches!(self, Policy::$type(_))))+)
            }
        }

        /// Runs `$body` with `$policy` bound to the concrete policy, compiled once for each.
        macro_rules! with_policy {
            ($enum:expr, $policy:ident => $body:expr) => {
                match $enum {
                    $($crate::replacement::Policy::$type($policy) => $body,)+
                }
            };
        }
        pub(crate) use with_policy;
    };
}

policies! {
    watt::Watt,
    random::Random,
    lru::Lru,
    list_lru::ListLru,
    midpoint_lru::MidpointLru,
    lru_k::LruK,
    slru::Slru,
    clock::Clock,
    zclock::ZClock,
    gclock1::GClock1,
    gclock2::GClock2,
    dgclock1::DgClock1,
    dgclock2::DgClock2,
    lfu::Lfu,
    lfuda::Lfuda,
    lrd1::Lrd1,
    lrd2::Lrd2,
    hyperbolic::Hyperbolic,
    cflru::Cflru,
    lru_wsr::LruWsr,
    sieve::Sieve,
    s3_fifo::S3Fifo,
    leanevict::LeanEvict,
    watt2::Watt2,
}

/// How uses of pages in memory are reported to the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HitTracking {
    /// Inline.
    Watt,
    /// Not at all.
    None,
    /// By a call.
    Other,
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Policy {
    /// Makes the policy `name` or `name:key=value,..` for a pool of `frames` frames. Also returns
    /// the epochs per pool replacement: the epoch advances once per (frames / epochs) evictions.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] that names the known policies, or the parameters of the policy with
    /// their ranges, or says why the policy does not fit into the pool.
    pub fn parse(text: &str, frames: usize) -> Result<(Policy, f64)> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        Policy::of(name, parameters, frames)?.ok_or_else(|| {
            let names: Vec<_> = policies().iter().map(|known| known.name).collect();
            Error::InvalidOption(format!("unknown policy {name:?}: known are {}", names.join(", ")))
        })
    }

    /// The name of the policy.
    pub fn name(&self) -> &'static str {
        fn name_of<P: Replacement>(_: &P) -> &'static str {
            P::NAME
        }
        with_policy!(self, policy => name_of(policy))
    }

    /// How uses of pages in memory are reported.
    pub(crate) fn hit_tracking(&self) -> HitTracking {
        match self {
            Policy::Watt(_) => HitTracking::Watt,
            other if other.tracks_hits() => HitTracking::Other,
            _ => HitTracking::None,
        }
    }

    /// Whether the policy gives pages values that differ, by which a sample can be ordered.
    pub fn orders_by_value(&self) -> bool {
        !matches!(self, Policy::Random(_)) && self.order().is_none()
    }

    /// Reports a read of the page. Guards call this for the policies that are not inlined there.
    pub fn on_access(&self, visit: Visit<'_>) {
        with_policy!(self, policy => policy.on_access(visit));
    }

    /// Reports a change of the page. Guards call this for the policies that are not inlined there.
    pub fn on_write(&self, visit: Visit<'_>) {
        with_policy!(self, policy => policy.on_write(visit));
    }

    /// Reports that a page was loaded into or created in the frame. The caller owns the frame.
    pub fn on_load(&self, visit: Visit<'_>, page: PageId) {
        with_policy!(self, policy => policy.on_load(visit, page));
    }

    /// Reports that the page leaves the frame. The caller owns the frame, and has not freed it yet.
    pub fn on_leave(&self, visit: Visit<'_>, page: PageId, how: Leave) {
        with_policy!(self, policy => policy.on_leave(visit, page, how));
    }

    /// The value of a page, see [`Replacement::value`].
    #[inline(always)]
    pub fn value(&self, tracker: &Tracker, epoch: u32) -> f32 {
        with_policy!(self, policy => policy.value(tracker, epoch))
    }

    /// The order of the policy, if it has one.
    pub fn order(&self) -> Option<&dyn Order> {
        with_policy!(self, policy => policy.order())
    }
}

#[cfg(test)]
mod tests;
