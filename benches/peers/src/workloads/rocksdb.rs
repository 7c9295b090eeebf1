//! RocksDB's `TransactionDB`: several writers, a lock for each record that they change, and a
//! snapshot for each transaction. Keys of all tables lie in one column family, after one byte with
//! the number of the table.

use super::neutral::{Peer, PeerTxn, Visit};
use crate::engines::rocksdb::{
    Handle, Message, chars, checked, read_options, store_name, store_options, write_options,
};
use std::{
    ffi::{c_char, c_uchar},
    ops::ControlFlow,
    sync::{Mutex, PoisonError},
};
use wattle_workloads::driver::{
    options::{Durability, StoreOptions},
    store::{Access, Direction, Stop, StoreError, StoreResult, TxnResult},
};

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_transactiondb_options_create() -> Handle;
    fn rocksdb_transactiondb_open(
        options: Handle,
        transactions: Handle,
        name: *const c_char,
        error: *mut Message,
    ) -> Handle;
    fn rocksdb_transactiondb_close(store: Handle);
    fn rocksdb_transactiondb_flush_wal(store: Handle, sync: c_uchar, error: *mut Message);
    fn rocksdb_transactiondb_get_pinned(
        store: Handle,
        options: Handle,
        key: *const c_char,
        key_len: usize,
        error: *mut Message,
    ) -> Handle;
    fn rocksdb_transaction_options_create() -> Handle;
    fn rocksdb_transaction_options_set_set_snapshot(options: Handle, value: c_uchar);
    fn rocksdb_transaction_begin(
        store: Handle,
        write: Handle,
        options: Handle,
        old: Handle,
    ) -> Handle;
    fn rocksdb_transaction_get_snapshot(txn: Handle) -> Handle;
    fn rocksdb_transaction_get_pinned(
        txn: Handle,
        options: Handle,
        key: *const c_char,
        key_len: usize,
        error: *mut Message,
    ) -> Handle;
    fn rocksdb_transaction_put(
        txn: Handle,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut Message,
    );
    fn rocksdb_transaction_delete(
        txn: Handle,
        key: *const c_char,
        key_len: usize,
        error: *mut Message,
    );
    fn rocksdb_transaction_create_iterator(txn: Handle, options: Handle) -> Handle;
    fn rocksdb_transaction_commit(txn: Handle, error: *mut Message);
    fn rocksdb_transaction_rollback(txn: Handle, error: *mut Message);
    fn rocksdb_transaction_destroy(txn: Handle);
    fn rocksdb_readoptions_set_snapshot(options: Handle, snapshot: Handle);
    fn rocksdb_readoptions_destroy(options: Handle);
    fn rocksdb_free(object: Handle);
    fn rocksdb_pinnableslice_value(slice: Handle, len: *mut usize) -> *const c_char;
    fn rocksdb_pinnableslice_destroy(slice: Handle);
    fn rocksdb_iter_seek(iterator: Handle, key: *const c_char, key_len: usize);
    fn rocksdb_iter_seek_for_prev(iterator: Handle, key: *const c_char, key_len: usize);
    fn rocksdb_iter_valid(iterator: Handle) -> c_uchar;
    fn rocksdb_iter_next(iterator: Handle);
    fn rocksdb_iter_prev(iterator: Handle);
    fn rocksdb_iter_key(iterator: Handle, len: *mut usize) -> *const c_char;
    fn rocksdb_iter_value(iterator: Handle, len: *mut usize) -> *const c_char;
    fn rocksdb_iter_get_error(iterator: Handle, error: *mut Message);
    fn rocksdb_iter_destroy(iterator: Handle);
}

/// The table of the names of all others.
const NAMES: u8 = 0;

pub struct RocksDb {
    store: Handle,
    write: Handle,
    read: Handle,
    with_snapshot: Handle,
    /// One table is created at a time.
    creation: Mutex<()>,
}

// SAFETY: all threads may use RocksDB's handles of a store and of unchanging options at once.
unsafe impl Send for RocksDb {}
// SAFETY: as above.
unsafe impl Sync for RocksDb {}

/// A key with the number of its table.
fn named(table: u8, key: &[u8]) -> Vec<u8> {
    let mut named = Vec::with_capacity(1 + key.len());
    named.push(table);
    named.extend_from_slice(key);
    named
}

