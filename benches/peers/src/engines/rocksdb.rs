//! RocksDB through the C interface of the system's library (`librocksdb-dev`). Building it from
//! source takes longer than all the rows.

use crate::store::{Config, KEY, Key, Result, Session, Store};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_uchar, c_void},
    path::Path,
};

/// Bits of the Bloom filters for each key, RocksDB's own advice.
const BLOOM_BITS: f64 = 10.0;

pub type Handle = *mut c_void;
pub type Message = *mut c_char;

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_options_create() -> Handle;
    fn rocksdb_options_set_create_if_missing(options: Handle, value: c_uchar);
    fn rocksdb_options_set_write_buffer_size(options: Handle, bytes: usize);
    fn rocksdb_options_set_compression(options: Handle, kind: c_int);
    fn rocksdb_options_set_max_background_jobs(options: Handle, jobs: c_int);
    fn rocksdb_options_set_block_based_table_factory(options: Handle, table: Handle);
    fn rocksdb_block_based_options_create() -> Handle;
    fn rocksdb_block_based_options_set_block_cache(table: Handle, cache: Handle);
    fn rocksdb_block_based_options_set_filter_policy(table: Handle, filter: Handle);
    fn rocksdb_filterpolicy_create_bloom_full(bits: f64) -> Handle;
    fn rocksdb_cache_create_lru(bytes: usize) -> Handle;
    fn rocksdb_writeoptions_create() -> Handle;
    fn rocksdb_writeoptions_set_sync(options: Handle, value: c_uchar);
    fn rocksdb_readoptions_create() -> Handle;
    fn rocksdb_open(options: Handle, name: *const c_char, error: *mut Message) -> Handle;
    fn rocksdb_close(store: Handle);
    fn rocksdb_put(
        store: Handle,
        options: Handle,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut Message,
    );
    fn rocksdb_get_pinned(
        store: Handle,
        options: Handle,
        key: *const c_char,
        key_len: usize,
        error: *mut Message,
    ) -> Handle;
    fn rocksdb_pinnableslice_value(slice: Handle, len: *mut usize) -> *const c_char;
    fn rocksdb_pinnableslice_destroy(slice: Handle);
    fn rocksdb_writebatch_create() -> Handle;
    fn rocksdb_writebatch_put(
        batch: Handle,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
    );
    fn rocksdb_writebatch_delete(batch: Handle, key: *const c_char, key_len: usize);
    fn rocksdb_writebatch_destroy(batch: Handle);
    fn rocksdb_write(store: Handle, options: Handle, batch: Handle, error: *mut Message);
    fn rocksdb_create_iterator(store: Handle, options: Handle) -> Handle;
    fn rocksdb_iter_seek(iterator: Handle, key: *const c_char, key_len: usize);
    fn rocksdb_iter_valid(iterator: Handle) -> c_uchar;
    fn rocksdb_iter_next(iterator: Handle);
    fn rocksdb_iter_key(iterator: Handle, len: *mut usize) -> *const c_char;
    fn rocksdb_iter_value(iterator: Handle, len: *mut usize) -> *const c_char;
    fn rocksdb_iter_get_error(iterator: Handle, error: *mut Message);
    fn rocksdb_iter_destroy(iterator: Handle);
    fn rocksdb_flush_wal(store: Handle, sync: c_uchar, error: *mut Message);
}

/// The result of a call that may leave a message.
pub fn checked<T>(call: impl FnOnce(*mut Message) -> T) -> Result<T> {
    let mut message: Message = std::ptr::null_mut();
    let result = call(&mut message);
    if message.is_null() {
        return Ok(result);
    }
    // SAFETY: RocksDB leaves a string that ends with a zero byte. It is never freed: the row ends.
    let text = unsafe { CStr::from_ptr(message) };
    Err(format!("RocksDB: {}", text.to_string_lossy()).into())
}

pub fn chars(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

/// The name of the store in a directory.
pub fn store_name(dir: &Path) -> Result<CString> {
    Ok(CString::new(dir.join("store").into_os_string().into_encoded_bytes())?)
}

/// Options of a store with a cache of so many bytes. As all options here, they live as long as the
/// process, which opens one store.
pub fn store_options(cache_bytes: u64) -> Handle {
    // Two write buffers count as cache: a quarter of it, as far as they are at most 64 MiB.
    let buffer = (cache_bytes as usize / 8).min(64 << 20);
    // SAFETY: the functions only make objects and set fields of these; all handles are valid.
    unsafe {
        let options = rocksdb_options_create();
        rocksdb_options_set_create_if_missing(options, 1);
        rocksdb_options_set_compression(options, 0);
        rocksdb_options_set_max_background_jobs(options, 2);
        rocksdb_options_set_write_buffer_size(options, buffer);
        let table = rocksdb_block_based_options_create();
        let cache = rocksdb_cache_create_lru(cache_bytes as usize - 2 * buffer);
        rocksdb_block_based_options_set_block_cache(table, cache);
        let filter = rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS);
        rocksdb_block_based_options_set_filter_policy(table, filter);
        rocksdb_options_set_block_based_table_factory(options, table);
        options
    }
}

