//! The events and spans that a program sees of an engine.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tracing::{
    Event, Metadata, Subscriber,
    span::{Attributes, Id, Record},
};
use wattle::{Engine, Options};

/// Keeps the names of spans and the targets of events.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn push(&self, line: String) {
        self.0.lock().expect("no panic").push(line);
    }

    fn has(&self, line: &str) -> bool {
        self.0.lock().expect("no panic").iter().any(|seen| seen == line)
    }
}

impl Subscriber for Seen {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.push(format!("span {}", span.metadata().name()));
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        self.push(format!("event {}", event.metadata().target()));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn options() -> Options {
    Options::default().pool_bytes(8 << 20)
}

/// A store that is opened, written, checkpointed, copied, left as by a crash, and recovered.
fn life_of_a_store(options: Options) -> Seen {
    let (seen, dir) = (Seen::default(), tempfile::tempdir().expect("a directory"));
    let path = dir.path().join("store");
    tracing::subscriber::with_default(seen.clone(), || {
        let engine = Engine::open(&path, options.clone()).expect("open");
        let tree = engine.tree("tree").expect("a tree");
        engine.session().expect("a session").put(&tree, b"key", b"value").expect("put");
        engine.checkpoint().expect("a checkpoint");
        engine.backup(dir.path().join("backup")).expect("a backup");
        engine.session().expect("a session").put(&tree, b"key", b"new").expect("put");
        drop(tree);
        engine.abandon().expect("abandoned");
        let engine = Engine::open(&path, options).expect("open again");
        engine.compact().expect("compacted");
        engine.close().expect("closed");
    });
    seen
}

#[test]
fn long_work_has_spans() {
    let seen = life_of_a_store(options());
    for span in ["open", "checkpoint", "backup", "recovery", "compaction"] {
        assert!(seen.has(&format!("span {span}")), "{span} is not in {:?}", seen.0);
    }
    assert!(!seen.has("event wattle::slow"), "not asked for: {:?}", seen.0);
}

#[test]
fn waits_from_the_threshold_on_are_reported() {
    // Each durable commit waits for the device.
    let seen = life_of_a_store(options().slow_operation(Duration::ZERO));
    assert!(seen.has("event wattle::slow"), "{:?}", seen.0);
    let seen = life_of_a_store(options().slow_operation(Duration::from_secs(3600)));
    assert!(!seen.has("event wattle::slow"), "{:?}", seen.0);
}
