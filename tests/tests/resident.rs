//! Operations on resident pages: look-ups store nothing to shared memory and allocate nothing, and
//! changes in place hardly ever allocate. A test binary of its own, because it counts every
//! allocation.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::Mutex,
};
use wattle::{Engine, Options, Session, Tree};
use wattle_tests::harness::Device;

/// Counts the allocations of threads that ask for it.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Tests of this file share the processor's attention one at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Tells a child process to store to a protected pool.
const STORE: &str = "WATTLE_TEST_STORE";

/// Allocations of this thread while `work` runs.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.with(Cell::get);
    work();
    COUNT.with(Cell::get) - before
}

const KEYS: u64 = 30_000;

fn key(i: u64) -> [u8; 8] {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// A store whose every page is in the pool.
fn loaded() -> (Engine, Tree, Session) {
    let options = Options::default().pool_bytes(64 << 20);
    let engine = Device::memory().open(options).expect("open");
    let tree = engine.tree("tree").expect("tree");
    let session = engine.session().expect("session");
    for i in 0..KEYS {
        session.insert(&tree, &key(i), &[i as u8; 120]).expect("insert");
    }
    assert_eq!(engine.stats().evictions, 0, "everything is resident");
    (engine, tree, session)
}

fn look_all_up(session: &Session, tree: &Tree) {
    for i in 0..KEYS {
        let right = session.get_with(tree, &key(i), |value| value == [i as u8; 120]);
        assert_eq!(right.expect("get"), Some(true), "key {i}");
        // Its neighbour is absent.
        let absent = session.get_with(tree, &key(i)[..7], |_| ()).expect("get");
        assert_eq!(absent, None);
    }
}

#[test]
fn resident_look_ups_store_nothing_to_the_pool() {
    let _one = ONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let (engine, tree, session) = loaded();
    if std::env::var_os(STORE).is_some() {
        engine.pool().protect(true).expect("protect");
        let _ = session.modify(&tree, &key(0), |value| value.fill(0));
        std::process::exit(0);
    }
    // The first look-up in an epoch notes it; after that the epoch is steady.
    look_all_up(&session, &tree);
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    // A store to the pool is a segmentation fault from here on, as another process shows.
    let child = std::process::Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "resident_look_ups_store_nothing_to_the_pool"])
        .env(STORE, "1")
        .output()
        .expect("run this binary");
    assert_eq!(child.status.code(), None, "a store to a protected pool must kill the process");
    engine.pool().protect(true).expect("protect");
    look_all_up(&session, &tree);
    let mut found = 0;
    session
        .multi_get(&tree, &keys, |i, value| {
            assert_eq!(value, Some(&[i as u8; 120][..]));
            found += 1;
        })
        .expect("multi_get");
    engine.pool().protect(false).expect("protect");
    assert_eq!(found, KEYS);
    session.put(&tree, &key(0), b"the pool is writable again").expect("put");
    drop((session, tree));
    engine.close().expect("close");
}

#[test]
fn resident_look_ups_allocate_nothing_and_changes_in_place_hardly_ever() {
    let _one = ONE.lock().unwrap_or_else(|poison| poison.into_inner());
    assert!(allocations(|| drop(std::hint::black_box(vec![1; 10]))) == 1, "it counts");
    let (_engine, tree, session) = loaded();
    let same = |session: &Session| {
        for i in 0..KEYS {
            assert!(session.update(&tree, &key(i), &[i as u8; 120]).expect("update"));
        }
    };
    let put = |session: &Session| {
        for i in 0..KEYS {
            session.put(&tree, &key(i), &[i as u8; 120]).expect("put");
        }
    };
    let modify = |session: &Session| {
        for i in 0..KEYS {
            let change = |value: &mut [u8]| value[60] = i as u8;
            assert!(session.modify(&tree, &key(i), change).expect("modify"));
        }
    };
    let removed = |session: &Session| {
        for i in 0..KEYS {
            assert!(!session.remove(&tree, &key(i)[..7]).expect("remove"));
        }
    };
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let many = |session: &Session| {
        session.multi_get(&tree, &keys, |_, value| assert!(value.is_some())).expect("multi_get");
    };
    // How many versions there are at once depends on when the log is flushed and on when the
    // janitor comes round. Their memory is reused, so few changes, if any, need more of it.
    let few = KEYS / 10;
    type Work<'w> = (&'w str, u64, &'w dyn Fn(&Session));
    let works: [Work<'_>; 6] = [
        ("look-ups", 0, &|session| look_all_up(session, &tree)),
        ("updates of the same size", few, &same),
        ("puts of the same size", few, &put),
        ("changes in place", few, &modify),
        ("removes of absent keys", 0, &removed),
        ("look-ups of many keys", 0, &many),
    ];
    for (what, limit, work) in works {
        work(&session);
        let count = allocations(|| work(&session));
        println!("{what}: {count} allocations in {KEYS} operations");
        assert!(count <= limit, "{what} allocate: {count} times in {KEYS} operations");
    }
}
