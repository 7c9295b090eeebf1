//! The segments whose head is durable, and which of them the log still needs.

use super::reserve::MadeSegment;

/// A segment with a durable head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownSegment {
    pub number: u64,
    pub bytes: u64,
    /// All records in segments before it have this epoch or a smaller one.
    pub epoch_before: u64,
    /// This process wrote all of it: each sector is in the current format, and was synced.
    pub passes_on: bool,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct SegmentTable {
    /// Ascending.
    known: Vec<KnownSegment>,
    /// The segment that the flusher has entered and whose head is not known to be durable.
    entering: Option<MadeSegment>,
    /// Segments below are no longer needed.
    keep: u64,
}

impl SegmentTable {
    /// Adds a segment that an earlier process wrote.
    pub(crate) fn found(&mut self, number: u64, bytes: u64, epoch_before: u64) {
        self.push(KnownSegment { number, bytes, epoch_before, passes_on: false });
    }

    /// The flusher enters a segment.
    pub(crate) fn enter(&mut self, made: MadeSegment) {
        let number = made.number;
        assert!(self.entering.is_none(), "the head of the segment before {number} is not durable");
        self.entering = Some(made);
    }

    /// The head of the segment that was entered last is durable.
    pub(crate) fn entered(&mut self, number: u64, epoch_before: u64) {
        let entering = self.entering.take();
        let Some(MadeSegment { bytes, .. }) = entering.filter(|made| made.number == number) else {
            panic!("segment {number} was not entered, but {entering:?}");
        };
        self.push(KnownSegment { number, bytes, epoch_before, passes_on: true });
    }

    fn push(&mut self, segment: KnownSegment) {
        let last = self.known.last().map_or(0, |last| last.number);
        assert!(segment.number > last, "segment {} after segment {last}", segment.number);
        self.known.push(segment);
    }

    /// The segment in which reading must begin to see all records of `epoch` and later ones; `None`
    /// if the log has no segment in use.
    pub(crate) fn first_for(&self, epoch: u64) -> Option<u64> {
        let found = self.known.iter().rev().find(|known| known.epoch_before < epoch);
        found
            .or(self.known.first())
            .map(|known| known.number)
            .or(self.entering.map(|made| made.number))
    }

    /// Segments below `segment` are no longer needed.
    pub(crate) fn keep_from(&mut self, segment: u64) {
        self.keep = self.keep.max(segment);
    }

    /// The oldest segment, if it is no longer needed. The last segment always stays.
    pub(crate) fn unneeded(&self) -> Option<KnownSegment> {
        let (first, _) = (self.known.first()?, self.known.get(1)?);
        (first.number < self.keep).then_some(*first)
    }

    /// A segment was retired.
    pub(crate) fn retired(&mut self, number: u64) {
        self.known.retain(|known| known.number != number);
    }

    /// A segment could not be retired: all stay until the next truncation.
    pub(crate) fn keep_all(&mut self) {
        self.keep = 0;
    }

    /// Numbers of the segments that are needed.
    pub(crate) fn needed(&self) -> Vec<u64> {
        let numbers = self.known.iter().map(|known| known.number);
        numbers.filter(|number| *number >= self.keep).collect()
    }

    pub(crate) fn oldest(&self) -> Option<u64> {
        self.known.first().map(|known| known.number)
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.known.iter().map(|known| known.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{MadeSegment, SegmentTable};

    #[test]
    fn reading_begins_in_the_last_segment_that_has_all_records_of_an_epoch() {
        let mut table = SegmentTable::default();
        assert_eq!((table.first_for(1), table.oldest()), (None, None));
        table.enter(MadeSegment { number: 4, bytes: 4096 });
        assert_eq!(table.first_for(1), Some(4));
        table.entered(4, 0);
        for (number, epoch_before) in [(5, 10), (6, 10), (7, 20)] {
            table.enter(MadeSegment { number, bytes: 8192 });
            table.entered(number, epoch_before);
        }
        for (epoch, first) in [(0, 4), (1, 4), (10, 4), (11, 6), (20, 6), (21, 7), (900, 7)] {
            assert_eq!(table.first_for(epoch), Some(first), "epoch {epoch}");
        }
    }

    #[test]
    fn the_last_segment_is_always_needed() {
        let mut table = SegmentTable::default();
        table.found(1, 4096, 0);
        table.keep_from(9);
        assert_eq!(table.unneeded(), None);
        table.found(2, 4096, 5);
        assert_eq!(table.unneeded().map(|known| known.number), Some(1));
        table.retired(1);
        assert_eq!((table.unneeded(), table.oldest(), table.len()), (None, Some(2), 1));
        table.found(12, 4096, 7);
        assert_eq!(table.needed(), [12]);
        table.keep_all();
        assert_eq!((table.unneeded(), table.needed()), (None, vec![2, 12]));
    }
}
