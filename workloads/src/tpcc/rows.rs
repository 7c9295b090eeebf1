//! Layout of rows (clause 1.3).
//!
//! Numbers come first, little-endian, at fixed places. Those that transactions change are at the
//! front, so that a change touches and logs a few bytes. Strings of fixed length follow, then
//! strings of varying length, each after its length. Money is in cents, taxes and discounts are in
//! basis points (1/10000), dates are microseconds since 1970, and 0 is null.

use super::schema::Table;

/// Type and place of a number in a row.
macro_rules! field {
    ($(#[$doc:meta])* $name:ident, $type:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name(pub usize);

        impl $name {
            const BYTES: usize = size_of::<$type>();

            /// Its value in `row`.
            ///
            /// # Panics
            /// If the row is too short. [`super::check`] reports such a row.
            #[inline(always)]
            pub fn get(self, row: &[u8]) -> $type {
                let bytes = &row[self.0..self.0 + Self::BYTES];
                <$type>::from_le_bytes(bytes.try_into().expect("as long as the number"))
            }

            /// Sets it.
            ///
            /// # Panics
            /// If the row is too short.
            #[inline(always)]
            pub fn set(self, row: &mut [u8], value: $type) {
                row[self.0..self.0 + Self::BYTES].copy_from_slice(&value.to_le_bytes());
            }

            /// Adds to it and returns the sum.
            ///
            /// # Panics
            /// If the row is too short.
            #[inline(always)]
            pub fn add(self, row: &mut [u8], amount: $type) -> $type {
                let sum = self.get(row).wrapping_add(amount);
                self.set(row, sum);
                sum
            }
        }
    };
}

field!(
    /// A byte.
    U8, u8
);
field!(
    /// 16 bits.
    U16, u16
);
field!(
    /// 16 bits with a sign.
    I16, i16
);
field!(
    /// 32 bits.
    U32, u32
);
field!(
    /// 64 bits.
    U64, u64
);
field!(
    /// 64 bits with a sign.
    I64, i64
);

/// WAREHOUSE. Strings: name, two streets, city.
pub mod warehouse {
    use super::*;
    /// W_YTD in cents.
    pub const YTD: I64 = I64(0);
    /// W_TAX in basis points.
    pub const TAX: U16 = U16(8);
    /// W_STATE and W_ZIP, 11 bytes.
    pub const STATE_ZIP: usize = 10;
    /// Where the strings begin.
    pub const STRINGS: usize = 21;
}

/// DISTRICT. Strings: name, two streets, city.
pub mod district {
    use super::*;
    /// D_YTD in cents.
    pub const YTD: I64 = I64(0);
    /// D_NEXT_O_ID.
    pub const NEXT_O_ID: U32 = U32(8);
    /// D_TAX in basis points.
    pub const TAX: U16 = U16(12);
    /// D_STATE and D_ZIP, 11 bytes.
    pub const STATE_ZIP: usize = 14;
    /// Where the strings begin.
    pub const STRINGS: usize = 25;
}

/// CUSTOMER. Strings: first, last, two streets, city. C_DATA follows: its length in two bytes and
/// its bytes; 500 bytes are reserved if the credit is bad, because payments write there.
pub mod customer {
    use super::*;
    /// C_BALANCE in cents.
    pub const BALANCE: I64 = I64(0);
    /// C_YTD_PAYMENT in cents.
    pub const YTD_PAYMENT: I64 = I64(8);
    /// C_PAYMENT_CNT.
    pub const PAYMENT_CNT: U32 = U32(16);
    /// C_DELIVERY_CNT.
    pub const DELIVERY_CNT: U32 = U32(20);
    /// C_DISCOUNT in basis points.
    pub const DISCOUNT: U16 = U16(24);
    /// C_CREDIT: [`GOOD`] or [`BAD`].
    pub const CREDIT: U16 = U16(26);
    /// C_CREDIT_LIM in cents.
    pub const CREDIT_LIM: I64 = I64(28);
    /// C_SINCE.
    pub const SINCE: U64 = U64(36);
    /// C_MIDDLE, C_STATE, C_ZIP and C_PHONE, 29 bytes.
    pub const FIXED: usize = 44;
    /// Where the strings begin.
    pub const STRINGS: usize = 73;
    /// C_CREDIT of a good customer.
    pub const GOOD: u16 = u16::from_le_bytes(*b"GC");
    /// C_CREDIT of a bad one.
    pub const BAD: u16 = u16::from_le_bytes(*b"BC");
    /// Most bytes of C_DATA.
    pub const MAX_DATA: usize = 500;

    /// Position of the length of C_DATA; its bytes follow.
    #[inline]
    pub fn data_at(row: &[u8]) -> usize {
        (0..5).fold(STRINGS, |at, _| at + 1 + usize::from(row[at]))
    }

    /// Puts `text` before C_DATA, and truncates that to 500 bytes (clause 2.5.2.2).
    pub fn prepend_data(row: &mut [u8], text: &[u8]) {
        let at = data_at(row);
        let (len, data) = (U16(at), at + 2);
        let old = usize::from(len.get(row)).min(MAX_DATA - text.len());
        row.copy_within(data..data + old, data + text.len());
        row[data..data + text.len()].copy_from_slice(text);
        len.set(row, (old + text.len()) as u16);
    }
}

/// HISTORY. String: H_DATA. H_W_ID, H_D_ID and H_DATE are in the key.
pub mod history {
    use super::*;
    /// H_AMOUNT in cents.
    pub const AMOUNT: U32 = U32(0);
    /// H_C_W_ID.
    pub const C_W_ID: U16 = U16(4);
    /// H_C_D_ID.
    pub const C_D_ID: U8 = U8(6);
    /// H_C_ID.
    pub const C_ID: U16 = U16(7);
    /// Where the string begins.
    pub const STRINGS: usize = 9;
}

/// ORDER.
pub mod order {
    use super::*;
    /// O_CARRIER_ID; 0 is null.
    pub const CARRIER_ID: U8 = U8(0);
    /// O_OL_CNT.
    pub const OL_CNT: U8 = U8(1);
    /// O_ALL_LOCAL.
    pub const ALL_LOCAL: U8 = U8(2);
    /// O_C_ID.
    pub const C_ID: U16 = U16(3);
    /// O_ENTRY_D.
    pub const ENTRY_D: U64 = U64(5);
    /// Bytes of a row.
    pub const BYTES: usize = 13;
}

/// ORDER-LINE. OL_DIST_INFO is at the end.
pub mod order_line {
    use super::*;
    /// OL_DELIVERY_D; 0 is null.
    pub const DELIVERY_D: U64 = U64(0);
    /// OL_I_ID.
    pub const I_ID: U32 = U32(8);
    /// OL_AMOUNT in cents.
    pub const AMOUNT: U32 = U32(12);
    /// OL_SUPPLY_W_ID.
    pub const SUPPLY_W_ID: U16 = U16(16);
    /// OL_QUANTITY.
    pub const QUANTITY: U8 = U8(18);
    /// OL_DIST_INFO, 24 bytes.
    pub const DIST_INFO: usize = 19;
    /// Bytes of a row.
    pub const BYTES: usize = 43;
}

/// ITEM. Strings: I_NAME, I_DATA.
pub mod item {
    use super::*;
    /// I_PRICE in cents.
    pub const PRICE: U32 = U32(0);
    /// I_IM_ID.
    pub const IM_ID: U32 = U32(4);
    /// Where the strings begin.
    pub const STRINGS: usize = 8;
}

/// STOCK. String: S_DATA.
pub mod stock {
    use super::*;
    /// S_QUANTITY.
    pub const QUANTITY: I16 = I16(0);
    /// S_YTD.
    pub const YTD: U32 = U32(2);
    /// S_ORDER_CNT.
    pub const ORDER_CNT: U32 = U32(6);
    /// S_REMOTE_CNT.
    pub const REMOTE_CNT: U32 = U32(10);
    /// S_DIST_01 to S_DIST_10, 24 bytes each.
    pub const DIST: usize = 14;
    /// Bytes of one S_DIST.
    pub const DIST_BYTES: usize = 24;
    /// Where the string begins.
    pub const STRINGS: usize = DIST + 10 * DIST_BYTES;

    /// The S_DIST of district `d`.
    #[inline]
    pub fn dist(row: &[u8], d: u8) -> &[u8] {
        let at = DIST + usize::from(d - 1) * DIST_BYTES;
        &row[at..at + DIST_BYTES]
    }
}

/// String `number` of the strings that begin at `at`.
#[inline]
pub fn string(row: &[u8], at: usize, number: usize) -> &[u8] {
    let at = (0..number).fold(at, |at, _| at + 1 + usize::from(row[at]));
    &row[at + 1..at + 1 + usize::from(row[at])]
}

/// Whether `row` has the layout of `table`: all fields, strings of a length that clause 4.3.3.1
/// allows, and no further bytes.
pub fn is_whole(table: Table, row: &[u8]) -> bool {
    const NAME: (u8, u8) = (6, 10);
    const STREET_CITY: (u8, u8) = (10, 20);
    const DATA: (u8, u8) = (26, 50);
    let end = match table {
        Table::Warehouse => {
            end_of(row, warehouse::STRINGS, &[NAME, STREET_CITY, STREET_CITY, STREET_CITY])
        }
        Table::District => {
            end_of(row, district::STRINGS, &[NAME, STREET_CITY, STREET_CITY, STREET_CITY])
        }
        Table::Customer => {
            let (first, last) = ((8, 16), (9, 15));
            let strings = [first, last, STREET_CITY, STREET_CITY, STREET_CITY];
            end_of(row, customer::STRINGS, &strings).and_then(|at| end_of_data(row, at))
        }
        Table::History => end_of(row, history::STRINGS, &[(12, 24)]),
        Table::Order => Some(order::BYTES),
        Table::OrderLine => Some(order_line::BYTES),
        Table::Item => end_of(row, item::STRINGS, &[(14, 24), DATA]),
        Table::Stock => end_of(row, stock::STRINGS, &[DATA]),
        Table::NewOrder | Table::CustomerName | Table::OrderCustomer => Some(0),
    };
    end == Some(row.len())
}

/// The end of the strings that begin at `at`, if the length of each is within its bounds.
fn end_of(row: &[u8], at: usize, bounds: &[(u8, u8)]) -> Option<usize> {
    bounds.iter().try_fold(at, |at, &(low, high)| {
        let len = *row.get(at)?;
        (low..=high).contains(&len).then_some(at + 1 + usize::from(len))
    })
}

/// The end of C_DATA, whose length is at `at`. It has 500 bytes if the credit is bad.
fn end_of_data(row: &[u8], at: usize) -> Option<usize> {
    let len = usize::from(u16::from_le_bytes(*row.get(at..)?.first_chunk()?));
    let room = if customer::CREDIT.get(row) == customer::BAD { customer::MAX_DATA } else { len };
    (300..=customer::MAX_DATA).contains(&len).then_some(at + 2 + room)
}

/// Whether I_DATA or S_DATA contains "ORIGINAL" (clause 2.4.2.2).
#[inline]
pub fn is_original(data: &[u8]) -> bool {
    let word = u64::from_ne_bytes(*b"ORIGINAL");
    data.array_windows::<8>().any(|bytes| u64::from_ne_bytes(*bytes) == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_do_not_overlap() {
        let mut row = [0; 32];
        customer::BALANCE.set(&mut row, -1000);
        assert_eq!(customer::YTD_PAYMENT.add(&mut row, 1000), 1000);
        assert_eq!(customer::BALANCE.add(&mut row, -5), -1005);
        assert_eq!((customer::BALANCE.get(&row), customer::YTD_PAYMENT.get(&row)), (-1005, 1000));
        assert_eq!(&row[16..], [0; 16]);
    }

    #[test]
    fn original_is_found_wherever_it_is() {
        assert!(
            is_original(b"ORIGINAL") && is_original(b"abORIGINAL") && is_original(b"ORIGINALab")
        );
        assert!(
            !is_original(b"ORIGINA") && !is_original(b"ORIGIN4L and more") && !is_original(b"")
        );
    }

    #[test]
    fn new_data_of_a_bad_customer_pushes_out_the_oldest() {
        let mut row = vec![0; customer::STRINGS];
        for text in ["first", "last", "", "street", "city"] {
            row.push(text.len() as u8);
            row.extend_from_slice(text.as_bytes());
        }
        let at = customer::data_at(&row);
        assert_eq!(at, row.len());
        row.extend_from_slice(&3u16.to_le_bytes());
        row.extend_from_slice(b"old");
        row.resize(at + 2 + customer::MAX_DATA, b' ');
        let whole = row.len();
        customer::prepend_data(&mut row, b"new ");
        assert_eq!(U16(at).get(&row), 7);
        assert_eq!(&row[at + 2..at + 9], b"new old");
        for _ in 0..200 {
            customer::prepend_data(&mut row, b"again ");
        }
        assert_eq!((usize::from(U16(at).get(&row)), row.len()), (customer::MAX_DATA, whole));
        assert!(row[at + 2..].starts_with(b"again again ") && row.ends_with(b"again ag"));
        assert_eq!(string(&row, customer::STRINGS, 4), b"city");
    }
}
