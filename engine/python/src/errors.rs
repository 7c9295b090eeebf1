//! Exceptions.

use pyo3::{create_exception, exceptions::PyException, exceptions::PyValueError, prelude::*};

create_exception!(wattle, Error, PyException, "A call of the engine failed.");
create_exception!(wattle, Conflict, Error, "Another transaction changed a record first.");
create_exception!(wattle, KeyExists, Error, "insert found the key.");
create_exception!(wattle, ReadOnlyError, Error, "A change where only reads are allowed.");
create_exception!(wattle, ClosedError, Error, "The engine or the transaction has ended.");
create_exception!(wattle, CorruptionError, Error, "The stored bytes are damaged.");

/// The exception of an error.
pub fn raise(error: wattle::Error) -> PyErr {
    use wattle::Error as E;
    let text = error.to_string();
    match error {
        E::Conflict(_) | E::SnapshotTooOld(_) => Conflict::new_err(text),
        E::KeyExists => KeyExists::new_err(text),
        E::ReadOnly => ReadOnlyError::new_err(text),
        E::Closed => ClosedError::new_err(text),
        E::Corruption { .. } | E::LogCorruption { .. } | E::WrongLog { .. } => {
            CorruptionError::new_err(text)
        }
        E::KeyTooLong { .. }
        | E::ValueTooLong { .. }
        | E::InvalidOption(_)
        | E::InvalidTreeName { .. }
        | E::NotSorted { .. } => PyValueError::new_err(text),
        _ => Error::new_err(text),
    }
}
