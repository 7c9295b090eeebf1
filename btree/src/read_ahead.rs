//! Reads several pages of a tree at once: chooses how many, and finds the next ones in the
//! direction of a scan.
//!
//! **Read-ahead of scans** ([`ReadAhead`]). A scan that has waited for a second leaf asks for the
//! leaves after it, without waiting for them. It asks again when half of them are used up, so the
//! device reads while the scan consumes. The window begins with [`FIRST_WINDOW`] leaves and doubles
//! each time that the scan has to wait all the same, up to the limit of the pool. It ends at the
//! bound of the range, and after the leaves that the caller said it needs. When everything that it
//! asks for is in memory already, it starts again from nothing. A scan that knows how many records
//! it needs asks for all of their leaves together with the first one that it has to wait for.
//! A read of a large value knows that, too ([`ReadAhead::cover`]).
//!
//! A scan that ends early has read at most a window in vain: their pages are reclaimed like
//! those of a cancelled operation. Errors are dropped, because the scan may never come there; if it
//! does, it reads the page itself and gets the error.

use crate::{
    descend::{Direction, Seek},
    node::NodeRef,
    step::{Step, Stop},
    tree::Tree,
};
use wattle_buffer::{
    Fault, FrameState, Optimistic, PageId, Place, ReadTicket, Reader, Restart, Swip, Target,
};

/// Most pages that one step requests at once.
const READS_AT_ONCE: usize = 16;
/// A step requests at most this part of the pool, too.
const READ_SHARE: usize = 32;

/// Leaves of the first window.
const FIRST_WINDOW: usize = 4;
/// Waits of a scan for leaves until it reads ahead.
const FAULTS: u32 = 2;
/// Inner nodes from which one step takes leaves.
const PARENTS: usize = 3;

/// How far a scan reads ahead. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// Leaves after the current one that are in memory or asked for; 0: the scan does not read
    /// ahead.
    window: usize,
    /// Of these, the leaves that were asked for.
    covered: usize,
    /// Leaves that the scan waited for.
    faults: u32,
    /// Records that the caller needs, if it has said so.
    wanted: Option<usize>,
}

impl ReadAhead {
    /// The scan starts again. `wanted`: records that it needs.
    pub(crate) fn restart(&mut self, wanted: Option<usize>) {
        *self = ReadAhead { wanted, ..ReadAhead::default() };
    }

    /// The scan has to wait for its first leaf, and leaves of its tree have about so many
    /// `records`; 0: nothing is known. Gives whether it should ask for the leaves after that one at
    /// once.
    pub(crate) fn begin(&mut self, records: usize, most: usize) -> bool {
        let Some(wanted) = self.wanted.filter(|_| self.window == 0 && records > 0) else {
            return false;
        };
        // The leaf that it waits for counts until it is loaded.
        let leaves = wanted.saturating_sub(1).div_ceil(records) + 1;
        (self.window, self.covered) = (leaves.min(most), 1);
        self.window > 1
    }

    /// The scan has copied so many records of so many of a leaf, to its end if `is_whole`, and has
    /// `waited` for it. `most`: the largest window.
    pub(crate) fn note_leaf(
        &mut self,
        (copied, records): (usize, usize),
        is_whole: bool,
        waited: bool,
        most: usize,
    ) {
        if waited {
            self.faults += 1;
            if self.faults >= FAULTS {
                self.window = (2 * self.window).max(FIRST_WINDOW).min(most);
            }
        }
        if let Some(wanted) = &mut self.wanted {
            *wanted = wanted.saturating_sub(copied);
        }
        if !is_whole {
            return;
        }
        self.covered = self.covered.saturating_sub(1);
        let Some(wanted) = self.wanted else { return };
        // With this many records in each leaf, the scan needs so many leaves.
        let leaves = wanted.div_ceil(records.max(1));
        if self.faults > 0 && self.window == 0 {
            self.window = most;
        }
        self.window = self.window.min(leaves);
        if wanted == 0 {
            // If the scan goes on all the same, it goes on like one that has said nothing.
            self.restart(None);
        }
    }

