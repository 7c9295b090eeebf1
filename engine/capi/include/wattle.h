/* The C API of Wattle. Made by cbindgen from the Rust sources: do not edit it. */

#ifndef WATTLE_H
#define WATTLE_H

#include <stddef.h>
#include <stdint.h>

// Commits are durable when they return; the log is flushed at once. The default.
#define WATTLE_DURABILITY_SYNC 1

// As `SYNC`, but the flush begins up to 1 ms later, so that more commits share it.
#define WATTLE_DURABILITY_GROUP 2

// Commits return at once. A crash may lose those of the last 100 ms or so.
#define WATTLE_DURABILITY_NONE 3

// `pread` and `pwrite` in threads, instead of io_uring.
#define WATTLE_IO_THREADS 1

// Nothing is stored: the store is in memory and ends with the engine.
#define WATTLE_IO_MEMORY 2

// Pages go through the page cache of the system; the log does not.
#define WATTLE_IO_BUFFERED 3

// Transactions behave as if they ran one after the other.
#define WATTLE_ISOLATION_SERIALIZABLE 1

// The result of a call. After every code but `OK`, `NOT_FOUND` and `BUFFER_TOO_SMALL`,
// `wattle_error_message` has a sentence that says what failed.
typedef enum {
  // Done.
  WATTLE_CODE_OK = 0,
  // There is no such key or tree, or the range has no further record.
  WATTLE_CODE_NOT_FOUND = 1,
  // The value is longer than the buffer. Its length was stored, and no byte of it.
  WATTLE_CODE_BUFFER_TOO_SMALL = 2,
  // An argument is outside of its limits, or a pointer is null. Nothing was changed.
  WATTLE_CODE_INVALID_ARGUMENT = 3,
  // The handle was closed, or never was one of this kind.
  WATTLE_CODE_CLOSED_HANDLE = 4,
  // A session, transaction or range was used on another thread than the one that opened it.
  WATTLE_CODE_WRONG_THREAD = 5,
  // Another transaction changed the record first: roll back, then run the transaction again.
  WATTLE_CODE_CONFLICT = 6,
  // The snapshot was cancelled: roll back, then run the transaction again.
  WATTLE_CODE_SNAPSHOT_TOO_OLD = 7,
  // The transaction can only be rolled back.
  WATTLE_CODE_MUST_ABORT = 8,
  // An insert found the key, or a tree of that name exists.
  WATTLE_CODE_EXISTS = 9,
  // A change through a read-only transaction or store.
  WATTLE_CODE_READ_ONLY = 10,
  // Handles are alive that the call needs closed.
  WATTLE_CODE_IN_USE = 11,
  // Too many sessions, trees or operations for the pool.
  WATTLE_CODE_LIMIT = 12,
  // The device has no room.
  WATTLE_CODE_DISK_FULL = 13,
  // The operating system refused an operation.
  WATTLE_CODE_IO = 14,
  // The bytes on the device are not those that Wattle wrote.
  WATTLE_CODE_CORRUPTION = 15,
  // The path is no store, one of another version, or open already.
  WATTLE_CODE_CANNOT_OPEN = 16,
  // Whether the transaction is durable is unknown until the store is opened again.
  WATTLE_CODE_COMMIT_UNKNOWN = 17,
  // The engine stopped after an earlier error and must be opened again.
  WATTLE_CODE_POISONED = 18,
  // A signal handler called the library while its thread was inside of a call.
  WATTLE_CODE_REENTRANT = 19,
  // The library has a bug: it panicked, and the call did not end.
  WATTLE_CODE_PANIC = 20,
  // Another error.
  WATTLE_CODE_OTHER = 21,
} WattleCode;

// Options of a store. Begin with `WattleOptions options = {0};`: zero is the default of each.
typedef struct {
  // Budget of the buffer pool, bytes. Default 256 MiB.
  uint64_t pool_bytes;
  // Bytes that checkpoints keep the log below. Default: four times the pool, 1 to 16 GiB.
  uint64_t log_bytes;
  // Limit of the memory for versions that snapshots need, bytes. Default 16 MiB.
  uint64_t version_bytes;
  // Upper bound on waits for room and for other operations, milliseconds. Default 10 s.
  uint64_t stall_timeout_ms;
  // One of `WATTLE_DURABILITY_*`.
  uint32_t durability;
  // One of `WATTLE_IO_*`. Default: io_uring.
  uint32_t io;
  // Not 0: the store is only read, and its files are not changed.
  uint32_t read_only;
  // Not 0: an absent store is an error instead of being created.
  uint32_t must_exist;
  // Must be 0; for options of later versions.
  uint64_t reserved[8];
} WattleOptions;

// An open store. All threads may use it.
typedef struct {
  // Number of the handle; 0 is none.
  uint64_t number;
} WattleEngine;

