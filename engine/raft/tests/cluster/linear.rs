//! Whether the history of a register is linearizable: whether all operations can be put in one
//! order in which each takes effect between its call and its return.
//!
//! The search is that of Wing and Gong (1993), with Lowe's memory of visited states (2017): the
//! operations that are done, and the value after them. Values are written once each. So a value
//! that was overwritten never comes back, and an order that overwrites one which an operation has
//! yet to see is a dead end.

use std::collections::{HashMap, HashSet};

/// Most states to visit, which bounds time and memory.
const MAX_STATES: usize = 4_000_000;
/// The return of an operation whose outcome is unknown.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Read,
    Set(u64),
    /// Writes the second value if the register has the first.
    Swap(Option<u64>, u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// It has returned this value, which the register had before it.
    Saw(Option<u64>),
    /// A write that has returned.
    Done,
    /// A call that has failed, or whose answer was lost: it takes effect after the call, or never.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub kind: Kind,
    pub outcome: Outcome,
    /// When it was called, and when it returned: different numbers for all calls and returns.
    pub called: u64,
    pub returned: u64,
}

impl Operation {
    fn written(&self) -> Option<u64> {
        match self.kind {
            Kind::Read => None,
            Kind::Set(value) | Kind::Swap(_, value) => Some(value),
        }
    }

    /// The value after this operation. None if the operation does not fit to the
    /// value before it.
    fn step(&self, before: Option<u64>) -> Option<Option<u64>> {
        if matches!(self.outcome, Outcome::Saw(value) if value != before) {
            return None;
        }
        Some(match self.kind {
            Kind::Read => before,
            Kind::Set(value) => Some(value),
            Kind::Swap(expected, value) if expected == before => Some(value),
            Kind::Swap(..) => before,
        })
    }
}

/// Checks the history of a register that has no value at first.
///
/// # Errors
/// It is not linearizable, with the place where the search got stuck, or the search was too long.
pub fn check(history: &[Operation]) -> Result<(), String> {
    let mut operations = necessary(history)?;
    operations.sort_by_key(|operation| operation.called);
    Search::new(&operations).run()
}

/// The operations that an order must have. One with an unknown outcome is left out if no operation
/// has seen its value: it can be taken out of any order. Otherwise it must have taken effect.
fn necessary(history: &[Operation]) -> Result<Vec<Operation>, String> {
    let mut writers = HashMap::new();
    for operation in history {
        if let Some(value) = operation.written()
            && writers.insert(value, operation).is_some()
        {
            return Err(format!("the value {value} is written twice: this checker does not suit"));
        }
    }
    let is_known = |operation: &&Operation| operation.outcome != Outcome::Unknown;
    let mut operations: Vec<_> = history.iter().filter(is_known).copied().collect();
    let (mut at, mut included) = (0, HashSet::new());
    while let Some(operation) = operations.get(at) {
        at += 1;
        let Outcome::Saw(Some(value)) = operation.outcome else { continue };
        let writer = writers.get(&value);
        let writer = writer.ok_or_else(|| format!("{operation:?} saw a value without a writer"))?;
        if writer.outcome == Outcome::Unknown && included.insert(value) {
            let outcome = match writer.kind {
                Kind::Swap(expected, _) => Outcome::Saw(expected),
                _ => Outcome::Done,
            };
            operations.push(Operation { outcome, returned: NEVER, ..**writer });
        }
    }
    Ok(operations)
}

/// The operations that are done: all before `low`, and those after it.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Done {
    low: usize,
    more: Vec<usize>,
}

impl Done {
    fn has(&self, operation: usize) -> bool {
        operation < self.low || self.more.contains(&operation)
    }

    fn with(&self, operation: usize) -> Done {
        let mut done = self.clone();
        done.more.push(operation);
        done.more.sort_unstable();
        let next = |done: &Done| done.more.first() == Some(&done.low);
        while next(&done) {
            done.more.remove(0);
            done.low += 1;
        }
        done
    }

