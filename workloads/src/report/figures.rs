//! Numbers as text.

/// A count with a comma between thousands.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate: a whole number from 100 on, with a comma between thousands, and three digits below.
pub fn rate(value: f64) -> String {
    if value >= 99.95 { count(value.round() as u64) } else { significant(value) }
}

/// A number of bytes, in the largest unit that is not above it.
pub fn bytes(value: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in UNITS {
        if value >= 1 << shift {
            let scaled = value as f64 / (1u64 << shift) as f64;
            return if value.is_multiple_of(1 << shift) {
                format!("{scaled} {unit}")
            } else {
                format!("{scaled:.1} {unit}")
            };
        }
    }
    format!("{value} B")
}

/// A number with three significant digits, never in scientific notation.
pub fn significant(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => count(value.round() as u64),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        size if size >= 0.001 => format!("{value:.3}"),
        _ => format!("{value:.6}"),
    }
}

/// A time in seconds.
pub fn seconds(value: f64) -> String {
    format!("{value:.2} s")
}

/// A noun with its number.
pub fn plural(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{} {}", count(number), many(noun)) }
}

/// The plural of a noun.
pub fn many(noun: &str) -> String {
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if noun.ends_with('s') || noun.ends_with("ch") => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

/// Lines of columns after `indent`: the first column is aligned to the left, the others to the
/// right, each as wide as its widest cell.
pub fn table(indent: &str, rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        text.push_str(indent);
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let padded = match column {
                0 => format!("{cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            };
            text.push_str(&padded);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// A field of a CSV line, in quotes if it has a comma, a quote or the end of a line.
pub fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_rates_have_commas() {
        let counts: Vec<String> = [0, 999, 1000, 1_234_567].map(count).to_vec();
        assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([rate(1234.5), rate(99.97), rate(0.5)], ["1,235", "100", "0.500"]);
    }

    #[test]
    fn one_of_a_kind_is_in_the_singular() {
        for (noun, many) in [
            ("page", "pages"),
            ("page access", "page accesses"),
            ("branch", "branches"),
            ("try", "tries"),
            ("key", "keys"),
            ("way", "ways"),
        ] {
            assert_eq!(plural(1, noun), format!("1 {noun}"));
            assert_eq!(plural(0, noun), format!("0 {many}"));
            assert_eq!(plural(1234, noun), format!("1,234 {many}"));
        }
    }

    #[test]
    fn bytes_use_the_largest_unit_that_fits() {
        let sizes = [12, 1024, 1536, 256 << 20, (3 << 30) + (1 << 29)].map(bytes);
        assert_eq!(sizes, ["12 B", "1 KiB", "1.5 KiB", "256 MiB", "3.5 GiB"]);
    }

    #[test]
    fn three_digits_count() {
        let numbers = [0.0, 0.1234, 1.2345, 12.345, 123.45, 12345.6].map(significant);
        assert_eq!(numbers, ["0", "0.123", "1.23", "12.3", "123", "12,346"]);
    }

    #[test]
    fn columns_line_up() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let text = table("  ", &[row(["", "p50"]), row(["read", "1"]), row(["update", "12.5"])]);
        assert_eq!(text, "           p50\n  read       1\n  update  12.5\n");
    }
}
