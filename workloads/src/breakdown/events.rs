//! Instructions and cycles of each thread, by the performance counters of the processor, where the
//! system allows it. Virtual machines often have no such counters.
//!
//! Each thread that exists when a profile begins gets its own counters, so foreground and
//! background stay apart. A thread that begins later is not counted. The processor has few
//! counters; if others use them too, the kernel counts by turns, and a count is scaled to the time
//! that its thread ran.

use std::collections::HashMap;
use std::io;

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter};
use rustix::io::Errno;
use serde::Serialize;

use super::threads::Group;

/// Instructions and cycles in user mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EventCounts {
    /// Instructions.
    pub instructions: f64,
    /// Cycles of the processor, at its frequency of the moment.
    pub cycles: f64,
}

/// The running counters of a thread.
struct ThreadCounters {
    group: Group,
    instructions: Counter,
    cycles: Counter,
}

/// The running counters of all threads, or why there are none.
pub struct EventCounters(Result<Vec<ThreadCounters>, String>);

impl std::fmt::Debug for EventCounters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Ok(threads) => write!(f, "EventCounters of {} threads", threads.len()),
            Err(why) => write!(f, "EventCounters: {why}"),
        }
    }
}

impl EventCounters {
    /// Begins to count the threads with these ids and groups.
    pub fn begin(threads: impl IntoIterator<Item = (u32, Group)>) -> EventCounters {
        Self::of(threads, Hardware::INSTRUCTIONS, Hardware::CPU_CYCLES)
    }

    fn of<E: Event + Clone>(
        threads: impl IntoIterator<Item = (u32, Group)>,
        instructions: E,
        cycles: E,
    ) -> EventCounters {
        let mut counters = Vec::new();
        for (thread, group) in threads {
            let begun = count(thread, instructions.clone())
                .and_then(|first| Ok((first, count(thread, cycles.clone())?)));
            match begun {
                Ok((instructions, cycles)) => {
                    counters.push(ThreadCounters { group, instructions, cycles });
                }
                // The thread has ended since it was listed.
                Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                Err(error) => return EventCounters(Err(error.to_string())),
            }
        }
        EventCounters(Ok(counters))
    }

    /// Ends, with the counts of each group.
    ///
    /// # Errors
    /// Why there are none, in the words of the system.
    pub fn end(self) -> Result<HashMap<Group, EventCounts>, String> {
        let mut counts: HashMap<Group, EventCounts> = HashMap::new();
        for mut thread in self.0? {
            let sum = counts.entry(thread.group).or_default();
            sum.instructions += scaled(&mut thread.instructions).map_err(|e| e.to_string())?;
            sum.cycles += scaled(&mut thread.cycles).map_err(|e| e.to_string())?;
        }
        Ok(counts)
    }
}

/// A running count of an event in user mode on a thread.
fn count(thread: u32, event: impl Event) -> io::Result<Counter> {
    let thread = thread.try_into().map_err(io::Error::other)?;
    let mut counter = Builder::new(event).observe_pid(thread).any_cpu().build()?;
    counter.enable()?;
    Ok(counter)
}

/// The count, scaled to the whole time that its thread ran.
fn scaled(counter: &mut Counter) -> io::Result<f64> {
    let read = counter.read_full()?;
    let seconds = |time: Option<std::time::Duration>| time.unwrap_or_default().as_secs_f64();
    let (enabled, running) = (seconds(read.time_enabled()), seconds(read.time_running()));
    let part = if running > 0.0 { (enabled / running).max(1.0) } else { 1.0 };
    Ok(read.count() as f64 * part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event::events::Software;
    use std::sync::mpsc::channel;

    fn own_thread() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get() as u32
    }

    /// Uses at least so much processor time.
    fn work(nanoseconds: i64) {
        let now = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            now.tv_sec * 1_000_000_000 + now.tv_nsec
        };
        let began = now();
        while now() - began < nanoseconds {
            std::hint::black_box(began);
        }
    }

    /// With events that need no hardware: processor time in nanoseconds in place of instructions.
    #[test]
    fn each_group_has_the_counts_of_its_threads() {
        let (told, thread) = channel();
        let (go, wait) = channel();
        let worker = std::thread::spawn(move || {
            told.send(own_thread()).unwrap();
            wait.recv().unwrap();
            work(30_000_000);
        });
        let threads =
            [(thread.recv().unwrap(), Group::Foreground), (own_thread(), Group::Background)];
        let counters = EventCounters::of(threads, Software::TASK_CLOCK, Software::TASK_CLOCK);
        work(1_000_000);
        go.send(()).unwrap();
        worker.join().unwrap();
        // The kernel may forbid all events; then it says so.
        let counts = match counters.end() {
            Ok(counts) => counts,
            Err(why) => return assert!(!why.is_empty()),
        };
        let [foreground, background] =
            [Group::Foreground, Group::Background].map(|group| counts[&group]);
        assert!(foreground.instructions >= 25_000_000.0, "{foreground:?}");
        assert!(foreground.cycles >= 25_000_000.0, "{foreground:?}");
        assert!(background.instructions >= 500_000.0, "{background:?}");
        assert!(background.instructions < foreground.instructions, "{background:?}");
    }

    #[test]
    fn a_thread_that_has_ended_is_left_out() {
        let ended = std::thread::spawn(own_thread).join().unwrap();
        let threads = [(ended, Group::Foreground)];
        let counters = EventCounters::of(threads, Software::TASK_CLOCK, Software::TASK_CLOCK);
        if let Ok(counts) = counters.end() {
            assert!(counts.values().all(|counts| counts.instructions == 0.0), "{counts:?}");
        }
    }
}
