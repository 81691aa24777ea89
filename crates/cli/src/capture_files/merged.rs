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
    /// True if all segments had the same identification in the IPv4 header of a tunnel.
    pub(crate) has_fixed_tunnel_identification: bool,
    /// True if all segments had CWR.
    pub(crate) has_accurate_ecn: bool,
}

const FIXED_IDENTIFICATION: &str = ", fixed identification";
const FIXED_TUNNEL_IDENTIFICATION: &str = ", fixed tunnel identification";
const ACCURATE_ECN: &str = ", accurate ECN";

impl fmt::Display for Merged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segments, mss, reason, .. } = self;
        write!(f, "nichrome: {segments} segments, MSS {mss}, flush {reason}")?;
        for (has_property, text) in [
            (self.has_fixed_identification, FIXED_IDENTIFICATION),
            (self.has_fixed_tunnel_identification, FIXED_TUNNEL_IDENTIFICATION),
            (self.has_accurate_ecn, ACCURATE_ECN),
        ] {
            f.write_str(if has_property { text } else { "" })?;
        }
        Ok(())
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
        let (reason, has_accurate_ecn) = without(reason, ACCURATE_ECN);
        let (reason, has_fixed_tunnel_identification) = without(reason, FIXED_TUNNEL_IDENTIFICATION);
        let (reason, has_fixed_identification) = without(reason, FIXED_IDENTIFICATION);
        let merged = Self {
            segments,
            mss,
            reason,
            has_fixed_identification,
            has_fixed_tunnel_identification,
            has_accurate_ecn,
        };
        Some((merged, rest))
    }
}

/// Returns the text without a suffix, and whether it had it.
fn without<'a>(text: &'a str, suffix: &str) -> (&'a str, bool) {
    text.strip_suffix(suffix).map_or((text, false), |text| (text, true))
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
        for properties in 0..8 {
            let merged = Merged {
                segments: 12,
                mss: 1448,
                reason: "hold",
                has_fixed_identification: properties & 1 != 0,
                has_fixed_tunnel_identification: properties & 2 != 0,
                has_accurate_ecn: properties & 4 != 0,
            };
            let text = merged.to_string();
            assert_eq!(Merged::parse(&text), Some((merged, None)));
            assert_eq!(Merged::parse(&format!("{text}\nmore\nlines")), Some((merged, Some("more\nlines"))));
        }
    }

    #[test]
    fn comments_of_other_programs_are_ignored() {
        for text in ["", "a comment", "nichrome: x segments", "nichrome: 2 segments, MSS 99999, flush hold"] {
            assert_eq!(Merged::parse(text), None);
        }
    }
}
