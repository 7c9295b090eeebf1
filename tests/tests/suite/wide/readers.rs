//! Reads: of transactions that change something, which know exactly what they see; of transactions
//! that only read; and of sessions. The last two may see any state that is not older than what was
//! acknowledged, or than the session's own, but no mixture.

use super::{
    data::{Id, Key, key_of},
    state::{Found, Records, differences, is, short},
    world::{World, block_on},
    writers::{AnyTransaction, Writer},
};
use rand::RngExt;
use std::{
    ops::{Bound, ControlFlow},
    rc::Rc,
};
use wattle::{Direction, Error, Result, Session, Transaction, Tree};

/// Transactions that only read, at a time.
const READERS: usize = 4;

/// A transaction that only reads.
pub struct Reader<'s> {
    txn: Transaction<'s>,
    /// States that it may see.
    candidates: Vec<u64>,
    /// The newest change that it has found, for sure.
    found: u64,
}

type Range = (Bound<Key>, Bound<Key>);

fn borrowed(range: &Range) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (range.0.as_ref().map(|key| &key[..]), range.1.as_ref().map(|key| &key[..]))
}

/// The result of a scan, ascending.
fn collect(scan: Result<wattle::Range<'_>>, back: bool) -> Result<Found> {
    let mut found: Found = match back {
        true => scan?.rev().collect::<Result<_>>()?,
        false => scan?.collect::<Result<_>>()?,
    };
    if back {
        found.reverse();
    }
    Ok(found)
}

impl<'s> World<'s> {
    /// Compares what a transaction sees of a tree with what it should see.
    pub fn check_writer(&mut self, who: usize) {
        let Some(mut writer) = self.writers[who].take_if(|writer| !writer.failed) else { return };
        let (id, tree) = self.any_tree();
        if let Some(records) = writer.trees.get(&id).cloned() {
            let keys: Vec<Key> = (0..30).map(|_| key_of(id, self.any_number())).collect();
            let result = match self.below(6) {
                0..3 => self.check_range(&mut writer, (id, &tree), &records, &keys),
                3 => check_many(&mut writer, (id, &tree), &records, &keys),
                _ => check_each(&mut writer, (id, &tree), &records, &keys),
            };
            match result {
                Ok(()) => {}
                Err(Error::MustAbort(_)) if writer.is_asynchronous() || self.faulty => {
                    writer.failed = true;
                }
                Err(Error::SnapshotTooOld(_)) => {
                    self.counts.too_old += 1;
                    writer.failed = true;
                }
                Err(error) => self.expect_fault(&error, "a read of a transaction"),
            }
        }
        self.writers[who] = Some(writer);
    }

    fn any_range(&mut self, keys: &[Key]) -> Range {
        let (low, high) =
            (keys[0].clone().min(keys[1].clone()), keys[0].clone().max(keys[1].clone()));
        match self.below(4) {
            0 => (Bound::Unbounded, Bound::Excluded(high)),
            1 => (Bound::Excluded(low), Bound::Unbounded),
            2 => (Bound::Included(low), Bound::Included(high)),
            _ => (Bound::Unbounded, Bound::Unbounded),
        }
    }