// Counters of an engine since it was opened, and a few current values.
typedef struct {
  // Frames of the pool.
  uint64_t frames;
  // Frames that hold no page now.
  uint64_t free_frames;
  // Operations that found every page resident at the first try.
  uint64_t hits;
  // Times that an operation had to wait for a page.
  uint64_t faults;
  // Pages read from storage.
  uint64_t pages_read;
  // Pages written to storage.
  uint64_t pages_written;
  // Pages evicted.
  uint64_t evictions;
  // Bytes of the data file.
  uint64_t file_bytes;
  // Pages in use.
  uint64_t used_pages;
  // Bytes written to the log.
  uint64_t log_bytes;
  // Times that the log was written.
  uint64_t log_flushes;
  // Times that the log was synced.
  uint64_t log_syncs;
  // Transactions that committed, auto-committed operations included.
  uint64_t commits;
  // Checkpoints.
  uint64_t checkpoints;
  // Memory of versions that snapshots may need, bytes.
  uint64_t version_bytes;
  // Bytes of the data file that `wattle_compact` would give back, about.
  uint64_t compact_bytes;
} WattleStats;

// A tree: an ordered map from keys to values. All threads may use it.
typedef struct {
  // Number of the handle; 0 is none.
  uint64_t number;
} WattleTree;

// A session: its changes are auto-committed. Only the thread that opened it may use it.
typedef struct {
  // Number of the handle; 0 is none.
  uint64_t number;
} WattleSession;

// Bytes of the caller or of the library. They are read during the call only.
typedef struct {
  // The first byte. May be null if `length` is 0.
  const uint8_t *data;
  // Number of bytes.
  uintptr_t length;
} WattleBytes;

// The records between two keys, in order. Only the thread that opened it may use it.
typedef struct {
  // Number of the handle; 0 is none.
  uint64_t number;
} WattleRange;

// Options of a transaction. Zero is the default of each.
typedef struct {
  // `WATTLE_ISOLATION_SERIALIZABLE`. Default: snapshot isolation.
  uint32_t isolation;
  // Not 0: changes are refused.
  uint32_t read_only;
  // One of `WATTLE_DURABILITY_*`. Default: that of the engine.
  uint32_t durability;
  // Must be 0; for options of later versions.
  uint32_t reserved;
} WattleTxnOptions;

// A transaction. Only the thread that began it may use it.
typedef struct {
  // Number of the handle; 0 is none.
  uint64_t number;
} WattleTxn;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The sentence of the last call of this thread that failed. It stays until the next one fails.
const char *wattle_error_message(void);

// Opens the store in the directory `path`, creating it if there is none. `options` may be null.
//
// # Safety
// `path` is a string, `options` null or valid, `engine` writable.
WattleCode wattle_open(const char *path, const WattleOptions *options, WattleEngine *engine);

// Writes everything out and closes the store. While sessions, transactions or ranges of it are
// open on any thread it is `IN_USE`, and `engine` stays open. After any other result it is closed.
WattleCode wattle_close(WattleEngine engine);

// Makes all commits so far durable, also those with `WATTLE_DURABILITY_NONE`.
WattleCode wattle_sync(WattleEngine engine);

// Writes all pages that are dirty now, so that recovery would begin here.
WattleCode wattle_checkpoint(WattleEngine engine);

// Gives room at the end of the data file back to the file system.
WattleCode wattle_compact(WattleEngine engine);

// Copies the running store into the directory `path`, which must not exist or be empty.
//
// # Safety
// `path` is a string.
WattleCode wattle_backup(WattleEngine engine, const char *path);

// Counters of the engine. `size` is `sizeof(WattleStats)` of the caller's header; a library with
// more counters fills in those that the caller knows.
//
// # Safety
// `size` bytes are writable at `stats`.
WattleCode wattle_stats(WattleEngine engine, WattleStats *stats, uintptr_t size);

// Opens the tree `name` (1 to 255 bytes), creating it if there is none.
//
// # Safety
// `name` is a string, `tree` writable.
WattleCode wattle_tree(WattleEngine engine, const char *name, WattleTree *tree);

// Opens the tree `name` if there is one, otherwise `NOT_FOUND`.
//
// # Safety
// `name` is a string, `tree` writable.
WattleCode wattle_open_tree(WattleEngine engine, const char *name, WattleTree *tree);

// Closes the handle of a tree. The tree stays.
WattleCode wattle_tree_close(WattleTree tree);

// Drops a tree with everything in it, and closes its handle, also when that fails. `IN_USE` while
// other handles, ranges or transactions use it.
WattleCode wattle_drop_tree(WattleEngine engine, WattleTree tree);

// Names of all trees, sorted, each followed by a zero byte. `length` is the length of all.
//
// # Safety
// `capacity` bytes are writable at `buffer`, and `length` is.
WattleCode wattle_tree_names(WattleEngine engine,
                             uint8_t *buffer,
                             uintptr_t capacity,
                             uintptr_t *length);

