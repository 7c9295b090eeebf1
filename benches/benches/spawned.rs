//! Transactions of tokio tasks: `Engine::spawn` against tasks of the engine's own runtimes and
//! against `spawn_blocking`.
//!
//! `cargo bench -p wattle-benches --bench spawned -- [dir=PATH] [rounds=5] [seconds=3] [tasks=64]
//! [records=500000] [durability=sync|group|none]`
//!
//! Each transaction gets one record of 120 bytes and puts another one, both at random. `tasks` of
//! them are under way at any time, in each of three ways, in turns on one store:
//!
//! | way | who runs a transaction |
//! |---|---|
//! | own | tasks of `wattle::run`, on a thread for each processor, as `wattle ycsb --tasks` |
//! | spawn | tokio tasks, each of which awaits `Engine::spawn` |
//! | blocking | tokio tasks, each of which awaits `spawn_blocking` with `Engine::begin` |
//!
//! Rows: a pool that holds all records, and one that holds a tenth. Figures are transactions per
//! second, medians of the rounds. The bars of the project: `spawn` at least 0.9 of `own`, and
//! larger than memory at least 3 times `blocking`. The store is in `dir`, or in the directory for
//! temporary files, which may be in memory; the last line has the time of a sync there.

use std::{
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};
use wattle::{Durability, Engine, Error, Options, Tree, run};
use wattle_benches::{argument, median, text};

const VALUE: usize = 120;

/// State of all tasks.
struct Shared {
    engine: Engine,
    tree: Tree,
    records: u64,
    tasks: usize,
    stop: AtomicBool,
    commits: AtomicU64,
    conflicts: AtomicU64,
}

/// Numbers of a task, by splitmix64.
struct Numbers(u64);

impl Numbers {
    fn key(&mut self, records: u64) -> [u8; 8] {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) % records).to_be_bytes()
    }
}

impl Shared {
    /// Counts a transaction. A conflict is no failure: the next one has other records.
    fn count(&self, outcome: Result<(), Error>) {
        match outcome {
            Ok(()) => self.commits.fetch_add(1, Relaxed),
            Err(Error::Conflict(_)) => self.conflicts.fetch_add(1, Relaxed),
            Err(error) => panic!("a transaction failed: {error}"),
        };
    }
}

async fn transact(
    session: &wattle::AsyncSession,
    shared: &Shared,
    keys: [[u8; 8]; 2],
) -> Result<(), Error> {
    let mut txn = session.begin()?;
    let found = txn.get(&shared.tree, &keys[0]).await?;
    assert_eq!(found.map(|value| value.len()), Some(VALUE));
    txn.put(&shared.tree, &keys[1], &[keys[1][7]; VALUE]).await?;
    txn.commit().await
}

fn own(shared: &Arc<Shared>) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(shared.tasks);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let work = async {
                    let session = shared.engine.async_session().expect("a session");
                    let tasks = (thread..shared.tasks).step_by(threads).map(|task| {
                        let (session, shared) = (session.clone(), Arc::clone(shared));
                        tokio::task::spawn_local(async move {
                            let mut numbers = Numbers(task as u64);
                            while !shared.stop.load(Relaxed) {
                                let keys = [(); 2].map(|()| numbers.key(shared.records));
                                shared.count(transact(&session, &shared, keys).await);
                            }
                        })
                    });
                    for task in tasks.collect::<Vec<_>>() {
                        task.await.expect("a task");
                    }
                };
                run(256, work).expect("a runtime");
            });
        }
    });
}

