//! Recovery, second half, on open trees: unfinished transactions are rolled back, interrupted drops
//! are finished, and unreferenced large values are found. All of it is logged, so a crash in the
//! middle is one more crash to recover from.

use crate::{
    catalog::{Catalog, OpenFor, OpenTree, TreeTag},
    core::Core,
    garbage::Garbage,
    internal::Internal,
    mvcc::Savepoint,
    options::Options,
    recover::{FoundGhosts, Loser},
    session::{
        resolve::now,
        step::{merge, run},
    },
    store::{CATALOG, StoreState},
    txn::UndoAuthor,
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};
use wattle_btree::{Context, Journal, Undo};
use wattle_buffer::{Error, Gsn, Result, TreeId};
use wattle_wal::Kind;

/// See the module documentation. `new`: the store was just created. `redone`: redo has changed
/// pages.
pub(crate) fn finish_recovery(
    core: &Core,
    cx: &Context,
    options: &Options,
    new: bool,
    redone: bool,
    losers: Vec<Loser>,
) -> Result<()> {
    let was = core.checkpoints.block().state;
    // The superblock must name the log before anything is changed.
    if was != StoreState::Logged {
        core.checkpoint_now()?;
    }
    let rolled_back = losers.len();
    roll_back_all(core, cx, options, losers)?;
    // Transaction ids restart here. Flush first, so that old ids cannot appear after new ones.
    core.sync_log()?;
    if !new {
        core.catalog.finish_drops(&core.txns, cx)?;
    }
    if !new && !core.read_only {
        let garbage = core.catalog.listed_garbage(&core.txns, cx)?;
        core.txns.garbage.add(0, garbage);
    }
    if rolled_back > 0 {
        tracing::info!(transactions = rolled_back, "rolled back what had not ended");
    }
    // From here on recovery must begin with the new log.
    if core.log.is_some() && (new || redone || rolled_back > 0) {
        core.checkpoint_now()?;
    }
    Ok(())
}

/// Queues the ghosts that redo found in pages: no snapshot needs them, and the queue that had them
/// was in memory.
pub(crate) fn adopt_ghosts(core: &Core, cx: &Context, mut ghosts: FoundGhosts) -> Result<()> {
    if core.read_only {
        return Ok(());
    }
    ghosts.keys.retain(|(tree, _)| !ghosts.trees.contains(tree));
    ghosts.keys.sort_unstable();
    ghosts.keys.dedup();
    let mut ids = ghosts.trees.clone();
    ids.extend(ghosts.keys.iter().map(|(tree, _)| *tree));
    // Ghosts of dropped trees are gone.
    let mut tags: HashMap<TreeId, Arc<TreeTag>> = HashMap::new();
    for (id, name) in core.catalog.owners(cx, &ids, false)? {
        tags.insert(id, TreeTag::new(id, &name));
    }
    let whole = ghosts.trees.into_iter().map(|tree| (tree, None));
    let one_by_one = ghosts.keys.into_iter().map(|(tree, key)| (tree, Some(key)));
    let garbage = whole.chain(one_by_one).filter_map(|(id, key)| {
        let tag = tags.get(&id)?.clone();
        Some(match key {
            Some(key) => Garbage::Ghost(tag, key),
            None => Garbage::Ghosts(tag),
        })
    });
    core.txns.garbage.add(0, garbage.collect());
    Ok(())
}

/// Rolls all transactions back that a crash ended.
fn roll_back_all(core: &Core, cx: &Context, options: &Options, losers: Vec<Loser>) -> Result<()> {
    // First the transactions that changed the catalog: from then on it has the right names.
    let (mut of_names, others): (Vec<_>, Vec<_>) =
        losers.into_iter().partition(|loser| loser.trees.contains(&CATALOG));
    // Of these, first the one that was about to give trees their names. It changed the entries last
    // of all, under the lock of the catalog, so there is one at most; and until the entries are put
    // back, the others would not find their trees.
    for at in 0..of_names.len() {
        if has_named_trees(&mut of_names[at])? {
            of_names[..=at].rotate_right(1);
        }
    }
    for loser in of_names {
        let mut owners = Owners::new(core, cx, loser.trees.clone())?;
        roll_back(core, cx, options, loser, &mut owners)?;
    }
    let ids = others.iter().flat_map(|loser| loser.trees.iter().copied()).collect();
    let mut owners = Owners::new(core, cx, ids)?;
    others.into_iter().try_for_each(|loser| roll_back(core, cx, options, loser, &mut owners))
}

