//! The loop that runs one step of an operation until it ends in a value, for a session that blocks its
//! thread.

use crate::{
    journal::{Context, Journal},
    step::{Step, Stop},
};
use wattle_buffer::{Result, Worker};

/// Restarts after which a step gives up its core before it tries again.
const PATIENCE: u32 = 8;

/// Runs a step until it ends in a value or an error, blocking the thread for faults.
#[inline(always)]
pub fn run<T>(cx: &Context, mut step: impl FnMut(u32) -> Step<T>) -> Result<T> {
    match step(0) {
        Ok(value) => {
            cx.worker.counters().hits.add(1);
            Ok(value)
        }
        Err(stop) => run_again(cx, stop, step),
    }
}

#[cold]
fn run_again<T>(cx: &Context, mut stop: Stop, mut step: impl FnMut(u32) -> Step<T>) -> Result<T> {
    let mut restarts = 0;
    if !matches!(stop, Stop::Error(_)) {
        cx.worker.pool().check_may_wait()?;
    }
    cx.worker.begin_waiting();
    loop {
        match stop {
            Stop::Restart => restarted(&cx.worker, &mut restarts)?,
            Stop::Fault(fault) => cx.worker.resolve(fault)?,
            Stop::Faults(faults) => cx.worker.resolve_all(faults)?,
            Stop::Log => wait_log(cx)?,
            Stop::Error(error) => return Err(error),
        }
        match step(restarts) {
            Ok(value) => return Ok(value),
            Err(next) => stop = next,
        }
    }
}

/// Counts a restart, and yields the core now and then so that others can finish.
///
/// # Errors
/// [`wattle_buffer::Error::Limit`] when the operation has restarted for several stall timeouts.
pub fn restarted(worker: &Worker, restarts: &mut u32) -> Result<()> {
    worker.counters().restarts.add(1);
    *restarts += 1;
    if restarts.is_multiple_of(PATIENCE) {
        wattle_buffer::sync::yield_now();
        return worker.check_restarts();
    }
    Ok(())
}

/// Waits, blocking the thread, until the log has taken what the session's buffer holds.
fn wait_log(cx: &Context) -> Result<()> {
    match &cx.journal {
        Journal::Off => Ok(()),
        Journal::On(log, _) => log.wait_flush(),
    }
}
