//! The ring through which a thread writes to segments of the log.
//!
//! Memory: pieces are borrowed for the call. A runtime that is dropped, even by a panic, first
//! waits for its operations.

use super::{runtime, segment_file::SegmentFile};
use std::{
    cell::RefCell,
    io,
    rc::Rc,
    sync::{Arc, Weak},
};
use tokio_uring::{Runtime, buf::IoBuf};

/// Pieces in flight in the ring of a thread.
pub(super) const RING_ENTRIES: u32 = 64;

thread_local! {
    /// The runtime of a writing thread, created by its first write. Taken out while in use.
    static RING: RefCell<Option<ThreadRing>> = const { RefCell::new(None) };
}

struct ThreadRing {
    runtime: Runtime,
    files: Vec<(Weak<SegmentFile>, Rc<tokio_uring::fs::File>)>,
}

/// Runs `work` on this thread's ring with its handle of `segment`; `None` if there is no ring.
pub(super) fn with_ring<T>(
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
pub(super) struct LentPiece(pub(super) *const [u8]);

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
