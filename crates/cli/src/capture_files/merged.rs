//! The comment of an aggregate, for people who read it in Wireshark and for `nichrome segment`.

use std::fmt;
use std::str::FromStr;

/// Properties of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Merged<'a> {
    pub(crate) segments: usize,
    /// Maximum payload of a segment, in bytes.
    pub(crate) mss: u16,
    /// The flush reason.
    pub(crate) reason: &'a str,
    /// True if all segments had the same IPv4 identification.
    pub(crate) has_fixed_identification: bool,
}

const FIXED_IDENTIFICATION: &str = ", fixed identification";

impl fmt::Display for Merged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segments, mss, reason, has_fixed_identification } = self;
        let identification = if *has_fixed_identification { FIXED_IDENTIFICATION } else { "" };
        write!(f, "nichrome: {segments} segments, MSS {mss}, flush {reason}{identification}")
    }
}

impl<'a> Merged<'a> {
    /// Parses a comment; returns the remaining lines too. `None` if it is not an aggregate's.
    pub(crate) fn parse(comment: &'a str) -> Option<(Self, Option<&'a str>)> {
        let (line, rest) = match comment.split_once('\n') {
            Some((line, rest)) => (line, Some(rest)),
            None => (comment, None),
        };
        let (segments, line) = number(line.strip_prefix("nichrome: ")?)?;
        let (mss, line) = number(line.strip_prefix(" segments, MSS ")?)?;
        let reason = line.strip_prefix(", flush ")?;
        let fixed = reason.strip_suffix(FIXED_IDENTIFICATION);
        let has_fixed_identification = fixed.is_some();
        Some((Self { segments, mss, reason: fixed.unwrap_or(reason), has_fixed_identification }, rest))
    }
}

/// Parses a number; returns the remaining text too.
fn number<T: FromStr>(text: &str) -> Option<(T, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_read_as_written() {
        for has_fixed_identification in [false, true] {
            let merged = Merged { segments: 12, mss: 1448, reason: "hold", has_fixed_identification };
            let text = merged.to_string();
            assert_eq!(Merged::parse(&text), Some((merged, None)));
            assert_eq!(Merged::parse(&format!("{text}\nmore\nlines")), Some((merged, Some("more\nlines"))));
        }
    }

    #[test]
    fn other_comments_are_none_of_an_aggregate() {
        for text in ["", "a comment", "nichrome: x segments", "nichrome: 2 segments, MSS 99999, flush hold"] {
            assert_eq!(Merged::parse(text), None);
        }
    }
}
