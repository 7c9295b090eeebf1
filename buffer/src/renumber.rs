//! Page ids that change hands: those that workers hold in reserve, and that of a page in memory.

use crate::{guard::Exclusive, ids::PageId, page::header, pool::Pool};

impl Pool {
    /// Replaces page ids that workers hold in reserve, from `from` on, by low ones, as far as there are
    /// any.
    pub fn lower_reserves(&self, from: PageId) {
        self.reserves.lower(from, &self.allocator);
    }

    /// A write of the latched page is in flight: its id cannot be replaced.
    pub fn is_being_written(&self, guard: &Exclusive<'_>) -> bool {
        guard.header().is_writing()
    }

    /// Gives the latched page another id, which no page has. The caller also holds the latch of its
    /// parent, unless it is a root, and logs the page as a new one.
    ///
    /// While its latches are held nobody knows the page by its id: its swip names the frame, there is
    /// no read of it, and no write either. So a change of the id needs no other frame and no I/O.
    ///
    /// # Panics
    /// If a write of it is in flight ([`Pool::is_being_written`]).
    pub fn renumber(&self, guard: &mut Exclusive<'_>, to: PageId) {
        assert!(!guard.header().is_writing(), "page {to} gets its id while it is written");
        guard.page_mut().set_u64(header::PAGE_ID, to.0);
        guard.header().set_page_id(to);
    }
}
