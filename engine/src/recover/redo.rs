//! Redo: brings all pages to the state of the end of the log.

use super::{
    FoundGhosts,
    analysis::Analysis,
    cache::{self, Cache, Counts},
    found::Recovered,
    redo_state::RedoState,
    source::{Located, Source, wrong_end},
    worker::{self, Batch, PageChange, PageItem, Payload},
};
use crate::{
    options::Options,
    store::{StoreFile, Superblock},
};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, ScopedJoinHandle},
    time::Instant,
};
use wattle_btree::record::{needs_page, page_changes};
use wattle_buffer::{Error, PAGE_SIZE, PageId, Result, io::LogStorage, processors};
use wattle_wal::{Chunk, epoch_of, record::Op};

/// Most redo workers.
const MAX_WORKERS: usize = 16;
/// Pages side by side that one worker owns, so that it can write them together.
const NEIGHBOURS: u64 = 32;
/// Flushes that are read ahead.
const READ_AHEAD: usize = 2;
/// Batches that wait for one worker.
const QUEUE: usize = 2;
/// Most items of a batch.
const BATCH: usize = 2048;
/// A batch is sent at the latest after this many bytes of log, because it keeps them in memory.
const BATCH_LOG_BYTES: u64 = 512 << 10;

/// Brings all pages to the state of the end of the log, and makes them durable.
pub(crate) fn redo(
    file: &StoreFile,
    log: &Arc<dyn LogStorage>,
    block: &Superblock,
    in_use: Vec<u64>,
    options: &Options,
) -> Result<Recovered> {
    let begun = Instant::now();
    let _span = tracing::info_span!("recovery", redo_epoch = block.redo_epoch).entered();
    // 1. The source gives out only durable records.
    let mut source = Source::open(file, log, block)?;
    let mut last = source.epoch_before();
    let shared = RedoState::new(block.gaps, options);
    options.check_interrupt()?;
    let first = source.first(|epoch| {
        shared.gaps.lock().add_jump(last, epoch);
        last = epoch;
        options.check_interrupt()
    })?;
    let reserving = Mutex::new(());
    let capacity = file.storage.capacity_pages().max(block.capacity);
    let analysis = Analysis::new(in_use, capacity, file.directory());
    let Some(first) = first else {
        return without_records((file, log), (source, block), analysis, shared, options);
    };
    let workers = processors().min(MAX_WORKERS);
    let pages = options.pool_bytes as usize / (PAGE_SIZE + 128) / workers;
    // 2. Read, look, apply. Leaving the scope waits for all threads.
    let (dispatcher, counts, found) = thread::scope(|scope| {
        let spawn = |name: &str| thread::Builder::new().name(name.to_string());
        let failed = |error| Error::io("start a thread of recovery", error);
        let shared = &shared;
        let (flushes, received) = sync_channel(READ_AHEAD);
        let reader = spawn("redo-reader")
            .spawn_scoped(scope, move || source.feed(first, flushes, block.durable_flush, shared))
            .map_err(failed)?;
        let (mut queues, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..workers {
            let (queue, batches) = sync_channel(QUEUE);
            let cache = Cache::new(file, shared, &reserving, pages)?;
            let run = move || worker::run(cache, batches, shared);
            threads.push(spawn("redo-worker").spawn_scoped(scope, run).map_err(failed)?);
            queues.push(Queue { queue, batch: Batch::default(), places: Vec::new() });
        }
        let mut dispatcher =
            Dispatcher { block, shared, analysis, queues, last, held: 0, bytes: 0, records: 0 };
        if let Err(error) = dispatcher.run(received) {
            shared.fail(error);
        }
        // The workers write the remaining pages once they know the end of the log.
        if let Some(end) = join(reader) {
            if let Some(error) = wrong_end(file, block, &end) {
                shared.fail(error);
            }
            shared.end.set(end).expect("set once");
        }
        dispatcher.queues.clear();
        let ended = threads.into_iter().map(join);
        let (counts, found): (Vec<Counts>, Vec<FoundGhosts>) = ended.unzip();
        Ok::<_, Error>((dispatcher, counts, found))
    })?;
    let Dispatcher { analysis, bytes, records, .. } = dispatcher;
    if let Some(error) = shared.error.into_inner() {
        return Err(error);
    }
    let end = *shared.end.get().expect("without an error the log was read to its end");
    // 3. All pages in use are there, durably.
    let recovered = analysis.finish(end);
    cache::reserve(file, &reserving, pages_end(&recovered.in_use))?;
    file.sync()?;
    report_recovered(file, begun, &counts, (bytes, records), recovered.losers.len());
    let mut ghosts = FoundGhosts::default();
    found.into_iter().for_each(|found| ghosts.merge(found));
    Ok(Recovered { ghosts, records, bytes, gaps: shared.gaps.into_inner(), ..recovered })
}

/// As [`redo`], for a log without records: no page lacks anything. Starts no thread.
///
/// If the log has only the segment that the superblock names, the syncs are left to
/// [`Recovered::make_durable`], so that a store that was closed and is only read is opened without
/// one. Then nothing is removed before the first change either. With other segments it could be: a
/// process may have written this superblock and not synced it, because it was killed or the sync
/// failed, and the previous one needs them. So it is written again, and synced.
fn without_records(
    (file, log): (&StoreFile, &Arc<dyn LogStorage>),
    (source, block): (Source<'_>, &Superblock),
    analysis: Analysis,
    shared: RedoState,
    options: &Options,
) -> Result<Recovered> {
    let (end, segments) = source.end_without_records(block.durable_flush)?;
    if let Some(error) = wrong_end(file, block, &end) {
        return Err(error);
    }
    let found = log.segments().map_err(|error| Error::io("list the log", error))?;
    let is_alone = found.iter().map(|(number, _)| *number).eq([block.segment]);
    let recovered = analysis.finish(end);
    cache::reserve(file, &Mutex::new(()), pages_end(&recovered.in_use))?;
    let gaps = shared.gaps.into_inner();
    let mut recovered = Recovered { unsynced: Some(segments), gaps, ..recovered };
    if !is_alone {
        recovered.make_durable(file, &**log)?;
        if !options.read_only {
            // Its sync may have failed, and then a sync that succeeds proves nothing.
            file.write_superblock(block)?;
        }
    }
    Ok(recovered)
}

/// The end of the pages in use.
fn pages_end(in_use: &[u64]) -> u64 {
    in_use
        .iter()
        .rposition(|word| *word != 0)
        .map_or(0, |at| at as u64 * 64 + u64::from(u64::BITS - in_use[at].leading_zeros()))
}

/// Logs what redo has done.
fn report_recovered(
    file: &StoreFile,
    begun: Instant,
    counts: &[Counts],
    (bytes, records): (u64, u64),
    losers: usize,
) {
    let seconds = begun.elapsed().as_secs_f64();
    tracing::info!(
        path = %file.path.display(),
        log_bytes = bytes,
        records,
        pages_read = counts.iter().map(|c| c.read).sum::<u64>(),
        pages_written = counts.iter().map(|c| c.written).sum::<u64>(),
        losers,
        seconds,
        gib_per_second = bytes as f64 / seconds.max(1e-9) / (1u64 << 30) as f64,
        "recovered"
    );
}

/// A panic goes on in the thread that recovers.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Looks at all records in order, and hands out their ops.
struct Dispatcher<'r> {
    block: &'r Superblock,
    shared: &'r RedoState,
    analysis: Analysis,
    /// For each worker.
    queues: Vec<Queue>,
    /// Epoch of the last flush.
    last: u64,
    /// Bytes of flushes that the items to be sent may hold on to.
    held: u64,
    bytes: u64,
    records: u64,
}

/// The queue of a worker.
struct Queue {
    queue: SyncSender<Batch>,
    /// The next batch.
    batch: Batch,
    /// Where the batch has the chunks of the flush that is handed out, or [`NOWHERE`].
    places: Vec<u32>,
}

const NOWHERE: u32 = u32::MAX;

impl Queue {
    /// Where the batch has a chunk of the flush.
    fn place(&mut self, chunks: &[Arc<Chunk>], chunk: usize) -> u32 {
        let place = &mut self.places[chunk];
        if *place == NOWHERE {
            *place = self.batch.chunks.len() as u32;
            self.batch.chunks.push(chunks[chunk].clone());
        }
        *place
    }
}

impl Dispatcher<'_> {
    /// Stops early, without an error of its own, when a worker has ended.
    fn run(&mut self, flushes: Receiver<Located>) -> Result<()> {
        for flush in flushes {
            self.flush(&flush)?;
            if self.held >= BATCH_LOG_BYTES {
                self.send_all();
            }
            if self.shared.is_stopped() {
                return Ok(());
            }
        }
        self.send_all();
        Ok(())
    }

    fn flush(&mut self, flush: &Located) -> Result<()> {
        self.shared.gaps.lock().add_jump(self.last, flush.epoch);
        self.last = flush.epoch;
        self.bytes += flush.bytes();
        self.held += flush.bytes();
        for queue in &mut self.queues {
            queue.places.clear();
            queue.places.resize(flush.chunks.len(), NOWHERE);
        }
        for (chunk, record) in flush.records()? {
            let epoch = epoch_of(record.gsn);
            if epoch < self.block.undo_epoch {
                continue;
            }
            self.records += 1;
            self.analysis.record(&record, |what| flush.damage(&what))?;
            if epoch < self.block.redo_epoch {
                continue;
            }
            for op in record.ops() {
                self.analysis.op(&op).map_err(|what| flush.damage(&what))?;
                self.hand_out(&flush.chunks, chunk, &op, &record);
            }
        }
        Ok(())
    }

    fn hand_out(
        &mut self,
        chunks: &[Arc<Chunk>],
        chunk: usize,
        op: &Op<'_>,
        record: &wattle_wal::record::Record<'_>,
    ) {
        let gsn = record.gsn;
        if needs_page(op.code).0 {
            if epoch_of(gsn) < self.block.redo_epoch_of(op.page) {
                // The page has it, or the log has an image later on.
                return;
            }
            let worker = self.worker_of(op.page);
            let at = self.queues[worker].place(chunks, chunk);
            let payload = Payload::new(at, &chunks[chunk], op.payload);
            let what = PageChange::Op { code: op.code, payload };
            return self.push(worker, PageItem { page: op.page, tree: op.tree, gsn, what });
        }
        let freed = page_changes(op.page, op.code, op.payload, &mut |page, used| {
            if !used {
                let item = PageItem { page, tree: op.tree, gsn, what: PageChange::Free };
                self.push(self.worker_of(page), item);
            }
        });
        freed.expect("the analysis has walked over them once");
    }

    /// The worker that owns a page, and its neighbours.
    fn worker_of(&self, page: PageId) -> usize {
        let hash = (page.0 / NEIGHBOURS).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        hash as usize % self.queues.len()
    }

    fn push(&mut self, worker: usize, item: PageItem) {
        let items = &mut self.queues[worker].batch.items;
        items.push(item);
        if items.len() >= BATCH {
            self.send(worker);
        }
    }

    fn send_all(&mut self) {
        (0..self.queues.len()).for_each(|worker| self.send(worker));
        self.held = 0;
    }

    fn send(&mut self, worker: usize) {
        let Queue { queue, batch, places } = &mut self.queues[worker];
        if batch.items.is_empty() {
            return;
        }
        places.fill(NOWHERE);
        let items = Vec::with_capacity(batch.items.len());
        let full = std::mem::replace(batch, Batch { items, chunks: Vec::new() });
        // A worker that is gone has said why.
        if queue.send(full).is_err() {
            self.shared.stop();
        }
    }
}
