//! Transactions.

use super::{
    pointers::{Out, WattleBytes, or_default},
    session::{change, found, get, open_range},
};
use crate::{
    border::border,
    code::{Failure, WattleCode},
    globals::{self, WattleEngine, WattleTree},
    locals::{OpenTxn, Source, WattleRange, WattleTxn, with_locals},
    options::WattleTxnOptions,
};

/// Begins a transaction. `options` may be null: snapshot isolation, durability of the engine.
///
/// # Safety
/// `options` is null or valid, `txn` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_begin(
    engine: WattleEngine,
    options: *const WattleTxnOptions,
    txn: *mut WattleTxn,
) -> WattleCode {
    border(|| {
        // SAFETY: as the caller promises.
        let place = unsafe { Out::new(txn) }?;
        // SAFETY: as the caller promises.
        let options = unsafe { or_default(options) }?.to_options()?;
        let txn = globals::engine(engine)?.begin_with(options)?;
        let number = with_locals(|locals| {
            let number = locals.next_number();
            locals.txns.insert(number, OpenTxn { txn, savepoints: Vec::new() });
            Ok(number)
        })?;
        place.set(WattleTxn { number });
        Ok(WattleCode::Ok)
    })
}

/// Commits a transaction and closes its handle, also when that fails. After `CONFLICT` it was
/// rolled back.
#[unsafe(no_mangle)]
pub extern "C" fn wattle_commit(txn: WattleTxn) -> WattleCode {
    border(|| {
        with_locals(|locals| locals.take_txn(txn.number))?.txn.commit()?;
        Ok(WattleCode::Ok)
    })
}

/// Rolls a transaction back and closes its handle.
#[unsafe(no_mangle)]
pub extern "C" fn wattle_rollback(txn: WattleTxn) -> WattleCode {
    border(|| {
        with_locals(|locals| locals.take_txn(txn.number))?.txn.abort()?;
        Ok(WattleCode::Ok)
    })
}

/// Makes a savepoint. `savepoint` gets its number: the first one of a transaction is 0.
///
/// # Safety
/// `savepoint` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_savepoint(txn: WattleTxn, savepoint: *mut usize) -> WattleCode {
    border(|| {
        // SAFETY: as the caller promises.
        let place = unsafe { Out::new(savepoint) }?;
        with_locals(|locals| {
            let open = locals.txn(txn.number)?;
            place.set(open.savepoints.len());
            open.savepoints.push(open.txn.savepoint());
            Ok(WattleCode::Ok)
        })
    })
}

/// Undoes every change after a savepoint. Later savepoints end; this one stays.
#[unsafe(no_mangle)]
pub extern "C" fn wattle_rollback_to(txn: WattleTxn, savepoint: usize) -> WattleCode {
    border(|| {
        with_locals(|locals| {
            let open = locals.txn(txn.number)?;
            let count = open.savepoints.len();
            let Some(found) = open.savepoints.get(savepoint) else {
                let message = format!("there is no savepoint {savepoint}: {count} were made");
                return Err(Failure::argument(message));
            };
            open.txn.rollback_to(found)?;
            open.savepoints.truncate(savepoint + 1);
            Ok(WattleCode::Ok)
        })
    })
}

/// As `wattle_get`, in a transaction.
///
/// # Safety
/// As `wattle_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_txn_get(
    txn: WattleTxn,
    tree: WattleTree,
    key: WattleBytes,
    buffer: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> WattleCode {
    // SAFETY: as the caller promises.
    unsafe {
        get(tree, key, (buffer, capacity, length), |locals, tree, key, room| {
            Ok(locals.txn(txn.number)?.txn.get_with(tree, key, |value| room.fill(value))?)
        })
    }
}

/// As `wattle_insert`, in a transaction.
///
/// # Safety
/// As `wattle_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_txn_insert(
    txn: WattleTxn,
    tree: WattleTree,
    key: WattleBytes,
    value: WattleBytes,
) -> WattleCode {
    // SAFETY: as the caller promises.
    unsafe {
        change(tree, key, value, |locals, tree, key, value| {
            locals.txn(txn.number)?.txn.insert(tree, key, value)?;
            Ok(WattleCode::Ok)
        })
    }
}

/// As `wattle_put`, in a transaction.
///
/// # Safety
/// As `wattle_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_txn_put(
    txn: WattleTxn,
    tree: WattleTree,
    key: WattleBytes,
    value: WattleBytes,
) -> WattleCode {
    // SAFETY: as the caller promises.
    unsafe {
        change(tree, key, value, |locals, tree, key, value| {
            locals.txn(txn.number)?.txn.put(tree, key, value)?;
            Ok(WattleCode::Ok)
        })
    }
}

/// As `wattle_update`, in a transaction.
///
/// # Safety
/// As `wattle_update`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_txn_update(
    txn: WattleTxn,
    tree: WattleTree,
    key: WattleBytes,
    value: WattleBytes,
) -> WattleCode {
    // SAFETY: as the caller promises.
    unsafe {
        change(tree, key, value, |locals, tree, key, value| {
            Ok(found(locals.txn(txn.number)?.txn.update(tree, key, value)?))
        })
    }
}

/// As `wattle_remove`, in a transaction.
///
/// # Safety
/// As `wattle_remove`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_txn_remove(
    txn: WattleTxn,
    tree: WattleTree,
    key: WattleBytes,
) -> WattleCode {
    // SAFETY: as the caller promises.
    unsafe {
        change(tree, key, WattleBytes::of(&[]), |locals, tree, key, _| {
            Ok(found(locals.txn(txn.number)?.txn.remove(tree, key)?))
        })
    }
}

/// As `wattle_range`, in a transaction, with its own changes. Records that it changes while the
/// range is open may be read before or after that change.
///
/// # Safety
/// As `wattle_range`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wattle_txn_range(
    txn: WattleTxn,
    tree: WattleTree,
    low: *const WattleBytes,
    high: *const WattleBytes,
    descending: i32,
    range: *mut WattleRange,
) -> WattleCode {
    // SAFETY: as the caller promises.
    unsafe {
        open_range((tree, low, high, descending), range, |locals| {
            locals.txn(txn.number)?;
            Ok(Source::Of(txn.number))
        })
    }
}
