//! Promises of every back end, tested on all of them, and those of the file back ends.

use super::*;
use crate::{
    ids::{FrameId, PageId},
    page::{PAGE_SIZE, PageImage},
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    io,
    ptr::NonNull,
    sync::Arc,
    task::{Poll, Waker},
    time::{Duration, Instant},
};

/// Frames for targets. Records the abandoned ones and their bytes.
pub(super) struct Frames {
    memory: *mut PageImage,
    count: u32,
    pub(super) abandoned: Mutex<HashMap<FrameId, (PageId, Vec<u8>)>>,
    pub(super) ended: Mutex<HashMap<FrameId, Ended>>,
    wakers: Mutex<Vec<Waker>>,
}

/// A read that has ended.
pub(super) type Ended = (ReadTarget, io::Result<()>);

// SAFETY: each frame is lent to one target at a time; the map has its own lock.
unsafe impl Send for Frames {}
// SAFETY: as for Send.
unsafe impl Sync for Frames {}

impl Frames {
    pub(super) fn new(count: u32) -> Arc<Frames> {
        let memory = Box::leak(vec![PageImage([0xEE; PAGE_SIZE]); count as usize].into()) as *mut _;
        let memory: *mut [PageImage] = memory;
        Arc::new(Frames {
            memory: memory.cast(),
            count,
            abandoned: Mutex::default(),
            ended: Mutex::default(),
            wakers: Mutex::default(),
        })
    }

    pub(super) fn target(self: &Arc<Self>, frame: u32, page: u64) -> ReadTarget {
        let ptr = NonNull::new(self.frame(frame).cast()).expect("allocated");
        let owner: Arc<dyn TargetOwner> = self.clone();
        // SAFETY: a page-aligned image that lives as long as `self`; each test lends each frame
        // once at a time.
        unsafe { ReadTarget::new(ptr, FrameId(frame), PageId(page), owner) }
    }

