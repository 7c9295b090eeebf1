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

/// See the module documentation.
pub(crate) struct SegmentReserve {
    /// Ascending, without gaps; ends before `next`.
    ready: VecDeque<u64>,
    /// Number of the next one to make.
    next: u64,
    /// How many the flusher leaves while the log is not full.
    size: usize,
    progress: FlusherProgress,
}

impl SegmentReserve {
    /// The segment `first` is made.
    pub(crate) fn new(first: u64) -> SegmentReserve {
        let ready = VecDeque::from([first]);
        SegmentReserve { ready, next: first + 1, size: 0, progress: FlusherProgress::Nothing }
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
    pub(crate) fn take(&mut self) -> Option<u64> {
        let number = self.ready.pop_front()?;
        self.progress = self.progress.max(FlusherProgress::Begun);
        Some(number)
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
    pub(crate) fn made(&mut self, number: u64) {
        assert!(number == self.next, "segment {number} was made instead of {}", self.next);
        self.ready.push_back(number);
        self.next = number + 1;
    }

    /// Number of the segment that the flusher enters next.
    pub(crate) fn first(&self) -> u64 {
        self.ready.front().copied().unwrap_or(self.next)
    }

    /// Takes out the last one, when the log ends.
    pub(crate) fn take_last(&mut self) -> Option<u64> {
        self.ready.pop_back()
    }
}

#[cfg(test)]
mod tests {
    use super::SegmentReserve;

    #[test]
    fn the_flusher_leaves_the_reserve_but_for_the_first_segment() {
        let mut reserve = SegmentReserve::new(7);
        assert!(reserve.resize(2) && !reserve.resize(2));
        assert!(reserve.next_is_ready() && !reserve.is_begun() && !reserve.is_whole());
        assert!(reserve.is_short() && !reserve.is_due(), "it is made after the first flush");
        assert_eq!((reserve.take(), reserve.take(), reserve.first()), (Some(7), None, 8));
        assert!(reserve.flushed() && !reserve.flushed() && reserve.is_due());
        reserve.made(8);
        reserve.made(9);
        assert!(!reserve.is_short() && reserve.is_whole() && !reserve.next_is_ready());
        reserve.made(10);
        assert!(reserve.next_is_ready());
        assert_eq!((reserve.first(), reserve.next()), (8, 11));
        assert!(reserve.resize(3) && !reserve.next_is_ready());
        assert_eq!((reserve.take(), reserve.take_last(), reserve.first()), (Some(8), Some(10), 9));
    }
}
