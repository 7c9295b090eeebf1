//! The conditions of a TPC-B database while no transaction runs: those of clause 2.3, and more.
//! Every balance is the sum of its amounts in the history.

use super::input::{ACCOUNTS, HISTORY, Input, TELLERS};
use super::rows::{HistoryRow, Row, RowKind};
use crate::bench::condition;
use crate::bench::scan::{First, for_each};
use crate::driver::control::Interrupt;
use crate::driver::failure::Failure;
use crate::driver::store::Client;
use crate::report::Condition;
use crate::report::figures::plural;
use crate::rng::mix;

/// The balances of the rows of one kind.
struct Balances {
    /// The balance of each branch or teller, by number.
    each: Vec<i64>,
    sum: i64,
    /// The sum of all balances, each times a weight of its row. Wrong balances have the sum of the
    /// history with the probability that two random numbers of 64 bits are equal.
    fingerprint: u64,
    rows: u64,
    problems: First,
}

fn weight(number: u64) -> u64 {
    mix(number) | 1
}

async fn balances<C: Client>(
    scale: u64,
    kind: RowKind,
    tables: &[C::Table],
    client: &C,
    interrupt: &Interrupt,
) -> Result<Balances, Failure> {
    let expected = match kind {
        RowKind::Branch => scale,
        RowKind::Teller => scale * TELLERS,
        RowKind::Account => scale * ACCOUNTS,
    };
    // There are too many accounts to keep their balances.
    let kept = if kind == RowKind::Account { 0 } else { expected as usize };
    let mut found = Balances {
        each: vec![0; kept],
        sum: 0,
        fingerprint: 0,
        rows: 0,
        problems: First::default(),
    };
    for_each(client, &tables[kind as usize], interrupt, |key, value| {
        // Rows come in the order of their numbers, without gaps.
        let number = found.rows;
        found.rows += 1;
        let row = Row::decode(kind, number, value).filter(|_| key == number.to_be_bytes());
        found.problems.expect(row.is_some(), || {
            let key = key.escape_ascii();
            format!("{} {number} is missing or damaged, the row found has key {key}", kind.name())
        });
        let Some(row) = row else { return };
        found.sum += row.balance;
        let part = (row.balance as u64).wrapping_mul(weight(number));
        found.fingerprint = found.fingerprint.wrapping_add(part);
        if let Some(balance) = found.each.get_mut(number as usize) {
            *balance = row.balance;
        }
    })
    .await?;
    let rows = found.rows;
    found.problems.expect(rows == expected, || {
        format!("it has {} of the kind {}, not {expected}", plural(rows, "row"), kind.name())
    });
    Ok(found)
}

/// Reads the whole database.
pub async fn conditions<C: Client>(
    scale: u64,
    tables: &[C::Table],
    client: &C,
    interrupt: &Interrupt,
) -> Result<Vec<Condition>, Failure> {
    let branches = balances(scale, RowKind::Branch, tables, client, interrupt).await?;
    let tellers = balances(scale, RowKind::Teller, tables, client, interrupt).await?;
    let accounts = balances(scale, RowKind::Account, tables, client, interrupt).await?;

    let mut by_branch = vec![0i64; scale as usize];
    let mut by_teller = vec![0i64; (scale * TELLERS) as usize];
    let (mut sum, mut fingerprint) = (0i64, 0u64);
    let mut entries = First::default();
    for_each(client, &tables[HISTORY], interrupt, |key, value| {
        let fits = |input: &Input| {
            input.teller < scale * TELLERS
                && input.branch == input.teller / TELLERS
                && input.account < scale * ACCOUNTS
        };
        let input = HistoryRow::decode(key, value).map(|entry| entry.input).filter(fits);
        entries.expect(input.is_some(), || format!("row {} is damaged", key.escape_ascii()));
        let Some(Input { account, teller, branch, delta }) = input else { return };
        by_branch[branch as usize] += delta;
        by_teller[teller as usize] += delta;
        sum += delta;
        fingerprint = fingerprint.wrapping_add((delta as u64).wrapping_mul(weight(account)));
    })
    .await?;

    let mut of_tellers = First::default();
    for (branch, balance) in branches.each.iter().enumerate() {
        let first = branch * TELLERS as usize;
        let sum: i64 = tellers.each[first..first + TELLERS as usize].iter().sum();
        of_tellers.expect(*balance == sum, || {
            format!("branch {branch} has {balance}, its tellers have {sum}")
        });
    }
    let compare = |name: &str, balances: &[i64], history: &[i64]| {
        let mut problems = First::default();
        for (number, (balance, history)) in balances.iter().zip(history).enumerate() {
            problems.expect(balance == history, || {
                format!("{name} {number} has {balance}, its history says {history}")
            });
        }
        problems.problem()
    };
    let in_branches = compare("branch", &branches.each, &by_branch);
    let in_tellers = compare("teller", &tellers.each, &by_teller);
    let unequal = (accounts.sum != branches.sum)
        .then(|| format!("accounts have {}, branches have {}", accounts.sum, branches.sum));
    let in_accounts = match (accounts.sum, accounts.fingerprint) == (sum, fingerprint) {
        true => None,
        false => Some(format!(
            "accounts have {} and fingerprint {:016x}, the history has {sum} and \
             {fingerprint:016x}",
            accounts.sum, accounts.fingerprint
        )),
    };
    let rows = [branches.problems, tellers.problems, accounts.problems, entries];
    let damaged = rows.into_iter().find_map(First::problem);
    Ok(vec![
        condition("every row is there and as it was written", damaged),
        condition("each branch has the sum of its tellers", of_tellers.problem()),
        condition("each branch has the sum of its history", in_branches),
        condition("each teller has the sum of its history", in_tellers),
        condition("accounts and branches have the same sum", unequal),
        condition("the accounts have the sums of their history", in_accounts),
    ])
}
