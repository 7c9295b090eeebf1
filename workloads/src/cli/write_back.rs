//! Flags of write-back: how dirty pages leave the buffer pool.

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::adapter::backend::WriteBack;

const MAX_WRITE_CONCURRENCY: u64 = 1024;

/// Flags of write-back.
#[derive(Args, Clone, Copy, Debug, Serialize)]
pub struct WriteBackFlags {
    /// Dirty victims of the policy: off, each is written alone and evicted; writer, as many as
    /// --write-concurrency are written together and one is evicted (ACE, ICDE 2023); full, all of
    /// them are evicted, and reads bring further pages that will probably be needed. Not with
    /// policies without an order, as random.
    #[arg(long, value_enum, default_value_t = Ace::Off, hide_possible_values = true)]
    pub ace: Ace,

    /// Pages written at once, 1 to 1024. Default: k_w of the device if the store has been probed
    /// (wattle probe), otherwise 1/128 of the pool's pages, 16 to 128.
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=MAX_WRITE_CONCURRENCY))]
    pub write_concurrency: Option<u64>,

    /// Order in which dirty victims are written: value, the coldest first; clustered, those of one
    /// region of the file together.
    #[arg(long, value_enum, default_value_t = WriteOrder::Value, hide_possible_values = true)]
    pub write_order: WriteOrder,
}

/// Values of `--ace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ace {
    /// Each dirty victim alone.
    Off,
    /// Batches.
    Writer,
    /// Batches, eviction of all of a batch, and prefetching.
    Full,
}

/// Values of `--write-order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteOrder {
    /// By the value of the policy.
    Value,
    /// By place in the file.
    Clustered,
}

impl From<WriteBackFlags> for WriteBack {
    fn from(flags: WriteBackFlags) -> Self {
        Self {
            ace: match flags.ace {
                Ace::Off => wattle::Ace::Off,
                Ace::Writer => wattle::Ace::Writer,
                Ace::Full => wattle::Ace::Full,
            },
            concurrency: flags.write_concurrency.map(|pages| pages as usize),
            order: match flags.write_order {
                WriteOrder::Value => wattle::WriteOrder::Value,
                WriteOrder::Clustered => wattle::WriteOrder::Clustered,
            },
        }
    }
}
