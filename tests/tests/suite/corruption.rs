//! Damage on storage: whatever happens to the bytes of a closed store, opening and reading it gives
//! an error or exactly the right answer. Where the damage carries a valid checksum, as no device
//! makes it, wrong answers are possible, but no panic and no hang.
//!
//! `WATTLE_ROUNDS` multiplies the number of random damages, and of the bytes that the sweep flips:
//! at least [`STRIDE`] rounds flip every byte of every page.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use wattle::{
    DATA_FILE, Engine, Error, IoKind, PAGE_SIZE,
    io::{FaultPlan, SimStorage},
};
use wattle_buffer::{PageId, is_reserved_page};
use wattle_tests::harness::{Context, Device, Watchdog, assert_verified, rounds, unlogged_pool};

/// The sweep of one round flips the bytes of every page at distances of so many, from another one
/// on in each page: every offset is flipped in some pages, and the header of every page whole.
const STRIDE: usize = 4;
/// Bytes of all headers that a page can begin with.
const HEADS: usize = 64;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// A small store: the device, closed cleanly, and what it holds.
struct Small {
    storage: SimStorage,
    trees: BTreeMap<&'static str, Records>,
    /// Pages in use that belong to trees.
    used: BTreeSet<PageId>,
}

fn value(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seed.wrapping_mul(31) ^ i.wrapping_mul(7)) as u8).collect()
}

fn contents() -> BTreeMap<&'static str, Records> {
    let small = (0..70).map(|i| (format!("key {i:04}").into_bytes(), value(i, i * 13 % 400)));
    // Long keys, so that a few dozen records already need an inner node of several children.
    let long = (0..24).map(|i| (vec![i as u8 * 9; 700 + i], value(i, i % 5 * 100)));
    let large = [("big", 12_000), ("bigger", 20_000), ("small", 3), ("empty", 0)];
    let large = large.iter().map(|(k, len)| (k.as_bytes().to_vec(), value(*len, *len)));
    BTreeMap::from([
        ("small", small.collect()),
        ("long", long.collect()),
        ("large", large.collect()),
        ("empty", Records::new()),
    ])
}

fn small_store() -> Small {
    let storage = Arc::new(SimStorage::new(FaultPlan::new(1)));
    let engine = Device::sim(&storage).open(unlogged_pool(64)).expect("open");
    let trees = contents();
    let session = engine.session().expect("session");
    for (name, records) in &trees {
        let tree = engine.tree(name).expect("tree");
        for (key, value) in records {
            session.put(&tree, key, value).expect("put");
        }
    }
    drop(session);
    assert_verified(&engine);
    let stats = engine.tree_stats().expect("sizes");
    assert!(stats.iter().any(|tree| tree.depth >= 2), "there are inner nodes: {stats:?}");
    let (bitmap, capacity, _) = engine.pool().allocator().snapshot();
    let used = (0..capacity).map(PageId).filter(|page| {
        bitmap[page.0 as usize / 64] >> (page.0 % 64) & 1 == 1 && !is_reserved_page(*page)
    });
    let used = used.collect();
    engine.close().expect("close");
    Small { storage: storage.clone_at_rest(), trees, used }
}

/// The result of reading a damaged store.
#[derive(Default, Debug)]
struct Outcome {
    /// Answers that were errors, opening included.
    errors: u64,
    /// Answers that were wrong.
    wrong: Vec<String>,
    /// Whether `verify` said that something is wrong.
    reported: bool,
}

