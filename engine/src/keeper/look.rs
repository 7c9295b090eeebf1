//! The keeper: one background thread that looks at the snapshots, drops the versions that none of
//! them needs, and holds versions to their limit. It reads no page and waits for no other thread,
//! so neither a slow device nor the janitor delays its next look.
//!
//! One look ([`TxnSystem::tend`]):
//! 1. collect the active transactions, and publish the oldest writer, which lets readers settle
//!    page hints;
//! 2. when that is due, drop versions that were replaced before the oldest snapshot and are visible
//!    ([`TxnSystem::visible`]), as far as the sessions that stored them have handed them over; now
//!    and then all of them (a *sweep*), because a session that does nothing drops nothing;
//! 3. when that is due, add up the memory of versions, and compare it with the limit.
//!
//! **The limit.** Versions in memory and the chunks of replaced large values that a snapshot still
//! needs count together. Above seven eighths of the limit, a sweep drops all versions that no
//! snapshot needs. If more than three quarters are left, the oldest snapshot is cancelled, then the
//! two oldest, then four, until it is less, or until none is left that is older than the newest
//! commit: its owner gets [`wattle_buffer::Error::SnapshotTooOld`] at its next read.
//!
//! **When it is looked at.** The next look follows from how fast the memory grew lately: early
//! enough that the limit is not passed at twice that rate, and 2 to 100 ms from now. A session that
//! could not drop a thousand versions of its own asks for a look at once; if a requested look does
//! not come, because other threads have the processors, the session looks itself. So the memory
//! exceeds the limit at most by the writes of one interval, or by a thousand versions of each
//! session.
//!
//! **Back-pressure.** While the memory is above the limit, auto-committed changes and commits of
//! transactions wait, outside of all latches, before they begin or after they have committed: 50 us
//! to 1 ms by how far above; above twice the limit until that is over, for the stall timeout at
//! most. They see this in the word that they read before every change (`liveness.rs`,
//! `session/admit.rs`). Versions of an open transaction cannot be dropped before it ends, so no
//! change waits for that; instead, transactions become owners of trees, and store no more versions,
//! at a sixteenth of the limit instead of a quarter ([`TxnSystem::large_txn_bytes`]). No thread
//! waits for itself: snapshots are cancelled and not waited for, also those of the waiting thread.

use super::state::{BUSY, HOLD, LARGE_SHARE, Looks};
use crate::{
    limits::limit,
    mvcc::{Active, Stored},
    txn::TxnSystem,
};
use std::{
    sync::atomic::Ordering::{AcqRel, Relaxed},
    time::{Duration, Instant},
};
use wattle_wal::Urgency;

/// Time from one pass over the versions that sessions handed over to the next. A pass takes the
/// shards of the version index away from the processors that use them.
const PASS_EVERY: Duration = Duration::from_millis(20);
/// Least time between sweeps of all versions, and how many times longer it is than a sweep takes.
const SWEEP_EVERY: (Duration, u32) =
    (Duration::from_millis(limit(1000, 20) as u64), limit(50, 2) as u32);
/// Most time from one sum over all shards to the next.
const SUM_EVERY: Duration = Duration::from_millis(100);
/// The next look comes this many times later than a look took that freed nothing.
const AFTER_NOTHING: u32 = 5;
/// How long a session waits for a late look that is under way.
const HELP_WAIT: Duration = Duration::from_millis(5);
/// Versions are dropped, and snapshots cancelled, above the limit less this part of it.
const NEAR: u64 = 8;
/// Snapshots are cancelled until versions take less than the limit less this part of it.
const FAR: u64 = 4;
/// The same while versions take more than the limit.
const LARGE_SHARE_ABOVE: u64 = 16;

/// The work of one look, besides publishing the active transactions.
#[derive(Clone, Copy)]
enum Extent {
    /// The work that is due.
    Due,
    /// All work.
    All,
    /// Compare the memory with the limit.
    Sum,
}

