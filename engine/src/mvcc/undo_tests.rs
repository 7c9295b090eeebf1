//! Tests of the undo buffer: against a vector, and with failures of the file.

use super::*;
use proptest::prelude::*;

/// An entry that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned(u32, bool, Vec<u8>, Option<(Vec<u8>, bool)>);

fn owned(UndoEntry { tree, first, key, before }: UndoEntry<'_>) -> Owned {
    let before = before.map(|(value, special)| (value.to_vec(), special));
    Owned(tree.0, first, key.to_vec(), before)
}

fn push(undo: &mut UndoBuffer, Owned(tree, first, key, before): &Owned) {
    let before = before.as_ref().map(|(value, special)| (&value[..], *special));
    undo.push(TreeId(*tree), *first, key, before).unwrap();
}

fn entry() -> impl Strategy<Value = Owned> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..60);
    let before = prop::option::of((bytes(), any::<bool>()));
    (any::<u32>(), any::<bool>(), bytes(), before)
        .prop_map(|(tree, first, key, before)| Owned(tree, first, key, before))
}

#[derive(Debug, Clone)]
enum Action {
    Push(Owned),
    Pop(usize),
    Mark,
    RollBack,
    Clear,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        60 => entry().prop_map(Action::Push),
        8 => (1usize..12).prop_map(Action::Pop),
        5 => Just(Action::Mark),
        3 => Just(Action::RollBack),
        1 => Just(Action::Clear),
    ]
}

proptest! {
    #[test]
    fn it_behaves_like_a_stack_whatever_the_limit(
        limit in 0usize..400,
        actions in prop::collection::vec(action(), 0..200),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let open = Arc::new(Directory::open(dir.path()).unwrap());
        let mut undo = UndoBuffer::with_limit(Some(open), limit);
        let (mut model, mut marks) = (Vec::new(), vec![(undo.mark(), 0)]);
        for action in actions {
            match action {
                Action::Push(entry) => {
                    push(&mut undo, &entry);
                    model.push(entry);
                    prop_assert!(undo.tail.len() <= limit.max(2) + 200);
                }
                Action::Pop(count) => {
                    let &(mark, len) = marks.last().unwrap();
                    for _ in 0..count {
                        let popped = undo.pop(mark).unwrap().map(owned);
                        let expected = if model.len() > len { model.pop() } else { None };
                        prop_assert_eq!(popped, expected);
                    }
                }
                Action::Mark => marks.push((undo.mark(), model.len())),
                Action::RollBack => {
                    let &(mark, len) = marks.last().unwrap();
                    while let Some(entry) = undo.pop(mark).unwrap() {
                        prop_assert_eq!(Some(owned(entry)), model.pop());
                    }
                    prop_assert_eq!(model.len(), len);
                    if len > 0 {
                        marks.pop();
                    }
                }
                Action::Clear => {
                    undo.clear();
                    model.clear();
                    marks.truncate(1);
                }
            }
            prop_assert_eq!(undo.is_empty(), model.is_empty());
        }
        while let Some(entry) = undo.pop(marks[0].0).unwrap() {
            prop_assert_eq!(Some(owned(entry)), model.pop());
        }
        prop_assert!(model.is_empty() && undo.is_empty());
        prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_large_transaction_stays_within_the_limit() {
    let mut undo = UndoBuffer::new(None);
    let start = undo.mark();
    let entries = 100_000u64;
    for i in 0..entries {
        let value = [i as u8; 120];
        undo.push(TreeId(3), i % 2 == 0, &i.to_be_bytes(), Some((&value, false))).unwrap();
        assert!(undo.tail.capacity() <= 2 * MEMORY_LIMIT + (64 << 10));
    }
    assert!(undo.spilled > 10 << 20);
    for i in (0..entries).rev() {
        let value = [i as u8; 120];
        let expected = UndoEntry {
            tree: TreeId(3),
            first: i % 2 == 0,
            key: &i.to_be_bytes(),
            before: Some((&value, false)),
        };
        assert_eq!(undo.pop(start).unwrap(), Some(expected));
        assert!(undo.tail.capacity() <= 2 * MEMORY_LIMIT + (64 << 10));
    }
    assert_eq!(undo.pop(start).unwrap(), None);
    undo.push(TreeId(3), true, b"key", None).unwrap();
    undo.clear();
    assert!(undo.is_empty() && undo.file.is_none() && undo.tail.capacity() <= KEPT);
}

#[test]
fn a_failing_file_is_reported_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let gone = Directory::open_or_create(&dir.path().join("gone")).unwrap();
    std::fs::remove_dir(gone.path()).unwrap();
    let mut undo = UndoBuffer::with_limit(Some(Arc::new(gone)), 100);
    let start = undo.mark();
    let mut pushed = 0;
    let error = loop {
        match undo.push(TreeId(1), true, b"key", Some((b"value", false))) {
            Ok(()) => pushed += 1,
            Err(error) => break error,
        }
    };
    let message = error.to_string();
    assert!(message.starts_with("cannot make the temporary file in "), "{message}");
    assert!(message.contains("gone was removed while it was open"), "{message}");
    assert!(undo.push(TreeId(1), false, b"", None).is_err());
    for _ in 0..pushed {
        assert!(undo.pop(start).unwrap().is_some());
    }
    assert!(undo.pop(start).unwrap().is_none());
}

#[test]
#[should_panic(expected = "it was rolled back")]
fn a_savepoint_behind_the_end_is_refused() {
    let mut undo = UndoBuffer::new(None);
    undo.push(TreeId(1), true, b"key", None).unwrap();
    let mark = undo.mark();
    undo.pop(Savepoint(0)).unwrap();
    let _ = undo.pop(mark);
}
