//! The parameters of policies: their names, ranges and defaults, and how `name:key=value,..` is
//! read.

use crate::error::{Error, Result};

/// The numbers that a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// Any number from the first to the second.
    Number(f64, f64),
    /// A whole number from the first to the second.
    Whole(u32, u32),
}

impl Range {
    /// The least and the largest number of the range.
    pub fn ends(self) -> (f64, f64) {
        match self {
            Range::Number(least, most) => (least, most),
            Range::Whole(least, most) => (f64::from(least), f64::from(most)),
        }
    }

    /// The number that `text` stands for, if it is in the range.
    fn parse(self, text: &str) -> Option<f64> {
        let number = match self {
            Range::Number(..) => text.parse::<f64>().ok()?,
            Range::Whole(..) => f64::from(text.parse::<u32>().ok()?),
        };
        let (least, most) = self.ends();
        (number >= least && number <= most).then_some(number)
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Range::Number(least, most) => write!(f, "a number from {least} to {most}"),
            Range::Whole(least, most) => write!(f, "a whole number from {least} to {most}"),
        }
    }
}

/// A parameter of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// Its name, as in `name=value`.
    pub name: &'static str,
    /// Its value if none is given.
    pub default: f64,
    /// The values that it takes.
    pub range: Range,
    /// Its meaning, in some words.
    pub about: &'static str,
}

impl Parameter {
    /// Epochs per full replacement of the pool, that is per as many evictions as the pool has
    /// frames. For policies that measure time in epochs.
    pub const fn epochs(default: f64) -> Parameter {
        Parameter {
            name: "epochs",
            default,
            range: Range::Number(1e-6, 1e9),
            about: "epochs per full replacement of the pool",
        }
    }
}

impl std::fmt::Display for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Parameter { name, default, range, about } = self;
        write!(f, "{name}={default}: {about}; {range}")
    }
}

/// The pool and the parameters that a policy is made for.
#[derive(Debug)]
pub struct Setup {
    /// Number of frames of the pool, at least 1.
    pub frames: usize,
    policy: &'static str,
    known: &'static [Parameter],
    given: Vec<(&'static str, f64)>,
}

impl Setup {
    /// Reads `key=value,..` for the policy `policy` with the parameters `known`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] that names the parameters of the policy and their ranges.
    pub(super) fn parse(
        policy: &'static str,
        known: &'static [Parameter],
        text: &str,
        frames: usize,
    ) -> Result<Setup> {
        let mut given = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let parameter = known.iter().find(|parameter| parameter.name == key);
            match parameter.and_then(|known| Some((known.name, known.range.parse(value)?))) {
                Some(pair) => given.push(pair),
                None => return Err(refused(policy, known, part)),
            }
        }
        Ok(Setup { frames: frames.max(1), policy, known, given })
    }

    /// The value of a parameter of the policy.
    ///
    /// # Panics
    /// If the policy has no parameter of this name.
    pub fn number(&self, name: &str) -> f64 {
        let given = self.given.iter().rev().find(|(key, _)| *key == name);
        given.map_or_else(
            || {
                let known = self.known.iter().find(|known| known.name == name);
                known.expect("a policy asks for its own parameters").default
            },
            |(_, value)| *value,
        )
    }

    /// A share of the pool in frames, rounded down.
    pub fn share(&self, name: &str) -> usize {
        (self.frames as f64 * self.number(name)) as usize
    }

    /// Epochs per full replacement of the pool: the parameter, or 16 for a policy that has none.
    pub(super) fn epochs(&self) -> f64 {
        match self.known.iter().any(|known| known.name == "epochs") {
            true => self.number("epochs"),
            false => 16.0,
        }
    }

    /// The error of a policy that does not fit into the pool; `why` is the rest of a sentence.
    pub fn does_not_fit(&self, why: impl std::fmt::Display) -> Error {
        Error::InvalidOption(format!("policy {} does not fit: {why}", self.policy))
    }
}

fn refused(policy: &str, known: &[Parameter], part: &str) -> Error {
    let ranges: Vec<_> =
        known.iter().map(|known| format!("{} ({})", known.name, known.range)).collect();
    Error::InvalidOption(match ranges.is_empty() {
        true => format!("policy {policy} does not take {part:?}: it has no parameters"),
        false => format!(
            "policy {policy} does not take {part:?}: its parameters are {}",
            ranges.join(", ")
        ),
    })
}
