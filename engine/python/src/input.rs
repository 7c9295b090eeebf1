//! Arguments from Python.

use pyo3::{
    buffer::PyBuffer,
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyString},
};
use std::borrow::Cow;

/// The bytes of an argument: borrowed from `bytes`, which never change, or copied from any other
/// object with the buffer protocol.
pub fn bytes<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Cow::Borrowed(bytes.as_bytes()));
    }
    if value.is_instance_of::<PyString>() {
        let message = "keys and values are bytes, not str: encode it";
        return Err(PyTypeError::new_err(message));
    }
    let buffer = PyBuffer::<u8>::get(value).map_err(|_| {
        let kind = value.get_type();
        PyTypeError::new_err(format!("keys and values are bytes or a buffer of bytes, not {kind}"))
    })?;
    buffer.to_vec(value.py()).map(Cow::Owned)
}

/// Key and value of a pair.
pub fn pair(record: &Bound<'_, PyAny>) -> PyResult<(Vec<u8>, Vec<u8>)> {
    let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = record.extract()?;
    Ok((bytes(&key)?.into_owned(), bytes(&value)?.into_owned()))
}

/// A number of bytes: an integer, or a text such as `1GiB`.
pub fn size(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(text) = value.extract::<String>() {
        let parsed = text.parse::<bytesize::ByteSize>();
        return parsed.map(|size| size.as_u64()).map_err(|why| {
            PyValueError::new_err(format!("{text:?} is no size such as 64MiB or 1GB: {why}"))
        });
    }
    value.extract()
}

/// One of a few words.
pub fn word<T: Copy>(option: &str, given: &str, known: &[(&str, T)]) -> PyResult<T> {
    let found = known.iter().find(|(word, _)| *word == given);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        PyValueError::new_err(format!("{option} is {given:?}; known are {}", words.join(", ")))
    })
}
