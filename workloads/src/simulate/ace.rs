//! ACE: a wrapper around any policy that writes several dirty pages at once, evicts several, and
//! reads ahead.
//!
//! Source: Papon, Athanassoulis, "ACEing the bufferpool management paradigm for modern storage
//! devices", ICDE 2023, section IV and Algorithm 1. If the victim of the policy is dirty, the
//! Writer writes the next `nw` dirty pages in the order of the policy in one request, and they stay
//! as clean pages. Without prefetching only the victim leaves; with it (`ne` above 1) the Evictor
//! drops `ne` pages and the Reader fills all but one of the frames.
//!
//! The Reader looks for sequential streams (TaP, section IV-D: four requests in a row) and
//! otherwise for pages that followed before (Figure 7: three successors of each page with weights).
//! Pages that it reads enter at the cold end of the policy.

use std::collections::{HashMap, VecDeque};

use super::pool::Page;
use super::trace::Trace;

/// Requests in a row that make a sequential stream.
const STREAM: u32 = 4;
/// Most streams in the table.
const STREAMS: usize = 128;
/// Most successors of a page.
const SUCCESSORS: usize = 3;
/// Weight that a successor must exceed to be read ahead.
const THRESHOLD: u32 = 1;

/// How the Reader predicts pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// By sequential streams, otherwise by history.
    Both,
    /// Sequential streams.
    Sequential,
    /// History.
    History,
}

/// The parameters of the wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Pages written at once.
    pub nw: usize,
    /// Pages evicted at once; 1 is without prefetching.
    pub ne: usize,
    /// How the Reader predicts pages.
    pub prefetch: Prefetch,
}

impl Settings {
    /// Parses the text after the colon: `nw=8,ne=8,prefetch=both`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut settings = Self { nw: 8, ne: 1, prefetch: Prefetch::Both };
        for parameter in text.split(',').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let number = || {
                let number = value.parse().ok().filter(|number| (1..=65_536).contains(number));
                number.ok_or_else(|| {
                    format!("ace: {key} takes a whole number from 1 to 65536, not {value:?}")
                })
            };
            match (key, value) {
                ("nw", _) => settings.nw = number()?,
                ("ne", _) => settings.ne = number()?,
                ("prefetch", "both") => settings.prefetch = Prefetch::Both,
                ("prefetch", "sequential") => settings.prefetch = Prefetch::Sequential,
                ("prefetch", "history") => settings.prefetch = Prefetch::History,
                ("prefetch", _) => {
                    return Err(format!(
                        "ace: prefetch takes both or sequential or history, not {value:?}"
                    ));
                }
                _ => {
                    return Err(format!(
                        "ace has no parameter {key:?}: known are nw, ne, prefetch"
                    ));
                }
            }
        }
        Ok(settings)
    }
}

/// Why the Writer finds few pages to write with a victim of this policy, if that is so.
pub fn limit(policy: &str) -> Option<&'static str> {
    Some(match policy {
        "filo" | "mru" => "the page that came in last leaves first, so no next victim is known",
        "lfu" => "only pages used once are next, and most pages that come in are among them",
        "lru-k" => "pages that come in with an old history, or with none, leave before all others",
        "opt" => "pages that come in with a farther next use leave before all others",
        _ => return None,
    })
}

/// The wrapper's state for one replay.
#[derive(Debug)]
pub struct Ace {
    /// Its parameters.
    pub settings: Settings,
    /// Pages that the device reads or writes in the time of one page.
    pub concurrency: usize,
    pages: HashMap<u64, Page>,
    /// The next page number of each stream, and its length; the oldest stream first.
    streams: VecDeque<(u64, u32)>,
    successors: HashMap<Page, [(Page, u32); SUCCESSORS]>,
    previous: Option<Page>,
}

impl Ace {
    /// A wrapper that has seen nothing of `trace` yet.
    pub fn new(settings: Settings, concurrency: usize, trace: &Trace) -> Self {
        let reads_ahead = settings.ne > 1;
        let numbers = trace.ids().iter().enumerate();
        Self {
            settings,
            concurrency,
            pages: match reads_ahead {
                true => numbers.map(|(page, id)| (*id, Page(page as u32))).collect(),
                false => HashMap::new(),
            },
            streams: VecDeque::new(),
            successors: HashMap::new(),
            previous: None,
        }
    }

