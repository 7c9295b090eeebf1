//! Transactions of several threads over few records: a conflict is an error of the later one, which
//! runs again after a random pause.

use std::{
    error::Error,
    sync::atomic::{AtomicU64, Ordering},
};
use wattle::{Durability, Engine, Options};

const ACCOUNTS: u32 = 8;
const START: u64 = 1000;

fn number(bytes: Option<Vec<u8>>) -> u64 {
    bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (path, _temporary) = wattle_examples::store_path()?;
    let options = Options::default().pool_bytes(64 << 20).durability(Durability::Group);
    let engine = Engine::open(&path, options)?;
    let accounts = engine.tree("accounts")?;
    let session = engine.session()?;
    for account in 0..ACCOUNTS {
        session.put(&accounts, &account.to_be_bytes(), &START.to_be_bytes())?;
    }

    let attempts = AtomicU64::new(0);
    std::thread::scope(|scope| -> wattle::Result<()> {
        let threads: Vec<_> = (0..4_u32)
            .map(|thread| {
                let (engine, accounts, attempts) = (&engine, &accounts, &attempts);
                scope.spawn(move || -> wattle::Result<()> {
                    for round in 0..100 {
                        let from = (thread + round) % ACCOUNTS;
                        let to = (thread + 3 * round + 1) % ACCOUNTS;
                        if from == to {
                            continue;
                        }
                        wattle_examples::with_retries(engine, 1000, |txn| {
                            attempts.fetch_add(1, Ordering::Relaxed);
                            let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
                            let source = number(txn.get(accounts, &from)?);
                            let target = number(txn.get(accounts, &to)?);
                            let amount = source.min(10);
                            txn.put(accounts, &from, &(source - amount).to_be_bytes())?;
                            txn.put(accounts, &to, &(target + amount).to_be_bytes())
                        })?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;

    let mut sum = 0;
    for entry in session.scan(&accounts)? {
        sum += number(Some(entry?.1));
    }
    println!("{} attempts, sum {sum}", attempts.into_inner());
    if sum != START * u64::from(ACCOUNTS) {
        return Err(format!("money was lost or made: {sum}").into());
    }
    drop((session, accounts));
    engine.close()?;
    Ok(())
}
