//! Instructions of worker threads, by the performance counters of the processor, where the system
//! allows it. Virtual machines often have no such counters.

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter};

/// A count of the instructions in user mode of the calling thread and of all threads that it starts
/// after the count was made.
pub struct Instructions(Option<Counter>);

impl Instructions {
    /// A count that has not begun.
    pub fn new() -> Self {
        Self::of(Hardware::INSTRUCTIONS)
    }

    fn of(event: impl Event) -> Self {
        let mut builder = Builder::new(event);
        // Children count into the event of their parent.
        let counter = builder.observe_self().any_cpu().inherit(true).build();
        // Without permission or hardware there is no count.
        Self(counter.ok())
    }

    /// Begins to count.
    pub fn begin(&mut self) {
        if self.0.as_mut().is_some_and(|counter| counter.enable().is_err()) {
            self.0 = None;
        }
    }

    /// The count so far; `None` if the system does not count.
    pub fn count(&mut self) -> Option<u64> {
        self.0.as_mut()?.read().ok()
    }
}

impl Default for Instructions {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event::events::Software;
    use std::time::{Duration, Instant};

    /// Runs a thread for some processor time, which the event counts in nanoseconds.
    fn work() {
        let thread = std::thread::spawn(|| {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(30) {
                std::hint::black_box(began);
            }
        });
        thread.join().unwrap();
    }

    #[test]
    fn only_threads_that_start_later_count_and_only_after_the_begin() {
        let mut count = Instructions::of(Software::TASK_CLOCK);
        work();
        // The kernel may forbid all events.
        let Some(before) = count.count() else { return };
        assert_eq!(before, 0);
        count.begin();
        work();
        let counted = count.count().unwrap();
        assert!(counted > 100_000, "{counted} ns of the thread were counted");
    }
}
