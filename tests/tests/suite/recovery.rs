//! A store whose process ends without notice: what was acknowledged is there when it is opened
//! again, however often recovery itself is interrupted, whatever a power cut leaves of writes that
//! were not durable. Each device is a simulated one that holds pages and log, so that a crash is
//! one instant of both.

use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::{
    io::ErrorKind,
    ops::ControlFlow,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use wattle::{
    Durability, Engine, Error, IoKind, LOG_DIRECTORY, LogStorage, MIN_LOG_BYTES, Options,
    PageImages, Session, Tree, dump_log,
    io::{Cut, Fault, FaultPlan, Op, SimStorage},
};
use wattle_tests::{
    harness::{Context, Watchdog, assert_verified, rounds, small_pool},
    model::{Client, Keys, Plan},
};

/// Frames of the pools: much less than the data.
const FRAMES: u64 = 48;
const PLAN: Plan = Plan {
    keys: Keys::Random,
    universe: 4000,
    value: 600,
    large_every: 0,
    large: 0,
    client: 0,
    clients: 1,
};

fn options() -> Options {
    small_pool(FRAMES).log_bytes(MIN_LOG_BYTES)
}

fn open(device: &Arc<SimStorage>, options: Options) -> wattle::Result<Engine> {
    Engine::open_on(device.clone(), device.clone(), options)
}

fn device(seed: u64) -> Arc<SimStorage> {
    Arc::new(SimStorage::new(FaultPlan::new(seed)))
}

fn session(engine: &Engine) -> (Session, Tree) {
    (engine.session().expect("session"), engine.tree("t").expect("tree"))
}

/// Opens a store after a crash and compares it with what was acknowledged.
fn check(device: &Arc<SimStorage>, options: Options, clients: &[&Client]) -> Engine {
    let engine = open(device, options).expect("open after the crash");
    {
        let (session, tree) = session(&engine);
        clients.iter().for_each(|client| client.check_all(&session, &tree));
    }
    assert_verified(&engine);
    engine
}

/// A device on which a client worked until the power went.
fn crashed(seed: u64, steps: u32, options: Options, plan: Plan) -> (Arc<SimStorage>, Client) {
    let device = device(seed);
    let mut client = Client::new(plan, seed);
    let engine = open(&device, options.durability(Durability::None)).expect("open");
    let (session, tree) = session(&engine);
    (0..steps).for_each(|_| client.step(&session, &tree));
    engine.sync().expect("sync");
    let left = Arc::new(device.crash(seed));
    (left, client)
}

#[test]
fn what_was_acknowledged_survives_a_power_cut() {
    let watchdog = Watchdog::start("power cut", Duration::from_secs(60));
    for seed in 0..3 * rounds() {
        let _context = Context(("seed", seed));
        let mut current = device(seed);
        let mut client = Client::new(PLAN, seed);
        for turn in 0..4 {
            let engine = open(&current, options()).expect("open");
            let (session, tree) = session(&engine);
            client.check_all(&session, &tree);
            for step in 0..6000 {
                client.step(&session, &tree);
                if step % 1500 == 1499 {
                    let left = Arc::new(current.crash(seed * 100 + turn * 10 + step / 1500));
                    drop(check(&left, options(), &[&client]));
                    watchdog.step();
                }
            }
            let left = Arc::new(current.crash(seed * 100 + turn));
            drop((session, tree, engine));
            current = left;
        }
    }
}

#[test]
fn a_device_that_writes_pages_whole_needs_no_images_of_them() {
    for whole in [false, true] {
        let device = device(1);
        let engine = open(&device, options().atomic_page_writes(whole)).expect("open");
        let (session, tree) = session(&engine);
        let put = |turn: u8| {
            for number in 0..2000_u32 {
                session
                    .put_ticket(&tree, &number.to_be_bytes(), &[turn; 100])
                    .map(drop)
                    .expect("put");
            }
            engine.sync().expect("sync");
            engine.stats().log_image_bytes
        };
        let mut images = put(0);
        for turn in 1..4 {
            engine.checkpoint().expect("checkpoint");
            let before = std::mem::replace(&mut images, put(turn));
            assert_eq!(images == before, whole, "{before} and {images} bytes, turn {turn}");
        }
        drop((session, tree));
        engine.close().expect("close");
        let engine = open(&device, options()).expect("open");
        let (session, tree) = self::session(&engine);
        let value = session.get(&tree, &7_u32.to_be_bytes()).expect("get");
        assert_eq!(value.as_deref(), Some(&[3; 100][..]));
        assert_verified(&engine);
    }
}

/// Images in the log restore pages that a power cut tore, in either form, whichever the store is
/// opened with.
#[test]
fn compressed_images_restore_torn_pages_as_plain_ones_do() {
    const RECORDS: u32 = 3000;
    let _watchdog = Watchdog::start("compressed images", Duration::from_secs(60));
    for seed in 1..=8 * rounds() {
        let _context = Context(("seed", seed));
        let forms = [PageImages::Plain, PageImages::Compressed];
        let logged = forms.map(|form| {
            // Much smaller than the data, so that pages are written back all the time.
            let options = || small_pool(FRAMES).log_bytes(64 << 20).page_images(form);
            let device = device(seed);
            let engine = open(&device, options().durability(Durability::None)).expect("open");
            let (session, tree) = session(&engine);
            let value = |turn: u64, number: u32| {
                format!(r#"{{"order":{number},"state":"shipped","turn":{turn}}}"#).into_bytes()
            };
            let put = |turn: u64, number: u32| {
                let put = session.put_ticket(&tree, &number.to_be_bytes(), &value(turn, number));
                put.map(drop).expect("put");
            };
            (0..RECORDS).for_each(|number| put(0, number));
            engine.checkpoint().expect("checkpoint");
            let before = engine.stats().log_image_bytes;
            let mut newest = vec![0; RECORDS as usize];
            let mut random = SmallRng::seed_from_u64(seed);
            for change in 1..4000 {
                let number = random.random_range(0..RECORDS);
                put(change, number);
                newest[number as usize] = change;
            }
            engine.sync().expect("sync");
            let bytes = engine.stats().log_image_bytes - before;
            let left = Arc::new(device.crash_as(seed, Cut::Sectors));
            let other = forms[usize::from(form == PageImages::Plain)];
            let engine = open(&left, options().page_images(other)).expect("open after the crash");
            let (session, tree) = self::session(&engine);
            for (number, turn) in (0..RECORDS).zip(&newest) {
                let found = session.get(&tree, &number.to_be_bytes()).expect("get");
                assert_eq!(found.as_deref(), Some(&value(*turn, number)[..]), "record {number}");
            }
            assert_verified(&engine);
            bytes
        });
        let [plain, compressed] = logged;
        assert!(compressed * 10 < plain * 6, "{compressed} bytes of images, {plain} plain ones");
    }
}

/// After a checkpoint began, images become due for a part of the pages after the other, and a power
/// cut at any time, with pages written and torn, loses nothing.
#[test]
fn images_become_due_for_a_part_of_the_pages_at_a_time() {
    const RECORDS: u32 = 4000;
    let watchdog = Watchdog::start("classes of pages", Duration::from_secs(60));
    for seed in 1..=6 * rounds() {
        let _context = Context(("seed", seed));
        let mut random = SmallRng::seed_from_u64(seed);
        let options = || small_pool(FRAMES).log_bytes(8 << 20).page_images(PageImages::Plain);
        let mut device = device(seed);
        let mut newest = vec![0_u64; RECORDS as usize];
        let (mut turn, mut most) = (0, 0);
        let value = |turn: u64, number: u32| {
            [turn.to_be_bytes(), u64::from(number).to_be_bytes()].concat().repeat(8)
        };
        for life in 0..3 {
            let none = options().durability(Durability::None);
            let engine = open(&device, none).expect("open");
            let (session, tree) = session(&engine);
            for (number, turn) in (0..RECORDS).zip(&newest).filter(|(_, turn)| **turn != 0) {
                let found = session.get(&tree, &number.to_be_bytes()).expect("get");
                assert_eq!(found.as_deref(), Some(&value(*turn, number)[..]), "record {number}");
            }
            assert_verified(&engine);
            let mut put = |number: u32| {
                turn += 1;
                newest[number as usize] = turn;
                let put = session.put_ticket(&tree, &number.to_be_bytes(), &value(turn, number));
                put.map(drop).expect("put");
            };
            (0..RECORDS).for_each(&mut put);
            // Passes with images in one checkpoint: with all pages due at once two at most.
            let (mut passes, mut before) = (0, engine.stats());
            let until = random.random_range(1..60);
            for pass in 0.. {
                (0..RECORDS).step_by(9).for_each(&mut put);
                let stats = engine.stats();
                if stats.checkpoints > before.checkpoints {
                    passes = 0;
                }
                passes += u32::from(stats.log_image_bytes > before.log_image_bytes);
                most = most.max(passes);
                before = stats;
                watchdog.step();
                // The last life goes on until it has seen that.
                if pass >= until && (life < 2 || most >= 5) {
                    break;
                }
            }
            engine.sync().expect("sync");
            let left = Arc::new(device.crash_as(seed * 10 + life, Cut::Sectors));
            drop((session, tree, engine));
            device = left;
        }
        let engine = check(&device, options(), &[]);
        assert_verified(&engine);
    }
}

/// A page that is changed while a checkpoint is under way is in the log as a whole by then, so that
/// the checkpoint need not write it. Without such images it must.
#[test]
fn checkpoints_write_no_page_that_the_log_has_whole() {
    const RECORDS: u32 = 6000;
    let _watchdog = Watchdog::start("whole pages", Duration::from_secs(60));
    for (seed, cut) in [(1, Cut::Sectors), (2, Cut::Pages), (3, Cut::Nothing), (4, Cut::Prefix)] {
        let whole = cut == Cut::Pages;
        let _context = Context(("seed", seed));
        let options = || small_pool(2000).log_bytes(64 << 20).atomic_page_writes(whole);
        let device = device(seed);
        let engine = open(&device, options().durability(Durability::None)).expect("open");
        let (session, tree) = session(&engine);
        let value =
            |turn: u32, number: u32| [turn.to_be_bytes(), number.to_be_bytes()].concat().repeat(25);
        let mut turn = 0;
        let mut put_all = || {
            turn += 1;
            for number in 0..RECORDS {
                session
                    .put_ticket(&tree, &number.to_be_bytes(), &value(turn, number))
                    .map(drop)
                    .expect("put");
            }
            turn
        };
        let mut last = put_all();
        let dirty = engine.stats().used_pages;
        let slow = Fault::Latency(Duration::from_millis(10));
        device.set_plan(FaultPlan::new(seed).always(Op::Write, slow));
        let written = thread::scope(|scope| {
            let checkpoint = scope.spawn(|| engine.checkpoint().expect("checkpoint"));
            while !checkpoint.is_finished() {
                last = put_all();
            }
            engine.stats().pages_written
        });
        println!("seed {seed}: {written} pages of {dirty} were written in {last} turns");
        assert_eq!(written < dirty / 2, !whole, "{written} of {dirty} pages");
        engine.sync().expect("sync");
        let left = Arc::new(device.crash_as(seed, cut));
        let recovered = open(&left, options()).expect("open after the crash");
        let (session, tree) = self::session(&recovered);
        let mut found = 0_u32;
        for record in session.scan(&tree).expect("scan") {
            let (key, held) = record.expect("record");
            assert_eq!(key, found.to_be_bytes(), "a record is lost");
            assert!(held == value(last, found), "record {found} is not of turn {last}");
            found += 1;
        }
        assert_eq!(found, RECORDS);
        assert_verified(&recovered);
    }
}

#[test]
fn all_shapes_of_keys_and_large_values_survive_a_power_cut() {
    let watchdog = Watchdog::start("shapes", Duration::from_secs(60));
    for (seed, keys) in (0..).zip(wattle_tests::model::ALL_KEYS) {
        let _context = Context(keys);
        let plan = Plan { keys, universe: 1500, large_every: 50, large: 20_000, ..PLAN };
        let (left, client) = crashed(seed, 8000, options(), plan);
        check(&left, options(), &[&client]).close().expect("close");
        watchdog.step();
        // Closed, and opened once more.
        drop(check(&left, options(), &[&client]));
        watchdog.step();
    }
}

#[test]
fn several_writers_survive_a_power_cut() {
    const CLIENTS: u32 = 3;
    let watchdog = Watchdog::start("writers", Duration::from_secs(60));
    for seed in 0..2 * rounds() {
        let _context = Context(("seed", seed));
        let mut current = device(seed);
        let mut clients: Vec<Client> = (0..CLIENTS)
            .map(|client| Client::new(Plan { client, clients: CLIENTS, ..PLAN }, seed))
            .collect();
        for turn in 0..4 {
            let engine = open(&current, options()).expect("open");
            let still = Barrier::new(CLIENTS as usize + 1);
            thread::scope(|scope| {
                for client in &mut clients {
                    let (engine, still) = (&engine, &still);
                    scope.spawn(move || {
                        let (session, tree) = session(engine);
                        (0..1500).for_each(|_| client.step(&session, &tree));
                        still.wait();
                    });
                }
                still.wait();
                current = Arc::new(current.crash(seed * 100 + turn));
            });
            drop(engine);
            let again = Arc::new(current.clone_at_rest());
            drop(check(&again, options(), &clients.iter().collect::<Vec<_>>()));
            watchdog.step();
        }
    }
}

#[test]
fn pages_that_redo_has_no_room_for_are_written_and_read_again() {
    let options = || small_pool(FRAMES).log_bytes(256 << 20);
    let plan = Plan { universe: 20_000, ..PLAN };
    let (left, client) = crashed(5, 60_000, options(), plan);
    let before = left.counters().reads;
    let engine = open(&left, options()).expect("open after the crash");
    let (reads, pages) = (left.counters().reads - before, engine.stats().used_pages);
    assert!(reads > pages, "{reads} reads of a store of {pages} pages");
    drop(engine);
    drop(check(&left, options(), &[&client]));
}

/// A device that takes its time to write, so that recovery has a middle.
fn slow(seed: u64) -> FaultPlan {
    FaultPlan::new(seed).always(Op::Write, Fault::Latency(Duration::from_micros(300)))
}

/// Opens the store on a device; what power cuts before, meanwhile and at the end leave.
fn images_of_opening(
    device: &Arc<SimStorage>,
    options: Options,
    seed: u64,
) -> Vec<Arc<SimStorage>> {
    let done = AtomicBool::new(false);
    let mut images = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let opened = open(device, options);
            done.store(true, Ordering::Relaxed);
            drop(opened.expect("open"));
        });
        while !done.load(Ordering::Relaxed) {
            images.push(Arc::new(device.crash(seed * 1000 + images.len() as u64)));
            thread::sleep(Duration::from_millis(2));
        }
    });
    images
}

