//! The machine of a run, and the resources that the process used.

use std::fs;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

/// The machine, for reports. A value that the system does not provide is empty or 0.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    /// Model name of the processor.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Main memory.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel = rustix::system::uname();
        Self {
            cpu: colon_value(&cpu_info, "model name").unwrap_or_default().to_owned(),
            cores: cores(),
            memory_bytes: total_memory(),
            kernel: format!(
                "{} {}",
                kernel.sysname().to_string_lossy(),
                kernel.release().to_string_lossy()
            ),
        }
    }
}

/// Cores that this process may use; 1 if that is unknown.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The cores that the calling thread may use, in the order in which to bind threads to them. Cores
/// that take most interrupts of devices, by `/proc/interrupts`, come last. Only `--pin` calls it,
/// once for all threads, because the order may change with time.
///
/// # Errors
/// Those of the system call.
pub fn cores_to_pin() -> std::io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    let allowed = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
    let interrupts = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    Ok(quiet_first(allowed, &interrupts))
}

/// Binds the calling thread, number `number` of several, to one of `cores`. More threads than cores
/// share them.
///
/// # Errors
/// Those of the system call.
pub fn pin_thread(cores: &[usize], number: usize) -> std::io::Result<()> {
    let mut only = CpuSet::new();
    only.set(cores.get(number % cores.len().max(1)).copied().unwrap_or(0));
    Ok(sched_setaffinity(None, &only)?)
}

/// Sorts cores: those that take more than 1.5 times the mean number of interrupts of devices, by
/// the text of `/proc/interrupts`, come last.
fn quiet_first(mut cores: Vec<usize>, interrupts: &str) -> Vec<usize> {
    let mut lines = interrupts.lines();
    let columns: Vec<usize> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|name| name.strip_prefix("CPU")?.parse().ok())
        .collect();
    let mut taken = vec![0u64; columns.len()];
    for line in lines {
        // Interrupts of the processors themselves have names instead of numbers.
        let Some((_, counts)) =
            line.split_once(':').filter(|(number, _)| number.trim().parse::<u32>().is_ok())
        else {
            continue;
        };
        for (sum, count) in taken.iter_mut().zip(counts.split_whitespace()) {
            *sum += count.parse::<u64>().unwrap_or(0);
        }
    }
    let all: u64 = taken.iter().sum();
    let is_busy = |core: &usize| {
        let sum = columns.iter().position(|column| column == core).map_or(0, |at| taken[at]);
        2 * sum * taken.len() as u64 > 3 * all
    };
    cores.sort_by_key(is_busy);
    cores
}

/// Processor time of the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTimes {
    /// In user mode.
    pub user_seconds: f64,
    /// In the kernel.
    pub system_seconds: f64,
}

impl CpuTimes {
    /// Processor time of this process since it began; zeros if that is unknown.
    pub fn of_process() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let ticks = rustix::param::clock_ticks_per_second();
        Self::parse(&stat, ticks).unwrap_or_default()
    }

    /// The time used after `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user_seconds: self.user_seconds - earlier.user_seconds,
            system_seconds: self.system_seconds - earlier.system_seconds,
        }
    }

    /// Fields 14 and 15 of `/proc/self/stat`. The second field is the program's name in
    /// parentheses and may contain blanks, so counting starts after it.
    fn parse(stat: &str, ticks_per_second: u64) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let mut times = fields.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
        let mut next = || Some(times.next()?.ok()? as f64 / ticks_per_second as f64);
        Some(Self { user_seconds: next()?, system_seconds: next()? })
    }
}

