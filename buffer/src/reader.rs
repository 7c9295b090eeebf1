//! ACE's Reader: predicts which pages will be read after a page that was missed (ICDE 2023, section
//! IV-D), for [`Ace::Full`](crate::Ace).
//!
//! Two predictors, as in the paper. TaP: four misses in a row make a sequential stream, and the
//! next n_e - 1 pages are read. Otherwise the history: each page has up to three successors with
//! weights (Figure 7), and the most probable chain of n_e - 1 pages is read, while weights are
//! above the threshold.
//!
//! This differs from the paper: pages of a tree are found through their parents only, so a place is
//! a parent and a position in it, and a stream runs along the children of one parent, in the order
//! of keys instead of addresses. Hits are not recorded, because they must cost nothing; so the
//! history has misses only.
//!
//! A prediction is a hint about racy places. The tree checks, under the version of the parent, that
//! the parent is still an inner node in a tree and that the page is still evicted there; the
//! in-flight table then lets one operation read it. Predicted pages begin with an empty tracker,
//! and an evictor that samples one that no operation came for reclaims it: the cold end.

use crate::{
    counters::Counters,
    ids::{FrameId, PageId},
    sync::Mutex,
};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// Misses in a row that make a stream.
const STREAM: u32 = 4;
/// Most streams in the table; the oldest goes first.
const STREAMS: usize = 128;
/// Most successors of a page.
const SUCCESSORS: usize = 3;
/// Weight that a successor must exceed.
const THRESHOLD: u32 = 1;
/// Pages with successors, for each frame of the pool. When the table is full it is emptied.
const ROWS: usize = 8;

/// Where a tree leads to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Frame of the parent.
    pub parent: FrameId,
    /// Position of the child in it.
    pub position: usize,
    /// The page, if it is known.
    pub page: Option<PageId>,
}

#[derive(Default)]
struct Tables {
    /// Parent, position of the next miss, and length of each stream; the oldest first.
    streams: VecDeque<(FrameId, usize, u32)>,
    successors: HashMap<PageId, [(Place, u32); SUCCESSORS]>,
    previous: Option<PageId>,
}

/// See the module documentation.
pub struct Reader {
    tables: Mutex<Tables>,
    /// Pages read beside the one that was missed: n_e - 1.
    ahead: usize,
    rows: usize,
    /// Written under the lock of the tables.
    counters: Arc<Counters>,
}

impl Reader {
    pub(crate) fn new(n_e: usize, frames: usize, counters: Arc<Counters>) -> Reader {
        let (ahead, rows) = (n_e.saturating_sub(1), ROWS * frames);
        Reader { tables: Mutex::default(), ahead, rows, counters }
    }

    pub(crate) fn count_read(&self) {
        let _tables = self.tables.lock();
        self.counters.pages_read.add(1);
        self.counters.pages_read_ahead.add(1);
    }

    /// `page` at `position` of `parent` was missed: places of pages to read with it.
    pub fn predict(&self, parent: FrameId, position: usize, page: PageId) -> Vec<Place> {
        let mut tables = self.tables.lock();
        tables.follow(Place { parent, position, page: Some(page) }, page, self.rows);
        if tables.is_stream(parent, position, self.ahead) {
            let next = (1..=self.ahead).map(|step| position + step);
            return next.map(|position| Place { parent, position, page: None }).collect();
        }
        tables.chain(page, self.ahead)
    }
}

impl Tables {
    /// `page` is a successor of the previous miss.
    fn follow(&mut self, place: Place, page: PageId, rows: usize) {
        let Some(before) = self.previous.replace(page).filter(|before| *before != page) else {
            return;
        };
        if self.successors.len() >= rows {
            self.successors.clear();
        }
        let known = self.successors.entry(before).or_insert([(place, 0); SUCCESSORS]);
        let same = |(other, weight): &&mut (Place, u32)| other.page == place.page && *weight > 0;
        if let Some((other, weight)) = known.iter_mut().find(same) {
            // The page may have another parent by now.
            (*other, *weight) = (place, *weight + 1);
        } else if let Some(slot) = known.iter_mut().find(|(_, weight)| *weight == 0) {
            *slot = (place, 1);
        } else if let Some((_, weight)) = known.iter_mut().min_by_key(|(_, weight)| *weight) {
            *weight -= 1;
        }
    }

    /// Whether the miss continues a stream that is long enough. The pages that are read ahead then
    /// are no misses, so the stream goes on after them.
    fn is_stream(&mut self, parent: FrameId, position: usize, ahead: usize) -> bool {
        let known = self.streams.iter().position(|(frame, next, _)| {
            *frame == parent && (*next == position || *next + ahead == position)
        });
        let length = known.and_then(|at| self.streams.remove(at)).map_or(1, |(_, _, n)| n + 1);
        if self.streams.len() == STREAMS {
            self.streams.pop_front();
        }
        self.streams.push_back((parent, position + 1, length));
        length >= STREAM
    }

    /// The most probable pages after `page`.
    fn chain(&self, page: PageId, most: usize) -> Vec<Place> {
        let mut chain: Vec<Place> = Vec::new();
        let mut from = page;
        while chain.len() < most {
            let Some(known) = self.successors.get(&from) else { break };
            let likely = known.iter().filter(|(_, weight)| *weight > THRESHOLD);
            let Some((next, _)) = likely.max_by_key(|(_, weight)| *weight) else { break };
            let Some(id) = next.page.filter(|id| *id != page && !chain.contains(next)) else {
                break;
            };
            chain.push(*next);
            from = id;
        }
        chain
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_miss_in_a_row_asks_for_the_next_children() {
        let reader = Reader::new(4, 100, Arc::default());
        for position in 10..13 {
            assert!(reader.predict(FrameId(1), position, PageId(position as u64)).is_empty());
        }
        let positions = |places: Vec<Place>| -> Vec<usize> {
            places.into_iter().map(|place| place.position).collect()
        };
        assert_eq!(positions(reader.predict(FrameId(1), 13, PageId(13))), [14, 15, 16]);
        // These are no misses; the next one continues the stream.
        assert_eq!(positions(reader.predict(FrameId(1), 17, PageId(17))), [18, 19, 20]);
        // Another parent is another stream.
        assert!(reader.predict(FrameId(2), 21, PageId(21)).is_empty());
    }

    #[test]
    fn a_way_that_was_gone_twice_is_predicted() {
        let reader = Reader::new(3, 100, Arc::default());
        let way = [(4, 9), (2, 3), (7, 1), (5, 5)];
        let mut last = Vec::new();
        for _ in 0..3 {
            for (frame, position) in way {
                let page = PageId(u64::from(frame) * 100);
                last.push(reader.predict(FrameId(frame), position, page));
            }
        }
        assert!(last[..8].iter().all(Vec::is_empty), "a way is known after its second time");
        let pages = |places: &[Place]| -> Vec<u64> {
            places.iter().filter_map(|place| place.page).map(|page| page.0).collect()
        };
        assert_eq!(pages(&last[8]), [200, 700]);
        assert_eq!(pages(&last[9]), [700, 500]);
    }
}