    /// Goes through a range, or through a part of it.
    fn check_range(
        &mut self,
        writer: &mut Writer<'s>,
        (id, tree): (Id, &Tree),
        records: &Rc<Records>,
        keys: &[Key],
    ) -> Result<()> {
        let range = self.any_range(keys);
        let most = self.random.random_range(1..=100usize);
        let back: bool = self.random.random();
        let direction = if back { Direction::Backward } else { Direction::Forward };
        let mut found: Found = Vec::new();
        let visit = |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match &mut writer.txn {
            AnyTransaction::Waiting(txn) => txn.visit(tree, borrowed(&range), direction, visit),
            AnyTransaction::Asynchronous(txn) => {
                block_on(txn.visit(tree, borrowed(&range), direction, visit))
            }
        }?;
        let last = found.last().map(|(key, _)| Bound::Included(key.clone()));
        if back {
            found.reverse();
        }
        let all = records.range((range.0.clone(), range.1.clone()));
        let all = all.map(|(key, value)| (key.clone(), value.clone()));
        let expected: Records =
            if back { all.rev().take(most).collect() } else { all.take(most).collect() };
        let differs = || differences(&expected, &found);
        assert!(
            is(&expected, &found),
            "{range:?} of tree {id}, at most {most}, back {back}: {}",
            differs()
        );
        if let Some(reads) = &mut writer.reads {
            reads.ranges.push(match last.filter(|_| found.len() == most) {
                None => (id, range.0, range.1),
                Some(last) if back => (id, last, range.1),
                Some(last) => (id, range.0, last),
            });
        }
        Ok(())
    }

    /// Begins a transaction that only reads, or ends one when there are many.
    pub fn begin_or_end_reader(&mut self) {
        if self.readers.len() == READERS {
            let at = self.random.random_range(0..READERS);
            let reader = self.readers.swap_remove(at);
            if self.one_in(2) {
                reader.txn.commit().expect("the end of a reader");
                self.tell(|| format!("  a reader of {} commits", reader.found));
                self.ack_if_durable(reader.found);
            }
            return;
        }
        let session = self.any_session();
        let newest = self.history.newest();
        let (txn, oldest) = match self.random.random() {
            true => (self.sessions[session].begin_read(), self.oldest_seen(session)),
            false => (self.sessions[session].begin(), newest),
        };
        let candidates = (oldest..=newest).collect();
        self.readers.push(Reader { txn: txn.expect("begin"), candidates, found: 0 });
    }

    /// The oldest state that a read of a session may see.
    fn oldest_seen(&self, session: usize) -> u64 {
        match self.setting.sees_newest {
            true => self.history.newest(),
            false => self.acked.max(self.own[session]).max(self.history.first()),
        }
    }

    /// Compares what a transaction that only reads sees with the states that it may see: they
    /// become fewer.
    pub fn check_reader(&mut self) {
        if self.readers.is_empty() {
            return self.begin_or_end_reader();
        }
        let (id, tree) = self.any_tree();
        let at = self.random.random_range(0..self.readers.len());
        let back = self.random.random();
        let mut reader = self.readers.swap_remove(at);
        reader.candidates.retain(|number| self.history.at(*number).trees.contains_key(&id));
        if reader.candidates.is_empty() {
            // The tree is younger.
            return;
        }
        match collect(reader.txn.scan(&tree), back) {
            Ok(found) => {
                reader.candidates = self.candidates(reader.candidates, id, &found, "a reader");
                let changes = self.last.iter().filter(|((tree, _), _)| *tree == id);
                let seen =
                    changes.map(|(_, number)| *number).filter(|n| *n <= reader.candidates[0]);
                reader.found = seen.max().unwrap_or(0).max(reader.found);
                self.readers.push(reader);
            }
            Err(error) => self.expect_failed_read(&error, "a reader"),
        }
    }

    /// Those of some states in which a tree holds what was found.
    fn candidates(&self, of: Vec<u64>, tree: Id, found: &Found, who: &str) -> Vec<u64> {
        let records = |number: u64| &self.history.at(number).trees[&tree];
        let left: Vec<u64> =
            of.iter().copied().filter(|number| is(records(*number), found)).collect();
        if left.is_empty() {
            let say = |number: &u64| format!("{number}: {}", differences(records(*number), found));
            let all: Vec<String> = of.iter().map(say).collect();
            panic!("{who} sees none of the states it may see of tree {tree}: {all:#?}");
        }
        left
    }

