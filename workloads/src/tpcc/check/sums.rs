//! Sums over one table that are compared with other tables.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use crate::tpcc::conditions::{Findings, Rule};
use crate::tpcc::rows::stock;
use crate::tpcc::schema::{CUSTOMERS, DISTRICTS, ITEMS};

/// Slots for the sums of the customers of a district, whose numbers begin at 1.
pub(super) const SLOTS: usize = CUSTOMERS as usize + 1;

/// Most suppliers whose stock has its own sums, 1.2 MB each. If there are more, some share theirs.
const SUPPLIERS: usize = 50;

/// Sums of the first pass that the second one compares, by district.
pub(super) struct Sums {
    /// Sum of the payments of each customer, cents.
    paid: Vec<AtomicI64>,
    /// Number of the payments of each customer.
    payments: Vec<AtomicU32>,
    /// Sum of the payments to each district, cents.
    pub(super) received: Vec<AtomicI64>,
    /// For each item of a supplier, or of several that share it.
    supplied: Vec<Supplied>,
}

impl Sums {
    /// Sums of nothing, for the districts of `warehouses` warehouses.
    pub(super) fn new(warehouses: u16) -> Self {
        let districts = usize::from(warehouses) * usize::from(DISTRICTS);
        Self {
            paid: (0..districts * SLOTS).map(|_| AtomicI64::new(0)).collect(),
            payments: (0..districts * SLOTS).map(|_| AtomicU32::new(0)).collect(),
            received: (0..districts).map(|_| AtomicI64::new(0)).collect(),
            supplied: (0..SUPPLIERS.min(warehouses.into()) * ITEMS as usize)
                .map(|_| Supplied::default())
                .collect(),
        }
    }

    /// Compares the sums of lines of orders with the rows of STOCK, after the second pass.
    pub(super) fn expect_supplied(self, warehouses: u16, findings: &mut Findings) {
        for (place, supplied) in self.supplied.into_iter().enumerate() {
            supplied.expect_equal(place, warehouses, findings);
        }
    }

    /// Sum and number of the payments of a customer.
    pub(super) fn payments_of(&self, w: u16, d: u8, c: u16) -> Option<(&AtomicI64, &AtomicU32)> {
        let (w, d) = (usize::from(w).checked_sub(1)?, usize::from(d).checked_sub(1)?);
        let (d, c) = ((d < DISTRICTS.into()).then_some(d)?, usize::from(c));
        let place = (w * usize::from(DISTRICTS) + d) * SLOTS + c;
        let within = (1..SLOTS).contains(&c);
        self.paid.get(place).zip(self.payments.get(place)).filter(|_| within)
    }

    /// The sums of item `i` of supplier `w`.
    pub(super) fn supplied(&self, w: u16, i: u32) -> &Supplied {
        let item = i as usize - 1;
        let suppliers = self.supplied.len() / ITEMS as usize;
        &self.supplied[(usize::from(w) - 1) % suppliers * ITEMS as usize + item]
    }
}

/// The counters of a row of STOCK as the lines of orders since the load give them, minus the
/// counters in the row.
#[derive(Default)]
pub(super) struct Supplied {
    ytd: AtomicU32,
    orders: AtomicU32,
    remote: AtomicU32,
}

impl Supplied {
    /// Adds a line of an order.
    pub(super) fn ordered(&self, quantity: u32, remote: bool) {
        self.ytd.fetch_add(quantity, Ordering::Relaxed);
        self.orders.fetch_add(1, Ordering::Relaxed);
        self.remote.fetch_add(remote.into(), Ordering::Relaxed);
    }

    /// Subtracts the row.
    pub(super) fn stocked(&self, row: &[u8]) {
        self.ytd.fetch_sub(stock::YTD.get(row), Ordering::Relaxed);
        self.orders.fetch_sub(stock::ORDER_CNT.get(row), Ordering::Relaxed);
        self.remote.fetch_sub(stock::REMOTE_CNT.get(row), Ordering::Relaxed);
    }

    /// Notes whether both agree.
    fn expect_equal(self, place: usize, warehouses: u16, findings: &mut Findings) {
        let too_few = [self.ytd, self.orders, self.remote].map(|count| count.into_inner() as i32);
        findings.expect(Rule::Counters, too_few == [0; 3], || {
            let (w, i) = (place / ITEMS as usize + 1, place % ITEMS as usize + 1);
            let [ytd, orders, remote] = too_few;
            let others = match usize::from(warehouses) > SUPPLIERS {
                true => " (or of a warehouse that shares its sums)",
                false => "",
            };
            format!(
                "lines of orders give more than the stock of item {i} of warehouse {w}{others}: \
                 {ytd} in S_YTD, {orders} in S_ORDER_CNT and {remote} in S_REMOTE_CNT"
            )
        });
    }
}