/// Runs a loop of transactions in each of the tasks of a tokio runtime.
fn in_tokio<F: Future<Output = Result<(), Error>> + Send>(
    shared: &Arc<Shared>,
    transaction: impl Fn(Arc<Shared>, [[u8; 8]; 2]) -> F + Send + Copy + 'static,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
    runtime.block_on(async {
        let tasks = (0..shared.tasks).map(|task| {
            let shared = Arc::clone(shared);
            runtime.spawn(async move {
                let mut numbers = Numbers(task as u64);
                while !shared.stop.load(Relaxed) {
                    let keys = [(); 2].map(|()| numbers.key(shared.records));
                    shared.count(transaction(Arc::clone(&shared), keys).await);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("a task");
        }
    });
}

fn spawn(shared: &Arc<Shared>) {
    in_tokio(shared, async |shared: Arc<Shared>, keys| {
        let engine = shared.engine.clone();
        engine.spawn(move |session| async move { transact(&session, &shared, keys).await })?.await?
    });
}

fn blocking(shared: &Arc<Shared>) {
    in_tokio(shared, async |shared: Arc<Shared>, keys| {
        let work = move || {
            let mut txn = shared.engine.begin()?;
            let found = txn.get(&shared.tree, &keys[0])?;
            assert_eq!(found.map(|value| value.len()), Some(VALUE));
            txn.put(&shared.tree, &keys[1], &[keys[1][7]; VALUE])?;
            txn.commit()
        };
        tokio::task::spawn_blocking(work).await.expect("no panic")
    });
}

/// Transactions per second.
fn rate(shared: &Arc<Shared>, way: fn(&Arc<Shared>), time: Duration) -> f64 {
    shared.stop.store(false, Relaxed);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| way(shared));
        std::thread::sleep(time / 4);
        let (begun, before) = (Instant::now(), shared.commits.load(Relaxed));
        std::thread::sleep(time);
        let rate = (shared.commits.load(Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
        shared.stop.store(true, Relaxed);
        run.join().expect("no panic");
        rate
    })
}

fn measure(directory: &std::path::Path, what: &str, pool: u64) {
    let durability = match text("durability", "sync").as_str() {
        "sync" => Durability::Sync,
        "group" => Durability::Group,
        "none" => Durability::None,
        other => panic!("durability={other}: sync, group or none"),
    };
    let options = Options::default().pool_bytes(pool).durability(durability);
    let engine = Engine::open(directory.join(pool.to_string()), options).expect("a store");
    let tree = engine.tree("records").expect("a tree");
    let records = argument("records", 500_000) as u64;
    let entries = (0..records).map(|number| (number.to_be_bytes(), [number as u8; VALUE]));
    engine.session().expect("a session").bulk_load(&tree, entries).expect("a load");
    let shared = Arc::new(Shared {
        engine,
        tree,
        records,
        tasks: argument("tasks", 64),
        stop: AtomicBool::new(false),
        commits: AtomicU64::new(0),
        conflicts: AtomicU64::new(0),
    });
    let time = Duration::from_secs(argument("seconds", 3) as u64);
    let ways: [fn(&Arc<Shared>); 3] = [own, spawn, blocking];
    let mut rates = [const { Vec::new() }; 3];
    for _ in 0..argument("rounds", 5) {
        for (way, rates) in ways.iter().zip(&mut rates) {
            rates.push(rate(&shared, *way, time));
        }
    }
    let [own, spawn, blocking] = rates.map(median);
    println!(
        "{what:<14} {own:>9.0} {spawn:>9.0} {blocking:>9.0} {:>10.2} {:>15.2}   {:?}",
        spawn / own,
        spawn / blocking,
        shared.conflicts
    );
}

/// Microseconds of one write and sync, the median of some.
fn sync_us(directory: &std::path::Path) -> f64 {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(directory.join("probe")).expect("a file");
    let once = |number: u64| {
        let begun = Instant::now();
        file.write_all_at(&[number as u8; 4096], number % 64 * 4096).expect("a write");
        file.sync_data().expect("a sync");
        begun.elapsed().as_secs_f64() * 1e6
    };
    median((0..200).map(once).collect())
}

fn main() {
    let place = text("dir", "");
    let directory = match place.as_str() {
        "" => tempfile::tempdir(),
        place => tempfile::tempdir_in(place),
    };
    let directory = directory.expect("a directory");
    println!("                     own     spawn  blocking  spawn/own  spawn/blocking   conflicts");
    let bytes = argument("records", 500_000) as u64 * 200;
    measure(directory.path(), "in memory", 2 * bytes + (64 << 20));
    measure(directory.path(), "a tenth of it", (bytes / 10).max(8 << 20));
    println!("one write and sync: {:.0} us", sync_us(directory.path()));
}
