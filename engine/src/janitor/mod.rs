//! The janitor: one background thread that clears garbage away in the pages, and rolls abandoned
//! transactions back. `state` has the abandoned transactions, `rounds` the work of the thread.

mod rounds;
mod state;

pub(crate) use rounds::work;
pub(crate) use state::Janitor;
