//! Every back end of the log keeps the promises of [`LogStorage`].

use super::{
    tests::{Refused, refuse},
    *,
};
use crate::page::PAGE_SIZE;
use std::{
    fs, io,
    io::ErrorKind,
    os::fd::{AsFd, AsRawFd},
    path::Path,
    sync::Arc,
    time::Duration,
};

const BYTES: u64 = 64 * PAGE_SIZE as u64;

fn each(test: impl Fn(&dyn LogStorage, Option<&Path>)) {
    for kind in [IoKind::Memory, IoKind::Threads, IoKind::Uring]
        .into_iter()
        .filter(|kind| kind.check().is_ok())
    {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let log = open_log(kind, &path).expect("a log");
        test(&*log, (kind != IoKind::Memory).then_some(&path));
    }
    test(&SimStorage::new(FaultPlan::new(1)), None);
}

#[test]
fn written_bytes_are_read_at_any_alignment() {
    each(|log, _| {
        log.create(1, BYTES).expect("room");
        assert_eq!(log.create(1, BYTES).unwrap_err().kind(), ErrorKind::AlreadyExists);
        let mut buffer = LogBuffer::new(8 * PAGE_SIZE);
        for (byte, value) in buffer.iter_mut().zip((0..251).cycle()) {
            *byte = value;
        }
        // Aligned pieces, then one that is not.
        let (one, two) = buffer.split_at(3 * PAGE_SIZE);
        let pieces = [(4 * PAGE_SIZE as u64, one), (7 * PAGE_SIZE as u64, two)];
        log.write(1, &pieces).expect("written");
        let odd = buffer[1..PAGE_SIZE + 1].to_vec();
        log.write(1, &[(0, &odd), (PAGE_SIZE as u64, &buffer[1..PAGE_SIZE + 1])]).expect("written");
        log.sync(1).expect("synced");
        let mut back = vec![0; buffer.len() + 10];
        log.read(1, 4 * PAGE_SIZE as u64 - 5, &mut back).expect("read");
        assert!(back[5..5 + buffer.len()] == *buffer && back[..5] == [0; 5]);
        log.read(1, 0, &mut back[..PAGE_SIZE]).expect("read");
        assert!(back[..PAGE_SIZE] == odd);
        let mut aligned = LogBuffer::new(8 * PAGE_SIZE);
        log.read(1, 4 * PAGE_SIZE as u64, &mut aligned).expect("read");
        assert!(aligned[..] == buffer[..]);
        assert_eq!(
            log.read(1, BYTES - 1, &mut [0; 2]).unwrap_err().kind(),
            ErrorKind::UnexpectedEof
        );
        assert!(log.write(1, &[(BYTES, &odd)]).is_err());
        assert!(log.read(2, 0, &mut [0; 2]).is_err() && log.sync(2).is_err());
    });
}

#[test]
fn segments_are_listed_until_they_are_removed() {
    each(|log, path| {
        for number in [3, 1, 12] {
            log.create(number, BYTES).expect("room");
        }
        assert_eq!(log.segments().expect("a list"), [(1, BYTES), (3, BYTES), (12, BYTES)]);
        let mut last = [9; 16];
        log.read(12, BYTES - 16, &mut last).expect("read");
        assert_eq!(last, [0; 16]);
        log.remove(3).expect("removed");
        assert!(log.remove(3).is_err());
        assert_eq!(log.segments().expect("a list"), [(1, BYTES), (12, BYTES)]);
        let Some(path) = path else { return };
        // Files that were unfinished when the process ended are not segments. One of another size
        // cannot be used.
        fs::write(path.join(format!("{:016}.new", 13)), [7; 100]).expect("written");
        fs::write(path.join(format!("{:016}.new", 14)), [7; BYTES as usize]).expect("written");
        let log = open_log(IoKind::Threads, path).expect("a log");
        assert_eq!(log.segments().expect("a list"), [(1, BYTES), (12, BYTES)]);
        for number in [13, 14] {
            log.create(number, BYTES).expect("room");
            assert_eq!(whole(&*log, number), [0; BYTES as usize]);
        }
        assert_eq!(log.segments().expect("a list").len(), 4);
        assert_eq!(fs::read_dir(path).expect("a directory").count(), 4);
    });
}

