//! Look-ups and commits through the public API, on one thread, in memory.

use criterion::{Criterion, Throughput};
use std::{hint::black_box, sync::Arc};
use wattle::{
    Durability, Engine, IoKind, Options, Session, Tree,
    io::{self, MemoryLog},
};
use wattle_workloads::{key::fnv1a, rng::Rng};

const RECORDS: u64 = 1_000_000;
const VALUE: usize = 120;
/// Keys of one `multi_get`.
const BATCH: usize = 32;

fn key(i: u64) -> [u8; 8] {
    fnv1a(i).to_be_bytes()
}

struct Store {
    engine: Engine,
    tree: Tree,
}

impl Store {
    /// A store in memory, all of it resident.
    fn new() -> Store {
        let pages = io::open(IoKind::Memory, "memory".as_ref()).expect("memory");
        let options = Options::default()
            .pool_bytes(RECORDS * 330)
            .log_bytes(256 << 20)
            .durability(Durability::None);
        let log = Arc::new(MemoryLog::default());
        let engine = Engine::open_on(pages, log, options).expect("open");
        let tree = engine.tree("bench").expect("tree");
        let mut keys: Vec<[u8; 8]> = (0..RECORDS).map(key).collect();
        keys.sort_unstable();
        let session = engine.session().expect("session");
        session.bulk_load(&tree, keys.iter().map(|key| (key, [7; VALUE]))).expect("load");
        drop(session);
        Store { engine, tree }
    }

    fn session(&self) -> Session {
        self.engine.session().expect("session")
    }
}

pub fn benches(criterion: &mut Criterion) {
    // Loading takes seconds, so it runs only when a benchmark needs it.
    let mut store = None;
    descent(criterion, &mut store);
    commit(criterion, &mut store);
    if let Some(Store { engine, tree }) = store {
        drop(tree);
        engine.close().expect("close");
    }
}

fn descent(criterion: &mut Criterion, store: &mut Option<Store>) {
    let mut group = criterion.benchmark_group("descent");
    group.throughput(Throughput::Elements(1));
    group.bench_function("get", |bencher| {
        let store = store.get_or_insert_with(Store::new);
        let (session, mut rng) = (store.session(), Rng::new(1, 0));
        bencher.iter(|| {
            let found = session.get(&store.tree, &key(rng.below(RECORDS))).expect("get");
            assert!(black_box(found).is_some());
        });
    });
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function("multi_get of 32 keys", |bencher| {
        let store = store.get_or_insert_with(Store::new);
        let (session, mut rng) = (store.session(), Rng::new(1, 0));
        bencher.iter(|| {
            let keys: [[u8; 8]; BATCH] = std::array::from_fn(|_| key(rng.below(RECORDS)));
            let mut found = 0;
            let count = |_, value: Option<&[u8]>| found += usize::from(black_box(value).is_some());
            session.multi_get(&store.tree, &keys, count).expect("multi_get");
            assert_eq!(found, BATCH);
        });
    });
    group.finish();
}

fn commit(criterion: &mut Criterion, store: &mut Option<Store>) {
    let mut group = criterion.benchmark_group("commit");
    group.throughput(Throughput::Elements(1));
    group.bench_function("auto-committed update, durability none", |bencher| {
        let store = store.get_or_insert_with(Store::new);
        let (session, mut rng) = (store.session(), Rng::new(1, 0));
        bencher.iter(|| {
            let key = key(rng.below(RECORDS));
            assert!(session.update(&store.tree, &key, &[8; VALUE]).expect("update"));
        });
    });
    group.bench_function("transaction of one update, durability none", |bencher| {
        let store = store.get_or_insert_with(Store::new);
        let (session, mut rng) = (store.session(), Rng::new(1, 0));
        bencher.iter(|| {
            let mut txn = session.begin().expect("begin");
            let key = key(rng.below(RECORDS));
            assert!(txn.update(&store.tree, &key, &[9; VALUE]).expect("update"));
            txn.commit().expect("commit");
        });
    });
    group.finish();
}
