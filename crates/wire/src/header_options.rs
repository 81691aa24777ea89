//! The raw options of an IPv4 or TCP header.

use std::fmt;

/// The options of an IPv4 or TCP header: at most 40 bytes, a multiple of 4. Not interpreted.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeaderOptions {
    bytes: [u8; Self::MAX_LEN],
    len: u8,
}

impl HeaderOptions {
    /// Maximum length in bytes: a header of 15 words minus its fixed 20 bytes.
    pub const MAX_LEN: usize = 40;
    /// No options.
    pub const NONE: Self = Self { bytes: [0; Self::MAX_LEN], len: 0 };

    /// Creates options, padded with zeros to a multiple of 4, which both protocols parse as the end of the
    /// list. `None` if longer than 40 bytes.
    pub fn new(options: &[u8]) -> Option<Self> {
        let mut all = Self::NONE;
        all.bytes.get_mut(..options.len())?.copy_from_slice(options);
        all.len = options.len().next_multiple_of(4) as u8;
        Some(all)
    }

    /// Returns the options with their padding.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len()]
    }

    /// Returns the length with padding, in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if there are no options.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the length of a header with these options, in words of 4 bytes: 5 to 15.
    pub(crate) const fn header_words(&self) -> u8 {
        5 + self.len / 4
    }
}

impl Default for HeaderOptions {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Debug for HeaderOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", self.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_padded_to_words() {
        let options = HeaderOptions::new(&[1, 1, 1, 1, 1]).unwrap();
        assert_eq!(options.as_bytes(), [1, 1, 1, 1, 1, 0, 0, 0]);
        assert_eq!(options, HeaderOptions::new(options.as_bytes()).unwrap());
        assert_eq!(options.header_words(), 7);
    }

    #[test]
    fn forty_bytes_fit_and_no_more() {
        assert_eq!(HeaderOptions::new(&[1; 40]).unwrap().header_words(), 15);
        assert_eq!(HeaderOptions::new(&[1; 41]), None);
        assert_eq!(HeaderOptions::new(&[]), Some(HeaderOptions::NONE));
        assert!(HeaderOptions::NONE.is_empty() && !HeaderOptions::new(&[1]).unwrap().is_empty());
    }
}
