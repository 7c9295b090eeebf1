//! Why a worker stopped early.

use std::{fmt, io};

use super::store::StoreError;

/// Why a load or a run ended early.
#[derive(Debug)]
pub enum Failure {
    /// The store answered, and the answer is wrong.
    Wrong(String),
    /// The store returned an error.
    Store(StoreError),
    /// A worker panicked, with this message.
    Panicked(String),
    /// The user interrupted it.
    Interrupted,
    /// A worker thread could not be pinned to a core.
    Pin(io::Error),
    /// A worker thread could not be started.
    Thread(io::Error),
}

impl Failure {
    /// Whether the store gave a wrong answer, which fails the check of a run.
    pub fn is_wrong_answer(&self) -> bool {
        matches!(self, Failure::Wrong(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Wrong(sentence) => formatter.write_str(sentence),
            Failure::Store(error) => write!(formatter, "{error}"),
            Failure::Panicked(words) => {
                write!(formatter, "a worker stopped in the middle of an operation: {words}")
            }
            Failure::Interrupted => formatter.write_str("interrupted"),
            Failure::Pin(error) => {
                write!(formatter, "a worker thread could not be pinned to a core: {error}")
            }
            Failure::Thread(error) => {
                write!(formatter, "a worker thread could not be started: {error}")
            }
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Failure::Wrong(_) | Failure::Panicked(_) | Failure::Interrupted => None,
            Failure::Store(error) => error.source(),
            Failure::Pin(error) | Failure::Thread(error) => Some(error),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Store(error)
    }
}
