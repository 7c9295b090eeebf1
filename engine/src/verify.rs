//! Verification of a whole store: every tree with its large values, the catalog, and that each page
//! in use belongs to exactly one of them.

use crate::{
    catalog::{OpenFor, OpenTree},
    core::Core,
    recover::check_log,
    stats::TreeStat,
};
use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicBool},
};
use wattle_btree::{Context, LargeValue, Tree, TreeReport, chunk_id};
use wattle_buffer::{Error, Inside, PAGE_SIZE, PageId, Result, TreeId, is_reserved_page};

/// The findings of [`crate::Engine::verify`].
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct VerifyReport {
    /// The problems, one sentence each. Empty: the store is sound.
    pub problems: Vec<String>,
    /// Pages of trees that were checked.
    pub pages: u64,
    /// Pages in use.
    pub used_pages: u64,
    /// Pages of the data file.
    pub file_pages: u64,
    /// Trees.
    pub trees: u64,
    /// Records of all trees.
    pub records: u64,
    /// Bytes of records of the log that recovery would read.
    pub log_bytes: u64,
}

/// One bit for each page that was reached.
struct Reached {
    words: Vec<u64>,
    problems: Vec<String>,
    count: u64,
}

impl Reached {
    fn new(pages: u64) -> Reached {
        Reached { words: vec![0; pages.div_ceil(64) as usize], problems: Vec::new(), count: 0 }
    }

    fn page(&mut self, page: PageId) {
        self.count += 1;
        let Some(word) = self.words.get_mut(page.0 as usize / 64) else {
            return self.problems.push(format!("page {page} lies outside of the data file"));
        };
        let bit = 1 << (page.0 % 64);
        if *word & bit != 0 || is_reserved_page(page) {
            self.problems.push(format!("page {page} is used twice"));
        }
        *word |= bit;
    }
}

