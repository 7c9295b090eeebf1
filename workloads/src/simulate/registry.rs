//! The policies by name, with their parameters, and how a policy is chosen on the command line:
//! `name` or `name:key=value,key=value`.

use super::ace::{self, Ace};
use super::policies::ALL;
use super::policy::Policy;
use super::replay::{Counts, Device, Replay, run};
use super::trace::Trace;

/// What a parameter takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any number from the first to the second.
    Number(f64, f64),
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
}

/// A parameter of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its value unless another one is given.
    pub default: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it does.
    pub about: &'static str,
}

/// A policy that can be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// The paper and section that it is from.
    pub source: &'static str,
    /// Cost of an access, where it is not constant.
    pub cost: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Makes one.
    pub build: fn(&Setup) -> Box<dyn Policy>,
}

/// What a policy is made for.
pub struct Setup<'a> {
    /// The trace that it will see.
    pub trace: &'a Trace,
    /// Number of frames.
    pub capacity: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Costs of reads and writes, for policies that weigh them.
    pub device: Device,
    /// Parameters that differ from their defaults.
    pub spec: &'a Spec,
}

impl Setup<'_> {
    /// Number of different pages of the trace.
    pub fn pages(&self) -> usize {
        self.trace.pages()
    }

    /// A parameter as it is written.
    pub fn word(&self, name: &str) -> &str {
        self.spec.value(name)
    }

    /// A numeric parameter.
    pub fn number(&self, name: &str) -> f64 {
        self.word(name).parse().expect("parameters are checked when they are read")
    }

    /// A parameter that is a whole number.
    pub fn whole(&self, name: &str) -> usize {
        self.number(name) as usize
    }

    /// The pages that a share of the pool makes, rounded down.
    pub fn share(&self, name: &str) -> usize {
        (self.capacity as f64 * self.number(name)) as usize
    }
}

/// A policy with its parameters, as chosen.
#[derive(Clone, Debug)]
pub struct Spec {
    /// As it was written.
    pub text: String,
    /// The policy.
    pub entry: &'static Entry,
    /// The parameters of ACE, if it is around the policy.
    pub ace: Option<ace::Settings>,
    values: Vec<(&'static str, String)>,
}

/// Names of all policies.
pub fn names() -> String {
    ALL.iter().map(|entry| entry.name).collect::<Vec<_>>().join(" ")
}

impl Kind {
    fn takes(self, value: &str) -> bool {
        match self {
            Kind::Number(least, most) => {
                value.parse::<f64>().is_ok_and(|number| number >= least && number <= most)
            }
            Kind::Whole(least, most) => {
                value.parse::<u64>().is_ok_and(|number| number >= least && number <= most)
            }
            Kind::Word(words) => words.contains(&value),
        }
    }

    /// What it takes, in words.
    pub fn describe(self) -> String {
        let end =
            |most: f64| if most == f64::INFINITY { "on".to_owned() } else { format!("to {most}") };
        match self {
            Kind::Number(least, most) => format!("a number from {least} {}", end(most)),
            Kind::Whole(least, u64::MAX) => format!("a whole number from {least} on"),
            Kind::Whole(least, most) => format!("a whole number from {least} to {most}"),
            Kind::Word(words) => words.join(" or "),
        }
    }
}

impl Spec {
    /// Reads `name` or `name:key=value,..`, alone or as `ace(..)` or `ace(..):key=value,..`. The
    /// error is a sentence that says what is known.
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
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let entry = ALL.iter().find(|entry| entry.name == name).ok_or_else(|| {
            format!(
                "unknown policy {name:?}: known are {}, ace(POLICY) for one of them with ACE \
                 around it, and all for all of them",
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
            if !known.kind.takes(value) {
                let takes = known.kind.describe();
                return Err(format!("policy {name}: {key} takes {takes}, not {value:?}"));
            }
            values.push((known.name, value.to_owned()));
        }
        Ok(Self { text: text.to_owned(), entry, ace: None, values })
    }

    fn value(&self, name: &str) -> &str {
        let given = self.values.iter().rev().find(|(known, _)| *known == name);
        given.map(|(_, value)| &**value).unwrap_or_else(|| {
            let known = self.entry.parameters.iter().find(|known| known.name == name);
            known.expect("a policy asks for its own parameters").default
        })
    }

    /// What an access costs in time.
    pub fn complexity(&self) -> String {
        match self.ace {
            Some(_) => format!(
                "O(cache) at worst for a dirty victim, to find the next dirty pages in the order of \
                 the policy, else {}",
                self.entry.cost
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
        let mut replay = Replay::new(trace, capacity, &mut *policy);
        if let Some(settings) = self.ace {
            replay = replay.with_ace(Ace::new(settings, device.concurrency, trace));
        }
        run(trace, replay, keep_going)
    }

    /// A new policy for a trace and a pool.
    pub fn build(
        &self,
        trace: &Trace,
        capacity: usize,
        seed: u64,
        device: Device,
    ) -> Box<dyn Policy> {
        (self.entry.build)(&Setup { trace, capacity, seed, device, spec: self })
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
                    parameter.kind.takes(parameter.default),
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
        assert_eq!(Spec::parse("clock:ref_at_load=0").unwrap().value("ref_at_load"), "0");
        assert_eq!(Spec::parse("clock").unwrap().value("ref_at_load"), "1");
    }
}
