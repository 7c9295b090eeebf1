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
use crate::limits::limit;
use std::cell::Cell;
use wattle_buffer::{Owner, Returned, Share, TreeId, prefetch_write};

/// A chain that is longer is pruned by whoever makes it so.
pub(super) const PRUNE_ABOVE: usize = limit(8, 2);

/// Buffers that a thread keeps for reuse, bytes.
const SPARE_BYTES: usize = 2 << 20;
/// Chains that a thread keeps for reuse.
const SPARE_CHAINS: usize = 8192;
/// Parts of long chains that a thread keeps for reuse, each with a list of older versions that has room for no
/// more than [`SPARE_LIST`].
const SPARE_LONG: usize = 64;
const SPARE_LIST: usize = 2 * PRUNE_ABOVE;
/// Buffers come in classes, each of twice the capacity of the one before, from this on, bytes.
const MIN_BUFFER: usize = 64;
/// Number of classes: key and value of a record that lies in a leaf fit the last one.
const CLASSES: usize = 7;

/// Bytes of a version that need no buffer: a short key of a record that was absent before, or of which a few
/// bytes were changed. As many as fit a chain of one cache line.
const INLINE: usize = 29;
/// Bytes in front of each piece of a patch: where in the value it is, and its length.
const PIECE_HEAD: usize = 4;

/// The key, then the value before the change or the pieces of a patch.
#[derive(Debug)]
enum Bytes {
    Few { kind: Kind, len: u8, bytes: [u8; INLINE] },
    Many { kind: Kind, buffer: Vec<u8> },
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::Few { kind: Kind::Absent, len: 0, bytes: [0; INLINE] }
    }
}

impl Bytes {
    #[inline]
    fn kind(&self) -> Kind {
        match self {
            Bytes::Few { kind, .. } | Bytes::Many { kind, .. } => *kind,
        }
    }

    /// Memory besides the version itself.
    #[inline]
    fn heap_bytes(&self) -> usize {
        match self {
            Bytes::Few { .. } => 0,
            Bytes::Many { buffer, .. } => buffer.capacity(),
        }
    }

    #[inline]
    fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Few { len, bytes, .. } => &bytes[..usize::from(*len)],
            Bytes::Many { buffer, .. } => buffer,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            Bytes::Few { len, bytes, .. } => &mut bytes[..usize::from(*len)],
            Bytes::Many { buffer, .. } => buffer,
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
    prefetch_write(std::ptr::without_provenance::<u8>(place));
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

/// Memory for reuse, what was given last first: chains, parts of long ones, and buffers by class. Each
/// thread has its own. A session drops most of the versions that it stored itself and soon (see
/// [`super::Stored`]), so that its next ones lie in memory that its processor has at hand.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "the boxes are what is reused")]
pub(super) struct Spare {
    chains: Vec<Box<Chain>>,
    long: Vec<Box<Long>>,
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
    fn join(&mut self, into: &mut Bytes, kind: Kind, key: &[u8], head: &[u8], value: &[u8]) {
        let size = key.len() + head.len() + value.len();
        if size <= INLINE {
            let mut bytes = [0; INLINE];
            let (front, rest) = bytes[..size].split_at_mut(key.len());
            let (middle, back) = rest.split_at_mut(head.len());
            front.copy_from_slice(key);
            middle.copy_from_slice(head);
            back.copy_from_slice(value);
            let few = Bytes::Few { kind, len: size as u8, bytes };
            self.give_bytes(std::mem::replace(into, few));
            return;
        }
        let mut buffer = match std::mem::take(into) {
            Bytes::Many { buffer, .. } if buffer.capacity() >= size => buffer,
            other => {
                self.give_bytes(other);
                self.buffer(size)
            }
        };
        buffer.clear();
        buffer.extend_from_slice(key);
        buffer.extend_from_slice(head);
        buffer.extend_from_slice(value);
        *into = Bytes::Many { kind, buffer };
    }

