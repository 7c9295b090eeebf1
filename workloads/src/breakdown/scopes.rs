//! The second method: scoped counters of a build with the feature `scopes`
//! ([`wattle_buffer::scope`]). They tell what threads wait for, which samples of processor time
//! cannot.

use std::collections::HashMap;

use serde::Serialize;
use wattle_buffer::{ScopePart, ScopeTimes, scope_times};

use super::threads::Group;

/// The counters of all threads at a time.
#[derive(Clone, Debug, Default)]
pub struct AllScopes(HashMap<u64, ScopeTimes>);

/// A row: how long the threads of each group were in a part, waits included.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScopeRow {
    /// The part.
    pub part: &'static str,
    /// Seconds of all foreground threads together.
    pub foreground_seconds: f64,
    /// Share of the time of foreground threads, per cent.
    pub foreground_percent: f64,
    /// Seconds of all background threads together.
    pub background_seconds: f64,
    /// Share of the time of background threads, per cent.
    pub background_percent: f64,
    /// Times that a thread entered the part.
    pub entries: u64,
}

impl AllScopes {
    /// The counters now: none in a build without them.
    pub fn now() -> AllScopes {
        AllScopes(scope_times().into_iter().map(|times| (times.number, times)).collect())
    }

    /// The rows of the time since `earlier`. Parts that no thread was in have no row.
    pub fn since(&self, earlier: &AllScopes) -> Vec<ScopeRow> {
        // Nanoseconds by group, and entries.
        let mut sums = [([0u64; 2], 0u64); ScopePart::COUNT];
        for (number, times) in &self.0 {
            let before = earlier.0.get(number);
            let group = Group::of_thread(&times.thread) as usize;
            for (at, (nanoseconds, entries)) in sums.iter_mut().enumerate() {
                let (spent, entered) =
                    before.map_or((0, 0), |before| (before.nanoseconds[at], before.entries[at]));
                nanoseconds[group] += times.nanoseconds[at].saturating_sub(spent);
                *entries += times.entries[at].saturating_sub(entered);
            }
        }
        let totals = [0, 1].map(|group| sums.iter().map(|(time, _)| time[group]).sum::<u64>());
        let share = |time: u64, all: u64| match all {
            0 => 0.0,
            _ => time as f64 * 100.0 / all as f64,
        };
        let rows = ScopePart::ALL.into_iter().zip(sums).map(|(part, (time, entries))| ScopeRow {
            part: part.title(),
            foreground_seconds: time[0] as f64 / 1e9,
            foreground_percent: share(time[0], totals[0]),
            background_seconds: time[1] as f64 / 1e9,
            background_percent: share(time[1], totals[1]),
            entries,
        });
        rows.filter(|row| row.foreground_seconds + row.background_seconds > 0.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(number: u64, thread: &str, at: &[(ScopePart, u64, u64)]) -> (u64, ScopeTimes) {
        let mut times = ScopeTimes {
            thread: thread.to_owned(),
            number,
            nanoseconds: [0; ScopePart::COUNT],
            entries: [0; ScopePart::COUNT],
        };
        for (part, nanoseconds, entries) in at {
            times.nanoseconds[*part as usize] = *nanoseconds;
            times.entries[*part as usize] = *entries;
        }
        (number, times)
    }

    #[test]
    fn rows_are_differences_by_group_and_add_up() {
        let before = [times(1, "worker-0", &[(ScopePart::Descent, 500, 2)])];
        let after = [
            times(
                1,
                "worker-0",
                &[(ScopePart::Descent, 3_000_000_500, 7), (ScopePart::PageWait, 1 << 30, 1)],
            ),
            times(2, "wattle-writer", &[(ScopePart::Idle, 2_000_000_000, 4)]),
        ];
        let rows = AllScopes(after.into()).since(&AllScopes(before.into()));
        let names: Vec<_> = rows.iter().map(|row| row.part).collect();
        assert_eq!(names, ["B-tree descent", "waiting for pages", "idle"]);
        assert_eq!((rows[0].foreground_seconds, rows[0].entries), (3.0, 5));
        assert_eq!((rows[2].background_seconds, rows[2].background_percent), (2.0, 100.0));
        let sum: f64 = rows.iter().map(|row| row.foreground_percent).sum();
        assert!((sum - 100.0).abs() < 1e-9);
    }
}
