//! Checks the conditions by scans of all tables, district by district.
//!
//! Nobody may change the store meanwhile. Payments of HISTORY belong to customers of any district, so a
//! first pass adds them up, and a second one looks at everything else.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;

use super::conditions::{Findings, Rule};
use super::rows::{customer, district, history, is_whole, order, order_line, stock, warehouse};
use super::schema::{
    CUSTOMERS, DISTRICTS, FIRST_UNDELIVERED, ITEMS, Key, ORDERS, Table, Tables, customer_at_end,
    item_at_end, order_at_end, order_of,
};
use crate::driver::control::{Control, Interrupt, Phase};
use crate::driver::crew::{self, Crew, Job, Worker};
use crate::driver::failure::Failure;
use crate::driver::store::{Access, Client, Direction, Stop, Store, StoreError, Txn, TxnResult};
use crate::report::figures::plural;

/// Tasks of each thread: scans wait for one page at a time.
const TASKS: usize = 8;

/// Slots for the sums of a district's customers, who are numbered from 1.
const SLOTS: usize = CUSTOMERS as usize + 1;

/// Orders that a district has delivered after the load (condition 11).
const DELIVERED: u64 = 2_100;

/// Largest O_CARRIER_ID.
const CARRIERS: u8 = 10;

/// What S_QUANTITY can be: New-Order adds 91 where fewer than 10 would be left.
const QUANTITIES: std::ops::RangeInclusive<i16> = 10..=100;

/// Most suppliers whose stock is compared each by itself, with 1.2 MB of counters; if there are more, some
/// share theirs.
const SUPPLIERS: usize = 50;

/// How a check ended.
#[derive(Debug)]
pub enum CheckEnd {
    /// What was found.
    Checked(Box<Findings>),
    /// The user interrupted it.
    Interrupted,
    /// The store failed.
    Failed(Failure),
}

/// Checks a population of `warehouses` warehouses. `threads` share the work.
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
    let shared = Shared {
        paid: (0..districts * SLOTS).map(|_| AtomicI64::new(0)).collect(),
        payments: (0..districts * SLOTS).map(|_| AtomicU32::new(0)).collect(),
        received: (0..districts).map(|_| AtomicI64::new(0)).collect(),
        supplied: (0..SUPPLIERS.min(warehouses.into()) * ITEMS as usize)
            .map(|_| Supplied::default())
            .collect(),
        findings: Mutex::default(),
    };
    for pass in [Pass::History, Pass::Rest] {
        let control = Control::new(crew.threads, interrupt);
        let next = AtomicUsize::new(0);
        let job =
            Check { tables, warehouses, pass, shared: &shared, next, control: &control, progress };
        crew::run(store, crew, &control, &job, || control.supervise());
        if let Some(failure) = control.take_failure() {
            return CheckEnd::Failed(failure);
        }
        if control.signal().phase() == Phase::Stop {
            return CheckEnd::Interrupted;
        }
    }
    let mut findings = shared.findings.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (place, supplied) in shared.supplied.into_iter().enumerate() {
        supplied.expect_equal(place, warehouses, &mut findings);
    }
    CheckEnd::Checked(Box::new(findings))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Adds up HISTORY.
    History,
    /// Everything else.
    Rest,
}

/// What the workers find out, by district.
struct Shared {
    /// Payments of each customer, cents.
    paid: Vec<AtomicI64>,
    /// How many they are.
    payments: Vec<AtomicU32>,
    /// Payments received, cents.
    received: Vec<AtomicI64>,
    /// For each item of each supplier, or of several.
    supplied: Vec<Supplied>,
    findings: Mutex<Findings>,
}

impl Shared {
    /// Sum and number of the payments of a customer.
    fn payments_of(&self, w: u16, d: u8, c: u16) -> Option<(&AtomicI64, &AtomicU32)> {
        let (w, d) = (usize::from(w).checked_sub(1)?, usize::from(d).checked_sub(1)?);
        let (d, c) = ((d < DISTRICTS.into()).then_some(d)?, usize::from(c));
        let place = (w * usize::from(DISTRICTS) + d) * SLOTS + c;
        let within = (1..SLOTS).contains(&c);
        self.paid.get(place).zip(self.payments.get(place)).filter(|_| within)
    }

