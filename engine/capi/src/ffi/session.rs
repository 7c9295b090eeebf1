//! Sessions, auto-committed operations, and ranges.

use super::pointers::{Out, Room, WattleBytes, bytes};
use crate::{
    border::border,
    chunks::Chunks,
    code::{Outcome, WattleCode},
    globals::{self, WattleEngine, WattleTree},
    locals::{Locals, OpenRange, OpenSession, Source, WattleRange, WattleSession, with_locals},
};
use std::ops::Bound;
use wattle::{Direction, Tree, TxnOptions};

/// Opens a session for this thread.
///
/// # Safety
/// `session` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_session(
    engine: WattleEngine,
    session: *mut WattleSession,
) -> WattleCode {
    border(|| {
        // SAFETY: as the caller promises.
        let place = unsafe { Out::new(session) }?;
        let session = globals::engine(engine)?.session()?;
        let number = with_locals(|locals| {
            let number = locals.next_number();
            locals.sessions.insert(number, OpenSession { session, engine });
            Ok(number)
        })?;
        place.set(WattleSession { number });
        Ok(WattleCode::Ok)
    })
}

/// Closes a session. Its ranges stay open.
#[unsafe(no_mangle)]
pub extern "C" fn wattle_session_close(session: WattleSession) -> WattleCode {
    border(|| {
        drop(with_locals(|locals| locals.take_session(session.number))?);
        Ok(WattleCode::Ok)
    })
}

/// Copies the value of a key into `buffer`, if it has at most `capacity` bytes, and stores its
/// length. `NOT_FOUND` if there is no such key.
///
/// # Safety
/// `key` is readable, `capacity` bytes are writable at `buffer`, and `length` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_get(
    session: WattleSession,
    tree: WattleTree,
    key: WattleBytes,
    buffer: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> WattleCode {
    // SAFETY: as the caller promises.
    unsafe {
        get(tree, key, (buffer, capacity, length), |locals, tree, key, room| {
            let session = &locals.session(session.number)?.session;
            Ok(session.get_with(tree, key, |value| room.fill(value))?)
        })
    }
}

/// Adds a record; `EXISTS` if the key does.
///
/// # Safety
/// `key` and `value` are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_insert(
    session: WattleSession,
    tree: WattleTree,
    key: WattleBytes,
    value: WattleBytes,
) -> WattleCode {
    // SAFETY: as the caller promises.
    unsafe {
        change(tree, key, value, |locals, tree, key, value| {
            locals.session(session.number)?.session.insert(tree, key, value)?;
            Ok(WattleCode::Ok)
        })
    }
}

/// Sets the value of a key, whether or not it exists.
///
/// # Safety
/// `key` and `value` are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_put(
    session: WattleSession,
    tree: WattleTree,
    key: WattleBytes,
    value: WattleBytes,
) -> WattleCode {
    // SAFETY: as the caller promises.
    unsafe {
        change(tree, key, value, |locals, tree, key, value| {
            locals.session(session.number)?.session.put(tree, key, value)?;
            Ok(WattleCode::Ok)
        })
    }
}

/// Replaces the value of a key; `NOT_FOUND` if there is no such key.
///
/// # Safety
/// `key` and `value` are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_update(
    session: WattleSession,
    tree: WattleTree,
    key: WattleBytes,
    value: WattleBytes,
) -> WattleCode {
    // SAFETY: as the caller promises.
    unsafe {
        change(tree, key, value, |locals, tree, key, value| {
            Ok(found(locals.session(session.number)?.session.update(tree, key, value)?))
        })
    }
}

/// Removes a record; `NOT_FOUND` if there is no such key.
///
/// # Safety
/// `key` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_remove(
    session: WattleSession,
    tree: WattleTree,
    key: WattleBytes,
) -> WattleCode {
    // SAFETY: as the caller promises.
    unsafe {
        change(tree, key, WattleBytes::of(&[]), |locals, tree, key, _| {
            Ok(found(locals.session(session.number)?.session.remove(tree, key)?))
        })
    }
}

/// Opens a range of the keys from `low` (included) to `high` (excluded), descending if `descending`
/// is not 0. A null bound is none. All its records are from one snapshot, of this moment.
///
/// # Safety
/// The bounds are null or readable, `range` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_range(
    session: WattleSession,
    tree: WattleTree,
    low: *const WattleBytes,
    high: *const WattleBytes,
    descending: i32,
    range: *mut WattleRange,
) -> WattleCode {
    // SAFETY: as the caller promises.
    unsafe {
        open_range((tree, low, high, descending), range, |locals| {
            let read = TxnOptions { read_only: true, ..TxnOptions::default() };
            let engine = globals::engine(locals.session(session.number)?.engine)?;
            Ok(Source::Own(Box::new(engine.begin_with(read)?)))
        })
    }
}

