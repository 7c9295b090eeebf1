#![doc = include_str!("../README.md")]

use axum::{
    Router,
    body::Bytes,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use std::time::Duration;
use wattle::{Engine, Error, Tree};

/// The directory of a program's store: its first argument, or a temporary one, which is removed
/// when the second value is dropped.
///
/// # Errors
/// If a temporary directory cannot be made.
pub fn store_path() -> std::io::Result<(std::path::PathBuf, Option<tempfile::TempDir>)> {
    if let Some(path) = std::env::args_os().nth(1) {
        return Ok((path.into(), None));
    }
    let directory = tempfile::tempdir()?;
    Ok((directory.path().join("store"), Some(directory)))
}

/// Runs `attempt` until it commits without a conflict, at most for `attempts` times. Between two
/// attempts it sleeps for a random time, twice as long at most as the time before.
///
/// `attempt` gets a new transaction each time. It must not change anything outside of it.
///
/// # Errors
/// Those of `attempt` that a new transaction cannot mend, and the last conflict.
pub fn with_retries<T>(
    engine: &Engine,
    attempts: u32,
    mut attempt: impl FnMut(&mut wattle::Transaction<'_>) -> wattle::Result<T>,
) -> wattle::Result<T> {
    let mut longest = Duration::from_micros(50);
    let mut left = attempts;
    loop {
        let mut txn = engine.begin()?;
        let outcome = match attempt(&mut txn) {
            Ok(value) => txn.commit().map(|()| value),
            Err(error) => txn.abort().and(Err(error)),
        };
        left = left.saturating_sub(1);
        match outcome {
            Err(Error::Conflict(_) | Error::SnapshotTooOld(_)) if left > 0 => {
                std::thread::sleep(longest.mul_f64(rand::random::<f64>()));
                longest = (longest * 2).min(Duration::from_millis(10));
            }
            outcome => return outcome,
        }
    }
}

/// The state that the handlers share.
#[derive(Clone)]
struct App {
    engine: Engine,
    tree: Tree,
}

/// An error as an answer. Errors that a client can mend have codes of their own.
struct Failure(Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self.0 {
            Error::KeyTooLong { .. } | Error::ValueTooLong { .. } => StatusCode::BAD_REQUEST,
            Error::Conflict(_) => StatusCode::CONFLICT,
            Error::DiskFull { .. } => StatusCode::INSUFFICIENT_STORAGE,
            Error::Limit(_) | Error::PoolExhausted { .. } => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, self.0.to_string()).into_response()
    }
}

/// Runs `work` on a thread that may block: a page may have to be read.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> wattle::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome.map_err(Failure),
        Err(died) => std::panic::resume_unwind(died.into_panic()),
    }
}

async fn read(
    State(app): State<App>,
    Path(key): Path<String>,
) -> Result<Result<Vec<u8>, StatusCode>, Failure> {
    let value = blocking(move || app.engine.session()?.get(&app.tree, key.as_bytes())).await?;
    Ok(value.ok_or(StatusCode::NOT_FOUND))
}

/// The thread that may block is free again before the commit is durable: the task waits for it.
async fn write(
    State(app): State<App>,
    Path(key): Path<String>,
    value: Bytes,
) -> Result<StatusCode, Failure> {
    let put = move || app.engine.session()?.put_ticket(&app.tree, key.as_bytes(), &value);
    blocking(put).await?.await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove(State(app): State<App>, Path(key): Path<String>) -> Result<StatusCode, Failure> {
    let remove = move || app.engine.session()?.remove_ticket(&app.tree, key.as_bytes());
    let (found, ticket) = blocking(remove).await?;
    ticket.await?;
    Ok(if found { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND })
}

#[derive(Deserialize)]
struct Scan {
    #[serde(default)]
    prefix: String,
    #[serde(default = "Scan::default_limit")]
    limit: usize,
}

impl Scan {
    fn default_limit() -> usize {
        100
    }
}

async fn keys(State(app): State<App>, Query(scan): Query<Scan>) -> Result<String, Failure> {
    blocking(move || {
        let session = app.engine.session()?;
        let mut range = session.prefix(&app.tree, scan.prefix.as_bytes())?;
        let mut text = String::new();
        for _ in 0..scan.limit.min(10_000) {
            let Some((key, _)) = range.next_entry()? else { break };
            text += &String::from_utf8_lossy(key);
            text.push('\n');
        }
        Ok(text)
    })
    .await
}

#[derive(Deserialize)]
struct Transfer {
    from: String,
    to: String,
    amount: u64,
}

/// Moves an amount between two decimal numbers, in one transaction.
async fn transfer(
    State(app): State<App>,
    Query(order): Query<Transfer>,
) -> Result<(StatusCode, &'static str), Failure> {
    let moved = blocking(move || {
        let number = |bytes: Option<Vec<u8>>| -> Option<u64> {
            String::from_utf8(bytes.unwrap_or_else(|| b"0".to_vec())).ok()?.parse().ok()
        };
        with_retries(&app.engine, 20, |txn| {
            let source = number(txn.get(&app.tree, order.from.as_bytes())?);
            let target = number(txn.get(&app.tree, order.to.as_bytes())?);
            let (Some(source), Some(target)) = (source, target) else { return Ok(false) };
            let left = source.checked_sub(order.amount);
            let (Some(left), Some(more)) = (left, target.checked_add(order.amount)) else {
                return Ok(false);
            };
            if order.from == order.to {
                return Ok(true);
            }
            txn.put(&app.tree, order.from.as_bytes(), left.to_string().as_bytes())?;
            txn.put(&app.tree, order.to.as_bytes(), more.to_string().as_bytes())?;
            Ok(true)
        })
    })
    .await?;
    Ok(match moved {
        true => (StatusCode::OK, "moved\n"),
        false => (StatusCode::UNPROCESSABLE_ENTITY, "no such amount\n"),
    })
}

/// The service: `GET`, `PUT` and `DELETE /records/KEY`, `GET /records?prefix=P&limit=N`, and
/// `POST /transfer?from=A&to=B&amount=N`.
pub fn service(engine: Engine, tree: Tree) -> Router {
    Router::new()
        .route("/records", get(keys))
        .route("/records/{key}", get(read).put(write).delete(remove))
        .route("/transfer", post(transfer))
        .with_state(App { engine, tree })
}
