//! Formatting and parsing of numbers.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Formats a number with commas between groups of three digits.
pub(crate) struct Grouped(pub(crate) u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut grouped = String::with_capacity(digits.len() * 4 / 3);
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        f.pad(&grouped)
    }
}

/// Formats a count with the singular or plural noun.
pub(crate) fn plural(count: u64, one: &str, several: &str) -> String {
    format!("{} {}", Grouped(count), if count == 1 { one } else { several })
}

/// Formats a measured number with two decimals, or three significant digits below 1: it does not become zero.
pub(crate) fn measured(number: f64) -> String {
    let is_below_one = number.is_normal() && number.abs() < 1.0;
    let decimals = if is_below_one { 2 - number.abs().log10().floor() as i32 } else { 2 };
    format!("{number:.*}", decimals.clamp(2, 12) as usize)
}

/// Formats a measured rate per second: as a whole number, or below 10 as [`measured`] does.
pub(crate) fn rate(per_second: f64) -> String {
    if per_second < 10.0 { measured(per_second) } else { format!("{per_second:.0}") }
}

/// Parses a seed.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    within(text, &(0..=u64::MAX), "whole number")
}

/// Returns the parser of a whole number in `range`.
pub(crate) fn whole<T: Number>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| within(text, &range, "whole number")
}

/// Returns the parser of a number of bytes in `range`.
pub(crate) fn bytes<T: Number>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| within(text, &range, "whole number of bytes")
}

/// A number as an option's value.
pub(crate) trait Number: Clone + fmt::Display + FromStr + PartialOrd {}

impl<T: Clone + fmt::Display + FromStr + PartialOrd> Number for T {}

fn within<T: Number>(text: &str, range: &RangeInclusive<T>, what: &str) -> Result<T, String> {
    match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("expected a {what} from {} to {}", range.start(), range.end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_range() {
        let (of_bytes, plain) = (bytes(68..=1500_u16), whole(68..=1500_u16));
        assert_eq!((of_bytes("68"), plain("1500")), (Ok(68), Ok(1500)));
        for text in ["67", "1501", "65536", "-1", "1k", "x", "", " 68", "68.5"] {
            let expected = "expected a whole number of bytes from 68 to 1500";
            assert_eq!(of_bytes(text), Err(expected.into()), "{text}");
            assert_eq!(plain(text), Err("expected a whole number from 68 to 1500".into()), "{text}");
        }
        assert_eq!(seed("-1"), Err("expected a whole number from 0 to 18446744073709551615".into()));
    }

    #[test]
    fn measured_numbers_have_two_decimals_or_three_significant_digits() {
        let cases =
            [(0.0, "0.00"), (39.156, "39.16"), (1.0, "1.00"), (0.352, "0.352"), (0.000_441_57, "0.000442")];
        for (number, text) in cases {
            assert_eq!(measured(number), text);
        }
        assert_eq!([55_345.4, 10.0, 2.0, 0.347_8].map(rate), ["55345", "10", "2.00", "0.348"]);
    }

    #[test]
    fn digits_are_grouped_in_threes() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (65_535, "65,535"), (1_234_567, "1,234,567")];
        for (number, text) in cases {
            assert_eq!(Grouped(number).to_string(), text);
        }
        assert_eq!(format!("{:>7}", Grouped(1234)), "  1,234");
        assert_eq!(plural(1, "packet", "packets"), "1 packet");
        assert_eq!(plural(2000, "packet", "packets"), "2,000 packets");
    }
}
