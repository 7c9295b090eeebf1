//! Sizes, times and counts on the command line.

use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use bytesize::ByteSize;

use crate::report::figures::bytes;

/// Units of times with a fraction, as `1.5m`, and their seconds; `humantime` reads only integers.
const FRACTIONS: [(&str, f64); 5] =
    [("ms", 0.001), ("us", 1e-6), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// Suffixes of counts.
const THOUSANDS: [(&str, f64); 3] = [("k", 1e3), ("M", 1e6), ("G", 1e9)];

/// Longest time that a flag accepts: a year.
const LONGEST_SECONDS: f64 = 366.0 * 24.0 * 3600.0;

/// Integers up to here are exact in a floating-point number.
const EXACT: f64 = (1u64 << 53) as f64;

/// A number of bytes: `4096`, `64KiB`, `1.5GiB`, `256MB`, `1e6`.
pub fn size(text: &str) -> Result<u64, String> {
    let refused = || {
        format!(
            "\"{text}\" is not a size; write bytes or a number with KiB, MiB, GiB, KB, MB or GB, \
             as 256MiB"
        )
    };
    if let Ok(bytes) = text.parse::<u64>()
        && !text.starts_with('+')
    {
        return Ok(bytes);
    }
    if let Some(bytes) = power_of_ten(text) {
        return Ok(bytes);
    }
    let end = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number = end.trim_end();
    if end.len() == text.len() || decimal(number).is_none() {
        return Err(refused());
    }
    let bytes = text.parse::<ByteSize>().map_err(|_| refused())?.as_u64();
    // Too large for 64 bits.
    if bytes == u64::MAX { Err(refused()) } else { Ok(bytes) }
}

/// A time: `500ms`, `10s`, `1.5m`, `1h`, `1h 30m`, or `0`.
pub fn time(text: &str) -> Result<Duration, String> {
    let refused = || {
        format!("\"{text}\" is not a time; write a number with us, ms, s, m or h, as 500ms or 10s")
    };
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    // To `humantime` an M is a month; a user may mean minutes, or a million.
    if text.contains('M') {
        return Err(format!("{}; M would be months: write 1m for a minute", refused()));
    }
    let seconds = FRACTIONS
        .iter()
        .find_map(|(unit, seconds)| Some(decimal(text.strip_suffix(unit)?.trim_end())? * seconds));
    let seconds = match seconds {
        Some(seconds) => seconds,
        None => humantime::parse_duration(text).map_err(|_| refused())?.as_secs_f64(),
    };
    if seconds > LONGEST_SECONDS {
        return Err(format!("\"{text}\" is longer than a year, the longest time accepted"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Reads a number of things within `range`: `1000000`, `1_000_000`, `1e6`, `1M`, `2.5k`.
pub fn count<R>(range: R) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static
where
    R: RangeBounds<u64> + Debug + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = number(text).ok_or_else(|| {
            format!("\"{text}\" is not a number; write an integer, as 1000000, 1e6 or 1M")
        })?;
        if range.contains(&number) {
            return Ok(number);
        }
        // As clap says it for integers.
        let low = match range.start_bound() {
            Bound::Included(low) => low.to_string(),
            _ => "0".to_owned(),
        };
        let high = match range.end_bound() {
            Bound::Included(high) => format!("={high}"),
            _ => String::new(),
        };
        Err(format!("{number} is not in {low}..{high}"))
    }
}

fn number(text: &str) -> Option<u64> {
    let plain = text.replace('_', "");
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if digits(&plain) && !text.starts_with('_') {
        return plain.parse().ok();
    }
    if let Some(number) = power_of_ten(text) {
        return Some(number);
    }
    THOUSANDS.iter().find_map(|(unit, times)| integer(decimal(text.strip_suffix(unit)?)? * times))
}

/// `1e6` or `2.5e3`.
fn power_of_ten(text: &str) -> Option<u64> {
    let (number, exponent) = text.split_once('e')?;
    let exponent: u32 = exponent.parse().ok().filter(|_| !exponent.starts_with('+'))?;
    integer(decimal(number)? * 10f64.powi(i32::try_from(exponent).ok()?))
}

fn integer(number: f64) -> Option<u64> {
    let near = number.round();
    ((number - near).abs() < 1e-6 && near < EXACT).then_some(near as u64)
}

/// A time that is not zero.
pub fn some_time(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if time.is_zero() { Err("the time must be above 0, as 10s".to_owned()) } else { Ok(time) }
}

/// A size that is not zero.
pub fn some_size(text: &str) -> Result<u64, String> {
    let size = size(text)?;
    if size == 0 { Err("the size must be above 0, as 100 or 4KiB".to_owned()) } else { Ok(size) }
}

/// Bytes of a buffer pool, at most the memory of the machine: a larger pool would fill it, and the
/// kernel would end the process in the middle of its work.
pub fn pool_size(text: &str) -> Result<u64, String> {
    let size = some_size(text)?;
    match wattle::memory_limit() {
        Some(memory) if size > memory => {
            Err(format!("the pool must fit into the {} of memory of this machine", bytes(memory)))
        }
        _ => Ok(size),
    }
}

/// A number of digits with at most one point, without sign or exponent.
fn decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    (plain && !text.starts_with('.') && !text.ends_with('.')).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_all_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64KiB", 64 << 10),
            ("256MiB", 256 << 20),
            ("1.5GiB", 3 << 29),
            ("8 GiB", 8 << 30),
            ("256MB", 256_000_000),
            ("64k", 64_000),
            ("1.5 gb", 1_500_000_000),
            ("1e6", 1_000_000),
            ("2.5e3", 2500),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_sizes_and_the_error_has_an_example() {
        for text in [
            "",
            "x",
            "-1",
            "1.5",
            "12XB",
            "1e-3",
            "1e400",
            "1.5e0",
            "MiB",
            ".5MiB",
            "1e3KiB",
            "1.2.3KiB",
            "NaNMiB",
            "99999999999GiB",
            "99999999999.5GiB",
            "18446744073709551616",
            "+5",
        ] {
            let sentence = size(text).unwrap_err();
            assert!(sentence.contains("256MiB") && sentence.contains(text), "{sentence}");
        }
        assert!(some_size("0KiB").is_err());
    }

    #[test]
    fn times_are_read_with_all_units() {
        for (text, milliseconds) in [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500),
            ("10s", 10_000),
            ("1.5m", 90_000),
            ("2 s", 2_000),
            ("1h", 3_600_000),
            ("1h 30m", 5_400_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_times_and_the_error_has_an_example() {
        for text in ["", "10", "s", "-1s", "1x", "1e3s", "1..5s", "inf s"] {
            let sentence = time(text).unwrap_err();
            assert!(sentence.contains("500ms"), "{sentence}");
        }
        assert!(time("99999999m").unwrap_err().contains("year"));
        for months in ["1M", "2 M", "1h 1M"] {
            assert!(time(months).unwrap_err().contains("M would be months"), "{months}");
        }
        assert!(some_time("0ms").is_err() && some_time("1ms").is_ok());
    }

    #[test]
    fn counts_are_read_with_suffixes_and_powers_and_kept_in_their_range() {
        let read = count(1..=10_000_000);
        for (text, number) in [
            ("1", 1),
            ("1000000", 1_000_000),
            ("1_000_000", 1_000_000),
            ("1e6", 1_000_000),
            ("2.5k", 2500),
            ("1k", 1000),
            ("10M", 10_000_000),
        ] {
            assert_eq!(read(text), Ok(number), "{text}");
        }
        for text in ["", "x", "-1", "+1", "_1", "1.5", "0.0001k", "1e", "1K B", "1e99", "1ee3"] {
            assert!(read(text).unwrap_err().contains("1e6"), "{text}");
        }
        assert_eq!(read("0").unwrap_err(), "0 is not in 1..=10000000");
        assert_eq!(read("11M").unwrap_err(), "11000000 is not in 1..=10000000");
        assert_eq!(count(1..)("0").unwrap_err(), "0 is not in 1..");
        assert_eq!(count(..=5)("6").unwrap_err(), "6 is not in 0..=5");
    }
}
