//! Large values against a `BTreeMap`: lengths around every border, whole and in parts, as streams,
//! in tiny pools, from several threads; and readers beside threads that replace what they read.
//! `WATTLE_ROUNDS` multiplies the length.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeMap,
    io::{BufRead, Read, Seek, SeekFrom},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};
use wattle::{Durability, Engine, Error, MIN_LOG_BYTES, Options, Session, Transaction, Tree};
use wattle_tests::harness::{
    Context, Device, Watchdog, assert_verified, eventually, rounds, small_pool,
    value_of_version as value,
};

/// Bytes of a chunk, and the longest value of a key of 4 bytes that lies in its leaf.
const CHUNK: usize = 1904;
const INLINE: usize = 1912;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A length at or beside a border: of the leaf, of chunks, of leaves of chunks.
fn length(random: &mut SmallRng) -> usize {
    let border = match random.random_range(0..20) {
        0..3 => INLINE,
        3..16 => CHUNK * random.random_range(1..14),
        16..19 => CHUNK * random.random_range(14..60),
        _ => 1 << 20,
    };
    border + random.random_range(0..3) - 1
}

/// A range that begins and ends anywhere, also after its end.
fn range(random: &mut SmallRng, len: usize) -> std::ops::Range<u64> {
    let mut place = || match random.random_range(0..3) {
        0 => random.random_range(0..=len as u64 + 2),
        1 => (CHUNK * random.random_range(0..=len / CHUNK + 1)) as u64,
        _ => (len as u64 / 2).saturating_add_signed(random.random_range(-4000..4000)),
    };
    let (one, other) = (place(), place());
    one.min(other)..one.max(other)
}

fn part(value: &[u8], range: &std::ops::Range<u64>) -> Vec<u8> {
    let cut = |at: u64| (at as usize).min(value.len());
    value[cut(range.start)..cut(range.end)].to_vec()
}

fn options(frames: u64) -> Options {
    small_pool(frames).durability(Durability::None).log_bytes(MIN_LOG_BYTES)
}

/// One thread, its keys, and what they should hold.
struct Client {
    random: SmallRng,
    number: u8,
    version: u64,
    model: Model,
}

impl Client {
    fn new(number: u8, seed: u64) -> Client {
        let random = SmallRng::seed_from_u64(seed);
        Client { random, number, version: u64::from(number) << 20, model: Model::new() }
    }

    fn key(&mut self) -> Vec<u8> {
        vec![self.number, b'-', b'k', self.random.random_range(0..24)]
    }

    fn fresh(&mut self) -> Vec<u8> {
        self.version += 1;
        value(self.version, length(&mut self.random))
    }

    /// One change, alone or in a transaction of a few that ends either way.
    fn change(&mut self, session: &Session, tree: &Tree) {
        let key = self.key();
        match self.random.random_range(0..6) {
            0 => {
                let removed = session.remove(tree, &key).expect("remove");
                assert_eq!(removed, self.model.remove(&key).is_some());
            }
            1 => {
                let (mut txn, mut model) = (session.begin().expect("begin"), self.model.clone());
                for _ in 0..self.random.random_range(1..4) {
                    let (key, value) = (self.key(), self.fresh());
                    txn.put(tree, &key, &value).expect("put");
                    model.insert(key, value);
                }
                read(&txn, tree, &model, &mut self.random, &key);
                match self.random.random_bool(0.5) {
                    true => {
                        txn.commit().expect("commit");
                        self.model = model;
                    }
                    false => txn.abort().expect("abort"),
                }
            }
            2 => {
                let value = self.fresh();
                let updated = session.update(tree, &key, &value).expect("update");
                assert_eq!(updated, self.model.contains_key(&key));
                if updated {
                    self.model.insert(key, value);
                }
            }
            _ => {
                let value = self.fresh();
                session.put(tree, &key, &value).expect("put");
                self.model.insert(key, value);
            }
        }
    }

