//! Open trees, and which of them can be closed.
//!
//! The root of an open tree is pinned in a frame, so a pool has room for so many open trees
//! ([`crate::Options::min_pool_bytes`]). A tree stays open after its last handle was dropped,
//! because it is likely to be opened again. When there is no room for one more, the least recently
//! requested ones are closed, several at once. The module `owner` of `wattle-btree` says what
//! closing means for the pages. A tree is held open by
//!
//! - handles of the user, and operations, scans and iterators, which borrow one or have their own;
//! - transactions, from the first change or serializable read of a tree to their end, and of trees
//!   that they create, drop or rename;
//! - sessions, of the trees that their last transactions changed ([`crate::txn::TreeHandles`]):
//!   they release them when room is needed;
//! - the state of a large transaction that owned the tree ([`super::Closed`]), until every snapshot
//!   includes its commit;
//! - the janitor, verification and the like, while they work on a tree. They have a few places of
//!   their own ([`OpenFor::Engine`]), so that they can go on when the user holds as many trees as
//!   are allowed.
//!
//! Everything else names a tree by its number and opens it again when needed: versions of records,
//! the log with its undo entries, and garbage ([`super::TreeTag`]).
//!
//! **Races.** A handle is cloned from the list under the lock of the list, or from another handle.
//! A tree is taken off the list under the same lock, and only if the list has the only handle; so
//! no handle exists, and none can be made. Trees are closed and opened under the lock of the
//! catalog: an operation that wants to open this tree waits until it is closed.

use super::{OpenTree, TreeTag};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use wattle_buffer::TreeId;

/// For whom a tree is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenFor {
    /// A handle of the user.
    User,
    /// The engine itself, for a short time.
    Engine,
}

impl OpenFor {
    /// Roots that may be pinned beyond the limit. A tree has two with that of its large values, and
    /// four users have one open at a time: the janitor, verification or compaction, statistics of
    /// trees, and the warm start.
    pub fn beyond(self) -> usize {
        match self {
            OpenFor::User => 0,
            OpenFor::Engine => 8,
        }
    }
}

/// This part of the open trees, 1 of 8, is closed at once.
const CLOSED_AT_ONCE: usize = 8;

/// The open trees, by name.
#[derive(Default)]
pub(super) struct OpenTrees {
    list: Mutex<TreeList>,
}

#[derive(Default)]
struct TreeList {
    trees: BTreeMap<String, ListedTree>,
    /// Counts the requests for trees.
    asked: u64,
    /// The names of trees that were renamed since the store was opened: tags may have older ones.
    renamed: HashMap<TreeId, String>,
}

impl TreeList {
    fn add(&mut self, tree: Arc<OpenTree>) {
        self.asked += 1;
        let asked = self.asked;
        let old = self.trees.insert(tree.name().to_string(), ListedTree { tree, asked });
        assert!(old.is_none(), "a tree is opened twice");
    }

    fn name_of<'t>(&'t self, tag: &'t TreeTag) -> &'t str {
        self.renamed.get(&tag.id).unwrap_or(&tag.name)
    }
}

struct ListedTree {
    tree: Arc<OpenTree>,
    /// The number of its last request.
    asked: u64,
}

impl OpenTrees {
    /// A handle of the tree `name`, if it is open.
    pub fn get(&self, name: &str) -> Option<Arc<OpenTree>> {
        let list = &mut *self.list.lock();
        let listed = list.trees.get_mut(name)?;
        list.asked += 1;
        listed.asked = list.asked;
        Some(listed.tree.clone())
    }

    /// Adds a tree that was just opened, and gives a handle.
    pub fn add(&self, tree: OpenTree) -> Arc<OpenTree> {
        let tree = Arc::new(tree);
        self.put_back(tree.clone());
        tree
    }

    /// Adds a tree that was taken off.
    pub fn put_back(&self, tree: Arc<OpenTree>) {
        self.list.lock().add(tree);
    }

    /// A handle of the tree with this tag, if it is open, whatever its name is by now.
    pub fn get_tagged(&self, tag: &TreeTag) -> Option<Arc<OpenTree>> {
        let list = self.list.lock();
        let listed = list.trees.get(list.name_of(tag))?;
        Some(listed.tree.clone()).filter(|open| open.tag.id == tag.id)
    }

    /// The name by now of the tree with this tag. It stays while the lock of the catalog is held.
    pub fn name_of(&self, tag: &TreeTag) -> String {
        self.list.lock().name_of(tag).to_string()
    }

    /// The tree has a name that its tags may not have.
    pub fn note_name(&self, tree: TreeId, name: &str) {
        self.list.lock().renamed.insert(tree, name.to_string());
    }

    /// The tree is gone.
    pub fn forget_name(&self, tree: TreeId) {
        self.list.lock().renamed.remove(&tree);
    }

    /// Gives open trees other names, or none, all at once: each with the name that it is listed
    /// under, if it is.
    pub fn rename_all(&self, changes: &[(Arc<OpenTree>, Option<String>, Option<String>)]) {
        let list = &mut *self.list.lock();
        for old in changes.iter().filter_map(|(_, old, _)| old.as_ref()) {
            assert!(list.trees.remove(old).is_some(), "a tree with a handle is open");
        }
        for (tree, _, new) in changes {
            tree.set_name(new.as_deref());
            if let Some(new) = new {
                if *new != tree.tag.name || list.renamed.contains_key(&tree.tag.id) {
                    list.renamed.insert(tree.tag.id, new.clone());
                }
                list.add(tree.clone());
            }
        }
    }

    /// Takes a tree off, to which `tree` is the last handle otherwise.
    pub fn take(&self, tree: Arc<OpenTree>) -> Result<OpenTree, Arc<OpenTree>> {
        let listed = self.list.lock().trees.remove(tree.name());
        // From here on only the holder of a handle can clone it.
        drop(listed);
        Arc::try_unwrap(tree)
    }

    /// Takes trees without handles off the list, the least recently requested first: enough that
    /// dropping them unpins at least `roots` roots, or a fixed part of all. Fewer if there are no
    /// more.
    pub fn take_idle(&self, roots: usize, horizon: u64) -> Vec<Arc<OpenTree>> {
        let trees = &mut self.list.lock().trees;
        let is_idle = |listed: &ListedTree| {
            Arc::strong_count(&listed.tree) == 1 && listed.tree.closed.is_over(horizon)
        };
        let idle = trees.iter().filter(|(_, listed)| is_idle(listed));
        let mut idle: Vec<(u64, Arc<OpenTree>)> =
            idle.map(|(_, listed)| (listed.asked, listed.tree.clone())).collect();
        idle.sort_unstable_by_key(|(asked, _)| *asked);
        let enough = roots.max(trees.len() / CLOSED_AT_ONCE);
        let mut taken = Vec::new();
        let mut unpinned = 0;
        for (_, tree) in idle {
            if unpinned >= enough {
                break;
            }
            unpinned += tree.roots();
            trees.remove(tree.name());
            taken.push(tree);
        }
        taken
    }
}
