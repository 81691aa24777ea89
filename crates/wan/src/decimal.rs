//! Exact decimal numbers: parsing fails instead of rounding.

use std::fmt;

/// Parses a decimal number and multiplies it by `scale`. `None` if the text is not digits with at most one
/// decimal point, if the product is not an integer, or if it exceeds 64 bits.
pub fn parse(text: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let parts = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let mut number = u128::from(whole.parse::<u64>().ok()?).checked_mul(parts)?;
    if !fraction.is_empty() {
        number = number.checked_add(fraction.parse().ok()?)?;
    }
    let scaled = number.checked_mul(u128::from(scale))?;
    if scaled.is_multiple_of(parts) { u64::try_from(scaled / parts).ok() } else { None }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Writes `value / scale` exactly, in as few digits as possible; `scale` is a power of ten.
pub fn write(f: &mut fmt::Formatter<'_>, value: u64, scale: u64) -> fmt::Result {
    write!(f, "{}", value / scale)?;
    let (mut fraction, mut digits) = (value % scale, scale.ilog10() as usize);
    if fraction == 0 {
        return Ok(());
    }
    while fraction.is_multiple_of(10) {
        fraction /= 10;
        digits -= 1;
    }
    write!(f, ".{fraction:0digits$}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Decimal(u64, u64);

    impl fmt::Display for Decimal {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write(f, self.0, self.1)
        }
    }

    #[test]
    fn decimals_are_exact_or_refused() {
        assert_eq!(parse("1.5", 1000), Some(1500));
        assert_eq!(parse("0.001", 1000), Some(1));
        assert_eq!(parse("0.0010", 1000), Some(1));
        assert_eq!(parse("0.0001", 1000), None);
        assert_eq!(parse("1.5", 1), None);
        assert_eq!(parse("1.5", 1024), Some(1536));
        assert_eq!(parse("0.1", 1024), None);
        assert_eq!(parse("18446744073709551615", 1), Some(u64::MAX));
        for text in ["", ".", "1.", ".5", "-1", "+1", "1e3", "1.2.3", " 1", "18446744073709551616", "五"] {
            assert_eq!(parse(text, 1000), None, "{text}");
        }
        assert_eq!(parse("18446744073709551.616", 1000), None);
    }

    proptest! {
        #[test]
        fn written_values_parse_to_the_same_value(value: u64, zeros in 0u32..13) {
            let scale = 10u64.pow(zeros);
            prop_assert_eq!(parse(&Decimal(value, scale).to_string(), scale), Some(value));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9.%-]{0,30}", zeros in 0u32..13) {
            let _ = parse(&text, 10u64.pow(zeros));
        }
    }
}