    /// Reads a key in one of the ways there are.
    fn look(&mut self, session: &Session, tree: &Tree) {
        let key = self.key();
        let expected = self.model.get(&key);
        match self.random.random_range(0..4) {
            0 => assert!(session.get(tree, &key).expect("get").as_ref() == expected, "{key:?}"),
            1 => {
                let range = range(&mut self.random, expected.map_or(0, Vec::len));
                let found = session.get_range(tree, &key, range.clone()).expect("get a part");
                let expected = expected.map(|value| part(value, &range));
                assert!(found == expected, "{key:?} {range:?}");
            }
            2 => {
                let len = session.value_len(tree, &key).expect("a length");
                assert_eq!(len, expected.map(|value| value.len() as u64));
            }
            _ => {
                let txn = session.begin_read().expect("begin");
                read(&txn, tree, &self.model, &mut self.random, &key);
            }
        }
    }

    /// Compares all that it has.
    fn compare(&self, session: &Session, tree: &Tree) {
        let mut expected = self.model.iter();
        for entry in session.prefix(tree, &[self.number]).expect("a range") {
            let (key, value) = entry.expect("an entry");
            assert!(expected.next() == Some((&key, &value)), "{key:?}");
        }
        assert_eq!(expected.next(), None);
    }
}

/// Reads a value in a transaction: whole, in parts, and as a stream that goes to and fro.
fn read(txn: &Transaction<'_>, tree: &Tree, model: &Model, random: &mut SmallRng, key: &[u8]) {
    let Some(expected) = model.get(key) else {
        assert!(txn.value_reader(tree, key).expect("no value").is_none());
        return assert_eq!(txn.value_len(tree, key).expect("no value"), None);
    };
    assert!(txn.get(tree, key).expect("get").as_ref() == Some(expected), "{key:?}");
    let wanted = range(random, expected.len());
    let found = txn.get_range(tree, key, wanted.clone()).expect("get a part");
    assert!(found == Some(part(expected, &wanted)), "{key:?} {wanted:?}");
    let mut reader = txn.value_reader(tree, key).expect("a stream").expect("it exists");
    assert_eq!(reader.value_len(), expected.len() as u64);
    for _ in 0..3 {
        let at = random.random_range(0..=expected.len());
        reader.seek(SeekFrom::Start(at as u64)).expect("seek");
        let mut piece = vec![0; random.random_range(0..=(expected.len() - at).min(9000))];
        reader.read_exact(&mut piece).expect("read");
        assert!(piece == expected[at..at + piece.len()], "{key:?} from {at}");
    }
    let place = reader.stream_position().expect("a position") as usize;
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).expect("read");
    assert!(rest == expected[place..], "{key:?} from {place}");
}

fn run(frames: u64, clients: u8, steps: u64, seed: u64) {
    let _context = Context(("seed", seed));
    let _watchdog = Watchdog::start("large values", Duration::from_secs(120));
    let device = Device::memory();
    let mut clients: Vec<_> =
        (0..clients).map(|number| Client::new(number, seed + u64::from(number))).collect();
    for _ in 0..2 {
        let engine = device.open(options(frames)).expect("open");
        let tree = engine.tree("tree").expect("tree");
        std::thread::scope(|scope| {
            for client in &mut clients {
                let (engine, tree) = (&engine, &tree);
                scope.spawn(move || {
                    let session = engine.session().expect("session");
                    client.compare(&session, tree);
                    for _ in 0..steps {
                        client.change(&session, tree);
                        client.look(&session, tree);
                    }
                    client.compare(&session, tree);
                });
            }
        });
        assert_verified(&engine);
        drop(tree);
        engine.close().expect("close");
    }
}

#[test]
fn values_of_all_lengths_are_those_of_the_model() {
    run(64, 1, 250 * rounds(), 100);
}

#[test]
fn values_of_several_threads_are_those_of_their_models() {
    run(96, 3, 120 * rounds(), 200);
}

/// Version that a value, or a part of it from `at` on, shows at each of its places.
fn version_of(bytes: &[u8], at: usize, versions: &[Vec<u8>]) -> usize {
    let fits = |version: &&Vec<u8>| version.get(at..at + bytes.len()) == Some(bytes);
    let found = versions.iter().position(|version| fits(&version));
    found.unwrap_or_else(|| panic!("{} bytes from {at} on are of no version", bytes.len()))
}

