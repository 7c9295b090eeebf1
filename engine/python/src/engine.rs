//! Engines.

use crate::{
    errors::raise,
    input::{size, word},
    shared::{Open, Shared},
    transaction::Transaction,
    tree::Tree,
};
use pyo3::{prelude::*, types::PyDict};
use std::{path::PathBuf, sync::Arc};
use wattle::{Durability, IoKind, Isolation, Options, Reads, TxnOptions};

const DURABILITIES: [(&str, Durability); 3] =
    [("sync", Durability::Sync), ("group", Durability::Group), ("none", Durability::None)];

/// Opens the store in the directory `path`, creating it unless `create` is false. Sizes are
/// integers or texts such as "1GiB".
#[pyfunction]
#[pyo3(signature = (path, *, pool=None, log=None, versions=None, durability="sync",
                    reads="newest", io="uring", read_only=false, create=true))]
#[allow(clippy::too_many_arguments)]
pub fn open(
    py: Python<'_>,
    path: PathBuf,
    pool: Option<Bound<'_, PyAny>>,
    log: Option<Bound<'_, PyAny>>,
    versions: Option<Bound<'_, PyAny>>,
    durability: &str,
    reads: &str,
    io: &str,
    read_only: bool,
    create: bool,
) -> PyResult<Engine> {
    let reads = word("reads", reads, &[("newest", Reads::Newest), ("durable", Reads::Durable)])?;
    let durability = word("durability", durability, &DURABILITIES)?;
    let mut options =
        Options::default().durability(durability).reads(reads).read_only(read_only).create(create);
    let known = [("uring", 0), ("threads", 1), ("buffered", 2), ("memory", 3)];
    options = match word("io", io, &known)? {
        0 => options.io(IoKind::Uring),
        1 => options.io(IoKind::Threads),
        2 => options.io(IoKind::Buffered),
        _ => options.io(IoKind::Memory),
    };
    if let Some(pool) = pool {
        options = options.pool_bytes(size(&pool)?);
    }
    if let Some(log) = log {
        options = options.log_bytes(size(&log)?);
    }
    if let Some(versions) = versions {
        options = options.version_bytes(size(&versions)?);
    }
    let engine = py.detach(|| wattle::Engine::open(path, options)).map_err(raise)?;
    Ok(Engine { shared: Arc::new(Shared::new(engine)) })
}

/// An open store. All threads may use it. As a context manager it is closed at the end.
#[pyclass(frozen, module = "wattle")]
pub struct Engine {
    shared: Arc<Shared>,
}

impl Engine {
    /// Runs `work` with the engine and without the GIL.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(wattle::Engine) -> wattle::Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| work(self.shared.engine()?)).map_err(raise)
    }
}

#[pymethods]
impl Engine {
    /// The tree `name`, created if there is none.
    fn tree(&self, py: Python<'_>, name: &str) -> PyResult<Tree> {
        let tree = self.run(py, |engine| engine.tree(name))?;
        Ok(Tree::auto(self.shared.clone(), tree))
    }

    /// Names of all trees, sorted.
    fn trees(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.run(py, |engine| engine.trees())
    }

    /// Drops the tree `name`, of which no object may be alive.
    fn drop_tree(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.run(py, |engine| match engine.open_tree(name)? {
            Some(tree) => engine.drop_tree(tree),
            None => Err(wattle::Error::NoSuchTree(name.to_string())),
        })
    }

    /// Begins a transaction.
    #[pyo3(signature = (*, isolation="snapshot", read_only=false, durability=None))]
    fn begin(
        &self,
        py: Python<'_>,
        isolation: &str,
        read_only: bool,
        durability: Option<&str>,
    ) -> PyResult<Transaction> {
        let known = [("snapshot", Isolation::Snapshot), ("serializable", Isolation::Serializable)];
        let isolation = word("isolation", isolation, &known)?;
        let durability = durability.map(|it| word("durability", it, &DURABILITIES)).transpose()?;
        let options = TxnOptions { isolation, read_only, durability };
        let txn = self.run(py, |engine| engine.begin_with(options))?;
        Ok(Transaction::new(self.shared.clone(), Arc::new(Open::new(txn))))
    }

    /// Makes all commits so far durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |engine| engine.sync())
    }

    /// Writes all pages that are dirty now.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |engine| engine.checkpoint())
    }

    /// Copies the running store into the directory `path`, which must not exist or be empty.
    fn backup(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(py, |engine| engine.backup(path).map(|_| ()))
    }

    /// Gives room at the end of the data file back to the file system.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |engine| engine.compact().map(|_| ()))
    }

    /// Checks every page and every invariant; gives the problems found. No thread may change the
    /// store meanwhile.
    fn verify(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let report = self.run(py, |engine| engine.verify(&mut |_| {}))?;
        Ok(report.problems.iter().map(ToString::to_string).collect())
    }

    /// Counters since the store was opened, and a few current values.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.run(py, |engine| Ok(engine.stats()))?;
        let counters = [
            ("frames", stats.frames),
            ("free_frames", stats.free_frames),
            ("hits", stats.hits),
            ("faults", stats.faults),
            ("pages_read", stats.pages_read),
            ("pages_written", stats.pages_written),
            ("evictions", stats.evictions),
            ("file_bytes", stats.file_bytes),
            ("used_pages", stats.used_pages),
            ("compact_bytes", stats.compact_bytes),
            ("log_bytes", stats.log_bytes),
            ("log_flushes", stats.log_flushes),
            ("log_syncs", stats.log_syncs),
            ("commits", stats.commits),
            ("checkpoints", stats.checkpoints),
            ("version_bytes", stats.version_bytes),
        ];
        let dict = PyDict::new(py);
        for (name, value) in counters {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    /// Writes everything out and closes the store. Refused while transactions or ranges are open.
    /// A closed engine may be closed again.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.shared.close()).map_err(raise)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Bound<'_, PyAny>,
        _error: Bound<'_, PyAny>,
        _trace: Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        self.close(py).map(|()| false)
    }
}
