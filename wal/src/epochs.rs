//! The epochs of the log: the current one, that of the last checkpoint, and the last durable one,
//! with its mark and flush.
//!
//! Invariants: the epoch advances only under the lock of the flush requests, by the flusher or by a
//! failure that ends the log; `durable` is below `current` and ascends; the mark and the flush
//! number of an epoch are stored before it becomes durable.

use crate::{
    classes::{CLASSES, Classes},
    gsn::{GSN_COUNTER_BITS, epoch_of},
    position::LogStart,
};
use std::sync::atomic::{AtomicU64, Ordering};
use wattle_buffer::Gsn;

/// A consistent cut through all buffers.
pub(crate) struct Cut {
    /// The cut has all records up to this epoch.
    pub epoch: u64,
    /// A checkpoint begins after the cut, for these classes of pages.
    pub checkpoint: Classes,
}

/// See the module documentation.
pub(crate) struct Epochs {
    current: AtomicU64,
    /// A page of the class that was last changed in an epoch below needs its image in the log; 0
    /// without images.
    images: [AtomicU64; CLASSES],
    /// The largest of them.
    newest_image: AtomicU64,
    page_images: bool,
    /// Epoch that the last checkpoint began, with images or without.
    checkpoint: AtomicU64,
    durable: AtomicU64,
    durable_flush: AtomicU64,
    durable_mark: AtomicU64,
    /// The largest GSN whose counter is about to overflow into the epoch bits; 0: there is none.
    running_over: AtomicU64,
}

impl Epochs {
    pub(crate) fn new(start: &LogStart, page_images: bool) -> Epochs {
        let image = if page_images { start.image_epoch } else { 0 };
        Epochs {
            current: AtomicU64::new(start.epoch),
            images: std::array::from_fn(|_| AtomicU64::new(image)),
            newest_image: AtomicU64::new(image),
            page_images,
            checkpoint: AtomicU64::new(start.image_epoch),
            durable: AtomicU64::new(start.epoch - 1),
            durable_flush: AtomicU64::new(start.flush - 1),
            durable_mark: AtomicU64::new(0),
            running_over: AtomicU64::new(0),
        }
    }

    /// The current epoch. Acquire pairs with the release in [`Epochs::advance`]: a reader of an
    /// epoch also reads the image epoch that was set before it.
    #[inline]
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    /// The current epoch, for comparisons that order nothing.
    #[inline]
    pub(crate) fn current_relaxed(&self) -> u64 {
        self.current.load(Ordering::Relaxed)
    }

    /// The largest image epoch of a class, read after [`Epochs::current`].
    #[inline]
    pub(crate) fn newest_image(&self) -> u64 {
        self.newest_image.load(Ordering::Relaxed)
    }

    /// The image epoch of a class, read after [`Epochs::current`].
    #[inline]
    pub(crate) fn image(&self, class: usize) -> u64 {
        self.images[class].load(Ordering::Relaxed)
    }

    /// Whether there are images.
    pub(crate) fn has_images(&self) -> bool {
        self.page_images
    }

    /// Epoch that the last checkpoint began.
    pub(crate) fn checkpoint(&self) -> u64 {
        self.checkpoint.load(Ordering::Relaxed)
    }

    /// All records of this epoch and of the epochs before are durable.
    #[inline]
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Whether that is so of `epoch`, for a request that orders nothing.
    #[inline]
    pub(crate) fn is_durable(&self, epoch: u64) -> bool {
        self.durable.load(Ordering::Relaxed) >= epoch
    }

    pub(crate) fn durable_flush(&self) -> u64 {
        self.durable_flush.load(Ordering::Acquire)
    }

    pub(crate) fn durable_mark(&self) -> u64 {
        self.durable_mark.load(Ordering::Acquire)
    }

    /// Whether the mark is older than `now`: the last flush took the records of a time that was
    /// drawn after the flusher had asked the clock.
    pub(crate) fn is_mark_before(&self, now: u64) -> bool {
        self.durable_mark.load(Ordering::Relaxed) < now
    }

    /// The next cut skips an epoch, so that the counter of `gsn` cannot run into an epoch that is
    /// used.
    pub(crate) fn skip_one_after(&self, gsn: Gsn) {
        self.running_over.fetch_max(gsn.0, Ordering::Relaxed);
    }

