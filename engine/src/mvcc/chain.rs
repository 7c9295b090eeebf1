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
//! - every version starts with the key, so that a chain of one version needs one buffer at most;
//! - a version of a change that left most bytes of a value alone has only the bytes that it changed: a
//!   *patch*. The value after such a change is a plain one of the same length, and is known: it is the value
//!   before the next newer change, or what the page holds. So whoever looks starts from the page and
//!   applies patches on the way. A transaction that changes a record again makes a patch of its own whole
//!   before, from the value that the record has then ([`Chain::make_whole`]).

use super::{
    clock::Active,
    state::{Status, TxnState},
    versions::{Change, Changed, ConflictWith, WriteCheck},
};
use std::cell::Cell;
use wattle_buffer::{Owner, Returned, Share, TreeId, prefetch, prefetch_write};

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

/// Bytes of a version that need no buffer: a short key of a record that was absent before, or of which a few
/// bytes were changed. As many as fit a chain of two cache lines.
const INLINE: usize = 30;
/// Length of what lies in the buffer.
const IN_BUFFER: u8 = u8::MAX;
/// Bytes in front of each piece of a patch: where in the value it is, and its length.
const PIECE_HEAD: usize = 4;

/// The key, then the value before the change or the pieces of a patch.
#[derive(Debug, Default)]
struct Bytes {
    buffer: Vec<u8>,
    inline: [u8; INLINE],
    /// Of those bytes in use, or [`IN_BUFFER`].
    inline_len: u8,
    kind: Kind,
}

impl Bytes {
    /// Memory besides the version itself.
    fn heap_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    fn as_slice(&self) -> &[u8] {
        match self.inline_len {
            IN_BUFFER => &self.buffer,
            len => &self.inline[..usize::from(len)],
        }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        match self.inline_len {
            IN_BUFFER => &mut self.buffer,
            len => &mut self.inline[..usize::from(len)],
        }
    }
}

/// The pieces of a patch: where in the value each begins, and its bytes.
fn pieces(mut patch: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = patch.split_first_chunk::<PIECE_HEAD>()?;
        let [at, len] = [[head[0], head[1]], [head[2], head[3]]].map(u16::from_le_bytes);
        let (bytes, rest) = rest.split_at_checked(len.into())?;
        patch = rest;
        Some((at.into(), bytes))
    })
}

/// What stands in front of a piece of a patch.
fn piece_head(at: usize, len: usize) -> [u8; PIECE_HEAD] {
    let short =
        |number| u16::try_from(number).expect("values with versions are shorter than 64 KiB");
    let [[a, b], [c, d]] = [at, len].map(|number| short(number).to_le_bytes());
    [a, b, c, d]
}

/// Applies a patch. False: it does not fit the value.
fn apply(patch: &[u8], value: &mut [u8]) -> bool {
    pieces(patch).all(|(at, bytes)| match value.get_mut(at..at + bytes.len()) {
        Some(place) => {
            place.copy_from_slice(bytes);
            true
        }
        None => false,
    })
}

/// One patch for two: the bytes of the older one, and those of the newer one that it does not have.
#[cold]
fn join_patches(newer: &[u8], older: &[u8]) -> Vec<u8> {
    let mut all: Vec<Option<u8>> = Vec::new();
    for (at, bytes) in pieces(newer).chain(pieces(older)) {
        all.resize(all.len().max(at + bytes.len()), None);
        all[at..at + bytes.len()].iter_mut().zip(bytes).for_each(|(to, byte)| *to = Some(*byte));
    }
    let (mut joined, mut at) = (Vec::new(), 0);
    for run in all.chunk_by(|a, b| a.is_some() == b.is_some()) {
        if run[0].is_some() {
            joined.extend(piece_head(at, run.len()));
            joined.extend(run.iter().flatten());
        }
        at += run.len();
    }
    joined
}

/// The class whose buffers hold `size` bytes.
fn class_for(size: usize) -> usize {
    (size.max(MIN_BUFFER).next_power_of_two() / MIN_BUFFER).ilog2() as usize
}

/// Memory that a chain takes: itself, its place in the table, which is two thirds full on average,
/// and its item in a queue, bytes.
pub(super) const CHAIN_BYTES: usize = size_of::<Chain>() + 16 * 3 / 2 + 16;

/// Brings a chain near that was at a place ([`Chain::place`]), whatever is there now.
#[inline]
pub(super) fn approach(place: usize) {
    let start = std::ptr::without_provenance::<u8>(place);
    prefetch_write(start);
    prefetch_write(start.wrapping_add(64));
}

