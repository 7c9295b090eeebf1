//! The versions of one record: what it was before each of its recent changes, newest change first.
//!
//! The page holds the record after the newest change. The value before a change is the value after
//! the next older one. To find what a snapshot sees, walk from the newest change: one that is
//! visible ends the walk, one that is not replaces the candidate by the value before it.
//!
//! Invariants, under the lock of the shard:
//! - only the newest version can be of a transaction that is not committed, because the write
//!   check lets nobody change a record over an undecided one;
//! - commit times fall from the newest version to the oldest;
//! - a transaction has one version per record, with the value before its first change;
//! - every buffer starts with the key, so that a chain of one version needs one buffer.

use super::{
    clock::Active,
    state::{Status, TxnState},
    versions::{Changed, ConflictWith, WriteCheck},
};
use std::cell::Cell;
use wattle_buffer::{Owner, Returned, Share, TreeId};

/// A chain that is longer is pruned by whoever makes it so.
pub(super) const PRUNE_ABOVE: usize = 8;

/// Buffers that a thread keeps for reuse, bytes.
const SPARE_BYTES: usize = 2 << 20;
/// Chains that a thread keeps for reuse.
const SPARE_CHAINS: usize = 8192;
/// A chain is kept with its list of older versions if that has room for no more than this.
const SPARE_LIST: usize = 2 * PRUNE_ABOVE;
/// Buffers come in classes, each of twice the capacity of the one before, from this on, bytes.
const MIN_BUFFER: usize = 64;
/// Number of classes: key and value of a record that lies in a leaf fit the last one.
const CLASSES: usize = 7;

/// Bytes of a version that need no buffer: a short key of a record that was absent before.
const INLINE: usize = 16;

/// The key, then the value before the change: in the buffer, if there is one.
#[derive(Debug, Default)]
struct Bytes {
    buffer: Vec<u8>,
    inline: [u8; INLINE],
    /// Of those bytes in use.
    inline_len: u8,
}

impl Bytes {
    /// Memory besides the version itself.
    fn heap_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    fn as_slice(&self) -> &[u8] {
        match self.buffer.capacity() {
            0 => &self.inline[..usize::from(self.inline_len)],
            _ => &self.buffer,
        }
    }
}

/// The class whose buffers hold `size` bytes.
fn class_for(size: usize) -> usize {
    (size.max(MIN_BUFFER).next_power_of_two() / MIN_BUFFER).ilog2() as usize
}

/// Memory that a chain takes: itself, its place in the table, which is two thirds full on average,
/// and its item in a queue, bytes.
pub(super) const CHAIN_BYTES: usize = size_of::<Chain>() + 16 * 3 / 2 + 16;

/// What the record was before the change.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Absent,
    Plain,
    Special,
}

/// Who made a change.
#[derive(Debug)]
pub(super) enum Writer {
    /// A transaction, whose state says whether it is committed.
    Txn(Share<TxnState>),
    /// One that had committed at this time when the change was stored.
    Done(u64),
}

/// Who makes a change.
#[derive(Debug, Clone, Copy)]
pub(super) enum By<'t> {
    /// A transaction.
    Txn(&'t Owner<TxnState>),
    /// One that has committed at this time.
    Done(u64),
}

impl By<'_> {
    fn owned(self) -> Writer {
        match self {
            By::Txn(state) => Writer::Txn(state.share()),
            By::Done(ts) => Writer::Done(ts),
        }
    }

    /// Its number; 0 if it does not matter.
    pub fn id(self) -> u64 {
        match self {
            By::Txn(state) => state.id(),
            By::Done(_) => 0,
        }
    }
}

impl Default for Writer {
    fn default() -> Writer {
        Writer::Done(0)
    }
}

impl Writer {
    fn status(&self) -> Status {
        match self {
            Writer::Txn(state) => state.status(),
            Writer::Done(ts) => Status::Committed(*ts),
        }
    }

