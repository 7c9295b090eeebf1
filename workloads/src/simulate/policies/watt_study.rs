//! WATT with any log lengths, dampening, aggregation and logging: for the parameter studies of
//! Figures 4 to 7 of the paper and of its tables. With the default parameters it has the values of
//! the tracker of the engine, which the policy then uses; a test compares the two.
//!
//! Source: Vöhringer, Leis, PVLDB 16(11), 2023, sections 3.1, 3.2 and 4.3.
//!
//! Parameters: `accesses` and `writes`, entries of the two logs (Figures 4 and 7); `dampening` of
//! the newest entry (Figure 6); `aggregate` of the subfrequencies (table "Aggregation Function");
//! `logging`: `both` tracks a write in both logs, `split` only in the write log, `flags` has one
//! log with a write mark for each entry ("Write-Awareness Variants").

use crate::simulate::entry::{Domain, Parameter, Setup};
use crate::simulate::pool::{Frame, PerFrame};

/// Trackers of all frames, and the values of their pages.
pub(super) trait Tracking: Send {
    /// A page came into `frame`.
    fn load(&mut self, frame: Frame, epoch: u32);
    /// The page in `frame` is read or written.
    fn track(&mut self, frame: Frame, epoch: u32, write: bool);
    /// The value of the page in `frame`.
    fn value(&mut self, frame: Frame, now: u32) -> f32;
    /// Bytes of a tracker.
    fn bytes(&self) -> f64;
}