/// Writers replace one value as fast as they can, and the engine removes the old ones at once.
#[test]
fn readers_beside_writers_see_one_version_of_a_value_as_a_whole() {
    let _watchdog = Watchdog::start("replaced beside readers", Duration::from_secs(120));
    let engine = Device::memory()
        .open(options(256).version_bytes(1 << 20).log_bytes(16 << 20))
        .expect("open");
    let tree = engine.tree("tree").expect("tree");
    let versions: Vec<_> = (0..12).map(|i| value(i, CHUNK * 20 + 7 * i as usize)).collect();
    let (ended, replaced) = (AtomicBool::new(false), AtomicU64::new(0));
    engine.session().expect("session").put(&tree, b"key", &versions[0]).expect("put");
    std::thread::scope(|scope| {
        let (engine, tree, versions) = (&engine, &tree, &versions[..]);
        let (ended, replaced) = (&ended, &replaced);
        let writer = scope.spawn(move || {
            let session = engine.session().expect("session");
            while !ended.load(Ordering::Relaxed) {
                let times = replaced.fetch_add(1, Ordering::Relaxed) + 1;
                session.put(tree, b"key", &versions[times as usize % versions.len()]).expect("put");
            }
        });
        let readers: Vec<_> = (0..2)
            .map(|seed| scope.spawn(move || read_beside(engine, tree, versions, replaced, seed)))
            .collect();
        let outcomes: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        ended.store(true, Ordering::Relaxed);
        writer.join().expect("the writer");
        outcomes.into_iter().for_each(|outcome| outcome.expect("a reader"));
    });
    println!("replaced {replaced:?} times");
    assert_verified(&engine);
}

/// Some hundred reads, and more until the value was replaced some ten times.
fn read_beside(
    engine: &Engine,
    tree: &Tree,
    versions: &[Vec<u8>],
    replaced: &AtomicU64,
    seed: u64,
) {
    let (mut random, session) = (SmallRng::seed_from_u64(seed), engine.session().expect("session"));
    for turn in 0.. {
        if turn >= 400 * rounds() && replaced.load(Ordering::Relaxed) > 20 {
            break;
        }
        let len = versions[0].len();
        let at = random.random_range(0..len - 5000);
        match random.random_range(0..4) {
            0 => {
                let found = session.get(tree, b"key").expect("get").expect("it is always there");
                let version = version_of(&found, 0, versions);
                assert_eq!(found.len(), versions[version].len());
            }
            1 => {
                let range = at as u64..at as u64 + 5000;
                let found = session.get_range(tree, b"key", range).expect("get a part");
                version_of(&found.expect("it is always there"), at, versions);
            }
            2 => {
                let txn = session.begin_read().expect("begin");
                let whole = || -> wattle::Result<()> {
                    let part = txn.get_range(tree, b"key", at as u64..at as u64 + 5000)?;
                    let version = version_of(&part.expect("it exists"), at, versions);
                    std::thread::yield_now();
                    let whole = txn.get(tree, b"key")?.expect("it exists");
                    assert_eq!(version_of(&whole, 0, versions), version);
                    Ok(())
                };
                may_be_too_old(whole());
            }
            _ => {
                let mut reader = session.value_reader(tree, b"key").expect("a stream");
                let reader = reader.as_mut().expect("it is always there");
                let (mut bytes, mut outcome) = (Vec::new(), Ok(()));
                while bytes.len() < reader.value_len() as usize && outcome.is_ok() {
                    outcome = reader.fill_buf().map(|piece| bytes.extend_from_slice(piece));
                    reader.consume(3000);
                    bytes.truncate(reader.stream_position().expect("a position") as usize);
                }
                version_of(&bytes, 0, versions);
                let error = outcome.map_err(|error| {
                    let inner = error.into_inner().expect("an error of the engine");
                    *inner.downcast::<Error>().expect("an error of the engine")
                });
                may_be_too_old(error);
            }
        }
    }
}

