//! Transactions larger than memory whose file of undo entries fails, when it grows or when it is
//! read back, between changes in place that leave only the bytes that they changed: each change is
//! made or is an error, and what is taken back is taken back exactly, at once or when the file can
//! be read.
//!
//! The stores are on simulated devices, so that the undo entries are the only file. All is one
//! test: how large a file may be is a matter of the process.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use wattle::{
    Durability, Engine, Error, MIN_LOG_BYTES, Options, Session, Tree,
    io::{Cut, FaultPlan, SimStorage},
};
use wattle_tests::harness::{
    Change, Context, Device, Watchdog, assert_verified, rounds, small_pool,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Records that there are at most.
const RECORDS: u32 = 1500;

/// Keys so long that entries without a value fill the memory soon.
fn key_of(number: u32) -> Vec<u8> {
    let mut key = number.wrapping_mul(0x9e37_79b1).to_be_bytes().to_vec();
    key.resize(900, b'k');
    key
}

/// Bounds the files that this process writes; `None` for no bound.
fn bound_files(bytes: Option<u64>) {
    let bytes = bytes.unwrap_or(libc::RLIM_INFINITY);
    let bounds = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the bounds outlive the call.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const bounds) };
    assert_eq!(result, 0, "files of this process can be bounded");
}

/// Files without a name that are open, as paths.
fn unnamed_files() -> Vec<PathBuf> {
    let open = fs::read_dir("/proc/self/fd").expect("files that are open");
    let paths = open.map(|entry| entry.expect("a file").path());
    let unnamed = |path: &PathBuf| {
        let to = fs::read_link(path).unwrap_or_default();
        to.to_string_lossy().ends_with(" (deleted)")
            && fs::metadata(path).is_ok_and(|m| m.is_file())
    };
    paths.filter(unnamed).collect()
}

/// Undo files that were cut, with what they held.
struct Broken(Vec<(PathBuf, Vec<u8>)>);

impl Broken {
    /// Truncates all undo files to `rest` bytes.
    fn cut(rest: u64) -> Broken {
        let mut files = Vec::new();
        for path in unnamed_files() {
            let bytes = fs::read(&path).expect("an undo file");
            let file = OpenOptions::new().write(true).open(&path).expect("an undo file");
            file.set_len(rest.min(bytes.len() as u64)).expect("cut");
            files.push((path, bytes));
        }
        Broken(files)
    }

    /// Afterwards files have no bounds.
    fn mend(self) {
        bound_files(None);
        for (path, bytes) in self.0 {
            // One that is gone was needed no more.
            let Ok(file) = OpenOptions::new().write(true).open(&path) else { continue };
            file.write_all_at(&bytes, 0).expect("mended");
        }
    }
}

struct Run<'e> {
    random: SmallRng,
    session: &'e Session,
    other: &'e Session,
    tree: &'e Tree,
    device: &'e SimStorage,
    committed: Map,
    failures: u64,
    spills: u64,
}

fn assert_is_of_the_file(error: &Error) {
    let text = error.to_string();
    assert!(text.contains("temporary file") && text.contains("undo entries"), "{error:?}");
}

