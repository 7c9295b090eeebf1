//! How much memory this process may use, for the default size of the pool.

use std::{fs, path::Path, sync::OnceLock};

/// Memory that this process may use, bytes: that of the machine, or the limit of its control group
/// (version 1 or 2) or of a group around that, if one is lower. `None` if all are unknown.
///
/// ```
/// assert!(wattle::memory_limit().is_none_or(|bytes| bytes > 1 << 20));
/// ```
pub fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = group_limit(&groups, Path::new("/sys/fs/cgroup"));
    [total_memory(), limit].into_iter().flatten().min()
}

/// [`memory_limit`] when it was first asked for: options are made often, and the answer takes a few
/// files to read.
pub(crate) fn first_memory_limit() -> Option<u64> {
    static LIMIT: OnceLock<Option<u64>> = OnceLock::new();
    *LIMIT.get_or_init(memory_limit)
}

/// Memory of the machine.
fn total_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The lowest memory limit of `groups` and of their ancestors. `groups` has lines such as
/// `4:memory:/a/b` (version 1) and `0::/a/b` (version 2); control groups are mounted at `root`.
fn group_limit(groups: &str, root: &Path) -> Option<u64> {
    let limit = |line: &str| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let (folder, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ => (root.join("memory"), "memory.limit_in_bytes"),
        };
        if !controllers.is_empty() && controllers.split(',').all(|one| one != "memory") {
            return None;
        }
        // In a container the mount may be the group itself, under another name. In version 2 a
        // group without a limit has `max`.
        let around = Path::new(group.trim_start_matches('/')).ancestors();
        let limit = |group| fs::read_to_string(folder.join(group).join(file)).ok();
        around.filter_map(|group| limit(group)?.trim().parse().ok()).min()
    };
    groups.lines().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_control_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("a/b/memory.max", "max\n");
        put("a/memory.max", "3000\n");
        put("memory/memory.limit_in_bytes", "2000\n");
        put("memory/x/memory.limit_in_bytes", "9223372036854771712\n");
        for (groups, limit) in [
            ("0::/a/b\n", Some(3000)),
            ("0::/\n", None),
            ("0::/of/the/host\n", None),
            ("5:cpu,memory:/x\n4:pids:/a\n0::/a/b\n", Some(2000)),
            ("4:memory:/of/the/host\n", Some(2000)),
            ("5:cpu:/a\n", None),
            ("", None),
            ("nonsense\n", None),
        ] {
            assert_eq!(group_limit(groups, root.path()), limit, "{groups:?}");
        }
    }
}