/// Options of writes.
pub fn write_options(durable: bool) -> Handle {
    // SAFETY: as in `store_options`.
    unsafe {
        let options = rocksdb_writeoptions_create();
        rocksdb_writeoptions_set_sync(options, durable.into());
        options
    }
}

/// Options of reads.
pub fn read_options() -> Handle {
    // SAFETY: it takes no arguments.
    unsafe { rocksdb_readoptions_create() }
}

pub struct RocksDb {
    store: Handle,
    write: Handle,
    read: Handle,
}

// SAFETY: all threads may use RocksDB's handles of a store and of unchanging options at once.
unsafe impl Send for RocksDb {}
// SAFETY: as above.
unsafe impl Sync for RocksDb {}

impl RocksDb {
    pub fn open(config: &Config) -> Result<Self> {
        let options = store_options(config.cache_bytes);
        let (write, read) = (write_options(config.durable), read_options());
        let name = store_name(&config.dir)?;
        // SAFETY: the options are complete and the name ends with a zero byte.
        let store = checked(|error| unsafe { rocksdb_open(options, name.as_ptr(), error) })?;
        Ok(Self { store, write, read })
    }

    /// Writes what `fill` puts into a batch, as one transaction.
    fn write_batch(&self, fill: impl FnOnce(Handle)) -> Result<()> {
        // SAFETY: it takes no arguments.
        let batch = unsafe { rocksdb_writebatch_create() };
        fill(batch);
        // SAFETY: store, options and batch are valid.
        let result =
            checked(|error| unsafe { rocksdb_write(self.store, self.write, batch, error) });
        // SAFETY: the batch is used no more.
        unsafe { rocksdb_writebatch_destroy(batch) };
        result
    }
}

impl Store for RocksDb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(RocksDbSession { store: self }))
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: the store is open.
        checked(|error| unsafe { rocksdb_flush_wal(self.store, 1, error) })
    }

    fn close(self: Box<Self>) -> Result<()> {
        // SAFETY: sessions borrow the store, so none is left.
        unsafe { rocksdb_close(self.store) };
        Ok(())
    }
}

struct RocksDbSession<'a> {
    store: &'a RocksDb,
}

impl Session for RocksDbSession<'_> {
    fn get(&mut self, key: &Key, show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (store, read) = (self.store.store, self.store.read);
        // SAFETY: the store is open and the key has `KEY` bytes.
        let get = |error| unsafe { rocksdb_get_pinned(store, read, chars(key), KEY, error) };
        let slice = checked(get)?;
        if slice.is_null() {
            return Ok(false);
        }
        let mut len = 0;
        // SAFETY: the slice is valid; its bytes stay until it is destroyed, after `show`.
        unsafe {
            let value = rocksdb_pinnableslice_value(slice, &mut len);
            show(std::slice::from_raw_parts(value.cast(), len));
            rocksdb_pinnableslice_destroy(slice);
        }
        Ok(true)
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        let (store, write) = (self.store.store, self.store.write);
        // SAFETY: the store is open; key and value have the lengths that are given.
        checked(|error| unsafe {
            rocksdb_put(store, write, chars(key), KEY, chars(value), value.len(), error);
        })
    }

    fn put_many(&mut self, records: &[(Key, &[u8])]) -> Result<()> {
        self.store.write_batch(|batch| {
            for (key, value) in records {
                // SAFETY: the batch is valid and copies key and value, of the lengths given.
                unsafe {
                    rocksdb_writebatch_put(batch, chars(key), KEY, chars(value), value.len());
                }
            }
        })
    }

    fn remove_many(&mut self, keys: &[Key]) -> Result<()> {
        self.store.write_batch(|batch| {
            for key in keys {
                // SAFETY: the batch is valid and copies the key, of the length given.
                unsafe { rocksdb_writebatch_delete(batch, chars(key), KEY) };
            }
        })
    }

    fn scan(
        &mut self,
        from: &[u8],
        limit: usize,
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let mut records = 0;
        // SAFETY: the iterator is valid until it is destroyed. Key and value stay until it moves.
        unsafe {
            let iterator = rocksdb_create_iterator(self.store.store, self.store.read);
            rocksdb_iter_seek(iterator, chars(from), from.len());
            while records < limit && rocksdb_iter_valid(iterator) != 0 {
                let (mut key_len, mut value_len) = (0, 0);
                let key = rocksdb_iter_key(iterator, &mut key_len);
                let value = rocksdb_iter_value(iterator, &mut value_len);
                show(
                    std::slice::from_raw_parts(key.cast(), key_len),
                    std::slice::from_raw_parts(value.cast(), value_len),
                );
                records += 1;
                rocksdb_iter_next(iterator);
            }
            let result = checked(|error| rocksdb_iter_get_error(iterator, error));
            rocksdb_iter_destroy(iterator);
            result?;
        }
        Ok(records)
    }
}
