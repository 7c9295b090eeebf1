//! The janitor: one background thread that clears garbage away in the pages, and rolls abandoned
//! transactions back. `state` is what others see of it, `rounds` what the thread does.

mod rounds;
mod state;

pub(crate) use rounds::work;
pub(crate) use state::Janitor;
