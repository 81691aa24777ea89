//! Markers (RFC 5044 section 4.3): four bytes at the start of the stream and every 512 bytes after.
//!
//! ```text
//! zeros (2 B) | FPDUPTR: bytes of the stream from the length field of the marker's FPDU to the marker (2 B)
//! ```
//!
//! A marker between two FPDUs belongs to the second, whose length field follows it: its FPDUPTR is 0. Markers
//! count neither in the length of the ULPDU nor in padding; the CRC covers them.
//!
//! FPDUs are multiples of four bytes, so that markers split neither the length field nor the CRC.

use super::error::FpduError;
use super::fpdu::{CRC_LEN, Crc, MAX_ULPDU, crc32c, fpdu_len};

/// Bytes of a marker.
pub const MARKER_LEN: usize = 4;

/// Bytes of the stream from one marker to the next.
pub const MARKER_INTERVAL: usize = 512;

/// Maximum length of a ULPDU in a stream with markers, in bytes, so that FPDUPTR's 16 bits suffice: the
/// MULPDU of an EMSS of 65,535 bytes (RFC 5044 section 4.5).
pub const MAX_MARKED_ULPDU: usize =
    MAX_ULPDU - (6 + MARKER_LEN * MAX_ULPDU.div_ceil(MARKER_INTERVAL) + MAX_ULPDU % 4);

/// The position of one direction of a stream between markers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Markers {
    /// Bytes of the stream since the last marker's first byte, modulo 512; 0 if a marker comes next.
    position: usize,
}

impl Markers {
    /// Bytes of the stream that an FPDU of `len` bytes takes with its markers.
    pub fn len_with(mut self, len: usize) -> usize {
        let (mut rest, mut total) = (len, 0);
        while rest > 0 {
            total += self.skip();
            let piece = self.piece(rest);
            (rest, total) = (rest - piece, total + piece);
        }
        total
    }

    /// Appends an FPDU to `output` with markers, and computes the CRC again. Its ULPDU has up to
    /// [`MAX_MARKED_ULPDU`] bytes.
    pub fn insert(&mut self, fpdu: &[u8], crc: Crc, output: &mut Vec<u8>) {
        let (start, head) = (output.len(), self.head());
        let mut rest = fpdu;
        while !rest.is_empty() {
            if self.skip() > 0 {
                let pointer = pointer(output.len() - start, head);
                output.extend([0, 0]);
                output.extend(pointer.to_be_bytes());
            }
            let (piece, behind) = rest.split_at(self.piece(rest.len()));
            output.extend(piece);
            rest = behind;
        }
        if let (Crc::Used, Some((covered, field))) = (crc, output[start..].split_last_chunk_mut::<CRC_LEN>())
        {
            *field = crc32c(covered).to_le_bytes();
        }
    }

    /// Reads the FPDU at the front of a stream with markers, and appends it to `output` without them. Returns
    /// the bytes of the stream that it takes; `None` while it is incomplete.
    ///
    /// # Errors
    /// [`FpduError`], with nothing consumed.
    pub fn remove(
        &mut self,
        stream: &[u8],
        crc: Crc,
        output: &mut Vec<u8>,
    ) -> Result<Option<usize>, FpduError> {
        let head = self.head();
        let Some(length) = stream.get(head..).and_then(<[u8]>::first_chunk) else { return Ok(None) };
        let mut rest = fpdu_len(u16::from_be_bytes(*length).into());
        let total = self.len_with(rest);
        let Some(fpdu) = stream.get(..total) else { return Ok(None) };
        if let (Crc::Used, Some((covered, field))) = (crc, fpdu.split_last_chunk::<CRC_LEN>())
            && *field != crc32c(covered).to_le_bytes()
        {
            return Err(FpduError::Crc);
        }
        let (mut after, mut at, begun) = (*self, 0, output.len());
        while rest > 0 {
            let marker = after.skip();
            if marker > 0 && read_pointer(&fpdu[at..]) != pointer(at, head) {
                output.truncate(begun);
                return Err(FpduError::Marker);
            }
            let piece = after.piece(rest);
            output.extend(&fpdu[at + marker..at + marker + piece]);
            (rest, at) = (rest - piece, at + marker + piece);
        }
        *self = after;
        Ok(Some(total))
    }

    /// Bytes of a marker before the length field of the next FPDU.
    fn head(mut self) -> usize {
        self.skip()
    }

    /// Moves past a marker if one comes next; returns its bytes.
    fn skip(&mut self) -> usize {
        if self.position > 0 {
            return 0;
        }
        self.position = MARKER_LEN;
        MARKER_LEN
    }

    /// Moves past up to `rest` bytes that no marker splits; returns how many.
    fn piece(&mut self, rest: usize) -> usize {
        let piece = rest.min(MARKER_INTERVAL - self.position);
        self.position = (self.position + piece) % MARKER_INTERVAL;
        piece
    }
}

/// Returns the FPDUPTR of a marker `at` bytes into its FPDU, whose length field follows the first `head`
/// bytes.
fn pointer(at: usize, head: usize) -> u16 {
    at.saturating_sub(head) as u16
}

/// The FPDUPTR of a received marker. Its two lowest bits are not defined (RFC 5044 section 4.2).
fn read_pointer(marker: &[u8]) -> u16 {
    u16::from_be_bytes([marker[2], marker[3]]) & !3
}

