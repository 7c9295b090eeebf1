//! Keys as bytes whose order is that of the keys.
//!
//! GlueSQL has an encoding of its own, `Key::to_cmp_be_bytes`. It cannot be used for keys that are
//! stored: it gives 1.5 and 1.05 the same bytes, so that one row would replace the other; it orders
//! dates before the year 1 after all others; it refuses floating-point numbers; and a key cannot be
//! told from it. Here a tag comes first, which orders the types as `Key` does, then the value.
//! Signed numbers have their sign bit flipped. A text needs no end, because nothing follows it.

use crate::error::damaged;
use gluesql_core::{
    chrono::{Datelike, NaiveDate, NaiveDateTime, NaiveTime, Timelike},
    data::{Interval, Key},
    error::{Error, Result},
};
use rust_decimal::Decimal;
use std::net::IpAddr;

/// First byte of a key. `Key` orders types against their declaration, and `None` last.
mod tag {
    pub const INET: u8 = 1;
    pub const UUID: u8 = 2;
    pub const INTERVAL: u8 = 3;
    pub const TIME: u8 = 4;
    pub const TIMESTAMP: u8 = 5;
    pub const DATE: u8 = 6;
    pub const BYTEA: u8 = 7;
    pub const STR: u8 = 8;
    pub const BOOL: u8 = 9;
    pub const DECIMAL: u8 = 10;
    pub const F64: u8 = 11;
    pub const F32: u8 = 12;
    pub const U128: u8 = 13;
    pub const U64: u8 = 14;
    pub const U32: u8 = 15;
    pub const U16: u8 = 16;
    pub const U8: u8 = 17;
    pub const I128: u8 = 18;
    pub const I64: u8 = 19;
    pub const I32: u8 = 20;
    pub const I16: u8 = 21;
    pub const I8: u8 = 22;
    pub const NONE: u8 = 23;
}

/// Fractions are counted in units of 10^-28, the finest that a decimal has.
const FRACTION_DIGITS: u32 = 28;

const SIGN_64: u64 = 1 << 63;
const SIGN_32: u32 = 1 << 31;

/// Appends the bytes of a key.
pub fn encode(key: &Key, to: &mut Vec<u8>) {
    match key {
        Key::I8(v) => put(to, tag::I8, v.cast_unsigned() ^ (1 << 7), u8::to_be_bytes),
        Key::I16(v) => put(to, tag::I16, v.cast_unsigned() ^ (1 << 15), u16::to_be_bytes),
        Key::I32(v) => put(to, tag::I32, v.cast_unsigned() ^ SIGN_32, u32::to_be_bytes),
        Key::I64(v) => put(to, tag::I64, v.cast_unsigned() ^ SIGN_64, u64::to_be_bytes),
        Key::I128(v) => put(to, tag::I128, flip_128(*v), u128::to_be_bytes),
        Key::U8(v) => put(to, tag::U8, *v, u8::to_be_bytes),
        Key::U16(v) => put(to, tag::U16, *v, u16::to_be_bytes),
        Key::U32(v) => put(to, tag::U32, *v, u32::to_be_bytes),
        Key::U64(v) => put(to, tag::U64, *v, u64::to_be_bytes),
        Key::U128(v) => put(to, tag::U128, *v, u128::to_be_bytes),
        Key::F32(v) => put(to, tag::F32, order_f32(v.0.to_bits()), u32::to_be_bytes),
        Key::F64(v) => put(to, tag::F64, order_f64(v.0.to_bits()), u64::to_be_bytes),
        Key::Decimal(v) => {
            let fraction = v.fract();
            let unit = 10_i128.pow(FRACTION_DIGITS - fraction.scale());
            put(to, tag::DECIMAL, flip_128(v.trunc().mantissa()), u128::to_be_bytes);
            to.extend(flip_128(fraction.mantissa() * unit).to_be_bytes());
        }
        Key::Bool(v) => put(to, tag::BOOL, u8::from(*v), u8::to_be_bytes),
        Key::Str(v) => {
            to.push(tag::STR);
            to.extend(v.as_bytes());
        }
        Key::Bytea(v) => {
            to.push(tag::BYTEA);
            to.extend(v);
        }
        Key::Date(v) => {
            to.push(tag::DATE);
            put_date(to, *v);
        }
        Key::Timestamp(v) => {
            to.push(tag::TIMESTAMP);
            put_date(to, v.date());
            put_time(to, v.time());
        }
        Key::Time(v) => {
            to.push(tag::TIME);
            put_time(to, *v);
        }
        Key::Interval(v) => {
            to.push(tag::INTERVAL);
            match v {
                Interval::Microsecond(v) => {
                    put(to, 0, v.cast_unsigned() ^ SIGN_64, u64::to_be_bytes)
                }
                Interval::Month(v) => put(to, 1, v.cast_unsigned() ^ SIGN_32, u32::to_be_bytes),
            }
        }
        Key::Uuid(v) => put(to, tag::UUID, *v, u128::to_be_bytes),
        Key::Inet(v) => {
            to.push(tag::INET);
            match v {
                IpAddr::V4(v) => put(to, 4, v.octets(), |octets| octets),
                IpAddr::V6(v) => put(to, 6, v.octets(), |octets| octets),
            }
        }
        Key::None => to.push(tag::NONE),
    }
}

