//! The runtime of asynchronous sessions.

use std::{future::Future, io};
use wattle_buffer::{Error, Result, io::start_runtime};

/// Runs `future` on an executor of this thread for asynchronous sessions: a tokio-uring runtime
/// with room for `in_flight` reads, or a plain tokio runtime where io_uring is refused. Tasks are
/// spawned inside with `tokio::task::spawn_local`.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let options = wattle::Options::default().pool_bytes(8 << 20);
/// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
/// # let tree = engine.tree("tree")?;
/// wattle::run(64, async {
///     let session = engine.async_session()?;
///     let tasks = (0..4_u8).map(|number| {
///         let (session, tree) = (session.clone(), tree.clone());
///         tokio::task::spawn_local(async move { session.put(&tree, &[number], b"value").await })
///     });
///     for task in tasks.collect::<Vec<_>>() {
///         task.await.expect("no panic")?;
///     }
///     Ok::<(), wattle::Error>(())
/// })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When the thread runs inside a tokio runtime already, or the system refuses both.
pub fn run<F: Future>(in_flight: u32, future: F) -> Result<F::Output> {
    let mut future = Some(future);
    let started = start_runtime(in_flight, async {
        let future = future.take().expect("run once");
        future.await
    });
    let refused = match started {
        Ok(output) => return Ok(output),
        Err(error) => error,
    };
    let failed = |error: io::Error| Error::io("start an asynchronous runtime", error);
    let Some(future) = future else { return Err(failed(refused)) };
    if tokio::runtime::Handle::try_current().is_ok() {
        return Err(failed(refused));
    }
    tracing::warn!(error = %refused, "io_uring is refused: a plain runtime is used");
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(failed)?;
    let local = tokio::task::LocalSet::new();
    Ok(runtime.block_on(local.run_until(future)))
}
