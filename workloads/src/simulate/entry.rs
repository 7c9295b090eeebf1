//! The description of a policy: its name, its source, its parameters, and a constructor.

use super::policy::Policy;
use super::replay::Device;
use super::trace::Trace;

/// The values that a parameter accepts.
#[derive(Clone, Copy, Debug)]
pub enum Domain {
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
    /// Its default value.
    pub default: &'static str,
    /// The values that it accepts.
    pub takes: Domain,
    /// Its effect.
    pub about: &'static str,
}

/// A policy that can be chosen.
#[derive(Clone, Copy, Debug)]
pub struct PolicyEntry {
    /// Its name on the command line.
    pub name: &'static str,
    /// The paper and section that it is from.
    pub source: &'static str,
    /// Time complexity of an access, if it is not constant.
    pub cost: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Makes one.
    pub build: fn(&Setup) -> Box<dyn Policy>,
}

/// The arguments of the constructor of a policy.
pub struct Setup<'a> {
    /// The trace to replay.
    pub trace: &'a Trace,
    /// Number of frames.
    pub capacity: usize,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Costs of reads and writes, for policies that weigh them.
    pub device: Device,
    /// The parameters that the policy has.
    pub parameters: &'static [Parameter],
    /// Names and values of those that differ from their defaults.
    pub values: &'a [(&'static str, String)],
}

impl Setup<'_> {
    /// Number of different pages of the trace.
    pub fn pages(&self) -> usize {
        self.trace.pages()
    }

    /// A parameter as it is written.
    pub fn word(&self, name: &str) -> &str {
        let given = self.values.iter().rev().find(|(known, _)| *known == name);
        given.map_or_else(
            || {
                let known = self.parameters.iter().find(|known| known.name == name);
                known.expect("a policy asks for its own parameters").default
            },
            |(_, value)| value.as_str(),
        )
    }

    /// A numeric parameter.
    pub fn number(&self, name: &str) -> f64 {
        self.word(name).parse().expect("parameters are checked when they are read")
    }

    /// A parameter that is a whole number.
    pub fn whole(&self, name: &str) -> usize {
        self.number(name) as usize
    }

    /// A share of the pool in pages, rounded down.
    pub fn share(&self, name: &str) -> usize {
        (self.capacity as f64 * self.number(name)) as usize
    }
}

impl Domain {
    /// Whether it accepts `value`.
    pub fn contains(self, value: &str) -> bool {
        match self {
            Domain::Number(least, most) => {
                value.parse::<f64>().is_ok_and(|number| number >= least && number <= most)
            }
            Domain::Whole(least, most) => {
                value.parse::<u64>().is_ok_and(|number| number >= least && number <= most)
            }
            Domain::Word(words) => words.contains(&value),
        }
    }

    /// The accepted values, in words.
    pub fn describe(self) -> String {
        let end =
            |most: f64| if most == f64::INFINITY { "on".to_owned() } else { format!("to {most}") };
        match self {
            Domain::Number(least, most) => format!("a number from {least} {}", end(most)),
            Domain::Whole(least, u64::MAX) => format!("a whole number from {least} on"),
            Domain::Whole(least, most) => format!("a whole number from {least} to {most}"),
            Domain::Word(words) => words.join(" or "),
        }
    }
}