/// Goes to the next record of a range; `NOT_FOUND` at its end. `key` and `value` stay until the
/// next call with `range`.
///
/// # Safety
/// `key` and `value` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_range_next(
    range: WattleRange,
    key: *mut WattleBytes,
    value: *mut WattleBytes,
) -> WattleCode {
    border(|| {
        // SAFETY: as the caller promises.
        let (key, value) = (unsafe { Out::new(key) }?, unsafe { Out::new(value) }?);
        with_locals(|locals| {
            if !locals.advance(range.number)? {
                return Ok(WattleCode::NotFound);
            }
            let record = locals.ranges[&range.number].chunks.record();
            key.set(WattleBytes::of(record.0));
            value.set(WattleBytes::of(record.1));
            Ok(WattleCode::Ok)
        })
    })
}

/// Closes a range.
#[unsafe(no_mangle)]
pub extern "C" fn wattle_range_close(range: WattleRange) -> WattleCode {
    border(|| {
        drop(with_locals(|locals| locals.take_range(range.number))?);
        Ok(WattleCode::Ok)
    })
}

/// Looks a key up with `work`, which hands the value to the caller's room.
///
/// # Safety
/// As `wattle_get`; `place` is its buffer, capacity and length.
pub(super) unsafe fn get(
    tree: WattleTree,
    key: WattleBytes,
    place: (*mut u8, usize, *mut usize),
    work: impl FnOnce(&mut Locals, &Tree, &[u8], Room) -> Outcome<Option<WattleCode>>,
) -> WattleCode {
    border(|| {
        // SAFETY: as the caller promises.
        let room = unsafe { Room::new(place.0, place.1, place.2) }?;
        // SAFETY: as the caller promises.
        let (key, tree) = (unsafe { bytes(key) }?, globals::tree(tree)?);
        let found = with_locals(|locals| work(locals, &tree, key, room))?;
        Ok(found.unwrap_or(WattleCode::NotFound))
    })
}

/// Changes a record with `work`.
///
/// # Safety
/// `key` and `value` are readable.
pub(super) unsafe fn change(
    tree: WattleTree,
    key: WattleBytes,
    value: WattleBytes,
    work: impl FnOnce(&mut Locals, &Tree, &[u8], &[u8]) -> Outcome,
) -> WattleCode {
    border(|| {
        // SAFETY: as the caller promises.
        let (key, value) = (unsafe { bytes(key) }?, unsafe { bytes(value) }?);
        let tree = globals::tree(tree)?;
        with_locals(|locals| work(locals, &tree, key, value))
    })
}

/// Opens a range in the transaction that `source` gives.
///
/// # Safety
/// As `wattle_range`; `records` are its tree, bounds and direction.
pub(super) unsafe fn open_range(
    records: (WattleTree, *const WattleBytes, *const WattleBytes, i32),
    range: *mut WattleRange,
    source: impl FnOnce(&mut Locals) -> Outcome<Source>,
) -> WattleCode {
    border(|| {
        // SAFETY: as the caller promises.
        let place = unsafe { Out::new(range) }?;
        // SAFETY: as the caller promises.
        let chunks = unsafe { chunks_of(records.0, records.1, records.2, records.3) }?;
        let number = with_locals(|locals| {
            let source = source(locals)?;
            let number = locals.next_number();
            locals.ranges.insert(number, OpenRange { chunks, source });
            Ok(number)
        })?;
        place.set(WattleRange { number });
        Ok(WattleCode::Ok)
    })
}

/// The chunks of a range of the caller.
///
/// # Safety
/// The bounds are null or readable.
unsafe fn chunks_of(
    tree: WattleTree,
    low: *const WattleBytes,
    high: *const WattleBytes,
    descending: i32,
) -> Outcome<Chunks> {
    // SAFETY: as the caller promises.
    let (low, high) = (unsafe { bound(low) }?, unsafe { bound(high) }?);
    let low = low.map_or(Bound::Unbounded, |key| Bound::Included(key.to_vec()));
    let high = high.map_or(Bound::Unbounded, |key| Bound::Excluded(key.to_vec()));
    let direction = if descending != 0 { Direction::Backward } else { Direction::Forward };
    Ok(Chunks::new(globals::tree(tree)?, low, high, direction))
}

/// # Safety
/// `key` is null or readable.
unsafe fn bound<'a>(key: *const WattleBytes) -> Outcome<Option<&'a [u8]>> {
    if key.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and readable as the caller promises.
    let key = unsafe { key.read_unaligned() };
    // SAFETY: as the caller promises.
    unsafe { bytes(key) }.map(Some)
}

/// The code of an operation on a key that may be absent.
pub(super) fn found(is_found: bool) -> WattleCode {
    if is_found { WattleCode::Ok } else { WattleCode::NotFound }
}
