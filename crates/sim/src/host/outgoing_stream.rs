//! Payload and checksum of the segments that TCP sends. The send buffer never holds the pattern, so its pages
//! are never written and take no memory.

use nichrome_wire::checksum::Sum;
use nichrome_wire::{EthernetHeader, IpProtocol, Ipv4Header, SeqNumber, TcpFlags, TcpHeader};

use super::pattern;

/// Offset of IPv4's payload: smoltcp sends no IP options.
const TCP: usize = EthernetHeader::LEN + Ipv4Header::LEN;
/// Offset of the checksum in the TCP header.
const CHECKSUM: usize = 16;

/// The source of a connection's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    /// The pattern.
    Pattern,
    /// The send buffer, which the world has written.
    Buffered,
}

/// An outgoing stream.
#[derive(Clone, Debug)]
pub(super) struct OutgoingStream {
    payload: Payload,
    /// A sequence number of the stream and its offset; `None` before the SYN.
    known: Option<(SeqNumber, u64)>,
}

impl OutgoingStream {
    pub(super) fn new(payload: Payload) -> Self {
        Self { payload, known: None }
    }

    /// Writes the payload and the checksum of an Ethernet frame with a TCP segment; leaves any other frame as
    /// it is.
    pub(super) fn complete(&mut self, frame: &mut [u8]) {
        let Some(pseudo_header) = pseudo_header(frame) else { return };
        let segment = &mut frame[TCP..];
        let Some(tcp) = TcpHeader::new(segment) else { return };
        let (seq, header_len, is_syn) = (tcp.seq(), tcp.header_len(), tcp.flags().contains(TcpFlags::SYN));
        if is_syn {
            self.known = Some((seq + 1, 0));
        } else if self.payload == Payload::Pattern && segment.len() > header_len {
            pattern::fill(self.offset(seq), &mut segment[header_len..]);
        }
        segment[CHECKSUM..CHECKSUM + 2].fill(0);
        let sum = pseudo_header.add_bytes(segment).finish();
        segment[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// Returns the stream offset of a sequence number, which is within 2³¹ of the last one.
    fn offset(&mut self, seq: SeqNumber) -> u64 {
        let Some((known, at)) = self.known else { return 0 };
        let ahead = i64::from(seq.0.wrapping_sub(known.0) as i32);
        let offset = at.saturating_add_signed(ahead);
        self.known = Some((seq, offset));
        offset
    }
}

/// Returns the pseudo-header's sum; `None` if the frame is not TCP.
fn pseudo_header(frame: &[u8]) -> Option<Sum> {
    let ip = Ipv4Header::new(frame.get(EthernetHeader::LEN..)?)?;
    let len = u32::try_from(frame.len().checked_sub(TCP)?).ok()?;
    let protocol = ip.protocol();
    (protocol == IpProtocol::TCP).then(|| Sum::pseudo_ipv4(ip.src(), ip.dst(), protocol.0, len))
}

#[cfg(test)]
mod tests {
    use nichrome_wire::TcpFrame;

    use super::*;

    fn frame(seq: u32, flags: TcpFlags, len: usize) -> TcpFrame {
        TcpFrame { seq: SeqNumber(seq), flags, payload: vec![0; len], ..TcpFrame::default() }
    }

    fn completed(stream: &mut OutgoingStream, frame: &TcpFrame) -> Vec<u8> {
        let mut bytes = frame.build();
        bytes[TCP + CHECKSUM..TCP + CHECKSUM + 2].fill(0xAA);
        stream.complete(&mut bytes);
        bytes
    }

    #[test]
    fn segments_hold_what_stands_at_their_place_also_when_sequence_numbers_wrap() {
        let mut stream = OutgoingStream::new(Payload::Pattern);
        let first = u32::MAX - 500;
        let syn = frame(first, TcpFlags::SYN, 0);
        assert_eq!(completed(&mut stream, &syn), syn.build());
        for offset in [0u32, 1000, 2000, 1000, 0, 3000] {
            let mut segment = frame(first.wrapping_add(1 + offset), TcpFlags::ACK, 1000);
            let bytes = completed(&mut stream, &segment);
            pattern::fill(u64::from(offset), &mut segment.payload);
            assert_eq!(bytes, segment.build(), "{offset}");
        }
    }

    #[test]
    fn what_the_world_writes_gets_its_checksum_only() {
        let mut stream = OutgoingStream::new(Payload::Buffered);
        let mut segment = frame(7, TcpFlags::ACK, 0);
        segment.payload = (0..=255).collect();
        assert_eq!(completed(&mut stream, &segment), segment.build());
    }

    #[test]
    fn other_frames_than_tcp_stay_unchanged() {
        for mut bytes in [Vec::new(), vec![3; 60]] {
            let before = bytes.clone();
            OutgoingStream::new(Payload::Pattern).complete(&mut bytes);
            assert_eq!(bytes, before);
        }
    }
}
