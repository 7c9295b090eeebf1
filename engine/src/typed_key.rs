//! Encodings of keys that compare, byte by byte, as the values do.
//!
//! | type | bytes |
//! |---|---|
//! | `u8` to `u128` | big-endian |
//! | `i8` to `i128` | big-endian, with the sign bit flipped |
//! | `f32`, `f64` | the bits, flipped so that they compare as `total_cmp` does |
//! | `bool` | 0 or 1 |
//! | `char` | as `u32` |
//! | `String`, `Vec<u8>` | the bytes, each zero byte followed by 255; then two zero bytes |
//! | `[u8; N]` | the bytes: 16 of them are a UUID |
//! | `Option` | 0, or 1 and the value: `None` is the least |
//! | tuples | one after the other |
//!
//! No encoding is the beginning of another one of its type, so they may follow each other. The keys
//! of a tuple that begin with some of its elements are those with a prefix: their encodings.

use wattle_buffer::{Error, Result};

/// A type that is a key of a [`crate::TypedTree`]. Its encodings must compare as its values do, and
/// none may be the beginning of another one.
///
/// ```
/// use wattle::TypedKey;
/// let keys = [i64::MIN, -1, 0, 1, i64::MAX].map(|number| number.encoded());
/// assert!(keys.is_sorted());
/// let keys = [("a", 2), ("a", 10), ("aa", 1), ("b", 0)];
/// assert!(keys.map(|(name, number)| (name.to_string(), number).encoded()).is_sorted());
/// ```
pub trait TypedKey: Sized {
    /// Appends the encoding.
    fn encode_to(&self, bytes: &mut Vec<u8>);

    /// Decodes a value from the beginning of `bytes`, and moves `bytes` past it.
    ///
    /// # Errors
    /// [`Error::Decode`]: they do not begin with an encoding.
    fn decode_from(bytes: &mut &[u8]) -> Result<Self>;

    /// The encoding.
    fn encoded(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode_to(&mut bytes);
        bytes
    }

    /// Decodes a whole key.
    ///
    /// # Errors
    /// [`Error::Decode`]: the bytes are no encoding.
    fn decoded(mut bytes: &[u8]) -> Result<Self> {
        let value = Self::decode_from(&mut bytes)?;
        match bytes.len() {
            0 => Ok(value),
            more => Err(Error::Decode(format!("{more} bytes follow the key"))),
        }
    }
}

fn short<T>() -> Result<T> {
    Err(Error::Decode("the key is cut short".to_string()))
}

/// Takes `N` bytes from the beginning.
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N]> {
    let Some((first, rest)) = bytes.split_first_chunk() else { return short() };
    *bytes = rest;
    Ok(*first)
}

macro_rules! unsigned {
    ($($type:ty),*) => {$(
        impl TypedKey for $type {
            fn encode_to(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_be_bytes());
            }

            fn decode_from(bytes: &mut &[u8]) -> Result<Self> {
                Ok(Self::from_be_bytes(take(bytes)?))
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64, u128);

macro_rules! signed {
    ($($type:ty),*) => {$(
        impl TypedKey for $type {
            fn encode_to(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&(self ^ Self::MIN).to_be_bytes());
            }

            fn decode_from(bytes: &mut &[u8]) -> Result<Self> {
                Ok(Self::from_be_bytes(take(bytes)?) ^ Self::MIN)
            }
        }
    )*};
}

signed!(i8, i16, i32, i64, i128);

macro_rules! floats {
    ($($type:ty, $bits:ty);*) => {$(
        impl TypedKey for $type {
            fn encode_to(&self, bytes: &mut Vec<u8>) {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = self.to_bits();
                let ordered = if bits & SIGN == 0 { bits | SIGN } else { !bits };
                bytes.extend_from_slice(&ordered.to_be_bytes());
            }

            fn decode_from(bytes: &mut &[u8]) -> Result<Self> {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let ordered = <$bits>::from_be_bytes(take(bytes)?);
                let bits = if ordered & SIGN == 0 { !ordered } else { ordered & !SIGN };
                Ok(Self::from_bits(bits))
            }
        }
    )*};
}

floats!(f32, u32; f64, u64);

impl TypedKey for bool {
    fn encode_to(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(*self));
    }

    fn decode_from(bytes: &mut &[u8]) -> Result<Self> {
        match take(bytes)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [byte] => Err(Error::Decode(format!("the byte {byte} is no bool"))),
        }
    }
}

impl TypedKey for char {
    fn encode_to(&self, bytes: &mut Vec<u8>) {
        u32::from(*self).encode_to(bytes);
    }

    fn decode_from(bytes: &mut &[u8]) -> Result<Self> {
        let code = u32::decode_from(bytes)?;
        char::from_u32(code).ok_or_else(|| Error::Decode(format!("{code:#x} is no character")))
    }
}

impl<const N: usize> TypedKey for [u8; N] {
    fn encode_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self);
    }

    fn decode_from(bytes: &mut &[u8]) -> Result<Self> {
        take(bytes)
    }
}

/// Follows a zero byte of a string. Two zero bytes end it.
const ESCAPED: u8 = 255;

fn encode_bytes(string: &[u8], bytes: &mut Vec<u8>) {
    for byte in string {
        bytes.push(*byte);
        if *byte == 0 {
            bytes.push(ESCAPED);
        }
    }
    bytes.extend_from_slice(&[0, 0]);
}

impl TypedKey for Vec<u8> {
    fn encode_to(&self, bytes: &mut Vec<u8>) {
        encode_bytes(self, bytes);
    }