/// What the record was before the change.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Absent,
    Plain,
    Special,
    /// A plain value which was the one after the change but for some bytes.
    Patch,
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

    /// Makes key, head and value the bytes of a version.
    #[inline]
    fn join(&mut self, bytes: &mut Bytes, key: &[u8], head: &[u8], value: &[u8]) {
        let size = key.len() + head.len() + value.len();
        if size <= INLINE {
            let (front, rest) = bytes.inline[..size].split_at_mut(key.len());
            let (middle, back) = rest.split_at_mut(head.len());
            front.copy_from_slice(key);
            middle.copy_from_slice(head);
            back.copy_from_slice(value);
            bytes.inline_len = size as u8;
            return;
        }
        if size > bytes.buffer.capacity() {
            let buffer = self.buffer(size);
            self.give(std::mem::replace(&mut bytes.buffer, buffer));
        }
        bytes.inline_len = IN_BUFFER;
        bytes.buffer.clear();
        bytes.buffer.extend_from_slice(key);
        bytes.buffer.extend_from_slice(head);
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

    /// A chain to use again, with whatever it held. The next one is brought near, and the buffer of the one
    /// before which came so.
    #[inline]
    fn chain(&mut self) -> Option<Box<Chain>> {
        let chain = self.chains.pop()?;
        if let [.., later, next] = &self.chains[..] {
            prefetch(next.newest.bytes.buffer.as_ptr());
            let later = std::ptr::from_ref(&**later).cast::<u8>();
            prefetch(later);
            prefetch(later.wrapping_add(64));
        }
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
    /// What was before these versions is right.
    Before { older: Passed<'c>, ts: u64 },
    /// A transaction that is about to commit decides.
    Wait,
}

/// Versions that are not visible, from the newest on; at least one.
pub(super) struct Passed<'c> {
    chain: &'c Chain,
    count: usize,
}

impl Passed<'_> {
    /// Makes the value that the page holds, which is in `value` from `start` on, what it was before all of
    /// these versions. Gives its special flag, or nothing if there was no record, and nothing at all if the
    /// value cannot be what the page holds: it was read while somebody changed it (or a transaction that is
    /// too large for versions has changed it, and nobody may see the record).
    #[expect(clippy::option_option, reason = "a value that cannot be, and no record")]
    pub fn restore(&self, value: &mut Vec<u8>, start: usize) -> Option<Option<bool>> {
        let Passed { chain, count } = *self;
        let whole = (0..count).rev().find(|at| chain.version(*at).bytes.kind != Kind::Patch);
        let mut special = false;
        if let Some(whole) = whole {
            value.truncate(start);
            match chain.version(whole).whole(chain.key_len) {
                None => return Some(None),
                Some((bytes, is_special)) => {
                    value.extend_from_slice(bytes);
                    special = is_special;
                }
            }
        }
        for at in whole.map_or(0, |whole| whole + 1)..count {
            if !apply(chain.version(at).payload(chain.key_len), &mut value[start..]) {
                return None;
            }
            special = false;
        }
        Some(Some(special))
    }
}

/// What a record was before the change of a transaction that takes it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restore<'c> {
    /// There was no record.
    Absent,
    /// A value, and its special flag.
    Whole(&'c [u8], bool),
    /// The value from `at` on.
    Patch { at: usize, bytes: &'c [u8] },
}

/// All versions of one record.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Chain {
    pub tree: TreeId,
    key_len: u16,
    /// The shard has an item for the chain in its list of young ones.
    pub young: bool,
    /// Number of the last pass that left it young.
    pub pass: u32,
    /// Length above which a push prunes.
    prune_above: u32,
    /// Time under which the shard has the chain in its heap, 0 if it has not.
    pub due: u64,
    pub newest: Version,
    /// The other versions, newest last. Holds no memory in a chain that was never longer than one.
    older: Vec<Version>,
    /// Memory of their buffers: a hot record has many, and each push wants to know.
    older_bytes: u32,
}

const _: () = assert!(size_of::<Chain>() <= 2 * 64);

impl Version {
    fn new(writer: By<'_>, key: &[u8], before: &Change<'_>, spare: &mut Spare) -> Version {
        let mut version = Version::default();
        version.set(writer, key, before, spare);
        version
    }

    /// Becomes another version, in the same memory.
    #[inline]
    fn set(&mut self, writer: By<'_>, key: &[u8], before: &Change<'_>, spare: &mut Spare) {
        spare.let_go(std::mem::replace(&mut self.writer, writer.owned()));
        match *before {
            Change::Insert => {
                self.bytes.kind = Kind::Absent;
                spare.join(&mut self.bytes, key, &[], &[]);
            }
            Change::Whole { before, special } => {
                self.bytes.kind = if special { Kind::Special } else { Kind::Plain };
                spare.join(&mut self.bytes, key, &[], before);
            }
            Change::Patch { before, from, to } => {
                self.bytes.kind = Kind::Patch;
                let bytes = &before[from..to];
                spare.join(&mut self.bytes, key, &piece_head(from, bytes.len()), bytes);
            }
        }
    }

    /// What stands behind the key.
    fn payload(&self, key_len: u16) -> &[u8] {
        &self.bytes.as_slice()[usize::from(key_len)..]
    }

    /// The value before a version that is no patch.
    fn whole(&self, key_len: u16) -> Option<(&[u8], bool)> {
        debug_assert_ne!(self.bytes.kind, Kind::Patch);
        let special = self.bytes.kind == Kind::Special;
        (self.bytes.kind != Kind::Absent).then(|| (self.payload(key_len), special))
    }