    /// Compares what a session sees with the states that it may see.
    pub fn check_session(&mut self) {
        let session = self.any_session();
        let (id, tree) = self.any_tree();
        let may_see = self.oldest_seen(session)..=self.history.newest();
        let may_see: Vec<u64> =
            may_see.filter(|number| self.history.at(*number).trees.contains_key(&id)).collect();
        let result = if self.one_in(3) {
            let back = self.random.random();
            collect(self.sessions[session].scan(&tree), back)
                .map(|found| drop(self.candidates(may_see, id, &found, "a session")))
        } else {
            let keys: Vec<Key> = (0..40).map(|_| key_of(id, self.any_number())).collect();
            let at_once = self.random.random();
            self.check_records(&self.sessions[session], (id, &tree), &may_see, &keys, at_once)
        };
        if let Err(error) = result {
            self.expect_failed_read(&error, "a read of a session");
        }
    }

    /// Compares each of some records with the states that the session may see.
    fn check_records(
        &self,
        session: &Session,
        (id, tree): (Id, &Tree),
        may_see: &[u64],
        keys: &[Key],
        at_once: bool,
    ) -> Result<()> {
        let in_state = |number: u64, key: &Key| {
            let records = self.history.at(number).trees.get(&id)?;
            records.get(key).map(|value| &value[..])
        };
        let check = |key: &Key, found: Option<&[u8]>| {
            if may_see.iter().any(|number| in_state(*number, key) == found) {
                return;
            }
            let brief =
                |value: Option<&[u8]>| value.map(|value| (value.len(), value.first().copied()));
            let all = self.history.first()..=self.history.newest();
            let all: Vec<_> = all.map(|number| brief(in_state(number, key))).collect();
            let (key, found) = (short(key), brief(found));
            panic!("tree {id}, {key}: {found:?} is none of the states {may_see:?}, of {all:?}");
        };
        if at_once {
            // Not within the call: that holds a page.
            let mut found = vec![None; keys.len()];
            let read =
                |index: usize, value: Option<&[u8]>| found[index] = value.map(<[u8]>::to_vec);
            session.multi_get(tree, keys, read)?;
            keys.iter().zip(&found).for_each(|(key, found)| check(key, found.as_deref()));
        } else {
            for key in keys {
                check(key, session.get(tree, key)?.as_deref());
            }
        }
        Ok(())
    }
}

/// Looks for several records in one call.
fn check_many(
    writer: &mut Writer<'_>,
    (id, tree): (Id, &Tree),
    records: &Rc<Records>,
    keys: &[Key],
) -> Result<()> {
    writer.reads_records(id, keys);
    let mut found = vec![None; keys.len()];
    let read = |index: usize, value: Option<&[u8]>| found[index] = value.map(<[u8]>::to_vec);
    match &mut writer.txn {
        AnyTransaction::Waiting(txn) => txn.multi_get(tree, keys, read),
        AnyTransaction::Asynchronous(txn) => block_on(txn.multi_get(tree, keys, read)),
    }?;
    keys.iter()
        .zip(&found)
        .for_each(|(key, found)| check_record(id, records, key, found.as_deref()));
    Ok(())
}

/// Looks for several records, one after the other.
fn check_each(
    writer: &mut Writer<'_>,
    (id, tree): (Id, &Tree),
    records: &Rc<Records>,
    keys: &[Key],
) -> Result<()> {
    for key in keys {
        writer.reads_records(id, [key]);
        let found = match &mut writer.txn {
            AnyTransaction::Waiting(txn) => txn.get(tree, key),
            AnyTransaction::Asynchronous(txn) => block_on(txn.get(tree, key)),
        }?;
        check_record(id, records, key, found.as_deref());
    }
    Ok(())
}

fn check_record(tree: Id, records: &Records, key: &Key, found: Option<&[u8]>) {
    let expected = records.get(key).map(|value| &value[..]);
    let lengths = (found.map(<[u8]>::len), expected.map(<[u8]>::len));
    assert!(
        found == expected,
        "tree {tree}, {}: lengths found and expected {lengths:?}",
        short(key)
    );
}
