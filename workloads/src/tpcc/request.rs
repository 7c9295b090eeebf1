//! The input of a transaction, as a terminal sends it (clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1).
//! A transaction that meets a conflict is retried with the same input.

use super::mix::Kind;
use super::random::{Constants, LastName, between, percent};
use super::schema::{DISTRICTS, ITEMS, LINES, three};
use crate::rng::Rng;

/// An item that does not exist: it makes a New-Order roll back (clause 2.4.1.5).
pub const UNUSED_ITEM: u32 = ITEMS + 1;

/// Input of a transaction.
#[derive(Clone, Debug)]
pub enum Request {
    /// Of New-Order.
    NewOrder(NewOrder),
    /// Of Payment.
    Payment(Payment),
    /// Of Order-Status.
    OrderStatus(OrderStatus),
    /// Of Delivery.
    Delivery(Delivery),
    /// Of Stock-Level.
    StockLevel(StockLevel),
}

impl Request {
    /// Whether the transaction is read-only.
    pub fn only_reads(&self) -> bool {
        matches!(self, Request::OrderStatus(_) | Request::StockLevel(_))
    }
}

/// A line of an order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line {
    /// OL_I_ID.
    pub item: u32,
    /// OL_SUPPLY_W_ID.
    pub supplier: u16,
    /// OL_QUANTITY.
    pub quantity: u8,
}

/// Input of New-Order.
#[derive(Clone, Debug)]
pub struct NewOrder {
    /// W_ID.
    pub w: u16,
    /// D_ID.
    pub d: u8,
    /// C_ID.
    pub c: u16,
    /// The lines.
    lines: [Line; LINES.1 as usize],
    count: u8,
}

impl NewOrder {
    /// The lines.
    #[inline]
    pub fn lines(&self) -> &[Line] {
        &self.lines[..usize::from(self.count)]
    }

    /// All entries for lines; those after the last line have no meaning.
    #[inline]
    pub fn all_lines(&self) -> &[Line; LINES.1 as usize] {
        &self.lines
    }

    /// The keys of the items of all entries; those after the last line have no meaning.
    #[inline]
    pub fn item_keys(&self) -> [[u8; 3]; LINES.1 as usize] {
        self.lines.map(|line| three(line.item))
    }
}

/// How a request names a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustomerBy {
    /// By number.
    Number(u16),
    /// By last name.
    Name(LastName),
}

/// Input of Payment.
#[derive(Clone, Debug)]
pub struct Payment {
    /// W_ID.
    pub w: u16,
    /// D_ID.
    pub d: u8,
    /// C_W_ID.
    pub c_w: u16,
    /// C_D_ID.
    pub c_d: u8,
    /// C_ID or C_LAST.
    pub customer: CustomerBy,
    /// H_AMOUNT in cents.
    pub amount: u32,
}

/// Input of Order-Status.
#[derive(Clone, Debug)]
pub struct OrderStatus {
    /// W_ID.
    pub w: u16,
    /// D_ID.
    pub d: u8,
    /// C_ID or C_LAST.
    pub customer: CustomerBy,
}

/// Input of Delivery.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// W_ID.
    pub w: u16,
    /// O_CARRIER_ID.
    pub carrier: u8,
}

/// Input of Stock-Level.
#[derive(Clone, Debug)]
pub struct StockLevel {
    /// W_ID.
    pub w: u16,
    /// D_ID.
    pub d: u8,
    /// Threshold of S_QUANTITY.
    pub threshold: i16,
}

/// Draws inputs.
#[derive(Clone, Copy, Debug)]
pub struct Inputs {
    /// Constants of NURand.
    pub constants: Constants,
    /// Number of warehouses.
    pub warehouses: u16,
}

impl Inputs {
    /// The input of a transaction at a terminal of warehouse `w`.
    #[inline]
    pub fn draw(&self, rng: &mut Rng, kind: Kind, w: u16) -> Request {
        let d = district(rng);
        match kind {
            Kind::NewOrder => Request::NewOrder(self.new_order(rng, w, d)),
            Kind::Payment => Request::Payment(self.payment(rng, w, d)),
            Kind::OrderStatus => {
                Request::OrderStatus(OrderStatus { w, d, customer: self.customer(rng) })
            }
            Kind::Delivery => Request::Delivery(Delivery { w, carrier: between(rng, 1, 10) as u8 }),
            Kind::StockLevel => {
                Request::StockLevel(StockLevel { w, d, threshold: between(rng, 10, 20) as i16 })
            }
        }
    }