#[test]
fn a_recovery_that_is_interrupted_is_followed_by_another() {
    let watchdog = Watchdog::start("interrupted", Duration::from_secs(60));
    for seed in 0..3 * rounds() {
        let _context = Context(("seed", seed));
        let options = || small_pool(FRAMES).log_bytes(64 << 20);
        let plan = Plan { universe: 8000, ..PLAN };
        let (mut current, client) = crashed(seed, 30_000, options(), plan);
        for turn in 0..3 {
            current.set_plan(slow(seed));
            let mut images = images_of_opening(&current, options(), seed);
            for image in images.iter().step_by((images.len() / 6).max(1)) {
                drop(check(&Arc::new(image.clone_at_rest()), options(), &[&client]));
                watchdog.step();
            }
            current = images.swap_remove(images.len() * (turn + 1) / 4);
        }
    }
}

/// The process that wrote the log may have ended between a write and its sync. Records that redo
/// takes from there must be durable in the log before they reach the pages. (The window without
/// that care is too short for this test to hit: it passes without the sync that comes before
/// reading, too.)
#[test]
fn a_log_that_was_not_synced_recovers_whatever_interrupts_it() {
    let watchdog = Watchdog::start("not synced", Duration::from_secs(60));
    let options = || small_pool(FRAMES).log_bytes(64 << 20).durability(Durability::None);
    let mut tails = 0;
    for seed in 0..20 * rounds() {
        if tails == rounds() {
            return;
        }
        let _context = Context(("seed", seed));
        let device = device(seed);
        let key = |number: u32| number.wrapping_mul(0x9e37_79b1).to_be_bytes();
        let keys = 20_000u32;
        {
            // Many sessions, because the log is flushed when one buffer is half full: the flush
            // that fails is to change far more pages than recovery has room for.
            let engine = open(&device, options().pool_bytes(8 << 20)).expect("open");
            let sessions: Vec<_> = (0..8).map(|_| engine.session().expect("session")).collect();
            let (session, tree) = session(&engine);
            (0..keys).for_each(|n| session.put(&tree, &key(n), &[1; 100]).expect("put"));
            engine.checkpoint().expect("checkpoint");
            let broken = FaultPlan::new(seed).always(Op::LogSync, Fault::Error(ErrorKind::Other));
            device.set_plan(broken);
            let mut put = |n: u32| sessions[n as usize % 8].put(&tree, &key(n), &[2; 100]).err();
            let failed = (0..keys).find_map(&mut put);
            let error = failed.or_else(|| engine.sync().err()).expect("the log cannot be synced");
            assert!(matches!(error, Error::Poisoned(_) | Error::CommitUnknown(_)), "{error}");
        }
        assert!(!device.unsynced_segments().is_empty(), "the tail is not safe");
        let writes = device.counters().writes;
        // Finding the end of the log takes time, in which pages would be written unless the log was
        // synced before.
        let read = Fault::Latency(Duration::from_micros(50));
        device.set_plan(slow(seed).always(Op::LogRead, read));
        let images = images_of_opening(&device, options(), seed);
        // The flusher may have cut before the first page was changed: then there is nothing to see.
        tails += u64::from(device.counters().writes - writes > 200);
        for image in images.iter().step_by((images.len() / 12).max(1)) {
            let engine = open(image, options()).expect("open after the crash");
            let (session, tree) = session(&engine);
            let mut ended = false;
            for n in (0..keys).step_by(7) {
                let value = session.get(&tree, &key(n)).expect("get").expect("a record");
                ended |= value == [1; 100];
                assert_eq!(value, [if ended { 1 } else { 2 }; 100], "key {n}");
            }
            assert_verified(&engine);
            watchdog.step();
        }
    }
    panic!("in {tails} of all attempts a flush was caught");
}

