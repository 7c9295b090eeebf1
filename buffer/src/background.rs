//! The background threads of a pool: evictors, writers, `wattle-frames`, which has the kernel
//! provide memory ahead of use, and `wattle-watch`, which wakes tasks that have waited for too
//! long.

use crate::{
    error::{Error, Result},
    evictor::Evictor,
    free_frames::FreeFrames,
    memory::FrameMemory,
    pool::Pool,
    sync::{Builder, JoinHandle},
    writeback::Writer,
};
use std::sync::Arc;

/// The background threads of a pool. Dropping the value stops and joins them.
pub struct Background {
    pool: Arc<Pool>,
    evictors: Vec<JoinHandle<()>>,
    writers: Vec<JoinHandle<()>>,
    /// The threads `wattle-frames` and `wattle-watch`.
    others: Vec<JoinHandle<()>>,
}

/// Attempts to join the small pages of the first frames: pages in use for I/O stay where they are.
const JOINS: u32 = 8;

/// Body of `wattle-frames`: has the kernel provide memory for the frames that are used next.
/// Zeroing a huge page on first touch would delay an operation by a millisecond or more. The first
/// frames, which began in small pages, are joined to a huge one as soon as all of them are in use.
fn make_frames_ready(free: &FreeFrames, memory: &FrameMemory) {
    let mut joins = JOINS;
    while let Some(frames) = free.wait_unready() {
        if joins > 0 {
            joins = match memory.join_first() {
                Ok(()) => 0,
                Err(error) => {
                    tracing::debug!(%error, "the first frames stay in small pages for now");
                    joins - 1
                }
            };
        }
        if let Err(error) = memory.populate(frames) {
            tracing::debug!(%error, "frames get their memory when they are first used");
            free.stop_ready();
        }
    }
}

impl Background {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn start(pool: &Arc<Pool>) -> Result<Background> {
        pool.evict_signal.restart();
        pool.writes.restart();
        pool.free.start_ready();
        let mut background = Background {
            pool: pool.clone(),
            evictors: Vec::new(),
            writers: Vec::new(),
            others: Vec::new(),
        };
        let spawn = |name: String, body: Box<dyn FnOnce() + Send>| {
            let pool = pool.clone();
            let guarded = move || {
                // A thread that waits for a frame must not wait for a thread that has ended.
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
                if let Err(panic) = ended {
                    pool.poison("a background thread of the pool panicked");
                    std::panic::resume_unwind(panic);
                }
            };
            Builder::new()
                .name(name.clone())
                .spawn(guarded)
                .map_err(|error| Error::io(format_args!("start thread {name}"), error))
        };
        for i in 0..pool.options.evictors {
            let evictor = Evictor::new(pool.clone(), i as u64);
            background
                .evictors
                .push(spawn(format!("wattle-evict-{i}"), Box::new(move || evictor.run()))?);
        }
        let (writers, batch) = pool.options.writers();
        for i in 0..writers {
            let writer = Writer::new(pool.clone(), batch);
            background
                .writers
                .push(spawn(format!("wattle-write-{i}"), Box::new(move || writer.run()))?);
        }
        if !pool.free.are_all_ready() {
            let pool = pool.clone();
            let frames = move || make_frames_ready(&pool.free, &pool.memory);
            background.others.push(spawn("wattle-frames".to_string(), Box::new(frames))?);
        }
        pool.in_flight.watch.start();
        let ours = pool.clone();
        let watch = move || ours.in_flight.watch.run(&ours.in_flight);
        background.others.push(spawn("wattle-watch".to_string(), Box::new(watch))?);
        Ok(background)
    }
}

impl Background {
    /// Stops and joins the threads.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when one of them had panicked.
    pub fn stop(mut self) -> Result<()> {
        self.join()
    }

    fn join(&mut self) -> Result<()> {
        // All that nothing waits for end beside the others.
        self.pool.free.stop_ready();
        self.pool.in_flight.watch.stop();
        // Stop the evictors first: they feed the writers, which empty their queue before they end.
        self.pool.evict_signal.stop();
        let evictors = self.evictors.drain(..).filter_map(|thread| thread.join().err()).count();
        self.pool.writes.stop();
        let writers = self.writers.drain(..).filter_map(|thread| thread.join().err()).count();
        let others = self.others.drain(..).filter_map(|thread| thread.join().err()).count();
        if evictors + writers + others == 0 {
            return Ok(());
        }
        let what =
            format!("{evictors} evictor, {writers} writer and {others} other threads panicked");
        Err(Error::Poisoned(what))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Err(error) = self.join() {
            tracing::error!(%error, "background threads of the pool had ended early");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::FrameId;
    use std::time::{Duration, Instant};

    #[test]
    fn frames_next_in_line_get_memory_before_they_are_used() {
        const FRAMES: usize = 16 * 1024;
        let free = FreeFrames::new(FRAMES, 1);
        let memory = FrameMemory::map(FRAMES).expect("64 MiB");
        if let Err(error) = memory.populate(0..1) {
            return eprintln!("skipped: the kernel gives memory only when it is touched: {error}");
        }
        free.start_ready();
        assert!(memory.populated(0..512) < 512, "the first frames begin in a huge page");
        // Their contents stay when the first frames move to a huge page.
        let bytes: Vec<u8> = (0..512u32).map(|frame| (frame % 251) as u8).collect();
        for (frame, byte) in bytes.iter().enumerate() {
            let (mut latched, header, version) = memory.latch(FrameId(frame as u32));
            memory.page_mut(&mut latched).set_u8(100, *byte);
            header.latch.release(version, true);
        }
        let mut taken = Vec::new();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| make_frames_ready(&free, &memory));
            for _ in 0..64 {
                free.take(memory.headers(), 50, &mut taken);
            }
            let until = Instant::now() + Duration::from_secs(60);
            while memory.populated(3584..6144) < 6144 - 3584 {
                assert!(Instant::now() < until, "the frames after those in use get no memory");
                std::thread::sleep(Duration::from_millis(1));
            }
            // As many frames as are in use, and no more.
            assert_eq!(memory.populated(6656..FRAMES as u32), 0);
            for (frame, byte) in bytes.iter().enumerate() {
                let (latched, header, version) = memory.latch(FrameId(frame as u32));
                assert_eq!(memory.page_bytes(&latched)[100], *byte, "frame {frame}");
                header.latch.release(version, false);
            }
            free.stop_ready();
            thread.join().expect("ends");
        });
        free.start_ready();
        while free.take(memory.headers(), 50, &mut taken) > 0 {}
        while let Some(frames) = free.wait_unready() {
            memory.populate(frames).expect("once more");
        }
        assert!(taken.iter().map(|frame| frame.0).eq(0..FRAMES as u32), "each once, in order");
    }
}