/// The body of the thread.
pub(crate) fn work(system: &TxnSystem) {
    let mut busy = true;
    while system.keeper.wait(busy) {
        let mut looks = system.keeper.looking.lock();
        system.look_around(&mut looks, Extent::Due);
        busy = looks.bytes > 0 || system.versions.is_queued();
    }
}

impl TxnSystem {
    /// Drops all versions that no snapshot needs. Gives the active transactions.
    pub fn tend(&self) -> Active {
        self.look_around(&mut self.keeper.looking.lock(), Extent::All)
    }

    /// Compares the memory with the limit now, unless another look is under way.
    pub fn tend_limit(&self) {
        if let Some(mut looks) = self.keeper.looking.try_lock() {
            self.look_around(&mut looks, Extent::Sum);
        }
    }

    /// The thread is late, because other threads have the processors: the session looks itself, or
    /// waits briefly for a look that is under way.
    #[cold]
    fn help_to_look(&self) {
        if let Some(mut looks) = self.keeper.looking.try_lock_for(HELP_WAIT) {
            self.look_around(&mut looks, Extent::Due);
        }
    }

    /// One look, see the module documentation.
    fn look_around(&self, looks: &mut Looks, extent: Extent) -> Active {
        let begun = Instant::now();
        let asked = self.keeper.is_asked.load(Relaxed);
        let (pass, sweep, sum) = match extent {
            Extent::Due => {
                let pass = begun >= looks.next_pass;
                let sum = (begun >= looks.next_sum || asked) && begun >= looks.not_before;
                (pass, pass && begun >= looks.next_sweep, sum)
            }
            Extent::All => (true, true, true),
            Extent::Sum => (false, false, true),
        };
        let (active, visible) = self.look_at_snapshots();
        if pass {
            self.versions.collect(&active, visible, sweep);
            looks.next_pass = begun + PASS_EVERY;
        } else {
            self.versions.publish(&active, visible);
        }
        if sweep {
            let (least, times) = SWEEP_EVERY;
            looks.next_sweep = begun + least.max(times * begun.elapsed());
        }
        if sum {
            self.keeper.is_asked.store(false, Relaxed);
            self.note_growth(looks, begun);
            if self.needs_more_than(NEAR, looks.bytes, visible) {
                let found = looks.bytes;
                looks.bytes = self.shed(&active, visible, sweep);
                if looks.bytes > found - found / NEAR {
                    looks.not_before = Instant::now() + AFTER_NOTHING * begun.elapsed();
                }
            } else {
                self.choose_throttle(looks.bytes, false);
            }
            looks.next_sum = Instant::now() + self.until_next_sum(looks);
        }
        active
    }

    /// The active transactions, and the time up to which commits are visible.
    fn look_at_snapshots(&self) -> (Active, u64) {
        // Before the look at the snapshots: a snapshot that is opened at a visible commit after
        // this look is at this one or a later one.
        let visible = self.visible();
        let mut active = self.snapshots.collect(&self.clock, &self.ids);
        active.as_of = active.as_of.min(visible);
        // It never falls: conclusions of other threads from an earlier value stay true.
        let oldest = active.oldest_writer_since;
        self.keeper.oldest_writer.fetch_max(oldest, AcqRel);
        (active, visible)
    }

    /// Adds up the memory of versions.
    fn note_growth(&self, looks: &mut Looks, now: Instant) {
        let bytes = self.versions.bytes();
        let seconds = now.duration_since(looks.summed).as_secs_f64().max(1e-3);
        let growth = (bytes.saturating_sub(looks.bytes) as f64 / seconds) as u64;
        // A burst is remembered for a while.
        looks.growth = growth.max(looks.growth / 2);
        (looks.summed, looks.bytes) = (now, bytes);
    }

