//! Transactions of asynchronous sessions that are repeated after conflicts.

use crate::{
    async_transaction::AsyncTransaction, session::tasks::AsyncSession, transact::BackOff,
    txn::TxnOptions,
};
use wattle_buffer::{Error, Result};

impl AsyncSession {
    /// As [`crate::Session::transact`]. Other tasks of the thread run meanwhile. A future that is
    /// dropped rolls back, or has committed.
    ///
    /// ```
    /// # use wattle::{Engine, IoKind, Options};
    /// # let engine = Engine::open("m", Options::default().io(IoKind::Memory))?;
    /// # let tree = engine.tree("t")?;
    /// # wattle::run(8, async {
    /// let session = engine.async_session()?;
    /// let number = session.transact(async |txn| {
    ///     let last = txn.get(&tree, b"last").await?.map_or(0, |value| value[0]);
    ///     txn.put(&tree, b"last", &[last + 1]).await?;
    ///     Ok(last + 1)
    /// }).await?;
    /// assert_eq!(number, 1);
    /// # Ok::<(), wattle::Error>(())
    /// # })??;
    /// # Ok::<(), wattle::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`crate::Session::transact`].
    pub async fn transact<T>(
        &self,
        body: impl AsyncFnMut(&mut AsyncTransaction) -> Result<T>,
    ) -> Result<T> {
        self.transact_by(TxnOptions::default(), body, Error::is_retryable).await
    }

    /// As [`crate::Session::transact_with`].
    ///
    /// # Errors
    /// As [`crate::Session::transact`].
    pub async fn transact_with<T, E: From<Error>>(
        &self,
        options: TxnOptions,
        body: impl AsyncFnMut(&mut AsyncTransaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact_by(options, body, |_| false).await
    }

    async fn transact_by<T, E: From<Error>>(
        &self,
        options: TxnOptions,
        mut body: impl AsyncFnMut(&mut AsyncTransaction) -> Result<T, E>,
        may_repeat: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let mut back_off = BackOff::new();
        loop {
            let mut txn = self.begin_with(options)?;
            let error = match body(&mut txn).await {
                Ok(value) => {
                    let met = txn.is_in_conflict();
                    match txn.commit_ticket().await {
                        Ok(ticket) => return Ok(self.wait(ticket).await.map(|()| value)?),
                        Err(error) if met || error.is_retryable() => E::from(error),
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => {
                    let repeat = txn.is_in_conflict() || may_repeat(&error);
                    txn.abort().await?;
                    if !repeat {
                        return Err(error);
                    }
                    error
                }
            };
            if !back_off.wait(self).await {
                return Err(error);
            }
        }
    }
}