#[test]
fn transactions_are_there_as_a_whole_or_not_at_all() {
    let watchdog = Watchdog::start("transactions", Duration::from_secs(60));
    for seed in 0..4 * rounds() {
        let _context = Context(("seed", seed));
        let mut current = device(seed);
        // By key what was committed: a byte that says it all, 0 for no record.
        let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let mut committed = vec![0u8; 3000];
        let mut next = seed;
        let mut random = || {
            next = next
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            next >> 33
        };
        for turn in 0..4 {
            let engine = open(&current, options()).expect("open");
            let (session, tree) = session(&engine);
            for (number, value) in committed.iter().enumerate() {
                let found = session.get(&tree, &key(number as u64)).expect("get");
                let expected = (*value > 0).then(|| vec![*value; usize::from(*value) * 2]);
                assert!(found == expected, "key {number} in turn {turn}");
            }
            assert_verified(&engine);
            // Large ones that stay open, and small ones that commit or roll back, between them.
            let open_one = engine.session().expect("session");
            let mut left_open = open_one.begin().expect("begin");
            for _ in 0..300 {
                let number = random() % 1000;
                left_open.put(&tree, &key(number), &[0xee; 300]).expect("put");
            }
            for _ in 0..150 {
                let mut txn = session.begin().expect("begin");
                let mut changes = Vec::new();
                for _ in 0..random() % 12 {
                    let (number, value) = (1000 + random() % 2000, (random() % 200) as u8);
                    match value {
                        0..40 => drop(txn.remove(&tree, &key(number)).expect("remove")),
                        _ => {
                            let bytes = vec![value; usize::from(value) * 2];
                            txn.put(&tree, &key(number), &bytes).expect("put");
                        }
                    }
                    changes.push((number, if value < 40 { 0 } else { value }));
                }
                if random() % 3 > 0 {
                    txn.commit().expect("commit");
                    for (number, value) in changes {
                        committed[number as usize] = value;
                    }
                } else {
                    txn.abort().expect("abort");
                }
            }
            if turn % 2 == 1 {
                // The transactions that are open now began before the place where redo begins.
                engine.checkpoint().expect("checkpoint");
            }
            engine.sync().expect("sync");
            current = Arc::new(current.crash(seed * 100 + turn));
            watchdog.step();
        }
    }
}

