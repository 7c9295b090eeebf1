//! Reads on the ring of a runtime, and back ends where io_uring is refused.

use super::{
    tests::{Frames, Refused, image, on_each, read, refuse, write_range},
    *,
};
use crate::{ids::FrameId, page::PAGE_SIZE};
use std::{
    io,
    sync::Arc,
    task::{Context, Waker},
    time::{Duration, Instant},
};

/// Starts reads of pages `0..count` as tasks and checks their results.
async fn read_all(storage: Arc<dyn Storage>, frames: Arc<Frames>, count: u32) {
    let reads: Vec<_> = (0..count)
        .map(|page| {
            let start = |target| storage.clone().start_read(target);
            let read = frames.read(start, page, page.into());
            tokio_uring::spawn(async move {
                let (target, result) = read.await;
                result.expect("a good device");
                assert!(target.bytes() == &image(page.into(), 1).0);
                assert_eq!(target.finish(), FrameId(page));
            })
        })
        .collect();
    for read in reads {
        read.await.expect("no panic");
    }
}

#[test]
fn sixty_four_asynchronous_reads_are_in_flight_even_on_a_ring_of_eight() {
    on_each(|storage| {
        write_range(&*storage, 0..64, 1);
        let frames = Frames::new(64);
        for entries in [64, 8] {
            for _ in 0..20 {
                let read = read_all(storage.clone(), frames.clone(), 64);
                start_runtime(entries, read).expect("a ring");
            }
        }
        assert!(frames.abandoned.lock().is_empty());
    });
}

#[test]
fn a_short_read_on_a_ring_is_an_unexpected_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("data");
    std::fs::write(&path, [7; PAGE_SIZE + 512]).expect("a file");
    let storage = open(IoKind::Uring, &path).expect("a back end");
    let frames = Frames::new(1);
    let read = async { frames.read(|target| storage.clone().start_read(target), 0, 1).await };
    let (target, result) = start_runtime(8, read).expect("a ring");
    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    drop(target);
    assert_eq!(frames.abandoned.lock().len(), 1);
}

/// Every frame came back once, and nothing wrote to it afterwards.
fn assert_all_came_back(frames: &Arc<Frames>, count: u32) {
    frames.wait_for_abandoned(count as usize);
    std::thread::sleep(Duration::from_millis(20));
    for (frame, (page, bytes)) in &*frames.abandoned.lock() {
        assert_eq!(u64::from(frame.0), page.0);
        assert!(frames.bytes(frame.0) == *bytes, "frame {frame} changed after it came back");
    }
}

#[test]
fn reads_that_no_task_waits_for_end_and_leave_their_places_in_the_ring() {
    on_each(|storage| {
        write_range(&*storage, 0..64, 1);
        for entries in [128, 16] {
            let frames = Frames::new(64);
            let session = async {
                let start = |target| storage.clone().start_read(target);
                let mut reads: Vec<_> =
                    (0..64).map(|page| frames.read(start, page, page.into())).collect();
                // Half of them are kept but not polled again, half are dropped.
                for read in &mut reads {
                    let mut context = Context::from_waker(Waker::noop());
                    let _ = std::pin::Pin::new(read).poll(&mut context);
                }
                reads.truncate(32);
                let more = Frames::new(64);
                read_all(storage.clone(), more, 64).await;
                // They end although their futures are not polled.
                let until = Instant::now() + Duration::from_secs(20);
                while frames.ended.lock().len() + frames.abandoned.lock().len() < 64 {
                    assert!(Instant::now() < until, "reads do not end");
                    breathe().await;
                }
                drop(reads);
            };
            start_runtime(entries, session).expect("a ring");
            assert_all_came_back(&frames, 64);
        }
    });
}

#[test]
fn a_runtime_that_ends_with_reads_in_flight_waits_for_the_kernel() {
    on_each(|storage| {
        write_range(&*storage, 0..64, 1);
        for panics in [false, true] {
            let frames = Frames::new(64);
            let session = async {
                for page in 0..64 {
                    storage.clone().start_read(frames.target(page, page.into()));
                }
                tokio::task::yield_now().await;
                assert!(!panics, "expected by this test");
            };
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                start_runtime(64, session).expect("a ring")
            }));
            assert_eq!(ended.is_err(), panics);
            assert_all_came_back(&frames, 64);
        }
    });
}

#[test]
fn reads_that_wait_for_a_place_when_their_runtime_ends_give_their_frames_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let storage = open(IoKind::Uring, &dir.path().join("data")).expect("a back end");
    write_range(&*storage, 0..16, 1);
    let frames = Frames::new(16);
    let begin = async {
        for page in 0..16 {
            storage.clone().start_read(frames.target(page, page.into()));
        }
        tokio::task::yield_now().await;
    };
    start_runtime(1, begin).expect("a ring");
    assert_all_came_back(&frames, 16);
}

#[test]
fn runtimes_do_not_nest() {
    let nested = start_runtime(8, async { start_runtime(8, async {}).is_err() });
    assert!(nested.expect("a ring"));
    start_runtime(8, async {}).expect("a second one after the first");
}

#[test]
fn where_io_uring_is_refused_threads_take_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let with_ring = open(IoKind::Uring, &dir.path().join("ring")).expect("a back end");
    let without = std::thread::spawn(move || {
        refuse(&Refused::Calls(&[libc::SYS_io_uring_setup]), libc::EPERM);
        let storage = open(IoKind::Uring, &dir.path().join("data")).expect("a back end");
        assert_eq!(storage.name(), "threads");
        let error = start_runtime(8, async {}).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        // A storage that was opened with a ring also serves this thread.
        for storage in [storage, with_ring] {
            write_range(&*storage, 0..40, 1);
            assert!(read(&*storage, 39).expect("written").0 == image(39, 1).0);
        }
    });
    without.join().expect("no panic");
}
