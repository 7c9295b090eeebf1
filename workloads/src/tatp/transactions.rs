//! The seven transactions of TATP.

use std::ops::ControlFlow;

use super::random::{between, subscriber};
use super::rows::{
    AccessInfo, CallForwarding, START_TIMES, SpecialFacility, Subscriber, any_number,
    forwarding_key, number_of, read_number, subscriber_key, typed_key,
};
use super::table;
use crate::bench::{Ended, wrong};
use crate::driver::store::{Access, Client, Direction, Txn};
use crate::rng::Rng;

/// A transaction and its input.
#[derive(Clone, Copy, Debug)]
pub enum Transaction {
    GetSubscriberData { id: u64 },
    GetNewDestination { id: u64, sf_type: u8, start_time: u8, end_time: u8 },
    GetAccessData { id: u64, ai_type: u8 },
    UpdateSubscriberData { id: u64, bit: bool, sf_type: u8, data_a: u8 },
    UpdateLocation { id: u64, location: u32 },
    InsertCallForwarding { row: CallForwarding },
    DeleteCallForwarding { id: u64, sf_type: u8, start_time: u8 },
}

impl Transaction {
    /// Names of the kinds, in the order of [`Transaction::kind`].
    pub const NAMES: &'static [&'static str] = &[
        "get-subscriber-data",
        "get-new-destination",
        "get-access-data",
        "update-subscriber-data",
        "update-location",
        "insert-call-forwarding",
        "delete-call-forwarding",
        "get-new-destination-unsuccessful",
        "get-access-data-unsuccessful",
        "update-subscriber-data-unsuccessful",
        "insert-call-forwarding-unsuccessful",
        "delete-call-forwarding-unsuccessful",
    ];

    /// Draws a transaction with the standard mix.
    pub fn draw(subscribers: u64, rng: &mut Rng) -> Self {
        let id = subscriber(rng, subscribers);
        let kind = rng.below(100);
        let sf_type = between(rng, 1, 4) as u8;
        let start_time = START_TIMES[rng.below(3) as usize];
        match kind {
            ..35 => Transaction::GetSubscriberData { id },
            35..45 => {
                let end_time = between(rng, 1, 24) as u8;
                Transaction::GetNewDestination { id, sf_type, start_time, end_time }
            }
            45..80 => Transaction::GetAccessData { id, ai_type: between(rng, 1, 4) as u8 },
            80..82 => {
                let (bit, data_a) = (rng.below(2) == 1, rng.below(256) as u8);
                Transaction::UpdateSubscriberData { id, bit, sf_type, data_a }
            }
            82..96 => {
                let location = between(rng, 1, u64::from(u32::MAX)) as u32;
                Transaction::UpdateLocation { id, location }
            }
            96..98 => {
                let end_time = start_time + between(rng, 1, 8) as u8;
                let number = any_number(rng);
                let row = CallForwarding { id, sf_type, start_time, end_time, number };
                Transaction::InsertCallForwarding { row }
            }
            _ => Transaction::DeleteCallForwarding { id, sf_type, start_time },
        }
    }

    /// Position of its kind and outcome in [`Transaction::NAMES`].
    pub fn kind(&self, successful: bool) -> usize {
        let (kind, unsuccessful) = match self {
            Transaction::GetSubscriberData { .. } => return 0,
            Transaction::UpdateLocation { .. } => return 4,
            Transaction::GetNewDestination { .. } => (1, 7),
            Transaction::GetAccessData { .. } => (2, 8),
            Transaction::UpdateSubscriberData { .. } => (3, 9),
            Transaction::InsertCallForwarding { .. } => (5, 10),
            Transaction::DeleteCallForwarding { .. } => (6, 11),
        };
        if successful { kind } else { unsuccessful }
    }

    /// Tries it once; returns whether it was successful.
    pub async fn run<C: Client>(&self, tables: &[C::Table], client: &C) -> Result<bool, Ended> {
        match *self {
            Transaction::GetSubscriberData { id } => {
                let decode = |row: &[u8]| Subscriber::decode(id, row);
                let found =
                    client.read(&tables[table::SUBSCRIBER], &subscriber_key(id), decode).await?;
                found.flatten().map(|_| true).ok_or_else(|| bad("subscriber", id))
            }
            Transaction::GetAccessData { id, ai_type } => {
                let key = typed_key(id, ai_type);
                let check = |row: &[u8]| AccessInfo::is_row(&key, row);
                match client.read(&tables[table::ACCESS_INFO], &key, check).await? {
                    Some(false) => Err(bad("access info", id)),
                    found => Ok(found.is_some()),
                }
            }
            Transaction::GetNewDestination { id, sf_type, start_time, end_time } => {
                let mut txn = client.begin(Access::ReadOnly).await?;
                let found =
                    destinations(&mut txn, tables, id, sf_type, start_time, end_time).await?;
                txn.commit().await?;
                Ok(found > 0)
            }
            Transaction::UpdateSubscriberData { id, bit, sf_type, data_a } => {
                let mut txn = client.begin(Access::ReadWrite).await?;
                if update_subscriber(&mut txn, tables, id, bit, sf_type, data_a).await? {
                    txn.commit().await?;
                    return Ok(true);
                }
                txn.abort().await?;
                Ok(false)
            }
            Transaction::UpdateLocation { id, location } => {
                let mut txn = client.begin(Access::ReadWrite).await?;
                let id = by_number(&txn, tables, id).await?;
                let change = |row: &mut Subscriber| row.vlr_location = location;
                modify_subscriber(&mut txn, tables, id, change).await?;
                txn.commit().await?;
                Ok(true)
            }
            Transaction::InsertCallForwarding { row } => {
                let mut txn = client.begin(Access::ReadWrite).await?;
                if insert_forwarding(&mut txn, tables, row).await? {
                    txn.commit().await?;
                    return Ok(true);
                }
                txn.abort().await?;
                Ok(false)
            }
            Transaction::DeleteCallForwarding { id, sf_type, start_time } => {
                let mut txn = client.begin(Access::ReadWrite).await?;
                let id = by_number(&txn, tables, id).await?;
                let key = forwarding_key(id, sf_type, start_time);
                if txn.remove(&tables[table::CALL_FORWARDING], &key).await? {
                    txn.commit().await?;
                    return Ok(true);
                }
                txn.abort().await?;
                Ok(false)
            }
        }
    }
}