    /// Requests to the device that `pages` pages take.
    pub fn requests(&self, pages: usize, at_once: usize) -> u64 {
        pages.div_ceil(at_once.min(self.concurrency).max(1)) as u64
    }

    /// `page` is accessed: it is a successor of the previous page.
    pub fn follow(&mut self, page: Page) {
        if self.settings.ne == 1 || self.settings.prefetch == Prefetch::Sequential {
            return;
        }
        let Some(before) = self.previous.replace(page).filter(|before| *before != page) else {
            return;
        };
        let known = self.successors.entry(before).or_insert([(page, 0); SUCCESSORS]);
        if let Some((_, weight)) =
            known.iter_mut().find(|(other, weight)| *other == page && *weight > 0)
        {
            *weight += 1;
        } else if let Some(slot) = known.iter_mut().find(|(_, weight)| *weight == 0) {
            *slot = (page, 1);
        } else if let Some((_, weight)) = known.iter_mut().min_by_key(|(_, weight)| *weight) {
            *weight -= 1;
        }
    }

    /// Pages to read together with `page`, which missed: at most `most`, none of them `cached`.
    pub fn ahead(
        &mut self,
        page: Page,
        number: u64,
        most: usize,
        cached: impl Fn(Page) -> bool,
    ) -> Vec<Page> {
        let stream = self.stream(number);
        if stream && self.settings.prefetch != Prefetch::History {
            let next = (1..=most as u64)
                .map_while(|step| number.checked_add(step))
                .filter_map(|number| self.pages.get(&number));
            return next.copied().filter(|page| !cached(*page)).collect();
        }
        let mut ahead: Vec<Page> = Vec::new();
        let mut from = page;
        while ahead.len() < most {
            let Some(known) = self.successors.get(&from) else { break };
            let likely = known.iter().filter(|(_, weight)| *weight > THRESHOLD);
            let Some((next, _)) = likely.max_by_key(|(_, weight)| *weight) else { break };
            if *next == page || ahead.contains(next) || cached(*next) {
                break;
            }
            ahead.push(*next);
            from = *next;
        }
        ahead
    }

    /// Whether the miss of page `number` continues a stream that is long enough.
    fn stream(&mut self, number: u64) -> bool {
        let known = self.streams.iter().position(|(next, _)| *next == number);
        let length =
            known.and_then(|at| self.streams.remove(at)).map_or(1, |(_, length)| length + 1);
        if self.streams.len() == STREAMS {
            self.streams.pop_front();
        }
        // The largest number has no successor.
        if let Some(next) = number.checked_add(1) {
            self.streams.push_back((next, length));
        }
        length >= STREAM
    }

