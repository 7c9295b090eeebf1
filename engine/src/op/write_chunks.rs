//! Writes of the chunks of a large value through the log.

use crate::{
    catalog::LargeStore,
    session::{resolve::Resolve, step::run},
    txn::{SystemAuthor, Txn},
};
use wattle_btree::{LargeValue, Stop};
use wattle_buffer::Result;

/// Writes the chunks of a value from number `done` on: in a transaction, or in none if the value is
/// on the list of those to be cleared away.
pub(super) async fn write_chunks<R: Resolve>(
    session: &R,
    txn: Option<&mut Txn>,
    store: &LargeStore,
    (large, value): (LargeValue, &[u8]),
    mut done: u64,
) -> Result<()> {
    let core = session.core();
    let mut author = SystemAuthor::new(&core.txns, store.tree.id(), txn);
    while done < large.chunks() {
        let before = done;
        run(session, |restarts| {
            let (cx, author) = (session.cx(), &mut author);
            match store.tree.write_chunks_step(cx, large, value, author, restarts, &mut done) {
                // A leaf was split: the next leaf is a step of its own, before which other tasks
                // may run.
                Err(Stop::Restart) if done > before => Ok(()),
                outcome => outcome,
            }
        })
        .await?;
        session.next_turn((done - before) as usize).await;
    }
    Ok(())
}