/// Shows the bytes of a slice that RocksDB has lent, and gives it back.
fn shown<R>(slice: Handle, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
    if slice.is_null() {
        return None;
    }
    let mut len = 0;
    // SAFETY: the slice is valid; its bytes stay until it is destroyed, after `look`.
    unsafe {
        let value = rocksdb_pinnableslice_value(slice, &mut len);
        let result = look(std::slice::from_raw_parts(value.cast(), len));
        rocksdb_pinnableslice_destroy(slice);
        Some(result)
    }
}

/// A conflict has one of two codes: the lock was not free in time, or the record is newer than the
/// snapshot.
fn of_message(error: StoreError) -> Stop {
    let text = error.to_string();
    let is_conflict = ["Resource busy", "timed out"].iter().any(|code| text.contains(code));
    if is_conflict { Stop::Conflict } else { Stop::Failed(error) }
}

impl RocksDb {
    fn tables(&self) -> StoreResult<Vec<(String, u8)>> {
        let mut tables = Vec::new();
        let txn = self.begin(Access::ReadOnly)?;
        txn.scan(&NAMES, b"", None, Direction::Forward, &mut |name, number| {
            tables.push((String::from_utf8_lossy(name).into_owned(), number[0]));
            ControlFlow::Continue(())
        })?;
        Ok(tables)
    }
}

impl Peer for RocksDb {
    const NAME: &'static str = "rocksdb";
    const ISOLATION: &'static str = "snapshot";
    type Table = u8;
    type Txn<'a> = RocksDbTxn<'a>;

    fn open(options: &StoreOptions) -> StoreResult<Self> {
        let store = store_options(options.memory_bytes);
        // SAFETY: the functions make objects and set a field; all handles are valid.
        let (transactions, with_snapshot) = unsafe {
            let with_snapshot = rocksdb_transaction_options_create();
            rocksdb_transaction_options_set_set_snapshot(with_snapshot, 1);
            (rocksdb_transactiondb_options_create(), with_snapshot)
        };
        let name = store_name(&options.path)?;
        // SAFETY: the options are complete and the name ends with a zero byte.
        let store = checked(|error| unsafe {
            rocksdb_transactiondb_open(store, transactions, name.as_ptr(), error)
        })?;
        let write = write_options(options.durability == Durability::Sync);
        Ok(Self { store, write, read: read_options(), with_snapshot, creation: Mutex::default() })
    }

    fn table_names(&self) -> StoreResult<Vec<String>> {
        Ok(self.tables()?.into_iter().map(|(name, _)| name).collect())
    }

    fn table(&self, name: &str) -> StoreResult<u8> {
        let _creation = self.creation.lock().unwrap_or_else(PoisonError::into_inner);
        let tables = self.tables()?;
        if let Some((_, number)) = tables.iter().find(|(known, _)| known == name) {
            return Ok(*number);
        }
        let number = u8::try_from(tables.len() + 1).map_err(|_| "too many tables")?;
        let mut txn = self.begin(Access::ReadWrite)?;
        let named = txn.put(&NAMES, name.as_bytes(), &[number]).and_then(|()| txn.commit());
        match named {
            Ok(()) => Ok(number),
            Err(Stop::Conflict) => Err("another process creates tables".into()),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    fn begin(&self, _: Access) -> StoreResult<RocksDbTxn<'_>> {
        // SAFETY: store and options are valid; there is no old transaction. The snapshot belongs to
        // the transaction; only its wrapper is freed.
        let (txn, read) = unsafe {
            let none = std::ptr::null_mut();
            let txn = rocksdb_transaction_begin(self.store, self.write, self.with_snapshot, none);
            let (read, snapshot) = (read_options(), rocksdb_transaction_get_snapshot(txn));
            rocksdb_readoptions_set_snapshot(read, snapshot);
            rocksdb_free(snapshot);
            (txn, read)
        };
        Ok(RocksDbTxn { txn, read, _store: self })
    }

    fn get<R>(
        &self,
        table: &u8,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> StoreResult<Option<R>> {
        let key = named(*table, key);
        // SAFETY: the store is open and the key has the length given.
        let get = |error| unsafe {
            rocksdb_transactiondb_get_pinned(self.store, self.read, chars(&key), key.len(), error)
        };
        Ok(shown(checked(get)?, look))
    }

    fn sync(&self) -> StoreResult<()> {
        // SAFETY: the store is open.
        checked(|error| unsafe { rocksdb_transactiondb_flush_wal(self.store, 1, error) })
    }

    fn close(self) -> StoreResult<()> {
        self.sync()?;
        // SAFETY: transactions borrow the store, so none is left.
        unsafe { rocksdb_transactiondb_close(self.store) };
        Ok(())
    }
}

pub struct RocksDbTxn<'a> {
    txn: Handle,
    read: Handle,
    _store: &'a RocksDb,
}

impl Drop for RocksDbTxn<'_> {
    fn drop(&mut self) {
        // SAFETY: both are valid and used no more. After a commit there is nothing to roll back,
        // and a rollback that fails leaves no changes either.
        unsafe {
            let mut message: Message = std::ptr::null_mut();
            rocksdb_transaction_rollback(self.txn, &mut message);
            if !message.is_null() {
                rocksdb_free(message.cast());
            }
            rocksdb_transaction_destroy(self.txn);
            rocksdb_readoptions_destroy(self.read);
        }
    }
}

