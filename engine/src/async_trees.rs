//! Trees in asynchronous transactions, see `transaction_trees`.

use crate::{
    async_transaction::AsyncTransaction,
    op::trees::{create_tree_in, drop_tree_in, rename_tree_in, tree_in},
    tree::Tree,
};
use wattle_buffer::Result;

impl AsyncTransaction {
    /// As [`crate::Transaction::tree`]. As with [`crate::Engine::tree`], reads of the catalog block
    /// the thread.
    ///
    /// # Errors
    /// As there.
    pub async fn tree(&self, name: &str) -> Result<Tree> {
        let (session, txn) = self.reading().await;
        tree_in(session, txn, name)
    }

    /// As [`crate::Transaction::create_tree`]. It and the commit block the thread while they read
    /// and change the catalog.
    ///
    /// # Errors
    /// As there.
    pub async fn create_tree(&mut self, name: &str) -> Result<Tree> {
        let (session, txn) = self.changing().await;
        create_tree_in(session, txn, name)
    }

    /// As [`crate::Transaction::drop_tree`].
    ///
    /// # Errors
    /// As there.
    pub async fn drop_tree(&mut self, name: &str) -> Result<()> {
        let (session, txn) = self.changing().await;
        drop_tree_in(session, txn, name)
    }

    /// As [`crate::Transaction::rename_tree`].
    ///
    /// # Errors
    /// As there.
    pub async fn rename_tree(&mut self, from: &str, to: &str) -> Result<()> {
        let (session, txn) = self.changing().await;
        rename_tree_in(session, txn, from, to)
    }
}
