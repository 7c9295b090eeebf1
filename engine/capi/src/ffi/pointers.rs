//! Checked access to the memory that C hands over.

use crate::code::{Failure, Outcome, WattleCode};
use std::ffi::{CStr, c_char};

/// Bytes of the caller or of the library. They are read during the call only.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct WattleBytes {
    /// The first byte. May be null if `length` is 0.
    pub data: *const u8,
    /// Number of bytes.
    pub length: usize,
}

impl WattleBytes {
    pub(crate) fn of(bytes: &[u8]) -> WattleBytes {
        WattleBytes { data: bytes.as_ptr(), length: bytes.len() }
    }
}

/// The bytes of the caller.
///
/// # Safety
/// `data` is null, or `length` bytes can be read there while the result is used.
pub unsafe fn bytes<'a>(bytes: WattleBytes) -> Outcome<&'a [u8]> {
    if bytes.length == 0 {
        return Ok(&[]);
    }
    if bytes.data.is_null() || bytes.length > isize::MAX as usize {
        return Err(Failure::argument(format!("{} bytes at a null pointer", bytes.length)));
    }
    // SAFETY: not null, not longer than an allocation can be, and readable as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(bytes.data, bytes.length) })
}

/// A text of the caller.
///
/// # Safety
/// `text` is null, or a string that ends with a zero byte and stays while the result is used.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> Outcome<&'a str> {
    if text.is_null() {
        return Err(Failure::argument(format!("the {what} is null")));
    }
    // SAFETY: not null, and it ends with a zero byte, as the caller promises.
    let found = unsafe { CStr::from_ptr(text) };
    found.to_str().map_err(|_| Failure::argument(format!("the {what} is not UTF-8")))
}

/// A structure of the caller, or the default one.
///
/// # Safety
/// `value` is null, or points to a `T` that any bytes are valid for.
pub unsafe fn or_default<T: Default + Copy>(value: *const T) -> Outcome<T> {
    if value.is_null() {
        return Ok(T::default());
    }
    if !value.is_aligned() {
        return Err(Failure::argument("a pointer to options is not aligned"));
    }
    // SAFETY: aligned, not null, and readable as the caller promises.
    Ok(unsafe { *value })
}

/// A place for a result. It is made before the work is done, so that a null pointer changes
/// nothing.
pub struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// # Safety
    /// `place` is null, or can be written during the call.
    pub unsafe fn new(place: *mut T) -> Outcome<Out<T>> {
        if place.is_null() || !place.is_aligned() {
            return Err(Failure::argument("the pointer for a result is null or not aligned"));
        }
        Ok(Out(place))
    }

    pub fn set(self, value: T) {
        // SAFETY: aligned and not null, and writable as the maker of `self` has promised.
        unsafe { self.0.write(value) }
    }
}

/// Room of the caller for bytes of any length.
pub struct Room {
    data: *mut u8,
    capacity: usize,
    length: Out<usize>,
}

impl Room {
    /// # Safety
    /// `data` is null and `capacity` 0, or `capacity` bytes can be written there during the call;
    /// `length` is null or can be written.
    pub unsafe fn new(data: *mut u8, capacity: usize, length: *mut usize) -> Outcome<Room> {
        if data.is_null() && capacity != 0 {
            return Err(Failure::argument(format!("a buffer of {capacity} bytes is null")));
        }
        // SAFETY: as the caller promises.
        let length = unsafe { Out::new(length) }?;
        Ok(Room { data, capacity, length })
    }

    /// Stores the length, and the bytes if they fit.
    pub fn fill(self, bytes: &[u8]) -> WattleCode {
        self.length.set(bytes.len());
        if bytes.len() > self.capacity {
            return WattleCode::BufferTooSmall;
        }
        if !bytes.is_empty() {
            // SAFETY: `capacity` bytes are writable there, as the maker of `self` has promised, and
            // no buffer of the caller overlaps one of the library.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.data, bytes.len()) };
        }
        WattleCode::Ok
    }
}

/// Copies the first bytes of a structure: as many as the caller's version of it has.
///
/// # Safety
/// `size` bytes can be written to `place`, unless it is null.
pub unsafe fn set_prefix<T: Copy>(place: *mut T, size: usize, value: &T) -> Outcome<()> {
    if place.is_null() {
        return Err(Failure::argument("the pointer for a result is null"));
    }
    let bytes = size.min(size_of::<T>());
    // SAFETY: both are at least so long, and a value of the library overlaps none of the caller.
    unsafe {
        std::ptr::copy_nonoverlapping((value as *const T).cast::<u8>(), place.cast(), bytes);
    }
    Ok(())
}