/// A snapshot that holds more than the limit is cancelled, which its reader is told.
fn may_be_too_old(outcome: wattle::Result<()>) {
    match outcome {
        Ok(()) | Err(Error::SnapshotTooOld(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_part_of_a_cold_value_reads_only_its_pages_and_a_whole_one_reads_ahead() {
    let device = Device::memory();
    let bytes = value(7, 1 << 20);
    let pages = |engine: &Engine| (engine.stats().pages_read, engine.stats().pages_read_ahead);
    {
        let engine = device.open(options(1024)).expect("open");
        let tree = engine.tree("tree").expect("tree");
        engine.session().expect("session").put(&tree, b"key", &bytes).expect("put");
        drop(tree);
        engine.close().expect("close");
    }
    let engine = device.open(options(1024)).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    session.contains(&tree, b"other").expect("get");
    assert_eq!(session.value_len(&tree, b"key").expect("a length"), Some(1 << 20));
    let before = pages(&engine);
    let part = session.get_range(&tree, b"key", 600_000..600_100).expect("get a part");
    assert!(part.as_deref() == Some(&bytes[600_000..600_100]));
    let after = pages(&engine);
    assert!(after.0 - before.0 <= 4, "{} pages for 100 bytes", after.0 - before.0);
    assert!(session.get(&tree, b"key").expect("get") == Some(bytes));
    let (read, ahead) = pages(&engine);
    println!("{} pages read, {} of them ahead", read - after.0, ahead - after.1);
    assert!((ahead - after.1) * 10 >= (read - after.0) * 8, "too few pages are read ahead");
}

#[cfg(feature = "async")]
#[test]
fn tasks_read_parts_of_large_values() -> wattle::Result<()> {
    use rand::seq::IndexedRandom;

    let engine = Device::memory().open(options(64))?;
    let tree = engine.tree("tree")?;
    let mut random = SmallRng::seed_from_u64(5);
    let lengths = [0, 5, INLINE, INLINE + 1, CHUNK + 1, 2 * CHUNK, 40 * CHUNK + 3, 1 << 20];
    wattle::run(8, async {
        let session = engine.async_session()?;
        for (version, len) in lengths.into_iter().enumerate() {
            session.put(&tree, &[version as u8; 4], &value(version as u64, len)).await?;
        }
        for _ in 0..200 {
            let version = *(0..lengths.len()).collect::<Vec<_>>().choose(&mut random).unwrap();
            let (key, len) = ([version as u8; 4], lengths[version]);
            let (bytes, range) = (value(version as u64, len), range(&mut random, len));
            let found = session.get_range(&tree, &key, range.clone()).await?;
            assert!(found == Some(part(&bytes, &range)), "{len} {range:?}");
            let txn = session.begin_read()?;
            assert_eq!(txn.value_len(&tree, &key).await?, Some(len as u64));
            assert!(txn.get_range(&tree, &key, range.clone()).await? == found);
            assert!(txn.get_range(&tree, &key, ..).await? == Some(bytes));
        }
        assert_eq!(session.value_len(&tree, b"none").await?, None);
        Ok(())
    })?
}

/// Pages of the value leave the tree without being read, and their bytes do not go into the log.
#[test]
fn a_replaced_value_is_removed_without_reading_it() {
    const MANY: usize = 8;
    let device = Device::memory();
    let options = || options(2048).log_bytes(64 << 20);
    {
        let engine = device.open(options()).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let session = engine.session().expect("session");
        for version in 0..MANY as u8 {
            session.put(&tree, &[version; 4], &value(version.into(), 1 << 20)).expect("put");
        }
        drop((session, tree));
        engine.close().expect("close");
    }
    let engine = device.open(options()).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    let before = engine.stats();
    for version in (0..MANY as u8).step_by(2) {
        session.put(&tree, &[version; 4], b"small").expect("put");
    }
    eventually("the values are gone", || engine.stats().replaced_bytes == 0);
    let after = engine.stats();
    let (read, logged) =
        (after.pages_read - before.pages_read, after.log_record_bytes - before.log_record_bytes);
    let freed = before.used_pages - after.used_pages;
    println!("{read} pages read, {logged} bytes logged, {freed} pages freed");
    // Of 276 leaves each. With one image of a neighbour for each leaf the log had 4 MB.
    assert!(freed > 1000 && read < 200 && logged < 1_000_000);
    for version in 0..MANY as u8 {
        let expected = match version % 2 {
            0 => b"small".to_vec(),
            _ => value(version.into(), 1 << 20),
        };
        assert!(session.get(&tree, &[version; 4]).expect("get") == Some(expected));
    }
    assert_verified(&engine);
}

/// A write that can only fail must not write a whole large value first.
#[test]
fn a_large_write_that_meets_a_conflict_writes_no_chunks() {
    const LEN: usize = 1 << 20;
    let _watchdog = Watchdog::start("large conflicts", Duration::from_secs(60));
    let options = options(4096)
        .log_bytes(64 << 20)
        .version_bytes(1 << 20)
        .direct_value_bytes(0)
        .conflict_wait(Duration::from_millis(1));
    let engine = Device::memory().open(options).expect("open");
    let (tree, closed) = (engine.tree("tree").expect("tree"), engine.tree("closed").expect("tree"));
    let session = engine.session().expect("session");
    let large = value(1, LEN);
    let logged = || {
        engine.sync().expect("sync");
        engine.stats().log_record_bytes
    };
    let before = logged();
    session.put(&tree, b"free", &large).expect("put");
    assert!(logged() - before > LEN as u64, "chunks are logged");

    session.put(&tree, b"key", b"old").expect("put");
    let mut late = session.begin().expect("begin");
    let mut holder = engine.begin().expect("begin");
    holder.put(&tree, b"key", b"held").expect("put");
    // It changes so much that it owns the tree.
    let mut owner = engine.begin().expect("begin");
    for number in 0..5_000_u32 {
        owner.put(&closed, &number.to_be_bytes(), b"").expect("put");
    }
    let before = logged();
    let refused = |what: &str, outcome: wattle::Result<()>| {
        assert!(matches!(outcome, Err(Error::Conflict(_))), "{what}: {outcome:?}");
        let wrote = logged() - before;
        assert!(wrote < LEN as u64 / 8, "{what}: {wrote} bytes logged");
    };
    let in_txn = |what: &str, write: &dyn Fn(&mut Transaction<'_>) -> wattle::Result<()>| {
        let mut txn = engine.begin().expect("begin");
        refused(what, write(&mut txn));
    };
    in_txn("put", &|txn| txn.put(&tree, b"key", &large));
    in_txn("insert", &|txn| txn.insert(&tree, b"key", &large));
    in_txn("update", &|txn| txn.update(&tree, b"key", &large).map(drop));
    in_txn("put_many", &|txn| txn.put_many(&tree, &[(b"key", &large)]));
    in_txn("fetch_update", &|txn| {
        txn.fetch_update(&tree, b"key", |_| Some(large.clone())).map(drop)
    });
    let (old, new) = (Some(&b"old"[..]), Some(&large[..]));
    in_txn("swap", &|txn| {
        txn.compare_and_swap(&tree, b"key", old, new).map(|swapped| swapped.expect("it was old"))
    });
    in_txn("put into a closed tree", &|txn| txn.put(&closed, b"key", &large));
    refused("auto put", session.put(&tree, b"key", &large));
    refused("auto put into a closed tree", session.put(&closed, b"key", &large));
    let swapped = session.compare_and_swap(&tree, b"key", old, new);
    refused("auto swap", swapped.map(|swapped| swapped.expect("it was old")));
    // One that was committed after the snapshot.
    holder.commit().expect("commit");
    refused("put after a commit", late.put(&tree, b"key", &large));
    late.abort().expect("abort");
    owner.abort().expect("abort");
    session.put(&tree, b"key", &large).expect("put");
    assert!(session.get(&tree, b"key").expect("get").as_ref() == Some(&large));
}
