//! A checker of histories in the manner of Elle (Kingsbury and Alvaro, VLDB 2020): transactions
//! append unique numbers to lists and read lists. The lists that they read give the order of the
//! versions of each list, and that gives the dependencies between transactions: ww (appended next),
//! wr (read the other's append), rw (read the version before the other's append). A cycle is an
//! anomaly; which one depends on its rw edges.

use std::collections::{HashMap, HashSet};

/// How a transaction ended, as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was acknowledged.
    Committed,
    /// It was rolled back.
    Aborted,
    /// A crash came in between.
    Unknown,
}

/// An operation of a transaction on a list.
#[derive(Clone, Debug)]
pub enum Action {
    /// Appended a number.
    Append(u64, u64),
    /// Read a list.
    Read(u64, Vec<u64>),
}

/// A transaction.
#[derive(Clone, Debug)]
pub struct Txn {
    /// Its operations, in order.
    pub actions: Vec<Action>,
    /// How it ended.
    pub outcome: Outcome,
}

/// Checks a history; gives what is wrong, one sentence each. `serializable`: no cycle at all;
/// otherwise cycles in which two rw edges follow each other are admitted, which is what snapshot
/// isolation does.
pub fn check(history: &[Txn], serializable: bool) -> Vec<String> {
    let mut problems = Vec::new();
    let mut author: HashMap<(u64, u64), usize> = HashMap::new();
    for (t, txn) in history.iter().enumerate() {
        for action in &txn.actions {
            if let Action::Append(list, number) = action
                && author.insert((*list, *number), t).is_some()
            {
                problems.push(format!("{number} is appended twice to list {list}"));
            }
        }
    }
    // The order of versions: the longest read of each list; every other one is a prefix of it. A
    // transaction's own appends are at the end of what it reads itself.
    let mut order: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut reads: Vec<(usize, u64, Vec<u64>)> = Vec::new();
    for (t, txn) in history.iter().enumerate() {
        let mut own: HashMap<u64, Vec<u64>> = HashMap::new();
        for action in &txn.actions {
            match action {
                Action::Append(list, number) => own.entry(*list).or_default().push(*number),
                Action::Read(list, seen) => {
                    let own = own.get(list).map_or(&[][..], |own| own);
                    let Some(before) = seen.strip_suffix(own) else {
                        problems.push(format!("transaction {t} does not see its own appends"));
                        continue;
                    };
                    if txn.outcome != Outcome::Aborted {
                        reads.push((t, *list, before.to_vec()));
                    }
                    let counted = if txn.outcome == Outcome::Aborted { before } else { seen };
                    let longest = order.entry(*list).or_default();
                    let (short, long) = match counted.len() <= longest.len() {
                        true => (counted, &longest[..]),
                        false => (&longest[..], counted),
                    };
                    if !long.starts_with(short) {
                        problems
                            .push(format!("list {list} has the versions {short:?} and {long:?}"));
                    }
                    if counted.len() > longest.len() {
                        *longest = counted.to_vec();
                    }
                }
            }
        }
    }
    // Reads of what was rolled back (G1a), or of the middle of a transaction (G1b).
    for (t, list, seen) in &reads {
        for number in seen {
            match author.get(&(*list, *number)) {
                None => problems.push(format!("{t} read {number}, which no transaction appended")),
                Some(other) if history[*other].outcome == Outcome::Aborted => {
                    problems.push(format!("G1a: {t} read {number} of {other}, which aborted"));
                }
                Some(_) => {}
            }
        }
        if let Some(last) = seen.last().and_then(|last| author.get(&(*list, *last))) {
            let of_last = |action: &&Action| matches!(action, Action::Append(l, _) if l == list);
            let newest = history[*last].actions.iter().rfind(of_last);
            if let Some(Action::Append(_, number)) = newest
                && Some(number) != seen.last()
                && last != t
            {
                problems.push(format!("G1b: {t} read list {list} in the middle of {last}"));
            }
        }
    }
    let edges = edges(history, &order, &reads, &author);
    problems.extend(cycles(history.len(), &edges, serializable));
    problems
}

/// An edge to a transaction, and whether it is an anti-dependency.
type Edge = (usize, bool);