#[test]
fn an_error_ends_recovery_and_the_next_one_succeeds() {
    let watchdog = Watchdog::start("errors", Duration::from_secs(60));
    let options = || small_pool(FRAMES).log_bytes(64 << 20);
    let (left, client) = crashed(9, 40_000, options(), Plan { universe: 12_000, ..PLAN });
    let mut failed = 0;
    for op in [Op::Read, Op::Write, Op::Sync, Op::Reserve, Op::LogRead, Op::LogSync] {
        for nth in [1, 2, 7, 40, 150, 600] {
            let _context = Context((op, nth));
            let device = Arc::new(left.clone_at_rest());
            device.set_plan(FaultPlan::new(nth).nth(op, nth, Fault::Error(ErrorKind::Other)));
            let outcome = open(&device, options());
            if let Err(error) = outcome {
                failed += 1;
                assert!(matches!(error, Error::Io { .. } | Error::Poisoned(_)), "{error}");
            }
            device.heal();
            let device = Arc::new(device.crash(nth));
            drop(check(&device, options(), &[&client]));
            watchdog.step();
        }
    }
    assert!(failed >= 12, "{failed} of the faults were met");
}

/// Also in the middle of rolling back what had not ended.
#[test]
fn opening_ends_when_it_is_told_to_and_can_be_repeated() {
    let watchdog = Watchdog::start("interrupts", Duration::from_secs(60));
    let options = || small_pool(FRAMES).log_bytes(64 << 20);
    let left = device(5);
    let mut client = Client::new(PLAN, 5);
    let engine = open(&left, options().durability(Durability::None)).expect("open");
    let (session, tree) = session(&engine);
    let open_one = engine.session().expect("session");
    let mut left_open = open_one.begin().expect("begin");
    let other = engine.tree("u").expect("tree");
    for number in 0..8_000_u32 {
        client.step(&session, &tree);
        left_open.put(&other, &number.swap_bytes().to_be_bytes(), &[1; 50]).expect("put");
    }
    engine.sync().expect("sync");
    let left = left.crash(5);
    let mut interrupted = 0;
    for turn in 0.. {
        let _context = Context(("turn", turn));
        let device = Arc::new(left.clone_at_rest());
        device.set_plan(slow(turn));
        let flag = Arc::new(AtomicBool::new(turn == 0));
        let opened = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis((1 << (2 * turn)) - 1));
                flag.store(true, Ordering::Relaxed);
            });
            open(&device, options().interrupted_by(flag.clone()))
        });
        let whole = match opened {
            Ok(_engine) => true,
            Err(Error::Interrupted) => false,
            Err(error) => panic!("{error}"),
        };
        interrupted += u32::from(!whole);
        device.heal();
        let engine = check(&Arc::new(device.crash(turn)), options(), &[&client]);
        let session = engine.session().expect("session");
        let other = engine.tree("u").expect("tree");
        let found = session.scan(&other).expect("scan").count();
        assert_eq!(found, 0, "records of a transaction that had not ended");
        watchdog.step();
        if whole {
            break;
        }
    }
    assert!(interrupted >= 2, "{interrupted} openings ended early");
}

