//! A child of `fork` has a copy of an open engine and none of its threads. It is refused, whatever
//! it calls, and neither hangs nor panics nor writes; the parent goes on.
//!
//! A program of its own: a child has copies of all descriptors, and keeps the stores of other tests
//! open.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};
use wattle::{Durability, Engine, Error, Options, Result};
use wattle_tests::harness::assert_verified;

const RECORDS: u64 = 8000;

fn key(i: u64) -> Vec<u8> {
    format!("key{i:08}").into_bytes()
}

fn options() -> Options {
    Options::default().pool_bytes(420_000).log_bytes(8 << 20).durability(Durability::Group)
}

/// In the child: the number is 0.
fn fork() -> libc::pid_t {
    // SAFETY: the child calls the engine, whose calls are refused there, and ends without going
    // back to the harness.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    child
}

/// Ends the child without running anything else.
fn end(code: i32) -> ! {
    // SAFETY: takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// Waits for the child, which is ended if that takes for long, and gives its status.
fn wait(child: libc::pid_t) -> i32 {
    let (began, mut status) = (Instant::now(), 0);
    loop {
        // SAFETY: writes the one number it is given.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if ended == child {
            return status;
        }
        if began.elapsed() > Duration::from_secs(30) {
            // SAFETY: a child of this process that was not waited for yet.
            unsafe { libc::kill(child, libc::SIGKILL) };
            // SAFETY: as above.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            panic!("the child hung");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_refused<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::Forked))
}

#[test]
fn a_child_of_fork_is_refused_and_the_parent_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    let engine = Engine::open(&path, options()).expect("open");
    let tree = engine.tree("t").expect("a tree");
    let session = engine.session().expect("a session");
    for i in 0..RECORDS {
        drop(session.put_ticket(&tree, &key(i), &[i as u8; 100]).expect("put"));
    }
    engine.checkpoint().expect("a checkpoint");
    let mut txn = engine.begin().expect("begin");
    txn.put(&tree, &key(3), b"in a transaction").expect("put");
    let mut dropped = engine.begin().expect("begin");
    dropped.put(&tree, &key(9), b"in a transaction").expect("put");
    let child = fork();
    if child == 0 {
        let ended = catch_unwind(AssertUnwindSafe(move || {
            let mut step = 1;
            let mut check = |right: bool| {
                if !right {
                    end(step);
                }
                step += 1;
            };
            check(is_refused(&session.put(&tree, &key(1), b"child")));
            check(is_refused(&session.remove(&tree, &key(1))));
            check(is_refused(&txn.commit()));
            drop(dropped);
            check(is_refused(&session.begin().map(drop)));
            check(is_refused(&engine.begin().map(drop)));
            check(is_refused(&engine.tree("other").map(drop)));
            check(is_refused(&engine.checkpoint()));
            check(is_refused(&engine.sync()));
            check(is_refused(&engine.compact().map(drop)));
            check(is_refused(&engine.tree_stats()));
            check(is_refused(&engine.backup(directory.path().join("backup")).map(drop)));
            let gets: Vec<_> = (0..RECORDS).map(|i| session.get(&tree, &key(i))).collect();
            check(gets.iter().all(|found| found.is_ok() || is_refused(found)));
            check(gets.iter().any(is_refused));
            drop((session, tree));
            let closed = engine.close().expect_err("refused");
            check(matches!(closed.error(), Error::Forked));
            let engine = closed.into_engine().expect("not closed");
            check(is_refused(&engine.clone().abandon()));
            // The last handle.
            drop(engine);
            std::mem::forget(directory);
        }));
        end(if ended.is_ok() { 0 } else { 100 });
    }
    let status = wait(child);
    assert!(libc::WIFEXITED(status), "the child ended with status {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "the step at which the child was not refused");
    txn.commit().expect("commit");
    drop(dropped);
    session.put(&tree, &key(1), b"parent").expect("put");
    assert_verified(&engine);
    drop((session, tree));
    engine.close().expect("close");
    let engine = Engine::open(&path, options()).expect("open");
    let (tree, session) = (engine.tree("t").expect("a tree"), engine.session().expect("a session"));
    for i in 0..RECORDS {
        let expected = match i {
            1 => b"parent".to_vec(),
            3 => b"in a transaction".to_vec(),
            _ => vec![i as u8; 100],
        };
        assert_eq!(session.get(&tree, &key(i)).expect("get"), Some(expected), "record {i}");
    }
    assert_verified(&engine);
}
