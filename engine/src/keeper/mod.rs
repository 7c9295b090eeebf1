//! The keeper of versions: one background thread that looks at the snapshots, drops the versions
//! that none of them needs, and holds versions to their limit. `state` has its findings and its
//! requests, `look` is one look.

mod look;
mod state;

pub(crate) use look::work;
pub(crate) use state::{DELAYS, HOLD, Keeper};