#[test]
fn a_log_without_its_end_is_refused() {
    let device = device(3);
    let mut client = Client::new(PLAN, 3);
    let engine = open(&device, options()).expect("open");
    let (session, tree) = session(&engine);
    (0..3000).for_each(|_| client.step(&session, &tree));
    engine.checkpoint().expect("checkpoint");
    let left = Arc::new(device.crash(3));
    // Of all segments nothing but the head of the first is left.
    let segments = left.segments().expect("segments");
    for &(segment, _) in &segments[1..] {
        left.remove(segment).expect("remove");
    }
    let mut bytes = left.raw_segment(segments[0].0).expect("a segment");
    bytes[4096..].fill(0);
    left.set_raw_segment(segments[0].0, bytes);
    let error = open(&left, options()).expect_err("the log lacks its end");
    assert!(matches!(error, Error::WrongLog { .. }), "{error}");
    // And without the first one.
    left.remove(segments[0].0).expect("remove");
    let error = open(&left, options()).expect_err("the log is missing");
    assert!(matches!(error, Error::WrongLog { .. }), "{error}");
    assert!(error.to_string().contains("(sim storage)"), "{error}");
}

/// Commits acknowledged during the checkpoint lie after the epoch with which it began and before
/// its superblock.
#[test]
fn a_log_that_lost_what_came_during_the_checkpoint_is_refused() {
    let _watchdog = Watchdog::start("a lost end of the log", Duration::from_secs(60));
    let device = device(5);
    let engine = open(&device, options()).expect("open");
    let (session, tree) = session(&engine);
    session.put(&tree, b"key", b"old").expect("put");
    // The device takes its time for the pages, and meanwhile acknowledges what it never writes.
    let slow = Fault::Latency(Duration::from_millis(1500));
    device.set_plan(FaultPlan::new(5).nth(Op::Sync, 1, slow));
    let before = device.counters().syncs;
    thread::scope(|scope| {
        let checkpoint = scope.spawn(|| engine.checkpoint().expect("checkpoint"));
        while device.counters().syncs == before {
            thread::yield_now();
        }
        device.set_plan(FaultPlan::new(5).nth(Op::LogWrite, 1, Fault::Lost));
        session.put(&tree, b"key", b"new").expect("put");
        assert!(!checkpoint.is_finished(), "it was to be slower");
    });
    let left = Arc::new(device.crash_as(5, Cut::All));
    let report = engine.verify(&mut |_| {}).expect("verify");
    assert!(report.problems.iter().any(|problem| problem.contains("flush")), "{report:?}");
    let error = open(&left, options()).expect_err("the log lacks its end");
    assert!(matches!(error, Error::WrongLog { .. }), "{error}");
    assert!(error.to_string().contains("flush"), "{error}");
}

