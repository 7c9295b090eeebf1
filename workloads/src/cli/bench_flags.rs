//! Flags of `wattle tpcb` and `wattle tatp`.

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use super::common::{RunFlags, RunSettings};
use super::units;
use crate::tatp::benchmark::{MAX_SUBSCRIBERS, Tatp};
use crate::tpcb::benchmark::Tpcb;
use crate::tpcb::input::MAX_SCALE;

/// Flags of `tpcb`.
#[derive(Args, Clone, Debug)]
pub struct TpcbFlags {
    /// Branches, 1 to 100000; each has 10 tellers and 100000 accounts, about 12 MB. Conflicts are
    /// rare if there are several branches for each transaction in flight.
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = units::count(1..=MAX_SCALE))]
    pub scale: u64,

    /// Check that balances and history agree, before and after the run.
    #[arg(long)]
    pub check: bool,

    /// Flags that all workloads share.
    #[command(flatten)]
    pub run: RunFlags,
}

/// Flags of `tatp`.
#[derive(Args, Clone, Debug)]
pub struct TatpFlags {
    /// Subscribers, 1 to 4294967296; each has about 11 rows in five tables, 310 bytes.
    #[arg(long, value_name = "N", default_value_t = 100_000,
        value_parser = units::count(1..=MAX_SUBSCRIBERS))]
    pub subscribers: u64,

    /// Check that rows are whole and refer to rows that exist, before and after the run.
    #[arg(long)]
    pub check: bool,

    /// Flags that all workloads share.
    #[command(flatten)]
    pub run: RunFlags,
}

#[derive(Serialize)]
struct Settings {
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscribers: Option<u64>,
    check: bool,
    #[serde(flatten)]
    run: RunSettings,
}

impl Settings {
    fn object(self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(settings)) => settings,
            other => unreachable!("settings are an object of plain values, not {other:?}"),
        }
    }
}

impl TpcbFlags {
    /// The benchmark that they ask for.
    pub fn bench(&self) -> Tpcb {
        Tpcb { scale: self.scale, seed: self.run.seed }
    }

    /// The values of all flags.
    pub fn settings(&self) -> Map<String, Value> {
        let run = self.run.settings(true);
        Settings { scale: Some(self.scale), subscribers: None, check: self.check, run }.object()
    }
}

impl TatpFlags {
    /// The benchmark that they ask for.
    pub fn bench(&self) -> Tatp {
        Tatp { subscribers: self.subscribers, seed: self.run.seed }
    }

    /// The values of all flags.
    pub fn settings(&self) -> Map<String, Value> {
        let (subscribers, run) = (Some(self.subscribers), self.run.settings(true));
        Settings { scale: None, subscribers, check: self.check, run }.object()
    }
}
