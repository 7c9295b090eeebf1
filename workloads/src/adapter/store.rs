//! An open engine as a [`Store`].

use std::future::Future;

use wattle::{Engine, Stats, Tree};

use super::blocking::BlockingClient;
use super::task::TaskClient;
use crate::driver::counters::{
    BufferCounters, Counters, EvictorCounters, LogCounters, Refused, mean,
};
use crate::driver::store::{Store, StoreResult};

/// An open engine.
pub struct EngineStore {
    engine: Engine,
    pipelined: bool,
}

impl EngineStore {
    /// The store of `engine`. `pipelined`: clients go on before a commit is durable.
    pub fn new(engine: Engine, pipelined: bool) -> Self {
        Self { engine, pipelined }
    }
}

fn evictor(stats: &Stats) -> EvictorCounters {
    EvictorCounters {
        epoch: stats.epochs,
        threshold: mean(stats.threshold_sum, stats.thresholds),
        thresholds: stats.thresholds,
        threshold_sum: stats.threshold_sum,
        candidates: stats.candidates,
        queued: stats.queued,
        refused: Refused {
            no_page: stats.refused.no_page,
            pinned: stats.refused.pinned,
            hot_children: stats.refused.hot_children,
            being_written: stats.refused.being_written,
            hotter: stats.refused.hotter,
            latched: stats.refused.latched,
            parent_latched: stats.refused.parent_latched,
            changed: stats.refused.changed,
            queue_full: stats.refused.queue_full,
        },
        swizzles: stats.swizzles,
        unswizzles: stats.unswizzles,
        queued_writes: stats.queued_writes,
    }
}

impl EngineStore {
    /// The engine, for experiments on its parts.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

impl Store for EngineStore {
    type Table = Tree;
    type Session = BlockingClient;
    type Task = TaskClient;

    fn table_names(&self) -> StoreResult<Vec<String>> {
        Ok(self.engine.trees()?)
    }

    fn table(&self, name: &str) -> StoreResult<Tree> {
        Ok(self.engine.tree(name)?)
    }

    fn fill<P: AsRef<[u8]>>(
        &self,
        table: &Tree,
        pairs: impl Iterator<Item = (P, P)>,
    ) -> StoreResult<()> {
        self.engine.session()?.bulk_load(table, pairs)?;
        Ok(())
    }

    fn session(&self) -> StoreResult<BlockingClient> {
        let (session, pool) = (self.engine.session()?, self.engine.pool().clone());
        Ok(BlockingClient::new(session, pool, self.pipelined))
    }

    fn task_clients(&self, tasks: usize) -> StoreResult<Vec<TaskClient>> {
        let session = self.engine.async_session()?;
        let pool = self.engine.pool();
        let client = |_| TaskClient::new(session.clone(), pool.clone(), self.pipelined);
        Ok((0..tasks).map(client).collect())
    }

    fn run_tasks<F: Future>(&self, in_flight: usize, tasks: F) -> StoreResult<F::Output> {
        Ok(wattle::run(in_flight as u32, tasks)?)
    }

    fn counters(&self) -> Counters {
        let stats = self.engine.stats();
        Counters {
            buffer: BufferCounters {
                frames: stats.frames,
                free_frames: stats.free_frames,
                hits: stats.hits,
                faults: stats.faults,
                pages_read: stats.pages_read,
                pages_written: stats.pages_written,
                evictions: stats.evictions,
                evictions_dirty: stats.evictions_dirty,
                evictor_cpu_seconds: stats.evictor_cpu_seconds,
                epochs: stats.epochs,
                restarts: stats.restarts,
                frame_waits: stats.frame_waits,
                evictor: evictor(&stats),
            },
            log: LogCounters {
                bytes: stats.log_bytes,
                syncs: stats.log_syncs,
                commits: stats.commits,
                record_bytes: stats.log_record_bytes.saturating_sub(stats.log_image_bytes),
                sync_us: stats.log_sync_median_us,
                checkpoints: stats.checkpoints,
                flushes: stats.log_flushes,
            },
        }
    }

    fn file_bytes(&self) -> u64 {
        self.engine.stats().file_bytes
    }

    fn close(self) -> StoreResult<()> {
        Ok(self.engine.close()?)
    }
}