/// Opens a store and asks for everything in every way.
fn examine(storage: Arc<SimStorage>, expected: &BTreeMap<&'static str, Records>) -> Outcome {
    let mut outcome = Outcome::default();
    let engine = match Device::sim(&storage).open(unlogged_pool(48)) {
        Ok(engine) => engine,
        Err(error) => {
            assert!(
                matches!(error, Error::Corruption { .. } | Error::NotAStore { .. })
                    || matches!(error, Error::WrongVersion { .. } | Error::NotClosed { .. })
                    || matches!(error, Error::Io { .. } | Error::DiskFull { .. }),
                "a clear error: {error:?}"
            );
            assert_eq!(storage.counters().writes, 0, "a refused opening wrote: {error}");
            outcome.errors += 1;
            outcome.reported = true;
            return outcome;
        }
    };
    match engine.trees() {
        Ok(names) if names.iter().eq(expected.keys()) => {}
        Ok(names) => outcome.wrong.push(format!("names {names:?}")),
        Err(_) => outcome.errors += 1,
    }
    let session = engine.session().expect("session");
    for (name, records) in expected {
        let tree = match engine.open_tree(name) {
            Ok(Some(tree)) => tree,
            Ok(None) => {
                outcome.wrong.push(format!("no tree {name}"));
                continue;
            }
            Err(_) => {
                outcome.errors += 1;
                continue;
            }
        };
        for (key, value) in records {
            match session.get(&tree, key) {
                Ok(found) if found.as_ref() == Some(value) => {}
                Ok(found) => {
                    outcome.wrong.push(format!("{name} {key:02x?}: {:?}", found.map(|v| v.len())));
                }
                Err(_) => outcome.errors += 1,
            }
        }
        match session.contains(&tree, b"no such key") {
            Ok(false) => {}
            Ok(true) => outcome.wrong.push(format!("{name}: a key from nowhere")),
            Err(_) => outcome.errors += 1,
        }
        for backward in [false, true] {
            let range = match session.scan(&tree) {
                Ok(range) if backward => range.rev(),
                Ok(range) => range,
                Err(_) => {
                    outcome.errors += 1;
                    continue;
                }
            };
            let forward = records.iter();
            let mut expected: Box<dyn Iterator<Item = _>> =
                if backward { Box::new(forward.rev()) } else { Box::new(forward) };
            let mut failed = false;
            // A damaged tree must not make a scan endless.
            for entry in range.take(10_000) {
                let Ok((key, value)) = entry else {
                    failed = true;
                    break;
                };
                if expected.next() != Some((&key, &value)) {
                    outcome.wrong.push(format!("{name}: scan came to {key:02x?}"));
                    failed = true;
                    break;
                }
            }
            outcome.errors += u64::from(failed);
            if !failed && expected.next().is_some() {
                outcome.wrong.push(format!("{name}: a scan ended early"));
            }
        }
    }
    match engine.verify(&mut |_| {}) {
        Ok(report) => outcome.reported |= !report.problems.is_empty(),
        Err(_) => outcome.reported = true,
    }
    outcome
}

/// An error or the right answer, and nothing that `verify` does not see.
fn assert_safe(small: &Small, damaged: SimStorage, in_use: bool) -> Outcome {
    let outcome = examine(Arc::new(damaged), &small.trees);
    assert!(outcome.wrong.is_empty(), "wrong answers: {:#?}", outcome.wrong);
    if in_use {
        assert!(outcome.errors > 0, "damage of a page in use went unnoticed");
        assert!(outcome.reported, "verify did not see it");
    }
    outcome
}

#[test]
fn every_flipped_byte_is_an_error_or_does_not_matter() {
    let small = small_store();
    let pages = small.storage.pages();
    let phases = (rounds() as usize).min(STRIDE);
    println!("{} pages, {} of trees", pages.len(), small.used.len());
    assert!(examine(Arc::new(small.storage.clone_at_rest()), &small.trees).errors == 0);
    let watchdog = Watchdog::start("the sweep", Duration::from_secs(20));
    std::thread::scope(|scope| {
        for part in 0..2 {
            let (small, pages, watchdog) = (&small, &pages, &watchdog);
            scope.spawn(move || {
                for page in pages.iter().skip(part).step_by(2) {
                    let phase = |at: usize| (at + page.0 as usize) % STRIDE;
                    for at in (0..PAGE_SIZE).filter(|&at| at < HEADS || phase(at) < phases) {
                        // Every byte with one mask; the masks take all values over the sweep.
                        let mask = ((at as u64 * 7 + page.0 * 13) % 255) as u8 + 1;
                        let _context = Context((page, at, mask));
                        let damaged = small.storage.clone_at_rest();
                        damaged.modify_raw(*page, |bytes| bytes[at] ^= mask);
                        assert_safe(small, damaged, small.used.contains(page));
                        watchdog.step();
                    }
                }
            });
        }
    });
}

