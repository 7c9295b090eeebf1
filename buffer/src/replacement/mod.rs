//! Replacement policies decide which frames are worth keeping. A policy is a tracker in the
//! frame header plus a value computed from it. Sampling, eviction and write-back are shared by all
//! policies (`evictor`). The policy is chosen by name when the pool is opened, and dispatched
//! statically.
//!
//! Guards and trees report accesses and writes; evictors ask for values.

mod random;
mod watt;

pub use random::Random;
pub use watt::{Replacement, Tracker, Watt};

use crate::error::{Error, Result};

/// First epoch of a pool. Stamps start at zero, so an unused log entry looks 2^30 epochs old and
/// adds nothing; ages stay positive as `i32` for another 2^30 epochs.
pub const FIRST_EPOCH: u32 = 1 << 30;

/// The policy of a pool.
#[derive(Debug)]
pub enum Policy {
    /// Write-aware timestamp tracking.
    Watt(Watt),
    /// Uniformly random victims.
    Random(Random),
}

/// Runs `$body` with `$policy` bound to the concrete policy, compiled once for each.
#[macro_export]
#[doc(hidden)]
macro_rules! with_policy {
    ($enum:expr, $policy:ident => $body:expr) => {
        match $enum {
            $crate::replacement::Policy::Watt($policy) => $body,
            $crate::replacement::Policy::Random($policy) => $body,
        }
    };
}

/// Epochs per full replacement of the pool, that is per as many evictions as the pool has frames.
/// WATT has 4 in its table and 64 in its Listing 2; the README of the crate has the measurements.
const EPOCHS: f64 = 16.0;

impl Policy {
    /// Parses `name` or `name:key=value,..`. Also returns the epochs per pool replacement: the
    /// epoch advances once per (frames / epochs) evictions.
    pub fn parse(text: &str) -> Result<(Policy, f64)> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let mut watt = Watt::default();
        let mut epochs = EPOCHS;
        let known: &[&str] = match name {
            "watt" => &["epochs", "write_weight"],
            "random" => &["epochs"],
            _ => {
                return Err(Error::InvalidOption(format!(
                    "unknown policy {name:?}: known are watt and random"
                )));
            }
        };
        for parameter in parameters.split(',').filter(|p| !p.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let number = value.parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0);
            match (key, number) {
                ("epochs", Some(v)) if v > 0.0 && known.contains(&key) => epochs = v,
                ("write_weight", Some(v)) if known.contains(&key) => watt.write_weight = v as f32,
                _ => {
                    return Err(Error::InvalidOption(format!(
                        "policy {name} does not take {parameter:?}: its parameters are {}, each \
                         a number above or equal to zero",
                        known.join(", ")
                    )));
                }
            }
        }
        Ok(match name {
            "watt" => (Policy::Watt(watt), epochs),
            _ => (Policy::Random(Random), epochs),
        })
    }

    /// The name of the policy.
    pub fn name(&self) -> &'static str {
        match self {
            Policy::Watt(_) => "watt",
            Policy::Random(_) => "random",
        }
    }

    /// Reports a read of the page. The hottest call of the engine after the latch.
    #[inline(always)]
    pub fn on_access(&self, tracker: &Tracker, epoch: u32) {
        with_policy!(self, policy => policy.on_access(tracker, epoch));
    }

    /// Reports a change of the page.
    #[inline(always)]
    pub fn on_write(&self, tracker: &Tracker, epoch: u32) {
        with_policy!(self, policy => policy.on_write(tracker, epoch));
    }

    /// Reports that a page was loaded into or created in the frame.
    pub fn on_load(&self, tracker: &Tracker, epoch: u32) {
        with_policy!(self, policy => policy.on_load(tracker, epoch));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_chosen_by_name_and_unknown_ones_are_named() {
        assert_eq!(Policy::parse("watt").unwrap().0.name(), "watt");
        assert_eq!(Policy::parse("random").unwrap().0.name(), "random");
        let (Policy::Watt(watt), epochs) = Policy::parse("watt:epochs=64,write_weight=0").unwrap()
        else {
            panic!("not watt")
        };
        assert_eq!((watt.write_weight, epochs), (0.0, 64.0));
        for bad in ["lru", "watt:epochs=0", "watt:epochs", "random:write_weight=1", "watt:x=1"] {
            let message = Policy::parse(bad).unwrap_err().to_string();
            assert!(message.contains("watt") || message.contains("epochs"), "{message}");
        }
    }
}