impl Run<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        self.random.random_range(0..bound)
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.below(60) {
            0 => 2000 + self.below(10_000),
            1..10 => self.below(400),
            _ => 40 + self.below(60),
        };
        let start: u8 = self.random.random();
        (0..len).map(|at| start.wrapping_add((at * 7) as u8)).collect()
    }

    /// A change in a transaction; whether it was made. `map` is what the transaction sees.
    fn change(
        &mut self,
        txn: &mut wattle::Transaction<'_>,
        map: &mut Map,
        bounded: bool,
    ) -> Result<(), Error> {
        let number = self.below(RECORDS);
        let key = key_of(number);
        let change = match self.below(10) {
            0..6 => Change::Modify {
                at: self.below(60) as usize,
                len: 1 + self.below(8) as usize,
                mark: 1 + self.below(255) as u8,
            },
            6 => Change::Remove,
            7 => Change::Update(self.value()),
            _ => Change::Put(self.value()),
        };
        let tree = self.tree;
        let Err(error) = change.make(txn, tree, &key, map) else { return Ok(()) };
        assert!(bounded, "{error}");
        self.failures += 1;
        match txn.get(tree, &key) {
            Ok(found) => {
                assert_is_of_the_file(&error);
                let known = map.get(&key);
                assert!(found.as_ref() == known, "record {number} after a change that failed");
                Ok(())
            }
            // A change of a large value failed half way.
            Err(Error::MustAbort(_)) => Err(error),
            Err(other) => panic!("{other}"),
        }
    }

    /// One transaction: commits, or is taken back.
    fn transaction(&mut self, snapshot: &Map) {
        let before = self.other.begin_read().expect("a snapshot");
        let mut txn = self.session.begin().expect("begin");
        let (mut map, mut savepoints) = (self.committed.clone(), Vec::new());
        let mut bounded = false;
        let mut usable = true;
        let mut images = Vec::new();
        for _ in 0..2500 + self.below(2500) {
            match self.below(1000) {
                0..4 => {
                    bounded = !bounded;
                    let bytes = u64::from(self.below(40)) << 15;
                    bound_files(bounded.then_some(bytes));
                }
                4..7 => savepoints.push((txn.savepoint(), map.clone())),
                7..9 if !savepoints.is_empty() => {
                    let at = self.below(savepoints.len() as u32) as usize;
                    savepoints.truncate(at + 1);
                    let (savepoint, then) = &savepoints[at];
                    let broken = (self.random.random_ratio(1, 3)).then(|| Broken::cut(0));
                    match txn.rollback_to(savepoint) {
                        Ok(()) => map = then.clone(),
                        Err(error) => {
                            assert!(broken.is_some(), "{error}");
                            assert_is_of_the_file(&error);
                            self.failures += 1;
                            let refused = txn.get(self.tree, &key_of(0));
                            assert!(matches!(refused, Err(Error::MustAbort(_))), "{refused:?}");
                            usable = false;
                        }
                    }
                    if let Some(broken) = broken {
                        bounded = false;
                        broken.mend();
                    }
                    // Once it can be read, it is as if nothing had been.
                    if !usable && self.random.random_bool(0.5) {
                        txn.rollback_to(savepoint).expect("the file can be read");
                    }
                }
                9 => {
                    let cut = [Cut::Sectors, Cut::Nothing, Cut::Process][self.below(3) as usize];
                    let seed = self.random.random();
                    images.push(self.device.crash_as(seed, cut));
                }
                _ => usable = self.change(&mut txn, &mut map, bounded).is_ok(),
            }
            if !usable {
                break;
            }
        }
        self.spills += u64::from(!unnamed_files().is_empty());
        for _ in 0..50 {
            let key = key_of(self.below(RECORDS));
            if usable {
                assert!(txn.get(self.tree, &key).expect("get") == map.get(&key).cloned());
            }
            match before.get(self.tree, &key) {
                Ok(found) => assert!(found.as_ref() == snapshot.get(&key), "an older snapshot"),
                Err(Error::SnapshotTooOld(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        drop(before);
        let broken =
            self.random.random_bool(0.3).then(|| Broken::cut(u64::from(self.below(1 << 20))));
        if usable && self.random.random_bool(0.4) {
            txn.commit().expect("commit");
            self.committed = map;
        } else if !usable && self.random.random_bool(0.5) {
            assert!(matches!(txn.commit(), Err(Error::MustAbort(_) | Error::Io { .. })));
        } else if let Err(error) = txn.abort() {
            assert!(broken.is_some(), "{error}");
            assert_is_of_the_file(&error);
            self.failures += 1;
        }
        if let Some(broken) = broken {
            broken.mend();
        }
        bound_files(None);
        self.wait_until_taken_back();
        self.assert_committed();
        for image in images.drain(..) {
            let engine = open(&Arc::new(image));
            check(&engine, snapshot);
            assert_verified(&engine);
        }
    }

    /// Until the records are open to others.
    fn wait_until_taken_back(&self) {
        let since = Instant::now();
        for number in 0..RECORDS {
            let key = key_of(number);
            while let Err(error) = self.other.modify(self.tree, &key, |_| {}) {
                assert!(matches!(error, Error::Conflict(_)), "{error}");
                assert!(since.elapsed() < Duration::from_secs(10), "it is never taken back");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn assert_committed(&self) {
        assert_same(self.other, self.tree, &self.committed);
    }
}

fn assert_same(session: &Session, tree: &Tree, map: &Map) {
    let mut found = session.scan(tree).expect("scan").map(|entry| entry.expect("an entry"));
    for (key, value) in map {
        let (found_key, found_value) = found.next().expect("records are lost");
        assert!(&found_key == key && &found_value == value, "record {:02x?}", &key[..4]);
    }
    assert!(found.next().is_none(), "a record that should be gone");
}

fn check(engine: &Engine, map: &Map) {
    let tree = engine.open_tree("tree").expect("open").expect("there");
    let session = engine.session().expect("session");
    assert_same(&session, &tree, map);
}

fn options() -> Options {
    small_pool(256).log_bytes(8 * MIN_LOG_BYTES).durability(Durability::Sync)
}

fn open(device: &Arc<SimStorage>) -> Engine {
    Device::sim(device).open(options()).expect("open")
}

#[test]
fn what_cannot_be_noted_is_not_done_and_what_is_taken_back_is_taken_back_exactly() {
    // SAFETY: the signal is ignored, no handler is installed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let watchdog = Watchdog::start("undo files that fail", Duration::from_secs(30));
    let (mut failures, mut spills) = (0, 0);
    for seed in 0..3 * rounds() {
        let context = Context(("seed", seed));
        let device = Arc::new(SimStorage::new(FaultPlan::new(seed)));
        // In some the versions have no room, and the transaction takes the tree for itself.
        let options = options().version_bytes(if seed % 3 == 0 { 2 << 20 } else { 16 << 20 });
        let engine = Device::sim(&device).open(options).expect("open");
        let tree = engine.tree("tree").expect("tree");
        let [session, other] = [(); 2].map(|()| engine.session().expect("session"));
        let random = SmallRng::seed_from_u64(seed);
        let mut run = Run {
            random,
            session: &session,
            other: &other,
            tree: &tree,
            device: &device,
            committed: Map::new(),
            failures: 0,
            spills: 0,
        };
        let mut txn = session.begin().expect("begin");
        for number in 0..RECORDS / 2 {
            let value = run.value();
            txn.put(&tree, &key_of(number), &value).expect("put");
            run.committed.insert(key_of(number), value);
        }
        txn.commit().expect("commit");
        for _ in 0..5 {
            let snapshot = run.committed.clone();
            run.transaction(&snapshot);
            watchdog.step();
        }
        failures += run.failures;
        spills += run.spills;
        let committed = run.committed;
        drop((session, other, tree));
        assert_verified(&engine);
        engine.close().expect("close");
        check(&open(&device), &committed);
        drop(context);
    }
    assert!(failures > 0 && spills > 0, "{failures} failures, {spills} files");
}
