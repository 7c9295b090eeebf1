//! Keys and rows of TATP.
//!
//! | table | key | row |
//! |---|---|---|
//! | subscriber | s_id (8) | sub_nbr (15), bit_1..10 (2), hex_1..10 (5), byte2_1..10 (10), msc_location (4), vlr_location (4), seal (4) |
//! | sub-nbr | sub_nbr, 15 digits | s_id (8), seal (4): the secondary index of the subscribers |
//! | access-info | s_id (8), ai_type (1) | data1, data2 (1 each), data3 (3 letters), data4 (5 letters), seal (4) |
//! | special-facility | s_id (8), sf_type (1) | is_active, error_cntrl, data_a (1 each), data_b (5 letters), seal (4) |
//! | call-forwarding | s_id (8), sf_type, start_time (1 each) | end_time (1), numberx (15 digits), seal (4) |
//!
//! Numbers are big-endian in keys and little-endian in rows. Every row ends in a seal, with which
//! each value is checked against its key.

use super::random::between;
use crate::bench::seal;
use crate::rng::Rng;

/// The start times of call forwardings, hours.
pub const START_TIMES: [u8; 3] = [0, 8, 16];

/// Bytes of the rows.
const SUBSCRIBER: usize = 44;
const NUMBER: usize = 12;
const ACCESS_INFO: usize = 14;
const SPECIAL_FACILITY: usize = 12;
const CALL_FORWARDING: usize = 20;

/// Mean bytes of the keys and rows of a subscriber: 2.5 rows of access info, 2.5 special
/// facilities, 3.75 call forwardings.
pub const MEAN_BYTES: u64 = (8 + SUBSCRIBER + 15 + NUMBER) as u64
    + (5 * (9 + ACCESS_INFO + 9 + SPECIAL_FACILITY) / 2) as u64
    + (15 * (10 + CALL_FORWARDING) / 4) as u64;

/// Key of a subscriber.
pub fn subscriber_key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

/// The digits of `number`.
fn digits(mut number: u64) -> [u8; 15] {
    let mut digits = [b'0'; 15];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    digits
}

/// The telephone number of a subscriber: its id in 15 digits.
pub fn number_of(id: u64) -> [u8; 15] {
    digits(id)
}

/// Row of the index of telephone numbers.
pub fn number_row(id: u64) -> [u8; NUMBER] {
    let mut row = [0; NUMBER];
    row[..8].copy_from_slice(&id.to_le_bytes());
    seal::close(&number_of(id), &mut row);
    row
}

/// The subscriber in a row of the index.
pub fn read_number(number: &[u8], row: &[u8]) -> Option<u64> {
    if !seal::holds(number, row, NUMBER) {
        return None;
    }
    Some(u64::from_le_bytes(*row.first_chunk()?))
}

/// A random telephone number.
pub fn any_number(rng: &mut Rng) -> [u8; 15] {
    digits(rng.below(1_000_000_000_000_000))
}

fn letters<const N: usize>(rng: &mut Rng) -> [u8; N] {
    std::array::from_fn(|_| b'A' + rng.below(26) as u8)
}

/// A row of the subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// Its number, from 1.
    pub id: u64,
    /// bit_1 in the lowest place.
    pub bits: u16,
    /// hex_1 to hex_10, two of them in each byte.
    pub hex: [u8; 5],
    /// byte2_1 to byte2_10.
    pub bytes: [u8; 10],
    /// Location of the mobile switching centre.
    pub msc_location: u32,
    /// Last known location of the subscriber.
    pub vlr_location: u32,
}

impl Subscriber {
    /// A new subscriber.
    pub fn draw(id: u64, rng: &mut Rng) -> Self {
        Subscriber {
            id,
            bits: rng.below(1 << 10) as u16,
            hex: std::array::from_fn(|_| rng.below(256) as u8),
            bytes: std::array::from_fn(|_| rng.below(256) as u8),
            msc_location: between(rng, 1, u64::from(u32::MAX)) as u32,
            vlr_location: between(rng, 1, u64::from(u32::MAX)) as u32,
        }
    }

    /// Its row.
    pub fn encode(&self) -> [u8; SUBSCRIBER] {
        let mut row = [0; SUBSCRIBER];
        self.write(&mut row);
        row
    }

