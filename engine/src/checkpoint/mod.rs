//! Checkpoints. `state` has the last checkpoint and pins of the log, `pace` says when pages are
//! written, `run` makes a checkpoint, `thread` decides when.

mod pace;
mod run;
mod state;
mod thread;

pub(crate) use state::Checkpoints;
pub(crate) use thread::work;
