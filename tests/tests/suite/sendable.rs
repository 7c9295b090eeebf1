//! Which public types of the engine may move between threads (`Send`), and which threads may share
//! (`Sync`), checked when this is compiled: the lists are the promise, and each type is in one of
//! them.

use wattle::{
    AsyncSession, AsyncTransaction, BackupReport, CloseError, Direction, Durability, Engine, Error,
    IoKind, Isolation, Keys, Options, PageAccess, PageId, PageTrace, Range, Reads, Savepoint,
    Session, Snapshot, SnapshotKeys, SnapshotRange, Spawned, Stats, Ticket, Transaction, Tree,
    TreeStat, TxnOptions, VerifyReport,
};

fn is_send<T: Send>() {}
fn is_send_and_sync<T: Send + Sync>() {}

/// True where `T` implements the trait: an inherent constant is found before that of a trait.
macro_rules! implements {
    ($type:ty, $trait:path) => {{
        #[allow(dead_code, reason = "not looked for with a type that has the trait")]
        trait Otherwise {
            const HOLDS: bool = false;
        }
        impl<T: ?Sized> Otherwise for T {}
        struct Check<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code, reason = "not found for a type without the trait")]
        impl<T: ?Sized + $trait> Check<T> {
            const HOLDS: bool = true;
        }
        <Check<$type>>::HOLDS
    }};
}

/// Handles, options, reports and errors: any thread may use them, and all at once.
#[test]
fn handles_options_and_reports_are_send_and_sync() {
    is_send_and_sync::<Engine>();
    is_send_and_sync::<Tree>();
    is_send_and_sync::<Ticket>();
    is_send_and_sync::<Savepoint>();
    is_send_and_sync::<Error>();
    is_send_and_sync::<CloseError>();
    is_send_and_sync::<Options>();
    is_send_and_sync::<TxnOptions>();
    is_send_and_sync::<Durability>();
    is_send_and_sync::<Isolation>();
    is_send_and_sync::<Reads>();
    is_send_and_sync::<IoKind>();
    is_send_and_sync::<Direction>();
    is_send_and_sync::<Stats>();
    is_send_and_sync::<TreeStat>();
    is_send_and_sync::<VerifyReport>();
    is_send_and_sync::<BackupReport>();
    is_send_and_sync::<PageId>();
    is_send_and_sync::<PageAccess>();
    is_send_and_sync::<PageTrace>();
    is_send_and_sync::<Snapshot>();
}

/// One thread at a time.
#[test]
fn sessions_and_transactions_are_send_and_not_sync() {
    is_send::<Session>();
    is_send::<Transaction<'static>>();
    is_send::<SnapshotRange>();
    is_send::<SnapshotKeys>();
    is_send::<Spawned<Vec<u8>>>();
    fn of_session<'s>(_: &'s Session) {
        is_send::<Transaction<'s>>();
    }
    let _of_any: fn(&Session) = of_session;
    const { assert!(!implements!(Session, Sync)) };
    const { assert!(!implements!(Transaction<'static>, Sync)) };
}

/// They stay on their thread: a range reads through the session or transaction that it borrows, and
/// the clones of an asynchronous session, its transactions among them, share one session.
#[test]
fn ranges_and_what_is_asynchronous_are_neither_send_nor_sync() {
    const { assert!(!implements!(Range<'static>, Send)) };
    const { assert!(!implements!(Range<'static>, Sync)) };
    const { assert!(!implements!(Keys<'static>, Send)) };
    const { assert!(!implements!(AsyncSession, Send)) };
    const { assert!(!implements!(AsyncSession, Sync)) };
    const { assert!(!implements!(AsyncTransaction, Send)) };
    const { assert!(!implements!(AsyncTransaction, Sync)) };
    const { assert!(implements!(Engine, Send) && implements!(Engine, Sync), "the macro works") };
}