pub(crate) fn verify(
    core: &Core,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> Result<VerifyReport> {
    let _each_where_it_was = core.compacting.lock();
    let cx = core.context();
    // Garbage goes before it is counted as lost, as far as no snapshot holds it.
    core.catalog.go_on_dropping(&core.txns, &cx)?;
    core.sync_log()?;
    core.janitor_round(&cx);
    let (_paused, _quiet) = (core.janitor.pause(), core.pool.quiet());
    let (log_bytes, log_problems) = verify_log(core, stop)?;
    let (in_use, file_pages, used_pages) = core.pool.allocator().snapshot();
    // Merges that were under way when the log was made durable are not in it.
    core.sync_log()?;
    let logged = core.log.as_ref().map(|log| core.pool.allocator().logged(log.durable_epoch()));
    let mut reached = Reached::new(file_pages);
    let mut report = VerifyReport { file_pages, used_pages, log_bytes, ..VerifyReport::default() };
    let catalog = core.catalog.verify_catalog(
        &cx,
        stop,
        &mut |page| reached.page(page),
        &mut |_, _, _| {},
    )?;
    report.problems.extend(catalog.problems);
    let listed = core.catalog.listed_ids(&cx)?;
    for chunks in core.catalog.listed_without_owner(&cx)? {
        let what =
            format!("the catalog lists a large value of tree {chunks}, which does not exist");
        report.problems.push(what);
    }
    for name in core.catalog.names(&cx)? {
        let tree = match core.catalog.open(&core.txns, &cx, &name, OpenFor::Engine) {
            Ok(Some(tree)) => tree,
            Ok(None) => {
                report.problems.push(format!("the tree {name:?} is listed but not found"));
                continue;
            }
            Err(error @ Error::Corruption { .. }) => {
                report.problems.push(format!("the tree {name:?} cannot be opened: {error}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        let checked =
            verify_tree(&cx, stop, &tree, &listed, &mut reached, report.records, progress)?;
        report.problems.extend(checked.problems);
        report.records += checked.records;
        report.trees += 1;
    }
    // Transactions create or have dropped them: they count for their pages only.
    for tree in core.catalog.nameless() {
        let checked =
            verify_tree(&cx, stop, &tree, &listed, &mut reached, report.records, progress)?;
        report.problems.extend(checked.problems);
    }
    report.pages = reached.count;
    report.problems.append(&mut reached.problems);
    // Every page in use was reached, unless damage hid it.
    if report.problems.is_empty() {
        let words = (&in_use[..], logged.as_deref());
        report.problems = compare_pages(core, file_pages, words, &reached.words);
    }
    report.problems.extend(log_problems);
    Ok(report)
}

/// Compares the pages that were reached with the bitmap of pages in use, and with the one that the
/// log has; gives the problems.
fn compare_pages(
    core: &Core,
    file_pages: u64,
    (in_use, logged): (&[u64], Option<&[u64]>),
    reached: &[u64],
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut lost = 0u64;
    let mut unmarked = 0u64;
    let mut mistaken = 0u64;
    for page in (0..file_pages).map(PageId) {
        let bit = |words: &[u64]| {
            words.get(page.0 as usize / 64).is_some_and(|word| word >> (page.0 % 64) & 1 == 1)
        };
        if !is_reserved_page(page) {
            lost += u64::from(bit(in_use) && !bit(reached));
            unmarked += u64::from(!bit(in_use) && bit(reached));
            let logged = logged.is_some_and(bit);
            mistaken += u64::from(core.log.is_some() && logged != bit(reached));
        }
    }
    if mistaken > 0 {
        let what = format!("pages in use of which the log has a wrong idea: {mistaken}");
        problems.push(what);
    }
    // Sessions that are alive may hold page ids in reserve.
    lost = lost.saturating_sub(core.pool.reserved_pages() as u64);
    if lost > 0 {
        problems.push(format!("pages in use that belong to no tree: {lost}"));
    }
    if unmarked > 0 {
        problems.push(format!("pages of trees that are marked as free: {unmarked}"));
    }
    problems
}

/// A log that was caught in the middle of a write is read again this often.
const LOG_ATTEMPTS: usize = 5;

/// Reads the log that recovery would read; gives its bytes and its problems.
fn verify_log(core: &Core, stop: &AtomicBool) -> Result<(u64, Vec<String>)> {
    let Some(log) = &core.log_storage else { return Ok((0, Vec::new())) };
    core.sync_log()?;
    // Meanwhile no checkpoint takes segments away.
    core.checkpoints.look(|block| {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut problems = Vec::new();
            let bytes = check_log(&core.file, log, block, stop, &mut problems)?;
            if problems.is_empty() || attempt == LOG_ATTEMPTS {
                return Ok((bytes, problems));
            }
        }
    })
}

fn verify_tree(
    cx: &Context,
    stop: &AtomicBool,
    open: &Arc<OpenTree>,
    listed: &[(TreeId, u64)],
    reached: &mut Reached,
    before: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<TreeReport> {
    let mut large: HashMap<u64, u64> = HashMap::new();
    let (mut records, mut damaged) = (0u64, Vec::new());
    let root = open.tree.root_page();
    let mut report =
        open.tree.verify(cx, stop, &mut |page| reached.page(page), &mut |_, value, special| {
            records += 1;
            if records.is_multiple_of(1 << 14) {
                let _inside = Inside::Verify.enter();
                progress(before + records);
            }
            if special {
                match LargeValue::decode(value, root) {
                    Ok(value) => {
                        if large.insert(value.id, value.len).is_some() {
                            damaged.push(format!("large value {} is used twice", value.id));
                        }
                    }
                    Err(error) => damaged.push(error.to_string()),
                }
            }
        })?;
    report.problems.extend(damaged.into_iter().map(|p| format!("tree {:?}: {p}", open.name())));
    let Some(store) = open.large.get() else {
        if !large.is_empty() {
            report.problems.push(format!("tree {:?} has lost its large values", open.name()));
        }
        return Ok(report);
    };
    let (mut orphans, chunks_id) = (0u64, store.tree.id());
    let chunks =
        store.tree.verify(cx, stop, &mut |page| reached.page(page), &mut |key, value, _| {
            match chunk_id(key).and_then(|id| large.get_mut(&id)) {
                Some(missing) => *missing = missing.wrapping_sub(value.len() as u64),
                // A snapshot may still read it, or the janitor is clearing it away.
                None if chunk_id(key).is_some_and(|id| listed.contains(&(chunks_id, id))) => {}
                None => orphans += 1,
            }
        })?;
    report.problems.extend(chunks.problems);
    if orphans > 0 {
        report.problems.push(format!(
            "tree {:?}: chunks that belong to no large value: {orphans}",
            open.name()
        ));
    }
    for (id, missing) in large.into_iter().filter(|(_, missing)| *missing != 0) {
        report.problems.push(format!(
            "tree {:?}: large value {id} does not have its length (missing bytes: {missing})",
            open.name()
        ));
    }
    Ok(report)
}

pub(crate) fn tree_stats(core: &Core, stop: &AtomicBool) -> Result<Vec<TreeStat>> {
    let cx = core.context();
    let mut stats = Vec::new();
    for name in core.catalog.names(&cx)? {
        let Some(open) = core.catalog.open(&core.txns, &cx, &name, OpenFor::Engine)? else {
            continue;
        };
        let measure = |tree: &Tree| {
            let report = tree.measure(&cx, stop, &mut |_| {}, &mut |_, _, _| {})?;
            match report.problems.first() {
                Some(problem) => Err(Error::corruption(tree.root_page(), problem)),
                None => Ok(report),
            }
        };
        let report = measure(&open.tree)?;
        let leaf_pages = report.nodes.first().copied().unwrap_or(0);
        let leaf_bytes = report.leaf_bytes;
        let large_pages = match open.large.get() {
            Some(store) => measure(&store.tree)?.pages(),
            None => 0,
        };
        stats.push(TreeStat {
            name,
            records: report.records,
            depth: report.nodes.len(),
            leaf_pages,
            inner_pages: report.pages() - leaf_pages,
            large_pages,
            fill: leaf_bytes as f64 / (leaf_pages.max(1) * PAGE_SIZE as u64) as f64,
        });
    }
    Ok(stats)
}
