//! Checks the conditions by scans of all tables, district by district. No transaction may change
//! the store meanwhile.
//!
//! A payment in HISTORY of one district may be of a customer of any other one. Therefore a first
//! pass adds up HISTORY, and a second pass reads everything else.

mod districts;
mod orders;
mod reader;
mod sums;
mod warehouses;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;

use super::conditions::Findings;
use super::schema::{DISTRICTS, Tables};
use crate::driver::control::{Control, Interrupt, Phase};
use crate::driver::crew::{self, Crew, Job, Worker};
use crate::driver::failure::Failure;
use crate::driver::store::{Access, Client, Stop, Store, StoreError, Txn};
use reader::Reader;
use sums::Sums;

/// Tasks of each thread: a scan waits for one page at a time.
const TASKS: usize = 8;

/// How a check ended.
#[derive(Debug)]
pub enum CheckEnd {
    /// The results of all rules.
    Checked(Box<Findings>),
    /// The user interrupted it.
    Interrupted,
    /// The store failed.
    Failed(Failure),
}

/// Checks a population of `warehouses` warehouses with `threads` threads.
pub fn check<S: Store>(
    store: &S,
    tables: &Tables<S::Table>,
    warehouses: u16,
    threads: usize,
    interrupt: &Interrupt,
    progress: &ProgressBar,
) -> CheckEnd {
    let crew = Crew { threads, tasks: TASKS, pinned: false };
    let districts = usize::from(warehouses) * usize::from(DISTRICTS);
    progress.set_length(2 * districts as u64);
    let (sums, findings) = (Sums::new(warehouses), Mutex::default());
    for pass in [Pass::History, Pass::Rest] {
        let control = Control::new(crew.threads, interrupt);
        let next = AtomicUsize::new(0);
        let reader = Reader { tables, warehouses, sums: &sums };
        let findings = &findings;
        let job = Check { reader, pass, findings, next, control: &control, progress };
        crew::run(store, crew, &control, &job, || control.supervise());
        if let Some(failure) = control.take_failure() {
            return CheckEnd::Failed(failure);
        }
        if control.signal().phase() == Phase::Stop {
            return CheckEnd::Interrupted;
        }
    }
    let mut findings = findings.into_inner().unwrap_or_else(PoisonError::into_inner);
    sums.expect_supplied(warehouses, &mut findings);
    CheckEnd::Checked(Box::new(findings))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Adds up HISTORY.
    History,
    /// Everything else.
    Rest,
}

struct Check<'a, T> {
    reader: Reader<'a, T>,
    pass: Pass,
    findings: &'a Mutex<Findings>,
    next: AtomicUsize,
    control: &'a Control,
    progress: &'a ProgressBar,
}

impl<T: Sync, C: Client<Table = T>> Job<C> for Check<'_, T> {
    type Local = ();

    fn local(&self, _thread: usize) {}

    async fn work(&self, (): &(), _worker: Worker, client: C) -> Result<(), Failure> {
        let per_warehouse = usize::from(DISTRICTS);
        let districts = usize::from(self.reader.warehouses) * per_warehouse;
        let mut findings = Findings::default();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            // After the districts come the warehouses and the items, which are small.
            let rest = number.checked_sub(districts);
            if self.control.signal().phase() == Phase::Stop
                || rest.is_some_and(|rest| rest > 0 || self.pass == Pass::History)
            {
                break;
            }
            let w = (number / per_warehouse + 1) as u16;
            let d = (number % per_warehouse + 1) as u8;
            // It reads every commit, durable or not: no other transaction writes.
            let txn = client.begin(Access::ReadWrite).await?;
            let (reader, found) = (&self.reader, &mut findings);
            let done = match (self.pass, rest) {
                (Pass::History, _) => reader.history(&txn, (w, d), number, found).await,
                (Pass::Rest, None) => reader.district(&txn, (w, d), number, found).await,
                (Pass::Rest, Some(_)) => reader.items(&txn, found).await,
            };
            txn.abort().await?;
            done.map_err(failure)?;
            if rest.is_none() {
                self.progress.inc(1);
            }
        }
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).merge(findings);
        Ok(())
    }

    fn finish(&self, (): ()) {}
}

fn failure(stop: Stop) -> Failure {
    match stop {
        Stop::Failed(error) => Failure::Store(error),
        Stop::Conflict => {
            let sentence = "another transaction changes the store during the check";
            Failure::Store(StoreError::from(sentence.to_owned()))
        }
    }
}