    /// Writes it to `row`.
    pub fn write(&self, row: &mut [u8]) {
        row[..15].copy_from_slice(&number_of(self.id));
        row[15..17].copy_from_slice(&self.bits.to_le_bytes());
        row[17..22].copy_from_slice(&self.hex);
        row[22..32].copy_from_slice(&self.bytes);
        row[32..36].copy_from_slice(&self.msc_location.to_le_bytes());
        row[36..40].copy_from_slice(&self.vlr_location.to_le_bytes());
        seal::close(&subscriber_key(self.id), row);
    }

    /// Subscriber `id`, if `row` is the row of it.
    pub fn decode(id: u64, row: &[u8]) -> Option<Self> {
        if !seal::holds(&subscriber_key(id), row, SUBSCRIBER) || row[..15] != number_of(id) {
            return None;
        }
        Some(Subscriber {
            id,
            bits: u16::from_le_bytes(*row[15..].first_chunk()?),
            hex: *row[17..].first_chunk()?,
            bytes: *row[22..].first_chunk()?,
            msc_location: u32::from_le_bytes(*row[32..].first_chunk()?),
            vlr_location: u32::from_le_bytes(*row[36..].first_chunk()?),
        })
    }
}

/// Key of a row of a subscriber and a type.
pub fn typed_key(id: u64, of_type: u8) -> [u8; 9] {
    let mut key = [of_type; 9];
    key[..8].copy_from_slice(&id.to_be_bytes());
    key
}

/// Subscriber and type of such a key.
pub fn split_typed_key(key: &[u8]) -> Option<(u64, u8)> {
    let (id, of_type) = key.split_first_chunk()?;
    matches!(of_type, [1..=4]).then(|| (u64::from_be_bytes(*id), of_type[0]))
}

/// A row of the access information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessInfo {
    /// The subscriber.
    pub id: u64,
    /// From 1 to 4.
    pub ai_type: u8,
    /// data1 and data2.
    pub data: [u8; 2],
    /// data3.
    pub data3: [u8; 3],
    /// data4.
    pub data4: [u8; 5],
}

impl AccessInfo {
    /// A new row.
    pub fn draw(id: u64, ai_type: u8, rng: &mut Rng) -> Self {
        let data = std::array::from_fn(|_| rng.below(256) as u8);
        AccessInfo { id, ai_type, data, data3: letters(rng), data4: letters(rng) }
    }

    /// Its key.
    pub fn key(&self) -> [u8; 9] {
        typed_key(self.id, self.ai_type)
    }

    /// Its row.
    pub fn encode(&self) -> [u8; ACCESS_INFO] {
        let mut row = [0; ACCESS_INFO];
        row[..2].copy_from_slice(&self.data);
        row[2..5].copy_from_slice(&self.data3);
        row[5..10].copy_from_slice(&self.data4);
        seal::close(&self.key(), &mut row);
        row
    }

    /// Whether `row` belongs to `key`.
    pub fn is_row(key: &[u8], row: &[u8]) -> bool {
        seal::holds(key, row, ACCESS_INFO) && row[2..10].iter().all(u8::is_ascii_uppercase)
    }
}

/// A row of the special facilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialFacility {
    /// The subscriber.
    pub id: u64,
    /// From 1 to 4.
    pub sf_type: u8,
    /// Whether it is in use.
    pub is_active: bool,
    /// error_cntrl.
    pub error_control: u8,
    /// data_a.
    pub data_a: u8,
    /// data_b.
    pub data_b: [u8; 5],
}

impl SpecialFacility {
    /// A new row.
    pub fn draw(id: u64, sf_type: u8, rng: &mut Rng) -> Self {
        SpecialFacility {
            id,
            sf_type,
            is_active: rng.below(100) < 85,
            error_control: rng.below(256) as u8,
            data_a: rng.below(256) as u8,
            data_b: letters(rng),
        }
    }

    /// Its key.
    pub fn key(&self) -> [u8; 9] {
        typed_key(self.id, self.sf_type)
    }

    /// Its row.
    pub fn encode(&self) -> [u8; SPECIAL_FACILITY] {
        let mut row = [0; SPECIAL_FACILITY];
        self.write(&mut row);
        row
    }