    /// The version becomes the change from before `below` to after itself.
    fn absorb(&mut self, below: &mut Version, key_len: u16, spare: &mut Spare) {
        match (self.bytes.kind, below.bytes.kind) {
            (_, Kind::Absent | Kind::Plain | Kind::Special) => {
                std::mem::swap(&mut self.bytes, &mut below.bytes);
            }
            (Kind::Patch, Kind::Patch) => {
                let joined = join_patches(self.payload(key_len), below.payload(key_len));
                if joined == below.payload(key_len) {
                    // All that changed later had changed before: the common case.
                    return std::mem::swap(&mut self.bytes, &mut below.bytes);
                }
                let key = below.bytes.as_slice()[..usize::from(key_len)].to_vec();
                spare.join(&mut self.bytes, &key, &[], &joined);
            }
            (_, Kind::Patch) => {
                // It fits, unless a change in between left no version, and nobody may see the record.
                let value = &mut self.bytes.as_mut_slice()[usize::from(key_len)..];
                _ = apply(below.payload(key_len), value);
            }
        }
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
        before: &Change<'_>,
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

    /// Where it lies, for [`approach`].
    #[inline]
    pub fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[inline]
    pub fn is_of(&self, tree: TreeId, key: &[u8]) -> bool {
        self.tree == tree && usize::from(self.key_len) == key.len() && self.key() == key
    }

    /// The key of the record.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.newest.bytes.as_slice()[..usize::from(self.key_len)]
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
        debug_assert_eq!(self.older_bytes as usize, self.sum_older());
        let list = self.older.capacity() * size_of::<Version>();
        (CHAIN_BYTES + self.newest.bytes.heap_bytes() + self.older_bytes as usize + list) as u64
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
        before: &Change<'_>,
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
        self.older_bytes += self.newest.bytes.heap_bytes() as u32;
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

    /// The version at a place of the walk: the newest is at 0.
    #[inline]
    fn version(&self, at: usize) -> &Version {
        match at {
            0 => &self.newest,
            _ => &self.older[self.older.len() - at],
        }
    }

    /// What the record was before the newest change, if that is `writer`'s.
    pub fn before(&self, writer: &TxnState) -> Option<Restore<'_>> {
        let newest = Some(&self.newest).filter(|newest| newest.writer.is(writer))?;
        if newest.bytes.kind != Kind::Patch {
            return Some(match newest.whole(self.key_len) {
                None => Restore::Absent,
                Some((bytes, special)) => Restore::Whole(bytes, special),
            });
        }
        // Nothing is joined with the version of a transaction that is not committed: it has one piece.
        pieces(newest.payload(self.key_len)).next().map(|(at, bytes)| Restore::Patch { at, bytes })
    }

    /// The writer of the newest version changes the record once more, which is `now`: if the version is a
    /// patch, whose other bytes are those of `now`, it gets all of them.
    pub fn make_whole(&mut self, key: &[u8], now: &Change<'_>, spare: &mut Spare) {
        if self.newest.bytes.kind != Kind::Patch {
            return;
        }
        let (Change::Whole { before, .. } | Change::Patch { before, .. }) = *now else {
            debug_assert!(false, "the value after a patch is a plain one");
            return;
        };
        let mut value = before.to_vec();
        let fits = apply(self.newest.payload(self.key_len), &mut value);
        debug_assert!(fits, "a patch does not fit the value after it");
        self.newest.bytes.kind = Kind::Plain;
        spare.join(&mut self.newest.bytes, key, &[], &value);
    }

    /// Takes the newest version away; false if it is the only one, which the caller removes with
    /// the chain.
    pub fn pop(&mut self, spare: &mut Spare) -> bool {
        let Some(version) = self.older.pop() else {
            return false;
        };
        self.older_bytes -= version.bytes.heap_bytes() as u32;
        spare.give_version(std::mem::replace(&mut self.newest, version));
        true
    }

    /// Finds what `me` sees of the record: all commits up to the time `snapshot`, and its own changes.
    pub fn look(&self, me: Option<&TxnState>, snapshot: u64) -> Look<'_> {
        let (mut count, mut found) = (0, 0);
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
                _ => count += 1,
            }
        }
        match count {
            0 => Look::Page { ts: found },
            _ => Look::Before { older: Passed { chain: self, count }, ts: found },
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
                above.absorb(below, self.key_len, spare);
            } else {
                kept -= 1;
                self.older.swap(at, kept);
            }
        }
        // 3. What is in front of them goes.
        for version in self.older.drain(..kept) {
            spare.give_version(version);
        }
        self.older_bytes = self.sum_older() as u32;
        let len = self.len();
        self.prune_above = PRUNE_ABOVE.max(2 * len) as u32;
        if self.older.capacity() > 4 * PRUNE_ABOVE.max(len) {
            self.older.shrink_to(len);
        }
        kept
    }
}
