//! The operations of YCSB. Every read is checked against its key; a wrong answer ends the run.

use super::growth::Growth;
use super::mix::{Kind, KindChooser};
use super::record::{Mismatch, RecordShape};
use super::requests::{Drawn, Requests};
use crate::driver::failure::Failure;
use crate::driver::measure::{Done, Workload};
use crate::driver::store::Client;
use crate::key::KeyFormat;
use crate::rng::Rng;

/// Longest scan of workload E.
pub const MAX_SCAN_RECORDS: u64 = 100;

/// A YCSB workload over a loaded table.
pub struct Ycsb<'a, T> {
    /// The table with the records.
    pub table: &'a T,
    /// Encoding of keys.
    pub keys: KeyFormat,
    /// Sizes of values.
    pub shape: RecordShape,
    /// Chooses operations.
    pub kinds: KindChooser,
    /// Chooses records.
    pub requests: Requests,
    /// The records that exist.
    pub growth: &'a Growth,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// YcsbWorker that one worker keeps between operations.
pub struct YcsbWorker {
    rng: Rng,
    requests: Requests,
    /// Operations drawn ahead, the next one last.
    ahead: Vec<Operation>,
    key: Vec<u8>,
    value: Vec<u8>,
    /// The previous key of a scan.
    last_key: Vec<u8>,
}

/// An operation that was drawn ahead.
#[derive(Clone, Copy)]
struct Operation {
    /// Position of its kind in the mix.
    position: usize,
    kind: Kind,
    /// The record; `None` for an insert, which claims a number when it begins.
    record: Option<Drawn>,
}

/// Operations drawn at a time. Drawing is not measured, so the clock is read once more for each
/// batch.
const AHEAD: usize = 16;

/// Streams of random numbers below this belong to the load phase.
const FIRST_RUN_STREAM: u64 = 1 << 32;

impl<T: Sync, C: Client<Table = T>> Workload<C> for Ycsb<'_, T> {
    type State = YcsbWorker;

    fn state(&self, number: usize) -> YcsbWorker {
        YcsbWorker {
            rng: Rng::new(self.seed, FIRST_RUN_STREAM + number as u64),
            requests: self.requests.clone(),
            ahead: Vec::with_capacity(AHEAD),
            key: Vec::with_capacity(self.keys.bytes()),
            value: vec![0; self.shape.value_bytes()],
            last_key: Vec::with_capacity(self.keys.bytes()),
        }
    }

    #[inline]
    fn prepare(&self, state: &mut YcsbWorker) -> bool {
        let empty = state.ahead.is_empty();
        if empty {
            self.draw(state);
        }
        empty
    }

    #[inline]
    async fn step(&self, state: &mut YcsbWorker, client: &C) -> Result<Done, Failure> {
        let operation = state.ahead.pop().expect("prepared");
        if let Some(record) = operation.record {
            self.keys.write(record.number(self.growth.present()), &mut state.key);
        }
        match operation.kind {
            Kind::Insert => self.insert(state, client).await?,
            Kind::Read => self.read(state, client).await?,
            Kind::Update => self.update(state, client).await?,
            Kind::ReadModifyWrite => {
                self.read(state, client).await?;
                self.update(state, client).await?;
            }
            Kind::Scan => self.scan(state, client).await?,
        }
        Ok(operation.position.into())
    }
}