    /// Time in which twice the recent growth does not exceed the limit.
    fn until_next_sum(&self, looks: &Looks) -> Duration {
        let room = self.version_bytes.saturating_sub(self.version_bytes / NEAR + looks.bytes);
        let seconds = room as f64 / (2 * looks.growth.max(1)) as f64;
        Duration::from_secs_f64(seconds.min(SUM_EVERY.as_secs_f64())).max(BUSY)
    }

    /// Whether versions of so many bytes, and replaced values that snapshots hold, take more than
    /// the limit without the given part of it. Values that wait for the log to be `visible` are not
    /// held by snapshots.
    fn needs_more_than(&self, part: u64, bytes: u64, visible: u64) -> bool {
        let limit = self.version_bytes - self.version_bytes / part;
        bytes + self.garbage.replaced_between(self.versions.horizon(), visible) > limit
    }

    /// Drops versions, and cancels snapshots, until versions take clearly less than the limit.
    /// `swept`: a sweep has just run. Gives the bytes that versions take then.
    fn shed(&self, active: &Active, visible: u64, swept: bool) -> u64 {
        let limit = self.version_bytes;
        let mut bytes = self.versions.bytes();
        self.choose_throttle(bytes, true);
        if !swept {
            // Idle sessions may keep versions that no snapshot needs.
            self.versions.collect(active, visible, true);
            bytes = self.versions.bytes();
        }
        let (mut active, mut visible, mut cancel) = (active.clone(), visible, 1);
        while self.needs_more_than(FAR, bytes, visible) {
            let old = active.list.partition_point(|time| *time < active.as_of);
            let Some(newest) = active.list[..old].get(cancel.min(old).saturating_sub(1)) else {
                break;
            };
            let cancelled = self.snapshots.cancel_below(newest + 1);
            // They may have ended meanwhile.
            if cancelled > 0 {
                tracing::warn!(bytes, limit, cancelled, "old snapshots cancelled");
            }
            (active, visible) = self.look_at_snapshots();
            self.versions.collect(&active, visible, true);
            bytes = self.versions.bytes();
            cancel *= 2;
        }
        // The rest belongs to open transactions, or waits for the log.
        let waits_for_log = visible < self.clock.now();
        if bytes > limit
            && waits_for_log
            && let Some(log) = &self.log
        {
            log.request(log.epoch(), Urgency::Now);
        }
        self.choose_throttle(bytes, waits_for_log);
        bytes
    }

    /// Sets how long changes wait, by the memory of versions. `helps`: the memory falls while no
    /// change runs.
    fn choose_throttle(&self, bytes: u64, helps: bool) {
        let limit = self.version_bytes;
        self.liveness.set_throttle(match bytes {
            _ if bytes <= limit => 0,
            _ if bytes <= limit + limit / 4 => 1,
            _ if bytes <= limit + limit / 2 => 2,
            _ if bytes <= 2 * limit || !helps => HOLD - 1,
            _ => HOLD,
        });
        let share = if bytes > limit { LARGE_SHARE_ABOVE } else { LARGE_SHARE };
        if self.large_txn_bytes() != limit / share {
            self.keeper.large_txn_bytes.store(limit / share, Relaxed);
        }
    }

    /// Drops versions of a session that no snapshot needs.
    #[inline]
    pub fn drop_stored(&self, stored: &mut Stored) {
        let Some(oldest) = stored.oldest() else { return };
        let may_drop =
            self.versions.horizon() >= oldest || (stored.is_worth_a_look() && self.look(oldest));
        if may_drop && stored.drop_old(&self.versions) && !self.keeper.ask() {
            self.help_to_look();
        }
    }

    /// Raises the horizon, unless the commit at `oldest` is not visible yet, or another thread is
    /// collecting snapshots.
    fn look(&self, oldest: u64) -> bool {
        // In this order, as in a look of the keeper.
        let visible = self.visible();
        if visible < oldest {
            return false;
        }
        let snapshot = self.snapshots.try_oldest(&self.clock);
        snapshot
            .inspect(|snapshot| _ = self.versions.raise_horizon(visible.min(*snapshot)))
            .is_some()
    }
}