    /// The next `leaves` are needed. The first of them is asked for already.
    pub(crate) fn cover(&mut self, leaves: usize, most: usize) {
        (self.window, self.covered) = (leaves.min(most), self.covered.max(1));
    }

    /// A leaf of those that [`ReadAhead::cover`] has named was used up.
    pub(crate) fn pass_leaf(&mut self) {
        self.covered = self.covered.saturating_sub(1);
    }

    /// Whether it does nothing until the scan waits for a leaf.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        self.window == 0 && self.wanted.is_none()
    }

    /// Leaves after the current one to skip, and to ask for after that; 0 for none.
    fn next(&self) -> (usize, usize) {
        let is_due = 2 * self.covered <= self.window;
        (self.covered, if is_due { self.window.saturating_sub(self.covered) } else { 0 })
    }

    /// `asked` of the `count` next leaves had to be read.
    fn note_asked(&mut self, count: usize, asked: usize) {
        self.covered += count;
        if asked == 0 {
            // The leaves are in memory.
            let wanted = self.wanted;
            self.restart(wanted);
        }
    }
}

/// Most pages that a step may request at once.
pub(crate) fn most_reads(tree: &Tree) -> usize {
    READS_AT_ONCE.min(tree.pool.frames() / READ_SHARE).max(1)
}

