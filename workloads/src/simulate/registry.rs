//! The policies by name, with their parameters, and how a policy is chosen on the command line:
//! `name` or `name:key=value,key=value`.

use super::ace::{self, Ace};
use super::entry::{PolicyEntry, Setup};
use super::live;
use super::pins::Pins;
use super::policies::ALL;
use super::policy::Policy;
use super::replay::{Counts, Device, IoSink, Replay, run};
use super::trace::Trace;

/// A policy with its parameters, as chosen.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The text that it was parsed from.
    pub text: String,
    /// The policy.
    pub entry: &'static PolicyEntry,
    /// The parameters of ACE, if it is around the policy.
    pub ace: Option<ace::Settings>,
    /// Share of the pages that cannot leave, see [`Pins`].
    pub pinned: f64,
    pub(super) values: Vec<(&'static str, String)>,
}

/// Names of all policies.
pub fn names() -> String {
    ALL.iter().map(|entry| entry.name).collect::<Vec<_>>().join(" ")
}

impl Spec {
    /// Reads `name`, `name:key=value,..` or `live(..)` for a policy of the engine, alone or as
    /// `ace(..)` or `ace(..):key=value,..`. The error is a sentence that lists the known names.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(wrapped) = text.strip_prefix("ace(") else { return Self::parse_plain(text) };
        let parts =
            wrapped.rsplit_once(')').filter(|(_, rest)| rest.is_empty() || rest.starts_with(':'));
        let Some((inner, rest)) = parts else {
            return Err(format!(
                "{text:?} has no closing bracket before its parameters; write ace(POLICY):nw=8,ne=8"
            ));
        };
        let ace = Some(ace::Settings::parse(rest.trim_start_matches(':'))?);
        Ok(Self { text: text.to_owned(), ace, ..Self::parse_plain(inner)? })
    }

    fn parse_plain(text: &str) -> Result<Self, String> {
        if let Some(inner) = text.strip_prefix("live(").and_then(|text| text.strip_suffix(')')) {
            live::check(inner)?;
            let values = vec![(live::ENGINE_POLICY, inner.to_owned())];
            return Ok(Self {
                text: text.to_owned(),
                entry: &live::ENTRY,
                ace: None,
                pinned: 0.0,
                values,
            });
        }
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let entry = ALL.iter().find(|entry| entry.name == name).ok_or_else(|| {
            format!(
                "unknown policy {name:?}: known are {}, live(NAME) for a policy of the engine, \
                 ace(POLICY) for one of them with ACE around it, and all for all but those of the \
                 engine",
                names()
            )
        })?;
        let mut values = Vec::new();
        for parameter in parameters.split(',').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let Some(known) = entry.parameters.iter().find(|known| known.name == key) else {
                let known: Vec<&str> = entry.parameters.iter().map(|known| known.name).collect();
                return Err(match known.is_empty() {
                    true => format!("policy {name} has no parameters, so not {parameter:?} either"),
                    false => format!(
                        "policy {name} has no parameter {key:?}: known are {}",
                        known.join(", ")
                    ),
                });
            };
            if !known.takes.contains(value) {
                let takes = known.takes.describe();
                return Err(format!("policy {name}: {key} takes {takes}, not {value:?}"));
            }
            values.push((known.name, value.to_owned()));
        }
        Ok(Self { text: text.to_owned(), entry, ace: None, pinned: 0.0, values })
    }

    /// Time complexity of an access.
    pub fn complexity(&self) -> String {
        match self.ace {
            Some(_) => format!(
                "O(cache log cache) at worst for a dirty victim, to find the next dirty pages in \
                 the order of the policy, else {}{}",
                self.entry.cost,
                ace::limit(self.entry.name)
                    .map_or(String::new(), |why| format!("; ACE writes few pages at once: {why}"))
            ),
            None => self.entry.cost.to_owned(),
        }
    }

    /// Replays the whole of `trace`; see `replay::replay`.
    pub fn run(
        &self,
        trace: &Trace,
        capacity: usize,
        seed: u64,
        device: Device,
        keep_going: impl FnMut(usize) -> bool,
    ) -> Option<Counts> {
        let mut policy = self.build(trace, capacity, seed, device);
        let replay = self.replay(trace, capacity, seed, device, &mut *policy);
        run(trace, replay, keep_going)
    }

    /// The same to the end, and reports what reaches the device to `sink`.
    pub fn run_into(
        &self,
        trace: &Trace,
        capacity: usize,
        seed: u64,
        device: Device,
        sink: &mut dyn IoSink,
    ) -> Counts {
        let mut policy = self.build(trace, capacity, seed, device);
        let replay = self.replay(trace, capacity, seed, device, &mut *policy).with_sink(sink);
        run(trace, replay, |_| true).expect("nothing ends the replay early")
    }

    /// An empty pool for `policy`, which [`Spec::build`] made, with ACE and pinned pages as chosen.
    pub fn replay<'a>(
        &self,
        trace: &'a Trace,
        capacity: usize,
        seed: u64,
        device: Device,
        policy: &'a mut dyn Policy,
    ) -> Replay<'a> {
        let mut replay = Replay::new(trace, capacity, policy);
        if let Some(settings) = self.ace {
            replay = replay.with_ace(Ace::new(settings, device.concurrency, trace));
        }
        if self.pinned > 0.0 {
            replay = replay.with_pins(Pins::new(self.pinned, seed, capacity));
        }
        replay
    }

    /// A new policy for a trace and a pool.
    pub fn build(
        &self,
        trace: &Trace,
        capacity: usize,
        seed: u64,
        device: Device,
    ) -> Box<dyn Policy> {
        let (parameters, values) = (self.entry.parameters, &*self.values);
        (self.entry.build)(&Setup { trace, capacity, seed, device, parameters, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_a_name_of_its_own_and_defaults_that_it_takes() {
        for (index, entry) in ALL.iter().enumerate() {
            assert!(ALL[..index].iter().all(|other| other.name != entry.name), "{}", entry.name);
            assert!(!entry.source.is_empty() && !entry.cost.is_empty(), "{}", entry.name);
            for parameter in entry.parameters {
                assert!(
                    parameter.takes.contains(parameter.default),
                    "{} {}",
                    entry.name,
                    parameter.name
                );
            }
        }
    }

    #[test]
    fn unknown_names_and_values_are_refused_with_those_that_are_known() {
        for (text, parts) in [
            ("astrology", &["astrology", "lru", "opt", "clock"][..]),
            ("clock:x=1", &["\"x\"", "ref_at_load"]),
            ("clock:ref_at_load=2", &["ref_at_load", "0 or 1", "\"2\""]),
            ("clock:ref_at_load", &["ref_at_load", "0 or 1"]),
            ("fifo:x=1", &["fifo", "no parameters"]),
        ] {
            let sentence = Spec::parse(text).unwrap_err();
            for part in parts {
                assert!(sentence.contains(part), "{text}: {part} is not in {sentence}");
            }
        }
        for (text, value) in [("clock:ref_at_load=0", "0"), ("clock", "1")] {
            let spec = Spec::parse(text).unwrap();
            let setup = Setup {
                trace: &Trace::default(),
                capacity: 1,
                seed: 1,
                device: Device::default(),
                parameters: spec.entry.parameters,
                values: &spec.values,
            };
            assert_eq!(setup.word("ref_at_load"), value);
        }
    }
}
