//! What the benchmarks share: arguments of the form `name=value`, and medians.

/// The text of argument `name=..`, or a default.
pub fn text(name: &str, default: &str) -> String {
    std::env::args()
        .filter_map(|argument| Some(argument.strip_prefix(name)?.strip_prefix('=')?.to_string()))
        .next()
        .unwrap_or_else(|| default.to_string())
}

/// The number of argument `name=..`, or a default.
///
/// # Panics
/// If it is no number.
pub fn argument(name: &str, default: usize) -> usize {
    let text = text(name, &default.to_string());
    text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}"))
}

/// The middle one of some numbers.
///
/// # Panics
/// If there are none.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
