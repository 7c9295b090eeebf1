//! [`Spare`]: memory of dropped versions for reuse, one store for each thread.

use super::{
    bytes::{BeforeKind, Bytes, INLINE},
    chain::{Chain, Long, PRUNE_ABOVE},
    state::TxnState,
    version::{Version, Writer},
};
use std::cell::Cell;
use wattle_buffer::{Returned, prefetch_write};

/// Most bytes of buffers that a thread keeps for reuse.
const SPARE_BYTES: usize = 2 << 20;
/// Most chains that a thread keeps for reuse.
const SPARE_CHAINS: usize = 8192;
/// Most parts of long chains that a thread keeps for reuse. Their lists of older versions have room
/// for at most [`SPARE_LIST`].
const SPARE_LONG: usize = 64;
const SPARE_LIST: usize = 2 * PRUNE_ABOVE;
/// Buffers come in classes; each has twice the capacity of the previous one. Capacity of the first,
/// bytes.
const MIN_BUFFER: usize = 64;
/// Number of classes: key and value of any record in a leaf fit into the last one.
const CLASSES: usize = 7;

/// The class whose buffers hold `size` bytes.
fn class_for(size: usize) -> usize {
    (size.max(MIN_BUFFER).next_power_of_two() / MIN_BUFFER).ilog2() as usize
}

/// Memory for reuse, last in, first out: chains, parts of long chains, and buffers by class. A
/// session drops most versions that it stored, and soon (see [`super::Stored`]). So its next ones
/// reuse memory that is in the caches of its processor.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "the boxes are what is reused")]
pub(super) struct Spare {
    chains: Vec<Box<Chain>>,
    long: Vec<Box<Long>>,
    buffers: [Vec<Vec<u8>>; CLASSES],
    bytes: usize,
    /// Counts the references to the state of one transaction whose versions are being dropped.
    returned: Returned<TxnState>,
}

thread_local! {
    static SPARE: Cell<Option<Box<Spare>>> = const { Cell::new(None) };
}

impl Spare {
    /// Takes the store of this thread. [`Spare::keep`] puts it back.
    pub fn of_thread() -> Box<Spare> {
        // A thread that is ending has no store.
        SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default()
    }

    /// Puts the store back for the next use by this thread.
    pub fn keep(mut self: Box<Spare>) {
        self.returned.release();
        // A thread that is ending keeps no store.
        SPARE.try_with(|spare| spare.set(Some(self))).ok();
    }

    /// Sets the bytes of a version to key, head and value.
    #[inline]
    pub fn join(
        &mut self,
        into: &mut Bytes,
        kind: BeforeKind,
        key: &[u8],
        head: &[u8],
        value: &[u8],
    ) {
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

    /// An empty buffer for so many bytes. Prefetches the next buffer of its class.
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
        // A buffer that has grown belongs to the largest class that it can serve.
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

    /// Releases the transaction of a version, in [`Spare::keep`] at the latest.
    #[inline]
    pub fn let_go(&mut self, writer: Writer) {
        if let Writer::Txn(state) = writer {
            self.returned.take(state);
        }
    }

    /// Takes back the memory of a dropped version.
    #[inline]
    pub fn give_version(&mut self, version: Version) {
        self.let_go(version.writer);
        self.give_bytes(version.bytes);
    }

    /// Takes back the memory of a dropped chain.
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
        self.drop_older(&mut long);
        if self.long.len() < SPARE_LONG && long.older.capacity() <= SPARE_LIST {
            (long.pass, long.due) = (0, 0);
            self.long.push(long);
        }
    }

    /// A chain to reuse, with old contents. Prefetches the one after the next.
    #[inline]
    pub fn chain(&mut self) -> Option<Box<Chain>> {
        let chain = self.chains.pop()?;
        if let [.., later, _] = &self.chains[..] {
            prefetch_write(std::ptr::from_ref(&**later).cast::<u8>());
        }
        Some(chain)
    }

    /// Drops all versions of a chain but the newest.
    pub fn drop_older(&mut self, long: &mut Long) {
        long.older.drain(..).for_each(|version| self.give_version(version));
        (long.older_bytes, long.prune_above) = (0, PRUNE_ABOVE as u32);
        debug_assert!(self.bytes <= SPARE_BYTES, "{} bytes for reuse", self.bytes);
    }

    /// Further fields for a chain, reused if possible.
    pub fn long(&mut self) -> Box<Long> {
        self.long.pop().unwrap_or_default()
    }
}