#[test]
fn random_damage_of_many_bytes_is_an_error_or_does_not_matter() {
    let small = small_store();
    let pages = small.storage.pages();
    let watchdog = Watchdog::start("random damage", Duration::from_secs(20));
    for seed in 0..1500 * rounds() {
        let _context = Context(("seed", seed));
        let mut random = SmallRng::seed_from_u64(seed);
        let damaged = small.storage.clone_at_rest();
        for _ in 0..random.random_range(1..4) {
            let page = pages[random.random_range(0..pages.len())];
            damaged.modify_raw(page, |bytes| {
                let at = random.random_range(0..PAGE_SIZE);
                let end = (at + random.random_range(1..600)).min(PAGE_SIZE);
                random.fill(&mut bytes[at..end]);
            });
        }
        assert_safe(&small, damaged, false);
        watchdog.step();
    }
}

#[test]
fn swapped_copied_and_zeroed_pages_are_errors_or_do_not_matter() {
    let small = small_store();
    let pages = small.storage.pages();
    let raw = |page| small.storage.raw_page(page).expect("a written page");
    for a in &pages {
        let damaged = small.storage.clone_at_rest();
        damaged.modify_raw(*a, |bytes| bytes.fill(0));
        let context = Context(("zeroed", a));
        assert_safe(&small, damaged, small.used.contains(a));
        drop(context);
        for b in pages.iter().filter(|b| *b != a) {
            let copied = small.storage.clone_at_rest();
            copied.modify_raw(*a, |bytes| *bytes = raw(*b));
            let context = Context(("copied", a, b));
            assert_safe(&small, copied, small.used.contains(a));
            drop(context);
        }
        for b in pages.iter().filter(|b| *b > a).step_by(3) {
            let swapped = small.storage.clone_at_rest();
            swapped.modify_raw(*a, |bytes| *bytes = raw(*b));
            swapped.modify_raw(*b, |bytes| *bytes = raw(*a));
            let _context = Context(("swapped", a, b));
            assert_safe(&small, swapped, small.used.contains(a));
        }
    }
}

#[test]
fn a_truncated_file_is_an_error_at_any_length() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("store");
    let options = unlogged_pool(64).io(IoKind::Threads);
    let engine = Engine::open(&path, options.clone()).expect("open");
    let session = engine.session().expect("session");
    let tree = engine.tree("tree").expect("tree");
    for i in 0u32..300 {
        session.put(&tree, &i.to_be_bytes(), &value(i as usize, 100)).expect("put");
    }
    drop((session, tree));
    engine.close().expect("close");
    let whole = std::fs::read(path.join(DATA_FILE)).expect("read the file");
    for len in [0, 1, 100, 4095, 4096, 4097, 8192, 12_288, 40_960, whole.len() - 1] {
        let copy = directory.path().join(format!("copy {len}"));
        std::fs::create_dir(&copy).expect("directory");
        std::fs::write(copy.join(DATA_FILE), &whole[..len]).expect("write");
        match Engine::open(&copy, options.clone()) {
            // An empty file is what a creation that was interrupted at once leaves.
            Ok(engine) => {
                assert_eq!(len, 0, "a store of {len} bytes was opened");
                assert_eq!(engine.trees().expect("names"), Vec::<String>::new());
            }
            Err(error) => {
                println!("{len} bytes: {error}");
                assert!(
                    matches!(error, Error::Corruption { .. } | Error::NotAStore { .. })
                        || matches!(error, Error::Io { .. }),
                    "{error:?}"
                );
                let after = std::fs::read(copy.join(DATA_FILE)).expect("read");
                assert!(after == whole[..len], "opening changed the file of {len} bytes");
            }
        }
    }
}

