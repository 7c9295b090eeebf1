//! Processor time and waiting of each thread of this process, from `/proc/self/task`.

use std::collections::HashMap;
use std::fs;

/// Names of the threads that run operations start with this.
pub const WORKER: &str = "worker";

/// The group of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Runs operations of the workload.
    Foreground,
    /// Every other thread: of the engine, and the one that supervises the run.
    Background,
}

impl Group {
    /// The group of a thread of this name.
    pub fn of_thread(name: &str) -> Group {
        match name.starts_with(WORKER) {
            true => Group::Foreground,
            false => Group::Background,
        }
    }
}

/// The times of a thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadTimes {
    /// Its name.
    pub name: String,
    /// Processor time, nanoseconds.
    pub cpu_ns: u64,
    /// Of this, in the kernel, by clock ticks.
    pub kernel_ns: u64,
    /// Time that it was ready to run, but had no processor, nanoseconds.
    pub queued_ns: u64,
}

impl ThreadTimes {
    /// Its group.
    pub fn group(&self) -> Group {
        Group::of_thread(&self.name)
    }

    fn since(&self, earlier: &ThreadTimes) -> ThreadTimes {
        ThreadTimes {
            name: self.name.clone(),
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            kernel_ns: self.kernel_ns.saturating_sub(earlier.kernel_ns),
            queued_ns: self.queued_ns.saturating_sub(earlier.queued_ns),
        }
    }
}

/// The times of all threads, by id.
#[derive(Clone, Debug, Default)]
pub struct AllTimes(HashMap<u32, ThreadTimes>);

impl AllTimes {
    /// The times of the threads that exist now.
    pub fn now() -> AllTimes {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let times = tasks.filter_map(|task| {
            let id = task.file_name().to_str()?.parse().ok()?;
            let read = |file: &str| fs::read_to_string(task.path().join(file)).ok();
            let (cpu_ns, queued_ns) = parse_schedstat(&read("schedstat")?)?;
            let kernel_ns = parse_kernel_ns(&read("stat")?)?;
            let name = read("comm")?.trim_end().to_owned();
            Some((id, ThreadTimes { name, cpu_ns, kernel_ns, queued_ns }))
        });
        AllTimes(times.collect())
    }

    /// The times since `earlier`, also of threads that began later.
    pub fn since(&self, earlier: &AllTimes) -> AllTimes {
        let none = ThreadTimes::default();
        let since = |(id, times): (&u32, &ThreadTimes)| {
            (*id, times.since(earlier.0.get(id).unwrap_or(&none)))
        };
        AllTimes(self.0.iter().map(since).collect())
    }

    /// The times of a thread.
    pub fn get(&self, thread: u32) -> Option<&ThreadTimes> {
        self.0.get(&thread)
    }

    /// All of them, with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &ThreadTimes)> {
        self.0.iter().map(|(id, times)| (*id, times))
    }
}

/// Time on a processor and time in its queue, nanoseconds.
fn parse_schedstat(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Field 15 of `stat`. The second field is the name in parentheses and may contain blanks.
fn parse_kernel_ns(text: &str) -> Option<u64> {
    let (_, fields) = text.rsplit_once(')')?;
    let ticks: u64 = fields.split_ascii_whitespace().nth(12)?.parse().ok()?;
    Some(ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_kernel_are_understood() {
        assert_eq!(parse_schedstat("1234 56 7\n"), Some((1234, 56)));
        let stat = "77 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 33 44 0 0";
        assert_eq!(parse_kernel_ns(stat), Some(44 * 10_000_000));
    }

    #[test]
    fn a_thread_that_works_has_processor_time() {
        let before = AllTimes::now();
        let own = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let ns = |time: rustix::time::Timespec| time.tv_sec * 1_000_000_000 + time.tv_nsec;
        let began = ns(own());
        // However busy the machine is.
        while ns(own()) - began < 50_000_000 {
            std::hint::black_box(began);
        }
        let since = AllTimes::now().since(&before);
        let cpu: u64 = since.iter().map(|(_, times)| times.cpu_ns).sum();
        assert!(cpu > 5_000_000, "{cpu} ns");
    }
}
