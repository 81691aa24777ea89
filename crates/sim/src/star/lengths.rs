//! How long packets are on an Ethernet: the one place of all header sizes.

use nichrome_wire::rdma::{Aeth, BthHeader, Deth, ICRC_LEN, Reth};
use nichrome_wire::{EthernetHeader, Ipv4Header, UdpHeader};

use super::packet::Kind;

/// A StaR packet's header and check, which the paper leaves open: type, flags, length, connection, sequence number, CRC.
const STAR: usize = 12 + 4;

/// Address and key in RDPs and GDs.
const SPAN: usize = 12;

/// A work queue element with one buffer.
const ELEMENT: usize = 32 + 16;

/// A completion queue element.
const COMPLETION: usize = 20;

/// Before the UDP payload.
const UNDERLAY: usize = EthernetHeader::LEN + Ipv4Header::LEN + UdpHeader::LEN;

/// Bytes of a packet from its Ethernet header to the end of its last check, without the frame check sequence.
/// `is_write` says whether it is the first packet of a WRITE, which has the address.
pub(super) const fn packet_len(kind: Kind, payload: u32, is_write: bool) -> u32 {
    let address = if is_write { Reth::LEN } else { 0 };
    let payload = payload as usize;
    let datagram = match kind {
        Kind::Data => BthHeader::LEN + address + payload + ICRC_LEN,
        Kind::Ack | Kind::Nak => BthHeader::LEN + Aeth::LEN + ICRC_LEN,
        Kind::Request | Kind::Response => BthHeader::LEN + Deth::LEN + payload + ICRC_LEN,
        Kind::Wqep => STAR + ELEMENT,
        Kind::Cqep => STAR + COMPLETION,
        Kind::Ea | Kind::Ra => STAR,
        Kind::Rdp => STAR + SPAN + payload,
        Kind::Gd => STAR + SPAN,
        Kind::Sdp => STAR + payload,
    };
    (UNDERLAY + datagram) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_the_lengths_of_their_formats() {
        let lengths = [
            (Kind::Data, 8, true, 82),
            (Kind::Data, 1400, false, 1458),
            (Kind::Ack, 0, false, 62),
            (Kind::Request, 8, false, 74),
            (Kind::Rdp, 8, false, 78),
            (Kind::Ra, 0, false, 58),
            (Kind::Gd, 0, false, 70),
            (Kind::Sdp, 1400, false, 1458),
            (Kind::Ea, 0, false, 58),
            (Kind::Cqep, 0, false, 78),
            (Kind::Wqep, 0, false, 106),
        ];
        for (kind, payload, is_write, len) in lengths {
            assert_eq!(packet_len(kind, payload, is_write), len, "{kind:?}");
        }
    }
}
