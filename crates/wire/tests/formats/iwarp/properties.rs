//! Invariants for any message, and for any bytes.

use nichrome_wire::iwarp::{AtomicRequest, Crc, Fpdu, Markers, MpaFrame, Segment, Terminated, fpdu_len};
use proptest::collection::vec;
use proptest::prelude::*;

use super::generated::{atomic_request, read_request, segment, start};

proptest! {
    #[test]
    fn what_is_written_parses_to_the_same((segment, payload) in segment()) {
        let len = segment.header_len() + payload.len();
        let mut fpdu = vec![0xA5; fpdu_len(len)];
        segment.write(Fpdu::ulpdu_mut(&mut fpdu, len).unwrap()).unwrap().copy_from_slice(&payload);
        Fpdu::finish(&mut fpdu, len, Crc::Used);
        let parsed = Fpdu::parse(&fpdu, Crc::Used).unwrap().unwrap();
        prop_assert_eq!(Segment::parse(parsed.ulpdu).unwrap(), (segment, &payload[..]));
    }

    #[test]
    fn headers_are_read_as_they_were_written(words in any::<[u64; 6]>()) {
        let (read, atomic) = (read_request(words), atomic_request(words));
        prop_assert_eq!(nichrome_wire::iwarp::ReadRequest::from_bytes(&read.to_bytes()), read);
        prop_assert_eq!(AtomicRequest::from_bytes(&atomic.to_bytes()), Ok(atomic));
    }

    #[test]
    fn start_frames_are_read_as_they_were_written((frame, data) in start(), more in vec(any::<u8>(), 0..9)) {
        let frame = MpaFrame { private_data: &data, ..frame };
        let mut stream = Vec::new();
        frame.write(&mut stream);
        let len = stream.len();
        for cut in 0..len {
            prop_assert_eq!(MpaFrame::parse(&stream[..cut]), Ok(None));
        }
        stream.extend(more);
        prop_assert_eq!(MpaFrame::parse(&stream), Ok(Some((frame, len))));
    }

    /// The CRC detects a bit that is flipped behind the length field.
    #[test]
    fn a_flipped_bit_is_seen((segment, payload) in segment(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let len = segment.header_len() + payload.len();
        let mut fpdu = vec![0; fpdu_len(len)];
        segment.write(Fpdu::ulpdu_mut(&mut fpdu, len).unwrap()).unwrap().copy_from_slice(&payload);
        Fpdu::finish(&mut fpdu, len, Crc::Used);
        let at = 2 + at.index(fpdu.len() - 2);
        fpdu[at] ^= 1 << bit;
        prop_assert!(Fpdu::parse(&fpdu, Crc::Used).is_err());
    }

    #[test]
    fn any_segment_that_parses_is_written_to_the_same_bytes(mut bytes in vec(any::<u8>(), 0..80)) {
        // Make the versions right, which random bytes seldom are.
        if let Some([ddp, rdmap]) = bytes.first_chunk_mut() {
            *ddp = *ddp & 0xC0 | 1;
            *rdmap = *rdmap & 0x0F | 0x40;
        }
        if let Ok((segment, payload)) = Segment::parse(&bytes) {
            let mut written = vec![0; bytes.len()];
            segment.write(&mut written).unwrap().copy_from_slice(payload);
            prop_assert_eq!(written, bytes);
        }
    }

    #[test]
    fn any_bytes_parse_or_fail(bytes in vec(any::<u8>(), 0..700)) {
        let _ = MpaFrame::parse(&bytes);
        let _ = Terminated::from_bytes(&bytes);
        let mut removed = Vec::new();
        let mut markers = Markers::default();
        if let Ok(Some(consumed)) = markers.remove(&bytes, Crc::Unused, &mut removed) {
            prop_assert!(consumed <= bytes.len() && removed.len() < consumed);
        }
        if let Ok(Some(fpdu)) = Fpdu::parse(&bytes, Crc::Unused) {
            prop_assert!(fpdu.len <= bytes.len() && fpdu.len == fpdu_len(fpdu.ulpdu.len()));
        }
    }
}
