//! Trees that a transaction has created, dropped or renamed. Until it commits only the transaction
//! knows of these changes, but for the pages of a tree that it has created, which the catalog has
//! without a name.

use crate::catalog::OpenTree;
use std::{collections::BTreeSet, sync::Arc};

/// One change of a transaction.
enum TreeChange {
    Create { name: String, tree: Arc<OpenTree> },
    Drop { name: String, tree: Arc<OpenTree> },
    Rename { from: String, to: String, tree: Arc<OpenTree> },
}

/// The name of one tree before the transaction and after it.
pub(crate) struct TreeOutcome {
    pub tree: Arc<OpenTree>,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// The changes of one transaction, oldest first.
#[derive(Default)]
pub(crate) struct TreeChanges {
    all: Vec<TreeChange>,
}

impl TreeChanges {
    pub fn created(&mut self, name: &str, tree: &Arc<OpenTree>) {
        self.all.push(TreeChange::Create { name: name.to_string(), tree: tree.clone() });
    }

    pub fn dropped(&mut self, name: &str, tree: Arc<OpenTree>) {
        self.all.push(TreeChange::Drop { name: name.to_string(), tree });
    }

    pub fn renamed(&mut self, from: &str, to: &str, tree: Arc<OpenTree>) {
        let (from, to) = (from.to_string(), to.to_string());
        self.all.push(TreeChange::Rename { from, to, tree });
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Takes the changes after the first `len` back. A tree that they created can no longer be
    /// changed.
    pub fn truncate(&mut self, len: usize) {
        for change in self.all.drain(len.min(self.all.len())..) {
            if let TreeChange::Create { tree, .. } = change {
                tree.closed.drop_for_good(0);
            }
        }
    }

    /// The tree that the name leads to, if a change says so: `Some(None)` for none.
    pub fn find(&self, asked: &str) -> Option<Option<&Arc<OpenTree>>> {
        self.all.iter().rev().find_map(|change| match change {
            TreeChange::Create { name, tree } if name == asked => Some(Some(tree)),
            TreeChange::Drop { name, .. } if name == asked => Some(None),
            TreeChange::Rename { to, tree, .. } if to == asked => Some(Some(tree)),
            TreeChange::Rename { from, .. } if from == asked => Some(None),
            _ => None,
        })
    }

    /// All names that the changes are about.
    pub fn names(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        for change in &self.all {
            match change {
                TreeChange::Create { name, .. } | TreeChange::Drop { name, .. } => {
                    names.insert(&**name);
                }
                TreeChange::Rename { from, to, .. } => {
                    names.extend([&**from, &**to]);
                }
            }
        }
        names
    }

    /// The names of each tree, in the order of its first change.
    pub fn outcomes(&self) -> Vec<TreeOutcome> {
        let mut outcomes: Vec<TreeOutcome> = Vec::new();
        for change in &self.all {
            let (tree, before, after) = match change {
                TreeChange::Create { name, tree } => (tree, None, Some(name)),
                TreeChange::Drop { name, tree } => (tree, Some(name), None),
                TreeChange::Rename { from, to, tree } => (tree, Some(from), Some(to)),
            };
            let after = after.cloned();
            match outcomes.iter_mut().find(|outcome| Arc::ptr_eq(&outcome.tree, tree)) {
                Some(outcome) => outcome.after = after,
                None => outcomes.push(TreeOutcome {
                    tree: tree.clone(),
                    before: before.cloned(),
                    after,
                }),
            }
        }
        outcomes
    }
}
