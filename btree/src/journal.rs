//! How changes get into the log: one log record for all pages that a step changes. [`Context`]
//! writes the record and stamps the pages with its number (GSN) while it holds their latches and
//! the log buffer of the session.
//!
//! It holds both because a checkpoint that begins at epoch E must find every page dirty that has a
//! change of an earlier epoch. The flusher ends an epoch by taking the lock of each log buffer, so
//! a page that is stamped before that lock is released is dirty before the epoch ends. And pages
//! are written to storage under a latch, so an image never has the new bytes with the old number.
//!
//! Lower bounds for a record's number are read before its section begins. One of them is the number
//! of the last freed page, which may come from any session. If it were read inside the section, it
//! could belong to the next epoch, and the log reader would take a record with such a number in the
//! flush of this epoch for damage.
//!
//! The first change of a page after the beginning of a checkpoint logs the whole page instead of
//! the op. Recovery then needs no page that a torn write may have damaged. `image` compresses it.

use crate::{
    author::{Attachment, Author},
    code,
    image::{ImageWriter, PageImages},
    record::Op,
    step::{Step, Stop},
    undo::{OF_OP, Undo},
};
use std::{
    cell::{Cell, RefCell, RefMut},
    sync::Arc,
};
use wattle_buffer::{
    Error, Exclusive, Gsn, Moment, Optimistic, PageId, PageImage, Pool, TreeId, Worker,
};
use wattle_wal::{AUTO, Appender, Kind, Log, Section};

/// Where a session logs its changes.
pub enum Journal {
    /// Nowhere: a crash loses the store.
    Off,
    /// In the log.
    On(Arc<Log>, Appender),
}

impl Journal {
    /// A journal of the log, if there is one.
    pub fn new(log: Option<&Arc<Log>>) -> Journal {
        log.map_or(Journal::Off, |log| Journal::On(log.clone(), log.appender()))
    }

    /// Fails when the log buffer must be flushed first ([`Stop::Log`]), or when the log is full or
    /// broken. `forced` is set by rollbacks and structure changes, which may use the reserve of a
    /// full log.
    #[inline(always)]
    pub fn check_room(&self, forced: bool) -> Step<()> {
        let Journal::On(log, appender) = self else { return Ok(()) };
        match appender.check_room() {
            Ok(true) => Ok(()),
            Ok(false) if forced && log.is_full() => Ok(()),
            Ok(false) => Err(Stop::Log),
            Err(error @ (Error::Poisoned(_) | Error::Closed)) => Err(Stop::Error(error)),
            // The log has no next segment, for any reason.
            Err(_) if forced => Ok(()),
            Err(error) => Err(Stop::Error(error)),
        }
    }
}

/// The state that one session needs to change trees.
pub struct Context {
    /// Its worker.
    pub worker: Worker,
    /// Its journal.
    pub journal: Journal,
    images: RefCell<ImageWriter>,
    /// The bytes that a change overwrites.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// Memory for the halves of a node that is split; holds old contents between splits.
    halves: RefCell<Option<[Box<PageImage>; 2]>>,
    last: Cell<Option<LastLeaf>>,
    /// The current write has recorded its route in the trace of page accesses ([`crate::trace`]).
    pub(crate) route_recorded: Cell<bool>,
}

/// The leaf that a session changed last. A session that writes ascending keys, or all records of a
/// parent, writes to it again and needs no descent.
#[derive(Clone, Copy)]
struct LastLeaf {
    tree: TreeId,
    moment: Moment,
    /// The change before that went to the same leaf, so the next one probably does, too.
    again: bool,
}

impl Context {
    /// A context for a session.
    pub fn new(worker: Worker, journal: Journal) -> Context {
        Context {
            worker,
            journal,
            images: RefCell::new(ImageWriter::new(PageImages::default())),
            scratch: RefCell::new(Vec::with_capacity(256)),
            halves: RefCell::new(None),
            last: Cell::new(None),
            route_recorded: Cell::new(false),
        }
    }

    /// The context, with page images in this form.
    pub fn with_page_images(mut self, images: PageImages) -> Context {
        self.images = RefCell::new(ImageWriter::new(images));
        self
    }

