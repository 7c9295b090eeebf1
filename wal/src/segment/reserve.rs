//! Segments that are made and not yet in use: the next one, and the reserve for a full log.

use std::collections::VecDeque;

/// Progress of the flusher since the log was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FlusherProgress {
    /// It has taken no segment.
    Nothing,
    /// It has taken one.
    Begun,
    /// A flush is durable. From now on a missing reserve is made.
    Flushed,
}

/// A segment that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MadeSegment {
    pub number: u64,
    pub bytes: u64,
}

/// See the module documentation.
pub(crate) struct SegmentReserve {
    /// Ascending, without gaps; ends before `next`.
    ready: VecDeque<MadeSegment>,
    /// Number of the next one to make.
    next: u64,
    /// How many the flusher leaves while the log is not full.
    size: usize,
    progress: FlusherProgress,
}

impl SegmentReserve {
    /// The segment `first` is the next one to make.
    pub(crate) fn new(first: u64) -> SegmentReserve {
        let (ready, progress) = (VecDeque::new(), FlusherProgress::Nothing);
        SegmentReserve { ready, next: first, size: 0, progress }
    }

    /// Sets how many segments the flusher leaves. Gives whether that changed.
    pub(crate) fn resize(&mut self, size: usize) -> bool {
        std::mem::replace(&mut self.size, size) != size
    }

    /// Whether the flusher can have a segment although the log is not full: the first one, and
    /// later the segments beyond the reserve.
    pub(crate) fn next_is_ready(&self) -> bool {
        self.ready.len() > if self.progress == FlusherProgress::Nothing { 0 } else { self.size }
    }

    /// Whether at least the reserve is there, and one segment in any case.
    pub(crate) fn is_whole(&self) -> bool {
        self.ready.len() >= self.size.max(1)
    }

    /// Whether the reserve lacks a segment.
    pub(crate) fn is_short(&self) -> bool {
        self.ready.len() < self.size
    }

    /// Whether it does, and is made now.
    pub(crate) fn is_due(&self) -> bool {
        self.progress == FlusherProgress::Flushed && self.is_short()
    }

    /// The flusher takes the first one, if there is one.
    pub(crate) fn take(&mut self) -> Option<MadeSegment> {
        let made = self.ready.pop_front()?;
        self.progress = self.progress.max(FlusherProgress::Begun);
        Some(made)
    }

    /// A flush is durable. Gives whether it is the first one.
    pub(crate) fn flushed(&mut self) -> bool {
        assert!(self.progress != FlusherProgress::Nothing, "a flush without a segment");
        std::mem::replace(&mut self.progress, FlusherProgress::Flushed) == FlusherProgress::Begun
    }

    /// Whether the flusher has taken a segment.
    pub(crate) fn is_begun(&self) -> bool {
        self.progress != FlusherProgress::Nothing
    }

    /// Number of the next segment to make.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// That segment is made.
    pub(crate) fn made(&mut self, made: MadeSegment) {
        let number = made.number;
        assert!(number == self.next, "segment {number} was made instead of {}", self.next);
        self.ready.push_back(made);
        self.next = number + 1;
    }

    /// Number of the segment that the flusher enters next.
    pub(crate) fn first(&self) -> u64 {
        self.ready.front().map_or(self.next, |made| made.number)
    }

    /// Takes out the last one, when the log ends. It is the next one to make again.
    pub(crate) fn take_last(&mut self) -> Option<u64> {
        let last = self.ready.pop_back()?;
        self.next = last.number;
        Some(last.number)
    }
}

#[cfg(test)]
mod tests {
    use super::{MadeSegment, SegmentReserve};

    fn made(number: u64) -> MadeSegment {
        MadeSegment { number, bytes: 4096 * number }
    }

    #[test]
    fn the_flusher_leaves_the_reserve_but_for_the_first_segment() {
        let mut reserve = SegmentReserve::new(7);
        assert!(!reserve.next_is_ready() && (reserve.first(), reserve.next()) == (7, 7));
        reserve.made(made(7));
        assert!(reserve.resize(2) && !reserve.resize(2));
        assert!(reserve.next_is_ready() && !reserve.is_begun() && !reserve.is_whole());
        assert!(reserve.is_short() && !reserve.is_due(), "it is made after the first flush");
        assert_eq!((reserve.take(), reserve.take(), reserve.first()), (Some(made(7)), None, 8));
        assert!(reserve.flushed() && !reserve.flushed() && reserve.is_due());
        reserve.made(made(8));
        reserve.made(made(9));
        assert!(!reserve.is_short() && reserve.is_whole() && !reserve.next_is_ready());
        reserve.made(made(10));
        assert!(reserve.next_is_ready());
        assert_eq!((reserve.first(), reserve.next()), (8, 11));
        assert!(reserve.resize(3) && !reserve.next_is_ready());
        assert_eq!((reserve.take(), reserve.take_last()), (Some(made(8)), Some(10)));
        assert_eq!((reserve.first(), reserve.next()), (9, 10));
    }
}