    fn len(&self) -> usize {
        self.low + self.more.len()
    }
}

/// A state of the search.
struct State {
    done: Done,
    value: Option<u64>,
    /// Operations that can be next and were not tried yet. The last one is tried first.
    next: Vec<usize>,
    /// The operation that led here.
    by: Option<usize>,
}

struct Search<'h> {
    operations: &'h [Operation],
    /// How many operations that are not done have seen each value.
    unseen: HashMap<Option<u64>, usize>,
    visited: HashSet<(Done, Option<u64>)>,
}

impl<'h> Search<'h> {
    fn new(operations: &'h [Operation]) -> Self {
        let mut unseen = HashMap::new();
        for operation in operations {
            if let Outcome::Saw(value) = operation.outcome {
                *unseen.entry(value).or_default() += 1;
            }
        }
        Search { operations, unseen, visited: HashSet::new() }
    }

    /// Operations that can be next: none that was called after another one returned.
    fn next(&self, done: &Done) -> Vec<usize> {
        let (mut next, mut first_return) = (Vec::new(), NEVER);
        for (at, operation) in self.operations.iter().enumerate().skip(done.low) {
            if operation.called > first_return {
                break;
            }
            if !done.has(at) {
                first_return = first_return.min(operation.returned);
                next.push(at);
            }
        }
        // The one that returned first is tried first.
        next.sort_by_key(|&at| std::cmp::Reverse(self.operations[at].returned));
        next
    }

    fn count(&mut self, operation: usize, change: isize) {
        if let Outcome::Saw(value) = self.operations[operation].outcome {
            let count = self.unseen.entry(value).or_default();
            *count = count.checked_add_signed(change).expect("each operation is done once");
        }
    }

    /// The value after an operation, if the operation can be next. It is counted as done then.
    fn try_next(&mut self, operation: usize, before: Option<u64>) -> Option<Option<u64>> {
        let value = self.operations[operation].step(before)?;
        self.count(operation, -1);
        if value != before && self.unseen.get(&before).is_some_and(|&count| count > 0) {
            self.count(operation, 1);
            return None;
        }
        Some(value)
    }

    fn run(mut self) -> Result<(), String> {
        let done = Done::default();
        let next = self.next(&done);
        let mut path = vec![State { done, value: None, next, by: None }];
        let mut deepest: (usize, Option<u64>, Done) = (0, None, Done::default());
        while let Some(state) = path.last_mut() {
            if state.done.len() == self.operations.len() {
                return Ok(());
            }
            let Some(operation) = state.next.pop() else {
                let ended = path.pop().expect("it was there");
                if let Some(operation) = ended.by {
                    self.count(operation, 1);
                }
                continue;
            };
            let (done, before) = (state.done.with(operation), state.value);
            let Some(value) = self.try_next(operation, before) else { continue };
            if !self.visited.insert((done.clone(), value)) {
                self.count(operation, 1);
                continue;
            }
            if self.visited.len() > MAX_STATES {
                return Err(format!("undecided after {MAX_STATES} states"));
            }
            if done.len() > deepest.0 {
                deepest = (done.len(), value, done.clone());
            }
            let next = self.next(&done);
            path.push(State { done, value, next, by: Some(operation) });
        }
        Err(self.stuck(&deepest))
    }