    /// Memory for the halves of a node, with arbitrary contents.
    pub(crate) fn halves(&self) -> RefMut<'_, [Box<PageImage>; 2]> {
        let halves = self.halves.borrow_mut();
        RefMut::map(halves, |halves| {
            halves.get_or_insert_with(|| [(); 2].map(|()| PageImage::zeroed()))
        })
    }

    /// The leaf of the last two changes, unless another thread has changed it since: while its
    /// version stays, so do its place in the tree and its fences.
    #[inline(always)]
    pub(crate) fn last_leaf<'p>(&self, pool: &'p Pool, tree: TreeId) -> Option<Optimistic<'p>> {
        let last = self.last.get().filter(|last| last.again && last.tree == tree)?;
        pool.optimistic_since(last.moment)
    }

    /// Remembers a leaf of `tree` that was changed and is released next.
    #[inline(always)]
    pub(crate) fn note_leaf(&self, tree: TreeId, leaf: &Exclusive<'_>) {
        let moment = leaf.release_moment();
        let again = self.last.get().is_some_and(|last| last.moment.frame() == moment.frame());
        self.last.set(Some(LastLeaf { tree, moment, again }));
    }

    /// See [`Journal::check_room`].
    #[inline(always)]
    pub(crate) fn check_room(&self, forced: bool) -> Step<()> {
        self.journal.check_room(forced)
    }

    /// Logs a change of one page, made under the latch `page`.
    #[inline(always)]
    pub(crate) fn log_change<A: Author>(
        &self,
        page: &mut Exclusive<'_>,
        op: Op<'_>,
        undo: Option<Undo<'_>>,
        author: &mut A,
    ) {
        debug_assert!(op.changes_page(), "{op:?} is no change of the page");
        let appender = match &self.journal {
            Journal::Off => {
                author.drawn();
                page.stamp(Gsn(page.gsn().0 + 1));
                author.attach(&mut Unlogged);
                return;
            }
            Journal::On(_, appender) => appender,
        };
        let above = page.gsn().max(author.attached_gsn(page.pool()));
        let mut section = appender.begin();
        if let Some(time) = author.drawn() {
            section.note_time(time);
        }
        let flags = if author.is_auto() { AUTO } else { 0 };
        let gsn = section.start(Kind::Change, flags, author.txn(), above);
        let mut record = PageRecord { section: &mut section, images: &self.images, gsn };
        let says_record = record.op(page, op);
        author.attach(&mut record);
        match undo.filter(|_| !author.is_auto()) {
            Some(undo) if says_record && undo.is_of(&op, page.header().tree_id()) => {
                section.add_flags(OF_OP);
                undo.encode_of_op(|parts| section.undo(parts));
            }
            Some(undo) => undo.encode(|parts| section.undo(parts)),
            None => {}
        }
        section.finish();
    }

    /// Logs that a change was undone although the page did not change.
    pub(crate) fn log_nothing<A: Author>(&self, page: &Exclusive<'_>, author: &mut A) {
        if let Journal::On(_, appender) = &self.journal {
            let mut section = appender.begin();
            let flags = if author.is_auto() { AUTO } else { 0 };
            section.start(Kind::Change, flags, author.txn(), page.gsn());
            section.finish();
        }
    }

    /// Logs the new contents of `page`, and that `pages` left their tree. The numbers of their last
    /// changes are at most `above`, or the pages are on storage.
    pub(crate) fn log_free(&self, page: &mut Exclusive<'_>, pages: &[PageId], above: Gsn) {
        let pool = page.pool();
        self.log_with(page, above, &mut |record| record.free(pool, pages));
    }

    /// Logs the new contents of `page`, and that pages which are on storage already, as (first
    /// page, count), join the tree.
    pub(crate) fn log_adopt(&self, page: &mut Exclusive<'_>, ranges: &[(u64, u64)]) {
        let pool = page.pool();
        self.log_with(page, Gsn(0), &mut |record| record.adopt(pool, ranges));
    }

    fn log_with(
        &self,
        page: &mut Exclusive<'_>,
        above: Gsn,
        attach: &mut dyn FnMut(&mut dyn Attachment),
    ) {
        let appender = match &self.journal {
            Journal::Off => return page.stamp(Gsn(page.gsn().0 + 1)),
            Journal::On(_, appender) => appender,
        };
        let mut section = appender.begin();
        let gsn = section.start(Kind::Change, AUTO, 0, page.gsn().max(above));
        let mut record = PageRecord { section: &mut section, images: &self.images, gsn };
        record.op(page, Op::Image);
        attach(&mut record);
        section.finish();
    }

    /// Logs a record that has only attachments.
    pub(crate) fn log_attachments(&self, above: Gsn, attach: &mut dyn FnMut(&mut dyn Attachment)) {
        let appender = match &self.journal {
            Journal::Off => return attach(&mut Unlogged),
            Journal::On(_, appender) => appender,
        };
        let above = above.max(self.worker.pool().allocator().freed_gsn());
        let mut section = appender.begin();
        let gsn = section.start(Kind::Change, AUTO, 0, above);
        attach(&mut PageRecord { section: &mut section, images: &self.images, gsn });
        section.finish();
    }

    /// Logs a structure change: changes of several pages that happen atomically. Each page was
    /// changed under its latch, unless its op does not change it.
    pub(crate) fn log_group<'p>(&self, group: &mut [(&mut Exclusive<'p>, Op<'_>)]) {
        self.log_group_freeing(group, &[]);
    }

    /// As [`Context::log_group`]; also frees the page ids `freed`, which no page has now.
    pub(crate) fn log_group_freeing<'p>(
        &self,
        group: &mut [(&mut Exclusive<'p>, Op<'_>)],
        freed: &[PageId],
    ) {
        self.log_group_with(group, freed, &[]);
    }

    /// As [`Context::log_group`]; pages that are on storage already, as (first page, count), join
    /// the tree.
    pub(crate) fn log_group_adopting<'p>(
        &self,
        group: &mut [(&mut Exclusive<'p>, Op<'_>)],
        adopted: &[(u64, u64)],
    ) {
        self.log_group_with(group, &[], adopted);
    }

    fn log_group_with<'p>(
        &self,
        group: &mut [(&mut Exclusive<'p>, Op<'_>)],
        freed: &[PageId],
        adopted: &[(u64, u64)],
    ) {
        debug_assert!(!group.is_empty(), "a structure change without pages");
        let appender = match &self.journal {
            Journal::Off => {
                for (page, op) in group.iter_mut().filter(|(_, op)| op.changes_page()) {
                    let _ = op;
                    page.stamp(Gsn(page.gsn().0 + 1));
                }
                return;
            }
            Journal::On(_, appender) => appender,
        };
        let mut above = Gsn(0);
        for (page, op) in group.iter() {
            above = above.max(page.gsn());
            if *op == Op::NewImage {
                above = above.max(page.pool().allocator().freed_gsn());
            }
        }
        let mut section = appender.begin();
        let gsn = section.start(Kind::Change, AUTO, 0, above);
        let mut record = PageRecord { section: &mut section, images: &self.images, gsn };
        for (page, op) in group.iter_mut() {
            record.op(page, *op);
        }
        if !freed.is_empty() {
            record.free(self.worker.pool(), freed);
        }
        if !adopted.is_empty() {
            record.adopt(self.worker.pool(), adopted);
        }
        section.finish();
    }
}

