//! Tables and keys (clause 1.3).
//!
//! Keys are big-endian, so that they sort like their numbers. Numbers of orders and items take
//! three bytes, so that the first four bytes in which the keys of a page differ identify most of
//! them. Rows do not repeat the fields of their key.
//!
//! | table | key |
//! |---|---|
//! | warehouse | w:2 |
//! | district | w:2 d:1 |
//! | customer | w:2 d:1 c:2 |
//! | customer-name | w:2 d:1 last 0 first 0 c:2 (an index: no value) |
//! | history | w:2 d:1 date:8 tie:4 (w and d of the payment; the specification gives it no key) |
//! | new-order | w:2 d:1 o:3 (no value) |
//! | order | w:2 d:1 o:3 |
//! | order-customer | w:2 d:1 c:2 !o:3 (an index, a customer's newest order first: no value) |
//! | order-line | w:2 d:1 o:3 line:1 |
//! | item | i:3 |
//! | stock | w:2 i:3 |

use crate::driver::store::{Store, StoreResult};

/// Items, and stock rows of a warehouse.
pub const ITEMS: u32 = 100_000;
/// Districts of a warehouse.
pub const DISTRICTS: u8 = 10;
/// Customers of a district.
pub const CUSTOMERS: u16 = 3_000;
/// Orders of a district after the load.
pub const ORDERS: u32 = 3_000;
/// The first of them that is not delivered after the load.
pub const FIRST_UNDELIVERED: u32 = 2_101;
/// Largest number of an order: the number after it bounds scans. The specification asks for ten
/// million (clause 1.3).
pub const LAST_ORDER: u32 = NEWEST - 1;
/// Version of the layout of keys and rows. It grows when they change.
pub const FORMAT: u32 = 2;
/// Fewest and most lines of an order.
pub const LINES: (u8, u8) = (5, 15);
/// Most warehouses: they have 16-bit numbers from 1 on, and the number after the last one bounds
/// scans.
pub const MAX_WAREHOUSES: u64 = u16::MAX as u64 - 1;

/// The tables, in the order of [`Tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the specification")]
pub enum Table {
    Warehouse,
    District,
    Customer,
    CustomerName,
    History,
    NewOrder,
    Order,
    OrderCustomer,
    OrderLine,
    Item,
    Stock,
}

impl Table {
    /// All of them.
    pub const ALL: [Table; 11] = [
        Table::Warehouse,
        Table::District,
        Table::Customer,
        Table::CustomerName,
        Table::History,
        Table::NewOrder,
        Table::Order,
        Table::OrderCustomer,
        Table::OrderLine,
        Table::Item,
        Table::Stock,
    ];

    /// Its name in the store.
    pub fn name(self) -> &'static str {
        match self {
            Table::Warehouse => "tpcc-warehouse",
            Table::District => "tpcc-district",
            Table::Customer => "tpcc-customer",
            Table::CustomerName => "tpcc-customer-name",
            Table::History => "tpcc-history",
            Table::NewOrder => "tpcc-new-order",
            Table::Order => "tpcc-order",
            Table::OrderCustomer => "tpcc-order-customer",
            Table::OrderLine => "tpcc-order-line",
            Table::Item => "tpcc-item",
            Table::Stock => "tpcc-stock",
        }
    }

    /// Bytes of its keys, if that number is fixed.
    pub fn key_bytes(self) -> Option<usize> {
        Some(match self {
            Table::Warehouse => 2,
            Table::District | Table::Item => 3,
            Table::Customer | Table::Stock => 5,
            Table::CustomerName => return None,
            Table::History => 15,
            Table::NewOrder | Table::Order => 6,
            Table::OrderCustomer => 8,
            Table::OrderLine => 7,
        })
    }
}

/// The open tables of a store.
pub struct Tables<T> {
    tables: [T; 11],
}

impl<T> Tables<T> {
    /// Opens the tables, which are created if absent.
    ///
    /// # Errors
    /// As [`Store::table`].
    pub fn open<S: Store<Table = T>>(store: &S) -> StoreResult<Self> {
        let mut tables = Vec::with_capacity(Table::ALL.len());
        for table in Table::ALL {
            tables.push(store.table(table.name())?);
        }
        let tables = tables.try_into();
        Ok(Self { tables: tables.unwrap_or_else(|_| unreachable!("as many as there are names")) })
    }

    /// One of them.
    #[inline(always)]
    pub fn get(&self, table: Table) -> &T {
        &self.tables[table as usize]
    }
}

/// The largest number of three bytes. The index by customer counts the numbers of orders down from
/// it.
const NEWEST: u32 = (1 << 24) - 1;

/// Longest key: the one of the index on names.
const MAX_KEY: usize = 3 + 17 + 17 + 2;

/// A number in three bytes, as in keys. A larger number, which no valid row has, becomes the
/// largest.
#[inline(always)]
pub fn three(number: u32) -> [u8; 3] {
    let [_, rest @ ..] = number.min(NEWEST).to_be_bytes();
    rest
}

fn from_three(bytes: &[u8; 3]) -> u32 {
    u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]])
}

/// A key, built on the stack.
#[derive(Clone, Copy)]
pub struct Key {
    bytes: [u8; MAX_KEY],
    len: usize,
}

impl std::ops::Deref for Key {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl AsRef<[u8]> for Key {
    #[inline(always)]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Key {
    #[inline(always)]
    fn new() -> Self {
        Self { bytes: [0; MAX_KEY], len: 0 }
    }

    #[inline(always)]
    fn with(mut self, part: &[u8]) -> Self {
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
        self
    }

    /// Key of a warehouse; also the prefix of all its keys.
    #[inline(always)]
    pub fn warehouse(w: u16) -> Self {
        Self::new().with(&w.to_be_bytes())
    }