/// An iterator, destroyed at its end.
struct Iterating(Handle);

impl Drop for Iterating {
    fn drop(&mut self) {
        // SAFETY: it is valid and used no more.
        unsafe { rocksdb_iter_destroy(self.0) }
    }
}

impl Iterating {
    /// The pair where it is. The slices are valid until it moves.
    fn pair(&self) -> Option<(&[u8], &[u8])> {
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: the iterator is valid; RocksDB says where the bytes are while it stands.
        unsafe {
            (rocksdb_iter_valid(self.0) != 0).then(|| {
                let key = rocksdb_iter_key(self.0, &mut key_len);
                let value = rocksdb_iter_value(self.0, &mut value_len);
                let key = std::slice::from_raw_parts(key.cast(), key_len);
                (key, std::slice::from_raw_parts(value.cast(), value_len))
            })
        }
    }

    fn advance(&mut self, direction: Direction) {
        // SAFETY: the iterator is valid, and no slice of it is borrowed.
        unsafe {
            match direction {
                Direction::Forward => rocksdb_iter_next(self.0),
                Direction::Backward => rocksdb_iter_prev(self.0),
            }
        }
    }
}

impl PeerTxn for RocksDbTxn<'_> {
    type Table = u8;

    fn get<R>(
        &self,
        table: &u8,
        key: &[u8],
        look: impl FnOnce(&[u8]) -> R,
    ) -> StoreResult<Option<R>> {
        let key = named(*table, key);
        // SAFETY: the transaction is open and the key has the length given.
        let get = |error| unsafe {
            rocksdb_transaction_get_pinned(self.txn, self.read, chars(&key), key.len(), error)
        };
        Ok(shown(checked(get)?, look))
    }

    fn put(&mut self, table: &u8, key: &[u8], value: &[u8]) -> TxnResult<()> {
        let key = named(*table, key);
        // SAFETY: the transaction is open; key and value have the lengths given.
        let put = |error| unsafe {
            let value = (chars(value), value.len());
            rocksdb_transaction_put(self.txn, chars(&key), key.len(), value.0, value.1, error);
        };
        checked(put).map_err(of_message)
    }

    fn remove(&mut self, table: &u8, key: &[u8]) -> TxnResult<()> {
        let key = named(*table, key);
        // SAFETY: the transaction is open; the key has the length given.
        let delete = |error| unsafe {
            rocksdb_transaction_delete(self.txn, chars(&key), key.len(), error);
        };
        checked(delete).map_err(of_message)
    }

    fn scan(
        &self,
        table: &u8,
        low: &[u8],
        high: Option<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> StoreResult<()> {
        let low = named(*table, low);
        let high = high.map_or_else(|| vec![table + 1], |high| named(*table, high));
        // SAFETY: transaction and options are valid, and outlive the iterator.
        let handle = unsafe { rocksdb_transaction_create_iterator(self.txn, self.read) };
        let mut iterator = Iterating(handle);
        // SAFETY: the iterator is valid; the keys have the lengths given.
        unsafe {
            match direction {
                Direction::Forward => rocksdb_iter_seek(handle, chars(&low), low.len()),
                Direction::Backward => rocksdb_iter_seek_for_prev(handle, chars(&high), high.len()),
            }
        }
        while let Some((key, value)) = iterator.pair() {
            if key >= &high[..] {
                if direction == Direction::Forward {
                    break;
                }
            } else if key < &low[..] || visit(&key[1..], value).is_break() {
                break;
            }
            iterator.advance(direction);
        }
        // SAFETY: the iterator is valid.
        checked(|error| unsafe { rocksdb_iter_get_error(handle, error) })
    }

    fn commit(self) -> TxnResult<()> {
        // SAFETY: the transaction is open.
        checked(|error| unsafe { rocksdb_transaction_commit(self.txn, error) }).map_err(of_message)
    }
}
