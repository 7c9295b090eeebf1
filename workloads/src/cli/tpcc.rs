//! Flags of `wattle tpcc`.

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use super::common::{OnOff, RunFlags, RunSettings};
use super::tpcc_run::TpccScenario;
use crate::machine;
use crate::tpcc::hints::Hints;
use crate::tpcc::mix::Mix;
use crate::tpcc::schema::MAX_WAREHOUSES;

/// Flags of `tpcc`.
#[derive(Args, Clone, Debug)]
pub struct TpccFlags {
    /// Warehouses to load, 1 to 65534; each has about 90 MiB.
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=MAX_WAREHOUSES as i64))]
    pub warehouses: u16,

    /// Transactions: the standard mix by decks of 23 cards (10 New-Order, 10 Payment, and one each
    /// of Order-Status, Delivery and Stock-Level), or one of the five alone.
    #[arg(long, value_enum, default_value_t = Mix::Standard)]
    pub mix: Mix,

    /// Every worker stays at one warehouse, the workers of one thread at as few as possible.
    /// Default: each transaction draws a warehouse.
    #[arg(long)]
    pub affinity: bool,

    /// Name the rows that a transaction will use to the store: within the transaction, and before
    /// it while the pool reads pages. Results with hints do not compare with those of other stores.
    #[arg(long, value_enum, default_value_t = Hints::None)]
    pub hints: Hints,

    /// Deliveries to one warehouse wait for each other outside of the store, and the next one
    /// begins before the previous one is durable. Off: they run in parallel, and those that take
    /// the same orders meet conflicts.
    #[arg(long, value_enum, default_value_t = OnOff::Off)]
    pub delivery_queue: OnOff,

    /// Check the consistency conditions of clause 3.3.2 after the load and after the run.
    #[arg(long)]
    pub check: bool,

    /// Flags that all workloads share.
    #[command(flatten)]
    pub run: RunFlags,
}

impl TpccFlags {
    /// The run that they ask for.
    pub fn scenario(&self) -> TpccScenario {
        TpccScenario {
            warehouses: Some(self.warehouses),
            mix: self.mix,
            affinity: self.affinity,
            hints: self.hints,
            delivery_queue: self.delivery_queue,
            seed: self.run.seed,
            check_threads: self.run.crew().threads.min(machine::cores()),
        }
    }

    /// The values of all flags.
    pub fn settings(&self) -> Map<String, Value> {
        let settings = TpccSettings {
            warehouses: self.warehouses,
            mix: self.mix,
            affinity: self.affinity,
            hints: self.hints,
            delivery_queue: self.delivery_queue,
            check: self.check,
            run: self.run.settings(true),
        };
        match serde_json::to_value(settings) {
            Ok(Value::Object(settings)) => settings,
            other => unreachable!("settings are an object of plain values, not {other:?}"),
        }
    }
}

#[derive(Serialize)]
struct TpccSettings {
    warehouses: u16,
    mix: Mix,
    affinity: bool,
    hints: Hints,
    delivery_queue: OnOff,
    check: bool,
    #[serde(flatten)]
    run: RunSettings,
}
