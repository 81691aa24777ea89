//! Markers (RFC 5044 section 4.3): four bytes at the start of the stream and every 512 bytes after, each with the distance back
//! to the start of the FPDU that it stands in. One that stands between two FPDUs belongs to the second. Markers count neither
//! in the length of the ULPDU nor in padding; the CRC covers them.
//!
//! FPDUs are multiples of four bytes, so that markers split neither the length field nor the CRC.

use super::error::FpduError;
use super::fpdu::{CRC_LEN, Crc, crc32c, fpdu_len};

/// Bytes of a marker.
pub const MARKER_LEN: usize = 4;

/// Bytes of the stream from one marker to the next.
pub const MARKER_INTERVAL: usize = 512;

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

    /// Appends an FPDU to `output` with markers, and computes the CRC again.
    pub fn insert(&mut self, fpdu: &[u8], crc: Crc, output: &mut Vec<u8>) {
        let start = output.len();
        let mut rest = fpdu;
        while !rest.is_empty() {
            if self.skip() > 0 {
                let distance = (output.len() - start) as u32;
                output.extend(distance.to_be_bytes());
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

    /// Reads the FPDU at the front of a stream with markers, and appends it to `output` without them. Returns the bytes of the
    /// stream that it takes; `None` while it is incomplete.
    ///
    /// # Errors
    /// [`FpduError`], with nothing consumed.
    pub fn remove(
        &mut self,
        stream: &[u8],
        crc: Crc,
        output: &mut Vec<u8>,
    ) -> Result<Option<usize>, FpduError> {
        let mut after = *self;
        let head = after.skip();
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
            if marker > 0 && usize::from(u16::from_be_bytes([fpdu[at + 2], fpdu[at + 3]])) != at {
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

#[cfg(test)]
mod tests {
    use super::super::fpdu::Fpdu;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_marker_points_to_itself_and_the_next_to_its_fpdu() {
        let (mut markers, mut fpdu, mut stream) = (Markers::default(), [0; 2000], Vec::new());
        let len = Fpdu::finish(&mut fpdu, 700, Crc::Used);
        markers.insert(&fpdu[..len], Crc::Used, &mut stream);
        assert_eq!((len, stream.len()), (708, 716));
        assert_eq!((&stream[..4], &stream[512..516]), (&[0, 0, 0, 0][..], &[0, 0, 2, 0][..]));
        let begun = stream.len();
        markers.insert(&fpdu[..len], Crc::Used, &mut stream);
        assert_eq!(stream[1024..1028], ((1024 - begun) as u32).to_be_bytes());
    }

    proptest! {
        #[test]
        fn without_crcs_a_marker_that_points_elsewhere_is_an_error(
            len in 1000usize..3000,
            marker in 0..2usize,
            bit in 0..16usize,
        ) {
            let (mut fpdu, mut stream, mut read) = (vec![0x5A; fpdu_len(len)], Vec::new(), vec![7]);
            Fpdu::finish(&mut fpdu, len, Crc::Unused);
            Markers::default().insert(&fpdu, Crc::Unused, &mut stream);
            stream[marker * MARKER_INTERVAL + 2 + bit / 8] ^= 1 << (bit % 8);
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
                // Damage of the length, in the first six bytes, may only show when more bytes have come.
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