    fn decode_from(bytes: &mut &[u8]) -> Result<Self> {
        let mut string = Vec::new();
        loop {
            let zero = bytes.iter().position(|byte| *byte == 0);
            let Some((before, rest)) = zero.and_then(|zero| bytes.split_at_checked(zero)) else {
                return short();
            };
            string.extend_from_slice(before);
            let &[_, next, ref rest @ ..] = rest else { return short() };
            *bytes = rest;
            match next {
                0 => return Ok(string),
                ESCAPED => string.push(0),
                other => {
                    let what = format!("a zero byte of a string is followed by {other}");
                    return Err(Error::Decode(what));
                }
            }
        }
    }
}

impl TypedKey for String {
    fn encode_to(&self, bytes: &mut Vec<u8>) {
        encode_bytes(self.as_bytes(), bytes);
    }

    fn decode_from(bytes: &mut &[u8]) -> Result<Self> {
        let string = String::from_utf8(Vec::decode_from(bytes)?);
        string.map_err(|error| Error::Decode(format!("a string is no UTF-8: {error}")))
    }
}

impl<K: TypedKey> TypedKey for Option<K> {
    fn encode_to(&self, bytes: &mut Vec<u8>) {
        self.is_some().encode_to(bytes);
        if let Some(value) = self {
            value.encode_to(bytes);
        }
    }

    fn decode_from(bytes: &mut &[u8]) -> Result<Self> {
        Ok(match bool::decode_from(bytes)? {
            true => Some(K::decode_from(bytes)?),
            false => None,
        })
    }
}

impl TypedKey for () {
    fn encode_to(&self, _: &mut Vec<u8>) {}

    fn decode_from(_: &mut &[u8]) -> Result<Self> {
        Ok(())
    }
}

macro_rules! tuples {
    ($($($name:ident $at:tt),+;)*) => {$(
        impl<$($name: TypedKey),+> TypedKey for ($($name,)+) {
            fn encode_to(&self, bytes: &mut Vec<u8>) {
                $(self.$at.encode_to(bytes);)+
            }

            fn decode_from(bytes: &mut &[u8]) -> Result<Self> {
                Ok(($($name::decode_from(bytes)?,)+))
            }
        }
    )*};
}

tuples! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{cmp::Ordering, fmt::Debug};

    fn check<K: TypedKey + Debug + Clone>(
        one: &K,
        other: &K,
        expected: Ordering,
        same: impl Fn(&K, &K) -> bool,
    ) {
        let [first, second] = [one, other].map(TypedKey::encoded);
        assert_eq!(first.cmp(&second), expected, "{one:?} and {other:?}");
        for (key, bytes) in [(one, &first), (other, &second)] {
            assert!(same(&K::decoded(bytes).expect("its own encoding"), key), "{key:?}");
            for cut in 0..bytes.len() {
                assert!(K::decoded(&bytes[..cut]).is_err(), "{cut} bytes of {key:?}");
            }
        }
    }

    fn ordered<K: TypedKey + Ord + Debug + Clone>(one: &K, other: &K) {
        check(one, other, one.cmp(other), |a, b| a == b);
    }

    /// Strings of few different bytes, zeros among them.
    fn string() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0_u8), Just(1), Just(254), Just(255), any::<u8>()];
        proptest::collection::vec(byte, 0..6)
    }

    proptest! {
        #[test]
        fn encodings_compare_as_the_values_do(
            a in any::<(i8, u16, i32, u64, i128)>(),
            b in any::<(i8, u16, i32, u64, i128)>(),
            (c, d) in (any::<(bool, char, u128)>(), any::<(bool, char, u128)>()),
        ) {
            ordered(&a, &b);
            ordered(&(a.0, b.1), &(a.0, a.1));
            ordered(&c, &d);
        }

        #[test]
        fn strings_compare_as_strings_also_before_other_elements(
            (a, b) in (string(), string()), (c, d) in (string(), string()),
            (e, f) in (any::<Option<i16>>(), any::<Option<i16>>()),
        ) {
            ordered(&a, &b);
            ordered(&(a.clone(), c.clone(), e), &(b.clone(), d.clone(), f));
            ordered(&(a.clone(), c, e), &(a, d, f));
            let [text, other] = [b, vec![b'x']].map(|b| String::from_utf8_lossy(&b).into_owned());
            ordered(&(text.clone(), e), &(other, f));
        }

        #[test]
        fn floats_compare_in_their_total_order(a in any::<u64>(), b in any::<u64>()) {
            let numbers = [f64::from_bits(a), f64::from_bits(b), 0.0, -0.0, f64::INFINITY, 1.5];
            for one in numbers {
                for other in numbers {
                    let same = |a: &f64, b: &f64| a.to_bits() == b.to_bits();
                    check(&one, &other, one.total_cmp(&other), same);
                    let (one, other) = (one as f32, other as f32);
                    let same = |a: &f32, b: &f32| a.to_bits() == b.to_bits();
                    check(&one, &other, one.total_cmp(&other), same);
                }
            }
        }

        #[test]
        fn any_bytes_decode_to_a_key_or_an_error(bytes in string()) {
            type Wide = (String, Vec<u8>, Option<char>, [u8; 2], f32);
            if let Ok(key) = Wide::decoded(&bytes) {
                prop_assert_eq!(key.encoded(), bytes.clone());
            }
            if let Ok(key) = <(Vec<u8>, bool)>::decoded(&bytes) {
                prop_assert_eq!(key.encoded(), bytes);
            }
        }
    }
}