    fn new_order(&self, rng: &mut Rng, w: u16, d: u8) -> NewOrder {
        let c = self.constants.customer(rng);
        let count = between(rng, LINES.0.into(), LINES.1.into()) as u8;
        let mut lines = [Line::default(); LINES.1 as usize];
        for line in &mut lines[..usize::from(count)] {
            let item = self.constants.item(rng);
            let supplier = if percent(rng, 1) { self.other_warehouse(rng, w) } else { w };
            *line = Line { item, supplier, quantity: between(rng, 1, 10) as u8 };
        }
        if percent(rng, 1) {
            lines[usize::from(count) - 1].item = UNUSED_ITEM;
        }
        NewOrder { w, d, c, lines, count }
    }

    fn payment(&self, rng: &mut Rng, w: u16, d: u8) -> Payment {
        let remote = self.warehouses > 1 && percent(rng, 15);
        let (c_w, c_d) =
            if remote { (self.other_warehouse(rng, w), district(rng)) } else { (w, d) };
        let customer = self.customer(rng);
        Payment { w, d, c_w, c_d, customer, amount: between(rng, 100, 500_000) as u32 }
    }

    fn customer(&self, rng: &mut Rng) -> CustomerBy {
        match percent(rng, 60) {
            true => CustomerBy::Name(self.constants.last_name(rng)),
            false => CustomerBy::Number(self.constants.customer(rng)),
        }
    }

    /// A warehouse other than `w`, if there is one.
    fn other_warehouse(&self, rng: &mut Rng, w: u16) -> u16 {
        if self.warehouses == 1 {
            return w;
        }
        let other = between(rng, 1, u64::from(self.warehouses) - 1) as u16;
        other + u16::from(other >= w)
    }
}

fn district(rng: &mut Rng) -> u8 {
    between(rng, 1, DISTRICTS.into()) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(warehouses: u16) -> Inputs {
        Inputs { constants: Constants { last: 100, customer: 500, item: 4000 }, warehouses }
    }

    /// Shares of clause 2.4.1: 1 % unused items, 1 % remote lines, 5 to 15 lines.
    #[test]
    fn new_orders_have_the_shares_of_clause_2_4_1() {
        let (inputs, mut rng) = (inputs(5), Rng::new(1, 1));
        let (mut lines, mut remote, mut unused) = (0, 0, 0);
        for _ in 0..20_000 {
            let Request::NewOrder(order) = inputs.draw(&mut rng, Kind::NewOrder, 3) else {
                panic!("another kind")
            };
            assert!((5..=15).contains(&order.lines().len()) && (1..=10).contains(&order.d));
            assert!((1..=3000).contains(&order.c));
            lines += order.lines().len();
            for line in order.lines() {
                assert!((1..=10).contains(&line.quantity) && (1..=5).contains(&line.supplier));
                remote += usize::from(line.supplier != 3);
            }
            let (last, others) = order.lines().split_last().unwrap();
            assert!(others.iter().all(|line| (1..=ITEMS).contains(&line.item)));
            unused += usize::from(last.item == UNUSED_ITEM);
        }
        assert!((195_000..205_000).contains(&lines), "{lines}");
        assert!((1_800..2_200).contains(&remote), "{remote}");
        assert!((140..260).contains(&unused), "{unused}");
    }

    #[test]
    fn payments_have_the_shares_of_clause_2_5_1() {
        let (inputs, mut rng) = (inputs(5), Rng::new(1, 2));
        let (mut remote, mut by_name) = (0, 0);
        for _ in 0..20_000 {
            let Request::Payment(payment) = inputs.draw(&mut rng, Kind::Payment, 5) else {
                panic!("another kind")
            };
            assert!((100..=500_000).contains(&payment.amount));
            match payment.c_w == 5 {
                true => assert_eq!(payment.c_d, payment.d),
                false => remote += 1,
            }
            by_name += usize::from(matches!(payment.customer, CustomerBy::Name(_)));
        }
        assert!((2_800..3_200).contains(&remote), "{remote}");
        assert!((11_700..12_300).contains(&by_name), "{by_name}");
    }

    #[test]
    fn a_single_warehouse_has_no_remote_customers_and_lines() {
        let (inputs, mut rng) = (inputs(1), Rng::new(1, 3));
        for _ in 0..2_000 {
            match inputs.draw(&mut rng, Kind::NewOrder, 1) {
                Request::NewOrder(order) => {
                    assert!(order.lines().iter().all(|line| line.supplier == 1));
                }
                other => panic!("{other:?}"),
            }
            match inputs.draw(&mut rng, Kind::Payment, 1) {
                Request::Payment(payment) => assert_eq!(payment.c_w, 1),
                other => panic!("{other:?}"),
            }
        }
    }
}
