//! Wattle and tokio in two ways: tasks of Wattle's own runtime, which read pages without blocking
//! their thread; and tasks of any runtime, which wait for the durability of commits.

use std::error::Error;
use wattle::{Engine, Options};

const RECORDS: u32 = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    let (path, _temporary) = wattle_examples::store_path()?;
    // A pool much smaller than the data.
    let engine = Engine::open(&path, Options::default().pool_bytes(2 << 20))?;
    let tree = engine.tree("records")?;
    let records = (0..RECORDS).map(|number| (number.to_be_bytes(), [number as u8; 400]));
    engine.session()?.bulk_load(&tree, records)?;

    // 1. 100 tasks on this thread. While one waits for a page, the others run.
    let found = wattle::run(64, async {
        let session = engine.async_session()?;
        let tasks: Vec<_> = (0..100_u32)
            .map(|task| {
                let (session, tree) = (session.clone(), tree.clone());
                tokio::task::spawn_local(async move {
                    let mut found = 0;
                    for round in 0..50 {
                        let number = (task * 7919 + round * 104_729) % RECORDS;
                        let value = session.get(&tree, &number.to_be_bytes()).await?;
                        found += u32::from(value.is_some_and(|value| value[0] == number as u8));
                    }
                    Ok::<u32, wattle::Error>(found)
                })
            })
            .collect();
        let mut found = 0;
        for task in tasks {
            found += task.await.map_err(|error| format!("a task died: {error}"))??;
        }
        Ok::<u32, Box<dyn Error>>(found)
    })??;
    println!("{found} records found by 100 tasks, {} pages read", engine.stats().pages_read);

    // 2. A usual runtime of several threads. Short work on pages that are mostly in memory may run
    //    in the task; what waits for the device is the commit, and a ticket is a future.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..100_u32 {
            let (engine, tree) = (engine.clone(), tree.clone());
            tasks.spawn(async move {
                let ticket = {
                    let mut txn = engine.begin()?;
                    txn.put(&tree, &(RECORDS + number).to_be_bytes(), b"new")?;
                    txn.commit_ticket()?
                };
                ticket.await
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.map_err(|error| format!("a task died: {error}"))??;
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    let stats = engine.stats();
    println!("100 commits, {} flushes of the log", stats.log_flushes);
    drop(tree);
    engine.close()?;
    if found != 5000 {
        return Err(format!("only {found} of 5000 records were right").into());
    }
    Ok(())
}
