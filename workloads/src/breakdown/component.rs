//! The components of the breakdown, and the table that maps source files to them.
//!
//! Each file of the engine has one subject, so a file belongs to one component. A few functions
//! with another subject than their file have a line of their own.
//!
//! *Helpers* serve any component: access to bytes, atomics, guards of the operating system. Time in
//! a helper belongs to the function that called it. If no caller is found, the second component of
//! the line has it.

use serde::Serialize;

/// A row of the breakdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// Sessions, transactions, snapshots, conflict checks, rollbacks.
    Transactions,
    /// Versions of records.
    Versions,
    /// From the root to a leaf, and along leaves.
    Descent,
    /// Search in a node.
    KeySearch,
    /// Reading and changing records in a leaf, and large values.
    Records,
    /// Splits, merges, bulk loads, drops.
    StructureChanges,
    /// Latches of frames, and short locks.
    Latching,
    /// Reading pages.
    PageFaults,
    /// Recording accesses for replacement.
    Tracking,
    /// Finding and evicting pages.
    Victims,
    /// Writing pages.
    WriteBack,
    /// Making swips hot and cold.
    Swizzling,
    /// Look-ups from page id to frame, without swizzling.
    PageTable,
    /// Free frames and free page ids.
    FreeList,
    /// Log records, and copying them into buffers.
    LogAppend,
    /// Writing the log to the device.
    Flush,
    /// Waiting for a durable commit.
    CommitWait,
    /// Checkpoints, clean-up, catalog.
    Maintenance,
    /// The workload and its driver.
    Benchmark,
    /// No function of the table was found.
    Unattributed,
}

use Component::*;

impl Component {
    /// All of them, in the order of the table.
    pub const ALL: [Component; 20] = [
        Transactions,
        Versions,
        Descent,
        KeySearch,
        Records,
        StructureChanges,
        Latching,
        PageFaults,
        Tracking,
        Victims,
        WriteBack,
        Swizzling,
        PageTable,
        FreeList,
        LogAppend,
        Flush,
        CommitWait,
        Maintenance,
        Benchmark,
        Unattributed,
    ];

    /// Its name in the table.
    pub fn title(self) -> &'static str {
        match self {
            Transactions => "transactions and conflict checks",
            Versions => "versions",
            Descent => "B-tree descent",
            KeySearch => "key search",
            Records => "records in leaves",
            StructureChanges => "structure changes",
            Latching => "latching",
            PageFaults => "page faults",
            Tracking => "tracking of accesses",
            Victims => "selection of victims",
            WriteBack => "write-back",
            Swizzling => "(un)swizzling",
            PageTable => "page table",
            FreeList => "free list",
            LogAppend => "log append",
            Flush => "flush",
            CommitWait => "commit wait",
            Maintenance => "checkpoints and clean-up",
            Benchmark => "benchmark code",
            Unattributed => "unattributed",
        }
    }
}

/// The owner of the time in a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Time here belongs to the component.
    Is(Component),
    /// Time here belongs to the caller; if none is found, to the component.
    Helper(Component),
}
use Owner::{Helper, Is};

/// Functions with another subject than their file: the end of the path, a part of the name, the
/// component.
const FUNCTIONS: &[(&str, &str, Component)] = &[
    ("buffer/src/fault.rs", "swizzle", Swizzling),
    ("buffer/src/writeback.rs", "unswizzle", Swizzling),
    ("buffer/src/guard.rs", "set_swip", Swizzling),
    ("buffer/src/guard.rs", "track", Tracking),
    ("btree/src/owner.rs", "map_swips", Swizzling),
    ("btree/src/owner.rs", "find_", Victims),
    ("btree/src/owner.rs", "check", PageFaults),
    ("buffer/src/replacement/", "on_", Tracking),
    ("buffer/src/replacement/", "record", Tracking),
];