/// The key that has these bytes.
///
/// # Errors
/// No key has them.
pub fn decode(bytes: &[u8]) -> Result<Key> {
    let (&tag, rest) = bytes.split_first().ok_or_else(|| bad(bytes))?;
    let mut from = Reader { bytes, rest };
    let key = match tag {
        tag::I8 => Key::I8((from.byte()? ^ (1 << 7)).cast_signed()),
        tag::I16 => Key::I16((u16::from_be_bytes(from.take()?) ^ (1 << 15)).cast_signed()),
        tag::I32 => Key::I32(from.i32()?),
        tag::I64 => Key::I64(from.i64()?),
        tag::I128 => Key::I128(from.i128()?),
        tag::U8 => Key::U8(from.byte()?),
        tag::U16 => Key::U16(u16::from_be_bytes(from.take()?)),
        tag::U32 => Key::U32(from.u32()?),
        tag::U64 => Key::U64(u64::from_be_bytes(from.take()?)),
        tag::U128 => Key::U128(u128::from_be_bytes(from.take()?)),
        tag::F32 => Key::F32(f32::from_bits(order_f32_back(from.u32()?)).into()),
        tag::F64 => {
            Key::F64(f64::from_bits(order_f64_back(u64::from_be_bytes(from.take()?))).into())
        }
        tag::DECIMAL => Key::Decimal(from.decimal()?),
        tag::BOOL => match from.byte()? {
            0 => Key::Bool(false),
            1 => Key::Bool(true),
            _ => return Err(bad(bytes)),
        },
        tag::STR => Key::Str(from.text()?),
        tag::BYTEA => Key::Bytea(std::mem::take(&mut from.rest).to_vec()),
        tag::DATE => Key::Date(from.date()?),
        tag::TIMESTAMP => Key::Timestamp(NaiveDateTime::new(from.date()?, from.time()?)),
        tag::TIME => Key::Time(from.time()?),
        tag::INTERVAL => Key::Interval(match from.byte()? {
            0 => Interval::Microsecond(from.i64()?),
            1 => Interval::Month(from.i32()?),
            _ => return Err(bad(bytes)),
        }),
        tag::UUID => Key::Uuid(u128::from_be_bytes(from.take()?)),
        tag::INET => Key::Inet(match from.byte()? {
            4 => IpAddr::from(from.take::<4>()?),
            6 => IpAddr::from(from.take::<16>()?),
            _ => return Err(bad(bytes)),
        }),
        tag::NONE => Key::None,
        _ => return Err(bad(bytes)),
    };
    if from.rest.is_empty() { Ok(key) } else { Err(bad(bytes)) }
}

fn put<T, const N: usize>(to: &mut Vec<u8>, tag: u8, value: T, bytes: impl Fn(T) -> [u8; N]) {
    to.push(tag);
    to.extend(bytes(value));
}

fn put_date(to: &mut Vec<u8>, date: NaiveDate) {
    to.extend((date.num_days_from_ce().cast_unsigned() ^ SIGN_32).to_be_bytes());
}

