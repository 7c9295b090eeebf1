//! Ranges of asynchronous sessions and transactions.

use crate::{
    op::{
        range::{KeyBounds, RangeReader},
        scan::{Entry, Unread},
    },
    session::tasks::{AsyncSession, LONG_TURN, TURN},
    tree::Tree,
    txn::Txn,
};
use wattle_btree::{Direction, Taken};
use wattle_buffer::Result;

/// Records of a range, in key order, of an [`AsyncSession`] or an [`crate::AsyncTransaction`].
///
/// ```
/// # use wattle::{Engine, IoKind, Options};
/// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
/// # let tree = engine.tree("t")?;
/// # wattle::run(8, async {
/// let session = engine.async_session()?;
/// for key in [b"a", b"b", b"c"] {
///     session.put(&tree, key, b"").await?;
/// }
/// let mut range = session.range(&tree, &b"a"[..]..&b"c"[..]).await?.rev();
/// let mut keys = Vec::new();
/// while let Some((key, _)) = range.next_entry().await? {
///     keys.push(key.to_vec());
/// }
/// assert_eq!(keys, [b"b", b"a"]);
/// # Ok::<(), wattle::Error>(())
/// # })??;
/// # Ok::<(), wattle::Error>(())
/// ```
pub struct AsyncRange<'s> {
    reader: RangeReader<'s, AsyncSession>,
    session: &'s AsyncSession,
    /// Other tasks run after so many operations that did not wait.
    turn: u32,
}

impl<'s> AsyncRange<'s> {
    pub(crate) async fn auto(
        session: &'s AsyncSession,
        tree: &'s Tree,
        bounds: KeyBounds<'_>,
    ) -> Result<AsyncRange<'s>> {
        let reader = RangeReader::auto(session, tree, bounds, Direction::Forward).await?;
        Ok(AsyncRange { reader, session, turn: TURN })
    }

    pub(crate) fn in_txn(
        session: &'s AsyncSession,
        txn: &'s Txn,
        tree: &'s Tree,
        bounds: KeyBounds<'_>,
    ) -> Result<AsyncRange<'s>> {
        let reader = RangeReader::in_txn(session, txn, tree, bounds, Direction::Forward)?;
        let turn = if txn.options.read_only { TURN } else { LONG_TURN };
        Ok(AsyncRange { reader, session, turn })
    }

    /// As [`crate::Range::rev`].
    pub fn rev(mut self) -> Self {
        self.reader.reverse();
        self
    }

    /// As [`crate::Range::expect_records`].
    pub fn expect_records(mut self, records: usize) -> Self {
        self.reader.expect(records);
        self
    }

    /// As [`crate::Range::next_entry`]. Waits without the thread for pages that are not in memory.
    ///
    /// # Errors
    /// As there.
    pub async fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let entry = match self.reader.next_loaded()? {
            Some(Taken::Inline) => Some(Entry::Inline),
            taken => {
                let unread = taken.is_some().then(|| self.reader.unread());
                self.session.end_turn_after(self.turn).await;
                unread.into_iter().for_each(Unread::end);
                self.reader.load(taken).await?
            }
        };
        Ok(entry.map(|entry| self.reader.pair(entry)))
    }

    /// As [`crate::Range::next_key`].
    ///
    /// # Errors
    /// As there.
    pub async fn next_key(&mut self) -> Result<Option<&[u8]>> {
        if self.reader.next_loaded()?.is_none() {
            self.session.end_turn_after(self.turn).await;
            if self.reader.load_key().await?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(self.reader.pair(Entry::Inline).0))
    }
}