#[cfg(test)]
mod tests {
    use super::super::fpdu::Fpdu;
    use super::*;
    use proptest::prelude::*;

    /// The FPDU of a SEND with 24 zeros, as in figures 5 and 6 of RFC 5044.
    fn send(message: u8) -> [u8; 48] {
        let mut fpdu = [0; 48];
        (fpdu[2], fpdu[3], fpdu[15]) = (0x41, 0x43, message);
        assert_eq!(Fpdu::finish(&mut fpdu, 42, Crc::Used), fpdu.len());
        fpdu
    }

    #[test]
    fn fpdus_are_those_of_the_figures_of_rfc_5044() {
        let [first, second] = [1, 2].map(send);
        let (mut markers, mut stream) = (Markers::default(), Vec::new());
        markers.insert(&first, Crc::Used, &mut stream);
        let figure_5 = [&[0; 4], &first[..44], &[0x52, 0x23, 0x99, 0x83]].concat();
        assert_eq!(stream, figure_5);
        let mut at_492 = Markers { position: 492 };
        stream.clear();
        at_492.insert(&second, Crc::Used, &mut stream);
        let figure_6 = [&second[..20], &[0, 0, 0, 0x14], &second[20..44], &[0x84, 0x92, 0x58, 0x98]].concat();
        assert_eq!(stream, figure_6);
    }

    #[test]
    fn markers_point_to_the_length_field_of_their_fpdu() {
        let (mut markers, mut fpdu, mut stream) = (Markers::default(), [0; 2000], Vec::new());
        let len = Fpdu::finish(&mut fpdu, 1200, Crc::Used);
        markers.insert(&fpdu[..len], Crc::Used, &mut stream);
        let second = stream.len();
        markers.insert(&fpdu[..len], Crc::Used, &mut stream);
        assert_eq!((len, second), (1208, 1220));
        let pointers = stream.chunks(MARKER_INTERVAL).map(|chunk| u16::from_be_bytes([chunk[2], chunk[3]]));
        // The first FPDU's length field is behind a marker.
        assert_eq!(pointers.collect::<Vec<_>>(), [0, 508, 1020, 316, 828]);
    }

    #[test]
    fn the_longest_ulpdu_has_pointers_of_16_bits_wherever_its_fpdu_begins() {
        let len = fpdu_len(MAX_MARKED_ULPDU);
        for position in (0..MARKER_INTERVAL).step_by(4) {
            let total = Markers { position }.len_with(len);
            assert!(total - CRC_LEN - MARKER_LEN <= u16::MAX.into(), "{position}: {total}");
        }
    }

    #[test]
    fn bits_that_are_not_defined_are_ignored() {
        let (mut stream, mut read) = (Vec::new(), Vec::new());
        Markers::default().insert(&send(1), Crc::Unused, &mut stream);
        stream[..4].copy_from_slice(&[0xFF, 0xFF, 0, 3]);
        let removed = Markers::default().remove(&stream, Crc::Unused, &mut read);
        assert_eq!((removed, read.as_slice()), (Ok(Some(52)), &send(1)[..]));
    }

    proptest! {
        #[test]
        fn without_crcs_a_marker_that_points_elsewhere_is_an_error(
            len in 1000usize..3000,
            marker in 0..2usize,
            bit in 2..16usize,
        ) {
            let (mut fpdu, mut stream, mut read) = (vec![0x5A; fpdu_len(len)], Vec::new(), vec![7]);
            Fpdu::finish(&mut fpdu, len, Crc::Unused);
            Markers::default().insert(&fpdu, Crc::Unused, &mut stream);
            stream[marker * MARKER_INTERVAL + 3 - bit / 8] ^= 1 << (bit % 8);
            let mut receiver = Markers::default();
            prop_assert_eq!(receiver.remove(&stream, Crc::Unused, &mut read), Err(FpduError::Marker));
            prop_assert_eq!((receiver, read), (Markers::default(), vec![7]));
        }

        #[test]
        fn what_is_inserted_is_removed(
            lens in proptest::collection::vec(0usize..3000, 1..12),
            cut in any::<prop::sample::Index>(),
            bit in any::<prop::sample::Index>(),
        ) {
            let (mut sender, mut receiver) = (Markers::default(), Markers::default());
            for len in lens {
                let (mut fpdu, mut stream, mut read) = (vec![0x5A; fpdu_len(len)], Vec::new(), Vec::new());
                Fpdu::finish(&mut fpdu, len, Crc::Used);
                let expected = sender.len_with(fpdu.len());
                sender.insert(&fpdu, Crc::Used, &mut stream);
                prop_assert_eq!(stream.len(), expected);
                let before = receiver;
                prop_assert_eq!(receiver.remove(&stream[..cut.index(stream.len())], Crc::Used, &mut read), Ok(None));
                let mut damaged = stream.clone();
                // A damaged length, in the first six bytes, may only be detected when more bytes have
                // arrived.
                let at = damaged.len() - 1 - bit.index(damaged.len() - 6);
                damaged[at] ^= 1;
                prop_assert_eq!(receiver.remove(&damaged, Crc::Used, &mut read), Err(FpduError::Crc));
                prop_assert_eq!((receiver, read.len()), (before, 0));
                prop_assert_eq!(receiver.remove(&stream, Crc::Used, &mut read), Ok(Some(stream.len())));
                let covered = fpdu.len() - CRC_LEN;
                prop_assert_eq!(&read[..covered], &fpdu[..covered]);
            }
        }
    }
}