/// The nanoseconds of a leap second are 10^9 and above, so it comes after its minute.
fn put_time(to: &mut Vec<u8>, time: NaiveTime) {
    to.extend(time.num_seconds_from_midnight().to_be_bytes());
    to.extend(time.nanosecond().to_be_bytes());
}

fn flip_128(value: i128) -> u128 {
    value.cast_unsigned() ^ (1 << 127)
}

/// Bits of a number in its total order: all of a negative one are flipped, else the sign.
fn order_f32(bits: u32) -> u32 {
    if bits & SIGN_32 == 0 { bits | SIGN_32 } else { !bits }
}

fn order_f32_back(bits: u32) -> u32 {
    if bits & SIGN_32 == 0 { !bits } else { bits ^ SIGN_32 }
}

fn order_f64(bits: u64) -> u64 {
    if bits & SIGN_64 == 0 { bits | SIGN_64 } else { !bits }
}

fn order_f64_back(bits: u64) -> u64 {
    if bits & SIGN_64 == 0 { !bits } else { bits ^ SIGN_64 }
}

fn bad(bytes: &[u8]) -> Error {
    damaged(format_args!("no key has the bytes {bytes:02x?}"))
}

/// The rest of the bytes of a key.
struct Reader<'a> {
    bytes: &'a [u8],
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(|| bad(self.bytes))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8> {
        self.take().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32> {
        Ok((self.u32()? ^ SIGN_32).cast_signed())
    }

    fn i64(&mut self) -> Result<i64> {
        Ok((u64::from_be_bytes(self.take()?) ^ SIGN_64).cast_signed())
    }

    fn i128(&mut self) -> Result<i128> {
        Ok((u128::from_be_bytes(self.take()?) ^ (1 << 127)).cast_signed())
    }

    fn text(&mut self) -> Result<String> {
        let bytes = std::mem::take(&mut self.rest);
        String::from_utf8(bytes.to_vec()).map_err(|_| bad(self.bytes))
    }

    fn date(&mut self) -> Result<NaiveDate> {
        NaiveDate::from_num_days_from_ce_opt(self.i32()?).ok_or_else(|| bad(self.bytes))
    }

    fn time(&mut self) -> Result<NaiveTime> {
        let (seconds, nanoseconds) = (self.u32()?, self.u32()?);
        NaiveTime::from_num_seconds_from_midnight_opt(seconds, nanoseconds)
            .ok_or_else(|| bad(self.bytes))
    }

    /// With the fewest digits that the number needs: it had at least these, so it fits.
    fn decimal(&mut self) -> Result<Decimal> {
        let (whole, mut fraction) = (self.i128()?, self.i128()?);
        let mut scale = FRACTION_DIGITS;
        while scale > 0 && fraction % 10 == 0 {
            fraction /= 10;
            scale -= 1;
        }
        let mantissa = whole.checked_mul(10_i128.pow(scale)).and_then(|v| v.checked_add(fraction));
        let mantissa = mantissa.ok_or_else(|| bad(self.bytes))?;
        Decimal::try_from_i128_with_scale(mantissa, scale).map_err(|_| bad(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gluesql_core::chrono::NaiveDate;
    use std::str::FromStr;

    fn bytes(key: &Key) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(key, &mut bytes);
        bytes
    }

    fn keys() -> Vec<Key> {
        let decimals = [
            "0",
            "1",
            "-1",
            "1.5",
            "1.05",
            "1.50",
            "-1.5",
            "-1.05",
            "-0.5",
            "0.5",
            "79228162514264337593543950335",
            "-79228162514264337593543950335",
            "7.9228162514264337593543950335",
            "0.0000000000000000000000000001",
            "-0.0000000000000000000000000001",
            "79228162514264.337593543950335",
            "100",
            "1e3",
        ];
        let decimals = decimals.map(|text| {
            Decimal::from_str(text).or_else(|_| Decimal::from_scientific(text)).expect("a decimal")
        });
        let date = |year| NaiveDate::from_ymd_opt(year, 2, 3).expect("a date");
        let time = |s, n| NaiveTime::from_num_seconds_from_midnight_opt(s, n).expect("a time");
        let times =
            [time(0, 0), time(59, 1), time(59, 1_999_999_999), time(60, 0), time(86_399, 9)];
        let mut keys = vec![Key::None, Key::Bool(false), Key::Bool(true)];
        keys.extend([i8::MIN, -1, 0, 1, i8::MAX].map(Key::I8));
        keys.extend([i16::MIN, -256, -1, 0, 1, 255, i16::MAX].map(Key::I16));
        keys.extend([i32::MIN, -1, 0, 1, 256, i32::MAX].map(Key::I32));
        keys.extend([i64::MIN, -1, 0, 1, 256, i64::MAX].map(Key::I64));
        keys.extend([i128::MIN, -1, 0, 1, i128::MAX].map(Key::I128));
        keys.extend([0, 1, u8::MAX].map(Key::U8));
        keys.extend([0, 256, u16::MAX].map(Key::U16));
        keys.extend([0, 256, u32::MAX].map(Key::U32));
        keys.extend([0, 256, u64::MAX].map(Key::U64));
        keys.extend([0, 256, u128::MAX].map(Key::U128));
        let floats = [f32::NEG_INFINITY, -2.5, -1e-40, -0.0, 0.0, 1.5, f32::INFINITY, f32::NAN];
        keys.extend(floats.map(|float| Key::F32(float.into())));
        keys.extend(floats.map(|float| Key::F64(f64::from(float).into())));
        keys.extend(decimals.map(Key::Decimal));
        keys.extend(["", "a", "a\0", "a\0b", "ab", "b", "\u{10ffff}"].map(|s| Key::Str(s.into())));
        keys.extend([&b""[..], b"\0", b"\0\0", b"\x01", b"\xff"].map(|b| Key::Bytea(b.into())));
        keys.extend([-5, 0, 1, 1970, 2026].map(|year| Key::Date(date(year))));
        for year in [-5, 2026] {
            keys.extend(times.map(|time| Key::Timestamp(NaiveDateTime::new(date(year), time))));
        }
        keys.extend(times.map(Key::Time));
        keys.extend([i32::MIN, -1, 0, 1].map(|v| Key::Interval(Interval::Month(v))));
        keys.extend([i64::MIN, -1, 0, 1].map(|v| Key::Interval(Interval::Microsecond(v))));
        keys.extend([0, 1, u128::MAX].map(Key::Uuid));
        let addresses = ["0.0.0.0", "9.255.0.1", "255.0.0.0", "::", "::1", "ffff::"];
        keys.extend(addresses.map(|text| Key::Inet(text.parse().expect("an address"))));
        keys
    }

    #[test]
    fn bytes_have_the_order_of_keys() {
        let keys = keys();
        for a in &keys {
            for b in &keys {
                assert_eq!(bytes(a).cmp(&bytes(b)), a.cmp(b), "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn a_key_is_told_from_its_bytes() {
        for key in keys() {
            let decoded = decode(&bytes(&key)).expect("decoded");
            assert!(decoded.cmp(&key).is_eq(), "{key:?} became {decoded:?}");
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for key in keys() {
            let mut longer = bytes(&key);
            longer.push(0xff);
            let takes_more = matches!(key, Key::Bytea(_));
            assert_eq!(decode(&longer).is_ok(), takes_more, "{key:?} and one more byte");
        }
        for bytes in [&[][..], &[0], &[tag::NONE + 1], &[tag::I64, 0], &[tag::BOOL, 2]] {
            assert!(decode(bytes).is_err(), "{bytes:?}");
        }
    }

    /// The reason for this encoding. When it fails, GlueSQL's own one may have become usable.
    #[test]
    fn the_bytes_of_gluesql_are_not_those_of_one_key_only() {
        let [a, b] = ["1.5", "1.05"].map(|text| Key::Decimal(text.parse().expect("a decimal")));
        assert_eq!(a.to_cmp_be_bytes(), b.to_cmp_be_bytes());
        assert_ne!(bytes(&a), bytes(&b));
        assert!(Key::F64(1.5.into()).to_cmp_be_bytes().is_err());
    }
}