impl<T> Ycsb<'_, T> {
    /// Draws the next operations.
    fn draw(&self, state: &mut YcsbWorker) {
        let YcsbWorker { rng, requests, ahead, .. } = state;
        let present = self.growth.present();
        for _ in 0..AHEAD {
            let (position, kind) = self.kinds.next(rng);
            let record = (kind != Kind::Insert).then(|| requests.draw(rng, present));
            ahead.push(Operation { position, kind, record });
        }
        ahead.reverse();
    }

    #[inline]
    async fn read<C: Client<Table = T>>(
        &self,
        state: &YcsbWorker,
        client: &C,
    ) -> Result<(), Failure> {
        let check = |value: &[u8]| self.shape.check(&state.key, value);
        match client.read(self.table, &state.key, check).await? {
            Some(Ok(())) => Ok(()),
            Some(Err(mismatch)) => Err(wrong_value(&state.key, mismatch)),
            None => Err(missing("read", &state.key)),
        }
    }

    /// Writes one field, or the whole value if it is opaque.
    #[inline]
    async fn update<C: Client<Table = T>>(
        &self,
        state: &mut YcsbWorker,
        client: &C,
    ) -> Result<(), Failure> {
        let YcsbWorker { rng, key, value, .. } = state;
        let mut found_bytes = self.shape.value_bytes();
        let found = if self.shape.fields() == 1 {
            self.shape.write(key, rng, value);
            client.update(self.table, key, value).await?
        } else {
            let field = rng.below(self.shape.fields() as u64) as usize;
            let version = rng.next_u64() as u32;
            let change = |value: &mut [u8]| {
                found_bytes = value.len();
                if let Some(bytes) = value.get_mut(self.shape.field_range(field)) {
                    self.shape.write_field(key, field, version, bytes);
                }
            };
            client.modify(self.table, key, change).await?
        };
        if !found {
            return Err(missing("update", key));
        }
        if found_bytes != self.shape.value_bytes() {
            let expected = self.shape.value_bytes();
            return Err(wrong_value(key, Mismatch::Size { found: found_bytes, expected }));
        }
        Ok(())
    }

    async fn insert<C: Client<Table = T>>(
        &self,
        state: &mut YcsbWorker,
        client: &C,
    ) -> Result<(), Failure> {
        let claim = self.growth.claim();
        self.keys.write(claim.number(), &mut state.key);
        self.shape.write(&state.key, &mut state.rng, &mut state.value);
        client.insert(self.table, &state.key, &state.value).await?;
        while !claim.has_room() {
            if self.growth.is_broken() {
                // The worker whose insert failed reports why.
                break;
            }
            client.pause().await;
        }
        if claim.has_room() {
            claim.acknowledge();
        }
        Ok(())
    }

    /// Reads 1 to 100 records from the chosen one on. Checks that the first one has the requested
    /// key, that keys ascend, and every value.
    async fn scan<C: Client<Table = T>>(
        &self,
        state: &mut YcsbWorker,
        client: &C,
    ) -> Result<(), Failure> {
        let YcsbWorker { rng, key, last_key, .. } = state;
        let limit = 1 + rng.below(MAX_SCAN_RECORDS) as usize;
        last_key.clear();
        let mut wrong = None;
        let visit = |found: &[u8], value: &[u8]| {
            if wrong.is_some() {
                return;
            }
            if last_key.is_empty() && found != key.as_slice() {
                wrong = Some(missing("scan", key));
            } else if !last_key.is_empty() && found <= last_key.as_slice() {
                let (found, last) = (found.escape_ascii(), last_key.escape_ascii());
                wrong = Some(Failure::Wrong(format!("a scan returned key {found} after {last}")));
            } else if let Err(mismatch) = self.shape.check(found, value) {
                wrong = Some(wrong_value(found, mismatch));
            }
            last_key.clear();
            last_key.extend_from_slice(found);
        };
        let count = client.scan(self.table, key, limit, visit).await?;
        match wrong {
            Some(failure) => Err(failure),
            None if count == 0 => Err(missing("scan", key)),
            None => Ok(()),
        }
    }
}

#[cold]
fn missing(operation: &str, key: &[u8]) -> Failure {
    Failure::Wrong(format!(
        "a {operation} did not find key {}, which was inserted and never removed",
        key.escape_ascii()
    ))
}

#[cold]
fn wrong_value(key: &[u8], mismatch: Mismatch) -> Failure {
    Failure::Wrong(format!(
        "the value returned for key {} is not one that was written to it: {mismatch}",
        key.escape_ascii()
    ))
}
