//! Sizes and times on the command line.

use std::time::Duration;

use crate::machine;
use crate::report::figures::bytes;

/// Units of sizes and their bytes.
const SIZES: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Units of times and their seconds; `ms` before `s`, because it ends in `s`.
const TIMES: [(&str, f64); 3] = [("ms", 0.001), ("s", 1.0), ("m", 60.0)];

/// Longest time that a flag accepts: a year.
const LONGEST_SECONDS: f64 = 366.0 * 24.0 * 3600.0;

/// A number of bytes: `4096`, `64KiB`, `1.5GiB`.
pub fn size(text: &str) -> Result<u64, String> {
    let refused = || {
        format!("\"{text}\" is not a size; write bytes or a number with KiB, MiB or GiB, as 256MiB")
    };
    let (number, unit) = SIZES
        .iter()
        .find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)))
        .unwrap_or((text, 1));
    let number = number.trim_end();
    let about = decimal(number).ok_or_else(refused)?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit).ok_or_else(refused);
    }
    let bytes = about * unit as f64;
    if unit == 1 || bytes >= u64::MAX as f64 { Err(refused()) } else { Ok(bytes.round() as u64) }
}

/// A time: `500ms`, `10s`, `1.5m`, or `0`.
pub fn time(text: &str) -> Result<Duration, String> {
    let refused =
        || format!("\"{text}\" is not a time; write a number with ms, s or m, as 500ms or 10s");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (number, unit) = TIMES
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)))
        .ok_or_else(refused)?;
    let seconds = decimal(number.trim_end()).ok_or_else(refused)? * unit;
    if seconds > LONGEST_SECONDS {
        return Err(format!("\"{text}\" is longer than a year, the longest time accepted"));
    }
    Ok(Duration::from_secs_f64(seconds))
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
    match machine::memory() {
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
            "12MB",
            "1kib",
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
        for (text, milliseconds) in
            [("0", 0), ("0s", 0), ("500ms", 500), ("10s", 10_000), ("1.5m", 90_000), ("2 s", 2_000)]
        {
            assert_eq!(time(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_times_and_the_error_has_an_example() {
        for text in ["", "10", "s", "-1s", "1h", "1e3s", "1..5s", "inf s"] {
            let sentence = time(text).unwrap_err();
            assert!(sentence.contains("500ms"), "{sentence}");
        }
        assert!(time("99999999m").unwrap_err().contains("year"));
        assert!(some_time("0ms").is_err() && some_time("1ms").is_ok());
    }
}
