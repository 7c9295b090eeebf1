//! The ring through which a thread writes to segments of the log.
//!
//! Memory: pieces are borrowed for the call. A runtime that is dropped, even by a panic, first
//! waits for its operations.

use super::{runtime, segment_file::SegmentFile, uring::is_transient};
use std::{
    cell::RefCell,
    fs::File,
    io,
    os::unix::fs::FileExt,
    rc::Rc,
    sync::{Arc, Weak},
};
use tokio_uring::{Runtime, buf::IoBuf};

/// Pieces in flight in the ring of a thread.
const RING_ENTRIES: u32 = 64;

/// Writes pieces of whole pages at their offsets, many in flight; `None` if there is no ring for
/// that.
pub(super) fn write_pieces(
    segment: &Arc<SegmentFile>,
    writes: &[(u64, &[u8])],
) -> Option<io::Result<()>> {
    with_ring(segment, async |handle| {
        let mut in_flight = Vec::with_capacity(writes.len());
        let mut result = Ok(());
        for group in writes.chunks(RING_ENTRIES as usize) {
            for &(offset, piece) in group {
                let operation = handle.write_at(LentPiece(piece), offset).submit();
                in_flight.push((offset, piece, operation));
            }
            // Wait for all of them, even if the first fails.
            for (offset, piece, operation) in in_flight.drain(..) {
                let (done, _) = operation.await;
                result = result.and(finish_write(&segment.file, offset, piece, done));
            }
        }
        result
    })
}

/// Completes a write that the kernel ended early or did not try.
fn finish_write(file: &File, at: u64, piece: &[u8], done: io::Result<usize>) -> io::Result<()> {
    match done {
        Ok(done) if done == piece.len() => Ok(()),
        Ok(0) => Err(io::Error::new(io::ErrorKind::WriteZero, "the log takes no more bytes")),
        Ok(done) => file.write_all_at(&piece[done..], at + done as u64),
        Err(error) if is_transient(&error) => file.write_all_at(piece, at),
        Err(error) => Err(error),
    }
}

thread_local! {
    /// The runtime of a writing thread, created by its first write. Taken out while in use.
    static RING: RefCell<Option<ThreadRing>> = const { RefCell::new(None) };
}

struct ThreadRing {
    runtime: Runtime,
    files: Vec<(Weak<SegmentFile>, Rc<tokio_uring::fs::File>)>,
}

/// Runs `work` on this thread's ring with its handle of `segment`; `None` if there is no ring.
fn with_ring<T>(
    segment: &Arc<SegmentFile>,
    work: impl AsyncFnOnce(&tokio_uring::fs::File) -> io::Result<T>,
) -> Option<io::Result<T>> {
    if runtime::inside_runtime() {
        return None;
    }
    let kept = RING.try_with(|ring| ring.take()).ok()?;
    let mut ring = match kept {
        Some(ring) => ring,
        None => ThreadRing { runtime: runtime::new_runtime(RING_ENTRIES).ok()?, files: Vec::new() },
    };
    let known = ring.files.iter().find(|(weak, _)| weak.as_ptr() == Arc::as_ptr(segment));
    let handle = known.map(|(_, handle)| Rc::clone(handle)).or_else(|| {
        ring.files.retain(|(weak, _)| weak.strong_count() > 0);
        let handle = Rc::new(tokio_uring::fs::File::from_std(segment.file.try_clone().ok()?));
        ring.files.push((Arc::downgrade(segment), Rc::clone(&handle)));
        Some(handle)
    });
    let Some(handle) = handle else {
        // No descriptor for this segment; the next one may get one.
        let _ = RING.try_with(|slot| slot.replace(Some(ring)));
        return None;
    };
    // A panic in here drops the runtime, which waits for the kernel before the pieces can end.
    let result = ring.runtime.block_on(work(&handle));
    drop(handle);
    // If the thread is ending, its runtime ends here.
    let _ = RING.try_with(|slot| slot.replace(Some(ring)));
    Some(result)
}

/// Bytes that the caller of `write` lends until all writes have completed.
struct LentPiece(*const [u8]);

// SAFETY: the bytes neither move nor change during `write`, which outlives the operation.
unsafe impl IoBuf for LentPiece {
    fn stable_ptr(&self) -> *const u8 {
        self.0.cast()
    }
    fn bytes_init(&self) -> usize {
        self.0.len()
    }
    fn bytes_total(&self) -> usize {
        self.0.len()
    }
}
