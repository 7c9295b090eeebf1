//! Engines and trees.

use super::pointers::{Out, Room, or_default, set_prefix, text};
use crate::{
    border::{self, border},
    code::WattleCode,
    globals::{self, WattleEngine, WattleTree},
    options::WattleOptions,
    stats::WattleStats,
};
use std::ffi::c_char;
use wattle::Engine;

/// The sentence of the last call of this thread that failed. It stays until the next one fails.
#[unsafe(no_mangle)]
pub extern "C" fn wattle_error_message() -> *const c_char {
    border::message()
}

/// Opens the store in the directory `path`, creating it if there is none. `options` may be null.
///
/// # Safety
/// `path` is a string, `options` null or valid, `engine` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_open(
    path: *const c_char,
    options: *const WattleOptions,
    engine: *mut WattleEngine,
) -> WattleCode {
    border(|| {
        // SAFETY: as the caller promises.
        let (engine, path) = (unsafe { Out::new(engine) }?, unsafe { text(path, "path") }?);
        // SAFETY: as the caller promises.
        let options = unsafe { or_default(options) }?.to_options()?;
        engine.set(globals::add_engine(Engine::open(path, options)?));
        Ok(WattleCode::Ok)
    })
}

/// Writes everything out and closes the store. While sessions, transactions or ranges of it are
/// open on any thread it is `IN_USE`, and `engine` stays open. After any other result it is closed.
#[unsafe(no_mangle)]
pub extern "C" fn wattle_close(engine: WattleEngine) -> WattleCode {
    border(|| globals::close_engine(engine).map(|()| WattleCode::Ok))
}

/// Makes all commits so far durable, also those with `WATTLE_DURABILITY_NONE`.
#[unsafe(no_mangle)]
pub extern "C" fn wattle_sync(engine: WattleEngine) -> WattleCode {
    border(|| Ok(globals::engine(engine)?.sync().map(|()| WattleCode::Ok)?))
}

/// Writes all pages that are dirty now, so that recovery would begin here.
#[unsafe(no_mangle)]
pub extern "C" fn wattle_checkpoint(engine: WattleEngine) -> WattleCode {
    border(|| Ok(globals::engine(engine)?.checkpoint().map(|()| WattleCode::Ok)?))
}

/// Gives room at the end of the data file back to the file system.
#[unsafe(no_mangle)]
pub extern "C" fn wattle_compact(engine: WattleEngine) -> WattleCode {
    border(|| Ok(globals::engine(engine)?.compact().map(|_| WattleCode::Ok)?))
}

/// Copies the running store into the directory `path`, which must not exist or be empty.
///
/// # Safety
/// `path` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_backup(engine: WattleEngine, path: *const c_char) -> WattleCode {
    border(|| {
        // SAFETY: as the caller promises.
        let path = unsafe { text(path, "path") }?;
        globals::engine(engine)?.backup(path)?;
        Ok(WattleCode::Ok)
    })
}

/// Counters of the engine. `size` is `sizeof(WattleStats)` of the caller's header; a library with
/// more counters fills in those that the caller knows.
///
/// # Safety
/// `size` bytes are writable at `stats`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_stats(
    engine: WattleEngine,
    stats: *mut WattleStats,
    size: usize,
) -> WattleCode {
    border(|| {
        let found = WattleStats::from(globals::engine(engine)?.stats());
        // SAFETY: as the caller promises.
        unsafe { set_prefix(stats, size, &found) }?;
        Ok(WattleCode::Ok)
    })
}

/// Opens the tree `name` (1 to 255 bytes), creating it if there is none.
///
/// # Safety
/// `name` is a string, `tree` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_tree(
    engine: WattleEngine,
    name: *const c_char,
    tree: *mut WattleTree,
) -> WattleCode {
    border(|| {
        // SAFETY: as the caller promises.
        let (tree, name) = (unsafe { Out::new(tree) }?, unsafe { text(name, "name") }?);
        tree.set(globals::add_tree(globals::engine(engine)?.tree(name)?));
        Ok(WattleCode::Ok)
    })
}

/// Opens the tree `name` if there is one, otherwise `NOT_FOUND`.
///
/// # Safety
/// `name` is a string, `tree` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_open_tree(
    engine: WattleEngine,
    name: *const c_char,
    tree: *mut WattleTree,
) -> WattleCode {
    border(|| {
        // SAFETY: as the caller promises.
        let (tree, name) = (unsafe { Out::new(tree) }?, unsafe { text(name, "name") }?);
        let Some(found) = globals::engine(engine)?.open_tree(name)? else {
            return Ok(WattleCode::NotFound);
        };
        tree.set(globals::add_tree(found));
        Ok(WattleCode::Ok)
    })
}

/// Closes the handle of a tree. The tree stays.
#[unsafe(no_mangle)]
pub extern "C" fn wattle_tree_close(tree: WattleTree) -> WattleCode {
    border(|| globals::take_tree(tree).map(|_| WattleCode::Ok))
}

/// Drops a tree with everything in it, and closes its handle, also when that fails. `IN_USE` while
/// other handles, ranges or transactions use it.
#[unsafe(no_mangle)]
pub extern "C" fn wattle_drop_tree(engine: WattleEngine, tree: WattleTree) -> WattleCode {
    border(|| {
        let engine = globals::engine(engine)?;
        engine.drop_tree(globals::take_tree(tree)?)?;
        Ok(WattleCode::Ok)
    })
}

/// Names of all trees, sorted, each followed by a zero byte. `length` is the length of all.
///
/// # Safety
/// `capacity` bytes are writable at `buffer`, and `length` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_tree_names(
    engine: WattleEngine,
    buffer: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> WattleCode {
    border(|| {
        // SAFETY: as the caller promises.
        let room = unsafe { Room::new(buffer, capacity, length) }?;
        let names = globals::engine(engine)?.trees()?;
        let all: Vec<u8> =
            names.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect();
        Ok(room.fill(&all))
    })
}