    /// Pages of a stream were read ahead up to `last`: the next miss of the stream is after it.
    pub fn read_up_to(&mut self, last: u64) {
        if let Some((next, _)) = self.streams.back_mut() {
            *next = (*next).max(last.saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::registry::Spec;
    use crate::simulate::replay::{Counts, Device};

    fn run(text: &str, capacity: usize, trace: &Trace, device: Device) -> Counts {
        Spec::parse(text).unwrap().run(trace, capacity, 1, device, |_| true).unwrap()
    }

    /// Half of the accesses write, nine of ten go to a tenth of the pages (ACE, Table II: MS).
    fn mixed_skewed() -> Trace {
        let mut rng = crate::rng::Rng::new(4, 4);
        let access = move |_| {
            let hot = rng.below(10) > 0;
            let page = if hot { rng.below(200) } else { 200 + rng.below(1800) };
            (page, rng.below(2) == 0)
        };
        Trace::of("ms", (0..40_000).map(access))
    }

    #[test]
    fn it_is_chosen_around_a_policy_with_parameters_of_both() {
        let spec = Spec::parse("ace(clock:ref_at_load=0):nw=4,ne=2,prefetch=history").unwrap();
        assert_eq!(spec.entry.name, "clock");
        let expected = Settings { nw: 4, ne: 2, prefetch: Prefetch::History };
        assert_eq!(spec.ace, Some(expected));
        assert_eq!(Spec::parse("ace(lru)").unwrap().ace.unwrap().nw, 8);
        for (text, part) in [
            ("ace(lru", "closing"),
            ("ace(nothing)", "nothing"),
            ("ace(lru):nw=0", "nw"),
            ("ace(lru):x=1", "prefetch"),
            ("ace(lru):prefetch=far", "sequential"),
            ("ace(lru)nw=1", "closing"),
        ] {
            assert!(Spec::parse(text).unwrap_err().contains(part), "{text}");
        }
    }

    #[test]
    fn the_writer_writes_the_next_dirty_pages_at_once_and_keeps_them() {
        let (r, w) = (false, true);
        // LRU order 1 to 6, of which 1, 3 and 5 are dirty. 7 evicts 1, and 3 is written with it: no
        // write is left for 3 when it leaves, and 5 is written when it does.
        let accesses = [(1, w), (2, r), (3, w), (4, r), (5, w), (6, r), (7, r), (8, r), (9, r)];
        let trace = Trace::of("t", accesses);
        let device = Device { concurrency: 2, ..Device::default() };
        let counts = run("ace(lru):nw=2", 6, &trace, device);
        assert_eq!((counts.misses, counts.writes, counts.writes_at_end), (9, 2, 1));
        assert_eq!(counts.write_requests, 2);
        let plain = run("lru", 6, &trace, device);
        assert_eq!(
            (plain.misses, plain.writes, plain.writes_at_end, plain.write_requests),
            (9, 2, 1, 3)
        );
    }

    #[test]
    fn hits_stay_and_the_device_is_busy_for_less_time_the_dearer_writes_are() {
        let trace = mixed_skewed();
        let mut last = 0.0;
        for asymmetry in [1.0, 2.0, 4.0, 8.0] {
            let device = Device { asymmetry, ..Device::default() };
            for policy in ["lru", "clock", "cflru", "lru-wsr", "watt", "arc"] {
                let (plain, ace) = (
                    run(policy, 120, &trace, device),
                    run(&format!("ace({policy}):nw=8"), 120, &trace, device),
                );
                assert!(ace.misses as f64 <= plain.misses as f64 * 1.08, "{policy}");
                let speed_up = plain.device_seconds(&device) / ace.device_seconds(&device);
                assert!(speed_up > 1.0, "{policy} at {asymmetry}: {speed_up}");
                if policy == "lru" {
                    assert!(speed_up > last, "{asymmetry}: {speed_up}");
                    last = speed_up;
                }
            }
        }
        assert!((2.0..4.0).contains(&last), "{last}");
    }

    #[test]
    fn the_reader_reads_ahead_of_scans_and_along_known_ways() {
        let scan: Vec<(u64, bool)> = (0..300).map(|page| (page, page % 4 == 0)).collect();
        let trace = Trace::of("scan", scan);
        let counts = run("ace(lru):nw=8,ne=8,prefetch=sequential", 40, &trace, Device::default());
        // Only an eviction of a dirty page makes room for more than the page that missed.
        assert!(counts.misses < 250 && counts.reads == 300, "{counts:?}");
        assert_eq!(counts.read_requests, counts.misses);
        assert_eq!(run("ace(lru):nw=8", 40, &trace, Device::default()).misses, 300);
        // A way through pages without order, again and again.
        let way: Vec<(u64, bool)> =
            (0..3000u64).map(|step| ((step % 60) * 7919 % 1000, true)).collect();
        let trace = Trace::of("way", way);
        let counts = run("ace(lru):nw=8,ne=8,prefetch=history", 40, &trace, Device::default());
        assert!(counts.misses < 1500, "{counts:?}");
    }

    #[test]
    fn the_largest_page_number_has_no_successor() {
        let first = u64::MAX - 400;
        let scan = (0..=400).map(|page| (first + page, page % 4 == 0));
        let trace = Trace::of("end", scan.chain((0..60).map(|page| (page, false))));
        for prefetch in ["both", "sequential", "history"] {
            let text = format!("ace(lru):nw=8,ne=8,prefetch={prefetch}");
            assert_eq!(run(&text, 40, &trace, Device::default()).reads, 461, "{prefetch}");
        }
    }
}