    /// The counters of an item, from 1, of a supplier, from 1.
    fn supplied(&self, w: u16, i: u32) -> &Supplied {
        let item = i as usize - 1;
        let suppliers = self.supplied.len() / ITEMS as usize;
        &self.supplied[(usize::from(w) - 1) % suppliers * ITEMS as usize + item]
    }
}

/// What lines of orders since the load say about a row of STOCK, minus what the row says.
#[derive(Default)]
struct Supplied {
    ytd: AtomicU32,
    orders: AtomicU32,
    remote: AtomicU32,
}

impl Supplied {
    /// A line that somebody orders.
    fn ordered(&self, quantity: u32, remote: bool) {
        self.ytd.fetch_add(quantity, Ordering::Relaxed);
        self.orders.fetch_add(1, Ordering::Relaxed);
        self.remote.fetch_add(remote.into(), Ordering::Relaxed);
    }

    /// The row.
    fn stocked(&self, row: &[u8]) {
        self.ytd.fetch_sub(stock::YTD.get(row), Ordering::Relaxed);
        self.orders.fetch_sub(stock::ORDER_CNT.get(row), Ordering::Relaxed);
        self.remote.fetch_sub(stock::REMOTE_CNT.get(row), Ordering::Relaxed);
    }

    /// Both say the same.
    fn expect_equal(self, place: usize, warehouses: u16, findings: &mut Findings) {
        let too_few = [self.ytd, self.orders, self.remote].map(|count| count.into_inner() as i32);
        findings.expect(Rule::Counters, too_few == [0; 3], || {
            let (w, i) = (place / ITEMS as usize + 1, place % ITEMS as usize + 1);
            let [ytd, orders, remote] = too_few;
            let others = match usize::from(warehouses) > SUPPLIERS {
                true => format!(" or of one {SUPPLIERS} or more further on"),
                false => String::new(),
            };
            format!(
                "the stock of item {i} of warehouse {w}{others} lacks, of what lines of orders say, {ytd} in \
                 S_YTD, {orders} in S_ORDER_CNT and {remote} in S_REMOTE_CNT"
            )
        });
    }
}

struct Check<'a, T> {
    tables: &'a Tables<T>,
    warehouses: u16,
    pass: Pass,
    shared: &'a Shared,
    next: AtomicUsize,
    control: &'a Control,
    progress: &'a ProgressBar,
}

impl<T: Sync, C: Client<Table = T>> Job<C> for Check<'_, T> {
    type Local = ();

    fn local(&self, _thread: usize) {}

    async fn work(&self, (): &(), _worker: Worker, client: C) -> Result<(), Failure> {
        let per_warehouse = usize::from(DISTRICTS);
        let districts = usize::from(self.warehouses) * per_warehouse;
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
            // Everything committed, durable or not: nobody writes.
            let txn = client.begin(Access::ReadWrite).await?;
            let found = &mut findings;
            let done = match (self.pass, rest) {
                (Pass::History, _) => self.history(&txn, (w, d), number, found).await,
                (Pass::Rest, None) => self.district(&txn, (w, d), number, found).await,
                (Pass::Rest, Some(_)) => self.items(&txn, found).await,
            };
            txn.abort().await?;
            done.map_err(failure)?;
            if rest.is_none() {
                self.progress.inc(1);
            }
        }
        let shared = &self.shared.findings;
        shared.lock().unwrap_or_else(PoisonError::into_inner).merge(findings);
        Ok(())
    }

    fn finish(&self, (): ()) {}
}

fn failure(stop: Stop) -> Failure {
    match stop {
        Stop::Failed(error) => Failure::Store(error),
        Stop::Conflict => {
            let sentence = "somebody changes the store while it is checked";
            Failure::Store(StoreError::from(sentence.to_owned()))
        }
    }
}

/// An order as ORDER has it, and what other tables say about it.
struct Order {
    o: u32,
    c: u16,
    count: u8,
    has_carrier: bool,
    is_new: bool,
    all_local: u8,
    lines: u32,
    remote_lines: u32,
}

