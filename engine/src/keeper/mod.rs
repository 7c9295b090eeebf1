//! The keeper of versions: one background thread that looks at the snapshots, drops the versions that
//! none of them needs, and holds versions to their limit. `state` is what others see of it, `look` one
//! look of it.

mod look;
mod state;

pub(crate) use look::work;
pub(crate) use state::{DELAYS, HOLD, Keeper};