/// The error of a row that must exist and does not, or that is damaged.
#[cold]
fn bad(what: &str, id: u64) -> Ended {
    wrong(format!("a row of subscriber {id} ({what}) is missing or damaged")).into()
}

/// Looks up the subscriber with the telephone number of `id`.
async fn by_number<X: Txn>(txn: &X, tables: &[X::Table], id: u64) -> Result<u64, Ended> {
    let number = number_of(id);
    let read = |row: &[u8]| read_number(&number, row);
    let found = txn.read(&tables[table::NUMBER], &number, read).await?;
    found.flatten().filter(|found| *found == id).ok_or_else(|| bad("index of numbers", id))
}

async fn modify_subscriber<X: Txn>(
    txn: &mut X,
    tables: &[X::Table],
    id: u64,
    change: impl Fn(&mut Subscriber),
) -> Result<(), Ended> {
    let mut good = false;
    let modify = |bytes: &mut [u8]| {
        let row = Subscriber::decode(id, bytes);
        good = row.is_some();
        if let Some(mut row) = row {
            change(&mut row);
            row.write(bytes);
        }
    };
    let found = txn.modify(&tables[table::SUBSCRIBER], &subscriber_key(id), modify).await?;
    if found && good { Ok(()) } else { Err(bad("subscriber", id)) }
}

/// Number of active destinations of a special facility in a period.
async fn destinations<X: Txn>(
    txn: &mut X,
    tables: &[X::Table],
    id: u64,
    sf_type: u8,
    start_time: u8,
    end_time: u8,
) -> Result<u64, Ended> {
    let key = typed_key(id, sf_type);
    let decode = |row: &[u8]| SpecialFacility::decode(&key, row);
    let facility = match txn.read(&tables[table::SPECIAL_FACILITY], &key, decode).await? {
        None => return Ok(0),
        Some(facility) => facility.ok_or_else(|| bad("special facility", id))?,
    };
    if !facility.is_active {
        return Ok(0);
    }
    let (low, high) = (forwarding_key(id, sf_type, 0), forwarding_key(id, sf_type, u8::MAX));
    let (mut found, mut damaged) = (0, false);
    let visit = |key: &[u8], row: &[u8]| {
        match CallForwarding::decode(key, row) {
            Some(row) => {
                found += u64::from(row.start_time <= start_time && end_time < row.end_time)
            }
            None => damaged = true,
        }
        ControlFlow::Continue(())
    };
    txn.scan(&tables[table::CALL_FORWARDING], &low, &high, Direction::Forward, visit).await?;
    if damaged { Err(bad("call forwarding", id)) } else { Ok(found) }
}

/// Changes a subscriber and a special facility. False if the facility does not exist; the caller
/// must then roll back.
async fn update_subscriber<X: Txn>(
    txn: &mut X,
    tables: &[X::Table],
    id: u64,
    bit: bool,
    sf_type: u8,
    data_a: u8,
) -> Result<bool, Ended> {
    let change = |row: &mut Subscriber| row.bits = row.bits & !1 | u16::from(bit);
    modify_subscriber(txn, tables, id, change).await?;
    let key = typed_key(id, sf_type);
    let mut good = false;
    let modify = |bytes: &mut [u8]| {
        let row = SpecialFacility::decode(&key, bytes);
        good = row.is_some();
        if let Some(row) = row {
            SpecialFacility { data_a, ..row }.write(bytes);
        }
    };
    let found = txn.modify(&tables[table::SPECIAL_FACILITY], &key, modify).await?;
    if found && !good { Err(bad("special facility", id)) } else { Ok(found) }
}

/// Inserts a call forwarding. False if the special facility does not exist, or the forwarding
/// exists.
async fn insert_forwarding<X: Txn>(
    txn: &mut X,
    tables: &[X::Table],
    row: CallForwarding,
) -> Result<bool, Ended> {
    let id = by_number(txn, tables, row.id).await?;
    // All special facilities of the subscriber, as the specification requires.
    let (low, high) = (typed_key(id, 0), typed_key(id, u8::MAX));
    let (mut referred, mut damaged) = (false, false);
    let visit = |key: &[u8], bytes: &[u8]| {
        match SpecialFacility::decode(key, bytes) {
            Some(facility) => referred |= facility.sf_type == row.sf_type,
            None => damaged = true,
        }
        ControlFlow::Continue(())
    };
    txn.scan(&tables[table::SPECIAL_FACILITY], &low, &high, Direction::Forward, visit).await?;
    if damaged {
        return Err(bad("special facility", id));
    }
    let table = &tables[table::CALL_FORWARDING];
    if !referred || txn.read(table, &row.key(), |_| ()).await?.is_some() {
        return Ok(false);
    }
    txn.insert(table, &row.key(), &row.encode()).await?;
    Ok(true)
}