    /// Key of a district; also the prefix of all its keys.
    #[inline(always)]
    pub fn district(w: u16, d: u8) -> Self {
        Self::warehouse(w).with(&[d])
    }

    /// Key of a customer.
    #[inline(always)]
    pub fn customer(w: u16, d: u8, c: u16) -> Self {
        Self::district(w, d).with(&c.to_be_bytes())
    }

    /// Key of an entry of the index on names.
    pub fn customer_name(w: u16, d: u8, last: &[u8], first: &[u8], c: u16) -> Self {
        let named = Self::district(w, d).with(last).with(&[0]).with(first).with(&[0]);
        named.with(&c.to_be_bytes())
    }

    /// Bounds of the entries with one last name in the index on names.
    #[inline]
    pub fn customers_named(w: u16, d: u8, last: &[u8]) -> (Self, Self) {
        let named = Self::district(w, d).with(last);
        (named.with(&[0]), named.with(&[1]))
    }

    /// Key of a row of HISTORY: its date, and a number that is unique within one microsecond.
    #[inline]
    pub fn history(w: u16, d: u8, date: u64, tie: u32) -> Self {
        Self::district(w, d).with(&date.to_be_bytes()).with(&tie.to_be_bytes())
    }

    /// Key of an order, also in NEW-ORDER; also the prefix of the keys of its lines.
    #[inline(always)]
    pub fn order(w: u16, d: u8, o: u32) -> Self {
        Self::district(w, d).with(&three(o))
    }

    /// Key of an entry of the index of orders by customer.
    #[inline]
    pub fn order_customer(w: u16, d: u8, c: u16, o: u32) -> Self {
        Self::customer(w, d, c).with(&three(NEWEST.saturating_sub(o)))
    }

    /// Key of a line of an order.
    #[inline(always)]
    pub fn order_line(w: u16, d: u8, o: u32, line: u8) -> Self {
        Self::order(w, d, o).with(&[line])
    }

    /// Key of an item.
    #[inline(always)]
    pub fn item(i: u32) -> Self {
        Self::new().with(&three(i))
    }

    /// Key of a row of STOCK.
    #[inline(always)]
    pub fn stock(w: u16, i: u32) -> Self {
        Self::warehouse(w).with(&three(i))
    }

    /// Lower bound of all keys.
    pub fn first() -> Self {
        Self::new()
    }

    /// Upper bound of all keys: no warehouse has this number.
    pub fn last() -> Self {
        Self { bytes: [u8::MAX; MAX_KEY], len: MAX_KEY }
    }

    /// Bounds of all keys of a district.
    pub fn of_district(w: u16, d: u8) -> (Self, Self) {
        (Self::district(w, d), Self::district(w, d + 1))
    }
}

/// The number of an order in its key, or in that of one of its lines.
#[inline]
pub fn order_of(key: &[u8]) -> Option<u32> {
    Some(from_three(key.get(3..)?.first_chunk()?))
}

/// The number of a customer at the end of a key of the index on names.
#[inline]
pub fn customer_at_end(key: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*key.last_chunk()?))
}

/// The number of an item at the end of a key of STOCK.
#[inline]
pub fn item_at_end(key: &[u8]) -> Option<u32> {
    key.last_chunk().map(from_three)
}

/// The number of an order in a key of the index by customer.
#[inline]
pub fn order_at_end(key: &[u8]) -> Option<u32> {
    Some(NEWEST - from_three(key.last_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_like_their_numbers() {
        let mut last = Vec::new();
        for (w, d, o, line) in [
            (1, 1, 1, 1),
            (1, 1, 255, 15),
            (1, 1, 256, 1),
            (1, 1, LAST_ORDER, 1),
            (1, 10, 1, 1),
            (2, 1, 1, 1),
            (256, 1, 1, 1),
        ] {
            let key = Key::order_line(w, d, o, line).to_vec();
            assert!(last < key, "{key:?} after {last:?}");
            assert_eq!(order_of(&key), Some(o));
            last = key;
        }
        assert!(*Key::stock(1, 65_536) > *Key::stock(1, 65_535));
        assert_eq!(*Key::stock(1, u32::MAX), [0, 1, 255, 255, 255], "no valid row has it");
        assert!(*Key::customer(7, 3, 300) > *Key::customer(7, 3, 299));
    }

    #[test]
    fn a_customers_newest_order_comes_first() {
        let key = |o| Key::order_customer(1, 2, 3, o);
        assert!(*key(3001) < *key(3000) && *key(70_000) < *key(69_999));
        assert_eq!(order_at_end(&key(3001)), Some(3001));
        assert!(*Key::customer(1, 2, 3) < *key(LAST_ORDER) && *key(0) < *Key::customer(1, 2, 4));
    }

    #[test]
    fn the_index_on_names_sorts_by_last_and_then_first_name() {
        let key = |last: &str, first: &str, c| {
            Key::customer_name(1, 1, last.as_bytes(), first.as_bytes(), c).to_vec()
        };
        let keys = [
            key("BAR", "zz", 9),
            key("BARBAR", "aa", 1),
            key("BARBAR", "aaa", 1),
            key("BARBAR", "aaa", 2),
            key("BARBAROUGHT", "a", 1),
        ];
        assert!(keys.is_sorted());
        let (low, high) = Key::customers_named(1, 1, b"BARBAR");
        let named = keys.iter().filter(|key| **key >= low.to_vec() && **key < high.to_vec());
        assert_eq!(named.clone().count(), 3);
        assert_eq!(
            named.map(|key| customer_at_end(key)).collect::<Vec<_>>(),
            [Some(1), Some(1), Some(2)]
        );
        assert_eq!(key("ESEESEESEESEESEX", "0123456789abcdef", 1).len(), MAX_KEY);
    }
}