/// Attachments without a log.
struct Unlogged;

impl Attachment for Unlogged {
    fn new_page(&mut self, page: &mut Exclusive<'_>) {
        page.stamp(Gsn(page.gsn().0 + 1));
    }

    fn free(&mut self, _: &Pool, _: &[PageId]) {}

    fn adopt(&mut self, _: &Pool, _: &[(u64, u64)]) {}
}

/// A log record that is being written.
struct PageRecord<'r, 's> {
    section: &'r mut Section<'s>,
    images: &'r RefCell<ImageWriter>,
    gsn: Gsn,
}

impl PageRecord<'_, '_> {
    /// Logs a change. Gives true if it logged the op itself, false if the whole page.
    #[inline(always)]
    fn op(&mut self, page: &mut Exclusive<'_>, op: Op<'_>) -> bool {
        let whole = matches!(op, Op::Image | Op::NewImage);
        if op.changes_page() {
            // No record since the beginning of the last checkpoint has an image of the page.
            let first = self.section.needs_image(page.header().page_id(), page.gsn());
            debug_assert!(self.gsn > page.gsn(), "the number of page {:?} falls", page.gsn());
            page.stamp(self.gsn);
            if whole || first {
                self.log_image(page, op);
                if first {
                    page.logged_whole();
                }
                return false;
            }
        }
        self.log_op(page, op);
        true
    }

    #[inline(always)]
    fn log_op(&mut self, page: &Exclusive<'_>, op: Op<'_>) {
        let (code, front, parts) = op.parts();
        let (id, tree) = (page.header().page_id(), page.header().tree_id());
        match op {
            Op::Free { pages } => self.free(page.pool(), pages),
            _ => self.section.op(id, tree, code, &[front.bytes(), parts[0], parts[1]]),
        }
    }

    /// Logs the whole page, see `image`.
    #[cold]
    fn log_image(&mut self, page: &Exclusive<'_>, op: Op<'_>) {
        let (id, tree) = (page.header().page_id(), page.header().tree_id());
        let mut images = self.images.borrow_mut();
        let joins = op == Op::NewImage;
        let payload = images.write(tree, joins, |image| page.copy_image(image));
        let [first, second] = payload.parts;
        self.section.op(id, tree, payload.code, &[&payload.lengths, first, second]);
        self.section.count_image(payload.len());
        if joins {
            page.pool().allocator().log_change(self.section.epoch(), id, 1, true);
        }
    }
}

impl Attachment for PageRecord<'_, '_> {
    fn new_page(&mut self, page: &mut Exclusive<'_>) {
        self.op(page, Op::NewImage);
    }

    fn free(&mut self, pool: &Pool, pages: &[PageId]) {
        let bytes: Vec<u8> = pages.iter().flat_map(|page| page.0.to_le_bytes()).collect();
        let first = pages.first().copied().unwrap_or(PageId(0));
        let code = Op::Free { pages }.parts().0;
        self.section.op(first, wattle_buffer::TreeId(0), code, &[&bytes]);
        let epoch = self.section.epoch();
        pages.iter().for_each(|page| pool.allocator().log_change(epoch, *page, 1, false));
        pool.allocator().log_freed(self.gsn);
    }

    fn adopt(&mut self, pool: &Pool, ranges: &[(u64, u64)]) {
        let numbers = ranges.iter().flat_map(|&(first, count)| [first, count]);
        let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        self.section.op(PageId(0), wattle_buffer::TreeId(0), code::ADOPT, &[&bytes]);
        let epoch = self.section.epoch();
        for &(first, count) in ranges {
            pool.allocator().log_change(epoch, PageId(first), count, true);
        }
    }
}