    /// An empty buffer for so many bytes. The next one of its class is brought near.
    fn buffer(&mut self, size: usize) -> Vec<u8> {
        let class = class_for(size);
        let list = self.buffers.get_mut(class);
        match list.and_then(|list| Some((list.pop()?, list.last()))) {
            Some((buffer, next)) => {
                if let Some(next) = next {
                    prefetch_write(next.as_ptr());
                }
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

    #[inline]
    fn give_bytes(&mut self, bytes: Bytes) {
        if let Bytes::Many { buffer, .. } = bytes {
            self.give(buffer);
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
        self.give_bytes(version.bytes);
    }

    /// Takes back the memory of a chain that is gone.
    #[inline]
    pub fn give_chain(&mut self, mut chain: Box<Chain>) {
        if let Some(long) = chain.long.take() {
            self.give_long(long);
        }
        self.let_go(std::mem::take(&mut chain.newest.writer));
        self.give_bytes(std::mem::take(&mut chain.newest.bytes));
        if self.chains.len() < SPARE_CHAINS {
            self.chains.push(chain);
        }
    }

    #[cold]
    fn give_long(&mut self, mut long: Box<Long>) {
        long.drop_older(self);
        if self.long.len() < SPARE_LONG && long.older.capacity() <= SPARE_LIST {
            (long.pass, long.due) = (0, 0);
            self.long.push(long);
        }
    }

    /// A chain to use again, with whatever it held. The one after the next is brought near.
    #[inline]
    fn chain(&mut self) -> Option<Box<Chain>> {
        let chain = self.chains.pop()?;
        if let [.., later, _] = &self.chains[..] {
            prefetch_write(std::ptr::from_ref(&**later).cast::<u8>());
        }
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
        let whole = (0..count).rev().find(|at| chain.version(*at).bytes.kind() != Kind::Patch);
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

/// All versions of one record, in a cache line if there is one version only.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Chain {
    pub tree: TreeId,
    key_len: u16,
    /// The shard has an item for the chain in its list of young ones.
    pub young: bool,
    pub newest: Version,
    long: Option<Box<Long>>,
}

/// What a chain has besides, once it is longer or passes have looked at it.
#[derive(Debug)]
struct Long {
    /// The versions but the newest, newest last.
    older: Vec<Version>,
    /// Memory of their buffers: a hot record has many, and each push wants to know.
    older_bytes: u32,
    /// Length above which a push prunes.
    prune_above: u32,
    /// Number of the last pass that left the chain young.
    pass: u32,
    /// Time under which the shard has the chain in its heap, 0 if it has not.
    due: u64,
}

impl Default for Long {
    fn default() -> Long {
        let (older, prune_above) = (Vec::new(), PRUNE_ABOVE as u32);
        Long { older, older_bytes: 0, prune_above, pass: 0, due: 0 }
    }
}

const _: () = assert!(size_of::<Chain>() == 64);

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
        let bytes = &mut self.bytes;
        match *before {
            Change::Insert => spare.join(bytes, Kind::Absent, key, &[], &[]),
            Change::Whole { before, special } => {
                let kind = if special { Kind::Special } else { Kind::Plain };
                spare.join(bytes, kind, key, &[], before);
            }
            Change::Patch { before, from, to } => {
                let piece = &before[from..to];
                spare.join(bytes, Kind::Patch, key, &piece_head(from, piece.len()), piece);
            }
        }
    }

    /// What stands behind the key.
    fn payload(&self, key_len: u16) -> &[u8] {
        &self.bytes.as_slice()[usize::from(key_len)..]
    }

    /// The value before a version that is no patch.
    fn whole(&self, key_len: u16) -> Option<(&[u8], bool)> {
        debug_assert_ne!(self.bytes.kind(), Kind::Patch);
        let special = self.bytes.kind() == Kind::Special;
        (self.bytes.kind() != Kind::Absent).then(|| (self.payload(key_len), special))
    }

    /// The version becomes the change from before `below` to after itself.
    fn absorb(&mut self, below: &mut Version, key_len: u16, spare: &mut Spare) {
        match (self.bytes.kind(), below.bytes.kind()) {
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
                spare.join(&mut self.bytes, Kind::Patch, &key, &[], &joined);
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
            let newest = Version::default();
            Box::new(Chain { tree, key_len, young: false, newest, long: None })
        });
        (chain.tree, chain.key_len, chain.young) = (tree, key_len, false);
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
        1 + self.older().len()
    }

    /// Nobody needs any of it: its newest change is visible to every snapshot.
    #[inline]
    pub fn is_old(&self, horizon: u64) -> bool {
        self.newest.writer.committed_ts().is_some_and(|ts| ts <= horizon)
    }

    /// The versions but the newest, newest last.
    #[inline]
    fn older(&self) -> &[Version] {
        self.long.as_ref().map_or(&[], |long| &long.older)
    }

    fn long(&mut self, spare: &mut Spare) -> &mut Long {
        self.long.get_or_insert_with(|| spare.long.pop().unwrap_or_default())
    }

    /// Number of the last pass that left it young; 0: none did.
    pub fn pass(&self) -> u32 {
        self.long.as_ref().map_or(0, |long| long.pass)
    }

    pub fn set_pass(&mut self, pass: u32, spare: &mut Spare) {
        self.long(spare).pass = pass;
    }

    /// Time under which the shard has the chain in its heap, 0 if it has not.
    pub fn due(&self) -> u64 {
        self.long.as_ref().map_or(0, |long| long.due)
    }

    pub fn set_due(&mut self, due: u64, spare: &mut Spare) {
        self.long(spare).due = due;
    }

    /// Memory that it takes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        let long = self.long.as_ref().map_or(0, |long| long.bytes());
        (CHAIN_BYTES + self.newest.bytes.heap_bytes() + long) as u64
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

    /// Number and session of the transaction that has changed the record and has not ended, if there is one.
    pub fn holder(&self) -> Option<(u64, u64)> {
        match &self.newest.writer {
            Writer::Txn(state) => match state.status() {
                Status::Active | Status::Drawing | Status::Committing(_) => {
                    Some((state.id(), state.session()))
                }
                Status::Committed(_) | Status::Aborted => None,
            },
            Writer::Done(_) => None,
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
            if let Some(long) = &mut self.long {
                long.drop_older(spare);
            }
            return self.newest.set(writer, key, before, spare);
        }
        let version = Version::new(writer, key, before, spare);
        let last = std::mem::replace(&mut self.newest, version);
        let long = self.long(spare);
        long.older_bytes += last.bytes.heap_bytes() as u32;
        long.older.push(last);
    }

    /// Whether a push has made the chain so long that it should be pruned. A chain that stays long
    /// is not pruned again before it has doubled.
    pub fn is_long(&self) -> bool {
        self.long.as_ref().is_some_and(|long| 1 + long.older.len() > long.prune_above as usize)
    }

    /// The version at a place of the walk: the newest is at 0.
    #[inline]
    fn version(&self, at: usize) -> &Version {
        match at {
            0 => &self.newest,
            _ => &self.older()[self.older().len() - at],
        }
    }

    /// What the record was before the newest change, if that is `writer`'s.
    pub fn before(&self, writer: &TxnState) -> Option<Restore<'_>> {
        let newest = Some(&self.newest).filter(|newest| newest.writer.is(writer))?;
        if newest.bytes.kind() != Kind::Patch {
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
        if self.newest.bytes.kind() != Kind::Patch {
            return;
        }
        let (Change::Whole { before, .. } | Change::Patch { before, .. }) = *now else {
            debug_assert!(false, "the value after a patch is a plain one");
            return;
        };
        let mut value = before.to_vec();
        let fits = apply(self.newest.payload(self.key_len), &mut value);
        debug_assert!(fits, "a patch does not fit the value after it");
        spare.join(&mut self.newest.bytes, Kind::Plain, key, &[], &value);
    }

    /// Takes the newest version away; false if it is the only one, which the caller removes with
    /// the chain.
    pub fn pop(&mut self, spare: &mut Spare) -> bool {
        let Some(long) = &mut self.long else { return false };
        let Some(version) = long.older.pop() else { return false };
        long.older_bytes -= version.bytes.heap_bytes() as u32;
        spare.give_version(std::mem::replace(&mut self.newest, version));
        true
    }

    /// Finds what `me` sees of the record: all commits up to the time `snapshot`, and its own changes.
    pub fn look(&self, me: Option<&TxnState>, snapshot: u64) -> Look<'_> {
        let (mut count, mut found) = (0, 0);
        for version in std::iter::once(&self.newest).chain(self.older().iter().rev()) {
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
        for version in std::iter::once(&self.newest).chain(self.older().iter().rev()) {
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
        self.older().first().unwrap_or(&self.newest).writer.committed_ts()
    }

    /// Drops the versions that nobody needs; the newest is needed. Gives how many.
    ///
    /// A version made at `ts1` whose successor was made at `ts2` is what snapshots from `ts1` to
    /// below `ts2` see, and nobody else once `ts2` is committed. If there are none, and none can
    /// come because `ts2 <= as_of`, the two changes become one: made at `ts2`, and before it the
    /// record was what it was before `ts1`. Snapshots from `ts2` on end their walk there as they
    /// did; those below `ts1` pass it and find the same value one step earlier.
    pub fn prune(&mut self, rule: Rule<'_>, spare: &mut Spare) -> usize {
        let Chain { newest, long: Some(long), key_len, .. } = self else { return 0 };
        let Long { older, .. } = &mut **long;
        if older.is_empty() {
            return 0;
        }
        // 1. Versions at the old end are dropped with the values before them.
        let cut = older.partition_point(|version| version.old_ts() <= rule.horizon);
        // 2. From the newest on, those that stay move to the end of the list, in their order.
        let mut kept = older.len();
        for at in (cut..older.len()).rev() {
            let (low, high) = older.split_at_mut(kept);
            let above = high.first_mut().unwrap_or(newest);
            let below = &mut low[at];
            let unneeded = above.writer.committed_ts().is_some_and(|ts| {
                ts <= rule.active.as_of && !rule.active.any_in(below.old_ts(), ts)
            });
            if unneeded {
                above.absorb(below, *key_len, spare);
            } else {
                kept -= 1;
                older.swap(at, kept);
            }
        }
        // 3. What is in front of them goes.
        for version in older.drain(..kept) {
            spare.give_version(version);
        }
        let len = 1 + older.len();
        if older.capacity() > 4 * PRUNE_ABOVE.max(len) {
            older.shrink_to(len);
        }
        long.older_bytes = long.sum_older() as u32;
        long.prune_above = PRUNE_ABOVE.max(2 * len) as u32;
        kept
    }
}

impl Long {
    fn bytes(&self) -> usize {
        debug_assert_eq!(self.older_bytes as usize, self.sum_older());
        let list = self.older.capacity() * size_of::<Version>();
        size_of::<Long>() + self.older_bytes as usize + list
    }

    fn sum_older(&self) -> usize {
        self.older.iter().map(|version| version.bytes.heap_bytes()).sum()
    }

    fn drop_older(&mut self, spare: &mut Spare) {
        self.older.drain(..).for_each(|version| spare.give_version(version));
        (self.older_bytes, self.prune_above) = (0, PRUNE_ABOVE as u32);
    }
}
