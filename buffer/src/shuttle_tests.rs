//! Interleavings of the latch, under the model checker:
//! `RUSTFLAGS="--cfg shuttle" cargo test -p wattle-buffer shuttle`.

use crate::{brief::RawBrief, latch::Latch};
use parking_lot::lock_api::RawMutex;
use shuttle::{sync::atomic::AtomicU64, thread};
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// Runs `body` under random schedules and under priority schedules. A failure prints the schedule,
/// which replays it.
fn explore(schedules: usize, body: impl Fn() + Send + Sync + Clone + 'static) {
    let rounds = std::env::var("WATTLE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    shuttle::check_random(body.clone(), schedules * rounds);
    shuttle::check_pct(body, schedules * rounds, 3);
}

#[derive(Default)]
struct Pair {
    latch: Latch,
    words: [AtomicU64; 2],
    inside: AtomicU64,
}

impl Pair {
    /// Adds one to both words; the caller is inside exclusively.
    fn change(&self) {
        assert_eq!(self.inside.fetch_add(1, Relaxed), 0, "two exclusive holders");
        for word in &self.words {
            word.store(word.load(Relaxed) + 1, Relaxed);
        }
        assert_eq!(self.inside.fetch_sub(1, Relaxed), 1);
    }

    fn read(&self) -> [u64; 2] {
        [self.words[0].load(Relaxed), self.words[1].load(Relaxed)]
    }
}

#[test]
fn an_optimistic_read_that_validates_is_never_torn() {
    explore(3000, || {
        let pair = Arc::new(Pair::default());
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let pair = pair.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let version = pair.latch.exclusive();
                        pair.change();
                        pair.latch.release(version, true);
                    }
                })
            })
            .collect();
        let reader = pair.clone();
        let reader = thread::spawn(move || {
            let mut last = 0;
            for _ in 0..4 {
                let version = reader.latch.optimistic();
                let words = reader.read();
                if reader.latch.validate(version).is_ok() {
                    assert_eq!(words[0], words[1]);
                    assert!(words[0] >= last, "time went back");
                    last = words[0];
                }
            }
        });
        writers.into_iter().chain([reader]).for_each(|thread| thread.join().unwrap());
        assert_eq!(pair.read(), [4, 4]);
    });
}

#[test]
fn an_upgrade_succeeds_only_if_nothing_changed_and_nobody_is_inside() {
    explore(3000, || {
        let pair = Arc::new(Pair::default());
        let upgraders: Vec<_> = (0..3)
            .map(|_| {
                let pair = pair.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        loop {
                            let version = pair.latch.optimistic();
                            let words = pair.read();
                            if pair.latch.upgrade(version).is_ok() {
                                assert_eq!(pair.read(), words, "changed before the upgrade");
                                pair.change();
                                pair.latch.release(version, true);
                                break;
                            }
                            crate::sync::yield_now();
                        }
                    }
                })
            })
            .collect();
        upgraders.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(pair.read(), [6, 6]);
    });
}

#[test]
fn shared_and_exclusive_holders_exclude_each_other() {
    explore(3000, || {
        let pair = Arc::new(Pair::default());
        let mut threads = Vec::new();
        for _ in 0..2 {
            let pair = pair.clone();
            threads.push(thread::spawn(move || {
                for _ in 0..3 {
                    if pair.latch.try_shared() {
                        let words = pair.read();
                        assert_eq!(words[0], words[1]);
                        assert_eq!(pair.inside.load(Relaxed), 0);
                        assert_eq!(pair.read(), words);
                        pair.latch.release_shared();
                    }
                }
            }));
        }
        for changed in [true, false] {
            let pair = pair.clone();
            threads.push(thread::spawn(move || {
                for _ in 0..2 {
                    let version = pair.latch.exclusive();
                    if changed {
                        pair.change();
                    }
                    pair.latch.release(version, changed);
                }
            }));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(pair.read(), [2, 2]);
        assert!(pair.latch.try_exclusive().is_some());
    });
}

#[test]
fn holders_of_a_brief_lock_exclude_each_other_and_see_what_was_done_before() {
    explore(3000, || {
        let lock = Arc::new((RawBrief::INIT, Pair::default()));
        let threads = [3, 2, 1].map(|rounds| {
            let lock = lock.clone();
            thread::spawn(move || {
                for _ in 0..rounds {
                    lock.0.lock();
                    lock.1.change();
                    // SAFETY: held since the call above.
                    unsafe { lock.0.unlock(()) };
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(lock.1.read(), [6, 6]);
    });
}
