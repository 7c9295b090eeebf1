//! One open tree, and its tag.

use super::{
    Closed, LargeStore,
    record::{nameless_key, tree_key},
};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};
use wattle_btree as btree;
use wattle_buffer::TreeId;

/// Names a tree, open or not. One tree may have several tags; the id decides.
#[derive(Debug)]
pub(crate) struct TreeTag {
    pub id: TreeId,
    pub name: String,
}

impl TreeTag {
    pub fn new(id: TreeId, name: &str) -> Arc<TreeTag> {
        Arc::new(TreeTag { id, name: name.to_string() })
    }
}

/// An open tree.
pub(crate) struct OpenTree {
    pub tag: Arc<TreeTag>,
    pub tree: btree::Tree,
    pub large: OnceLock<LargeStore>,
    pub closed: Closed,
    /// The names that it got while it was open.
    pub(super) names: NewNames,
    /// The catalog has it without a name: its creation is not committed, or it was dropped. Changes
    /// under the lock of the catalog.
    pub(super) nameless: AtomicBool,
}

/// The names that transactions gave to an open tree, oldest first. They stay as long as it is open,
/// because [`OpenTree::name`] lends them.
#[derive(Default)]
pub(super) struct NewNames {
    first: OnceLock<Box<NewName>>,
}

struct NewName {
    name: String,
    next: OnceLock<Box<NewName>>,
}

impl NewNames {
    fn newest(&self) -> Option<&NewName> {
        let mut newest = self.first.get()?;
        while let Some(next) = newest.next.get() {
            newest = next;
        }
        Some(newest)
    }

    fn add(&self, name: &str) {
        let new = Box::new(NewName { name: name.to_string(), next: OnceLock::new() });
        let end = self.newest().map_or(&self.first, |newest| &newest.next);
        assert!(end.set(new).is_ok(), "names are added under the lock of the catalog");
    }
}

impl Drop for NewNames {
    fn drop(&mut self) {
        // One by one: the names may be too many to drop each within the other.
        let mut next = self.first.take();
        while let Some(mut name) = next {
            next = name.next.take();
        }
    }
}

impl OpenTree {
    /// A tree that was just opened, without its large values.
    pub(super) fn new(tag: Arc<TreeTag>, tree: btree::Tree) -> OpenTree {
        OpenTree {
            tag,
            tree,
            large: OnceLock::new(),
            closed: Closed::default(),
            names: NewNames::default(),
            nameless: AtomicBool::new(false),
        }
    }

    /// As [`OpenTree::new`], for a tree that the catalog has without a name.
    pub(super) fn without_name(tag: Arc<TreeTag>, tree: btree::Tree) -> OpenTree {
        let open = OpenTree::new(tag, tree);
        open.nameless.store(true, Ordering::SeqCst);
        open
    }

    /// Its name; without one, the last name it had, or the first one it is to get.
    pub fn name(&self) -> &str {
        self.names.newest().map_or(&self.tag.name, |newest| &newest.name)
    }

    /// Whether the catalog has it without a name.
    pub(super) fn is_nameless(&self) -> bool {
        self.nameless.load(Ordering::SeqCst)
    }

    /// The key of its entry in the catalog.
    pub(super) fn entry_key(&self) -> Vec<u8> {
        if self.is_nameless() { nameless_key(self.tag.id) } else { tree_key(self.name()) }
    }

    /// A transaction has named it, or has taken its name away. The caller has the lock of the
    /// catalog, and changes the list of open trees.
    pub(super) fn set_name(&self, name: Option<&str>) {
        if let Some(name) = name
            && name != self.name()
        {
            self.names.add(name);
        }
        self.nameless.store(name.is_none(), Ordering::SeqCst);
    }

    /// The tree itself, or that of its large values.
    pub fn tree_of(&self, id: TreeId) -> Option<&btree::Tree> {
        if self.tree.id() == id {
            return Some(&self.tree);
        }
        self.large.get().map(|large| &large.tree).filter(|tree| tree.id() == id)
    }

    /// Roots that it pins.
    pub(super) fn roots(&self) -> usize {
        1 + usize::from(self.large.get().is_some())
    }
}
