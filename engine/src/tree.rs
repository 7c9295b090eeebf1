//! Trees as the user has them.

use crate::catalog::OpenTree;
use std::sync::Arc;

/// A tree of an engine: an ordered map from keys to values. Cheap to clone. It is `Send` and
/// `Sync`, and does not keep the store open: once that is closed it only holds memory.
#[derive(Clone)]
pub struct Tree {
    pub(crate) open: Arc<OpenTree>,
}

impl Tree {
    /// The name it was created with.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = wattle::Options::default().pool_bytes(8 << 20);
    /// # let engine = wattle::Engine::open(dir.path().join("store"), options)?;
    /// # let tree = engine.tree("tree")?;
    /// assert_eq!(tree.name(), "tree");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn name(&self) -> &str {
        self.open.name()
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree({:?})", self.name())
    }
}
