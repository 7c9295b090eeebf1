//! The loop that runs a step until it ends in a value, for sessions that block their thread.

use crate::{
    journal::{Context, Journal},
    step::{Step, Stop},
};
use wattle_buffer::{Result, Worker};

/// A step yields its core after every so many restarts.
const YIELD_AFTER: u32 = 8;

/// Runs a step until it ends in a value or an error. Blocks the thread for faults.
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

/// Counts a restart. Yields the core after every [`YIELD_AFTER`] restarts, so that others can
/// finish.
///
/// # Errors
/// [`wattle_buffer::Error::Limit`] when the step has restarted for several stall timeouts.
pub fn restarted(worker: &Worker, restarts: &mut u32) -> Result<()> {
    worker.counters().restarts.add(1);
    *restarts += 1;
    if restarts.is_multiple_of(YIELD_AFTER) {
        wattle_buffer::sync::yield_now();
        return worker.check_restarts();
    }
    Ok(())
}

/// Blocks the thread until the log has flushed the buffer of the session.
fn wait_log(cx: &Context) -> Result<()> {
    match &cx.journal {
        Journal::Off => Ok(()),
        Journal::On(log, _) => log.wait_flush(),
    }
}