    /// Writes it to `row`.
    pub fn write(&self, row: &mut [u8]) {
        row[..3].copy_from_slice(&[u8::from(self.is_active), self.error_control, self.data_a]);
        row[3..8].copy_from_slice(&self.data_b);
        seal::close(&self.key(), row);
    }

    /// The facility in `row`, if `row` belongs to `key`.
    pub fn decode(key: &[u8], row: &[u8]) -> Option<Self> {
        let (id, sf_type) = split_typed_key(key)?;
        if !seal::holds(key, row, SPECIAL_FACILITY) || row[0] > 1 {
            return None;
        }
        let data_b = *row[3..].first_chunk()?;
        let (is_active, error_control, data_a) = (row[0] == 1, row[1], row[2]);
        Some(SpecialFacility { id, sf_type, is_active, error_control, data_a, data_b })
    }
}

/// A row of the call forwardings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallForwarding {
    /// The subscriber.
    pub id: u64,
    /// The special facility.
    pub sf_type: u8,
    /// First hour of the forwarding: 0, 8 or 16.
    pub start_time: u8,
    /// Hour at which the forwarding ends.
    pub end_time: u8,
    /// The number to which calls go.
    pub number: [u8; 15],
}

/// Key of a call forwarding.
pub fn forwarding_key(id: u64, sf_type: u8, start_time: u8) -> [u8; 10] {
    let mut key = [start_time; 10];
    key[..9].copy_from_slice(&typed_key(id, sf_type));
    key
}

impl CallForwarding {
    /// A new row.
    pub fn draw(id: u64, sf_type: u8, start_time: u8, rng: &mut Rng) -> Self {
        let end_time = start_time + between(rng, 1, 8) as u8;
        CallForwarding { id, sf_type, start_time, end_time, number: any_number(rng) }
    }

    /// Its key.
    pub fn key(&self) -> [u8; 10] {
        forwarding_key(self.id, self.sf_type, self.start_time)
    }

    /// Its row.
    pub fn encode(&self) -> [u8; CALL_FORWARDING] {
        let mut row = [0; CALL_FORWARDING];
        row[0] = self.end_time;
        row[1..16].copy_from_slice(&self.number);
        seal::close(&self.key(), &mut row);
        row
    }

    /// The call forwarding in `row`, if `row` belongs to `key`.
    pub fn decode(key: &[u8], row: &[u8]) -> Option<Self> {
        let (start_time, typed) = key.split_last()?;
        let (id, sf_type) = split_typed_key(typed)?;
        if !seal::holds(key, row, CALL_FORWARDING) {
            return None;
        }
        let (end_time, number) = (row[0], *row[1..].first_chunk()?);
        let found = CallForwarding { id, sf_type, start_time: *start_time, end_time, number };
        let in_order = START_TIMES.contains(start_time)
            && (start_time + 1..=start_time + 8).contains(&end_time);
        (in_order && number.iter().all(u8::is_ascii_digit)).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_and_belong_to_their_key_only() {
        let rng = &mut Rng::new(1, 1);
        for id in [1, 99, 4_000_000_000] {
            let row = Subscriber::draw(id, rng);
            assert_eq!(Subscriber::decode(id, &row.encode()), Some(row));
            assert_eq!(Subscriber::decode(id + 1, &row.encode()), None);
            assert_eq!(read_number(&number_of(id), &number_row(id)), Some(id));
            assert_eq!(read_number(&number_of(id + 1), &number_row(id)), None);
            let row = AccessInfo::draw(id, 2, rng);
            assert!(AccessInfo::is_row(&row.key(), &row.encode()));
            assert!(!AccessInfo::is_row(&typed_key(id, 3), &row.encode()));
            let row = SpecialFacility::draw(id, 4, rng);
            assert_eq!(SpecialFacility::decode(&row.key(), &row.encode()), Some(row));
            assert_eq!(SpecialFacility::decode(&typed_key(id, 3), &row.encode()), None);
            let row = CallForwarding::draw(id, 1, 8, rng);
            assert_eq!(CallForwarding::decode(&row.key(), &row.encode()), Some(row));
            assert_eq!(CallForwarding::decode(&forwarding_key(id, 1, 16), &row.encode()), None);
        }
        assert_eq!(number_of(42), *b"000000000000042");
        assert_eq!(split_typed_key(&typed_key(7, 5)), None);
    }
}