// Opens a session for this thread.
//
// # Safety
// `session` is writable.
WattleCode wattle_session(WattleEngine engine, WattleSession *session);

// Closes a session. Its ranges stay open.
WattleCode wattle_session_close(WattleSession session);

// Copies the value of a key into `buffer`, if it has at most `capacity` bytes, and stores its
// length. `NOT_FOUND` if there is no such key.
//
// # Safety
// `key` is readable, `capacity` bytes are writable at `buffer`, and `length` is.
WattleCode wattle_get(WattleSession session,
                      WattleTree tree,
                      WattleBytes key,
                      uint8_t *buffer,
                      uintptr_t capacity,
                      uintptr_t *length);

// Adds a record; `EXISTS` if the key does.
//
// # Safety
// `key` and `value` are readable.
WattleCode wattle_insert(WattleSession session,
                         WattleTree tree,
                         WattleBytes key,
                         WattleBytes value);

// Sets the value of a key, whether or not it exists.
//
// # Safety
// `key` and `value` are readable.
WattleCode wattle_put(WattleSession session, WattleTree tree, WattleBytes key, WattleBytes value);

// Replaces the value of a key; `NOT_FOUND` if there is no such key.
//
// # Safety
// `key` and `value` are readable.
WattleCode wattle_update(WattleSession session,
                         WattleTree tree,
                         WattleBytes key,
                         WattleBytes value);

// Removes a record; `NOT_FOUND` if there is no such key.
//
// # Safety
// `key` is readable.
WattleCode wattle_remove(WattleSession session, WattleTree tree, WattleBytes key);

// Opens a range of the keys from `low` (included) to `high` (excluded), descending if `descending`
// is not 0. A null bound is none. All its records are from one snapshot, of this moment.
//
// # Safety
// The bounds are null or readable, `range` is writable.
WattleCode wattle_range(WattleSession session,
                        WattleTree tree,
                        const WattleBytes *low,
                        const WattleBytes *high,
                        int32_t descending,
                        WattleRange *range);

// Goes to the next record of a range; `NOT_FOUND` at its end. `key` and `value` stay until the
// next call with `range`.
//
// # Safety
// `key` and `value` are writable.
WattleCode wattle_range_next(WattleRange range, WattleBytes *key, WattleBytes *value);

// Closes a range.
WattleCode wattle_range_close(WattleRange range);

// Begins a transaction. `options` may be null: snapshot isolation, durability of the engine.
//
// # Safety
// `options` is null or valid, `txn` writable.
WattleCode wattle_begin(WattleEngine engine, const WattleTxnOptions *options, WattleTxn *txn);

// Commits a transaction and closes its handle, also when that fails. After `CONFLICT` it was
// rolled back.
WattleCode wattle_commit(WattleTxn txn);

// Rolls a transaction back and closes its handle.
WattleCode wattle_rollback(WattleTxn txn);

// Makes a savepoint. `savepoint` gets its number: the first one of a transaction is 0.
//
// # Safety
// `savepoint` is writable.
WattleCode wattle_savepoint(WattleTxn txn, uintptr_t *savepoint);

// Undoes every change after a savepoint. Later savepoints end; this one stays.
WattleCode wattle_rollback_to(WattleTxn txn, uintptr_t savepoint);

// As `wattle_get`, in a transaction.
//
// # Safety
// As `wattle_get`.
WattleCode wattle_txn_get(WattleTxn txn,
                          WattleTree tree,
                          WattleBytes key,
                          uint8_t *buffer,
                          uintptr_t capacity,
                          uintptr_t *length);

// As `wattle_insert`, in a transaction.
//
// # Safety
// As `wattle_insert`.
WattleCode wattle_txn_insert(WattleTxn txn, WattleTree tree, WattleBytes key, WattleBytes value);

// As `wattle_put`, in a transaction.
//
// # Safety
// As `wattle_put`.
WattleCode wattle_txn_put(WattleTxn txn, WattleTree tree, WattleBytes key, WattleBytes value);

// As `wattle_update`, in a transaction.
//
// # Safety
// As `wattle_update`.
WattleCode wattle_txn_update(WattleTxn txn, WattleTree tree, WattleBytes key, WattleBytes value);

// As `wattle_remove`, in a transaction.
//
// # Safety
// As `wattle_remove`.
WattleCode wattle_txn_remove(WattleTxn txn, WattleTree tree, WattleBytes key);

// As `wattle_range`, in a transaction, with its own changes. Records that it changes while the
// range is open may be read before or after that change.
//
// # Safety
// As `wattle_range`.
WattleCode wattle_txn_range(WattleTxn txn,
                            WattleTree tree,
                            const WattleBytes *low,
                            const WattleBytes *high,
                            int32_t descending,
                            WattleRange *range);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WATTLE_H */