    /// The commit time, once committed.
    pub fn committed_ts(&self) -> Option<u64> {
        match self {
            Writer::Txn(state) => state.committed_ts(),
            Writer::Done(ts) => Some(*ts),
        }
    }

    /// See [`By::id`].
    pub fn id(&self) -> u64 {
        match self {
            Writer::Txn(state) => state.id(),
            Writer::Done(_) => 0,
        }
    }

    /// It is this transaction.
    pub fn is(&self, txn: &TxnState) -> bool {
        matches!(self, Writer::Txn(state) if std::ptr::eq(&**state, txn))
    }
}

/// One change of the record.
#[derive(Debug, Default)]
pub(super) struct Version {
    pub writer: Writer,
    bytes: Bytes,
    kind: Kind,
}

/// Memory for reuse, what was given last first: chains, which keep the buffer of their newest version,
/// and buffers by class. Each thread has its own. A session drops most of the versions that it stored
/// itself and soon (see [`super::Stored`]), so that its next ones lie in memory that its processor has at
/// hand.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "the boxes are what is reused")]
pub(super) struct Spare {
    chains: Vec<Box<Chain>>,
    buffers: [Vec<Vec<u8>>; CLASSES],
    bytes: usize,
    /// Of the transaction whose versions are being dropped.
    returned: Returned<TxnState>,
}

thread_local! {
    static SPARE: Cell<Option<Box<Spare>>> = const { Cell::new(None) };
}

impl Spare {
    /// What this thread has. [`Spare::keep`] gives it back.
    pub fn of_thread() -> Box<Spare> {
        // A thread that is ending has nothing.
        SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default()
    }

    /// The thread keeps it.
    pub fn keep(mut self: Box<Spare>) {
        self.returned.release();
        // Nor does it keep anything.
        SPARE.try_with(|spare| spare.set(Some(self))).ok();
    }

    /// Makes key and value the bytes of a version.
    #[inline]
    fn join(&mut self, bytes: &mut Bytes, key: &[u8], value: &[u8]) {
        let size = key.len() + value.len();
        if size > bytes.buffer.capacity() {
            if size <= INLINE && bytes.buffer.capacity() == 0 {
                let (front, back) = bytes.inline[..size].split_at_mut(key.len());
                front.copy_from_slice(key);
                back.copy_from_slice(value);
                bytes.inline_len = size as u8;
                return;
            }
            let buffer = self.buffer(size);
            self.give(std::mem::replace(&mut bytes.buffer, buffer));
        }
        bytes.buffer.clear();
        bytes.buffer.extend_from_slice(key);
        bytes.buffer.extend_from_slice(value);
    }

    /// An empty buffer for so many bytes.
    fn buffer(&mut self, size: usize) -> Vec<u8> {
        let class = class_for(size);
        match self.buffers.get_mut(class).and_then(Vec::pop) {
            Some(buffer) => {
                self.bytes -= buffer.capacity();
                buffer
            }
            None => Vec::with_capacity(MIN_BUFFER << class),
        }
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() == 0 || self.bytes + buffer.capacity() > SPARE_BYTES {
            return;
        }
        buffer.clear();
        // One that has grown belongs to the class that it certainly suffices for.
        let class = (buffer.capacity() / MIN_BUFFER).checked_ilog2();
        if let Some(list) = class.and_then(|class| self.buffers.get_mut(class as usize)) {
            self.bytes += buffer.capacity();
            list.push(buffer);
        }
    }

    /// Lets go of the transaction of a version, before [`Spare::keep`] at the latest.
    #[inline]
    fn let_go(&mut self, writer: Writer) {
        if let Writer::Txn(state) = writer {
            self.returned.take(state);
        }
    }

    /// Takes back the memory of a version that is gone.
    #[inline]
    fn give_version(&mut self, version: Version) {
        self.let_go(version.writer);
        self.give(version.bytes.buffer);
    }