    fn stuck(&self, (count, value, done): &(usize, Option<u64>, Done)) -> String {
        let next: Vec<_> = self.next(done).iter().map(|&at| self.operations[at]).collect();
        format!(
            "not linearizable: after {count} of {} operations the value is {value:?}, and none of \
             these can be next: {next:#?}",
            self.operations.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};

    fn operation(called: u64, returned: u64, kind: Kind, outcome: Outcome) -> Operation {
        Operation { kind, outcome, called, returned }
    }

    fn set(called: u64, returned: u64, value: u64) -> Operation {
        operation(called, returned, Kind::Set(value), Outcome::Done)
    }

    fn read(called: u64, returned: u64, value: impl Into<Option<u64>>) -> Operation {
        operation(called, returned, Kind::Read, Outcome::Saw(value.into()))
    }

    fn lost(called: u64, kind: Kind) -> Operation {
        operation(called, NEVER, kind, Outcome::Unknown)
    }

    #[track_caller]
    fn refused(history: &[Operation], why: &str) {
        let error = check(history).expect_err("it is not linearizable");
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn operations_one_after_the_other() {
        check(&[]).unwrap();
        check(&[read(1, 2, None), set(3, 4, 7), read(5, 6, 7), set(7, 8, 9), read(9, 10, 9)])
            .unwrap();
    }

    #[test]
    fn a_stale_read_is_refused() {
        refused(&[set(1, 2, 7), set(3, 4, 8), read(5, 6, 7)], "none of these can be next");
        refused(&[set(1, 2, 7), read(3, 4, None)], "none of these can be next");
        // Beside the write both values are right.
        check(&[set(1, 2, 7), set(3, 6, 8), read(4, 5, 7)]).unwrap();
        check(&[set(1, 2, 7), set(3, 6, 8), read(4, 5, 8)]).unwrap();
    }

    #[test]
    fn two_reads_must_agree_on_the_order() {
        let writes = [set(1, 10, 7), set(2, 11, 8)];
        check(&[&writes[..], &[read(3, 4, 7), read(5, 6, 8)]].concat()).unwrap();
        check(&[&writes[..], &[read(3, 4, 8), read(5, 6, 7)]].concat()).unwrap();
        // The new value was seen, and then the old one again.
        let back = [read(3, 4, 7), read(5, 6, 8), read(7, 8, 7)];
        refused(&[&writes[..], &back].concat(), "none of these can be next");
    }

    #[test]
    fn a_lost_acknowledged_write_is_refused() {
        let swap = Kind::Swap(Some(7), 8);
        let won = operation(3, 4, swap, Outcome::Saw(Some(7)));
        check(&[set(1, 2, 7), won, read(5, 6, 8)]).unwrap();
        refused(&[set(1, 2, 7), won, read(5, 6, 7)], "none of these can be next");
        // Two swaps cannot both win.
        let other = operation(5, 6, Kind::Swap(Some(7), 9), Outcome::Saw(Some(7)));
        refused(&[set(1, 2, 7), won, other], "none of these can be next");
        let failed = operation(5, 6, Kind::Swap(Some(7), 9), Outcome::Saw(Some(8)));
        check(&[set(1, 2, 7), won, failed, read(7, 8, 8)]).unwrap();
        refused(&[set(1, 2, 7), won, failed, read(7, 8, 9)], "none of these can be next");
    }

    #[test]
    fn an_unknown_write_takes_effect_after_its_call_or_never() {
        let unknown = lost(3, Kind::Set(8));
        check(&[set(1, 2, 7), unknown, read(4, 5, 7)]).unwrap();
        check(&[set(1, 2, 7), unknown, read(4, 5, 8)]).unwrap();
        check(&[set(1, 2, 7), unknown, read(4, 5, 7), read(6, 7, 8)]).unwrap();
        // Not before its call, and not twice.
        refused(&[set(1, 2, 7), read(3, 4, 8), lost(5, Kind::Set(8))], "none of these");
        refused(&[unknown, read(4, 5, 8), set(6, 7, 9), read(8, 9, 8)], "none of these");
        // A chain that only its end shows.
        let swaps = [lost(3, Kind::Set(8)), lost(4, Kind::Swap(Some(8), 9))];
        check(&[&swaps[..], &[read(5, 6, None), read(7, 8, 9)]].concat()).unwrap();
        refused(&[&swaps[..], &[read(5, 6, 9), read(7, 8, 8)]].concat(), "none of these");
    }

    #[test]
    fn values_without_a_writer_or_with_two_are_refused() {
        refused(&[set(1, 2, 7), read(3, 4, 8)], "without a writer");
        refused(&[set(1, 2, 7), set(3, 4, 7)], "written twice");
    }

    /// Tries all orders, with any part of the unknown operations.
    fn try_all(left: &mut Vec<Operation>, value: Option<u64>) -> bool {
        if left.iter().all(|operation| operation.outcome == Outcome::Unknown) {
            return true;
        }
        (0..left.len()).any(|at| {
            let next = left[at];
            if left.iter().any(|other| other.returned < next.called) {
                return false;
            }
            let Some(after) = next.step(value) else { return false };
            left.remove(at);
            let found = try_all(left, after);
            left.insert(at, next);
            found
        })
    }

    /// A history of three clients, of which some operations get a wrong value.
    fn random_history(random: &mut StdRng) -> Vec<Operation> {
        // Each operation takes effect at its place in the list, and lies around that.
        let count = random.random_range(1..8_u64);
        let (mut value, mut history) = (None, Vec::new());
        for number in 0..count {
            let at = 100 * number + 50;
            let kind = match random.random_range(0..5) {
                0..2 => Kind::Read,
                2..4 => Kind::Set(number),
                _ if random.random() => Kind::Swap(value, number),
                _ => Kind::Swap(Some(random.random_range(0..=number)), number),
            };
            let mut operation = Operation {
                kind,
                outcome: Outcome::Saw(value),
                called: (at * 8).saturating_sub(random.random_range(0..1600)) * 16 + number,
                returned: (at * 8 + random.random_range(1..1600)) * 16 + 8 + number,
            };
            let after = operation.step(value).expect("it saw the value");
            match random.random_range(0..6) {
                0 => (operation.outcome, operation.returned) = (Outcome::Unknown, NEVER),
                1 if matches!(kind, Kind::Set(_)) => operation.outcome = Outcome::Done,
                2 => operation.outcome = Outcome::Saw(random.random_range(0..8_u64).checked_sub(1)),
                _ => {}
            }
            // One with an unknown outcome may not have happened.
            if operation.outcome != Outcome::Unknown || random.random() {
                value = after;
            }
            history.push(operation);
        }
        history.shuffle(random);
        history
    }

    #[test]
    fn random_histories_as_with_all_orders() {
        let seed = rand::rng().random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let mut found = [0, 0];
        for _ in 0..4000 {
            let history = random_history(&mut random);
            let expected = try_all(&mut history.clone(), None);
            let checked = check(&history);
            assert_eq!(checked.is_ok(), expected, "{checked:?}: {history:#?}");
            found[usize::from(expected)] += 1;
        }
        assert!(found.iter().all(|&count| count > 400), "one-sided: {found:?}");
    }

    #[test]
    fn a_long_history_of_many_clients_is_decided() {
        let mut random = StdRng::seed_from_u64(1);
        let (mut history, mut value) = (Vec::new(), None);
        for number in 0..20_000_u64 {
            let kind = if random.random() { Kind::Read } else { Kind::Set(number) };
            let outcome = match kind {
                Kind::Set(_) if random.random_ratio(1, 50) => Outcome::Unknown,
                Kind::Set(_) => Outcome::Done,
                _ => Outcome::Saw(value),
            };
            let at = 1000 * number + 10_000;
            let called = at - random.random_range(0..5000) / 8 * 8 + number % 8;
            let returned = if outcome == Outcome::Unknown {
                NEVER
            } else {
                at + random.random_range(1..5000) / 8 * 8 + number % 8
            };
            if kind != Kind::Read {
                value = Some(number);
            }
            history.push(operation(called, returned, kind, outcome));
        }
        check(&history).unwrap();
        // One read of a value that was overwritten long before.
        let late = history.iter().filter_map(Operation::written).nth(100);
        history.push(read(30_000_000, 30_000_001, late));
        refused(&history, "none of these can be next");
    }
}
