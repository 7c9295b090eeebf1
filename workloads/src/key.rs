//! Keys of records from their numbers.
//!
//! As in the YCSB core package, key numbers are hashed by 64-bit FNV-1a (`insertorder=hashed`), so
//! that records loaded one after the other are spread over the key space, and popular records are
//! not neighbours. Two encodings of the hash:
//!
//! - 8 bytes: the hash, big-endian, so that bytes compare as numbers do;
//! - 24 bytes and more: `user` and the hash in decimal, zero-padded to the key size.
//!
//! Key numbers below 2^32 have different hashes (a test below proves it), and `--records` ends
//! there.

/// Key numbers below this one have different keys: the limit of `--records`.
pub const MAX_RECORDS: u64 = 1 << 32;

/// Size of the shortest decimal key: `user` and the 20 digits of a 64-bit number.
pub const MIN_DECIMAL_BYTES: usize = 24;

/// Size of the binary key.
pub const BINARY_BYTES: usize = 8;

/// Longest key that the store accepts.
pub const MAX_BYTES: usize = 1024;

const PREFIX: &[u8; 4] = b"user";

/// 64-bit FNV-1a over the eight bytes of `number`, lowest first, as `Utils.fnvhash64` of the core
/// package (which then drops the sign; this keeps all 64 bits).
#[inline]
pub fn fnv1a(number: u64) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325u64;
    for byte in number.to_le_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    hash
}

/// The encoding of keys, and the size of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFormat {
    bytes: usize,
}

impl KeyFormat {
    /// The format of keys of `bytes` bytes, or a sentence with the accepted sizes.
    pub fn new(bytes: usize) -> Result<Self, String> {
        if bytes == BINARY_BYTES || (MIN_DECIMAL_BYTES..=MAX_BYTES).contains(&bytes) {
            return Ok(Self { bytes });
        }
        Err(format!(
            "a key has {BINARY_BYTES} bytes (binary) or {MIN_DECIMAL_BYTES} to {MAX_BYTES} bytes \
             (\"user\" and zero-padded digits), not {bytes}"
        ))
    }

    /// Size of every key.
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// Writes the key of record `number` into `key`, and replaces its contents.
    #[inline]
    pub fn write(self, number: u64, key: &mut Vec<u8>) {
        let hash = fnv1a(number);
        key.clear();
        if self.bytes == BINARY_BYTES {
            key.extend_from_slice(&hash.to_be_bytes());
            return;
        }
        key.extend_from_slice(PREFIX);
        key.resize(self.bytes, b'0');
        write_decimal(hash, key);
    }

    /// The key of record `number`.
    pub fn key(self, number: u64) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.bytes);
        self.write(number, &mut key);
        key
    }
}

/// Writes the digits of `number` to the end of `text`, two at a time: one division by 100 takes
/// less than half of the time of two divisions by 10, and every operation calls this.
#[inline]
fn write_decimal(mut number: u64, text: &mut [u8]) {
    const PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
                                2021222324252627282930313233343536373839\
                                4041424344454647484950515253545556575859\
                                6061626364656667686970717273747576777879\
                                8081828384858687888990919293949596979899";
    for pair in text.rchunks_exact_mut(2).take(10) {
        let digits = (number % 100) as usize * 2;
        pair.copy_from_slice(&PAIRS[digits..digits + 2]);
        number /= 100;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a_of_the_core_package() {
        // Utils.fnvhash64 of 0 and 1, before it drops the sign.
        assert_eq!(fnv1a(0), 0xA8C7_F832_281A_39C5);
        assert_eq!(fnv1a(1), 0x89CD_3129_1D2A_EFA4);
    }

    #[test]
    fn decimal_keys_are_padded_and_binary_keys_sort_as_numbers() {
        let decimal = KeyFormat::new(24).unwrap();
        assert_eq!(decimal.key(0), format!("user{:020}", fnv1a(0)).into_bytes());
        let long = KeyFormat::new(40).unwrap();
        assert_eq!(long.key(9), format!("user{:036}", fnv1a(9)).into_bytes());
        let odd = KeyFormat::new(25).unwrap();
        assert_eq!(odd.key(3), format!("user{:021}", fnv1a(3)).into_bytes());
        let binary = KeyFormat::new(8).unwrap();
        assert_eq!(binary.key(1), fnv1a(1).to_be_bytes());
        for (a, b) in [(1u64, 2u64), (5, 1000), (77, 78)] {
            assert_eq!(binary.key(a).cmp(&binary.key(b)), fnv1a(a).cmp(&fnv1a(b)));
            assert_eq!(decimal.key(a).cmp(&decimal.key(b)), fnv1a(a).cmp(&fnv1a(b)));
        }
    }

    #[test]
    fn other_sizes_are_refused_with_what_is_accepted() {
        for bytes in [0, 7, 9, 23, 1025] {
            let sentence = KeyFormat::new(bytes).unwrap_err();
            assert!(sentence.contains("8 bytes") && sentence.contains("24 to 1024"), "{sentence}");
        }
    }

    /// The four last steps hash zero bytes, each a bijection. The fourth changes only the lowest
    /// byte before it multiplies, so two numbers can only meet there if the upper 56 bits after
    /// three steps meet, and those can be enumerated.
    #[test]
    fn all_numbers_below_2_to_the_32_have_different_hashes() {
        let three_steps = |number: u32| {
            let mut hash = 0xCBF2_9CE4_8422_2325u64;
            for byte in &number.to_le_bytes()[..3] {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
            }
            hash >> 8
        };
        let mut upper: Vec<u64> = (0..1 << 24).map(three_steps).collect();
        upper.sort_unstable();
        assert!(upper.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