/// Changes a page and gives it a valid checksum.
fn forge(storage: &SimStorage, page: PageId, change: impl FnOnce(&mut [u8; PAGE_SIZE])) {
    storage.modify_raw(page, |bytes| {
        change(bytes);
        let mut image = wattle_buffer::PageImage::zeroed();
        image.0 = *bytes;
        image.seal();
        *bytes = image.0;
    });
}

#[test]
fn garbage_with_a_valid_checksum_neither_panics_nor_hangs() {
    let small = small_store();
    let pages = small.storage.pages();
    let watchdog = Watchdog::start("forged pages", Duration::from_secs(30));
    let (mut wrong, mut unreported) = (0u64, 0u64);
    let turns = 4000 * rounds();
    for seed in 0..turns {
        let _context = Context(("seed", seed));
        let mut random = SmallRng::seed_from_u64(seed);
        let damaged = small.storage.clone_at_rest();
        let page = pages[random.random_range(0..pages.len())];
        let other = small.storage.raw_page(pages[random.random_range(0..pages.len())]);
        forge(&damaged, page, |bytes| match random.random_range(0..5) {
            // A few bytes, mostly of headers and slots at the beginning of the page.
            0..3 => {
                let end = [32, 128, 400, PAGE_SIZE][random.random_range(0..4)];
                for _ in 0..random.random_range(1..5) {
                    bytes[random.random_range(4..end)] = random.random();
                }
            }
            3 => {
                let start = random.random_range(28..PAGE_SIZE);
                random.fill(&mut bytes[start..]);
            }
            // The contents of another page under the header of this one.
            _ => bytes[28..].copy_from_slice(&other.expect("written")[28..]),
        });
        let outcome = examine(Arc::new(damaged), &small.trees);
        wrong += u64::from(!outcome.wrong.is_empty());
        unreported += u64::from(!outcome.wrong.is_empty() && !outcome.reported);
        watchdog.step();
    }
    // A flipped byte of a value cannot be told from the value; most else is an error.
    println!("{turns} forged pages: {wrong} with wrong answers, {unreported} not seen by verify");
    assert!(wrong > 0, "the forgery has no effect at all");
}

#[test]
fn writing_to_trees_of_forged_pages_neither_panics_nor_hangs() {
    let small = small_store();
    let pages: Vec<_> = small.used.iter().copied().collect();
    let watchdog = Watchdog::start("writes to forged pages", Duration::from_secs(30));
    for seed in 0..1500 * rounds() {
        let _context = Context(("seed", seed));
        let mut random = SmallRng::seed_from_u64(seed ^ 0xf0f0);
        let damaged = small.storage.clone_at_rest();
        let page = pages[random.random_range(0..pages.len())];
        forge(&damaged, page, |bytes| {
            for _ in 0..random.random_range(1..4) {
                bytes[random.random_range(28..PAGE_SIZE)] = random.random();
            }
        });
        let Ok(engine) = Device::sim(&Arc::new(damaged)).open(unlogged_pool(48)) else { continue };
        let session = engine.session().expect("session");
        for (name, records) in &small.trees {
            let Ok(Some(tree)) = engine.open_tree(name) else { continue };
            for (i, key) in records.keys().enumerate() {
                let _ = match (i + seed as usize) % 3 {
                    0 => session.put(&tree, key, &value(i, i * 37 % 900)).map(|_| true),
                    1 => session.remove(&tree, key),
                    _ => session.modify(&tree, key, |value| value.fill(1)),
                };
            }
        }
        drop(session);
        let _ = engine.close();
        watchdog.step();
    }
}