/// Source files: the begin of the path, and the owner. The first line that matches counts.
const FILES: &[(&str, Owner)] = &[
    ("buffer/src/latch.rs", Is(Latching)),
    ("buffer/src/guard.rs", Is(Latching)),
    ("buffer/src/brief.rs", Is(Latching)),
    ("buffer/src/swip.rs", Is(Swizzling)),
    ("buffer/src/page_table.rs", Is(PageTable)),
    ("buffer/src/locate.rs", Is(PageTable)),
    ("buffer/src/fault.rs", Is(PageFaults)),
    ("buffer/src/resolve.rs", Is(PageFaults)),
    ("buffer/src/in_flight.rs", Is(PageFaults)),
    ("buffer/src/prefetch", Is(PageFaults)),
    ("buffer/src/evict", Is(Victims)),
    ("buffer/src/replacement/", Is(Victims)),
    ("buffer/src/epoch_clock.rs", Is(Tracking)),
    ("buffer/src/write", Is(WriteBack)),
    ("buffer/src/ace", Is(WriteBack)),
    ("buffer/src/merge_gate.rs", Is(WriteBack)),
    ("buffer/src/quiet.rs", Is(WriteBack)),
    ("buffer/src/free_frames.rs", Is(FreeList)),
    ("buffer/src/allocate.rs", Is(FreeList)),
    ("buffer/src/page_map.rs", Is(FreeList)),
    ("buffer/src/logged_map.rs", Is(FreeList)),
    ("buffer/src/reserves.rs", Is(FreeList)),
    ("buffer/src/page_life.rs", Is(FreeList)),
    ("buffer/src/renumber.rs", Is(StructureChanges)),
    ("buffer/src/trace.rs", Is(Maintenance)),
    ("buffer/src/io/log", Is(Flush)),
    ("buffer/src/io/segment", Is(Flush)),
    ("buffer/src/io/sim_", Is(Flush)),
    ("buffer/src/io/", Helper(PageFaults)),
    ("buffer/src/worker.rs", Helper(FreeList)),
    ("buffer/src/memory.rs", Helper(PageFaults)),
    ("buffer/src/", Helper(Maintenance)),
    ("btree/src/node/search.rs", Is(KeySearch)),
    ("btree/src/node/edit.rs", Is(Records)),
    ("btree/src/node/check.rs", Is(PageFaults)),
    ("btree/src/node/build.rs", Is(StructureChanges)),
    ("btree/src/node/split.rs", Is(StructureChanges)),
    ("btree/src/node/merge.rs", Is(StructureChanges)),
    ("btree/src/node/bulk.rs", Is(StructureChanges)),
    ("btree/src/node/", Helper(Records)),
    ("btree/src/descend.rs", Is(Descent)),
    ("btree/src/lookup.rs", Is(Descent)),
    ("btree/src/scan.rs", Is(Descent)),
    ("btree/src/step.rs", Is(Descent)),
    ("btree/src/run.rs", Is(Descent)),
    ("btree/src/tree.rs", Is(Descent)),
    ("btree/src/owner.rs", Is(Descent)),
    ("btree/src/read_ahead.rs", Is(PageFaults)),
    ("btree/src/hint.rs", Is(Versions)),
    ("btree/src/view.rs", Is(Versions)),
    ("btree/src/ghost.rs", Is(Versions)),
    ("btree/src/split.rs", Is(StructureChanges)),
    ("btree/src/merge.rs", Is(StructureChanges)),
    ("btree/src/x_merge.rs", Is(StructureChanges)),
    ("btree/src/contention.rs", Is(StructureChanges)),
    ("btree/src/bulk.rs", Is(StructureChanges)),
    ("btree/src/drop.rs", Is(StructureChanges)),
    ("btree/src/renumber.rs", Is(StructureChanges)),
    ("btree/src/write.rs", Is(Records)),
    ("btree/src/modify.rs", Is(Records)),
    ("btree/src/remove.rs", Is(Records)),
    ("btree/src/leaf_edit.rs", Is(Records)),
    ("btree/src/difference.rs", Is(Records)),
    ("btree/src/large_value.rs", Is(Records)),
    ("btree/src/record.rs", Is(LogAppend)),
    ("btree/src/journal.rs", Is(LogAppend)),
    ("btree/src/author.rs", Is(Transactions)),
    ("btree/src/undo.rs", Is(Transactions)),
    ("btree/src/restore.rs", Is(Transactions)),
    ("btree/src/trace.rs", Is(Maintenance)),
    ("btree/src/verify.rs", Is(Maintenance)),
    ("btree/src/", Helper(Descent)),
    ("wal/src/waits.rs", Is(CommitWait)),
    ("wal/src/requests.rs", Is(CommitWait)),
    ("wal/src/append.rs", Is(LogAppend)),
    ("wal/src/record.rs", Is(LogAppend)),
    ("wal/src/slot", Is(LogAppend)),
    ("wal/src/gate.rs", Is(LogAppend)),
    ("wal/src/gsn.rs", Is(LogAppend)),
    ("wal/src/position.rs", Is(LogAppend)),
    ("wal/src/epochs.rs", Is(Flush)),
    ("wal/src/flusher.rs", Is(Flush)),
    ("wal/src/pacing.rs", Is(Flush)),
    ("wal/src/block.rs", Is(Flush)),
    ("wal/src/room.rs", Is(Flush)),
    ("wal/src/segment", Is(Flush)),
    ("wal/src/read", Is(Maintenance)),
    ("wal/src/", Helper(Flush)),
    ("engine/src/mvcc/clock.rs", Is(Transactions)),
    ("engine/src/mvcc/", Is(Versions)),
    ("engine/src/txn/", Is(Transactions)),
    ("engine/src/op/", Is(Transactions)),
    ("engine/src/session", Is(Transactions)),
    ("engine/src/transaction.rs", Is(Transactions)),
    ("engine/src/async_", Is(Transactions)),
    ("engine/src/range.rs", Is(Transactions)),
    ("engine/src/held.rs", Is(Transactions)),
    ("engine/src/liveness.rs", Is(Transactions)),
    ("engine/src/handle.rs", Is(Transactions)),
    ("engine/src/internal.rs", Is(Transactions)),
    ("engine/src/runtime.rs", Is(Transactions)),
    ("engine/src/barrier.rs", Is(Flush)),
    ("engine/src/epochs.rs", Is(PageFaults)),
    ("engine/src/catalog/", Is(Maintenance)),
    ("engine/src/checkpoint/", Is(Maintenance)),
    ("engine/src/janitor/", Is(Maintenance)),
    ("engine/src/keeper/", Is(Maintenance)),
    ("engine/src/recover/", Is(Maintenance)),
    ("engine/src/store/", Is(Maintenance)),
    ("engine/src/", Helper(Maintenance)),
    ("workloads/src/", Is(Benchmark)),
];