fn damaged(txn: u64, what: &str) -> Error {
    let what = format!("transaction {txn} cannot be rolled back: {what}");
    Error::LogCorruption { segment: 0, offset: 0, what }
}

/// The last change of this transaction was that of an entry of a tree.
fn has_named_trees(loser: &mut Loser) -> Result<bool> {
    let Some(entry) = loser.undo.pop(Savepoint::START)? else { return Ok(false) };
    let undo = Undo::decode(entry.key).map_err(|what| damaged(loser.txn, &what))?;
    let is_name = undo.tree == CATALOG && Catalog::has_tree_under(undo.key);
    loser.undo.unpop();
    Ok(is_name)
}

/// The entries of trees by their ids, and by those of their large values, as the catalog has them.
struct Owners {
    ids: BTreeSet<TreeId>,
    names: HashMap<TreeId, String>,
    /// For those without a name, the id of the tree.
    nameless: Vec<(TreeId, TreeId)>,
    /// An entry was put back since.
    are_old: bool,
}

impl Owners {
    fn new(core: &Core, cx: &Context, ids: BTreeSet<TreeId>) -> Result<Owners> {
        let names = core.catalog.owners(cx, &ids, false)?;
        let nameless = core.catalog.nameless_owners(cx, &ids)?;
        Ok(Owners { ids, names, nameless, are_old: false })
    }

    /// The tree with this id, or with this id for its large values; none when it was dropped.
    fn open(&mut self, core: &Core, cx: &Context, id: TreeId) -> Result<Option<Arc<OpenTree>>> {
        if self.are_old {
            *self = Owners::new(core, cx, std::mem::take(&mut self.ids))?;
        }
        let nameless = self.nameless.iter().find(|(other, _)| *other == id);
        let open = match (self.names.get(&id), nameless) {
            (Some(name), _) => core.catalog.open(&core.txns, cx, name, OpenFor::Engine)?,
            (None, Some((_, tree))) => core.catalog.open_nameless(&core.txns, cx, *tree)?,
            (None, None) => return Ok(None),
        };
        match open {
            Some(open) if open.tree_of(id).is_some() => Ok(Some(open)),
            _ => {
                let what = format!("the entry of tree {id} leads to another tree");
                Err(Error::corruption(core.catalog.root_page(), what))
            }
        }
    }
}

/// Rolls back a transaction that a crash ended. It holds one of its trees open at a time.
fn roll_back(
    core: &Core,
    cx: &Context,
    options: &Options,
    mut loser: Loser,
    owners: &mut Owners,
) -> Result<()> {
    let session = Internal::new(core, cx);
    let mut last = Gsn(0);
    let mut bytes = Vec::new();
    let mut current: Option<(TreeId, Option<Arc<OpenTree>>)> = None;
    while let Some(entry) = loser.undo.pop(Savepoint::START)? {
        options.check_interrupt()?;
        bytes.clear();
        bytes.extend_from_slice(entry.key);
        let undo = Undo::decode(&bytes).map_err(|what| damaged(loser.txn, &what))?;
        if current.as_ref().is_none_or(|(id, _)| *id != undo.tree) {
            // Drop first: the previous tree must not keep its place.
            drop(current.take());
            let open = match undo.tree {
                CATALOG => None,
                tree => owners.open(core, cx, tree)?,
            };
            current = Some((undo.tree, open));
        }
        let open = current.as_ref().and_then(|(_, open)| open.as_ref());
        let tree = open.and_then(|open| open.tree_of(undo.tree));
        // A missing tree was dropped, with all its records.
        let Some(tree) = tree.or_else(|| core.catalog.system_tree(undo.tree)) else { continue };
        let mut author = UndoAuthor {
            system: &core.txns,
            tree: undo.tree,
            txn: loser.txn,
            version_of: None,
            last_gsn: Gsn(0),
        };
        let underfull =
            now(run(&session, |_| tree.restore_step(cx, undo.key, undo.before, &mut author)))?;
        last = last.max(author.last_gsn);
        owners.are_old |= undo.tree == CATALOG && Catalog::has_tree_under(undo.key);
        core.txns.garbage.add_put_back(0, open, &undo);
        if underfull {
            now(merge(&session, tree, undo.key));
        }
    }
    if let Journal::On(_, appender) = &cx.journal {
        appender.observe(last);
        let mut section = appender.begin();
        section.start(Kind::End, 0, loser.txn, Gsn(0));
        section.finish();
    }
    Ok(())
}