#[test]
fn verification_reads_the_log() {
    let device = device(4);
    let mut client = Client::new(PLAN, 4);
    let engine = open(&device, options().log_bytes(64 << 20)).expect("open");
    let (session, tree) = session(&engine);
    (0..3000).for_each(|_| client.step(&session, &tree));
    let report = engine.verify(&mut |_| {}).expect("verify");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert!(report.log_bytes > 10_000, "{report:?}");
    // In the first block after the last head.
    let (segment, _) = *LogStorage::segments(&*device).expect("segments").last().expect("one");
    let segments = device.segments().expect("segments");
    let used = segments.iter().rev().find(|(number, _)| {
        device.raw_segment(*number).is_some_and(|bytes| bytes[..4096].iter().any(|byte| *byte != 0))
    });
    let used = used.map_or(segment, |(number, _)| *number);
    let mut bytes = device.raw_segment(used).expect("a segment");
    bytes[4096 + 100] ^= 1;
    device.set_raw_segment(used, bytes);
    let report = engine.verify(&mut |_| {}).expect("verify");
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    assert!(report.problems[0].contains("log"), "{:?}", report.problems);
}

#[test]
fn the_log_of_a_store_that_was_not_closed_can_be_printed() {
    let directory = tempfile::tempdir().expect("directory");
    let (path, copy) = (directory.path().join("store"), directory.path().join("copy"));
    let options = || small_pool(FRAMES).io(IoKind::Threads).durability(Durability::None);
    let engine = Engine::open(&path, options()).expect("open");
    {
        let (session, tree) = session(&engine);
        session.put(&tree, b"one\n", b"value").expect("put");
        let mut txn = session.begin().expect("begin");
        txn.put(&tree, b"two", &[0xaa; 100]).expect("put");
        txn.commit().expect("commit");
        for number in 0..2000u32 {
            session.put(&tree, &number.to_be_bytes(), &[7; 50]).expect("put");
        }
        session.remove(&tree, b"one\n").expect("remove");
    }
    engine.sync().expect("sync");
    let error = dump_log(&path, &mut |_| ControlFlow::Continue(())).expect_err("it is open");
    assert!(matches!(error, Error::AlreadyOpen { .. }), "{error}");
    for part in ["", LOG_DIRECTORY] {
        std::fs::create_dir(copy.join(part)).expect("create");
        for entry in std::fs::read_dir(path.join(part)).expect("list").flatten() {
            if entry.path().is_file() {
                let to = copy.join(part).join(entry.file_name());
                std::fs::copy(entry.path(), to).expect("copy");
            }
        }
    }
    let mut lines = Vec::new();
    let mut push = |line: &str, most: usize| {
        lines.push(line.to_string());
        if lines.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    dump_log(&copy, &mut |line| push(line, 3)).expect("three lines");
    dump_log(&copy, &mut |line| push(line, usize::MAX)).expect("dump");
    let first: Vec<_> = lines.drain(..3).collect();
    assert_eq!(first, lines[..3], "it ends where it is told to");
    let has = |parts: &[&str]| {
        let found = lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "{parts:?} in\n{}", lines.join("\n"));
    };
    has(&["flush ", "epoch ", " bytes"]);
    has(&["auto-change txn 0", "\"one\\n\" with 5 bytes"]);
    has(&["undo tree 2 \"two\" to absent", " change txn "]);
    has(&[" commit txn "]);
    has(&["new-image of ", "truncate at "]);
    // The dump has changed nothing: the copy still recovers.
    let engine = Engine::open(&copy, options()).expect("open the copy");
    let (session, tree) = session(&engine);
    assert_eq!(session.get(&tree, b"two").expect("get").as_deref(), Some(&[0xaa; 100][..]));
    assert_verified(&engine);
}

