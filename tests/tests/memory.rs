//! Resident memory: never above the pool plus 64 MiB, in workloads larger than the pool. Each pool
//! is measured in a process of its own, which runs this binary again; `WATTLE_ROUNDS` above 1 adds
//! pools of 1 and 4 GiB.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{process::Command, time::Instant};
use wattle::{Engine, IoKind, Options};
use wattle_tests::harness::{memory, rounds};

/// Tells a child what to do: pool in MiB.
const POOL: &str = "WATTLE_TEST_POOL_MIB";
/// Memory of everything but the pool.
const REST: u64 = 64 << 20;

/// Runs a mixed workload of more data than the pool in this process and gives its peak memory.
fn workload(pool_bytes: u64) -> u64 {
    let before = memory("VmRSS");
    let directory = tempfile::tempdir().expect("temporary directory");
    let options = Options::default().pool_bytes(pool_bytes).io(IoKind::Uring);
    let engine = Engine::open(directory.path().join("store"), options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let records = pool_bytes * 3 / 2 / 1000;
    let started = Instant::now();
    let loader = engine.session().expect("session");
    let loaded = engine.tree("bulk").expect("tree");
    let entries = (0..records / 2).map(|i| (i.to_be_bytes(), [i as u8; 1000]));
    loader.bulk_load(&loaded, entries).expect("bulk load");
    drop(loader);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (engine, tree, loaded) = (&engine, &tree, &loaded);
            scope.spawn(move || {
                let session = engine.session().expect("session");
                let mut random = SmallRng::seed_from_u64(thread);
                for turn in 0..records / 4 {
                    let key = random.random_range(0..records).to_be_bytes();
                    match turn % 8 {
                        0..4 => session.put(tree, &key, &[thread as u8; 1000]).expect("put"),
                        4 => drop(session.remove(tree, &key).expect("remove")),
                        5 => drop(session.get(loaded, &key).expect("get")),
                        6 => drop(session.modify(loaded, &key, |v| v[0] ^= 1).expect("modify")),
                        _ => drop(session.get(tree, &key).expect("get")),
                    }
                    if turn % 2048 == 0 {
                        // The value and its copy are the caller's own memory: 2 MiB per thread.
                        let large = vec![turn as u8; 2 << 20];
                        session.put(tree, b"large", &large).expect("put");
                        session
                            .get_with(tree, b"large", |value| assert!(!value.is_empty()))
                            .expect("get");
                        let range = session.range(loaded, &key[..]..).expect("range");
                        assert!(range.take(500).all(|entry| entry.is_ok()));
                    }
                }
            });
        }
    });
    // Tasks have stacks and buffers of their own.
    let session_engine = engine.clone();
    let asynchronous = tree.clone();
    wattle::run(64, async move {
        let session = session_engine.async_session().expect("session");
        let tasks: Vec<_> = (0..64)
            .map(|task| {
                let (session, tree) = (session.clone(), asynchronous.clone());
                tokio::task::spawn_local(async move {
                    let mut random = SmallRng::seed_from_u64(100 + task);
                    for _ in 0..500 {
                        let key = random.random_range(0..records).to_be_bytes();
                        session.get(&tree, &key).await.expect("get");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("task");
        }
    })
    .expect("runtime");
    let stats = engine.stats();
    println!("{:?}, {stats:?}", started.elapsed());
    assert!(stats.evictions > stats.frames / 4, "more data than the pool: {stats:?}");
    drop((tree, loaded));
    engine.close().expect("close");
    let peak = memory("VmHWM");
    println!("{} MiB before, {} MiB at the peak", before >> 20, peak >> 20);
    peak
}

#[test]
fn resident_memory_stays_below_the_pool_and_64_mib() {
    if let Ok(mib) = std::env::var(POOL) {
        let pool_bytes = mib.parse::<u64>().expect("a number") << 20;
        let peak = workload(pool_bytes);
        assert!(
            peak <= pool_bytes + REST,
            "{} KiB above the pool of {mib} MiB",
            (peak - pool_bytes) >> 10
        );
        return;
    }
    let mut pools = vec![16, 64];
    if rounds() > 1 {
        pools.extend([256, 1024, 4096]);
    }
    let binary = std::env::current_exe().expect("this binary");
    for pool in pools {
        let child = Command::new(&binary)
            .args(["--exact", "resident_memory_stays_below_the_pool_and_64_mib", "--nocapture"])
            .env(POOL, pool.to_string())
            .output()
            .expect("run this binary");
        println!("{}", String::from_utf8_lossy(&child.stdout));
        assert!(
            child.status.success(),
            "pool of {pool} MiB: {}",
            String::from_utf8_lossy(&child.stderr)
        );
    }
}
