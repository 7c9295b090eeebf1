//! Every way of writing back dirty pages keeps every record: random changes by several threads in a
//! pool that holds a small part of them, against a model.

use std::collections::BTreeMap;
use std::sync::Arc;
use wattle::{
    Ace, Durability, Engine, Error, Options, Stats, Tree, WriteOrder,
    io::{FaultPlan, MemoryLog, SimStorage},
    policies,
};

const THREADS: u64 = 3;
const OPERATIONS: u64 = 4000;
const KEYS: u64 = 3000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Changes the records of one thread at random; gives what must be there then.
fn change(engine: &Engine, tree: &Tree, thread: u64, seed: u64) -> Model {
    let (session, mut model) = (engine.session().unwrap(), Model::new());
    let mut state = (seed * THREADS + thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for step in 0..OPERATIONS {
        let number = next(&mut state) % KEYS * THREADS + thread;
        let key = number.to_be_bytes().to_vec();
        match next(&mut state) % 8 {
            0 => {
                let removed = session.remove(tree, &key).unwrap();
                assert_eq!(removed, model.remove(&key).is_some(), "seed {seed}");
            }
            1 => assert_eq!(session.get(tree, &key).unwrap().as_ref(), model.get(&key)),
            _ => {
                let value = step.to_be_bytes().repeat(1 + (next(&mut state) % 50) as usize);
                session.put(tree, &key, &value).unwrap();
                model.insert(key, value);
            }
        }
    }
    model
}

fn contents(engine: &Engine, tree: &Tree) -> Model {
    let session = engine.session().unwrap();
    session.scan(tree).unwrap().collect::<Result<Model, Error>>().unwrap()
}

fn options(ace: Ace, order: WriteOrder) -> Options {
    // 64 frames.
    let options = Options::default().pool_bytes(64 * 4224).durability(Durability::None);
    options.write_concurrency(4).ace(ace).write_order(order)
}

/// Changes of several threads with these options, against a model, and after opening again. Gives
/// the statistics of the run.
fn keep_every_record(options: &Options, what: &str, seed: u64) -> Stats {
    let pages = Arc::new(SimStorage::new(FaultPlan::new(seed)));
    let log = Arc::new(MemoryLog::default());
    let open = || Engine::open_on(pages.clone(), log.clone(), options.clone()).unwrap();
    let engine = open();
    let tree = engine.tree("t").unwrap();
    let models = std::thread::scope(|scope| {
        let run = |thread| {
            let (engine, tree) = (&engine, &tree);
            scope.spawn(move || change(engine, tree, thread, seed))
        };
        let threads: Vec<_> = (0..THREADS).map(run).collect();
        let models = threads.into_iter().map(|thread| thread.join().unwrap());
        models.flatten().collect::<Model>()
    });
    let stats = engine.stats();
    assert!(stats.evictions_dirty > 100, "{what}");
    assert!(contents(&engine, &tree) == models, "{what}, seed {seed}");
    engine.verify(&mut |_| ()).unwrap();
    drop(tree);
    engine.close().unwrap();
    let engine = open();
    let tree = engine.tree("t").unwrap();
    assert!(contents(&engine, &tree) == models, "{what}, seed {seed}");
    stats
}

#[test]
fn every_way_of_write_back_keeps_every_record() {
    for (seed, ace) in [Ace::Off, Ace::Writer, Ace::Full].into_iter().enumerate() {
        for order in [WriteOrder::Value, WriteOrder::Clustered] {
            let what = format!("{ace:?} {order:?}");
            keep_every_record(&options(ace, order), &what, seed as u64 + 10);
        }
    }
}

#[test]
fn policies_with_an_order_of_their_own_write_in_batches_too() {
    for (seed, policy) in policies().iter().filter(|policy| policy.ordered).enumerate() {
        for (ace, order) in [(Ace::Writer, WriteOrder::Value), (Ace::Full, WriteOrder::Clustered)] {
            let what = format!("{} {ace:?} {order:?}", policy.name);
            let options = options(ace, order).policy(policy.name);
            keep_every_record(&options, &what, seed as u64 + 100);
        }
    }
}

#[test]
fn ace_without_an_order_of_pages_is_refused_with_the_reason() {
    let options = Options::default().policy("random").ace(Ace::Writer);
    let message = options.check().unwrap_err().to_string();
    assert!(message.contains("random has no order"), "{message}");
    assert!(Options::default().policy("random").check().is_ok());
}
