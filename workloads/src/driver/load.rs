//! How a load phase ends.

use super::control::{Control, Phase};
use super::failure::Failure;

/// How a load ended.
#[derive(Debug)]
pub enum LoadEnd<T> {
    /// All of it is there.
    Loaded(T),
    /// The user interrupted it.
    Interrupted,
    /// A worker failed.
    Failed(Failure),
}

impl<T> LoadEnd<T> {
    /// The end of a load whose workers have all returned.
    pub fn of(control: &Control, loaded: impl FnOnce() -> T) -> Self {
        match control.take_failure() {
            Some(failure) => LoadEnd::Failed(failure),
            None if control.signal().phase() == Phase::Stop => LoadEnd::Interrupted,
            None => LoadEnd::Loaded(loaded()),
        }
    }
}