/// The path of a source file from the top of the repository, if it is one of ours.
fn in_repository(path: &str) -> Option<&str> {
    let crates = ["buffer/src/", "btree/src/", "wal/src/", "engine/src/", "workloads/src/"];
    // A dependency may have a folder of such a name.
    if path.contains("/registry/") || path.contains("/rustc/") {
        return None;
    }
    let starts = crates.iter().filter_map(|start| {
        let at = path.rfind(start)?;
        (at == 0 || path[..at].ends_with('/')).then_some(&path[at..])
    });
    starts.min_by_key(|found| found.len())
}

/// The owner of time in `function` of the source file `path`; `None` if the table does not have the
/// file, which is one of a dependency or of the standard library.
pub fn owner(path: &str, function: &str) -> Option<Owner> {
    let path = in_repository(path)?;
    // The last part of the name, without a hash and without the braces of a closure.
    let parts = function.split("::").filter(|part| !part.starts_with('{'));
    let name = parts.last().unwrap_or_default();
    let special = FUNCTIONS
        .iter()
        .find(|(file, part, _)| path.starts_with(file) && name.trim_matches('<').starts_with(part));
    if let Some((.., component)) = special {
        return Some(Is(*component));
    }
    FILES.iter().find(|(start, _)| path.starts_with(start)).map(|(_, owner)| *owner)
}

/// The component that most of the work of a thread of the engine belongs to, by the name of the
/// thread. For a thread that has run too briefly to be sampled.
pub fn of_thread(name: &str) -> Component {
    const THREADS: &[(&str, Component)] = &[
        ("wattle-evict", Victims),
        ("wattle-write", WriteBack),
        ("wattle-log", Flush),
        ("wattle-flush", Flush),
        ("wattle-io", PageFaults),
        ("wattle-watch", PageFaults),
        ("wattle-frames", PageFaults),
        ("wattle", Maintenance),
    ];
    THREADS.iter().find(|(start, _)| name.starts_with(start)).map_or(Benchmark, |found| found.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_file_or_a_function_has_its_component() {
        let is = |path, function| owner(path, function).unwrap();
        assert_eq!(is("btree/src/node/search.rs", "search"), Is(KeySearch));
        assert_eq!(is("/any/place/wal/src/waits.rs", "wattle_wal::waits::wait"), Is(CommitWait));
        assert_eq!(is("buffer/src/fault.rs", "wattle_buffer::Pool::swizzle"), Is(Swizzling));
        assert_eq!(is("buffer/src/fault.rs", "wattle_buffer::Pool::fault"), Is(PageFaults));
        let name = "wattle_buffer::replacement::watt::Watt::on_access::{{closure}}";
        assert_eq!(is("buffer/src/replacement/watt.rs", name), Is(Tracking));
        assert_eq!(is("buffer/src/racy.rs", "load"), Helper(Maintenance));
        assert_eq!(owner("/rustc/0123/library/core/src/ptr.rs", "read"), None);
        assert_eq!(owner("/home/me/registry/src/x/buffer/src/latch.rs", "read"), None);
    }

    /// A source file that is new needs a line, unless it is a helper of its crate.
    #[test]
    fn every_source_file_has_an_owner_and_every_line_has_a_file() {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut files = Vec::new();
        for name in ["buffer", "btree", "wal", "engine", "workloads"] {
            list(&top.join(name).join("src"), &mut files);
        }
        let files: Vec<_> =
            files.iter().map(|path| path.strip_prefix(top).unwrap().to_str().unwrap()).collect();
        assert!(files.len() > 200, "{} files", files.len());
        for file in &files {
            assert!(owner(file, "").is_some(), "no line of the table has {file}");
        }
        // These are files of options that a later version may have.
        let later = ["buffer/src/prefetch", "buffer/src/ace"];
        for (start, _) in FILES.iter().filter(|(start, _)| !later.contains(start)) {
            assert!(files.iter().any(|file| file.starts_with(start)), "no file is {start}");
        }
    }

    fn list(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                list(&path, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
}
