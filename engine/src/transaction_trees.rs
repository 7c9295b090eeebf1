//! Trees in transactions: by name, created, dropped and renamed.

use crate::{
    op::trees::{create_tree_in, drop_tree_in, rename_tree_in, tree_in},
    transaction::Transaction,
    tree::Tree,
};
#[cfg(doc)]
use wattle_buffer::Error;
use wattle_buffer::Result;

impl Transaction<'_> {
    /// The tree `name`, as the transaction sees it: with its own changes of trees, and without
    /// those that others have committed after it began.
    ///
    /// ```
    /// # use wattle::{Engine, Error, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # engine.tree("orders")?;
    /// let mut txn = engine.begin()?;
    /// txn.rename_tree("orders", "old orders")?;
    /// assert!(matches!(txn.tree("orders"), Err(Error::NoSuchTree(_))));
    /// assert!(txn.scan(&txn.tree("old orders")?)?.next().is_none());
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchTree`]; [`Error::Conflict`] when the name was changed after the transaction
    /// began, also by [`crate::Engine::tree`]: the catalog keeps no earlier states. It can go on
    /// without this tree, or be aborted and run again. [`Error::InvalidTreeName`];
    /// [`Error::Limit`] as for [`crate::Engine::tree`]; [`Error::SnapshotTooOld`]; failed I/O.
    pub fn tree(&self, name: &str) -> Result<Tree> {
        let (session, txn) = self.reading()?;
        tree_in(session, txn, name)
    }

    /// Creates the tree `name`. Others see it when the transaction has committed. Until then only
    /// this transaction can use the handle: changes by others get [`Error::Conflict`]. The
    /// transaction stores no versions of its records, so it may fill the tree with many.
    ///
    /// Without a commit the tree never existed. Its pages are free when its last handle was
    /// dropped; a change through one that is left gets [`Error::NoSuchTree`].
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let old = engine.tree("orders")?;
    /// # drop(old);
    /// // Replaces a tree by a new one, in one step for all others.
    /// let mut txn = engine.begin()?;
    /// txn.drop_tree("orders")?;
    /// let orders = txn.create_tree("orders")?;
    /// txn.put(&orders, b"1", b"apples")?;
    /// txn.commit()?;
    /// let session = engine.session()?;
    /// assert_eq!(session.get(&engine.tree("orders")?, b"1")?.as_deref(), Some(&b"apples"[..]));
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TreeExists`]; [`Error::Conflict`] when another transaction changed the name first,
    /// here or at the commit; [`Error::ReadOnly`]; [`Error::MustAbort`] after a conflict;
    /// [`Error::InvalidTreeName`]; [`Error::Limit`] as for [`crate::Engine::tree`];
    /// [`Error::DiskFull`]; failed I/O. Nothing was changed then.
    pub fn create_tree(&mut self, name: &str) -> Result<Tree> {
        let (session, txn) = self.parts()?;
        create_tree_in(session, txn, name)
    }

    /// Drops the tree `name` at the commit, with everything in it. A drop counts as a change of
    /// every record: the commit fails with [`Error::Conflict`] when another transaction has changed
    /// a record of the tree after this one began, or has not ended.
    ///
    /// Unlike [`crate::Engine::drop_tree`] it works while there are other handles. After the commit
    /// they still read the tree, as it was, and changes get [`Error::NoSuchTree`]. Its pages are
    /// free when the last handle was dropped.
    ///
    /// ```
    /// # use wattle::{Engine, Error, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// let (session, tree) = (engine.session()?, engine.tree("orders")?);
    /// session.put(&tree, b"1", b"apples")?;
    /// let reader = session.begin()?;
    /// let mut txn = engine.begin()?;
    /// txn.drop_tree("orders")?;
    /// txn.commit()?;
    /// assert!(engine.trees()?.is_empty());
    /// assert!(reader.contains(&tree, b"1")?);
    /// assert!(matches!(session.put(&tree, b"2", b"pears"), Err(Error::NoSuchTree(_))));
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchTree`], and as [`Transaction::create_tree`].
    pub fn drop_tree(&mut self, name: &str) -> Result<()> {
        let (session, txn) = self.parts()?;
        drop_tree_in(session, txn, name)
    }

    /// Gives the tree `from` the name `to` at the commit. Others may use the tree meanwhile, and
    /// may have handles: [`Tree::name`] gives the new name after the commit.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// let tree = engine.tree("new")?;
    /// let mut txn = engine.begin()?;
    /// txn.rename_tree("new", "orders")?;
    /// txn.commit()?;
    /// assert_eq!((tree.name(), engine.trees()?), ("orders", vec!["orders".to_string()]));
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchTree`], [`Error::TreeExists`], and as [`Transaction::create_tree`].
    pub fn rename_tree(&mut self, from: &str, to: &str) -> Result<()> {
        let (session, txn) = self.parts()?;
        rename_tree_in(session, txn, from, to)
    }
}