    /// Starts a read into the frame of that number, and returns a future of its end.
    pub(super) fn read(
        self: &Arc<Self>,
        start: impl FnOnce(ReadTarget),
        frame: u32,
        page: u64,
    ) -> impl Future<Output = Ended> + Unpin + 'static {
        start(self.target(frame, page));
        self.end_of(frame)
    }

    /// Waits for the end of a read.
    fn end_of(self: &Arc<Self>, frame: u32) -> impl Future<Output = Ended> + Unpin + 'static {
        let frames = Arc::clone(self);
        std::future::poll_fn(move |context| {
            // Register first, so that an end in between is not missed.
            frames.wakers.lock().push(context.waker().clone());
            match frames.ended.lock().remove(&FrameId(frame)) {
                Some(ended) => Poll::Ready(ended),
                None => Poll::Pending,
            }
        })
    }

    fn frame(&self, frame: u32) -> *mut PageImage {
        assert!(frame < self.count);
        self.memory.wrapping_add(frame as usize)
    }

    pub(super) fn bytes(&self, frame: u32) -> Vec<u8> {
        // SAFETY: inside the allocation; the caller ensures that no read is running.
        unsafe { &*self.frame(frame) }.0.to_vec()
    }

    /// Waits until `count` reads have ended or were abandoned, and takes their frames back.
    pub(super) fn wait_for_abandoned(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.abandoned.lock().len() < count {
            let ended: Vec<_> = self.ended.lock().drain().collect();
            drop(ended);
            assert!(Instant::now() < deadline, "{} of {count}", self.abandoned.lock().len());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl TargetOwner for Frames {
    fn abandoned(&self, frame: FrameId, page: PageId) {
        let before = self.abandoned.lock().insert(frame, (page, self.bytes(frame.0)));
        assert!(before.is_none(), "frame {frame} was given back twice");
        std::mem::take(&mut *self.wakers.lock()).into_iter().for_each(Waker::wake);
    }

    fn ended(&self, target: ReadTarget, result: io::Result<()>) {
        self.ended.lock().insert(target.frame(), (target, result));
        std::mem::take(&mut *self.wakers.lock()).into_iter().for_each(Waker::wake);
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let all = std::ptr::slice_from_raw_parts_mut(self.memory, self.count as usize);
        // SAFETY: leaked from such a box in `new`; no target is left, each holds the owner.
        drop(unsafe { Box::from_raw(all) });
    }
}

/// Page with contents that depend on its id and on `version`.
pub(super) fn image(page: u64, version: u64) -> Box<PageImage> {
    let mut image = PageImage::zeroed();
    for at in (0..PAGE_SIZE).step_by(8) {
        image.set_u64(at, (page << 32 | version).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ at as u64);
    }
    image
}

pub(super) fn write_range(storage: &dyn Storage, pages: std::ops::Range<u64>, version: u64) {
    let images: Vec<_> = pages.clone().map(|page| image(page, version)).collect();
    let batch: Vec<_> =
        pages.zip(&images).map(|(page, image)| PageWrite { page: PageId(page), image }).collect();
    let mut results = Vec::new();
    storage.write_pages(&batch, &mut results);
    assert_eq!(results.len(), batch.len());
    for result in results {
        result.expect("a good device");
    }
}

pub(super) fn read(storage: &dyn Storage, page: u64) -> io::Result<Box<PageImage>> {
    let mut image = PageImage::zeroed();
    storage.read_image(PageId(page), &mut image).map(|()| image)
}

/// Back ends in files; a build may lack one ([`IoKind::check`]).
pub(super) const FILE_KINDS: [IoKind; 2] = [IoKind::Threads, IoKind::Uring];

pub(super) fn on_each(test: impl Fn(Arc<dyn Storage>)) {
    let dir = tempfile::tempdir().expect("a directory");
    let kinds = FILE_KINDS.into_iter().chain([IoKind::Memory]);
    for kind in kinds.filter(|kind| kind.check().is_ok()) {
        let path = dir.path().join(format!("{kind:?}"));
        test(open(kind, &path).expect("a back end"));
    }
}

#[test]
fn pages_come_back_as_written_in_batches_of_any_size() {
    on_each(|storage| {
        storage.reserve(1200).expect("room");
        assert!(storage.capacity_pages() >= 1200);
        for (size, version) in [(1u64, 1), (2, 2), (33, 3), (1200, 4), (0, 5)] {
            write_range(&*storage, 0..size, version);
            storage.sync().expect("a good device");
            for page in 0..size {
                assert!(read(&*storage, page).expect("written").0 == image(page, version).0);
            }
        }
        let frames = Frames::new(1);
        let mut target = frames.target(0, 700);
        storage.read_page(&mut target).expect("written");
        assert!(target.bytes() == &image(700, 4).0);
        assert_eq!(target.finish(), FrameId(0));
        assert!(frames.abandoned.lock().is_empty());
    });
}

/// Neighbours go out with one call. Each page has its own outcome all the same.
#[test]
fn a_batch_of_neighbours_and_others_has_an_outcome_for_each_page() {
    on_each(|storage| {
        storage.reserve(400).expect("room");
        write_range(&*storage, 0..400, 1);
        let long = 100..300;
        let wild = PageId::MAX.0;
        let pages: Vec<u64> =
            [7, 8, 9, 3, 2, 1, 50].into_iter().chain(long).chain([wild]).collect();
        let images: Vec<_> = pages.iter().map(|page| image(*page, 2)).collect();
        let writes = pages.iter().map(|page| PageId(*page)).zip(&images);
        let batch: Vec<_> = writes.map(|(page, image)| PageWrite { page, image }).collect();
        let mut results = Vec::new();
        storage.write_pages(&batch, &mut results);
        assert_eq!(results.len(), pages.len());
        for (page, result) in pages.iter().zip(&results) {
            assert_eq!(result.is_ok(), *page != wild, "{} page {page}", storage.name());
        }
        for page in 0..400 {
            let version = if pages.contains(&page) { 2 } else { 1 };
            assert!(read(&*storage, page).expect("written").0 == image(page, version).0, "{page}");
        }
    });
}

/// One call fails for both, and so does the attempt at each.
#[test]
fn neighbours_at_the_end_of_the_largest_file_are_errors() {
    on_each(|storage| {
        let last = (i64::MAX as u64) / PAGE_SIZE as u64;
        let images = [image(1, 1), image(2, 1)];
        let pages = [PageId(last - 1), PageId(last)];
        let writes = pages.into_iter().zip(&images);
        let batch: Vec<_> = writes.map(|(page, image)| PageWrite { page, image }).collect();
        let mut results = Vec::new();
        storage.write_pages(&batch, &mut results);
        assert!(results.len() == 2 && results.iter().all(Result::is_err), "{}", storage.name());
    });
}

#[test]
fn reserved_pages_read_as_zeroes_and_reservations_never_shrink() {
    on_each(|storage| {
        storage.reserve(100).expect("room");
        storage.reserve(10).expect("nothing to do");
        assert_eq!(storage.capacity_pages(), 100);
        assert!(read(&*storage, 99).expect("inside").0 == [0; PAGE_SIZE]);
        write_range(&*storage, 150..151, 1);
        assert_eq!(storage.capacity_pages(), 151);
    });
}

#[test]
fn room_that_was_given_back_reads_as_zeroes_when_it_is_reserved_again() {
    on_each(|storage| {
        write_range(&*storage, 0..150, 1);
        storage.shrink(200).expect("nothing to do");
        assert_eq!(storage.capacity_pages(), 150);
        storage.shrink(70).expect("cut");
        assert_eq!(storage.capacity_pages(), 70);
        assert!(read(&*storage, 69).expect("inside").0 == image(69, 1).0);
        if storage.name() != "memory" {
            assert!(read(&*storage, 70).is_err(), "{}", storage.name());
        }
        storage.reserve(160).expect("room");
        assert!(read(&*storage, 69).expect("inside").0 == image(69, 1).0);
        for page in [70, 149, 159] {
            assert!(read(&*storage, page).expect("inside").0 == [0; PAGE_SIZE], "page {page}");
        }
        storage.sync().expect("sync");
    });
}

#[test]
fn wild_page_ids_are_errors() {
    on_each(|storage| {
        let image = image(0, 0);
        for page in [PageId::MAX.0 + 1, u64::MAX] {
            let write = PageWrite { page: PageId(page), image: &image };
            let again = PageWrite { page: PageId(page), image: &image };
            let mut results = Vec::new();
            storage.write_pages(&[write, again], &mut results);
            assert!(results.len() == 2 && results.iter().all(|result| result.is_err()));
            assert!(storage.reserve(page).is_err());
            if storage.name() != "memory" {
                assert!(read(&*storage, page).is_err());
            }
        }
    });
}

#[test]
fn a_short_file_is_an_unexpected_end() {
    let dir = tempfile::tempdir().expect("a directory");
    for kind in FILE_KINDS.into_iter().filter(|kind| kind.check().is_ok()) {
        let path = dir.path().join(format!("{kind:?}"));
        std::fs::write(&path, [7; PAGE_SIZE + 512]).expect("a file");
        let storage = open(kind, &path).expect("a back end");
        assert_eq!(storage.capacity_pages(), 1);
        assert!(read(&*storage, 0).expect("whole").0 == [7; PAGE_SIZE]);
        for page in [1, 2] {
            let error = read(&*storage, page).err().expect("not whole");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
        }
        let frames = Frames::new(1);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let start = |target| storage.clone().start_read(target);
        let (target, result) = runtime.block_on(frames.read(start, 0, 1));
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        drop(target);
        assert_eq!(frames.abandoned.lock().len(), 1);
    }
}

#[test]
fn memory_has_a_limit() {
    let storage = MemoryStorage::with_limit(70);
    storage.reserve(70).expect("room");
    assert_eq!(storage.reserve(71).unwrap_err().kind(), io::ErrorKind::StorageFull);
    let image = image(70, 0);
    let mut results = Vec::new();
    storage.write_pages(&[PageWrite { page: PageId(70), image: &image }], &mut results);
    assert_eq!(results.remove(0).unwrap_err().kind(), io::ErrorKind::StorageFull);
    write_range(&storage, 69..70, 0);
}

#[test]
fn asynchronous_reads_work_without_a_ring() {
    on_each(|storage| {
        write_range(&*storage, 0..1, 1);
        let frames = Frames::new(1);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (target, result) = runtime.block_on(async {
            frames.read(|target| storage.clone().start_read(target), 0, 0).await
        });
        result.expect("a good device");
        assert!(target.finish() == FrameId(0) && frames.bytes(0) == image(0, 1).0);
        // Writes from inside a runtime must not start another one.
        runtime.block_on(async { write_range(&*storage, 0..5, 1) });
    });
}

/// Neighbours are read with one call, and each read has its own end all the same.
#[test]
fn reads_that_start_together_end_each_for_itself() {
    on_each(|storage| {
        write_range(&*storage, 0..200, 3);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        // A long run, single pages, two that are neighbours in the other order, and the same twice.
        let pages: Vec<u64> = (20..150).chain([3, 9, 8, 199, 5, 5]).collect();
        let frames = Frames::new(pages.len() as u32 + 2);
        let number = |at: usize| at as u32;
        let targets = pages.iter().enumerate().map(|(at, page)| frames.target(number(at), *page));
        storage.clone().start_reads_beside(targets.collect());
        for (at, page) in pages.iter().enumerate() {
            let (target, result) = runtime.block_on(frames.end_of(number(at)));
            result.expect("written");
            assert!(target.bytes() == &image(*page, 3).0, "page {page}");
            target.finish();
        }
        // The last page of the file, and the one after it.
        let last = [number(pages.len()), number(pages.len()) + 1];
        let targets = vec![frames.target(last[1], 200), frames.target(last[0], 199)];
        storage.clone().start_reads_beside(targets);
        let (target, result) = runtime.block_on(frames.end_of(last[0]));
        result.expect("written");
        assert!(target.bytes() == &image(199, 3).0);
        let (_target, result) = runtime.block_on(frames.end_of(last[1]));
        assert_eq!(result.is_err(), storage.name() != "memory");
        storage.start_reads_beside(Vec::new());
    });
}

#[test]
fn a_pool_may_be_dropped_on_one_of_its_own_threads() {
    let dir = tempfile::tempdir().expect("a directory");
    let storage: Arc<dyn Storage> =
        Arc::new(ThreadStorage::open(&dir.path().join("data")).expect("a file"));
    write_range(&*storage, 0..8, 1);
    struct Holder(Mutex<Option<Arc<dyn Storage>>>, Arc<Frames>);
    impl TargetOwner for Holder {
        fn abandoned(&self, frame: FrameId, page: PageId) {
            drop(self.0.lock().take());
            self.1.abandoned(frame, page);
        }
        fn ended(&self, target: ReadTarget, _: io::Result<()>) {
            drop(target);
        }
    }
    let frames = Frames::new(1);
    let holder = Arc::new(Holder(Mutex::new(Some(storage.clone())), frames.clone()));
    let ptr = NonNull::new(frames.frame(0).cast()).expect("allocated");
    // SAFETY: an image of `frames`, which the holder keeps alive.
    let target = unsafe { ReadTarget::new(ptr, FrameId(0), PageId(3), holder) };
    storage.start_read(target);
    frames.wait_for_abandoned(1);
}

/// System calls that fail, for [`refuse`].
pub(super) enum Refused<'c> {
    /// These system calls, with any arguments.
    Calls(&'c [libc::c_long]),
    /// Syncing the file of this descriptor.
    SyncOf(i32),
}

/// Makes the kernel refuse system calls of this thread, and of no other, from now on.
pub(super) fn refuse(what: &Refused<'_>, errno: i32) {
    let step = |code: u32, jump_true: usize, jump_false: usize, k: u32| libc::sock_filter {
        code: code as u16,
        jt: jump_true as u8,
        jf: jump_false as u8,
        k,
    };
    let (load, equal) =
        (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
    // The number of the system call is the first word.
    let mut steps = vec![step(load, 0, 0, 0)];
    match what {
        Refused::Calls(calls) => {
            let left = (0..calls.len()).rev();
            steps.extend(calls.iter().zip(left).map(|(call, left)| {
                let allowed = if left == 0 { 1 } else { 0 };
                step(equal, left, allowed, *call as u32)
            }));
        }
        Refused::SyncOf(descriptor) => {
            steps.push(step(equal, 0, 3, libc::SYS_fsync as u32));
            // The first argument, after the first 16 bytes.
            steps.push(step(load, 0, 0, 16));
            steps.push(step(equal, 0, 1, *descriptor as u32));
        }
    }
    let refused = libc::SECCOMP_RET_ERRNO | errno as u32;
    steps.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, refused));
    steps.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: no memory is involved.
    let failed = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(failed, 0);
    // SAFETY: the program outlives the call, which copies it.
    let failed =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(failed, 0);
}
