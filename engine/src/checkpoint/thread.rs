//! The checkpoint thread: it decides when a checkpoint begins.

use super::pace::{LOOK, Pace};
use crate::{core::Core, warm};
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// A store with changes is checkpointed at least this often.
const INTERVAL: Duration = Duration::from_secs(300);
/// A checkpoint takes this time at most.
const LONGEST: Duration = Duration::from_secs(60);
/// The body of the thread.
pub(crate) fn work(core: &Core) {
    let checkpoints = &core.checkpoints;
    let Some(log) = &core.log else { return };
    let mut last = (0u64, Instant::now());
    // Limit of the log by the room that the device was found to have.
    let mut limit = checkpoints.limit;
    while checkpoints.thread.sleep(LOOK) {
        let bytes = log.bytes_written();
        let grown = bytes - last.0;
        let due = grown >= limit / 2 || core.needs_freed_pages();
        let idle = grown > 0 && last.1.elapsed() > INTERVAL;
        // Read `stuck` before `full`: a log that fills up between the two reads must not be treated
        // as stuck.
        let stuck = log.is_stuck();
        let is_full = log.is_full();
        let full = is_full && core.checkpoint_shortens(log);
        if stuck && !full {
            log.refuse_changes();
        }
        let wanted = core.barrier.room_wanted.swap(false, Ordering::Relaxed);
        let mut room = wanted && core.checkpoint_shortens(log);
        // A checkpoint that cannot shorten a full log would use up its last room.
        let wanted_by_age = (due || idle) && !is_full;
        if (wanted_by_age || full || room) && core.txns.failure().is_none() {
            let pace = Pace { time: last.1.elapsed().min(LONGEST), bytes: limit / 2 };
            limit = match (full, room) {
                (_, true) => (log.bytes_kept() / 4 * 3).clamp(checkpoints.least.min(limit), limit),
                (true, false) => log.bytes_kept().min(limit),
                _ => limit.saturating_add(limit / 4).min(checkpoints.limit),
            };
            last = (bytes, Instant::now());
            let outcome = core.checkpoint((!full && !room).then_some(pace), 0);
            if outcome.is_ok() && !full && !room {
                // The next checkpoint is more urgent than a hint.
                let is_urgent = || {
                    let wanted = core.barrier.room_wanted.load(Ordering::Relaxed);
                    wanted || log.is_full() || log.bytes_written() - bytes >= limit / 2
                };
                warm::save_meanwhile(core, &|| checkpoints.thread.is_stopping() || is_urgent());
            }
            if let Err(error) = outcome {
                room = false;
                if checkpoints.thread.is_stopping() {
                    return;
                }
                tracing::error!(%error, "a checkpoint failed; the log is kept");
                // Try again soon, but not in a loop.
                last.0 = bytes.saturating_sub(limit / 2);
                if !checkpoints.thread.sleep(Duration::from_secs(1)) {
                    return;
                }
            }
        }
        if wanted {
            checkpoints.give_room_back(log, room);
        }
        core.pool.allocator().settle(log.durable_epoch());
    }
}
