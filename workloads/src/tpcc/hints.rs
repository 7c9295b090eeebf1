//! Hints to the store, which `--hints prefetch` turns on. They are not part of TPC-C, and a store
//! may ignore them.
//!
//! - Within a transaction, [`Hints::prefetch`] names the rows that it will use next.
//! - Before a transaction, while the store reads pages, a throw-away read-only transaction reads
//!   its rows ([`super::read_ahead`]). Under snapshot isolation a transaction fails if another one
//!   changed a row after its snapshot was taken, and all Payments to a warehouse change one row. A
//!   transaction that waits for the device between its snapshot and that change rarely succeeds,
//!   and others fail while it waits with changed rows. With its rows in memory it takes
//!   microseconds.

use clap::ValueEnum;
use serde::Serialize;

use super::schema::Key;
use crate::driver::store::{Txn, TxnResult};

/// Whether the store gets hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hints {
    /// None.
    #[default]
    None,
    /// The rows of a transaction, before they are needed.
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

    /// Names the first `len` of `rows`, which `txn` will use next.
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
