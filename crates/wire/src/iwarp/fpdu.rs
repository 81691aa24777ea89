//! FPDUs: the frames of MPA (RFC 5044 section 4).
//!
//! ```text
//! length of the ULPDU (2 B) | ULPDU | zeros up to a multiple of 4 B | CRC-32C (4 B)
//! ```
//!
//! The CRC covers all bytes before it. Connections without CRCs keep the field; receivers ignore it.

use super::error::FpduError;

/// Bytes of the length field.
const LENGTH_LEN: usize = 2;

/// Bytes of the CRC field.
pub const CRC_LEN: usize = 4;

/// Maximum length of a ULPDU, in bytes.
pub const MAX_ULPDU: usize = u16::MAX as usize;

/// Whether a connection's FPDUs have CRCs, as the start frames agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Crc {
    /// Computed and checked.
    Used,
    /// Zero when sent, ignored when received.
    Unused,
}

/// Returns the CRC-32C (RFC 5044 section 4.4), the same as iSCSI's.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Bytes of the FPDU of a ULPDU with `ulpdu` bytes, without markers.
#[inline]
pub const fn fpdu_len(ulpdu: usize) -> usize {
    (LENGTH_LEN + ulpdu).next_multiple_of(4) + CRC_LEN
}

/// A received FPDU, without markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fpdu<'a> {
    /// The DDP segment.
    pub ulpdu: &'a [u8],
    /// Bytes of the FPDU.
    pub len: usize,
}

impl<'a> Fpdu<'a> {
    /// Bytes of the FPDU at the front of a stream without markers; `None` while its length field is
    /// incomplete.
    #[inline]
    pub fn len_of(stream: &[u8]) -> Option<usize> {
        stream.first_chunk().map(|length| fpdu_len(u16::from_be_bytes(*length).into()))
    }

    /// Reads the FPDU at the front of a stream without markers; `None` while it is incomplete.
    ///
    /// # Errors
    /// [`FpduError::Crc`].
    #[inline]
    pub fn parse(stream: &'a [u8], crc: Crc) -> Result<Option<Self>, FpduError> {
        let Some(length) = stream.first_chunk() else { return Ok(None) };
        let ulpdu_len = usize::from(u16::from_be_bytes(*length));
        let len = fpdu_len(ulpdu_len);
        let Some(fpdu) = stream.get(..len) else { return Ok(None) };
        let (covered, field) = fpdu.split_at(len - CRC_LEN);
        if crc == Crc::Used && field != crc32c(covered).to_le_bytes() {
            return Err(FpduError::Crc);
        }
        Ok(Some(Self { ulpdu: &fpdu[LENGTH_LEN..LENGTH_LEN + ulpdu_len], len }))
    }

    /// Returns the part of `buffer` for a ULPDU of `len` bytes, around which [`Self::finish`] then completes
    /// the FPDU; `None` if the buffer is too short or the ULPDU too long.
    #[inline]
    pub fn ulpdu_mut(buffer: &mut [u8], len: usize) -> Option<&mut [u8]> {
        if len > MAX_ULPDU {
            return None;
        }
        buffer.get_mut(..fpdu_len(len)).map(|fpdu| &mut fpdu[LENGTH_LEN..LENGTH_LEN + len])
    }

    /// Writes length, padding and CRC around the ULPDU of `len` bytes in `buffer`; returns the bytes of the
    /// FPDU, 0 if the buffer is too short or the ULPDU too long.
    #[inline]
    pub fn finish(buffer: &mut [u8], len: usize, crc: Crc) -> usize {
        let total = fpdu_len(len);
        let (Ok(length), Some(fpdu)) = (u16::try_from(len), buffer.get_mut(..total)) else { return 0 };
        let (covered, field) = fpdu.split_at_mut(total - CRC_LEN);
        covered[..LENGTH_LEN].copy_from_slice(&length.to_be_bytes());
        covered[LENGTH_LEN + len..].fill(0);
        let value = match crc {
            Crc::Used => crc32c(covered),
            Crc::Unused => 0,
        };
        field.copy_from_slice(&value.to_le_bytes());
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of iSCSI (RFC 3720 appendix B.4): 32 bytes of zeros.
    #[test]
    fn the_crc_is_that_of_iscsi() {
        assert_eq!(crc32c(&[0; 32]).to_le_bytes(), [0xAA, 0x36, 0x91, 0x8A]);
    }

    /// The CRC library chooses its instructions by the length.
    #[test]
    fn the_crc_is_that_of_its_polynomial_at_any_length() {
        let shift = |crc: u32| crc >> 1 ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
        let next = |crc: u32, byte: u8| (0..8).fold(crc ^ u32::from(byte), |crc, _| shift(crc));
        let bytes: Vec<u8> = (0..9000u32).map(|nth| (nth.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
        for start in [0, 1] {
            let mut crc = !0;
            for (len, byte) in bytes[start..].iter().enumerate() {
                assert_eq!(crc32c(&bytes[start..start + len]), !crc, "{len} bytes from {start}");
                crc = next(crc, *byte);
            }
        }
    }

    #[test]
    fn the_length_of_an_fpdu_is_known_from_its_first_two_bytes() {
        assert_eq!(Fpdu::len_of(&[1]), None);
        // 0x0102 bytes, 2 bytes before them, no padding, and the CRC.
        assert_eq!(Fpdu::len_of(&[1, 2]), Some(264));
        assert_eq!(Fpdu::len_of(&[0, 1, 0xFF]), Some(8));
    }

    #[test]
    fn a_ulpdu_has_a_place_up_to_the_longest() {
        let mut buffer = vec![0; fpdu_len(MAX_ULPDU + 2)];
        for (len, found) in
            [(0, Some(0)), (MAX_ULPDU, Some(MAX_ULPDU)), (MAX_ULPDU + 1, None), (MAX_ULPDU + 2, None)]
        {
            assert_eq!(Fpdu::ulpdu_mut(&mut buffer, len).map(|ulpdu| ulpdu.len()), found, "{len}");
        }
        assert_eq!(Fpdu::ulpdu_mut(&mut buffer[..fpdu_len(1000) - 1], 1000), None);
    }

    #[test]
    fn lengths_are_multiples_of_four() {
        assert_eq!([0, 1, 2, 3, 6, 7].map(fpdu_len), [8, 8, 8, 12, 12, 16]);
        assert_eq!(fpdu_len(MAX_ULPDU), 65_544);
    }

    #[test]
    fn an_fpdu_is_read_when_it_is_whole() {
        for crc in [Crc::Used, Crc::Unused] {
            let mut buffer = [0xA5; 40];
            Fpdu::ulpdu_mut(&mut buffer, 5).unwrap().copy_from_slice(b"ULPDU");
            assert_eq!(Fpdu::finish(&mut buffer, 5, crc), 12);
            for cut in 0..12 {
                assert_eq!(Fpdu::parse(&buffer[..cut], crc), Ok(None));
            }
            assert_eq!(Fpdu::parse(&buffer, crc), Ok(Some(Fpdu { ulpdu: b"ULPDU", len: 12 })));
            buffer[3] ^= 1;
            assert_eq!(Fpdu::parse(&buffer, crc).is_err(), crc == Crc::Used);
        }
    }
}
