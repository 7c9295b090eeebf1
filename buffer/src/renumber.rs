//! Replacing page ids: those in the reserves of workers, and that of a page in memory.

use crate::{guard::Exclusive, ids::PageId, page::header, pool::Pool};

impl Pool {
    /// Replaces page ids at or above `from` in the reserves of workers by low ones, as far as there
    /// are any.
    pub fn lower_reserves(&self, from: PageId) {
        self.reserves.lower(from, &self.allocator);
    }

    /// Whether a write of the latched page is in flight, so that its id cannot be replaced.
    pub fn is_being_written(&self, guard: &Exclusive<'_>) -> bool {
        guard.header().is_writing()
    }

    /// Gives the latched page another id, which no page has. The caller also holds the latch of its
    /// parent, unless the page is a root, and logs the page as a new one.
    ///
    /// While both latches are held, no reference to the page uses its id: its swip names the frame,
    /// and there is no read or write of it. So replacing the id needs no other frame and no I/O.
    ///
    /// # Panics
    /// If a write of the page is in flight ([`Pool::is_being_written`]).
    pub fn renumber(&self, guard: &mut Exclusive<'_>, to: PageId) {
        assert!(!guard.header().is_writing(), "page {to} would get its id during a write");
        guard.page_mut().set_u64(header::PAGE_ID, to.0);
        self.leave_page(guard.header().page_id(), guard.frame());
        guard.header().set_page_id(to);
        self.enter_page(to, guard.frame());
    }
}