    /// Takes back the memory of a chain that is gone. There is no room for its buffer: the chain is not
    /// kept either. It would be the next one to use, without a buffer, in front of those that have one.
    #[inline]
    pub fn give_chain(&mut self, mut chain: Box<Chain>) {
        chain.drop_older(self);
        self.let_go(std::mem::take(&mut chain.newest.writer));
        let bytes = self.bytes + chain.newest.bytes.heap_bytes();
        if self.chains.len() < SPARE_CHAINS
            && chain.older.capacity() <= SPARE_LIST
            && bytes <= SPARE_BYTES
        {
            self.bytes = bytes;
            self.chains.push(chain);
        }
    }

    /// A chain to use again, with whatever it held.
    #[inline]
    fn chain(&mut self) -> Option<Box<Chain>> {
        let chain = self.chains.pop()?;
        self.bytes -= chain.newest.bytes.heap_bytes();
        Some(chain)
    }
}

/// What may be dropped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule<'a> {
    /// Versions of commits up to this time.
    pub horizon: u64,
    /// Versions that were replaced while nobody looked.
    pub active: &'a Active,
}

/// How a walk ended.
pub(super) enum Look<'c> {
    /// The page is right.
    Page { ts: u64 },
    /// The value before this version is right; `None` if there was no record.
    Before { value: Option<(&'c [u8], bool)>, ts: u64 },
    /// A transaction that is about to commit decides.
    Wait,
}

/// All versions of one record.
#[derive(Debug)]
pub(super) struct Chain {
    pub tree: TreeId,
    key_len: u16,
    /// The shard has an item for the chain in its list of young ones.
    pub young: bool,
    /// Number of the last pass that left it young.
    pub pass: u64,
    /// Length above which a push prunes.
    prune_above: u32,
    /// Time under which the shard has the chain in its heap, 0 if it has not.
    pub due: u64,
    pub newest: Version,
    /// The other versions, newest last. Holds no memory in a chain that was never longer than one.
    older: Vec<Version>,
    /// Memory of their buffers: a hot record has many, and each push wants to know.
    older_bytes: usize,
}

impl Version {
    fn new(
        writer: By<'_>,
        key: &[u8],
        before: Option<(&[u8], bool)>,
        spare: &mut Spare,
    ) -> Version {
        let mut version = Version::default();
        version.set(writer, key, before, spare);
        version
    }

    /// Becomes another version, in the same memory.
    #[inline]
    fn set(
        &mut self,
        writer: By<'_>,
        key: &[u8],
        before: Option<(&[u8], bool)>,
        spare: &mut Spare,
    ) {
        self.kind = match before {
            None => Kind::Absent,
            Some((_, false)) => Kind::Plain,
            Some((_, true)) => Kind::Special,
        };
        spare.let_go(std::mem::replace(&mut self.writer, writer.owned()));
        spare.join(&mut self.bytes, key, before.map_or(&[][..], |(value, _)| value));
    }

    fn before(&self, key_len: u16) -> Option<(&[u8], bool)> {
        let value = &self.bytes.as_slice()[usize::from(key_len)..];
        (self.kind != Kind::Absent).then_some((value, self.kind == Kind::Special))
    }

    /// The version becomes the change from before `below` to after itself.
    fn absorb(&mut self, below: &mut Version) {
        std::mem::swap(&mut self.bytes, &mut below.bytes);
        self.kind = below.kind;
    }

    /// Commit time of a version that is not the newest.
    fn old_ts(&self) -> u64 {
        self.writer.committed_ts().expect("a version under another one is committed")
    }
}

impl Chain {
    pub fn new(
        tree: TreeId,
        key: &[u8],
        writer: By<'_>,
        before: Option<(&[u8], bool)>,
        spare: &mut Spare,
    ) -> Box<Chain> {
        let key_len = u16::try_from(key.len()).expect("keys are shorter than 64 KiB");
        let mut chain = spare.chain().unwrap_or_else(|| {
            Box::new(Chain {
                tree,
                key_len,
                young: false,
                pass: 0,
                prune_above: 0,
                due: 0,
                newest: Version::default(),
                older: Vec::new(),
                older_bytes: 0,
            })
        });
        (chain.tree, chain.key_len, chain.young) = (tree, key_len, false);
        (chain.pass, chain.prune_above, chain.due) = (0, PRUNE_ABOVE as u32, 0);
        chain.newest.set(writer, key, before, spare);
        chain
    }

    #[inline]
    pub fn is_of(&self, tree: TreeId, key: &[u8]) -> bool {
        self.tree == tree
            && usize::from(self.key_len) == key.len()
            && &self.newest.bytes.as_slice()[..key.len()] == key
    }

    pub fn len(&self) -> usize {
        1 + self.older.len()
    }

    /// Nobody needs any of it: its newest change is visible to every snapshot.
    #[inline]
    pub fn is_old(&self, horizon: u64) -> bool {
        self.newest.writer.committed_ts().is_some_and(|ts| ts <= horizon)
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> u64 {
        debug_assert_eq!(self.older_bytes, self.sum_older());
        let list = self.older.capacity() * size_of::<Version>();
        (CHAIN_BYTES + self.newest.bytes.heap_bytes() + self.older_bytes + list) as u64
    }

    fn sum_older(&self) -> usize {
        self.older.iter().map(|version| version.bytes.heap_bytes()).sum()
    }

    /// May `me` change the record?
    pub fn check(&self, me: Option<&TxnState>, snapshot: u64) -> WriteCheck {
        let writer = &self.newest.writer;
        if me.is_some_and(|me| writer.is(me)) {
            return WriteCheck::Own;
        }
        match writer.status() {
            Status::Committed(ts) if ts <= snapshot => WriteCheck::Free,
            Status::Committed(ts) => WriteCheck::Conflict(ConflictWith::Committed { ts }),
            Status::Committing(ts) if ts > snapshot => WriteCheck::Conflict(ConflictWith::Active),
            Status::Committing(_) | Status::Drawing => {
                WriteCheck::Conflict(ConflictWith::Committing)
            }
            Status::Active | Status::Aborted => WriteCheck::Conflict(ConflictWith::Active),
        }
    }

    /// Stacks a version on the chain, whose newest one is committed.
    pub fn push(
        &mut self,
        key: &[u8],
        writer: By<'_>,
        before: Option<(&[u8], bool)>,
        horizon: u64,
        spare: &mut Spare,
    ) {
        let newest = self.newest.writer.committed_ts();
        let newest = newest.expect("a record is not changed over an undecided change");
        if newest <= horizon {
            // Nobody needs any of the chain.
            self.drop_older(spare);
            self.newest.set(writer, key, before, spare);
            self.prune_above = PRUNE_ABOVE as u32;
            return;
        }
        let version = Version::new(writer, key, before, spare);
        self.older_bytes += self.newest.bytes.heap_bytes();
        self.older.push(std::mem::replace(&mut self.newest, version));
    }

    /// Drops all but the newest version.
    #[inline]
    fn drop_older(&mut self, spare: &mut Spare) {
        if !self.older.is_empty() {
            self.older.drain(..).for_each(|version| spare.give_version(version));
            self.older_bytes = 0;
        }
    }

    /// Whether a push has made the chain so long that it should be pruned. A chain that stays long
    /// is not pruned again before it has doubled.
    pub fn is_long(&self) -> bool {
        self.len() > self.prune_above as usize
    }

    /// What the record was before the newest change, if that is `writer`'s.
    #[expect(clippy::option_option, reason = "no such version, and a version of no record")]
    pub fn before(&self, writer: &TxnState) -> Option<Option<(&[u8], bool)>> {
        let newest = Some(&self.newest).filter(|newest| newest.writer.is(writer))?;
        Some(newest.before(self.key_len))
    }

    /// Takes the newest version away; false if it is the only one, which the caller removes with
    /// the chain.
    pub fn pop(&mut self, spare: &mut Spare) -> bool {
        let Some(version) = self.older.pop() else {
            return false;
        };
        self.older_bytes -= version.bytes.heap_bytes();
        spare.give_version(std::mem::replace(&mut self.newest, version));
        true
    }

    /// Finds what `me` sees of the record: all commits up to the time `snapshot`, and its own changes.
    pub fn look(&self, me: Option<&TxnState>, snapshot: u64) -> Look<'_> {
        let mut candidate: Option<&Version> = None;
        let mut found = 0;
        for version in std::iter::once(&self.newest).chain(self.older.iter().rev()) {
            if me.is_some_and(|me| version.writer.is(me)) {
                break;
            }
            match version.writer.status() {
                Status::Committed(ts) if ts <= snapshot => {
                    found = ts;
                    break;
                }
                Status::Drawing => return Look::Wait,
                Status::Committing(ts) if ts <= snapshot => return Look::Wait,
                _ => candidate = Some(version),
            }
        }
        match candidate {
            None => Look::Page { ts: found },
            Some(version) => Look::Before { value: version.before(self.key_len), ts: found },
        }
    }

    /// Did others change the record at a time above `snapshot`?
    pub fn changed_since(&self, me: &TxnState, snapshot: u64) -> Changed {
        let mut answer = Changed::Unchanged;
        for version in std::iter::once(&self.newest).chain(self.older.iter().rev()) {
            if version.writer.is(me) {
                continue;
            }
            match version.writer.status() {
                Status::Committed(ts) if ts <= snapshot => break,
                Status::Committed(_) => return Changed::Changed,
                Status::Drawing | Status::Committing(_) => answer = Changed::Undecided,
                // An active one commits later: one at a time validates and commits.
                Status::Active | Status::Aborted => {}
            }
        }
        answer
    }

    /// Commit time of the oldest version, if it is committed.
    pub fn oldest_ts(&self) -> Option<u64> {
        self.older.first().unwrap_or(&self.newest).writer.committed_ts()
    }

    /// Drops the versions that nobody needs; the newest is needed. Gives how many.
    ///
    /// A version made at `ts1` whose successor was made at `ts2` is what snapshots from `ts1` to
    /// below `ts2` see, and nobody else once `ts2` is committed. If there are none, and none can
    /// come because `ts2 <= as_of`, the two changes become one: made at `ts2`, and before it the
    /// record was what it was before `ts1`. Snapshots from `ts2` on end their walk there as they
    /// did; those below `ts1` pass it and find the same value one step earlier.
    pub fn prune(&mut self, rule: Rule<'_>, spare: &mut Spare) -> usize {
        if self.older.is_empty() {
            return 0;
        }
        // 1. Versions at the old end are dropped with the values before them.
        let cut = self.older.partition_point(|version| version.old_ts() <= rule.horizon);
        // 2. From the newest on, those that stay move to the end of the list, in their order.
        let mut kept = self.older.len();
        for at in (cut..self.older.len()).rev() {
            let (low, high) = self.older.split_at_mut(kept);
            let above = high.first_mut().unwrap_or(&mut self.newest);
            let below = &mut low[at];
            let unneeded = above.writer.committed_ts().is_some_and(|ts| {
                ts <= rule.active.as_of && !rule.active.any_in(below.old_ts(), ts)
            });
            if unneeded {
                above.absorb(below);
            } else {
                kept -= 1;
                self.older.swap(at, kept);
            }
        }
        // 3. What is in front of them goes.
        for version in self.older.drain(..kept) {
            spare.give_version(version);
        }
        self.older_bytes = self.sum_older();
        let len = self.len();
        self.prune_above = PRUNE_ABOVE.max(2 * len) as u32;
        if self.older.capacity() > 4 * PRUNE_ABOVE.max(len) {
            self.older.shrink_to(len);
        }
        kept
    }
}
