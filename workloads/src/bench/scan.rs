//! Scans of whole tables, for checks.

use crate::driver::control::Interrupt;
use crate::driver::failure::Failure;
use crate::driver::store::Client;

/// Rows of one scan of the store.
const PART: usize = 4096;

/// Calls `visit` with every pair of `table`, in key order. No transaction may change the table
/// meanwhile.
///
/// # Errors
/// Those of the store, and [`Failure::Interrupted`].
pub async fn for_each<C: Client>(
    client: &C,
    table: &C::Table,
    interrupt: &Interrupt,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<(), Failure> {
    let mut start = Vec::new();
    loop {
        if interrupt.requested() {
            return Err(Failure::Interrupted);
        }
        let mut last = Vec::new();
        let found = client
            .scan(table, &start, PART, |key, value| {
                visit(key, value);
                last.clear();
                last.extend_from_slice(key);
            })
            .await?;
        if found < PART {
            return Ok(());
        }
        // The smallest key above the last one.
        last.push(0);
        start = last;
        client.pause().await;
    }
}

/// Keeps the first problem, and counts the others.
#[derive(Debug, Default)]
pub struct First {
    problem: Option<String>,
    more: u64,
}

impl First {
    /// Notes a problem unless `holds`.
    pub fn expect(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if holds {
            return;
        }
        match self.problem {
            None => self.problem = Some(problem()),
            Some(_) => self.more += 1,
        }
    }

    /// The first problem, with the number of others.
    pub fn problem(self) -> Option<String> {
        let more = self.more;
        self.problem.map(|problem| match more {
            0 => problem,
            more => format!("{problem}, and {more} more like it"),
        })
    }
}