    /// Advances the epoch: sections that begin from now on are after the cut. The caller holds the
    /// lock of the flush requests.
    pub(crate) fn advance(&self, checkpoint: Classes) -> Cut {
        let current = self.current_relaxed();
        let over = self.running_over.swap(0, Ordering::Relaxed);
        let next = if over == 0 { current + 1 } else { (epoch_of(Gsn(over)) + 2).max(current + 1) };
        assert!(next >> (u64::BITS - GSN_COUNTER_BITS) == 0, "epoch {next} does not fit a GSN");
        if !checkpoint.is_empty() {
            self.checkpoint.store(next, Ordering::Relaxed);
            if self.page_images {
                // Before the epoch: a reader of the new epoch then reads these, too.
                let classes = self.images.iter().enumerate();
                let begun = classes.filter(|(class, _)| checkpoint.has(*class));
                begun.for_each(|(_, image)| image.store(next, Ordering::Relaxed));
                self.newest_image.store(next, Ordering::Relaxed);
            }
        }
        self.current.store(next, Ordering::Release);
        Cut { epoch: next - 1, checkpoint }
    }

    /// Ends the last epoch of a log that failed, and gives it: records up to it may be durable or
    /// not, records of later epochs are not. The caller holds the lock of the flush requests.
    pub(crate) fn end_last(&self) -> u64 {
        self.current.fetch_add(1, Ordering::Release)
    }

    /// A flush is synced.
    pub(crate) fn flush_is_durable(&self, flush: u64) {
        self.durable_flush.store(flush, Ordering::Release);
    }

    /// Raises the mark. It never falls: a time that is after one cut can be before the next.
    pub(crate) fn raise_mark(&self, mark: u64) {
        self.durable_mark.fetch_max(mark, Ordering::AcqRel);
    }

    /// Everything up to `epoch` is durable. Gives the epoch that was before.
    pub(crate) fn publish(&self, epoch: u64) -> u64 {
        let before = self.durable.swap(epoch, Ordering::Release);
        assert!(before <= epoch, "epoch {epoch} became durable after epoch {before}");
        before
    }
}

#[cfg(test)]
mod tests {
    use super::{Classes, Cut, Epochs};
    use crate::{gsn::GSN_COUNTER_BITS, position::LogStart};
    use wattle_buffer::Gsn;

    #[test]
    fn a_checkpoint_raises_the_image_epoch_with_the_epoch() {
        for images in [true, false] {
            let epochs = Epochs::new(&LogStart { epoch: 7, ..LogStart::default() }, images);
            let Cut { epoch, checkpoint } = epochs.advance(Classes::NONE);
            assert_eq!((epoch, checkpoint, epochs.image(3)), (7, Classes::NONE, u64::from(images)));
            let Cut { epoch, checkpoint } = epochs.advance(Classes::range(3, 5));
            assert_eq!((epoch, checkpoint, epochs.current()), (8, Classes::range(3, 5), 9));
            assert_eq!(epochs.checkpoint(), 9);
            let expected = |class| match (images, class) {
                (true, 3 | 4) => 9,
                _ => u64::from(images),
            };
            assert!((0..16).all(|class| epochs.image(class) == expected(class)));
            assert_eq!(epochs.newest_image(), expected(3));
        }
    }

    #[test]
    fn a_counter_that_runs_over_makes_the_next_cut_skip_an_epoch() {
        let epochs = Epochs::new(&LogStart::default(), true);
        epochs.skip_one_after(Gsn((1 << GSN_COUNTER_BITS) + (1 << (GSN_COUNTER_BITS - 1))));
        assert_eq!(epochs.advance(Classes::NONE).epoch, 2);
        assert_eq!(epochs.advance(Classes::NONE).epoch, 3);
        // A page of a later epoch asks for the same.
        epochs.skip_one_after(Gsn(90 << GSN_COUNTER_BITS));
        assert_eq!(epochs.advance(Classes::NONE).epoch, 91);
    }

    #[test]
    #[should_panic(expected = "became durable after")]
    fn durable_epochs_ascend() {
        let epochs = Epochs::new(&LogStart { epoch: 5, ..LogStart::default() }, true);
        epochs.publish(3);
    }
}