/// The number of a record says of which epoch it is, and a flush holds none of a later one. The
/// number of the last page that any session freed must not get from an epoch into the previous one.
#[test]
fn records_stay_in_their_epoch_while_pages_go_from_session_to_session() {
    let device = device(1);
    let options = small_pool(256).log_bytes(8 * MIN_LOG_BYTES).durability(Durability::None);
    let engine = open(&device, options.clone()).expect("open");
    let end = Instant::now() + Duration::from_millis(1000 * rounds());
    thread::scope(|scope| {
        let engine = &engine;
        for client in 0..2 {
            // Large values come and go: pages are freed and put into trees again.
            scope.spawn(move || {
                let tree = engine.tree(&format!("t{client}")).expect("tree");
                let session = engine.session().expect("session");
                for key in (0..u32::MAX).take_while(|_| Instant::now() < end) {
                    let key = (key % 8).to_be_bytes();
                    session.put(&tree, &key, &[client; 30_000]).expect("put");
                    session.remove(&tree, &key).expect("remove");
                }
            });
        }
        // Epochs follow each other as fast as they can.
        scope.spawn(move || {
            let tree = engine.tree("commits").expect("tree");
            let session = engine.session().expect("session");
            while Instant::now() < end {
                let mut txn = session.begin().expect("begin");
                txn.put(&tree, b"key", b"value").expect("put");
                txn.commit().expect("commit");
                engine.sync().expect("sync");
            }
        });
    });
    assert_verified(&engine);
    let left = Arc::new(device.crash(1));
    assert_verified(&open(&left, options).expect("open after the crash"));
}