fn edges(
    history: &[Txn],
    order: &HashMap<u64, Vec<u64>>,
    reads: &[(usize, u64, Vec<u64>)],
    author: &HashMap<(u64, u64), usize>,
) -> Vec<HashSet<Edge>> {
    let mut edges = vec![HashSet::new(); history.len()];
    let mut add = |from: usize, to: usize, anti: bool| {
        if from != to {
            edges[from].insert((to, anti));
        }
    };
    for (list, versions) in order {
        for pair in versions.windows(2) {
            let of = |number: u64| author.get(&(*list, number)).copied();
            if let (Some(a), Some(b)) = (of(pair[0]), of(pair[1])) {
                add(a, b, false);
            }
        }
    }
    for (t, list, seen) in reads {
        if let Some(a) = seen.last().and_then(|last| author.get(&(*list, *last))) {
            add(*a, *t, false);
        }
        let next = order.get(list).and_then(|versions| versions.get(seen.len()));
        if let Some(b) = next.and_then(|next| author.get(&(*list, *next))) {
            add(*t, *b, true);
        }
    }
    edges
}

/// Cycles that are not admitted. A node of the search is a transaction and whether it was reached
/// by an rw edge: after one, snapshot isolation allows no second.
fn cycles(count: usize, edges: &[HashSet<Edge>], serializable: bool) -> Vec<String> {
    let mut problems = Vec::new();
    for start in 0..count {
        // Breadth first from `start` back to it; edges to smaller numbers first find short cycles.
        for first_anti in [false, true] {
            let mut seen = HashSet::new();
            let begin = edges[start].iter().filter(|(_, anti)| *anti == first_anti);
            let mut queue: Vec<(usize, bool)> = begin.copied().collect();
            while let Some((at, anti)) = queue.pop() {
                if at == start {
                    // Round the corner the last and the first edge meet.
                    if serializable || !(anti && first_anti) {
                        problems.push(format!("transaction {start} depends on itself"));
                        return problems;
                    }
                    continue;
                }
                if !seen.insert((at, anti)) {
                    continue;
                }
                let next = edges[at].iter().filter(|(_, next)| serializable || !(anti && *next));
                queue.extend(next.copied());
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action::{Append, Read};

    fn committed(actions: Vec<Action>) -> Txn {
        Txn { actions, outcome: Outcome::Committed }
    }

    fn wrong(history: &[Txn]) -> (bool, bool) {
        (!check(history, false).is_empty(), !check(history, true).is_empty())
    }

    #[test]
    fn a_history_one_after_the_other_is_fine() {
        let history = [
            committed(vec![Append(1, 1), Append(2, 2)]),
            committed(vec![Read(1, vec![1]), Append(2, 3)]),
            committed(vec![Read(2, vec![2, 3])]),
        ];
        assert_eq!(wrong(&history), (false, false));
    }

    #[test]
    fn write_skew_is_found_at_the_serializable_level_alone() {
        let history = [
            committed(vec![Read(1, vec![]), Read(2, vec![]), Append(1, 1)]),
            committed(vec![Read(1, vec![]), Read(2, vec![]), Append(2, 2)]),
            committed(vec![Read(1, vec![1]), Read(2, vec![2])]),
        ];
        assert_eq!(wrong(&history), (false, true));
    }

    #[test]
    fn lost_updates_read_skew_and_dirty_reads_are_found_at_both_levels() {
        let lost_update = [
            committed(vec![Read(1, vec![]), Append(1, 1)]),
            committed(vec![Read(1, vec![]), Append(1, 2)]),
            committed(vec![Read(1, vec![1, 2])]),
        ];
        assert_eq!(wrong(&lost_update), (true, true));
        let read_skew = [
            committed(vec![Append(1, 1), Append(2, 2)]),
            committed(vec![Read(1, vec![]), Read(2, vec![2])]),
            committed(vec![Read(1, vec![1])]),
        ];
        assert_eq!(wrong(&read_skew), (true, true));
        let aborted = Txn { actions: vec![Append(1, 1)], outcome: Outcome::Aborted };
        let dirty = [aborted, committed(vec![Read(1, vec![1])])];
        assert_eq!(wrong(&dirty), (true, true));
        let middle = [
            committed(vec![Append(1, 1), Append(1, 2)]),
            committed(vec![Read(1, vec![1])]),
            committed(vec![Read(1, vec![1, 2])]),
        ];
        assert_eq!(wrong(&middle), (true, true));
        let fork = [
            committed(vec![Append(1, 1)]),
            committed(vec![Append(1, 2)]),
            committed(vec![Read(1, vec![1])]),
            committed(vec![Read(1, vec![2])]),
        ];
        assert_eq!(wrong(&fork), (true, true));
    }
}