/// Memory of the machine; 0 if that is unknown.
fn total_memory() -> u64 {
    kib_value(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal")
}

/// Largest resident size of this process so far; 0 if that is unknown.
pub fn peak_rss_bytes() -> u64 {
    kib_value(&fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmHWM")
}

/// Kind and device of the file system of `path`, such as `ext4 on /dev/vda`; empty if that is
/// unknown. A result on a file system in memory says nothing about a device, so reports show it.
pub fn file_system(path: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    fs::canonicalize(path).ok().and_then(|path| mount_of(&mounts, &path)).unwrap_or_default()
}

fn mount_of(mounts: &str, path: &Path) -> Option<String> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            Some((fields.next()?, fields.next()?, fields.next()?))
        })
        .filter(|(_, point, _)| path.starts_with(point.replace("\\040", " ")))
        // The last of equally long mount points hides the others.
        .max_by_key(|(_, point, _)| point.len())
        .map(|(device, _, kind)| format!("{kind} on {device}"))
}

fn colon_value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn kib_value(text: &str, name: &str) -> u64 {
    let value = colon_value(text, name).and_then(|value| value.strip_suffix("kB"));
    value.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Bytes that this user may still write to the file system at `path`, which need not exist yet.
///
/// # Errors
/// Those of the system call.
pub fn free_bytes(path: &Path) -> std::io::Result<u64> {
    let there =
        path.ancestors().find(|path| path.exists()).filter(|path| !path.as_os_str().is_empty());
    let sizes = rustix::fs::statvfs(there.unwrap_or(Path::new(".")))?;
    Ok(sizes.f_bavail.saturating_mul(sizes.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_times_are_found_behind_a_strange_program_name() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 9 9";
        let times = CpuTimes::parse(stat, 100).unwrap();
        assert_eq!(times, CpuTimes { user_seconds: 2.5, system_seconds: 0.5 });
        assert_eq!(CpuTimes::parse("", 100), None);
    }

    #[test]
    fn a_pinned_thread_has_one_core_and_threads_take_turns() {
        let all = cores_to_pin().unwrap();
        assert_eq!(all.len(), sched_getaffinity(None).unwrap().count() as usize);
        let core_of = |number| {
            let all = all.clone();
            let thread = std::thread::spawn(move || {
                pin_thread(&all, number).unwrap();
                let only = sched_getaffinity(None).unwrap();
                assert_eq!(only.count(), 1);
                (0..CpuSet::MAX_CPU).find(|&core| only.is_set(core))
            });
            thread.join().unwrap()
        };
        let cores: std::collections::BTreeSet<_> = (0..all.len()).map(core_of).collect();
        assert_eq!(cores.len(), all.len(), "each has its own");
        assert_eq!(core_of(0), core_of(all.len()));
    }

    #[test]
    fn cores_that_take_the_interrupts_come_last() {
        let text = "           CPU0       CPU1       CPU3
            36:     900000        500       1000 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
            37:          7       2000       1000 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
           NMI:          0    9000000          0   Non-maskable interrupts
           LOC:     376801    9745930          0   Local timer interrupts
           ERR:          0\n";
        assert_eq!(quiet_first(vec![0, 1, 3], text), [1, 3, 0]);
        assert_eq!(quiet_first(vec![0, 2], text), [2, 0], "one core is not in the table");
        let even = "  CPU0 CPU1\n 1: 14 10 timer\n 2: 0 0\n";
        assert_eq!(quiet_first(vec![0, 1], even), [0, 1]);
        for nothing in ["", "\n", "CPU0", "CPU0 CPU1\n 1:\n 2: x y\n"] {
            assert_eq!(quiet_first(vec![1, 0], nothing), [1, 0], "{nothing:?}");
        }
    }

    #[test]
    fn this_process_has_used_memory() {
        assert!(peak_rss_bytes() > 1 << 20);
        assert!(wattle::memory_limit().is_none_or(|memory| memory > peak_rss_bytes()));
        assert!(cores() >= 1 && !Machine::this().kernel.trim().is_empty());
    }

    #[test]
    fn the_deepest_mount_point_wins() {
        let mounts =
            "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/x\\040y xfs rw 0 0\n";
        let kind = |path: &str| mount_of(mounts, Path::new(path)).unwrap();
        assert_eq!(kind("/home"), "ext4 on /dev/a");
        assert_eq!(kind("/tmp/z"), "tmpfs on tmpfs");
        assert_eq!(kind("/tmp/x y/z"), "xfs on /dev/b");
    }
}
