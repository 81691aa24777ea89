//! Formatting of measured numbers.

/// Formats a number with four significant digits, or all digits before the decimal point.
pub(super) fn significant(number: f64) -> String {
    const DIGITS: i32 = 4;
    if number == 0.0 || !number.is_finite() {
        return number.to_string();
    }
    let magnitude = number.abs().log10().floor() as i32;
    let decimals = (DIGITS - 1 - magnitude).clamp(0, 12) as usize;
    let text = format!("{number:.decimals$}");
    match text.split_once('.') {
        Some((whole, fraction)) => {
            let fraction = fraction.trim_end_matches('0');
            if fraction.is_empty() { whole.into() } else { format!("{whole}.{fraction}") }
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits_count() {
        for (number, text) in [
            (0.0, "0"),
            (4.750001, "4.75"),
            (913.26, "913.3"),
            (1000.0, "1000"),
            (123_456.7, "123457"),
            (0.012_345_6, "0.01235"),
            (-28.0, "-28"),
            (9.9996, "10"),
        ] {
            assert_eq!(significant(number), text);
        }
    }
}
