//! The conditions of a TATP database while no transaction runs: every row is valid, the index of
//! telephone numbers agrees with the subscribers, and every row refers to an existing one.

use super::rows::{
    AccessInfo, CallForwarding, SpecialFacility, Subscriber, number_of, read_number,
    split_typed_key,
};
use super::table;
use crate::bench::condition;
use crate::bench::scan::{First, for_each};
use crate::driver::control::Interrupt;
use crate::driver::failure::Failure;
use crate::driver::store::Client;
use crate::report::Condition;
use crate::report::figures::plural;

/// The types 1 to 4 that each subscriber has, one bit for each; by subscriber, from 0.
struct Types(Vec<u8>);

impl Types {
    /// Notes a row; false if the subscriber does not exist.
    fn note(&mut self, id: u64, of_type: u8) -> bool {
        let types = id.checked_sub(1).and_then(|index| self.0.get_mut(index as usize));
        types.map(|types| *types |= 1 << of_type).is_some()
    }

    fn has(&self, id: u64, of_type: u8) -> bool {
        let types = id.checked_sub(1).and_then(|index| self.0.get(index as usize));
        types.is_some_and(|types| types & (1 << of_type) != 0)
    }

    /// Notes each subscriber without a row as a problem.
    fn expect_some(&self, what: &str, problems: &mut First) {
        for (index, types) in self.0.iter().enumerate() {
            problems.expect(*types != 0, || format!("subscriber {} has no {what}", index + 1));
        }
    }
}

/// Reads the whole database.
pub async fn conditions<C: Client>(
    subscribers: u64,
    tables: &[C::Table],
    client: &C,
    interrupt: &Interrupt,
) -> Result<Vec<Condition>, Failure> {
    let all = subscribers;
    let (mut subscribers, mut count) = (First::default(), 0);
    for_each(client, &tables[table::SUBSCRIBER], interrupt, |key, row| {
        count += 1;
        let right = key == u64::to_be_bytes(count) && Subscriber::decode(count, row).is_some();
        subscribers.expect(right, || format!("subscriber {count} is missing or damaged"));
    })
    .await?;
    subscribers.expect(count == all, || format!("it has {}, not {all}", plural(count, "row")));

    let (mut numbers, mut count) = (First::default(), 0);
    for_each(client, &tables[table::NUMBER], interrupt, |key, row| {
        count += 1;
        let right = key == number_of(count) && read_number(key, row) == Some(count);
        numbers.expect(right, || {
            format!("the number of subscriber {count} is missing or leads elsewhere")
        });
    })
    .await?;
    numbers.expect(count == all, || format!("it has {}, not {all}", plural(count, "number")));

    let mut infos = First::default();
    let mut types = Types(vec![0; all as usize]);
    for_each(client, &tables[table::ACCESS_INFO], interrupt, |key, row| {
        let typed = split_typed_key(key).filter(|_| AccessInfo::is_row(key, row));
        let right = typed.is_some_and(|(id, ai_type)| types.note(id, ai_type));
        infos.expect(right, || format!("row {} is damaged or an orphan", key.escape_ascii()));
    })
    .await?;
    types.expect_some("access info", &mut infos);

    let mut facilities = First::default();
    let mut types = Types(vec![0; all as usize]);
    for_each(client, &tables[table::SPECIAL_FACILITY], interrupt, |key, row| {
        let found = SpecialFacility::decode(key, row);
        let right = found.is_some_and(|row| types.note(row.id, row.sf_type));
        facilities.expect(right, || format!("row {} is damaged or an orphan", key.escape_ascii()));
    })
    .await?;
    types.expect_some("special facility", &mut facilities);

    let mut forwardings = First::default();
    for_each(client, &tables[table::CALL_FORWARDING], interrupt, |key, row| {
        let found = CallForwarding::decode(key, row);
        let right = found.is_some_and(|row| types.has(row.id, row.sf_type));
        forwardings.expect(right, || format!("row {} is damaged or an orphan", key.escape_ascii()));
    })
    .await?;
    Ok(vec![
        condition("every subscriber is there and as it was written", subscribers.problem()),
        condition("the index of numbers and the subscribers agree", numbers.problem()),
        condition("access info refers to subscribers, each has some", infos.problem()),
        condition("special facilities refer to subscribers, each has some", facilities.problem()),
        condition("call forwardings refer to special facilities", forwardings.problem()),
    ])
}
