//! Checkpoints. `state` is what others see of them, `pace` says when pages are written, `run` makes one,
//! `thread` decides when.

mod pace;
mod run;
mod state;
mod thread;

pub(crate) use state::Checkpoints;
pub(crate) use thread::work;