pub const ACCESS_LOG: Parameter = Parameter {
    name: "accesses",
    default: "8",
    takes: Domain::Whole(1, 64),
    about: "entries of the access log",
};
pub const WRITE_LOG: Parameter = Parameter {
    name: "writes",
    default: "4",
    takes: Domain::Whole(0, 64),
    about: "entries of the write log",
};
pub const DAMPENING: Parameter = Parameter {
    name: "dampening",
    default: "0.1",
    takes: Domain::Number(0.0, 16.0),
    about: "factor of the newest entry",
};
pub const AGGREGATE: Parameter = Parameter {
    name: "aggregate",
    default: "max",
    takes: Domain::Word(&["max", "min", "average", "median"]),
    about: "how subfrequencies become a value",
};
pub const LOGGING: Parameter = Parameter {
    name: "logging",
    default: "both",
    takes: Domain::Word(&["both", "split", "flags"]),
    about: "where a write is tracked",
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Aggregate {
    Max,
    Min,
    Average,
    Median,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Logging {
    Both,
    Split,
    Flags,
}

/// Logs of one frame, newest first.
#[derive(Debug, Default)]
struct Logs {
    /// Epochs, and whether there was a write in them.
    accesses: Vec<(u32, bool)>,
    writes: Vec<u32>,
}

/// Tracking with any parameters.
pub struct Study {
    logs: PerFrame<Logs>,
    accesses: usize,
    writes: usize,
    dampening: f32,
    aggregate: Aggregate,
    logging: Logging,
    write_weight: f32,
    scratch: Vec<f32>,
}

impl Study {
    /// For parameters that the engine's tracker does not have; `None` for those that it has.
    pub fn new(setup: &Setup) -> Option<Self> {
        let parameters = [ACCESS_LOG, WRITE_LOG, DAMPENING, AGGREGATE, LOGGING];
        let same = |known: &Parameter| match known.takes {
            Domain::Word(_) => setup.word(known.name) == known.default,
            _ => Ok(setup.number(known.name)) == known.default.parse(),
        };
        (!parameters.iter().all(same)).then(|| Self::any(setup))
    }

    fn any(setup: &Setup) -> Self {
        Self {
            logs: PerFrame::new(setup.capacity, Logs::default),
            accesses: setup.whole("accesses"),
            writes: setup.whole("writes"),
            dampening: setup.number("dampening") as f32,
            aggregate: match setup.word("aggregate") {
                "min" => Aggregate::Min,
                "average" => Aggregate::Average,
                "median" => Aggregate::Median,
                _ => Aggregate::Max,
            },
            logging: match setup.word("logging") {
                "split" => Logging::Split,
                "flags" => Logging::Flags,
                _ => Logging::Both,
            },
            write_weight: setup.number("write_weight") as f32,
            scratch: Vec::new(),
        }
    }

    /// The value of a log, given as its epochs from the newest on (equations 1 and 2).
    fn of_log(&mut self, epochs: impl Iterator<Item = u32>, now: u32) -> f32 {
        let frequencies = epochs.enumerate().map(|(index, epoch)| {
            let order = if index == 0 { self.dampening } else { (index + 1) as f32 };
            order / now.wrapping_sub(epoch) as f32
        });
        self.scratch.clear();
        self.scratch.extend(frequencies);
        let all = &mut self.scratch;
        if all.is_empty() {
            return 0.0;
        }
        match self.aggregate {
            Aggregate::Max => all.iter().copied().fold(0.0, f32::max),
            Aggregate::Min => all.iter().copied().fold(f32::INFINITY, f32::min),
            Aggregate::Average => all.iter().sum::<f32>() / all.len() as f32,
            Aggregate::Median => {
                all.sort_by(f32::total_cmp);
                (all[(all.len() - 1) / 2] + all[all.len() / 2]) / 2.0
            }
        }
    }
}

impl Tracking for Study {
    fn load(&mut self, frame: Frame, _: u32) {
        let logs = &mut self.logs[frame];
        logs.accesses.clear();
        logs.writes.clear();
    }

    fn track(&mut self, frame: Frame, epoch: u32, write: bool) {
        let logs = &mut self.logs[frame];
        if !(write && self.logging == Logging::Split) {
            match logs.accesses.first_mut() {
                Some((newest, written)) if *newest == epoch => *written |= write,
                _ => {
                    logs.accesses.insert(0, (epoch, write));
                    logs.accesses.truncate(self.accesses);
                }
            }
        }
        if write && logs.writes.first() != Some(&epoch) {
            logs.writes.insert(0, epoch);
            logs.writes.truncate(self.writes);
        }
    }

    fn value(&mut self, frame: Frame, now: u32) -> f32 {
        let logs = std::mem::take(&mut self.logs[frame]);
        let access = self.of_log(logs.accesses.iter().map(|(epoch, _)| *epoch), now);
        let write = match self.logging {
            _ if self.write_weight == 0.0 => 0.0,
            Logging::Flags => {
                let written = logs.accesses.iter().filter(|(_, written)| *written);
                self.of_log(written.map(|(epoch, _)| *epoch), now)
            }
            Logging::Both | Logging::Split => self.of_log(logs.writes.iter().copied(), now),
        };
        self.logs[frame] = logs;
        access + self.write_weight * write
    }

    fn bytes(&self) -> f64 {
        match self.logging {
            Logging::Flags => 4.125 * self.accesses as f64 + 1.0,
            _ => 4.0 * (self.accesses + self.writes) as f64 + 2.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::simulate::registry::Spec;
    use crate::simulate::replay::Device;
    use crate::simulate::trace::Trace;
    use wattle_buffer::replacement::{FIRST_EPOCH, Replacement, Tracker, Visit, Watt as Engine};
    use wattle_buffer::{FrameId, PageId};

    fn study(text: &str) -> Study {
        let (spec, trace) = (Spec::parse(text).unwrap(), Trace::of("t", [(0, false)]));
        let device = Device::default();
        Study::any(&Setup {
            trace: &trace,
            capacity: 1,
            seed: 1,
            device,
            parameters: spec.entry.parameters,
            values: &spec.values,
        })
    }

    /// Accesses at epochs 0, 8, 15 and 42, and the value at 50 (the example of section 3.1).
    fn example(text: &str) -> f32 {
        let mut study = study(text);
        for epoch in [0, 8, 15, 42] {
            study.track(Frame(0), FIRST_EPOCH + epoch, false);
        }
        study.value(Frame(0), FIRST_EPOCH + 50)
    }

    #[test]
    fn the_example_of_the_paper_comes_out() {
        let close = |value: f32, expected: f32| assert!((value - expected).abs() < 1e-6, "{value}");
        close(example("watt:dampening=1"), 1.0 / 8.0);
        close(example("watt"), 4.0 / 50.0);
        close(example("watt:dampening=1,aggregate=min"), 2.0 / 35.0);
        let all = [1.0 / 8.0, 2.0 / 35.0, 3.0 / 42.0, 4.0 / 50.0];
        close(example("watt:dampening=1,aggregate=average"), all.iter().sum::<f32>() / 4.0);
        close(example("watt:dampening=1,aggregate=median"), (3.0 / 42.0 + 4.0 / 50.0) / 2.0);
        close(example("watt:accesses=3"), 3.0 / 42.0);
    }

    #[test]
    fn default_parameters_give_the_values_of_the_engine() {
        let (mut study, mut rng) = (study("watt"), Rng::new(3, 3));
        for _ in 0..200 {
            let (engine, tracker) = (Engine::default(), Tracker::default());
            let mut epoch = FIRST_EPOCH;
            study.load(Frame(0), epoch);
            let visit = |epoch| Visit { frame: FrameId(0), tracker: &tracker, epoch, page: None };
            engine.on_load(visit(epoch), PageId(0));
            study.track(Frame(0), epoch, false);
            for _ in 0..rng.below(30) {
                epoch += rng.below(20) as u32;
                let write = rng.below(3) == 0;
                study.track(Frame(0), epoch, write);
                if write { engine.on_write(visit(epoch)) } else { engine.on_access(visit(epoch)) }
            }
            let now = epoch + 1 + rng.below(100) as u32;
            let (ours, theirs) = (study.value(Frame(0), now), engine.value(&tracker, now));
            // An empty entry of the engine's log counts as one of 2^30 epochs ago.
            assert!((ours - theirs).abs() < 1e-6, "{ours} {theirs}");
        }
    }

    #[test]
    fn writes_are_tracked_where_the_variant_says() {
        let value = |text: &str| {
            let mut study = study(text);
            study.track(Frame(0), FIRST_EPOCH, true);
            study.track(Frame(0), FIRST_EPOCH + 10, false);
            study.value(Frame(0), FIRST_EPOCH + 20)
        };
        // Accesses: 0.1 / 10 and 2 / 20. Writes: 0.1 / 20.
        assert!((value("watt") - (0.1 + 4.0 * 0.005)).abs() < 1e-6);
        assert!((value("watt:logging=flags") - (0.1 + 4.0 * 0.005)).abs() < 1e-6);
        assert!((value("watt:logging=split") - (0.01 + 4.0 * 0.005)).abs() < 1e-6);
        assert!((value("watt:write_weight=0") - 0.1).abs() < 1e-6);
    }
}
