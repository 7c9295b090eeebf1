//! Ends an open store: closes it, or leaves it as a crash would.

use crate::{core::Core, warm};
use std::time::Duration;
use wattle_buffer::{Error, Result};
use wattle_wal::Log;

/// How long an engine that is abandoned waits for bulk loads and backups.
const ABANDON_WAIT: Duration = Duration::from_secs(5);

/// Writes everything out, so that the next opening has nothing to recover. The caller is the last
/// user. The store can be opened again when this returns, even after an error.
pub(crate) fn close(core: &Core) -> Result<()> {
    core.pool.process().check()?;
    let mut closed = core.closed.lock();
    if std::mem::replace(&mut *closed, true) {
        return Ok(());
    }
    let outcome = match core.read_only {
        true => write_out(core),
        false => core.file.in_place(write_out(core)),
    };
    core.file.release();
    outcome
}

fn write_out(core: &Core) -> Result<()> {
    // 1. Nothing changes from here on. A checkpoint may wait for a flush that waits for room.
    if let Some(log) = &core.log {
        log.stop_waiting();
    }
    stop_threads(core);
    if let Some(why) = core.txns.failure() {
        // A checkpoint may have found that somebody changed the files.
        let files = core.check_files();
        let abandoned = leave_as_crashed(core, why);
        return files.and(abandoned);
    }
    if core.read_only {
        end_pool(core);
        tracing::info!(path = %core.file.path.display(), "closed, after it was only read");
        return Ok(());
    }
    // 2. Nothing is left to roll back or to clear away.
    if let Err(unfinished) = finish_work(core) {
        let _poisoned = leave_as_crashed(core, unfinished.to_string());
        return Err(unfinished);
    }
    // 3. The threads of the pool end: every page that they hold is written.
    core.forest.merge_in(None);
    let background = core.background.lock().take();
    if let Some(background) = background
        && let Err(error) = background.stop()
    {
        return leave_as_crashed(core, error.to_string());
    }
    // 4. Every page, the bitmaps, and a superblock that says so.
    let outcome = match &core.log {
        Some(log) => close_logged(core, log),
        None => close_unlogged(core),
    };
    forget_garbage(core);
    let log = core.log.as_ref().map_or(Ok(()), |log| log.close());
    outcome.and(log)
}

/// Ends the threads of the engine, and drops the session states that were kept for new sessions.
fn stop_threads(core: &Core) {
    let (checkpoints, janitor) = (&core.checkpoints.thread, &core.janitor.thread);
    for thread in [&core.warm.thread, checkpoints, janitor, &core.txns.keeper.thread] {
        thread.begin_stop();
    }
    core.warm.thread.stop();
    checkpoints.stop();
    janitor.stop();
    core.txns.keeper.stop();
    let idle = core.idle.lock().end();
    idle.iter().for_each(|state| state.retire(&core.txns));
}

/// Finishes the work of the janitor: rolls abandoned transactions back and removes garbage.
///
/// # Errors
/// A transaction could not be rolled back or was leaked, which leaves its changes to recovery; or
/// another program changed the files.
fn finish_work(core: &Core) -> Result<()> {
    let cx = core.context();
    // Twice: the second round clears away the garbage that the first one produces.
    core.janitor_round(&cx);
    if let Some(log) = &core.log {
        log.flush_now().map_err(|error| Error::Poisoned(error.to_string()))?;
    }
    core.janitor_round(&cx);
    if core.janitor.is_stuck() {
        return Err(Error::Poisoned("a transaction could not be rolled back".to_string()));
    }
    core.check_files()?;
    if core.txns.snapshots.any_writing() {
        let what = "a transaction that has changed something was leaked";
        return Err(Error::Poisoned(what.to_string()));
    }
    Ok(())
}

/// Ends in a checkpoint, in a log of one small segment; or in nothing if nothing was changed.
fn close_logged(core: &Core, log: &Log) -> Result<()> {
    log.flush_now()?;
    if !log.has_written() && core.pool.flush()? == 0 {
        core.check_files()?;
        warm::save(core, false);
        tracing::info!(path = %core.file.path.display(), "closed unchanged");
        return Ok(());
    }
    log.end_in_small_segment()?;
    core.final_checkpoint()?;
    warm::save(core, true);
    Ok(())
}

/// Closes a store that was used without a log.
fn close_unlogged(core: &Core) -> Result<()> {
    let written = core.pool.flush()?;
    let mark = core.barrier.unlogged.get().expect("set when it was opened");
    if !mark.is_marked() {
        warm::save(core, false);
        tracing::info!(path = %core.file.path.display(), "closed unchanged");
        return Ok(());
    }
    core.store_unlogged()?;
    warm::save(core, true);
    tracing::info!(path = %core.file.path.display(), pages_written = written, "closed");
    Ok(())
}

/// Leaves the store as a crash would; the error says why.
fn leave_as_crashed(core: &Core, why: String) -> Result<()> {
    end_pool(core);
    if let Some(log) = &core.log {
        let _ = log.close();
    }
    Err(Error::Poisoned(why))
}

/// Ends merges and the threads of the pool, without writing pages.
fn end_pool(core: &Core) {
    core.forest.merge_in(None);
    drop(core.background.lock().take());
    forget_garbage(core);
}

/// Drops the unfinished work of the janitor, and with it the handles of trees that it holds.
fn forget_garbage(core: &Core) {
    core.janitor.forget();
    core.txns.garbage.forget();
}

/// Leaves the store as a crash would, with all commits so far, while handles are alive.
///
/// Nothing may write to its files after it is unlocked. From step 1 on no change, checkpoint, bulk
/// load or backup begins; those under way end in steps 2 and 3. A closed log refuses the records of
/// operations that are still under way. Otherwise only background threads write pages, and they end
/// in step 4.
pub(crate) fn abandon(core: &Core) -> Result<()> {
    let mut closed = core.closed.lock();
    if *closed {
        return Ok(());
    }
    // 1. As after a failure.
    core.txns.liveness.abandon();
    // 2. Bulk loads, backups and compactions write pages, truncate the log, and shorten the data
    //    file.
    let Some(_no_other) = core.unlogged_pages.read(ABANDON_WAIT) else {
        let what = "a bulk load, a backup or a compaction";
        return Err(Error::StillInUse(what.to_string()));
    };
    *closed = true;
    // 3. Commits so far are durable, and no checkpoint is under way.
    let flushed = core.sync_log();
    if let Some(log) = &core.log {
        log.stop_waiting();
    }
    core.checkpoints.thread.stop();
    core.checkpoints.wait();
    stop_threads(core);
    // 4. The error only says why, and nothing failed.
    let _always = leave_as_crashed(core, String::new());
    core.file.release();
    flushed
}
