//! Changes of a chain by writers: they push a version, make it whole, or pop it in a rollback.

use super::{
    bytes::BeforeKind,
    chain::{Chain, Long},
    change::Change,
    patch::{apply, piece_head},
    spare::Spare,
    version::{Version, WriterRef},
};
use wattle_buffer::TreeId;

impl Version {
    fn new(writer: WriterRef<'_>, key: &[u8], before: &Change<'_>, spare: &mut Spare) -> Version {
        let mut version = Version::default();
        version.set(writer, key, before, spare);
        version
    }

    /// Becomes another version, and reuses the memory.
    #[inline]
    fn set(&mut self, writer: WriterRef<'_>, key: &[u8], before: &Change<'_>, spare: &mut Spare) {
        spare.let_go(std::mem::replace(&mut self.writer, writer.owned()));
        let bytes = &mut self.bytes;
        match *before {
            Change::Insert => spare.join(bytes, BeforeKind::Absent, key, &[], &[]),
            Change::Whole { before, special } => {
                let kind = if special { BeforeKind::Special } else { BeforeKind::Plain };
                spare.join(bytes, kind, key, &[], before);
            }
            Change::Patch { before, from, to } => {
                let piece = &before[from..to];
                spare.join(bytes, BeforeKind::Patch, key, &piece_head(from, piece.len()), piece);
            }
        }
    }
}

impl Chain {
    pub fn new(
        tree: TreeId,
        key: &[u8],
        writer: WriterRef<'_>,
        before: &Change<'_>,
        spare: &mut Spare,
    ) -> Box<Chain> {
        let key_len = u16::try_from(key.len()).expect("keys are shorter than 64 KiB");
        let mut chain = spare.chain().unwrap_or_else(|| {
            let newest = Version::default();
            Box::new(Chain { tree, key_len, undecided: false, newest, long: None })
        });
        (chain.tree, chain.key_len, chain.undecided) = (tree, key_len, false);
        chain.newest.set(writer, key, before, spare);
        chain
    }

    fn long(&mut self, spare: &mut Spare) -> &mut Long {
        self.long.get_or_insert_with(|| spare.long())
    }

    pub fn set_pass(&mut self, pass: u32, spare: &mut Spare) {
        self.long(spare).pass = pass;
    }

    pub fn set_due(&mut self, due: u64, spare: &mut Spare) {
        self.long(spare).due = due;
    }

    /// Pushes a version on the chain, whose newest one is committed.
    pub fn push(
        &mut self,
        key: &[u8],
        writer: WriterRef<'_>,
        before: &Change<'_>,
        horizon: u64,
        spare: &mut Spare,
    ) {
        let newest = self.newest.writer.committed_ts();
        let newest = newest.expect("a record is not changed over an undecided change");
        debug_assert!(
            !matches!(writer, WriterRef::Done(ts) if ts < newest),
            "{writer:?} changes a record after a commit at {newest}"
        );
        if newest <= horizon {
            // No snapshot needs any version of the chain.
            if let Some(long) = &mut self.long {
                spare.drop_older(long);
            }
            return self.newest.set(writer, key, before, spare);
        }
        let version = Version::new(writer, key, before, spare);
        let last = std::mem::replace(&mut self.newest, version);
        let long = self.long(spare);
        long.older_bytes += last.bytes.heap_bytes() as u32;
        long.older.push(last);
    }

    /// True if a push has made the chain so long that it should be pruned. A chain that stays long
    /// is not pruned again before it has doubled.
    pub fn is_long(&self) -> bool {
        self.long.as_ref().is_some_and(|long| 1 + long.older.len() > long.prune_above as usize)
    }

    /// The writer of the newest version changes the record again, from the state `now`. If the
    /// version is a patch, completes it with the other bytes of `now`.
    pub fn make_whole(&mut self, key: &[u8], now: &Change<'_>, spare: &mut Spare) {
        if self.newest.bytes.kind() != BeforeKind::Patch {
            return;
        }
        let (Change::Whole { before, .. } | Change::Patch { before, .. }) = *now else {
            debug_assert!(false, "the value after a patch is a plain one");
            return;
        };
        let mut value = before.to_vec();
        let fits = apply(self.newest.payload(self.key_len), &mut value);
        debug_assert!(fits, "a patch does not fit the value after it");
        spare.join(&mut self.newest.bytes, BeforeKind::Plain, key, &[], &value);
    }

    /// Removes the newest version. False if it is the only one: then the caller removes the chain.
    pub fn pop(&mut self, spare: &mut Spare) -> bool {
        let Some(long) = &mut self.long else { return false };
        let Some(version) = long.older.pop() else { return false };
        long.older_bytes -= version.bytes.heap_bytes() as u32;
        spare.give_version(std::mem::replace(&mut self.newest, version));
        true
    }
}
