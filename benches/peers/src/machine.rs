//! The machine: what it is, what its device's sync takes, and limits of memory.

use crate::store::Result;
use rustix::fs::Advice;
use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    time::Instant,
};

/// Writes of a probe.
const PROBES: usize = 64;

/// Room beside its cache that an engine gets in a limited group.
const BESIDE_CACHE: u64 = 64 << 20;

/// Processor, cores, memory and kernel, without the name of the host.
pub fn description(dir: &Path) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned())).unwrap_or_default()
    };
    let processor = value(&read("/proc/cpuinfo"), "model name");
    let memory = value(&read("/proc/meminfo"), "MemTotal");
    let kib: f64 = memory.trim_end_matches(" kB").parse().unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let release = read("/proc/sys/kernel/osrelease");
    let kernel = release.trim().split('.').take(2).collect::<Vec<_>>().join(".");
    let memory = kib / f64::from(1 << 20);
    let kind = file_system(dir);
    format!("{processor}, {cores} cores, {memory:.1} GiB memory, Linux {kernel}, {kind}")
}

/// Kind of the file system of `dir`.
fn file_system(dir: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let dir = fs::canonicalize(dir).unwrap_or_default();
    let fields = mounts.lines().map(|line| line.split(' ').skip(1));
    let points = fields.filter_map(|mut fields| Some((fields.next()?, fields.next()?)));
    let around = points.filter(|(point, _)| dir.starts_with(point));
    around.max_by_key(|(point, _)| point.len()).map_or_else(String::new, |(_, kind)| kind.into())
}

/// Today as `2026-11-30`.
pub fn date() -> String {
    let seconds = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    // Days to year, month and day: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    let days = (seconds / 86_400) as i64 + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let leap = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * shifted + 2) / 5 + 1, (shifted + 2) % 12 + 1);
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

/// Median time of a 4 KiB write and `fdatasync` in a file in `dir` that has its size, microseconds.
///
/// # Errors
/// Those of the file system.
pub fn sync_us(dir: &Path) -> Result<f64> {
    let path = dir.join("probe");
    let file = File::create(&path)?;
    file.write_all_at(&vec![1; PROBES * 4096], 0)?;
    file.sync_all()?;
    let mut times = Vec::new();
    for place in 0..PROBES {
        let started = Instant::now();
        file.write_all_at(&[place as u8; 4096], place as u64 * 4096)?;
        file.sync_data()?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    fs::remove_file(path)?;
    Ok(crate::median(times))
}

/// Bytes that the files under `path` take on the device.
///
/// # Errors
/// Those of the file system.
pub fn disk_bytes(path: &Path) -> Result<u64> {
    let mut bytes = 0;
    for file in files(path)? {
        bytes += fs::metadata(file)?.blocks() * 512;
    }
    Ok(bytes)
}

/// Takes the files under `path` out of the page cache.
///
/// # Errors
/// Those of the file system.
pub fn drop_from_page_cache(path: &Path) -> Result<()> {
    for file in files(path)? {
        let file = File::open(file)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    Ok(found)
}

/// A control group (version 2) that limits the memory of one process, page cache included. It is
/// made beside the group of the driver, and only if that has no limit, which it would escape.
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// A group for a process with a cache of `cache_bytes`; the reason if there can be none.
    pub fn new(cache_bytes: u64) -> std::result::Result<Self, String> {
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let root = Path::new("/sys/fs/cgroup");
        let own = root.join(own);
        let around = if own == root { root } else { own.parent().unwrap_or(root) };
        let given = fs::read_to_string(around.join("cgroup.subtree_control")).unwrap_or_default();
        if given.split_whitespace().all(|controller| controller != "memory") {
            return Err("no memory controller of version 2 is delegated".into());
        }
        let limit = fs::read_to_string(own.join("memory.max")).unwrap_or("max".into());
        if limit.trim() != "max" {
            return Err("the process is in a limited group".into());
        }
        let group = Self(around.join(format!("wattle-peers-{}", std::process::id())));
        let make = || {
            fs::create_dir(&group.0)?;
            fs::write(group.0.join("memory.max"), (cache_bytes + BESIDE_CACHE).to_string())
        };
        make().map_err(|error| error.to_string())?;
        Ok(group)
    }

    /// Moves a process into the group.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn add(&self, process: u32) -> std::io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), process.to_string())
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // An empty group that stays costs nothing.
        let _ = fs::remove_dir(&self.0);
    }
}
