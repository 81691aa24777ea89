//! Frames that need no segmentation.

use nichrome_tso::{SegmentError, complete_checksum};
use nichrome_wire::{AddressPair, ChecksumState, IpProtocol, Network, TcpFrame, VirtioNetRepr};

use crate::common::*;

/// Returns the packet of a frame; checks that it equals the frame completed in place.
fn packet(frame: &[u8], virtio: &VirtioNetRepr) -> Vec<u8> {
    let mut packets = cut(frame, virtio).unwrap();
    let mut in_place = frame.to_vec();
    complete_checksum(&mut in_place, virtio).unwrap();
    assert_eq!(packets, [in_place]);
    packets.remove(0)
}

/// Writes the pseudo-header's sum into the checksum field, `field` bytes into the transport header, as a
/// kernel does for a partial checksum.
fn unfinished(mut frame: Vec<u8>, network: &Network, field: u16) -> (Vec<u8>, VirtioNetRepr) {
    let transport = transport_at(&frame, network);
    let addresses = match *network {
        Network::Ipv4 { src, dst, .. } => AddressPair::V4 { src, dst },
        Network::Ipv6 { src, dst, .. } => AddressPair::V6 { src, dst },
    };
    let protocol = if field == 6 { IpProtocol::UDP } else { IpProtocol::TCP };
    let sum = addresses.pseudo_header(protocol, (frame.len() - transport) as u32).fold();
    frame[transport + usize::from(field)..][..2].copy_from_slice(&sum.to_be_bytes());
    (frame, partial(VirtioNetRepr::default(), transport, field))
}

fn networks(protocol: IpProtocol) -> [Network; 3] {
    [Network::default(), ipv6(&[], protocol), ipv6(&[(IpProtocol::DESTINATION_OPTIONS, 1)], protocol)]
}

#[test]
fn a_frame_without_pending_offloads_is_sent_unchanged() {
    let frames = [data(100).build(), b"not Ethernet at all".to_vec(), vec![7], vec![], payload(70_000)];
    for frame in frames {
        for checksum in [ChecksumState::Unchecked, ChecksumState::Valid] {
            assert_eq!(packet(&frame, &VirtioNetRepr { checksum, gso: None }), frame);
        }
    }
}

#[test]
fn an_unfinished_tcp_checksum_is_completed() {
    for network in networks(IpProtocol::TCP) {
        for len in [0, 1, 1447, 1448] {
            let frame = TcpFrame { network: network.clone(), ..data(len) };
            let (bytes, virtio) = unfinished(frame.build(), &network, 16);
            assert_ne!(bytes, frame.build());
            assert_eq!(packet(&bytes, &virtio), frame.build());
            assert_checksums(&packet(&bytes, &virtio));
        }
    }
}

#[test]
fn an_unfinished_udp_checksum_is_completed() {
    for network in networks(IpProtocol::UDP) {
        for len in [0, 1, 1471, 1472] {
            let frame = UdpFrame::new(network.clone(), payload(len));
            let (bytes, virtio) = unfinished(frame.build(), &network, 6);
            assert_eq!(packet(&bytes, &virtio), frame.build());
        }
    }
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_0xffff_and_a_tcp_checksum_unchanged() {
    for (field, want) in [(6, [0xFF, 0xFF]), (16, [0, 0])] {
        let mut frame = vec![0; 40];
        // The covered bytes sum to 0xFFFF, so that the checksum is 0.
        frame[38..].fill(0xFF);
        let virtio = partial(VirtioNetRepr::default(), 14, field);
        let at = 14 + usize::from(field);
        assert_eq!(packet(&frame, &virtio)[at..at + 2], want);
    }
}

#[test]
fn a_checksum_beyond_the_frame_is_refused() {
    for (start, offset, frame_len) in
        [(50, 16, 67), (68, 0, 67), (66, 0, 67), (0xFFFF, 0xFFFF, 67), (0, 0, 1)]
    {
        let virtio = partial(VirtioNetRepr::default(), start, offset);
        let frame = vec![1; frame_len];
        let error = SegmentError::ChecksumBeyondFrame { start: start as u16, offset, frame_len };
        assert_eq!(cut(&frame, &virtio), Err(error));
        let mut in_place = frame.clone();
        assert_eq!(complete_checksum(&mut in_place, &virtio), Err(error));
        assert_eq!(in_place, frame);
    }
    assert!(cut(&[1; 68], &partial(VirtioNetRepr::default(), 50, 16)).is_ok());
}

#[test]
fn a_frame_to_be_cut_is_not_completed_in_place() {
    let (mut bytes, virtio) = tcp(&data(3000), 1448);
    let before = bytes.clone();
    assert_eq!(complete_checksum(&mut bytes, &virtio), Err(SegmentError::NotOnePacket(TCP4)));
    assert_eq!(bytes, before);
}
