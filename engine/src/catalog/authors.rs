//! Changes of the catalog that happen together with something else.

use wattle_btree::{self as btree, Attachment, Author, Stop};
use wattle_buffer::{Exclusive, FrameHeader, Gsn, PageId, Pool};

/// Adds other changes to the log record of a catalog change.
pub(super) type Attach<'a> = &'a mut dyn FnMut(&mut dyn Attachment);

/// A change of the catalog that happens together with something else.
pub(super) struct JoinedChange<'a> {
    pub attach: Attach<'a>,
    pub above: Gsn,
}

impl Author for JoinedChange<'_> {
    fn txn(&self) -> u64 {
        0
    }

    fn is_auto(&self) -> bool {
        true
    }

    fn done(&mut self, _: &Exclusive<'_>, _: &[u8]) {}

    fn attached_gsn(&self, pool: &Pool) -> Gsn {
        self.above.max(pool.allocator().freed_gsn())
    }

    fn attach(&mut self, record: &mut dyn Attachment) {
        (self.attach)(record);
    }
}

/// A change of an entry together with that of the page of a root, which is latched in between.
pub(super) struct RootMove<'t> {
    pub tree: &'t btree::Tree,
    pub from: PageId,
    pub to: PageId,
    pub root: Option<Exclusive<'t>>,
}

impl Author for RootMove<'_> {
    fn check(
        &mut self,
        _: &FrameHeader,
        _: &[u8],
        _: Option<(&[u8], bool)>,
        change: bool,
    ) -> Result<(), Stop> {
        // Not waited for: the leaf of the catalog is latched.
        self.root =
            if change { Some(self.tree.try_latch_root().ok_or(Stop::Restart)?) } else { None };
        Ok(())
    }

    fn txn(&self) -> u64 {
        0
    }

    fn is_auto(&self) -> bool {
        true
    }

    fn undone(&mut self, _: &[u8]) {
        self.root = None;
    }

    fn attached_gsn(&self, pool: &Pool) -> Gsn {
        let root = self.root.as_ref().map_or(Gsn(0), |root| root.gsn());
        root.max(pool.allocator().freed_gsn())
    }

    fn attach(&mut self, record: &mut dyn Attachment) {
        let root = self.root.as_mut().expect("latched by the check");
        let pool = self.tree.pool();
        pool.renumber(root, self.to);
        record.new_page(root);
        record.free(pool, &[self.from]);
    }
}
