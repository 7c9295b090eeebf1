//! Hints to the store, which `--hints prefetch` turns on: they are no part of TPC-C, and a store may ignore them.
//!
//! - Within a transaction, the rows that it will use next are named together ([`Hints::prefetch`]).
//! - Before a transaction, while the store reads pages, its rows are read in a throw-away read-only transaction
//!   ([`super::read_ahead`]). Under snapshot isolation a transaction fails when a row that it changes was changed by
//!   another after its snapshot was taken, and all Payments to a warehouse change one row. A transaction that waits
//!   for the device between its snapshot and that change hardly ever wins, and makes others fail while it waits
//!   with rows changed. With its rows in memory it takes microseconds.

use clap::ValueEnum;
use serde::Serialize;

use super::schema::Key;
use crate::driver::store::{Txn, TxnResult};

/// Whether the store is told which rows a transaction will use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hints {
    /// It is not.
    #[default]
    None,
    /// Before they are needed.
    Prefetch,
}

impl Hints {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Hints::None => "none",
            Hints::Prefetch => "prefetch",
        }
    }

    /// Names the rows that `txn` will use next.
    #[inline]
    pub async fn prefetch<'t, X: Txn, const N: usize>(
        self,
        txn: &X,
        rows: impl FnOnce() -> [(&'t X::Table, Key); N],
        len: usize,
    ) -> TxnResult<()>
    where
        X::Table: 't,
    {
        match self {
            Hints::None => Ok(()),
            Hints::Prefetch => txn.prefetch(&rows()[..len]).await,
        }
    }
}
