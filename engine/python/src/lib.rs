//! Wattle for Python: `wattle._wattle`, which the package `wattle` re-exports.
//!
//! Every operation that may wait runs without the GIL. Arguments are read through the buffer
//! protocol: `bytes` are borrowed, other buffers are copied, because another thread could change
//! them while the GIL is free. Sessions are lent from a pool, so all objects may be used by all
//! threads. A transaction that two threads use at the same moment is an error.

// The ranges of the C API borrow nothing either: the same file.
#[path = "../../capi/src/chunks.rs"]
mod chunks;
mod engine;
mod errors;
mod input;
mod range;
mod shared;
mod transaction;
mod tree;

use pyo3::prelude::*;

#[pymodule]
fn _wattle(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_function(wrap_pyfunction!(engine::open, module)?)?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<tree::Tree>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<range::Range>()?;
    module.add("Error", py.get_type::<errors::Error>())?;
    module.add("Conflict", py.get_type::<errors::Conflict>())?;
    module.add("KeyExists", py.get_type::<errors::KeyExists>())?;
    module.add("ReadOnlyError", py.get_type::<errors::ReadOnlyError>())?;
    module.add("ClosedError", py.get_type::<errors::ClosedError>())?;
    module.add("CorruptionError", py.get_type::<errors::CorruptionError>())
}