/// All bytes of a segment.
fn whole(log: &dyn LogStorage, segment: u64) -> Vec<u8> {
    let mut bytes = vec![1; BYTES as usize];
    log.read(segment, 0, &mut bytes).expect("read");
    bytes
}

/// Creates a segment and writes all of it.
fn used(log: &dyn LogStorage, segment: u64) {
    log.create(segment, BYTES).expect("room");
    let mut bytes = LogBuffer::new(BYTES as usize);
    bytes.fill(segment as u8);
    log.write(segment, &[(0, &bytes)]).expect("written");
    log.sync(segment).expect("synced");
}

#[test]
fn a_segment_that_was_given_up_is_gone_and_its_file_becomes_another_one() {
    each(|log, path| {
        used(log, 1);
        used(log, 2);
        let file = |name: &str| {
            use std::os::unix::fs::MetadataExt;
            path.map(|path| fs::metadata(path.join(name)).expect("a file").ino())
        };
        let first = file("0000000000000001.log");
        log.retire(1).expect("retired");
        assert_eq!(log.retire(1).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(log.read(1, 0, &mut [0]).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(log.segments().expect("a list"), [(2, BYTES)]);
        log.create(3, BYTES).expect("room");
        assert_eq!(log.segments().expect("a list"), [(2, BYTES), (3, BYTES)]);
        assert_eq!(file("0000000000000003.log"), first, "the same file");
        assert_eq!(whole(log, 3), [0; BYTES as usize]);
        assert_eq!(whole(log, 2), [2; BYTES as usize]);
        // Once more, after a handle that knows the file has used it.
        log.retire(2).expect("retired");
        log.retire(3).expect("retired");
        used(log, 4);
        assert_eq!(whole(log, 4), [4; BYTES as usize]);
        assert_eq!(log.segments().expect("a list"), [(4, BYTES)]);
    });
}

#[test]
fn bytes_that_were_passed_on_follow_a_page_of_zeroes_or_all_are_zero() {
    each(|log, path| {
        used(log, 1);
        used(log, 2);
        log.pass_on(1).expect("passed on");
        assert_eq!(log.pass_on(1).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(log.read(1, 0, &mut [0]).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(log.segments().expect("a list"), [(2, BYTES)]);
        log.create_beside(3, BYTES, Zeroes::Written, &mut |_| Some(u64::MAX)).expect("room");
        let bytes = whole(log, 3);
        let (page, rest) = bytes.split_at(PAGE_SIZE);
        assert!(page.iter().all(|byte| *byte == 0));
        let kept = rest.iter().all(|byte| *byte == 1);
        assert!(kept || path.is_none() && rest.iter().all(|byte| *byte == 0));
        // But not if zeroes are asked for, if it was not passed on, or in a log that was reopened.
        log.pass_on(2).expect("passed on");
        log.create(4, BYTES).expect("room");
        assert_eq!(whole(log, 4), [0; BYTES as usize]);
        let Some(path) = path else { return };
        used(log, 5);
        log.retire(5).expect("retired");
        log.create_beside(6, BYTES, Zeroes::Written, &mut |_| Some(u64::MAX)).expect("room");
        assert_eq!(whole(log, 6), [0; BYTES as usize]);
        used(log, 7);
        log.pass_on(7).expect("passed on");
        let log = open_log(IoKind::Threads, path).expect("a log");
        log.create_beside(8, BYTES, Zeroes::Written, &mut |_| Some(u64::MAX)).expect("room");
        assert_eq!(whole(&*log, 8), [0; BYTES as usize]);
        // A segment whose creation is stopped before its first page is written.
        used(&*log, 9);
        log.pass_on(9).expect("passed on");
        let error = log.create_beside(10, BYTES, Zeroes::Written, &mut |_| None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
    });
}

#[test]
fn zeroes_that_are_reserved_are_zeroes_like_those_that_are_written() {
    each(|log, path| {
        log.create_beside(3, BYTES, Zeroes::Reserved, &mut |_| Some(u64::MAX)).expect("room");
        assert_eq!(log.segments().expect("a list"), [(3, BYTES)]);
        assert_eq!(whole(log, 3), [0; BYTES as usize]);
        let mut page = LogBuffer::new(PAGE_SIZE);
        page.fill(7);
        let at = BYTES - PAGE_SIZE as u64;
        log.write(3, &[(at, &page)]).expect("written");
        log.sync(3).expect("synced");
        let bytes = whole(log, 3);
        let (rest, last) = bytes.split_at(at as usize);
        assert!(rest.iter().all(|byte| *byte == 0) && last.iter().all(|byte| *byte == 7));
        // Reserving does not turn the old contents of a file into zeroes.
        log.retire(3).expect("retired");
        log.create_beside(4, BYTES, Zeroes::Reserved, &mut |_| Some(u64::MAX)).expect("room");
        assert_eq!(whole(log, 4), [0; BYTES as usize]);
        used(log, 5);
        log.pass_on(5).expect("passed on");
        log.create_beside(6, BYTES, Zeroes::Reserved, &mut |_| Some(u64::MAX)).expect("room");
        let bytes = whole(log, 6);
        assert!(bytes[..PAGE_SIZE].iter().all(|byte| *byte == 0));
        assert!(bytes[PAGE_SIZE..].iter().all(|byte| *byte == 5 || path.is_none() && *byte == 0));
        // A file that a crash left under another name cannot be reserved in: it is created again.
        let Some(path) = path else { return };
        std::fs::write(path.join(format!("{:016}.new", 7)), [9; 3 * PAGE_SIZE]).expect("a file");
        log.create_beside(7, BYTES, Zeroes::Reserved, &mut |_| Some(u64::MAX)).expect("room");
        assert_eq!(whole(log, 7), [0; BYTES as usize]);
    });
}

#[test]
fn a_read_during_removals_sees_no_file_of_an_earlier_segment() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open_log(IoKind::Threads, dir.path()).expect("a log");
    let file = dir.path().join(format!("{:016}.log", 5));
    let reader = std::thread::spawn({
        let log = Arc::downgrade(&log);
        move || {
            let mut page = LogBuffer::new(PAGE_SIZE);
            while let Some(log) = log.upgrade() {
                let _ = log.read(5, 0, &mut page);
            }
        }
    });
    for turn in 0..60 {
        log.create(5, BYTES).expect("room");
        let mut page = LogBuffer::new(PAGE_SIZE);
        page.fill(turn);
        log.write(5, &[(0, &page)]).expect("written");
        log.sync(5).expect("synced");
        assert_eq!(fs::read(&file).expect("there")[0], turn, "it is in the file");
        let gone = match turn % 3 {
            0 => log.remove(5),
            1 => log.retire(5),
            _ => log.pass_on(5),
        };
        gone.expect("gone");
        std::thread::sleep(Duration::from_micros(300));
        assert!(!file.exists(), "it came back");
    }
    drop(log);
    reader.join().expect("no panic");
}

#[test]
fn a_segment_has_its_full_size_or_is_absent_even_if_its_file_is_changed() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open_log(IoKind::Threads, dir.path()).expect("a log");
    let unfinished = dir.path().join(format!("{:016}.new", 6));
    let cut = || fs::write(&unfinished, []).expect("cut");
    let removed = || fs::remove_file(&unfinished).expect("removed");
    for meddle in [&cut as &dyn Fn(), &removed] {
        log.create(5, BYTES).expect("room");
        log.pass_on(5).expect("passed on");
        let made = log.create_beside(6, BYTES, Zeroes::Written, &mut |_| {
            meddle();
            Some(u64::MAX)
        });
        assert!(made.is_err());
        assert_eq!(log.segments().expect("a list"), []);
    }
    log.create_beside(6, BYTES, Zeroes::Written, &mut |_| Some(u64::MAX)).expect("room");
    assert_eq!(log.segments().expect("a list"), [(6, BYTES)]);
}

#[test]
fn room_that_no_segment_needs_goes_back_to_the_device() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let log = open_log(IoKind::Threads, &path).expect("a log");
    let files = || fs::read_dir(&path).expect("a directory").count();
    (1..=20).for_each(|number| used(&*log, number));
    (1..=19).for_each(|number| log.retire(number).expect("retired"));
    assert_eq!(files(), 20);
    assert!(!log.give_back(false).expect("nothing was there before"));
    // Four are needed again; of the other fifteen, one in eight was not used.
    (21..=24).for_each(|number| used(&*log, number));
    (20..=23).for_each(|number| log.retire(number).expect("retired"));
    assert!(log.give_back(false).expect("some"));
    assert_eq!(files(), 20 - 2 + 4 - 4);
    // Repeated calls give back all of them.
    for _ in 0..20 {
        log.give_back(false).expect("some");
    }
    assert_eq!(files(), 4 - 3);
    log.create(25, BYTES).expect("room");
    log.retire(24).expect("retired");
    // Another process finds the spare files.
    let log = open_log(IoKind::Threads, &path).expect("a log");
    assert_eq!(files(), 2);
    assert!(log.give_back(true).expect("all of it") && !log.give_back(true).expect("nothing"));
    assert_eq!((files(), log.segments().expect("a list")), (1, vec![(25, BYTES)]));
}

#[cfg(feature = "async")]
#[test]
fn a_write_inside_a_runtime_does_without_a_ring() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open_log(IoKind::Uring, &dir.path().join("log")).expect("a log");
    log.create(1, BYTES).expect("room");
    let body = async {
        log.write(1, &[(0, &LogBuffer::new(PAGE_SIZE))]).expect("written");
        log.sync(1).expect("synced");
    };
    // Without io_uring there is no runtime to be inside of.
    let _ = start_runtime(4, body);
}

/// Creates segment 1 in a thread to which some system calls are refused, which may depend on the
/// directory of the log. Returns the error, after which the segment can be created here.
fn made_in_spite_of(refused: impl FnOnce(&Directory) -> Refused<'static>, errno: i32) -> io::Error {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let directory = Arc::new(Directory::open_or_create(&path).expect("a directory"));
    let refused = refused(&directory);
    let log = open_log_in(IoKind::Threads, directory).expect("a log");
    let making = std::thread::spawn({
        let log = Arc::clone(&log);
        move || {
            refuse(&refused, errno);
            log.create(1, BYTES).expect_err("it is refused")
        }
    });
    let error = making.join().expect("no panic");
    let left = fs::read_dir(&path).expect("a directory").count();
    let there = log.segments().expect("a list");
    assert_eq!(left, there.len(), "nothing is left of it, or a whole segment: {error}");
    if log.remove(1).is_err() {
        assert!(there.is_empty(), "{error}");
    }
    log.create(1, BYTES).expect("the next attempt");
    log.sync(1).expect("synced");
    assert_eq!(log.segments().expect("a list"), [(1, BYTES)]);
    error
}

#[test]
fn a_segment_can_be_created_when_the_obstacle_is_gone() {
    let writes = |_: &Directory| Refused::Calls(&[libc::SYS_pwrite64]);
    assert_eq!(made_in_spite_of(writes, libc::ENOSPC).kind(), ErrorKind::StorageFull);
    let syncs = |_: &Directory| Refused::Calls(&[libc::SYS_fsync]);
    assert_eq!(made_in_spite_of(syncs, libc::EIO).raw_os_error(), Some(libc::EIO));
    let renames = |_: &Directory| Refused::Calls(&[libc::SYS_renameat, libc::SYS_renameat2]);
    assert_eq!(made_in_spite_of(renames, libc::EIO).raw_os_error(), Some(libc::EIO));
    // The segment exists then, and its directory is not synced.
    let of_directory = |directory: &Directory| Refused::SyncOf(directory.as_fd().as_raw_fd());
    let error = made_in_spite_of(of_directory, libc::EIO);
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
}