impl Tree {
    /// Brings the next nodes of `level` in a direction into memory, beginning with the one that
    /// `seek` names, with as many reads at once as one round of look-ups. Does nothing if that node
    /// is in memory. The pages stay protected from eviction only until the step runs again.
    ///
    /// A read may fail for a page that the caller never needs. A caller that goes on without this
    /// step gets the error when it needs the page.
    pub(crate) fn ahead_step(&self, seek: Seek<'_>, level: u8, direction: Direction) -> Step<()> {
        let most = most_reads(self);
        if most < 2 || self.depth()? <= usize::from(level) + 1 {
            return Ok(());
        }
        let path = self.seek(seek, level + 1)?;
        let (mut parent, node) = (path.node, path.node_ref());
        let first = self.checked(&parent, seek.child(node))?;
        if let Target::Hot(_) = self.pool.locate(Swip(node.swip(first))) {
            return Ok(parent.validate()?);
        }
        let count = node.count();
        let (low, high) = match direction {
            Direction::Forward => (first, count.min(first + most - 1)),
            Direction::Backward => ((first + 1).saturating_sub(most), first),
        };
        let mut faults = Vec::new();
        for position in low..=high {
            let node = NodeRef::from(parent.page());
            let swip = Swip(node.swip(position));
            let Target::Evicted(page) = self.pool.locate(swip) else { continue };
            match self.pool.fault(parent, node.swip_offset(position), position, page)? {
                // The previous run of the step has read it. Only the swip in the parent has
                // changed.
                Ok((again, _)) => parent = again,
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(Stop::Faults(faults)) }
    }

    /// Most leaves that a scan reads ahead.
    pub(crate) fn most_ahead(&self) -> usize {
        self.pool.read_ahead().min(self.pool.frames() / READ_SHARE)
    }

    /// Asks for the next leaves of a scan at `seek` as far as its read-ahead wants, up to the one
    /// that contains `bound`. Gives the reads to start. Does less, or nothing, where it would have
    /// to wait or to try again.
    pub(crate) fn leaves_ahead(
        &self,
        seek: Seek<'_>,
        direction: Direction,
        bound: Option<&[u8]>,
        ahead: &mut ReadAhead,
    ) -> Vec<Fault> {
        let (skip, count) = ahead.next();
        let mut faults = Vec::new();
        if count == 0 || !self.depth().is_ok_and(|depth| depth > 1) {
            return faults;
        }
        let mut fence = Vec::new();
        let (mut skip, mut left) = (skip, count);
        for parent in 0..PARENTS {
            let seek = match (parent, direction) {
                (0, _) => seek,
                (_, Direction::Forward) => Seek::At(&fence),
                (_, Direction::Backward) => Seek::Before(&fence),
            };
            let before = left;
            let next = self.leaves_of(seek, direction, bound, (&mut skip, &mut left), &mut faults);
            match next {
                Ok(Some(next)) if left > 0 => fence = next,
                // The inner node itself comes first.
                Err(Stop::Fault(fault)) => {
                    faults.push(fault);
                    break;
                }
                _ => break,
            }
            debug_assert!(left <= before);
        }
        ahead.note_asked(count - left, faults.len());
        faults
    }

    /// Asks for leaves of one inner node: after `skip` leaves for `left` more, and counts both
    /// down. Gives the fence where the next node begins, if there is one within the bound.
    fn leaves_of(
        &self,
        seek: Seek<'_>,
        direction: Direction,
        bound: Option<&[u8]>,
        (skip, left): (&mut usize, &mut usize),
        faults: &mut Vec<Fault>,
    ) -> Step<Option<Vec<u8>>> {
        let path = self.seek(seek, 1)?;
        let (mut parent, node) = (path.node, path.node_ref());
        let first = self.checked(&parent, seek.child(node))?;
        let bound = match bound {
            Some(key) => Some(self.checked(&parent, node.child_position(key))?),
            None => None,
        };
        let count = node.count();
        // Fences and positions are arbitrary until the node validates.
        let mut fence = Vec::new();
        let is_last = match direction {
            Direction::Forward => !self.checked(&parent, node.upper_fence_to(&mut fence))?,
            Direction::Backward => {
                self.checked(&parent, node.lower_fence_to(&mut fence))?;
                fence.is_empty()
            }
        };
        parent.validate()?;
        let (steps, ends_here) = match direction {
            Direction::Forward => {
                let last = bound.unwrap_or(count).min(count);
                ((last + 1).saturating_sub(first), bound.is_some_and(|bound| bound < count))
            }
            Direction::Backward => {
                let last = bound.unwrap_or(0);
                ((first + 1).saturating_sub(last), bound.is_some_and(|bound| bound > 0))
            }
        };
        for step in 0..steps {
            if *skip > 0 {
                *skip -= 1;
                continue;
            }
            if *left == 0 {
                break;
            }
            *left -= 1;
            let position = match direction {
                Direction::Forward => first + step,
                Direction::Backward => first - step,
            };
            let node = NodeRef::from(parent.page());
            let swip = Swip(node.swip(position));
            let Target::Evicted(page) = self.pool.locate(swip) else { continue };
            match self.pool.fault(parent, node.swip_offset(position), position, page)? {
                Ok((again, _)) => parent = again,
                Err(fault) => faults.push(fault),
            }
        }
        Ok((!is_last && !ends_here).then_some(fence))
    }

    /// `page`, child `position` of `parent`, was missed: starts the reads of the pages that will
    /// probably follow.
    #[cold]
    pub(crate) fn read_predicted(
        &self,
        reader: &Reader,
        parent: Optimistic<'_>,
        position: usize,
        page: PageId,
    ) {
        for place in reader.predict(parent.frame(), position, page) {
            // A place that has changed is no error: it was only a prediction.
            if let Ok(Some(ticket)) = self.ticket_for(place) {
                self.pool.read_predicted(reader, ticket);
            }
        }
    }

    /// The right to read the page at a place, if it is still the place of an evicted page that no
    /// operation reads.
    ///
    /// The place may be that of any page by now. The version is taken first; then the frame must be
    /// that of an inner node in a tree, with such a child. The in-flight table validates the
    /// version under its lock, so all of that holds when the ticket is issued: a frame that leaves
    /// its tree changes its version.
    fn ticket_for(&self, place: Place) -> Result<Option<ReadTicket>, Restart> {
        let parent = self.pool.try_optimistic(place.parent)?;
        let node = NodeRef::from(parent.page());
        let is_inner = parent.header().state() == FrameState::Hot
            && node.level() > 0
            && place.position <= node.count();
        if !is_inner {
            return Ok(None);
        }
        let Target::Evicted(page) = self.pool.locate(Swip(node.swip(place.position))) else {
            return Ok(None);
        };
        parent.validate()?;
        if place.page.is_some_and(|predicted| predicted != page) {
            return Ok(None);
        }
        let offset = node.swip_offset(place.position);
        match self.pool.fault(parent, offset, place.position, page)? {
            Err(Fault::Read(ticket)) => Ok(Some(ticket)),
            _ => Ok(None),
        }
    }
}
