//! What the subcommands need beside a [`Store`]: opening one, looking it over, probing a device.

use std::path::Path;

use serde::Serialize;

use super::store::{Store, StoreResult};

/// An engine, as the subcommands use it.
pub trait Backend {
    /// The store that it opens.
    type Store: Store;

    /// Opens the store at `path`, creating it if absent.
    fn open(path: &Path, options: &StoreOptions) -> StoreResult<Self::Store>;
    /// Checks every page and tree; `progress` gets the pages checked and the pages there are.
    fn verify(store: &Self::Store, progress: &mut dyn FnMut(u64, u64))
    -> StoreResult<VerifyReport>;
    /// Measures the sizes of a store.
    fn stat(store: &Self::Store) -> StoreResult<StoreStat>;
    /// Measures the device under the directory `path`; `progress` gets the points done and planned.
    fn probe(
        path: &Path,
        plan: &ProbePlan,
        progress: &mut dyn FnMut(usize, usize),
    ) -> StoreResult<ProbeReport>;
}

/// Options of a store, as flags give them.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreOptions {
    /// Budget of the buffer pool.
    pub pool_bytes: u64,
    /// Replacement policy with its parameters.
    pub policy: String,
    /// Background evictor threads.
    pub evictors: usize,
    /// Storage back end.
    pub io: IoBackend,
}

/// Storage back ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum IoBackend {
    /// io_uring with direct I/O.
    Uring,
    /// Blocking reads and writes, for where io_uring is refused.
    Threads,
    /// Pages in memory only; nothing is kept.
    Memory,
}

/// What a check of a store found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VerifyReport {
    /// Pages checked.
    pub pages: u64,
    /// Trees checked.
    pub trees: u64,
    /// Records seen.
    pub records: u64,
    /// What is wrong, one sentence each; empty if nothing is.
    pub problems: Vec<String>,
}

/// The sizes of a store.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StoreStat {
    /// Bytes of one page.
    pub page_bytes: u64,
    /// Pages of the data file.
    pub pages: u64,
    /// Of them, pages that hold nothing and will be used again.
    pub free_pages: u64,
    /// The trees.
    pub trees: Vec<TreeStat>,
}

/// The sizes of one tree.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TreeStat {
    /// Its name.
    pub name: String,
    /// Key-value pairs.
    pub records: u64,
    /// Levels; 1 is a single leaf.
    pub depth: u64,
    /// Inner nodes.
    pub inner_pages: u64,
    /// Leaves.
    pub leaf_pages: u64,
    /// Pages of values too large for a leaf.
    pub value_pages: u64,
    /// Share of the leaves' space that is in use, from 0 to 1.
    pub leaf_fill: f64,
}

/// How to probe a device.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbePlan {
    /// Size of the temporary file that is read and written.
    pub file_bytes: u64,
    /// How long each point is measured.
    pub seconds: f64,
    /// Queue depths to measure.
    pub depths: Vec<usize>,
    /// How to do the I/O.
    pub io: IoBackend,
    /// Seed of the page numbers.
    pub seed: u64,
}

/// One measured queue depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProbePoint {
    /// Operations in flight.
    pub depth: usize,
    /// Operations per second.
    pub iops: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
}

/// What a probe measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProbeReport {
    /// Bytes of one read or write.
    pub page_bytes: u64,
    /// Random reads.
    pub reads: Vec<ProbePoint>,
    /// Random writes.
    pub writes: Vec<ProbePoint>,
    /// How much longer a write takes than a read, one at a time.
    pub asymmetry: f64,
    /// Reads that the device serves at once without slowing each other down.
    pub k_r: usize,
    /// Writes that the device serves at once without slowing each other down.
    pub k_w: usize,
}
