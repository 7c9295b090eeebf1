//! A storage engine that workloads can run on.
//!
//! To put another engine under the same drivers, implement [`Backend`] for its settings,
//! [`super::store::Store`] for an open store, and [`super::store::Client`] and
//! [`super::store::Txn`] for its sessions and transactions. Nothing else in this crate has to know
//! it.

use super::options::StoreOptions;
use super::store::Store;

/// A storage engine with those of its settings that no other engine has.
pub trait Backend {
    /// An open store.
    type Store: Store;

    /// Its name in reports.
    const NAME: &'static str;

    /// Isolation of its transactions, as the field calls it: `snapshot`, `serializable`.
    const ISOLATION: &'static str;

    /// Checks `options` without the store, so that bad ones are known before anything is created.
    ///
    /// # Errors
    /// [`OpenError::Refused`] if [`Backend::open`] would refuse them.
    fn check(&self, options: &StoreOptions) -> Result<(), OpenError>;

    /// Opens the store, and creates it if it is absent.
    fn open(&self, options: &StoreOptions) -> Result<Self::Store, OpenError>;
}

/// Why a store was not opened; each is a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The options, or the path, are wrong. Nothing was changed.
    Refused(String),
    /// The store is damaged, or the device failed.
    Failed(String),
    /// The user interrupted it.
    Interrupted(String),
}
