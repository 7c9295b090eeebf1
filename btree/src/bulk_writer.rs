//! Writes the pages of a bulk load in batches, on a thread of its own, so that the load builds
//! pages while the device writes others.
//!
//! Invariants: at most [`IN_FLIGHT`] batches are under way; after [`BatchWriter::stop`] none is.

use crate::node::NodeView;
use std::{
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{Builder, JoinHandle},
};
use wattle_buffer::{Error, PageImage, Pool, Result, io::PageWrite};

/// Pages of a batch: a megabyte.
const BATCH: usize = 256;
/// Batches that the thread has at most.
const IN_FLIGHT: usize = 2;

/// Pages to be written.
#[derive(Default)]
pub(crate) struct Batch {
    images: Vec<Box<PageImage>>,
    filled: usize,
}

impl Batch {
    pub(crate) fn is_full(&self) -> bool {
        self.filled == BATCH
    }

    /// The next image, which may have any contents.
    pub(crate) fn next_image(&mut self) -> &mut PageImage {
        if self.filled == self.images.len() {
            self.images.push(PageImage::zeroed());
        }
        self.filled += 1;
        &mut self.images[self.filled - 1]
    }

    fn write(&self, pool: &Pool) -> Result<()> {
        let images = &self.images[..self.filled];
        let writes: Vec<_> = images
            .iter()
            .map(|image| PageWrite { page: NodeView::from(&**image).page_id(), image })
            .collect();
        let mut results = Vec::with_capacity(writes.len());
        pool.storage().write_pages(&writes, &mut results);
        for (write, result) in writes.iter().zip(results) {
            result.map_err(|error| Error::io(format_args!("write page {}", write.page), error))?;
        }
        Ok(())
    }
}

/// See the module documentation.
pub(crate) struct BatchWriter {
    /// Dropped to end the thread.
    batches: Option<SyncSender<Batch>>,
    written: Receiver<(Batch, Result<()>)>,
    in_flight: usize,
    thread: Option<JoinHandle<()>>,
}

impl BatchWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no room for a thread.
    pub(crate) fn start(pool: &Arc<Pool>) -> Result<BatchWriter> {
        let (batches, received) = sync_channel::<Batch>(IN_FLIGHT);
        let (results, written) = sync_channel(IN_FLIGHT);
        let pool = pool.clone();
        let body = move || {
            for batch in received {
                let result = batch.write(&pool);
                // A load that has failed no longer wants to know.
                if results.send((batch, result)).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("bulk-writer".into()).spawn(body);
        let thread = thread.map_err(|error| Error::io("start the thread of a bulk load", error))?;
        Ok(BatchWriter { batches: Some(batches), written, in_flight: 0, thread: Some(thread) })
    }

    /// Begins to write a batch. Gives another one, which is empty.
    ///
    /// # Errors
    /// Of an earlier batch.
    pub(crate) fn write(&mut self, batch: Batch) -> Result<Batch> {
        if batch.filled == 0 {
            return Ok(batch);
        }
        let free = match self.in_flight {
            IN_FLIGHT.. => self.wait_for_one()?,
            _ => Batch::default(),
        };
        let sent = self.batches.as_ref().is_some_and(|batches| batches.send(batch).is_ok());
        assert!(sent, "the thread of a bulk load ends with its load");
        self.in_flight += 1;
        Ok(free)
    }

    /// Waits for all batches.
    ///
    /// # Errors
    /// The first one that could not be written.
    pub(crate) fn wait(&mut self) -> Result<()> {
        while self.in_flight > 0 {
            self.wait_for_one()?;
        }
        Ok(())
    }

    fn wait_for_one(&mut self) -> Result<Batch> {
        let (mut batch, result) =
            self.written.recv().expect("the thread of a bulk load answers each batch");
        self.in_flight -= 1;
        batch.filled = 0;
        result.map(|()| batch)
    }

    /// Waits until nothing is under way, and ends the thread.
    pub(crate) fn stop(&mut self) {
        self.batches = None;
        // The thread may wait to hand over results, which do not matter after a failure.
        while self.written.recv().is_ok() {}
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of a bulk load panicked");
        }
    }
}