/// A row and its key are laid out as those of its table; one that is not is noted and must not be looked
/// into.
fn whole(findings: &mut Findings, table: Table, key: &[u8], row: &[u8]) -> bool {
    let holds = table.key_bytes().is_none_or(|bytes| key.len() == bytes) && is_whole(table, row);
    findings.expect(Rule::Rows, holds, || {
        let (name, key) = (table.name(), key.escape_ascii());
        let bytes = plural(row.len() as u64, "byte");
        format!("the row of {name} with the key {key} has {bytes} and not its fields")
    });
    holds
}

impl<T> Check<'_, T> {
    /// Calls `visit` with all rows of a table between two keys.
    async fn scan<X: Txn<Table = T>>(
        &self,
        txn: &X,
        table: Table,
        (low, high): (Key, Key),
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> TxnResult<()> {
        let visit = |key: &[u8], row: &[u8]| {
            visit(key, row);
            ControlFlow::Continue(())
        };
        txn.scan(self.tables.get(table), &low, &high, Direction::Forward, visit).await
    }

    /// Adds up the payments that a district received.
    async fn history<X: Txn<Table = T>>(
        &self,
        txn: &X,
        (w, d): (u16, u8),
        number: usize,
        findings: &mut Findings,
    ) -> TxnResult<()> {
        let mut received = 0;
        let visit = |key: &[u8], row: &[u8]| {
            if !whole(findings, Table::History, key, row) {
                return;
            }
            let amount = i64::from(history::AMOUNT.get(row));
            received += amount;
            let customer =
                (history::C_W_ID.get(row), history::C_D_ID.get(row), history::C_ID.get(row));
            let paid = self.shared.payments_of(customer.0, customer.1, customer.2);
            findings.expect(Rule::Rows, paid.is_some(), || {
                format!("a row of HISTORY of district {d} of warehouse {w} names the customer {customer:?}")
            });
            if let Some((paid, payments)) = paid {
                paid.fetch_add(amount, Ordering::Relaxed);
                payments.fetch_add(1, Ordering::Relaxed);
            }
        };
        self.scan(txn, Table::History, Key::of_district(w, d), visit).await?;
        self.shared.received[number].store(received, Ordering::Relaxed);
        Ok(())
    }

    /// Everything about a district but HISTORY; with the last one, the stock of its warehouse.
    async fn district<X: Txn<Table = T>>(
        &self,
        txn: &X,
        (w, d): (u16, u8),
        number: usize,
        findings: &mut Findings,
    ) -> TxnResult<()> {
        let place = || format!("district {d} of warehouse {w}");
        let ytd_and_next = |row: &[u8]| {
            let whole = is_whole(Table::District, row);
            whole.then(|| (district::YTD.get(row), district::NEXT_O_ID.get(row)))
        };
        let key = Key::district(w, d);
        let row = txn.read(self.tables.get(Table::District), &key, ytd_and_next).await?.flatten();
        findings.expect(Rule::Rows, row.is_some(), || format!("{} has no row", place()));
        let (ytd, next_order) = row.unwrap_or_default();
        let received = self.shared.received[number].load(Ordering::Relaxed);
        findings.expect(Rule::DistrictHistory, ytd == received, || {
            format!("{} has D_YTD {ytd} but received {received}, in cents", place())
        });

        let mut orders = self.orders(txn, (w, d), findings).await?;
        self.new_orders(txn, (w, d), &mut orders, next_order, findings).await?;
        let delivered = self.lines(txn, (w, d), &mut orders, findings).await?;
        self.order_index(txn, (w, d), &orders, findings).await?;
        let mut deliveries = vec![0; SLOTS];
        for order in &orders {
            if let (true, true, Some(count)) = (
                order.has_carrier,
                order.o >= FIRST_UNDELIVERED,
                deliveries.get_mut(usize::from(order.c)),
            ) {
                *count += 1;
            }
        }
        drop(orders);
        self.customers(txn, (w, d), &delivered, &deliveries, findings).await?;
        if d == DISTRICTS {
            self.stock(txn, w, findings).await?;
        }
        Ok(())
    }

    /// The orders of a district, by number.
    async fn orders<X: Txn<Table = T>>(
        &self,
        txn: &X,
        (w, d): (u16, u8),
        findings: &mut Findings,
    ) -> TxnResult<Vec<Order>> {
        let mut orders = Vec::new();
        let visit = |key: &[u8], row: &[u8]| {
            let whole = whole(findings, Table::Order, key, row);
            if let (true, Some(o)) = (whole, order_of(key)) {
                let c = order::C_ID.get(row);
                findings.expect(Rule::Rows, (1..=CUSTOMERS).contains(&c), || {
                    format!("order {o} of district {d} of warehouse {w} is of customer {c}")
                });
                orders.push(Order {
                    o,
                    c,
                    count: order::OL_CNT.get(row),
                    has_carrier: order::CARRIER_ID.get(row) != 0,
                    is_new: false,
                    all_local: order::ALL_LOCAL.get(row),
                    lines: 0,
                    remote_lines: 0,
                });
                let carrier = order::CARRIER_ID.get(row);
                findings.expect(Rule::Counters, carrier <= CARRIERS, || {
                    format!("order {o} of district {d} of warehouse {w} has the carrier {carrier}")
                });
            }
        };
        self.scan(txn, Table::Order, Key::of_district(w, d), visit).await?;
        Ok(orders)
    }

    /// Conditions 2, 3, 5 and 11.
    async fn new_orders<X: Txn<Table = T>>(
        &self,
        txn: &X,
        (w, d): (u16, u8),
        orders: &mut [Order],
        next_order: u32,
        findings: &mut Findings,
    ) -> TxnResult<()> {
        let place = || format!("district {d} of warehouse {w}");
        let (mut count, mut range) = (0u64, None);
        let visit = |key: &[u8], row: &[u8]| {
            let whole = whole(findings, Table::NewOrder, key, row);
            let (true, Some(o)) = (whole, order_of(key)) else { return };
            count += 1;
            range = Some((range.map_or(o, |(first, _)| first), o));
            let order = orders.binary_search_by_key(&o, |order| order.o);
            findings.expect(Rule::CarrierOfNewOrder, order.is_ok(), || {
                format!("{}: NEW-ORDER has order {o}, and ORDER does not", place())
            });
            if let Ok(order) = order {
                orders[order].is_new = true;
            }
        };
        self.scan(txn, Table::NewOrder, Key::of_district(w, d), visit).await?;

        let last = orders.last().map_or(0, |order| order.o);
        // Without rows in NEW-ORDER there is no maximum to compare.
        let last_new = range.map_or(last, |(_, last)| last);
        let holds = next_order == last + 1 && last == last_new;
        findings.expect(Rule::NextOrder, holds, || {
            format!("{}: {next_order}, {last} and {last_new}", place())
        });
        let spanned = range.map_or(0, |(first, last)| u64::from(last - first) + 1);
        findings.expect(Rule::NewOrderRange, spanned == count, || {
            format!("{}: {}, numbers that span {spanned}", place(), plural(count, "row"))
        });
        for Order { o, has_carrier, is_new, .. } in &*orders {
            findings.expect(Rule::CarrierOfNewOrder, has_carrier != is_new, || {
                let (with, has) =
                    (if *has_carrier { "a" } else { "no" }, if *is_new { "" } else { "not " });
                format!("{}: order {o} has {with} carrier and is {has}in NEW-ORDER", place())
            });
        }
        let delivered = (orders.len() as u64).wrapping_sub(count);
        findings.expect(Rule::Undelivered, delivered == DELIVERED, || {
            format!("{}: {delivered}", place())
        });
        Ok(())
    }

    /// Conditions 4, 6 and 7; gives what was delivered to each customer, in cents.
    async fn lines<X: Txn<Table = T>>(
        &self,
        txn: &X,
        (w, d): (u16, u8),
        orders: &mut [Order],
        findings: &mut Findings,
    ) -> TxnResult<Vec<i64>> {
        let place = || format!("district {d} of warehouse {w}");
        let mut delivered = vec![0; SLOTS];
        let (mut at, mut count) = (0, 0);
        let visit = |key: &[u8], row: &[u8]| {
            let whole = whole(findings, Table::OrderLine, key, row);
            let (true, Some(o)) = (whole, order_of(key)) else { return };
            count += 1;
            while orders.get(at).is_some_and(|order| order.o < o) {
                at += 1;
            }
            let order = orders.get_mut(at).filter(|order| order.o == o);
            findings.expect(Rule::LinesOfOrder, order.is_some(), || {
                format!("{}: there is a line of order {o}, and no such order", place())
            });
            let Some(order) = order else { return };
            order.lines += 1;
            let (line, i) = (u32::from(key[6]), order_line::I_ID.get(row));
            let supplier = order_line::SUPPLY_W_ID.get(row);
            let sound = line == order.lines
                && (1..=ITEMS).contains(&i)
                && (1..=self.warehouses).contains(&supplier);
            findings.expect(Rule::Rows, sound, || {
                format!(
                    "{}: line {} of order {o} has the number {line}, item {i} and supplier {supplier}",
                    place(),
                    order.lines
                )
            });
            let quantity = order_line::QUANTITY.get(row);
            findings.expect(Rule::Counters, (1..=10).contains(&quantity), || {
                format!("{}: line {line} of order {o} has the quantity {quantity}", place())
            });
            order.remote_lines += u32::from(supplier != w);
            if sound && o > ORDERS {
                self.shared.supplied(supplier, i).ordered(quantity.into(), supplier != w);
            }
            let is_delivered = order_line::DELIVERY_D.get(row) != 0;
            findings.expect(Rule::DeliveryDate, is_delivered == order.has_carrier, || {
                let with =
                    |yes: bool, what: &str| format!("{} {what}", if yes { "a" } else { "no" });
                let (date, carrier) =
                    (with(is_delivered, "date"), with(order.has_carrier, "carrier"));
                format!("{}: a line of order {o} has {date}, and the order {carrier}", place())
            });
            if let (true, Some(sum)) = (is_delivered, delivered.get_mut(usize::from(order.c))) {
                *sum += i64::from(order_line::AMOUNT.get(row));
            }
        };
        self.scan(txn, Table::OrderLine, Key::of_district(w, d), visit).await?;
        let expected: u64 = orders.iter().map(|order| u64::from(order.count)).sum();
        findings.expect(Rule::LinesOfDistrict, count == expected, || {
            format!("{}: orders say {}, and {count} found", place(), plural(expected, "line"))
        });
        for Order { o, count, lines, all_local, remote_lines, .. } in &*orders {
            findings.expect(Rule::LinesOfOrder, *lines == u32::from(*count), || {
                let says = plural(u64::from(*count), "line");
                format!("{}: order {o} says {says}, and {lines} found", place())
            });
            findings.expect(Rule::Counters, *all_local == u8::from(*remote_lines == 0), || {
                let remote = plural((*remote_lines).into(), "line");
                format!(
                    "{}: order {o} has O_ALL_LOCAL {all_local} and {remote} from elsewhere",
                    place()
                )
            });
        }
        Ok(delivered)
    }

    /// Every order is in the index by customer once, and nothing else is.
    async fn order_index<X: Txn<Table = T>>(
        &self,
        txn: &X,
        (w, d): (u16, u8),
        orders: &[Order],
        findings: &mut Findings,
    ) -> TxnResult<()> {
        let mut entries = 0;
        let visit = |key: &[u8], row: &[u8]| {
            entries += 1;
            whole(findings, Table::OrderCustomer, key, row);
            let c = key.get(3..5).map(|c| u16::from_be_bytes([c[0], c[1]]));
            let o = order_at_end(key);
            let place = o.and_then(|o| orders.binary_search_by_key(&o, |order| order.o).ok());
            let agrees = place.is_some_and(|place| Some(orders[place].c) == c);
            findings.expect(Rule::Indexes, agrees, || {
                let number = |number: Option<u32>| number.map_or("?".to_owned(), |n| n.to_string());
                format!(
                    "the index says that order {} of district {d} of warehouse {w} is of customer {}",
                    number(o),
                    number(c.map(u32::from))
                )
            });
        };
        self.scan(txn, Table::OrderCustomer, Key::of_district(w, d), visit).await?;
        findings.expect(Rule::Indexes, entries == orders.len(), || {
            let orders = plural(orders.len() as u64, "order");
            format!("district {d} of warehouse {w} has {orders} and {entries} in the index")
        });
        Ok(())
    }

    /// Conditions 10 and 12, the counters of customers, and the index on names.
    async fn customers<X: Txn<Table = T>>(
        &self,
        txn: &X,
        (w, d): (u16, u8),
        delivered: &[i64],
        deliveries: &[u32],
        findings: &mut Findings,
    ) -> TxnResult<()> {
        let mut count = 0;
        // Where the names say the customers are.
        let mut names = BTreeMap::new();
        let visit = |key: &[u8], row: &[u8]| {
            let whole = whole(findings, Table::Customer, key, row);
            let (true, Some(c)) = (whole, customer_at_end(key)) else { return };
            count += 1;
            findings.expect(Rule::Rows, (1..=CUSTOMERS).contains(&c), || {
                format!("district {d} of warehouse {w} has a customer {c}")
            });
            let sums = delivered.get(usize::from(c)).zip(self.shared.payments_of(w, d, c));
            let Some((&delivered, (paid, paid_times))) = sums else { return };
            let paid = paid.load(Ordering::Relaxed);
            let balance = customer::BALANCE.get(row);
            findings.expect(Rule::Balance, balance == delivered - paid, || {
                format!(
                    "customer {c} of district {d} of warehouse {w} has C_BALANCE {balance}, got goods of \
                     {delivered} and paid {paid}, in cents"
                )
            });
            let payments = customer::YTD_PAYMENT.get(row);
            findings.expect(Rule::BalanceAndPayments, balance.wrapping_add(payments) == delivered, || {
                format!(
                    "customer {c} of district {d} of warehouse {w} has C_BALANCE {balance}, C_YTD_PAYMENT \
                     {payments} and got goods of {delivered}, in cents"
                )
            });
            let (times, paid_times) =
                (customer::PAYMENT_CNT.get(row), paid_times.load(Ordering::Relaxed));
            let (got, deliveries) = (customer::DELIVERY_CNT.get(row), deliveries[usize::from(c)]);
            let agree = times == paid_times && got == deliveries;
            findings.expect(Rule::Counters, agree, || {
                format!(
                    "customer {c} of district {d} of warehouse {w} has C_PAYMENT_CNT {times} and \
                     C_DELIVERY_CNT {got}, but paid {paid_times} times and got {deliveries} orders"
                )
            });
            let credit = customer::CREDIT.get(row);
            findings.expect(
                Rule::Counters,
                [customer::GOOD, customer::BAD].contains(&credit),
                || {
                    format!(
                        "customer {c} of district {d} of warehouse {w} has the credit {credit:#06x}"
                    )
                },
            );
            let string = |number| super::rows::string(row, customer::STRINGS, number);
            names.insert(c, Key::customer_name(w, d, string(1), string(0), c));
        };
        let bounds = Key::of_district(w, d);
        self.scan(txn, Table::Customer, bounds, visit).await?;
        findings.expect(Rule::Rows, count == CUSTOMERS, || {
            format!("district {d} of warehouse {w} has {}", plural(count.into(), "customer"))
        });
        let mut entries = 0;
        let visit = |key: &[u8], row: &[u8]| {
            entries += 1;
            whole(findings, Table::CustomerName, key, row);
            let c = customer_at_end(key);
            let named = c.and_then(|c| names.get(&c)).is_some_and(|name| **name == *key);
            findings.expect(Rule::Indexes, named, || {
                format!("the index on names has {}, which is no customer", key.escape_ascii())
            });
        };
        self.scan(txn, Table::CustomerName, bounds, visit).await?;
        findings.expect(Rule::Indexes, entries == count, || {
            let customers = plural(count.into(), "customer");
            format!("district {d} of warehouse {w} has {customers} and {entries} in the index")
        });
        Ok(())
    }

    /// The stock of a warehouse is complete, and is added to what the orders say of it.
    async fn stock<X: Txn<Table = T>>(
        &self,
        txn: &X,
        w: u16,
        findings: &mut Findings,
    ) -> TxnResult<()> {
        let mut count = 0;
        let visit = |key: &[u8], row: &[u8]| {
            if whole(findings, Table::Stock, key, row) {
                count += 1;
                let quantity = stock::QUANTITY.get(row);
                findings.expect(Rule::Counters, QUANTITIES.contains(&quantity), || {
                    let key = key.escape_ascii();
                    format!("the stock row with the key {key} has S_QUANTITY {quantity}")
                });
                let item = item_at_end(key).filter(|i| (1..=ITEMS).contains(i));
                if let Some(i) = item {
                    self.shared.supplied(w, i).stocked(row);
                }
            }
        };
        let bounds = (Key::stock(w, 1), Key::stock(w, ITEMS + 1));
        self.scan(txn, Table::Stock, bounds, visit).await?;
        findings.expect(Rule::Rows, count == ITEMS, || {
            format!("warehouse {w} has {}", plural(count.into(), "stock row"))
        });
        Ok(())
    }

    /// No table has rows between or behind those of its warehouses, districts and items, where no other scan
    /// sees them.
    async fn strays<X: Txn<Table = T>>(&self, txn: &X, findings: &mut Findings) -> TxnResult<()> {
        let warehouses = || 1..=self.warehouses;
        for table in Table::ALL {
            // Where rows may be, in order.
            let places: Vec<(Key, Key)> = match table {
                Table::Item => vec![(Key::item(1), Key::item(ITEMS + 1))],
                Table::Warehouse => vec![(Key::warehouse(1), Key::warehouse(self.warehouses + 1))],
                Table::Stock => {
                    warehouses().map(|w| (Key::stock(w, 1), Key::stock(w, ITEMS + 1))).collect()
                }
                _ => warehouses()
                    .map(|w| (Key::district(w, 1), Key::district(w, DISTRICTS + 1)))
                    .collect(),
            };
            let lows = std::iter::once(Key::first()).chain(places.iter().map(|(_, high)| *high));
            let highs = places.iter().map(|(low, _)| *low).chain([Key::last()]);
            for gap in lows.zip(highs) {
                let visit = |key: &[u8], _: &[u8]| {
                    findings.expect(Rule::Rows, false, || {
                        let (name, key) = (table.name(), key.escape_ascii());
                        format!("{name} has a row with the key {key}, which belongs nowhere")
                    });
                };
                self.scan(txn, table, gap, visit).await?;
            }
        }
        Ok(())
    }

    /// The items are complete, and conditions 1 and 8 of all warehouses.
    async fn items<X: Txn<Table = T>>(&self, txn: &X, findings: &mut Findings) -> TxnResult<()> {
        let mut count = 0;
        let visit = |key: &[u8], row: &[u8]| {
            if whole(findings, Table::Item, key, row) {
                count += 1;
            }
        };
        self.scan(txn, Table::Item, (Key::item(1), Key::item(ITEMS + 1)), visit).await?;
        findings.expect(Rule::Rows, count == ITEMS, || {
            format!("ITEM has {}", plural(count.into(), "row"))
        });
        self.strays(txn, findings).await?;
        // Of the rows that are read one by one below, and of others between them.
        for table in [Table::Warehouse, Table::District] {
            let visit = |key: &[u8], row: &[u8]| _ = whole(findings, table, key, row);
            self.scan(txn, table, (Key::warehouse(1), Key::warehouse(self.warehouses + 1)), visit)
                .await?;
        }
        for w in 1..=self.warehouses {
            let first = usize::from(w - 1) * usize::from(DISTRICTS);
            let districts = &self.shared.received[first..first + usize::from(DISTRICTS)];
            let received: i64 = districts.iter().map(|sum| sum.load(Ordering::Relaxed)).sum();
            let mut district_ytd = 0;
            for d in 1..=DISTRICTS {
                let look = |row: &[u8]| {
                    if is_whole(Table::District, row) { district::YTD.get(row) } else { 0 }
                };
                let key = Key::district(w, d);
                let ytd = txn.read(self.tables.get(Table::District), &key, look).await?;
                district_ytd = i64::wrapping_add(district_ytd, ytd.unwrap_or(0));
            }
            let look =
                |row: &[u8]| is_whole(Table::Warehouse, row).then(|| warehouse::YTD.get(row));
            let key = Key::warehouse(w);
            let ytd = txn.read(self.tables.get(Table::Warehouse), &key, look).await?.flatten();
            findings.expect(Rule::Rows, ytd.is_some(), || format!("warehouse {w} has no row"));
            let ytd = ytd.unwrap_or(0);
            findings.expect(Rule::WarehouseYtd, ytd == district_ytd, || {
                format!("warehouse {w} has W_YTD {ytd}, and its districts {district_ytd}, in cents")
            });
            findings.expect(Rule::WarehouseHistory, ytd == received, || {
                format!("warehouse {w} has W_YTD {ytd} but received {received}, in cents")
            });
        }
        Ok(())
    }
}
